package kubernetes

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/restmapper"

	"cairn.dev/conformance/harness"
	"cairn.dev/conformance/kubernetes/plane"
)

// release is the name of every release, and with it of its objects.
const release = "cairn"

// members selects the pods of the StatefulSet, and not those of jobs.
const members = "app.kubernetes.io/name=" + release

// releases are releases of the Helm chart in a control plane without nodes.
type releases struct {
	t       *testing.T
	control *plane.Plane
	client  *kubernetes.Clientset
	objects dynamic.Interface
	kinds   meta.RESTMapper
	// helmHome holds what helm keeps between runs.
	helmHome string
}

// hook is a job that helm started and waited for.
type hook struct {
	name string
	// pod is what the Job controller made of it.
	pod *corev1.Pod
	// replicas is what the StatefulSet had when the pod ended; 0 if there was none.
	replicas int32
}

// foreign are the kinds of other projects that the chart makes objects of.
var foreign = []struct{ group, plural, kind string }{
	{"cert-manager.io", "certificates", "Certificate"},
	{"monitoring.coreos.com", "servicemonitors", "ServiceMonitor"},
	{"monitoring.coreos.com", "prometheusrules", "PrometheusRule"},
}

func newReleases(t *testing.T, control *plane.Plane) *releases {
	t.Helper()
	objects, err := dynamic.NewForConfig(control.Config)
	if err != nil {
		t.Fatal(err)
	}
	r := &releases{t: t, control: control, client: control.Client(), objects: objects, helmHome: t.TempDir()}
	for _, one := range foreign {
		r.defineForeign(one.group, one.plural, one.kind)
	}
	r.kinds = restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(r.client.Discovery()))
	return r
}

// defineForeign adds a kind whose fields nobody checks: its project's definition is not here.
func (r *releases) defineForeign(group, plural, kind string) {
	r.t.Helper()
	definition := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
		"metadata": map[string]any{"name": plural + "." + group},
		"spec": map[string]any{
			"group": group, "scope": "Namespaced",
			"names": map[string]any{"plural": plural, "singular": strings.ToLower(kind), "kind": kind, "listKind": kind + "List"},
			"versions": []any{map[string]any{
				"name": "v1", "served": true, "storage": true,
				"schema": map[string]any{"openAPIV3Schema": map[string]any{"type": "object", "x-kubernetes-preserve-unknown-fields": true}},
			}},
		},
	}}
	if _, err := r.objects.Resource(definitions).Create(r.t.Context(), definition, v1.CreateOptions{}); err != nil {
		r.t.Fatalf("define %s: %v", plural, err)
	}
	await(r.t, plural+" are served", func(ctx context.Context) error {
		_, err := r.objects.Resource(schema.GroupVersionResource{Group: group, Version: "v1", Resource: plural}).List(ctx, v1.ListOptions{})
		return err
	})
}

// helm runs the genuine helm in a namespace.
func (r *releases) helm(namespace string, args ...string) harness.Result {
	r.t.Helper()
	var env []string
	for _, kind := range []string{"CACHE", "CONFIG", "DATA"} {
		env = append(env, fmt.Sprintf("HELM_%s_HOME=%s", kind, filepath.Join(r.helmHome, kind)))
	}
	args = append(args, "--namespace="+namespace, "--kubeconfig="+r.control.Kubeconfig)
	return harness.Command{Path: harness.Tool(r.t, "helm"), Args: args, Env: env, Max: 2 * settleMax}.Run(r.t)
}

// mustHelm is helm for commands that must succeed, and of which the API server has nothing to warn; it returns the output.
func (r *releases) mustHelm(namespace string, args ...string) string {
	r.t.Helper()
	result := r.helm(namespace, args...)
	if result.Code != 0 {
		r.t.Fatalf("helm %v: exit %d\n%s%s", args, result.Code, result.Stdout, result.Stderr)
	}
	// So client-go prints the warnings of an API server: fields that it does not know or that are obsolete, variables set twice.
	if strings.Contains(result.Stderr, "warnings.go") {
		r.t.Errorf("helm %v:\n%s", args, result.Stderr)
	}
	return result.Stdout
}

// change installs or upgrades the release and returns the jobs that helm waited for meanwhile.
func (r *releases) change(namespace, verb string, settings ...string) []hook {
	r.t.Helper()
	stop := r.endJobs(namespace, "")
	defer stop()
	r.mustHelm(namespace, changing(verb, settings...)...)
	return stop()
}

// changing are the words of helm that install or upgrade the release.
func changing(verb string, settings ...string) []string {
	words := []string{verb, release, chartFolder, "--timeout=" + settleMax.String()}
	if verb == "install" {
		words = append(words, "--create-namespace")
	}
	return append(words, settings...)
}

// endJobs does what a kubelet would do about the pods of jobs, which no node takes here: each ends, in failure if its job has the
// name `failing`. The function that is returned stops it and tells what jobs there were.
func (r *releases) endJobs(namespace, failing string) func() []hook {
	var hooks []hook
	seen := map[types.UID]bool{}
	kubelet := newBand()
	kubelet.loop(func() {
		ctx, cancel := once()
		defer cancel()
		jobs, err := r.client.BatchV1().Jobs(namespace).List(ctx, v1.ListOptions{})
		if err == nil {
			for index := range jobs.Items {
				job := &jobs.Items[index]
				if seen[job.UID] || isFinished(job) {
					continue
				}
				phase := corev1.PodSucceeded
				if job.Name == failing {
					phase = corev1.PodFailed
				}
				if one, err := r.endJob(ctx, job, phase); err == nil {
					seen[job.UID] = true
					hooks = append(hooks, one)
				}
			}
		}
		time.Sleep(50 * time.Millisecond)
	})
	return func() []hook {
		kubelet.stop()
		return hooks
	}
}

// endJob ends the pod of a job. It fails while there is none, and where another client was quicker.
func (r *releases) endJob(ctx context.Context, job *batchv1.Job, phase corev1.PodPhase) (hook, error) {
	pod, err := r.podOf(ctx, job)
	if err != nil {
		return hook{}, err
	}
	one := hook{name: job.Name, pod: pod.DeepCopy()}
	if set, err := r.client.AppsV1().StatefulSets(job.Namespace).Get(ctx, release, v1.GetOptions{}); err == nil {
		one.replicas = *set.Spec.Replicas
	}
	pod.Status.Phase = phase
	_, err = r.client.CoreV1().Pods(job.Namespace).UpdateStatus(ctx, pod, v1.UpdateOptions{})
	return one, err
}

// podOf is the pod that the Job controller made of a job.
func (r *releases) podOf(ctx context.Context, job *batchv1.Job) (*corev1.Pod, error) {
	pods, err := r.client.CoreV1().Pods(job.Namespace).List(ctx, v1.ListOptions{})
	if err != nil {
		return nil, err
	}
	for index := range pods.Items {
		if v1.IsControlledBy(&pods.Items[index], job) {
			return &pods.Items[index], nil
		}
	}
	return nil, fmt.Errorf("the job `%s` has no pod", job.Name)
}

func isFinished(job *batchv1.Job) bool {
	for _, condition := range job.Status.Conditions {
		ended := condition.Type == batchv1.JobComplete || condition.Type == batchv1.JobFailed
		if ended && condition.Status == corev1.ConditionTrue {
			return true
		}
	}
	return false
}

// variable is the value of a variable of a job's container.
func (h hook) variable(name string) string {
	for _, one := range h.pod.Spec.Containers[0].Env {
		if one.Name == name {
			return one.Value
		}
	}
	return ""
}

// script is what the job's container runs.
func (h hook) script() string { return strings.Join(h.pod.Spec.Containers[0].Command, " ") }

func namesOf(hooks []hook) (names []string) {
	for _, one := range hooks {
		names = append(names, one.name)
	}
	return names
}

// awaitMembers waits until the StatefulSet controller has made so many pods, and no others. They are Pending: there is no node.
func (r *releases) awaitMembers(namespace string, count int) []corev1.Pod {
	r.t.Helper()
	var found []corev1.Pod
	await(r.t, fmt.Sprintf("%d pods in `%s`", count, namespace), func(ctx context.Context) error {
		pods, err := r.client.CoreV1().Pods(namespace).List(ctx, v1.ListOptions{LabelSelector: members})
		if err != nil {
			return err
		}
		if len(pods.Items) != count {
			return fmt.Errorf("%d pods", len(pods.Items))
		}
		found = pods.Items
		return nil
	})
	// Lists are in the order of names.
	for number, pod := range found {
		if want := fmt.Sprintf("%s-%d", release, number); pod.Name != want {
			r.t.Errorf("a pod is called `%s`, not `%s`", pod.Name, want)
		}
		if pod.Status.Phase != corev1.PodPending || pod.Spec.NodeName != "" {
			r.t.Errorf("`%s` is %s on the node `%s`, and there is no node", pod.Name, pod.Status.Phase, pod.Spec.NodeName)
		}
	}
	return found
}

// awaitClaims waits until a namespace has exactly these claims.
func (r *releases) awaitClaims(namespace string, want ...string) {
	r.t.Helper()
	await(r.t, "the claims of `"+namespace+"`", func(ctx context.Context) error {
		claims, err := r.client.CoreV1().PersistentVolumeClaims(namespace).List(ctx, v1.ListOptions{})
		if err != nil {
			return err
		}
		var names []string
		for _, claim := range claims.Items {
			names = append(names, claim.Name)
		}
		if got := strings.Join(names, " "); got != strings.Join(want, " ") {
			return fmt.Errorf("there are %s, not %s", got, strings.Join(want, " "))
		}
		return nil
	})
}

// password is what the chart made for root.
func (r *releases) password(namespace string) string {
	r.t.Helper()
	secret, err := r.client.CoreV1().Secrets(namespace).Get(r.t.Context(), release+"-auth", v1.GetOptions{})
	if err != nil {
		r.t.Fatal(err)
	}
	return string(secret.Data["root-password"])
}

// setting is what the scripts of the pods are told.
func (r *releases) setting(namespace, name string) string {
	r.t.Helper()
	scripts, err := r.client.CoreV1().ConfigMaps(namespace).Get(r.t.Context(), release+"-scripts", v1.GetOptions{})
	if err != nil {
		r.t.Fatal(err)
	}
	return scripts.Data[name]
}

// resource is where the API server has a kind of objects.
func (r *releases) resource(object *unstructured.Unstructured) dynamic.ResourceInterface {
	r.t.Helper()
	kind := object.GroupVersionKind()
	mapping, err := r.kinds.RESTMapping(kind.GroupKind(), kind.Version)
	if err != nil {
		r.t.Fatalf("%s `%s`: %v", kind.Kind, object.GetName(), err)
	}
	return r.objects.Resource(mapping.Resource).Namespace(object.GetNamespace())
}

// auditRelease sends all that helm has of a release once more, hooks as well, as a dry run that refuses every field that the API server does not
// know and every one given twice, of which it only warns helm. It returns the objects by kind and name.
func (r *releases) auditRelease(namespace string) map[string]*unstructured.Unstructured {
	r.t.Helper()
	text := r.mustHelm(namespace, "get", "manifest", release) + "\n---\n" + r.mustHelm(namespace, "get", "hooks", release)
	all := map[string]*unstructured.Unstructured{}
	for _, object := range objectsOf(r.t, text) {
		name := object.GetKind() + "/" + object.GetName()
		if all[name] != nil {
			r.t.Errorf("%s twice", name)
		}
		all[name] = object
		encoded, err := object.MarshalJSON()
		if err != nil {
			r.t.Fatal(err)
		}
		force := true
		_, err = r.resource(object).Patch(r.t.Context(), object.GetName(), types.ApplyPatchType, encoded, v1.PatchOptions{
			DryRun: []string{v1.DryRunAll}, FieldManager: "audit", FieldValidation: v1.FieldValidationStrict, Force: &force,
		})
		if err != nil {
			r.t.Errorf("%s: %v", name, err)
		}
	}
	return all
}

// objectsOf are the objects of a YAML text.
func objectsOf(t testing.TB, text string) (objects []*unstructured.Unstructured) {
	t.Helper()
	documents := yaml.NewYAMLReader(bufio.NewReader(strings.NewReader(text)))
	for {
		document, err := documents.Read()
		if errors.Is(err, io.EOF) {
			return objects
		}
		if err != nil {
			t.Fatal(err)
		}
		encoded, err := yaml.ToJSON(document)
		if err != nil {
			t.Fatalf("%v in\n%s", err, document)
		}
		// Comments alone.
		if bytes.Equal(bytes.TrimSpace(encoded), []byte("null")) {
			continue
		}
		object := &unstructured.Unstructured{}
		if err := object.UnmarshalJSON(encoded); err != nil {
			t.Fatalf("%v in\n%s", err, document)
		}
		objects = append(objects, object)
	}
}

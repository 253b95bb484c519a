package kubernetes

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1"

	"cairn.dev/conformance/harness"
	"cairn.dev/conformance/kubernetes/plane"
)

const (
	chartFolder  = "../../deploy/helm/cairn"
	valuesFolder = "../chart/values"
	plainFolder  = "../../deploy/kubernetes"
	// unscheduled keeps backups from being made while the test looks at what jobs there are.
	unscheduled = "--set=backup.schedule=0 0 1 1 *"
)

// TestChart applies the Helm chart and the plain manifests to a control plane: helm's `lookup` finds objects there, the API server accepts all
// of them, and controllers make claims, jobs and pods. There are no nodes, so the members stay Pending, and the test ends the jobs;
// conformance/chart runs their scripts with real members.
func TestChart(t *testing.T) {
	if testing.Short() {
		t.Skip("the short form has one member that is killed")
	}
	plane.Programs(t)
	harness.Tool(t, "helm")
	member := harness.Start(t, harness.Subject())
	control := plane.Start(t, []string{member.Endpoint()}, compaction)
	if folder := os.Getenv("KEEP_LOGS"); folder != "" {
		t.Cleanup(func() { control.KeepLogs(folder) })
	}
	r := newReleases(t, control)
	r.auditLife()
	r.auditEverything()
	r.auditPlain()
}

// hookJobs holds a change's jobs against those that it should have, and returns the first.
func (r *releases) hookJobs(what string, got []hook, want ...string) hook {
	r.t.Helper()
	if names := namesOf(got); !slices.Equal(names, want) {
		r.t.Fatalf("%s: helm waited for the jobs %v, not %v", what, names, want)
	}
	r.t.Logf("%s: jobs %v", what, want)
	return got[0]
}

// auditLife takes a release with users and backups through its life: one member, three, five, three, one, none, and one again.
func (r *releases) auditLife() {
	const (
		life          = "life"
		users, shrink = release + "-users", release + "-shrink"
	)
	t := r.t
	settings := func(replicas int, more ...string) []string {
		return append([]string{fmt.Sprint("--set=replicaCount=", replicas), "--set=auth.enabled=true", "--set=backup.enabled=true", unscheduled}, more...)
	}
	claims := func(count int) (names []string) {
		names = append(names, release+"-backup")
		for number := range count {
			names = append(names, fmt.Sprintf("data-%s-%d", release, number))
		}
		return names
	}

	first := r.hookJobs("one member", r.change(life, "install", settings(1)...), users)
	if got := first.script(); got != "/shell/sh /scripts/users.sh" {
		t.Errorf("the users' job runs %s", got)
	}
	r.awaitMembers(life, 1)
	r.awaitClaims(life, claims(1)...)
	password := r.password(life)
	if len(password) != 24 {
		t.Errorf("the password of root has %d letters", len(password))
	}
	keeps := func(what string) {
		t.Helper()
		if r.password(life) != password {
			t.Errorf("%s: the password of root is another one", what)
		}
	}
	if found := r.setting(life, "found"); found != "yes" {
		t.Errorf("an installed cluster may be founded: %s", found)
	}

	// More members need no job: `lookup` sees that there are fewer.
	for _, replicas := range []int{3, 5} {
		what := fmt.Sprint(replicas, " members")
		r.hookJobs(what, r.change(life, "upgrade", settings(replicas)...), users)
		r.awaitMembers(life, replicas)
		r.awaitClaims(life, claims(replicas)...)
		keeps(what)
		if found, known := r.setting(life, "found"), r.setting(life, "replicas"); found != "no" || known != fmt.Sprint(replicas) {
			t.Errorf("%s: the scripts are told of %s replicas, and that a cluster may be founded: %s", what, known, found)
		}
	}
	r.auditRelease(life)
	r.auditBackup(life)

	// Fewer: their members are removed while all pods are there.
	removal := r.hookJobs("five members to three", r.change(life, "upgrade", settings(3)...), shrink, users)
	if removal.replicas != 5 {
		t.Errorf("the StatefulSet had %d replicas when the members were removed", removal.replicas)
	}
	if got := removal.script(); got != "/shell/sh /scripts/shrink.sh" {
		t.Errorf("the job that shrinks runs %s", got)
	}
	endpoints := strings.Split(removal.variable("ENDPOINTS"), ",")
	if removal.variable("REPLICAS") != "3" || removal.variable("BASE") != release || len(endpoints) != 3 {
		t.Errorf("the job that shrinks keeps %s of %s, and asks %v", removal.variable("REPLICAS"), removal.variable("BASE"), endpoints)
	}
	for number, endpoint := range endpoints {
		if want := fmt.Sprintf("http://%s-%d.%s-headless.%s.svc.cluster.local:2379", release, number, release, life); endpoint != want {
			t.Errorf("it asks %s, not %s", endpoint, want)
		}
	}
	r.awaitMembers(life, 3)
	r.awaitClaims(life, claims(3)...)
	keeps("five members to three")

	r.hookJobs("three members as before", r.change(life, "upgrade", settings(3, "--set=podDisruptionBudget.enabled=false")...), users)
	keeps("three members as before")

	// Members that cannot be removed keep their pods.
	stop := r.endJobs(life, shrink)
	result := r.helm(life, changing("upgrade", settings(1, "--set=hooks.backoffLimit=0")...)...)
	r.hookJobs("members that cannot be removed", stop(), shrink)
	if result.Code == 0 {
		t.Error("an upgrade succeeds although its members cannot be removed")
	}
	if !strings.Contains(result.Stderr, shrink) {
		t.Errorf("the failed upgrade does not name its job: %s", result.Stderr)
	}
	set, err := r.client.AppsV1().StatefulSets(life).Get(t.Context(), release, v1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if *set.Spec.Replicas != 3 {
		t.Fatalf("after it the StatefulSet has %d replicas", *set.Spec.Replicas)
	}
	r.awaitMembers(life, 3)
	r.hookJobs("three members to one", r.change(life, "upgrade", settings(1)...), shrink, users)
	r.awaitMembers(life, 1)
	r.awaitClaims(life, claims(1)...)
	keeps("three members to one")

	// Data, backups and the password outlive the release, and the next one takes them over.
	r.mustHelm(life, "uninstall", release, "--timeout="+settleMax.String())
	r.awaitMembers(life, 0)
	r.awaitClaims(life, claims(1)...)
	keeps("no release")
	r.hookJobs("the next release", r.change(life, "install", settings(1)...), users)
	r.awaitMembers(life, 1)
	keeps("the next release")
}

// auditBackup starts the CronJob once, as its schedule would.
func (r *releases) auditBackup(namespace string) {
	r.t.Helper()
	cron, err := r.client.BatchV1().CronJobs(namespace).Get(r.t.Context(), release+"-backup", v1.GetOptions{})
	if err != nil {
		r.t.Fatal(err)
	}
	jobs := r.client.BatchV1().Jobs(namespace)
	job := &batchv1.Job{ObjectMeta: v1.ObjectMeta{Name: "backup-now"}, Spec: cron.Spec.JobTemplate.Spec}
	if job, err = jobs.Create(r.t.Context(), job, v1.CreateOptions{FieldValidation: v1.FieldValidationStrict}); err != nil {
		r.t.Fatal(err)
	}
	stop := r.endJobs(namespace, "")
	await(r.t, "the backup has ended", func(ctx context.Context) error {
		now, err := jobs.Get(ctx, job.Name, v1.GetOptions{})
		if err == nil && now.Status.Succeeded == 0 {
			err = errors.New("its job has not succeeded")
		}
		return err
	})
	backup := r.hookJobs("a backup", stop(), job.Name)
	if got := backup.script(); got != "/shell/sh /scripts/backup.sh" {
		r.t.Errorf("the backup runs %s", got)
	}
	if got, want := backup.variable("ENDPOINT"), fmt.Sprintf("http://%s.%s.svc:2379", release, namespace); got != want {
		r.t.Errorf("the backup asks %s, not %s", got, want)
	}
	background := v1.DeletePropagationBackground
	if err := jobs.Delete(r.t.Context(), job.Name, v1.DeleteOptions{PropagationPolicy: &background}); err != nil {
		r.t.Error(err)
	}
}

// auditEverything installs the chart with all that it can switch on: five members that are restored from a snapshot, TLS, users, monitoring.
func (r *releases) auditEverything() {
	const namespace = "everything"
	r.hookJobs("everything", r.change(namespace, "install", "--values="+filepath.Join(valuesFolder, "everything.yaml"), unscheduled), release+"-users")
	all := r.auditRelease(namespace)
	for _, name := range []string{
		"Certificate/cairn-client", "Certificate/cairn-peer", "ConfigMap/cairn-dashboard", "ConfigMap/cairn-scripts", "CronJob/cairn-backup", "Job/cairn-users",
		"PersistentVolumeClaim/cairn-backup", "PodDisruptionBudget/cairn", "PrometheusRule/cairn", "Secret/cairn-auth", "Service/cairn", "Service/cairn-headless",
		"ServiceAccount/cairn", "ServiceMonitor/cairn", "StatefulSet/cairn",
	} {
		if all[name] == nil {
			r.t.Errorf("%s is not there", name)
		}
	}
	for _, pod := range r.awaitMembers(namespace, 5) {
		container := pod.Spec.Containers[0]
		if !slices.Contains(container.Env, corev1.EnvVar{Name: "RESTORE_FROM", Value: "/restore/snapshot.db"}) {
			r.t.Errorf("`%s` is not told of its snapshot", pod.Name)
		}
		if !slices.ContainsFunc(pod.Spec.Volumes, func(volume corev1.Volume) bool {
			return volume.PersistentVolumeClaim != nil && volume.PersistentVolumeClaim.ClaimName == "old"
		}) {
			r.t.Errorf("`%s` has not the volume with its snapshot", pod.Name)
		}
	}
	r.t.Logf("everything: %d objects", len(all))
}

// auditPlain applies the manifests that need no helm, one file after the other.
func (r *releases) auditPlain() {
	for _, one := range []struct {
		name    string
		members int
	}{{"single", 1}, {"cluster", 3}, {"cluster-tls", 3}} {
		text, err := os.ReadFile(filepath.Join(plainFolder, one.name+".yaml"))
		if err != nil {
			r.t.Fatal(err)
		}
		objects := objectsOf(r.t, string(text))
		for _, object := range objects {
			if _, err := r.resource(object).Create(r.t.Context(), object, v1.CreateOptions{FieldValidation: v1.FieldValidationStrict}); err != nil {
				r.t.Errorf("%s: %s `%s`: %v", one.name, object.GetKind(), object.GetName(), err)
			}
		}
		namespace := objects[0].GetNamespace()
		r.awaitMembers(namespace, one.members)
		r.t.Logf("%s.yaml: %d objects", one.name, len(objects))
		background := v1.DeletePropagationBackground
		for _, object := range objects {
			if err := r.resource(object).Delete(r.t.Context(), object.GetName(), v1.DeleteOptions{PropagationPolicy: &background}); err != nil {
				r.t.Errorf("%s: delete %s `%s`: %v", one.name, object.GetKind(), object.GetName(), err)
			}
		}
		r.awaitMembers(namespace, 0)
		for _, object := range objects {
			await(r.t, object.GetKind()+" `"+object.GetName()+"` is gone", func(ctx context.Context) error {
				_, err := r.resource(object).Get(ctx, object.GetName(), v1.GetOptions{})
				if apierrors.IsNotFound(err) {
					return nil
				}
				return fmt.Errorf("it is there (%v)", err)
			})
		}
	}
}

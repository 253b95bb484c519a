package chart

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v2"

	"cairn.dev/conformance/harness"
)

const (
	chart = "../../deploy/helm/cairn"
	plain = "../../deploy/kubernetes"
)

type object = map[any]any

// helm runs the genuine helm, built from its module.
func helm(t *testing.T, args ...string) harness.Result {
	t.Helper()
	if os.Getenv("CHART") == "" || harness.Subject() == harness.Etcd {
		t.Skip("CHART=1 builds helm, which takes minutes, and checks the chart")
	}
	return harness.Command{Path: harness.Tool(t, "helm"), Args: args, Max: time.Minute}.Run(t)
}

// render is what the chart makes of a file of values and of further settings.
func render(t *testing.T, values string, more ...string) string {
	t.Helper()
	args := append([]string{"template", "cairn", chart, "--kube-version=1.37.0", "--namespace=default", "--values=values/" + values + ".yaml"}, more...)
	result := helm(t, args...)
	if result.Code != 0 {
		t.Fatalf("%v: exit %d\n%s", args, result.Code, result.Stderr)
	}
	return result.Stdout
}

// objects are the documents of a rendered chart, by kind and name.
func objects(t *testing.T, text string) map[string]object {
	t.Helper()
	all := map[string]object{}
	decoder := yaml.NewDecoder(bytes.NewReader([]byte(text)))
	decoder.SetStrict(true)
	for {
		var one object
		if err := decoder.Decode(&one); errors.Is(err, io.EOF) {
			return all
		} else if err != nil {
			t.Fatal(err)
		}
		if one == nil {
			continue
		}
		name := fmt.Sprint(one["kind"], "/", at(one, "metadata", "name"))
		if all[name] != nil {
			t.Errorf("%s twice", name)
		}
		all[name] = one
	}
}

// at is what is below a path of keys; nil if it is not there.
func at(value any, path ...string) any {
	for _, key := range path {
		inner, _ := value.(object)
		value = inner[key]
	}
	return value
}

func list(value any) []any {
	all, _ := value.([]any)
	return all
}

// pods are the templates of pods in an object, with their names.
func podTemplate(one object) any {
	switch one["kind"] {
	case "StatefulSet", "Job":
		return at(one, "spec", "template")
	case "CronJob":
		return at(one, "spec", "jobTemplate", "spec", "template")
	}
	return nil
}

// consistent checks what Kubernetes finds out only when pods start: names that lead nowhere.
func consistent(t *testing.T, all map[string]object, given ...string) {
	t.Helper()
	exists := func(kind, name any, of string) {
		full := fmt.Sprint(kind, "/", name)
		if all[full] == nil && !slices.Contains(given, full) {
			t.Errorf("%s names %s, which is not there", of, full)
		}
	}
	for _, certificate := range all {
		if certificate["kind"] == "Certificate" {
			given = append(given, fmt.Sprint("Secret/", at(certificate, "spec", "secretName")))
		}
	}
	for name, one := range all {
		pod := podTemplate(one)
		if pod == nil {
			continue
		}
		volumes := map[any]bool{}
		for _, claim := range list(at(one, "spec", "volumeClaimTemplates")) {
			volumes[at(claim, "metadata", "name")] = true
		}
		exists("ServiceAccount", at(pod, "spec", "serviceAccountName"), name)
		for _, volume := range list(at(pod, "spec", "volumes")) {
			volumes[at(volume, "name")] = true
			for key, kind := range map[string]string{"configMap": "ConfigMap", "secret": "Secret", "persistentVolumeClaim": "PersistentVolumeClaim"} {
				field := map[string]string{"configMap": "name", "secret": "secretName", "persistentVolumeClaim": "claimName"}[key]
				if at(volume, key) != nil {
					exists(kind, at(volume, key, field), name)
				}
			}
		}
		for _, container := range append(list(at(pod, "spec", "initContainers")), list(at(pod, "spec", "containers"))...) {
			for _, mount := range list(at(container, "volumeMounts")) {
				if !volumes[at(mount, "name")] {
					t.Errorf("%s mounts %v, which is no volume", name, at(mount, "name"))
				}
			}
			seen := map[any]bool{}
			for _, variable := range list(at(container, "env")) {
				if seen[at(variable, "name")] {
					t.Errorf("%s sets %v twice", name, at(variable, "name"))
				}
				seen[at(variable, "name")] = true
				if secret := at(variable, "valueFrom", "secretKeyRef", "name"); secret != nil {
					exists("Secret", secret, name)
				}
				value := at(variable, "value")
				if _, isText := value.(string); value != nil && !isText {
					t.Errorf("%s: %v is %v, which is not a text", name, at(variable, "name"), value)
				}
			}
			for _, word := range list(at(container, "command")) {
				if script, ok := strings.CutPrefix(fmt.Sprint(word), "/scripts/"); ok && at(all["ConfigMap/cairn-scripts"], "data", script) == nil {
					t.Errorf("%s runs %s, which is not there", name, script)
				}
			}
			if at(container, "securityContext", "readOnlyRootFilesystem") != true || at(pod, "spec", "securityContext", "runAsNonRoot") != true {
				t.Errorf("%s may do more than it needs", name)
			}
		}
		labels, _ := at(pod, "metadata", "labels").(object)
		wanted, _ := at(one, "spec", "selector", "matchLabels").(object)
		for label, value := range wanted {
			if labels[label] != value {
				t.Errorf("%s selects %v=%v, and its pods have %v", name, label, value, labels[label])
			}
		}
	}
}

func TestChartIsClean(t *testing.T) {
	for _, values := range []string{"single", "cluster", "cluster-tls", "everything"} {
		if result := helm(t, "lint", "--strict", "--kube-version=1.37.0", "--values=values/"+values+".yaml", chart); result.Code != 0 {
			t.Errorf("%s: %s%s", values, result.Stdout, result.Stderr)
		}
	}
	for replicas := 1; replicas <= 5; replicas += 2 {
		all := objects(t, render(t, "cluster", fmt.Sprint("--set=replicaCount=", replicas)))
		consistent(t, all)
		if got := at(all["StatefulSet/cairn"], "spec", "replicas"); got != replicas {
			t.Errorf("%v replicas", got)
		}
		if got := at(all["ConfigMap/cairn-scripts"], "data", "replicas"); got != fmt.Sprint(replicas) {
			t.Errorf("the scripts know of %v replicas", got)
		}
	}
	everything := objects(t, render(t, "everything"))
	consistent(t, everything, "PersistentVolumeClaim/old", "Secret/app-users")
	for _, name := range []string{
		"Certificate/cairn-client", "Certificate/cairn-peer", "ConfigMap/cairn-dashboard", "CronJob/cairn-backup", "Job/cairn-shrink", "Job/cairn-users",
		"PersistentVolumeClaim/cairn-backup", "PodDisruptionBudget/cairn", "PrometheusRule/cairn", "Secret/cairn-auth", "ServiceMonitor/cairn",
	} {
		if everything[name] == nil {
			t.Errorf("%s is not there", name)
		}
	}
	rules, err := os.ReadFile("../../deploy/alerts.yml")
	if err != nil {
		t.Fatal(err)
	}
	var wanted object
	if err := yaml.Unmarshal(rules, &wanted); err != nil {
		t.Fatal(err)
	}
	if got := at(everything["PrometheusRule/cairn"], "spec"); fmt.Sprint(got) != fmt.Sprint(wanted) {
		t.Error("the alerts are not those of deploy/alerts.yml")
	}
}

// The chart is the same for the oldest Kubernetes that Chart.yaml names and for the newest that it was tried with, and is refused by older ones.
func TestChartForEachKubernetes(t *testing.T) {
	for _, values := range []string{"single", "cluster", "cluster-tls", "everything"} {
		var rendered []string
		for _, version := range []string{"1.27.0", "1.37.0"} {
			words := []string{"--kube-version=" + version, "--values=values/" + values + ".yaml", "--set=auth.rootPassword=fixed"}
			if result := helm(t, append([]string{"lint", "--strict", chart}, words...)...); result.Code != 0 {
				t.Errorf("%s for %s: %s%s", values, version, result.Stdout, result.Stderr)
			}
			result := helm(t, append([]string{"template", "cairn", chart, "--namespace=default"}, words...)...)
			if result.Code != 0 {
				t.Fatalf("%s for %s: exit %d\n%s", values, version, result.Code, result.Stderr)
			}
			rendered = append(rendered, result.Stdout)
		}
		if rendered[0] != rendered[1] {
			t.Errorf("%s differs between 1.27 and 1.37", values)
		}
	}
	result := helm(t, "template", "cairn", chart, "--kube-version=1.26.15")
	if result.Code == 0 || !strings.Contains(result.Stderr, "1.27.0") {
		t.Errorf("Kubernetes 1.26: exit %d, %s", result.Code, result.Stderr)
	}
}

// The chart has copies of the alert rules and of the dashboard: helm packs no file from outside of it, and a link to one does not survive every
// way that a source tree takes. UPDATE_DOCS=1 writes them.
func TestChartCopies(t *testing.T) {
	for _, name := range []string{"alerts.yml", "grafana.json"} {
		text, err := os.ReadFile(filepath.Join("../../deploy", name))
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(chart, "files", name)
		if os.Getenv("UPDATE_DOCS") != "" {
			if err := os.WriteFile(path, text, 0o644); err != nil {
				t.Fatal(err)
			}
			continue
		}
		if copied, err := os.ReadFile(path); err != nil || !bytes.Equal(copied, text) {
			t.Errorf("%s is not deploy/%s (%v): UPDATE_DOCS=1 make chart", path, name, err)
		}
	}
}

// A cluster may be founded on installation, and by nobody after an upgrade, unless the values say so.
func TestFounding(t *testing.T) {
	for _, c := range []struct {
		want string
		more []string
	}{
		{"yes", nil},
		{"no", []string{"--is-upgrade"}},
		{"yes", []string{"--is-upgrade", "--set=found=true"}},
		{"no", []string{"--set=found=false"}},
	} {
		if got := at(objects(t, render(t, "cluster", c.more...))["ConfigMap/cairn-scripts"], "data", "found"); got != c.want {
			t.Errorf("%v: %v, want %s", c.more, got, c.want)
		}
	}
}

// Values that cannot be meant are refused, with their name.
func TestSchema(t *testing.T) {
	for _, c := range []struct{ set, named string }{
		{"replicaCount=0", "replicaCount"},
		{"replicaCount=three", "replicaCount"},
		{"replicas=3", "replicas"},
		{"persistence.size=much", "size"},
		{"flags.initial-cluster=a", "initial-cluster"},
		{"antiAffinity=very", "antiAffinity"},
		{"tls.client.clientCertAuth=true", "tls"},
		{"tls.peer.enabled=true", "issuer"},
		{"restore.enabled=true", "restore"},
		{"auth.roles[0].name=a", "permissions"},
		{"service.clientPort=70000", "clientPort"},
	} {
		result := helm(t, "template", "cairn", chart, "--kube-version=1.37.0", "--set="+c.set)
		if result.Code == 0 || !strings.Contains(result.Stderr, c.named) {
			t.Errorf("%s: exit %d, %s", c.set, result.Code, result.Stderr)
		}
	}
}

// What only helm understands.
var ofHelm = regexp.MustCompile(`(?m)^( *(helm\.sh/chart|app\.kubernetes\.io/managed-by|helm\.sh/resource-policy): .*|# Source: .*|walk\.go.*)\n`)

// The plain manifests are what the chart is rendered to. UPDATE_DOCS=1 writes them.
func TestPlainManifests(t *testing.T) {
	for _, name := range []string{"single", "cluster", "cluster-tls"} {
		values, err := os.ReadFile("values/" + name + ".yaml")
		if err != nil {
			t.Fatal(err)
		}
		about, _, _ := strings.Cut(string(values), "\n")
		text := about + "\n# Made of deploy/helm/cairn by `UPDATE_DOCS=1 make chart`.\n" + ofHelm.ReplaceAllString(render(t, name, "--no-hooks"), "")
		consistent(t, objects(t, text))
		path := filepath.Join(plain, name+".yaml")
		if os.Getenv("UPDATE_DOCS") != "" {
			if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
			continue
		}
		if there, err := os.ReadFile(path); err != nil || string(there) != text {
			t.Errorf("%s is not up to date (%v): UPDATE_DOCS=1 make chart", path, err)
		}
	}
}

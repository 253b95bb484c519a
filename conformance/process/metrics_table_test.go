package process

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"cairn.dev/conformance/harness"
	dto "github.com/prometheus/client_model/go"
)

const metricsTable = "../../docs/metrics.md"

// unit is what the values of a family count.
func unit(name string) string {
	for _, known := range []string{"seconds", "milliseconds", "bytes"} {
		if strings.Contains(name, "_"+known) {
			return known
		}
	}
	return ""
}

// table is the page as a table in Markdown. Families that a cluster shows only
// once something has happened are not on every page; they are kept.
func table(families map[string]*dto.MetricFamily, before map[string]string) string {
	rows := maps.Clone(before)
	for name, family := range families {
		names := map[string]bool{}
		for _, metric := range family.Metric {
			for _, label := range metric.Label {
				names[label.GetName()] = true
			}
		}
		labels := strings.Join(slices.Sorted(maps.Keys(names)), ", ")
		kind := strings.ToLower(family.GetType().String())
		rows[name] = fmt.Sprintf("| `%s` | %s | %s | %s | %s |", name, kind, unit(name), labels, family.GetHelp())
	}
	var text strings.Builder
	for _, name := range slices.Sorted(maps.Keys(rows)) {
		text.WriteString(rows[name] + "\n")
	}
	return text.String()
}

// The table of docs/metrics.md is what a cluster shows. UPDATE_DOCS=1 writes it.
func TestMetricsTable(t *testing.T) {
	if harness.Subject() == harness.Etcd {
		t.Skip("the table is not etcd's")
	}
	cluster := harness.StartCluster(t, harness.Cairn, 3, nil, "--metrics=extensive", "--enable-distributed-tracing", "--audit-log=/dev/null",
		fmt.Sprintf("--distributed-tracing-address=127.0.0.1:%d", harness.Port(t)))
	use(t, cluster.Client(0))
	page := families(t, cluster.Members[0])
	content, err := os.ReadFile(metricsTable)
	if err != nil {
		t.Fatal(err)
	}
	head, _, found := strings.Cut(string(content), "| `")
	if !found {
		head = string(content)
	}
	before := map[string]string{}
	for _, line := range strings.Split(string(content), "\n") {
		if rest, isRow := strings.CutPrefix(line, "| `"); isRow {
			name, _, _ := strings.Cut(rest, "`")
			before[name] = line
		}
	}
	wanted := head + table(page, before)
	if os.Getenv("UPDATE_DOCS") != "" {
		if err := os.WriteFile(metricsTable, []byte(wanted), 0o644); err != nil {
			t.Fatal(err)
		}
	} else if wanted != string(content) {
		for _, line := range strings.Split(wanted, "\n") {
			if !strings.Contains(string(content), line+"\n") {
				t.Errorf("not in docs/metrics.md: %s", line)
			}
		}
		t.Error("docs/metrics.md is not what the server shows: run this test with UPDATE_DOCS=1")
	}
}

package process

import (
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	"cairn.dev/conformance/harness"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

type answer struct {
	status      int
	contentType string
	body        string
}

func ask(t *testing.T, server *harness.Server, verb, path string) answer {
	t.Helper()
	request, err := http.NewRequestWithContext(harness.Context(t), verb, server.URL(path), nil)
	if err != nil {
		t.Fatal(err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer{response.StatusCode, response.Header.Get("Content-Type"), string(body)}
}

// The HTTP pages of the client port say what etcd's say.
func TestPages(t *testing.T) {
	etcd, subject := harness.StartPair(t)
	compare := func() {
		t.Helper()
		for _, page := range [][2]string{
			{"GET", "/health"}, {"GET", "/health?serializable=true"}, {"GET", "/health?exclude=NOSPACE"},
			{"GET", "/health?exclude=NOSPACE&exclude=CORRUPT"}, {"GET", "/health?exclude=other"},
			{"POST", "/health"}, {"HEAD", "/health"},
			{"GET", "/version"}, {"POST", "/version"}, {"HEAD", "/version"},
			{"GET", "/no/such/page"},
		} {
			want, got := ask(t, etcd, page[0], page[1]), ask(t, subject, page[0], page[1])
			if page[1] == "/no/such/page" {
				want.body, got.body = "", ""
			}
			if want != got {
				t.Errorf("%s %s:\n-%+v\n+%+v", page[0], page[1], want, got)
			}
		}
	}
	compare()
	for _, server := range []*harness.Server{etcd, subject} {
		raiseNoSpace(t, server)
	}
	compare()
}

// metricsWanted are families that dashboards and alerts use.
var metricsWanted = []string{
	"etcd_server_has_leader", "etcd_server_is_leader", "etcd_server_leader_changes_seen_total",
	"etcd_server_proposals_committed_total", "etcd_server_proposals_applied_total", "etcd_server_proposals_pending",
	"etcd_server_proposals_failed_total", "etcd_server_quota_backend_bytes", "etcd_server_version",
	"etcd_disk_wal_fsync_duration_seconds", "etcd_mvcc_db_total_size_in_bytes",
	"etcd_mvcc_db_total_size_in_use_in_bytes", "etcd_mvcc_put_total", "etcd_mvcc_delete_total", "etcd_mvcc_range_total",
	"etcd_mvcc_txn_total", "etcd_debugging_mvcc_keys_total", "etcd_debugging_mvcc_current_revision",
	"etcd_debugging_mvcc_compact_revision", "etcd_network_client_grpc_received_bytes_total",
	"etcd_network_client_grpc_sent_bytes_total", "grpc_server_handled_total", "grpc_server_started_total",
	"grpc_server_msg_received_total", "grpc_server_msg_sent_total", "process_resident_memory_bytes",
	"process_cpu_seconds_total", "process_open_fds", "process_max_fds", "process_start_time_seconds",
}

// The metrics are valid, and those with etcd's names have etcd's types and
// labels.
func TestMetrics(t *testing.T) {
	etcd, subject := harness.StartPair(t)
	var families []map[string]*dto.MetricFamily
	for _, server := range []*harness.Server{etcd, subject} {
		fill(server)
		server.MustCtl("del", "key1")
		server.MustCtl("get", "key2")
		page := ask(t, server, "GET", "/metrics")
		if page.status != 200 || !strings.HasPrefix(page.contentType, "text/plain; version=0.0.4") {
			t.Errorf("status %d, content type %q", page.status, page.contentType)
		}
		parser := expfmt.NewTextParser(model.LegacyValidation)
		parsed, err := parser.TextToMetricFamilies(strings.NewReader(page.body))
		if err != nil {
			t.Fatal(err)
		}
		families = append(families, parsed)
	}
	want, got := families[0], families[1]
	for _, name := range metricsWanted {
		if got[name] == nil {
			t.Errorf("no %s", name)
		}
	}
	var missing []string
	for name, family := range want {
		if got[name] == nil {
			missing = append(missing, name)
			continue
		}
		if family.GetType() != got[name].GetType() {
			t.Errorf("%s is a %v, etcd's is a %v", name, got[name].GetType(), family.GetType())
		}
		if wanted, given := labels(family), labels(got[name]); !slices.Equal(wanted, given) {
			t.Errorf("%s has the labels %q, etcd's has %q", name, given, wanted)
		}
	}
	slices.Sort(missing)
	t.Logf("families of etcd that are not there: %s", strings.Join(missing, " "))
	for _, name := range []string{"etcd_mvcc_put_total", "etcd_mvcc_delete_total", "etcd_debugging_mvcc_keys_total"} {
		if got[name] != nil && value(want[name]) != value(got[name]) {
			t.Errorf("%s is %v, etcd's is %v", name, value(got[name]), value(want[name]))
		}
	}
}

func labels(family *dto.MetricFamily) []string {
	var names []string
	for _, label := range family.Metric[0].Label {
		names = append(names, label.GetName())
	}
	slices.Sort(names)
	return names
}

func value(family *dto.MetricFamily) float64 {
	metric := family.Metric[0]
	return metric.GetCounter().GetValue() + metric.GetGauge().GetValue()
}

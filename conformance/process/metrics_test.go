package process

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"cairn.dev/conformance/harness"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// early are families that etcd shows once the first peer was probed, lost or
// sent a state; here they are there from the start, at zero.
var early = []string{
	"etcd_network_disconnected_peers_total", "etcd_network_peer_received_failures_total",
	"etcd_network_peer_round_trip_time_seconds", "etcd_network_peer_sent_failures_total",
	"etcd_network_snapshot_receive_failures", "etcd_network_snapshot_receive_inflights_total",
	"etcd_network_snapshot_receive_success", "etcd_network_snapshot_receive_total_duration_seconds",
	"etcd_network_snapshot_send_failures", "etcd_network_snapshot_send_inflights_total",
	"etcd_network_snapshot_send_success", "etcd_network_snapshot_send_total_duration_seconds",
}

// families is the metrics page of a server, which must be well-formed.
func families(t *testing.T, server *harness.Server) map[string]*dto.MetricFamily {
	t.Helper()
	page := ask(t, server, "GET", "/metrics")
	if page.status != 200 || !strings.HasPrefix(page.contentType, "text/plain; version=0.0.4") {
		t.Errorf("status %d, content type %q", page.status, page.contentType)
	}
	parser := expfmt.NewTextParser(model.LegacyValidation)
	parsed, err := parser.TextToMetricFamilies(strings.NewReader(page.body))
	if err != nil {
		t.Fatal(err)
	}
	return parsed
}

// use does a little of everything that metrics count.
func use(t *testing.T, client *clientv3.Client) {
	t.Helper()
	ctx := harness.Context(t)
	must := func(_ any, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	watch := client.Watch(ctx, "k", clientv3.WithPrefix(), clientv3.WithCreatedNotify())
	<-watch
	for i := range 5 {
		must(client.Put(ctx, fmt.Sprintf("k%d", i), "value"))
		<-watch
	}
	must(client.Get(ctx, "k1"))
	must(client.Get(ctx, "k1", clientv3.WithSerializable()))
	must(client.Delete(ctx, "k1"))
	must(client.Txn(ctx).Then(clientv3.OpPut("k2", "2"), clientv3.OpGet("k3")).Commit())
	must(client.Txn(ctx).Then(clientv3.OpGet("k3")).Commit())
	must(client.Put(ctx, "k2", "a value", clientv3.WithPrevKV()))
	must(client.Put(ctx, "k2", "", clientv3.WithIgnoreValue()))
	must(client.Delete(ctx, "none", clientv3.WithPrevKV()))
	absent := clientv3.Compare(clientv3.Version("none"), "=", 0)
	present := clientv3.Compare(clientv3.Version("none"), ">", 0)
	must(client.Txn(ctx).If(absent).Then(clientv3.OpPut("k4", "four")).Commit())
	must(client.Txn(ctx).If(present, absent).Then(clientv3.OpPut("k4", "four")).Else(clientv3.OpGet("k2")).Commit())
	must(client.Txn(ctx).If(absent, absent).Then(clientv3.OpPut("k4", "", clientv3.WithIgnoreValue()), clientv3.OpDelete("k2", clientv3.WithPrevKV())).Commit())
	must(client.Txn(ctx).If(absent, absent).Then(clientv3.OpGet("k2")).Commit())
	must(client.Txn(ctx).If(absent).Then(clientv3.OpTxn([]clientv3.Cmp{absent, present}, nil, []clientv3.Op{clientv3.OpPut("k5", "five")}), clientv3.OpGet("k2")).Commit())
	owned, err := client.Grant(ctx, 100)
	must(owned, err)
	must(client.Put(ctx, "owned1", "1", clientv3.WithLease(owned.ID)))
	must(client.Put(ctx, "owned2", "2", clientv3.WithLease(owned.ID)))
	must(client.Revoke(ctx, owned.ID))
	lease, err := client.Grant(ctx, 100)
	must(lease, err)
	must(client.KeepAliveOnce(ctx, lease.ID))
	must(client.Revoke(ctx, lease.ID))
	must(client.Compact(ctx, 4, clientv3.WithCompactPhysical()))
	must(client.HashKV(ctx, client.Endpoints()[0], 0))
	must(client.Defragment(ctx, client.Endpoints()[0]))
}

// shape is what a query can refer to: the type, the label names of each
// sample, the buckets.
func shape(family *dto.MetricFamily) string {
	labels := map[string]bool{}
	bounds := ""
	for _, metric := range family.Metric {
		var names []string
		for _, label := range metric.Label {
			names = append(names, label.GetName())
		}
		slices.Sort(names)
		labels[strings.Join(names, ",")] = true
		if histogram := metric.GetHistogram(); histogram != nil {
			bounds = ""
			for _, bucket := range histogram.Bucket {
				bounds += fmt.Sprintf(" %g", bucket.GetUpperBound())
			}
		}
	}
	return fmt.Sprintf("%v {%s}%s", family.GetType(), strings.Join(slices.Sorted(maps.Keys(labels)), "} {"), bounds)
}

// Every family that etcd shows after the same requests is there, with the same
// type, labels and buckets.
func TestMetricFamilies(t *testing.T) {
	for _, size := range []int{1, 3} {
		for _, detail := range []string{"basic", "extensive"} {
			t.Run(fmt.Sprintf("%d members, %s", size, detail), func(t *testing.T) {
				pages := map[harness.Kind]map[string]*dto.MetricFamily{}
				for _, kind := range []harness.Kind{harness.Etcd, harness.Subject()} {
					cluster := harness.StartCluster(t, kind, size, nil, "--metrics="+detail)
					use(t, cluster.Client(0))
					// A leader puts the version into the log some time after it was elected.
					await(t, "the version of the cluster", func() bool { return families(t, cluster.Members[0])["etcd_cluster_version"] != nil })
					pages[kind] = families(t, cluster.Members[0])
				}
				want, got := pages[harness.Etcd], pages[harness.Subject()]
				for _, name := range slices.Sorted(maps.Keys(want)) {
					if got[name] == nil {
						t.Errorf("no %s, etcd has %s", name, shape(want[name]))
					} else if shape(want[name]) != shape(got[name]) {
						t.Errorf("%s is\n %s, etcd's is\n %s", name, shape(got[name]), shape(want[name]))
					}
				}
				for _, name := range slices.Sorted(maps.Keys(got)) {
					if want[name] == nil && !strings.HasPrefix(name, "cairn_") && !slices.Contains(early, name) {
						t.Errorf("%s is not etcd's", name)
					}
				}
			})
		}
	}
}

// differences are those in what etcd and the other one have counted.
func differences(want, got map[string]*dto.MetricFamily) (found []string) {
	for _, name := range []string{
		"etcd_mvcc_put_total", "etcd_mvcc_delete_total", "etcd_mvcc_range_total", "etcd_mvcc_txn_total",
		"etcd_debugging_mvcc_total_put_size_in_bytes", "etcd_debugging_mvcc_keys_total",
		"etcd_debugging_mvcc_current_revision", "etcd_debugging_mvcc_compact_revision", "etcd_debugging_lease_granted_total",
		"etcd_debugging_lease_revoked_total", "etcd_debugging_lease_renewed_total", "etcd_debugging_mvcc_events_total",
		"etcd_server_has_leader", "etcd_server_is_leader", "etcd_server_is_learner", "etcd_server_quota_backend_bytes",
		"etcd_debugging_mvcc_db_compaction_keys_total",
	} {
		if got[name] == nil || value(want[name]) != value(got[name]) {
			found = append(found, fmt.Sprintf("%s is %v, etcd's is %v", name, got[name], value(want[name])))
		}
	}
	for _, name := range []string{
		"etcd_debugging_lease_ttl_total", "etcd_mvcc_hash_rev_duration_seconds", "etcd_disk_backend_defrag_duration_seconds",
		"etcd_debugging_server_watch_send_loop_watch_stream_duration_seconds",
	} {
		wanted, given := want[name].Metric[0].GetHistogram().GetSampleCount(), got[name].Metric[0].GetHistogram().GetSampleCount()
		if wanted != given {
			found = append(found, fmt.Sprintf("%s has %d samples, etcd's has %d", name, given, wanted))
		}
	}
	return found
}

// What can be counted is counted as etcd counts it.
func TestMetricValues(t *testing.T) {
	etcd, subject := harness.StartPair(t)
	for _, server := range []*harness.Server{etcd, subject} {
		use(t, server.Client())
	}
	// Events are counted by those who send them, beside the answers.
	want, got := families(t, etcd), families(t, subject)
	for deadline := time.Now().Add(time.Minute); len(differences(want, got)) > 0 && time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		want, got = families(t, etcd), families(t, subject)
	}
	for _, difference := range differences(want, got) {
		t.Error(difference)
	}
	for _, name := range []string{"etcd_disk_wal_fsync_duration_seconds", "etcd_server_request_duration_seconds", "etcd_server_apply_duration_seconds"} {
		for _, metric := range got[name].Metric {
			if histogram := metric.GetHistogram(); histogram.GetSampleCount() == 0 || histogram.GetSampleSum() <= 0 {
				t.Errorf("%s: %v", name, metric)
			}
		}
	}
}

// stages are the stages of requests, by operation and name.
func stages(page map[string]*dto.MetricFamily) map[string]*dto.Histogram {
	found := map[string]*dto.Histogram{}
	for _, metric := range page["cairn_request_stage_duration_seconds"].Metric {
		labels := map[string]string{}
		for _, label := range metric.Label {
			labels[label.GetName()] = label.GetValue()
		}
		found[labels["op"]+" "+labels["stage"]] = metric.GetHistogram()
	}
	return found
}

// A write that waits for the followers shows in the stage of replication, and in no other.
func TestStageOfStoppedFollowers(t *testing.T) {
	if harness.Subject() == harness.Etcd {
		t.Skip("etcd does not have them")
	}
	const stopped = 3 * time.Second
	// They must not call an election.
	cluster := harness.StartCluster(t, harness.Cairn, 3, nil, "--election-timeout=15000")
	leader, client := 0, cluster.Client(0)
	for i, member := range cluster.Members {
		status, err := member.Client().Status(harness.Context(t), member.Endpoint())
		if err != nil {
			t.Fatal(err)
		}
		if status.Leader == status.Header.MemberId {
			leader, client = i, member.Client()
		}
	}
	harness.Attempt(t, func() error { return putWhileStopped(t, cluster, leader, client, stopped) })
}

// putWhileStopped stops the followers for a while, puts, and looks where the
// put's time is. An error says that the machine was late.
func putWhileStopped(t *testing.T, cluster *harness.Cluster, leader int, client *clientv3.Client, stopped time.Duration) error {
	t.Helper()
	before := stages(families(t, cluster.Members[leader]))
	began := time.Now()
	for i, member := range cluster.Members {
		if i != leader {
			member.Pause()
			defer member.Resume()
			time.AfterFunc(stopped, member.Resume)
		}
	}
	asked := time.Now()
	if _, err := client.Put(harness.Context(t), "key", "value"); err != nil {
		t.Fatal(err)
	}
	took := time.Since(asked)
	after := stages(families(t, cluster.Members[leader]))
	spent := func(stage string) time.Duration {
		name := "write " + stage
		return time.Duration((after[name].GetSampleSum() - before[name].GetSampleSum()) * float64(time.Second))
	}
	// What is between the followers' stop and the put is not in it.
	replication := spent("replication")
	if replication > took {
		t.Errorf("a put that took %v has %v of replication", took, replication)
	}
	for _, stage := range []string{"queue", "log_sync", "apply"} {
		if spent(stage) > took-replication {
			t.Errorf("a put that took %v has %v of %s beside %v of replication", took, spent(stage), stage, replication)
		}
	}
	if replication < stopped/2 {
		return fmt.Errorf("a put that took %v has %v of replication; the followers were stopped for %v, %v before it", took, replication, stopped, asked.Sub(began))
	}
	return nil
}

// A write's time is accounted for: its stages add up to what it took.
func TestStages(t *testing.T) {
	if harness.Subject() == harness.Etcd {
		t.Skip("etcd does not have them")
	}
	for _, size := range []int{1, 3} {
		// What a thread that does not get a processor takes between two stages is in none of them.
		harness.Attempt(t, func() error { return stagesAddUp(t, size) })
	}
}

func stagesAddUp(t *testing.T, size int) error {
	t.Helper()
	cluster := harness.StartCluster(t, harness.Cairn, size, nil)
	client := cluster.Client(0)
	for i := range 200 {
		if _, err := client.Put(harness.Context(t), fmt.Sprint(i), "value"); err != nil {
			t.Fatal(err)
		}
		if _, err := client.Get(harness.Context(t), fmt.Sprint(i)); err != nil {
			t.Fatal(err)
		}
	}
	// Many at once: one after the other, a write is answered by the thread that read it, and nothing is handed over.
	var group sync.WaitGroup
	for i := range 100 {
		group.Go(func() {
			if _, err := client.Put(harness.Context(t), fmt.Sprint(i), "value"); err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
	page := families(t, cluster.Members[0])
	stages := stages(page)
	if send := stages["any send"]; send.GetSampleCount() == 0 || send.GetSampleSum() <= 0 {
		t.Errorf("%d members: sending: %v", size, send)
	}
	sum := 0.0
	for _, stage := range []string{"queue", "log_sync", "replication", "apply"} {
		histogram := stages["write "+stage]
		if histogram.GetSampleCount() < 200 {
			t.Errorf("%d members: %d writes have the stage %s", size, histogram.GetSampleCount(), stage)
		}
		sum += histogram.GetSampleSum()
	}
	total := 0.0
	for _, metric := range page["etcd_server_request_duration_seconds"].Metric {
		kind := ""
		for _, label := range metric.Label {
			kind += label.GetValue() + " "
		}
		if !strings.Contains(kind, "Range") && !strings.Contains(kind, "ReadonlyTxn") {
			total += metric.GetHistogram().GetSampleSum()
		}
	}
	if reads := stages["read range"].GetSampleCount(); reads < 200 {
		t.Errorf("%d members: %d of 200 reads", size, reads)
	}
	if sum < 0.95*total || sum > 1.05*total {
		return fmt.Errorf("%d members: the stages add up to %v s of %v s", size, sum, total)
	}
	return nil
}

// Slow requests are told of with etcd's fields, without values, and few lines
// are written however many there are.
func TestSlowRequests(t *testing.T) {
	for _, kind := range []harness.Kind{harness.Etcd, harness.Subject()} {
		server := harness.Start(t, kind, "--warning-unary-request-duration=1us")
		began := time.Now()
		client, ctx := server.Client(), harness.Context(t)
		for range 100 {
			if _, err := client.Put(ctx, "the-key", "the-secret"); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := client.Get(ctx, "the-key"); err != nil {
			t.Fatal(err)
		}
		took := time.Since(began)
		server.Stop()
		log := server.Log()
		for _, text := range []string{
			`"request stats"`, `"start time"`, `"time spent"`, `"response type":"/etcdserverpb.KV/Put"`, `"request count":1`,
			`"request size"`, `"response count"`, `"response size"`, `"request content":"key:\"the-key\"`,
		} {
			if !strings.Contains(log, text) {
				t.Errorf("%s: no %s in the log", kind, text)
			}
		}
		if strings.Contains(log, "the-secret") {
			t.Errorf("%s: a value is in the log", kind)
		}
		// Ten a second, and parts of two seconds more.
		const perSecond = 10
		if lines := strings.Count(log, `"request stats"`); kind == harness.Cairn && lines > perSecond*(int(took/time.Second)+2) {
			t.Errorf("%d lines about slow requests in %v", lines, took)
		}
	}
}

// A client may divide by the size of a store (`etcdctl endpoint status` does), so it is not 0 before anything was put. From then on it is what the
// quota compares.
func TestSizeOfAnEmptyStore(t *testing.T) {
	server := harness.Start(t, harness.Subject())
	client := server.Client()
	sizes := func() (status *clientv3.StatusResponse, live int64) {
		status, err := client.Status(harness.Context(t), server.Endpoint())
		if err != nil {
			t.Fatal(err)
		}
		return status, int64(families(t, server)["etcd_mvcc_db_total_size_in_bytes"].Metric[0].GetGauge().GetValue())
	}
	status, live := sizes()
	if status.DbSize <= 0 || status.DbSizeInUse <= 0 {
		t.Errorf("an empty store has the size %d, of which %d are in use", status.DbSize, status.DbSizeInUse)
	}
	if harness.Subject() == harness.Etcd {
		return
	}
	if status.DbSize != max(1, live) || status.DbSizeInUse != status.DbSize {
		t.Errorf("an empty store has the sizes %d and %d, and %d live bytes", status.DbSize, status.DbSizeInUse, live)
	}
	if _, err := client.Put(harness.Context(t), "key", "value"); err != nil {
		t.Fatal(err)
	}
	if status, live = sizes(); live <= 0 || status.DbSize != live || status.DbSizeInUse != live {
		t.Errorf("a store with a key has the sizes %d and %d, and %d live bytes", status.DbSize, status.DbSizeInUse, live)
	}
}

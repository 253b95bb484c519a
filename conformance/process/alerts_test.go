package process

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"cairn.dev/conformance/harness"
)

// sample are series of a test of promtool: name with labels, and values, one a
// minute, in its notation.
type sample map[string]string

// ruleTests say when each alert is on and when it is not. Minutes are counted
// from the first value.
var ruleTests = []struct {
	alert       string
	series      sample
	quiet, loud string
}{
	{"MemberDown", sample{`up{job="cairn",instance="a"}`: "1x10 0x10"}, "10m", "13m"},
	{"MemberDown", sample{`up{job="other",instance="a"}`: "0x20"}, "15m", ""},
	{"QuorumNearlyLost", sample{`up{job="cairn",instance="a"}`: "1x30", `up{job="cairn",instance="b"}`: "1x30", `up{job="cairn",instance="c"}`: "1x10 0x20"}, "10m", "15m"},
	// Of five, one may go without a word.
	{"QuorumNearlyLost", sample{
		`up{job="cairn",instance="a"}`: "1x30", `up{job="cairn",instance="b"}`: "1x30", `up{job="cairn",instance="c"}`: "1x30",
		`up{job="cairn",instance="d"}`: "1x30", `up{job="cairn",instance="e"}`: "0x30",
	}, "20m", ""},
	{"NoLeader", sample{`etcd_server_has_leader{instance="a"}`: "1x10 0x10"}, "10m", "13m"},
	{"ManyLeaderChanges", sample{`etcd_server_leader_changes_seen_total{instance="a"}`: "1x20 1+1x20"}, "20m", "35m"},
	{"PeerLost", sample{`etcd_network_active_peers{instance="a",Local="1",Remote="2"}`: "1x10 0x10"}, "11m", "16m"},
	{"PeersFarAway", buckets("etcd_network_peer_round_trip_time_seconds", `To="2"`, "0.1024", "0.2048", "0.4096"), "14m", "50m"},
	{"SlowLogDisk", buckets("etcd_disk_wal_fsync_duration_seconds", "", "0.064", "0.128", "0.256"), "14m", "50m"},
	{"SlowWrites", buckets("etcd_server_request_duration_seconds", `type="Put"`, "0.256", "1.024", "2.048"), "14m", "50m"},
	{"SlowWrites", buckets("etcd_server_request_duration_seconds", `type="Range"`, "0.256", "1.024", "2.048"), "50m", ""},
	{"ProposalsFail", sample{`etcd_server_proposals_failed_total{instance="a"}`: "0+10x20 300+120x20"}, "20m", "35m"},
	{"RequestsFail", sample{
		`grpc_server_handled_total{instance="a",grpc_type="unary",grpc_method="Put",grpc_code="OK"}`:          "0+100x60",
		`grpc_server_handled_total{instance="a",grpc_type="unary",grpc_method="Put",grpc_code="Unavailable"}`: "0+1x20 30+20x40",
	}, "20m", "45m"},
	{"RequestsFail", sample{
		`grpc_server_handled_total{instance="a",grpc_type="unary",grpc_method="Put",grpc_code="OK"}`:       "0+100x60",
		`grpc_server_handled_total{instance="a",grpc_type="unary",grpc_method="Put",grpc_code="NotFound"}`: "0+50x60",
	}, "45m", ""},
	{"QuotaNearlyReached", quota("70x20 90x20", "100x40"), "20m", "35m"},
	{"QuotaNearlyReached", quota("90x40", "-1x40"), "35m", ""},
	{"QuotaReachedSoon", quota("10+0.15x600", "100x600"), "2h", "8h"},
	{"QuotaReachedSoon", quota("10+0.01x600", "100x600"), "8h", ""},
	{"MemoryNearlyUsedUp", sample{`cairn_memory_used_bytes{instance="a"}`: "70x20 90x20", `cairn_memory_budget_bytes{instance="a"}`: "100x40"}, "20m", "35m"},
	{"AlarmRaised", sample{`etcd_debugging_server_alarms{instance="a",alarm_type="NOSPACE",server_id="1"}`: "0x10 1x10"}, "9m", "12m"},
	{"CertificateExpires", sample{`cairn_tls_certificate_expiry_timestamp_seconds{instance="a",file="crt"}`: "1296000x9000"}, "20h", "27h"},
	{"ManyFileDescriptors", sample{`process_open_fds{instance="a"}`: "70x20 90x20", `process_max_fds{instance="a"}`: "100x40"}, "20m", "35m"},
	{"ClientsAtLimits", sample{`cairn_rpc_limit_hits_total{instance="a",limit="idle_frames"}`: "0+10x20 300+120x30"}, "20m", "40m"},
}

// buckets is a histogram whose values all lie below the first bound for
// 20 minutes, then above it.
func buckets(family, label, low, middle, high string) sample {
	labels := `instance="a"`
	if label != "" {
		labels += "," + label
	}
	found := sample{}
	for bound, values := range map[string]string{low: "0+100x20 2000x40", middle: "0+100x20 2000+100x40", high: "0+100x20 2000+100x40", "+Inf": "0+100x20 2000+100x40"} {
		found[fmt.Sprintf(`%s_bucket{%s,le="%s"}`, family, labels, bound)] = values
	}
	return found
}

func quota(size, limit string) sample {
	return sample{`etcd_mvcc_db_total_size_in_bytes{instance="a"}`: size, `etcd_server_quota_backend_bytes{instance="a"}`: limit}
}

// promtool tests the rules with these series; quiet and loud are when the alert
// is off and on, if there is such a moment.
func promtool(t *testing.T, alert string, series sample, quiet, loud string) {
	t.Helper()
	if os.Getenv("ALERTS") == "" {
		t.Skip("it builds promtool, which takes minutes: make alerts")
	}
	rules, err := filepath.Abs(filepath.Join(deploy, "alerts.yml"))
	if err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	fmt.Fprintf(&text, "rule_files: [%q]\nevaluation_interval: 1m\ntests:\n  - interval: 1m\n    input_series:\n", rules)
	for name, values := range series {
		fmt.Fprintf(&text, "      - {series: '%s', values: '%s'}\n", name, values)
	}
	text.WriteString("    promql_expr_test:\n")
	for at, samples := range map[string]string{quiet: "[]", loud: "[{labels: '{}', value: 1}]"} {
		if at != "" {
			fmt.Fprintf(&text, "      - {expr: 'count(ALERTS{alertname=\"%s\",alertstate=\"firing\"})', eval_time: %s, exp_samples: %s}\n", alert, at, samples)
		}
	}
	file := filepath.Join(t.TempDir(), "test.yml")
	if err := os.WriteFile(file, []byte(text.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	result := harness.Command{Path: harness.Tool(t, "promtool"), Args: []string{"test", "rules", file}}.Run(t)
	if result.Code != 0 {
		t.Errorf("%s: exit %d\n%s%s\n%s", alert, result.Code, result.Stdout, result.Stderr, text.String())
	}
}

// Each rule fires when it should and is silent when not.
func TestAlertRules(t *testing.T) {
	for _, test := range ruleTests {
		promtool(t, test.alert, test.series, test.quiet, test.loud)
	}
}

// Each rule has a test in which it fires, and a section of the runbook.
func TestRunbook(t *testing.T) {
	tested := map[string]bool{}
	for _, test := range ruleTests {
		tested[test.alert] = tested[test.alert] || test.loud != ""
	}
	content, err := os.ReadFile(filepath.Join(deploy, "alerts.yml"))
	if err != nil {
		t.Fatal(err)
	}
	runbook, err := os.ReadFile("../../docs/runbook.md")
	if err != nil {
		t.Fatal(err)
	}
	// The lines that it sends people to look for are those that there are.
	lines, err := os.ReadFile("../../docs/logs.md")
	if err != nil {
		t.Fatal(err)
	}
	named := regexp.MustCompile("the log for `([^`]+)`|`([^`]+)` in the log").FindAllSubmatch(runbook, -1)
	if len(named) < 2 {
		t.Errorf("%d log lines in the runbook", len(named))
	}
	for _, match := range named {
		if line := string(match[1]) + string(match[2]); !strings.Contains(string(lines), line) {
			t.Errorf("docs/runbook.md names a log line that docs/logs.md lacks: %s", line)
		}
	}
	names := regexp.MustCompile(`(?m)^ *- alert: (\w+)$`).FindAllSubmatch(content, -1)
	if len(names) == 0 || len(names) != strings.Count(string(runbook), "\n## ") {
		t.Errorf("%d rules, %d sections", len(names), strings.Count(string(runbook), "\n## "))
	}
	for _, match := range names {
		name := string(match[1])
		if !tested[name] {
			t.Errorf("%s has no test in which it fires", name)
		}
		_, section, found := strings.Cut(string(runbook), "\n## "+name+"\n")
		section, _, _ = strings.Cut(section, "\n## ")
		for _, part := range []string{"**Means:**", "**Look at:**", "**Do:**"} {
			if !found || !strings.Contains(section, part) {
				t.Errorf("docs/runbook.md lacks %s of %s", part, name)
			}
		}
		if !strings.Contains(string(content), "runbook.md#"+strings.ToLower(name)+"\n") {
			t.Errorf("the rule %s does not lead to the runbook", name)
		}
	}
}

// scraped is what a member's page has of these families, held for an hour.
func scraped(t *testing.T, server *harness.Server, families ...string) sample {
	t.Helper()
	response, err := http.Get(server.URL("/metrics"))
	if err != nil {
		t.Fatal(err)
	}
	page, err := io.ReadAll(response.Body)
	response.Body.Close()
	if err != nil || response.StatusCode != 200 {
		t.Fatalf("metrics: %d %v", response.StatusCode, err)
	}
	found := sample{}
	for line := range strings.Lines(string(page)) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		family, labels, _ := strings.Cut(name, "{")
		for _, wanted := range families {
			if family == wanted {
				labels = strings.TrimSuffix(labels, "}")
				if labels != "" {
					labels = "," + labels
				}
				found[fmt.Sprintf(`%s{instance="a"%s}`, family, labels)] = value + "x60"
			}
		}
	}
	return found
}

// What is done to members makes the rules fire on their own metrics, and what
// the runbook says ends it.
func TestAlertsThatAreCaused(t *testing.T) {
	if harness.Subject() == harness.Etcd {
		t.Skip("about Cairn only")
	}
	cluster := harness.StartCluster(t, harness.Cairn, 3, nil)
	left := cluster.Members[0]
	leader := func() sample { return scraped(t, left, "etcd_server_has_leader") }
	peers := func() sample { return scraped(t, left, "etcd_network_active_peers") }
	promtool(t, "NoLeader", leader(), "50m", "")
	promtool(t, "PeerLost", peers(), "50m", "")
	cluster.Members[1].Kill()
	cluster.Members[2].Kill()
	await(t, "it knows of no leader", func() bool { return leader()[`etcd_server_has_leader{instance="a"}`] == "0x60" })
	promtool(t, "NoLeader", leader(), "", "50m")
	lost := func() bool {
		for _, value := range peers() {
			if value != "0x60" {
				return false
			}
		}
		return true
	}
	await(t, "its connections are gone", lost)
	// One for each of the two that are down.
	for name, value := range peers() {
		promtool(t, "PeerLost", sample{name: value}, "", "50m")
	}

	server := harness.Start(t, harness.Cairn, "--quota-backend-bytes=1048576")
	sizes := func() sample {
		return scraped(t, server, "etcd_mvcc_db_total_size_in_bytes", "etcd_server_quota_backend_bytes")
	}
	alarms := func() sample {
		found := scraped(t, server, "etcd_debugging_server_alarms")
		// A family with labels begins with its first value.
		found[`etcd_debugging_server_alarms{instance="b",alarm_type="NOSPACE",server_id="0"}`] = "0x60"
		return found
	}
	promtool(t, "QuotaNearlyReached", sizes(), "50m", "")
	promtool(t, "AlarmRaised", alarms(), "50m", "")
	value := strings.Repeat("v", 50_000)
	for i := 0; server.Ctl("put", "key", value).Code == 0; i++ {
		if i > 100 {
			t.Fatal("the quota ends nothing")
		}
	}
	promtool(t, "QuotaNearlyReached", sizes(), "", "50m")
	promtool(t, "AlarmRaised", alarms(), "", "50m")
	revision := regexp.MustCompile(`"Revision" : (\d+)`).FindStringSubmatch(server.MustCtl("get", "key", "-w", "fields", "--keys-only"))[1]
	server.MustCtl("compact", revision)
	await(t, "the space is back", func() bool {
		server.MustCtl("alarm", "disarm")
		return server.Ctl("put", "key", value).Code == 0
	})
	promtool(t, "QuotaNearlyReached", sizes(), "50m", "")
	promtool(t, "AlarmRaised", alarms(), "50m", "")
}

// await waits for something that a member finds out by itself.
func await(t *testing.T, what string, done func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !done(); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not in time: %s", what)
		}
	}
}

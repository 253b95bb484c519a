package bench

import (
	"os"
	"strings"
	"testing"

	"cairn.dev/conformance/harness"
)

// lines are run by both tools against one server; what they print is to have
// the same shape.
var lines = []string{
	"put --total=300",
	"--conns=3 --clients=7 put --total=300 --sequential-keys --key-space-size=50 --val-size=100",
	"--precise put --total=300",
	"--sample put --total=300",
	"--precise --sample --clients=2 put --total=100",
	"put --total=300 --rate=2000",
	"put --total=0",
	"put --total=-1",
	"put --total=1",
	"--clients=0 put",
	"--target-leader put --total=100",
	"put --total=5 --val-size=3000000",
	"put --total=100 --check-hashkv",
	"put --total=20 ignored arguments",
	"range foo --total=300",
	"range foo --total=300 --consistency=s",
	"range a z --total=100 --limit=3 --count-only",
	"--clients=4 --sample range foo --total=50",
	"range foo --total=0",
	"txn-put --total=300",
	"txn-put --total=50 --txn-ops=5 --key-space-size=20",
	"txn-put --total=3 --txn-ops=200 --key-space-size=1000",
	"txn-put --total=3 --txn-ops=0",
	"txn-mixed key --total=300",
	"txn-mixed --total=300 --rw-ratio=0 --consistency=s --key-space-size=10",
	"--sample txn-mixed key --total=300 --end-key=z --limit=5",
	"stm --total=100",
	"--clients=3 stm --total=60 --keys=5 --keys-per-txn=3 --isolation=c",
	"--clients=3 stm --total=60 --keys=5 --keys-per-txn=3 --isolation=r",
	"--clients=3 stm --total=60 --keys=5 --keys-per-txn=3 --isolation=s",
	"--clients=3 stm --total=60 --keys=5 --keys-per-txn=3 --isolation=ss --txn-wr-percent=100",
	"--clients=2 stm --total=20 --stm-locker=lock-client",
	"--clients=2 stm --total=20 --stm-locker=lock-rpc",
	"lease-keepalive --total=300",
	"--conns=2 --clients=5 lease-keepalive --total=300",
	"watch --put-total=20",
	"--conns=2 --clients=4 watch --put-total=30 --streams=3 --watch-per-stream=5 --watched-key-total=4 --key-space-size=9 --sequential-keys",
	"watch --streams=0",
	"watch-get --watchers=100",
	"--conns=2 --clients=2 watch-get --watchers=50 --streams=5 --events=3",
	"watch-latency --put-total=20 --put-rate=200",
	"--sample watch-latency --put-total=20 --put-rate=200 --streams=2 --watchers-per-stream=3 --prevkv",
	"watch-latency --streams=0 --put-total=2",
}

func TestReports(t *testing.T) {
	server := harness.Start(t, harness.Subject())
	genuine, own := harness.Tool(t, "benchmark"), ours(t)
	for _, line := range lines {
		want, got := run(t, genuine, server.Endpoint(), line), run(t, own, server.Endpoint(), line)
		if want.Code != got.Code {
			t.Errorf("%s: exit %d, not %d\n%s", line, got.Code, want.Code, got.Stderr)
		}
		if shape(got.Stdout) != shape(want.Stdout) {
			t.Errorf("%s:\n%s\nnot\n%s", line, shape(got.Stdout), shape(want.Stdout))
		}
	}
}

// Whether the genuine tool reads anything while nobody waits for an event is
// a race in it: a report with or without figures. Ours is without.
func TestNoEvents(t *testing.T) {
	server := harness.Start(t, harness.Subject())
	const line = "watch-get --events=0 --watchers=2"
	want, got := run(t, harness.Tool(t, "benchmark"), server.Endpoint(), line), run(t, ours(t), server.Endpoint(), line)
	if want.Code != 0 || got.Code != 0 {
		t.Errorf("exit %d, not %d\n%s", got.Code, want.Code, got.Stderr)
	}
	const heading = "Get during watch summary:"
	if !strings.Contains(shape(want.Stdout), heading) || strings.TrimSpace(shape(got.Stdout)) != heading {
		t.Errorf("%s\nnot\n%s", shape(got.Stdout), shape(want.Stdout))
	}
}

// Without a server, in a directory of the working directory that goes away.
func TestStorage(t *testing.T) {
	genuine, own := harness.Tool(t, "benchmark"), ours(t)
	t.Chdir(t.TempDir())
	for _, line := range []string{
		"mvcc put --total=2000 --batch-limit=100",
		"--precise mvcc put --total=500 --key-size=16 --value-size=1000",
		"mvcc --batch-interval 1 put --total=300 --txn --txn-ops=7",
	} {
		want, got := run(t, genuine, "", line), run(t, own, "", line)
		// The genuine tool prints a line of its engine's log first.
		_, report, _ := strings.Cut(want.Stdout, "\n")
		if got.Code != 0 || shape(got.Stdout) != shape(report) {
			t.Errorf("%s: exit %d\n%s%s\nnot\n%s", line, got.Code, got.Stderr, shape(got.Stdout), shape(report))
		}
	}
	left, err := os.ReadDir(".")
	if err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

// mistakes end both tools in the same way: exit code and first line.
var mistakes = []string{
	"nonsense",
	"put --nope",
	"put -z",
	"put --total=x",
	"put --total=99999999999999999999",
	"put --total",
	"put --rate=1.5",
	"put --sequential-keys=maybe",
	"put --compact-interval=5",
	"--conns=-1 put",
	"--clients=18446744073709551616 put",
	"--dial-timeout=5 put",
	"txn-mixed k --rw-ratio=x",
	"range",
	"range a b c",
	"range a --consistency=x",
	"txn-mixed a --consistency=x",
	"put --key-space-size=0",
	"put --key-space-size=-5",
	"txn-put --key-space-size=0",
	"txn-put --txn-ops=2",
	"txn-mixed k --key-space-size=0",
	"stm --keys=0",
	"stm --txn-wr-percent=101",
	"stm --txn-wr-percent=-1",
	"stm --keys=2 --keys-per-txn=5",
	"stm --keys=2 --keys-per-txn=-1",
	"stm --isolation=z",
	"stm --stm-locker=z",
	"--cacert=/nonexistent put",
	"--cert=/nonexistent put",
	"--cert=/nonexistent --key=/nonexistent put",
}

func TestMistakes(t *testing.T) {
	server := harness.Start(t, harness.Subject())
	genuine, own := harness.Tool(t, "benchmark"), ours(t)
	for _, line := range mistakes {
		want, got := run(t, genuine, server.Endpoint(), line), run(t, own, server.Endpoint(), line)
		if want.Code != got.Code || complaint(want) != complaint(got) || want.Stdout != got.Stdout {
			t.Errorf("%s: exit %d `%s`, not %d `%s`", line, got.Code, complaint(got), want.Code, complaint(want))
		}
	}
}

// The genuine tool panics on these, or waits for ever. Ours says what is wrong.
func TestImpossibleNumbers(t *testing.T) {
	server := harness.Start(t, harness.Subject())
	own := ours(t)
	for _, line := range []string{
		"--conns=0 put",
		"--conns=18446744073709551615 put",
		"--clients=18446744073709551615 put",
		"put --key-size=0",
		"put --key-size=1 --key-space-size=1000000",
		"put --key-size=-1",
		"put --key-size=9223372036854775807",
		"put --val-size=-1",
		"put --val-size=9223372036854775807",
		"put --rate=-1",
		"txn-put --txn-ops=-1",
		"txn-put --txn-ops=9223372036854775807 --key-space-size=9223372036854775807",
		"stm --keys=9223372036854775807 --keys-per-txn=9223372036854775807",
		"stm --val-size=-1",
		"watch --streams=-1",
		"watch --streams=9223372036854775807",
		"watch --streams=3000000 --watch-per-stream=3000000",
		"watch --watched-key-total=0",
		"watch --key-size=0",
		"watch-get --streams=0",
		"watch-get --watchers=9223372036854775807",
		"watch-latency --put-rate=0",
		"watch-latency --watchers-per-stream=-1",
		"mvcc put --total=-1",
		"--duration=1s mvcc put",
		"--json=run.json mvcc put",
		"--duration=1s watch-get",
	} {
		got := run(t, own, server.Endpoint(), line)
		if got.Code != 1 || got.Stderr == "" || strings.Contains(got.Stderr, "panic") {
			t.Errorf("%s: exit %d\n%s%s", line, got.Code, got.Stdout, got.Stderr)
		}
	}
	for _, line := range []string{
		"--duration=200ms put --total=9223372036854775807",
		"--duration=200ms put --rate=9223372036854775807",
		"--duration=200ms range foo --rate=1",
		"--duration=200ms txn-mixed k --total=9223372036854775807 --rate=9223372036854775807",
		"--duration=200ms stm --total=9223372036854775807 --keys=9223372036854775807",
		"--duration=200ms lease-keepalive --total=9223372036854775807",
		"--duration=200ms put --key-space-size=9223372036854775807 --key-size=10",
	} {
		got := run(t, own, server.Endpoint(), line)
		if got.Code != 0 || !strings.Contains(got.Stdout, "Requests/sec") {
			t.Errorf("%s: exit %d\n%s%s", line, got.Code, got.Stdout, got.Stderr)
		}
	}
}

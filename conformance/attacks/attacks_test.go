package attacks

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"cairn.dev/conformance/harness"
)

// What the processes of this test are told; each is this test binary, started
// again.
const (
	roleVariable     = "ATTACKS_ROLE"
	endpointVariable = "ATTACKS_ENDPOINT"
	goodRole         = "good"
)

// quietMin is from which length on each attack has a quiet measurement of its
// own; shorter runs share one.
const quietMin = 10 * time.Second

// waitMax bounds the p99 of a good client beside an attack.
const waitMax = 2 * time.Second

// TestAttacks runs one attack after the other, for ATTACK_MS each, and prints
// the table: those whose names match the regular expression ATTACK, or all. The server is started anew for each, so that its memory is its own.
func TestAttacks(t *testing.T) {
	length := time.Duration(harness.Number(t, "ATTACK_MS", 1_000)) * time.Millisecond
	server := harness.Prepare(t, harness.Subject(), memoryDir(t), "--quota-backend-bytes=8589934592")
	server.Run()
	fill(t, server)
	quiet := goodFor(t, server, time.Second)

	var table strings.Builder
	fmt.Fprintf(&table, "| attack, %v | p99 of reads, quiet / beside it | of puts | memory before / at most | processors: server, attacker | what the attacker did and got | limits counted |\n", length)
	fmt.Fprint(&table, "|---|--:|--:|--:|--:|---|---|\n")
	chosen, err := regexp.Compile(os.Getenv("ATTACK"))
	if err != nil {
		t.Fatal(err)
	}
	for _, attack := range attacks {
		if !chosen.MatchString(attack.name) {
			continue
		}
		harness.Attempt(t, func() error {
			server.Stop()
			server.Run()
			// What the first connections cost for good is not the attack's.
			if warm := goodFor(t, server, max(length/10, 200*time.Millisecond)); length >= quietMin {
				quiet = warm
			}
			before, err := anonKB(server.Pid())
			if err != nil {
				t.Fatal(err)
			}
			stop := watch(server.Pid())
			attacker := startRole(t, server, attack.name)
			seen := goodFor(t, server, length)
			output, attackerSeconds := attacker.end()
			// Half a second more: what was queued is worked off, or not.
			time.Sleep(500 * time.Millisecond)
			peak, processor := stop()
			limits := limitsHit(t, server)

			var got report
			if err := json.Unmarshal(output, &got); err != nil {
				t.Fatalf("%s: the attacker says %q: %v", attack.name, output, err)
			}
			fmt.Fprintf(&table, "| %s | %s / %s ms | %s / %s ms | %d / %d MB | %.0f %%, %.0f %% | %s connections, %s MB: %v | %s |\n", attack.name,
				milliseconds(quiet.ReadUs), milliseconds(seen.ReadUs), milliseconds(quiet.PutUs), milliseconds(seen.PutUs),
				before>>10, peak>>10, 100*processor, 100*attackerSeconds/length.Seconds(), number(got.Connections), number(got.Bytes>>20), got, limits)
			late := judge(t, attack, server, seen, peak-before, got)
			if !server.Running() {
				t.Fatalf("%s has ended the server:\n%s", attack.name, server.LogTail())
			}
			return late
		})
	}
	t.Logf("\n%s", table.String())
}

// exceptions are attacks that the server does not withstand as it should, and
// why. One that it does withstand is not reported: that is a matter of luck.
var exceptions = map[string]string{}

// judge holds what must hold in any case; of the genuine server it is only logged. What
// a machine that is late may cause, too, it returns: that the good client had to wait, or that one of the two did nothing.
func judge(t *testing.T, attack attack, server *harness.Server, seen Experience, growthKB int, got report) (late error) {
	t.Helper()
	complain := t.Errorf
	reason, excepted := exceptions[attack.name]
	if excepted || harness.Subject() == harness.Etcd {
		t.Logf("%s is excepted: %s", attack.name, reason)
		complain = t.Logf
	}
	if len(seen.Failures) > 0 {
		complain("%s: the good client failed: %v", attack.name, seen.Failures)
	}
	if seen.Reads == 0 || seen.Puts == 0 {
		late = fmt.Errorf("%s: the good client got %d reads and %d puts", attack.name, seen.Reads, seen.Puts)
	}
	for kind, us := range map[string]map[string]float64{"read": seen.ReadUs, "put": seen.PutUs} {
		if took := time.Duration(us["p99"]) * time.Microsecond; took > waitMax {
			late = fmt.Errorf("%s: of the good client's requests to %s one in a hundred takes more than %v, the bound is %v", attack.name, kind, took, waitMax)
		}
	}
	if growthKB>>10 > attack.growthMB {
		complain("%s: memory grew by %d MB, the bound is %d MB", attack.name, growthKB>>10, attack.growthMB)
	}
	// At the lowest priority it may not have come to it on a busy machine.
	if got.Connections == 0 || got.Bytes == 0 {
		return fmt.Errorf("%s: the attacker has done nothing: the test has proved nothing", attack.name)
	}
	if strings.Contains(server.Log(), "panicked at") {
		complain("%s: a panic in the log:\n%s", attack.name, server.LogTail())
	}
	if excepted || harness.Subject() == harness.Etcd {
		return nil
	}
	return late
}

// limitsHit is what the server has counted of limits that clients ran into. It
// was started for this attack, so all of it is the attacker's.
func limitsHit(t *testing.T, server *harness.Server) string {
	t.Helper()
	response, err := http.Get(server.URL("/metrics"))
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	page, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	var hits []string
	for _, found := range limitLine.FindAllStringSubmatch(string(page), -1) {
		if count, _ := strconv.ParseInt(found[2], 10, 64); count > 0 {
			hits = append(hits, fmt.Sprintf("%s %s", found[1], number(count)))
		}
	}
	return strings.Join(hits, ", ")
}

var limitLine = regexp.MustCompile(`(?m)^cairn_rpc_limit_hits_total\{limit="([a-z_]+)"\} (\d+)$`)

// milliseconds is the p99.
func milliseconds(us map[string]float64) string { return fmt.Sprintf("%.2f", us["p99"]/1000) }

// fill puts 20 MB, which the attackers list.
func fill(t *testing.T, server *harness.Server) {
	t.Helper()
	const values, valueBytes = 2_000, 10_000
	client := server.Client()
	value := strings.Repeat("v", valueBytes)
	next := make(chan int)
	var writers sync.WaitGroup
	for range 16 {
		writers.Go(func() {
			for n := range next {
				if _, err := client.Put(context.Background(), fmt.Sprintf("data/%06d", n), value); err != nil {
					t.Error(err)
				}
			}
		})
	}
	for n := range values {
		next <- n
	}
	close(next)
	writers.Wait()
	client.Close()
}

// goodFor lets a good client work for a while.
func goodFor(t *testing.T, server *harness.Server, length time.Duration) Experience {
	t.Helper()
	good := startRole(t, server, goodRole)
	time.Sleep(length)
	var seen Experience
	if output, _ := good.end(); json.Unmarshal(output, &seen) != nil {
		t.Fatalf("the good client says %q", output)
	}
	return seen
}

// role is a process that attacks, or that does not.
type role struct {
	t       *testing.T
	command *exec.Cmd
	orders  io.Closer
	reports io.Reader
}

// startRole starts one. It goes on until it is ended.
func startRole(t *testing.T, server *harness.Server, name string) *role {
	t.Helper()
	command := exec.Command(os.Args[0], "-test.run=^TestRole$")
	if name != goodRole {
		command = exec.Command("nice", "-n", "19", os.Args[0], "-test.run=^TestRole$")
	}
	command.Env = append(os.Environ(), roleVariable+"="+name, endpointVariable+"="+server.Endpoint())
	command.Stderr = os.Stderr
	command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	orders, err := command.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	reports, err := command.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	// What it does counts from when it is there.
	said := bufio.NewReader(reports)
	if line, err := said.ReadString('\n'); err != nil || line != begun {
		t.Fatalf("%s says %q: %v", name, line, err)
	}
	return &role{t, command, orders, said}
}

// begun is the first line of each role.
const begun = "begun\n"

// end ends the process and returns what it has to say, and how long it has used
// a processor.
func (r *role) end() (says []byte, seconds float64) {
	r.t.Helper()
	r.orders.Close()
	output, err := io.ReadAll(r.reports)
	if err != nil {
		r.t.Fatal(err)
	}
	_ = r.command.Wait()
	text, _, _ := strings.Cut(string(output), "\n")
	return []byte(text), (r.command.ProcessState.UserTime() + r.command.ProcessState.SystemTime()).Seconds()
}

// TestRole is the other end of startRole, and nothing by itself.
func TestRole(t *testing.T) {
	role, endpoint := os.Getenv(roleVariable), os.Getenv(endpointVariable)
	if role == "" {
		t.Skip("started by TestAttacks")
	}
	fmt.Print(begun)
	stop := make(chan struct{})
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		close(stop)
	}()
	if role == goodRole {
		seen, err := beGood(endpoint, stop)
		if err != nil {
			seen.Failures = append(seen.Failures, err.Error())
		}
		_ = json.NewEncoder(os.Stdout).Encode(seen)
		return
	}
	for _, attack := range attacks {
		if attack.name != role {
			continue
		}
		a := begin(endpoint, stop)
		var lines sync.WaitGroup
		for range attack.lines {
			lines.Go(func() {
				for !a.over() {
					attack.run(a)
				}
			})
		}
		<-stop
		lines.Wait()
		_ = a.tally.write(os.Stdout)
	}
}

// memoryDir is a directory in memory, so that other users of the disk do not
// decide how long a put takes.
func memoryDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "cairn-attacks-")
	if err != nil {
		return filepath.Join(t.TempDir(), "data")
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return filepath.Join(dir, "data")
}

package cluster

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"cairn.dev/conformance/harness"
)

// runbook are the commands of a section of docs/operations.md, in their
// order. Lines that end with a backslash go on; comments and lines that set a
// variable are left out.
func runbook(t *testing.T, heading string) []string {
	t.Helper()
	text, err := os.ReadFile("../../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, found := strings.Cut(string(text), "\n## "+heading+"\n")
	if !found {
		t.Fatalf("there is no section %q", heading)
	}
	section, _, _ = strings.Cut(section, "\n## ")
	var commands []string
	for number, block := range strings.Split(section, "\n```\n") {
		if number%2 == 0 {
			continue
		}
		for _, line := range strings.Split(strings.ReplaceAll(block, "\\\n", " "), "\n") {
			line, _, _ = strings.Cut(line, "  #")
			if line = strings.TrimSpace(line); line != "" && !regexp.MustCompile(`^[A-Z]+=`).MatchString(line) {
				commands = append(commands, line)
			}
		}
	}
	return commands
}

// Each command of the page works as it is written while the quorum is lost,
// and in the end the member serves with everything that was acknowledged.
func TestRunbookOfLostQuorum(t *testing.T) {
	if harness.Subject() == harness.Etcd {
		t.Skip("about Cairn only")
	}
	cluster := harness.StartCluster(t, harness.Cairn, 3, nil)
	left := cluster.Members[0]
	for i := range 20 {
		left.MustCtl("put", fmt.Sprint("key", i), "value")
	}
	cluster.Members[1].Kill()
	cluster.Members[2].Kill()
	// The commands work after a restart, too, once its port is open.
	left.Kill()
	left.Launch()
	page(t, left.URL("/health"))
	tools := t.TempDir()
	for name, target := range map[string]string{
		"cairn": harness.CairnBinary(t), "etcdctl": harness.Tool(t, "etcdctl"), "etcdutl": harness.Tool(t, "etcdutl"),
	} {
		if err := os.Symlink(target, filepath.Join(tools, name)); err != nil {
			t.Fatal(err)
		}
	}
	work := t.TempDir()
	shell := func(line string) string {
		command := exec.Command("sh", "-ec", line)
		command.Dir = work
		command.Env = append(os.Environ(), "PATH="+tools+":"+os.Getenv("PATH"), "LEFT="+left.Endpoint(), "DIR="+left.DataDir,
			// The tools' own 5 s are few on a busy machine.
			"ETCDCTL_COMMAND_TIMEOUT=30s")
		output, err := command.CombinedOutput()
		if err != nil {
			t.Errorf("%s: %v\n%s", line, err, output)
		}
		return string(output)
	}
	// What the page says of the answers, by a part of the command.
	wanted := map[string]string{
		"/health": `"reason":"RAFT NO LEADER"`, "endpoint status": left.Endpoint(), "store verify": "the last of term ", "snapshot save": "Snapshot saved at backup.db", "member list": "m0, ",
		"--keys-only": "key0", "endpoint health": "is healthy", "snapshot restore": "restored snapshot",
	}
	for deadline := time.Now().Add(settleMax); !strings.Contains(shell("curl -s http://$LEFT/health"), "NO LEADER"); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("it still has a leader")
		}
	}
	commands := runbook(t, "When the quorum is lost")
	served := 0
	for _, line := range commands {
		switch {
		case strings.HasPrefix(line, "systemctl stop"):
			left.Kill()
		case strings.HasPrefix(line, "cairn serve"):
			flags := cluster.MemberFlags("existing")
			if strings.Contains(line, "--force-new-cluster") {
				flags = append(flags, "--force-new-cluster")
			}
			left.SetFlags(flags...)
			left.Run()
			served++
		default:
			output := shell(line)
			for part, want := range wanted {
				if strings.Contains(line, part) && !strings.Contains(output, want) {
					t.Errorf("%s: no %q in\n%s", line, want, output)
				}
			}
		}
	}
	if len(commands) < 14 || served != 2 {
		t.Errorf("the page has other commands than this test knows: %q", commands)
	}
	if text := left.MustCtl("get", "key", "--prefix", "--count-only", "-w", "fields"); !strings.Contains(text, "\"Count\" : 20") {
		t.Errorf("keys: %s", text)
	}
	if members := left.MustCtl("member", "list"); strings.Count(members, "\n") != 1 {
		t.Errorf("members: %s", members)
	}
	// The new cluster has the same data, at a later revision.
	log := shell("cairn util store verify --data-dir $DIR.new")
	if !strings.Contains(log, "revision 10000000") {
		t.Errorf("of the new cluster: %s", log)
	}
}

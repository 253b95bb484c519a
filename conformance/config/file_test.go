package config

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"cairn.dev/conformance/harness"
)

const endMax = time.Minute

// write puts a configuration into a file. PEER, CLIENT and DIR in it stand for
// the server's own.
func write(t *testing.T, server *harness.Server, text string) string {
	t.Helper()
	text = strings.NewReplacer(
		"PEER", fmt.Sprint(server.PeerPort), "CLIENT", fmt.Sprint(server.ClientPort), "DIR", server.DataDir,
	).Replace(text)
	path := filepath.Join(t.TempDir(), "etcd.conf")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// withFile is a server that has nothing but a configuration file.
func withFile(t *testing.T, kind harness.Kind, text string) *harness.Server {
	t.Helper()
	server := harness.Prepare(t, kind, filepath.Join(t.TempDir(), "data"))
	server.Bare = true
	server.SetFlags("--config-file=" + write(t, server, text))
	return server
}

const small = `
name: from-file
data-dir: DIR
listen-client-urls: http://127.0.0.1:CLIENT
advertise-client-urls: http://127.0.0.1:CLIENT
listen-peer-urls: http://127.0.0.1:PEER
initial-advertise-peer-urls: http://127.0.0.1:PEER
initial-cluster: from-file=http://127.0.0.1:PEER
unsafe-no-fsync: true
`

const smallJSON = `{
  "name": "from-file", "data-dir": "DIR",
  "listen-client-urls": "http://127.0.0.1:CLIENT", "advertise-client-urls": "http://127.0.0.1:CLIENT",
  "listen-peer-urls": "http://127.0.0.1:PEER", "initial-advertise-peer-urls": "http://127.0.0.1:PEER",
  "initial-cluster": "from-file=http://127.0.0.1:PEER", "max-txn-ops": 3,
  "watch-progress-notify-interval": 600000000000, "log-outputs": ["stderr"]
}`

// Only the file counts: flags and variables beside it do not.
func TestFile(t *testing.T) {
	for _, kind := range []harness.Kind{harness.Etcd, harness.Subject()} {
		for name, text := range map[string]string{"yaml": small + "max-txn-ops: 3\n", "json": smallJSON} {
			t.Run(string(kind)+"/"+name, func(t *testing.T) {
				server := harness.Prepare(t, kind, filepath.Join(t.TempDir(), "data"))
				server.Bare = true
				server.SetFlags("--max-txn-ops=1", "--name=from-flags")
				server.Setenv("ETCD_CONFIG_FILE", write(t, server, text))
				server.Setenv("ETCD_NAME", "from-environment")
				server.Run()
				if list := server.MustCtl("member", "list"); !strings.Contains(list, "from-file") {
					t.Errorf("member list: %q", list)
				}
				txn := func(puts int) int {
					operations := strings.Repeat("put k v\n", puts)
					command := harness.Command{Path: harness.Tool(t, "etcdctl"), Stdin: "\n" + operations + "\n\n"}
					command.Args = []string{"--endpoints=" + server.Endpoint(), "txn"}
					return command.Run(t).Code
				}
				if txn(4) == 0 {
					t.Error("four operations are accepted with max-txn-ops: 3")
				}
			})
		}
	}
}

// The file that etcd publishes as a sample starts a member: all of its keys,
// among them such that mean nothing any more.
func TestSample(t *testing.T) {
	text, err := os.ReadFile("testdata/all.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, kind := range []harness.Kind{harness.Etcd, harness.Subject()} {
		server := withFile(t, kind, strings.Replace(string(text), "data-dir:", "data-dir: DIR", 1))
		server.Run()
		server.MustCtl("put", "a", "b")
		server.Stop()
	}
}

// Files that the server refuses.
func TestRefusedFiles(t *testing.T) {
	for _, line := range []string{
		"heartbeat-interval: '50'",
		"heartbeat-interval: soon",
		"heartbeat-interval: -1",
		"heartbeat-interval: 500",
		"corrupt-check-time: 10m",
		"pre-vote: maybe",
		"log-outputs: stderr",
		"log-outputs: [default, stdout]",
		"name: [a]",
		"name: again",
		"peer-transport-security: x",
		"feature-gates: Nothing=true",
		"feature-gates: LeaseCheckpointPersist=true",
		"listen-metrics-urls: nowhere",
		"listen-metrics-urls: https://127.0.0.1:1",
		"logger: capnslog",
		"log-format: xml",
		"auto-compaction-mode: never",
		"initial-cluster-state: old",
		"discovery-srv: example.invalid",
		"tls-min-version: TLS1.3\ntls-max-version: TLS1.2",
		"tls-max-version: TLS1.1",
		"compact-hash-check-time: 0",
		"enable-distributed-tracing: true\ndistributed-tracing-sampling-rate: 1000001",
		"\tname: a",
		"- a",
	} {
		t.Run(line, func(t *testing.T) { refused(t, line) })
	}
}

func refused(t *testing.T, line string) {
	outcome := map[harness.Kind]int{}
	for _, kind := range []harness.Kind{harness.Etcd, harness.Subject()} {
		server := withFile(t, kind, small+line+"\n")
		if err := server.TryRun(endMax); err == nil {
			t.Errorf("%s starts", kind)
			server.Stop()
			continue
		}
		code, err := server.Wait(endMax)
		if err != nil {
			t.Errorf("%s: %v", kind, err)
		}
		outcome[kind] = code
		if kind != harness.Etcd && strings.Contains(server.Log(), "panic") {
			t.Error(server.LogTail())
		}
	}
	// Where etcd panics (2) a sentence (1) is better.
	if outcome[harness.Etcd] != 2 && outcome[harness.Etcd] != outcome[harness.Subject()] {
		t.Errorf("exit %d, etcd's is %d", outcome[harness.Subject()], outcome[harness.Etcd])
	}
}

// Unknown keys are ignored, but not silently.
func TestUnknownKey(t *testing.T) {
	server := withFile(t, harness.Subject(), small+"no-such-key: 1\n")
	server.Run()
	if harness.Subject() == harness.Cairn && !strings.Contains(server.Log(), "no-such-key") {
		t.Error("nobody is told of the unknown key")
	}
}

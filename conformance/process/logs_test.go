package process

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"cairn.dev/conformance/harness"
)

const patience = time.Minute

var (
	inCode = regexp.MustCompile("`((?:[^`\\\\]|\\\\.)+)`")
	// etcd's calls of its logger at the levels of which the page speaks.
	logged = regexp.MustCompile(`\.(?:Info|Warn|Error)\(\s*"((?:[^"\\]|\\.)*)"`)
	// What is not the server's: proxies, and helpers of tests.
	elsewhere = regexp.MustCompile(`mock|grpc_proxy|etcdmain/gateway|v2http|/testdata/|testutil|/testing/|_test\.go$`)
)

// sections are the parts of the page about log lines, by heading.
func sections(t *testing.T) map[string]string {
	t.Helper()
	page, err := os.ReadFile(filepath.Join("..", "..", "docs", "logs.md"))
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]string{}
	for _, section := range strings.Split(string(page), "\n## ")[1:] {
		heading, body, _ := strings.Cut(section, "\n")
		all[heading] = body
	}
	return all
}

func codes(text string) (found []string) {
	for _, match := range inCode.FindAllStringSubmatch(text, -1) {
		found = append(found, strings.ReplaceAll(match[1], `\|`, "|"))
	}
	return found
}

// etcdLines are the lines of the genuine server, from its source.
func etcdLines(t *testing.T) map[string]string {
	t.Helper()
	command := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "go.etcd.io/etcd/server/v3")
	command.Dir = ".."
	out, err := command.Output()
	if err != nil {
		t.Fatalf("where etcd's source is: %v", err)
	}
	root := strings.TrimSpace(string(out))
	lines := map[string]string{}
	for _, folder := range []string{"auth", "embed", "etcdmain", "etcdserver", "lease", "storage"} {
		err := filepath.WalkDir(filepath.Join(root, folder), func(path string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() || !strings.HasSuffix(path, ".go") || elsewhere.MatchString(strings.TrimPrefix(path, root+"/")) {
				return err
			}
			source, err := os.ReadFile(path)
			for _, match := range logged.FindAllSubmatch(source, -1) {
				lines[string(match[1])] = strings.TrimPrefix(path, root+"/")
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if len(lines) < 300 {
		t.Fatalf("etcd's source has only %d lines", len(lines))
	}
	return lines
}

// The page about log lines knows every line of etcd's, and what it says of
// Cairn's is in the binary.
func TestLogLines(t *testing.T) {
	t.Parallel()
	if harness.Subject() == harness.Etcd {
		t.Skip("it is about Cairn's lines")
	}
	binary, err := os.ReadFile(harness.Binary(t, harness.Subject()))
	if err != nil {
		t.Fatal(err)
	}
	page, etcd := sections(t), etcdLines(t)
	known := map[string]bool{}
	is := func(line string) {
		if _, ok := etcd[line]; !ok {
			t.Errorf("etcd does not write %q", line)
		}
		if known[line] {
			t.Errorf("%q is on the page twice", line)
		}
		known[line] = true
	}
	has := func(line string) {
		if !bytes.Contains(binary, []byte(line)) {
			t.Errorf("the binary does not have %q", line)
		}
	}
	for _, line := range codes(page["In etcd's words"]) {
		is(line)
		has(line)
	}
	for row := range strings.Lines(page["Worded otherwise"]) {
		cells := strings.Split(row, " | ")
		if !strings.HasPrefix(row, "| `") || len(cells) < 3 {
			continue
		}
		for _, line := range codes(cells[0]) {
			has(line)
		}
		for _, line := range codes(cells[1]) {
			is(line)
		}
	}
	for row := range strings.Lines(page["Not written"]) {
		if !strings.HasPrefix(row, "- ") {
			continue
		}
		for _, line := range codes(row) {
			is(line)
		}
	}
	for row := range strings.Lines(page["Cairn's own"]) {
		cell, _, _ := strings.Cut(row, " | ")
		for _, line := range codes(cell) {
			has(line)
		}
	}
	for row := range strings.Lines(page["The gateway"] + page["The gRPC proxy"]) {
		if strings.HasPrefix(row, "- ") {
			has(codes(row)[0])
		}
	}
	for line, file := range etcd {
		if !known[line] {
			t.Errorf("%s writes %q, of which docs/logs.md says nothing", file, line)
		}
	}
}

// A start says what the member is, with what it was configured, and where it
// listens; an end that it is over. Secrets are in none of it.
func TestStartAndEndAreLogged(t *testing.T) {
	t.Parallel()
	server := harness.Prepare(t, harness.Subject(), t.TempDir()+"/data")
	server.Setenv("ETCD_MAX_TXN_OPS", "77")
	server.Run()
	log := server.Log()
	for _, line := range []string{
		`"msg":"recognized and used environment variable","variable-name":"ETCD_MAX_TXN_OPS","variable-value":"77"`,
		`"msg":"Initialize and start etcd server","data-dir":"` + server.DataDir + `","dir-type":"empty"`,
		`"msg":"starting an etcd server"`,
		`"member-initialized":false`, `"name":"default"`, `"listen-client-urls":["http://` + server.Endpoint() + `"]`,
		`"election-timeout":"1s"`, `"snapshot-count":10000`, `"pre-vote":true`, `"quota-backend-bytes":2147483648`,
		`"v2-deprecation":"write-only"`, `"msg":"configuring peer listeners"`, `"msg":"now serving peer/client/metrics"`,
		`elected leader`, `became leader at term`,
	} {
		if !strings.Contains(log, line) {
			t.Errorf("the log does not say %s", line)
		}
	}
	seen := len(log)
	server.Stop()
	server.Run()
	log = server.Log()[seen:]
	for _, line := range []string{
		`"msg":"closing etcd server","name":"default"`, `"msg":"closed etcd server","name":"default"`,
		`"msg":"server has already been initialized"`, `"member-initialized":true`,
	} {
		if !strings.Contains(log, line) {
			t.Errorf("the log does not say %s", line)
		}
	}
}

// What etcd's operators look for when something is wrong.
func TestLinesAboutTrouble(t *testing.T) {
	t.Parallel()
	server := harness.Start(t, harness.Subject(), "--quota-backend-bytes=1000000")
	for server.Ctl("put", "key", strings.Repeat("v", 100_000)).Code == 0 {
	}
	// The refusal is sent before the alarm that it raises is applied; a list of alarms waits for it.
	server.MustCtl("alarm", "list")
	ask(t, server, "GET", "/health")
	server.AwaitLog(t, "serving /health false due to an alarm")
	if server.Kind != harness.Etcd {
		// etcd has this line only where the entry is applied.
		server.AwaitLog(t, "message exceeded backend quota; raising alarm")
		server.AwaitLog(t, `"space":"quota"`)
	}
	server.MustCtl("compact", "1")
	server.AwaitLog(t, `"msg":"finished scheduled compaction","compact-revision":1,"took":"`)
	server.AwaitLog(t, `"current-db-size-in-use-bytes":`)
	// The hash is that of what the compaction found, which HashKV answers with afterwards.
	hash, err := server.Client().HashKV(t.Context(), server.Endpoint(), 1)
	if err != nil {
		t.Fatal(err)
	}
	server.AwaitLog(t, fmt.Sprintf(`"hash":%d,`, hash.Hash))
}

// An empty name is none.
func TestEmptyName(t *testing.T) {
	t.Parallel()
	server := harness.Prepare(t, harness.Subject(), t.TempDir()+"/data", "--name=")
	err := server.TryRun(patience)
	if err == nil || !strings.Contains(err.Error(), `couldn't find local name \"\" in the initial cluster configuration`) {
		t.Errorf("the start: %v", err)
	}
}

// Flags that are not given are not warned of.
func TestNoWarningWithoutInitialFlags(t *testing.T) {
	t.Parallel()
	server := harness.Start(t, harness.Subject())
	server.Stop()
	server.Bare = true
	client := "http://" + server.Endpoint()
	server.SetFlags("--name=default", "--data-dir="+server.DataDir, "--listen-client-urls="+client, "--advertise-client-urls="+client,
		"--listen-peer-urls="+server.PeerURL())
	seen := len(server.Log())
	server.Run()
	if log := server.Log()[seen:]; strings.Contains(log, "--initial-cluster") {
		t.Errorf("the restart warns of --initial-cluster:\n%s", log)
	}
}

// A damaged file refuses the start, and the line says what to do.
func TestDamagedFileSaysWhatToDo(t *testing.T) {
	t.Parallel()
	if harness.Subject() == harness.Etcd {
		t.Skip("etcd does not say")
	}
	server := harness.Start(t, harness.Subject())
	for range 20 {
		server.MustCtl("put", "key", strings.Repeat("value", 100))
	}
	server.Kill()
	var log string
	err := filepath.WalkDir(server.DataDir, func(path string, entry fs.DirEntry, err error) error {
		if err == nil && strings.HasSuffix(path, ".wal") && log == "" {
			log = path
		}
		return err
	})
	if err != nil || log == "" {
		t.Fatalf("no log in %s: %v", server.DataDir, err)
	}
	content, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	content[700] ^= 0xff
	if err := os.WriteFile(log, content, 0o600); err != nil {
		t.Fatal(err)
	}
	err = server.TryRun(patience)
	if err == nil {
		t.Fatal("the member starts")
	}
	for _, word := range []string{"is damaged at offset", `"what-to-do":"keep a copy of`, "etcdctl member remove", "etcdutl snapshot restore"} {
		if !strings.Contains(err.Error(), word) {
			t.Errorf("the refusal does not say %q: %v", word, err)
		}
	}
}

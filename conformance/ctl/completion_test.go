package ctl

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"cairn.dev/conformance/harness"
)

// What may follow is proposed without descriptions too, as etcd's scripts for
// bash ask for it, and also for the binary under its own name.
func TestCompletion(t *testing.T) {
	theirs := harness.Command{Path: harness.Tool(t, "etcdctl"), Args: []string{"__completeNoDesc", "com"}}.Run(t)
	own := harness.Command{Path: ours(t), Args: []string{"__completeNoDesc", "com"}}.Run(t)
	if theirs.Stdout != own.Stdout {
		t.Errorf("proposed: %q, by etcd's %q", own.Stdout, theirs.Stdout)
	}
	link := filepath.Join(t.TempDir(), "cairn")
	if err := os.Symlink(harness.CairnBinary(t), link); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ asked, want string }{
		{"__complete ctl com", "compaction\t"}, {"__complete util sn", "snapshot\t"}, {"__complete c", "ctl\t"}, {"__completeNoDesc c", "completion\nctl\n"}, {"__complete serve --quota-b", "--quota-backend-bytes=\t"},
		{"__complete bench p", "put\t"}, {"__complete bench put --to", "--total=\t"}, {"__complete cluster --s", "--size=\t"}, {"__complete gateway s", "start\t"}, {"__complete gateway start --retry", "--retry-delay=\t"},
		{"__complete completion z", "zsh\t"}, {"completion bash", "benchmark\n"}, {"completion zsh", "compdef _etcd etcd;"},
		{"completion fish", "complete -c etcd "}, {"completion powershell", "-CommandName benchmark "}, {"__complete check d", "disk\t"},
		{"ctl completion bash", " cairn\n"}, {"util completion fish", "complete -c cairn "},
	} {
		found := harness.Command{Path: link, Args: strings.Fields(c.asked)}.Run(t)
		if found.Code != 0 || !strings.Contains(found.Stdout, c.want) {
			t.Errorf("%s: %+v", c.asked, found)
		}
	}
}

// The names of etcd's server and benchmark complete as well, and the scripts
// for bash do so in bash.
func TestCompletionOfNames(t *testing.T) {
	if harness.Subject() == harness.Etcd {
		t.Skip("about Cairn only")
	}
	dir := t.TempDir()
	for _, name := range []string{"cairn", "etcd", "etcdctl", "etcdutl", "benchmark"} {
		if err := os.Symlink(harness.CairnBinary(t), filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	bash, err := exec.LookPath("bash")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ line, want string }{
		{"etcd --snapshot-cou", "--snapshot-count="}, {"benchmark txn-p", "txn-put"}, {"cairn ser", "serve"}, {"cairn serve --wal-d", "--wal-dir="},
		{"etcdctl compac", "compaction"}, {"etcdutl hash", "hashkv"}, {"cairn bench watch-l", "watch-latency"}, {"cairn cluster --cl", "--client-port="},
	} {
		words := strings.Fields(c.line)
		script := `source <(cairn completion bash); COMP_WORDS=(` + c.line + `); COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); _` + words[0] + `_complete 2>/dev/null; printf '%s\n' "${COMPREPLY[@]}"`
		result := harness.Command{Path: bash, Args: []string{"-c", script}, Env: []string{"PATH=" + dir + ":/usr/bin:/bin"}}.Run(t)
		if result.Code != 0 || strings.TrimSpace(result.Stdout) != c.want {
			t.Errorf("%s: %+v", c.line, result)
		}
	}
}

// Every command and every flag has its place in the man pages.
func TestManPages(t *testing.T) {
	if harness.Subject() == harness.Etcd {
		t.Skip("about Cairn only")
	}
	dir := filepath.Join(t.TempDir(), "man1")
	result := harness.Command{Path: harness.CairnBinary(t), Args: []string{"help", "--man", dir}}.Run(t)
	if result.Code != 0 {
		t.Fatalf("%+v", result)
	}
	page := func(name string) string {
		text, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		return strings.ReplaceAll(string(text), `\-`, "-")
	}
	help := harness.Command{Path: harness.CairnBinary(t), Args: []string{"help"}}.Run(t)
	serve := page("cairn-serve.1")
	for line := range strings.Lines(help.Stdout) {
		if name, found := strings.CutPrefix(line, "  --"); found {
			name = strings.Fields(name)[0]
			if !strings.Contains(serve, `\fB--`+name+`\fR`) {
				t.Errorf("cairn-serve.1 lacks --%s", name)
			}
		}
	}
	for name, parts := range map[string][]string{
		"cairn.1": {".SS cairn takeover", "cairn-serve(1)"}, "cairn-ctl.1": {".SS cairn ctl member add <name>", "--prefix"},
		"cairn-util.1": {".SS cairn util snapshot save"}, "cairn-bench.1": {".SS cairn bench put", "--total"}, "cairn-doctor.1": {"--data-dir"},
	} {
		for _, part := range parts {
			if !strings.Contains(page(name), part) {
				t.Errorf("%s lacks %q", name, part)
			}
		}
	}
	if groff, err := exec.LookPath("groff"); err == nil {
		pages, _ := filepath.Glob(filepath.Join(dir, "*.1"))
		for _, path := range pages {
			if checked := (harness.Command{Path: groff, Args: []string{"-man", "-z", "-ww", path}}).Run(t); checked.Stderr != "" {
				t.Errorf("%s: %s", path, checked.Stderr)
			}
		}
	}
}

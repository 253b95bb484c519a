package checks

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"cairn.dev/conformance/harness"
)

type report struct {
	Findings []struct{ Name, Grade, Text string }
	Disk     struct{ FdatasyncSeconds times }
	Network  []struct{ Member, Verdict string }
	// Classes and what keeps the machine from the next one.
	SizeClass struct {
		Name      string
		LimitedBy []string
		Parts     []struct{ Name, Here, GoodFor string }
	}
	Settings []struct {
		Setting, Why string
		IsFlag       bool
	}
	Verdict string
}

func (r report) texts(name string) (texts []string) {
	for _, finding := range r.Findings {
		if finding.Name == name {
			texts = append(texts, finding.Grade+" "+finding.Text)
		}
	}
	return texts
}

// The doctor looks at everything, and what it advises is something that a
// member takes.
func TestDoctor(t *testing.T) {
	for _, kind := range []harness.Kind{harness.Etcd, harness.Cairn} {
		t.Run(string(kind), func(t *testing.T) {
			server, dir := harness.Start(t, kind), t.TempDir()
			var found report
			result := object(t, &found, "doctor", "--data-dir", dir, "--endpoints", server.Endpoint())
			for _, name := range []string{
				"processors", "memory", "huge pages", "open files", "I/O priority", "disk space", "disk", "clock", "clocks", "network", "quota", "history",
			} {
				if len(found.texts(name)) == 0 {
					t.Errorf("nothing about `%s`: %s", name, result.Stdout)
				}
			}
			isSick := slices.ContainsFunc(found.Findings, func(f struct{ Name, Grade, Text string }) bool { return f.Grade == "FAIL" })
			checkVerdict(t, result, found.Verdict, !isSick)
			if len(found.SizeClass.Parts) < 2 || found.SizeClass.Name == "" || found.Disk.FdatasyncSeconds.Count == 0 || len(found.Network) != 1 {
				t.Errorf("%s", result.Stdout)
			}
			checkEmpty(t, dir)
		})
	}
}

// Every flag that is advised is taken by a member, with its value.
func TestDoctorsFlags(t *testing.T) {
	var found report
	object(t, &found, "doctor", "--data-dir", t.TempDir())
	var flags []string
	for _, setting := range found.Settings {
		if setting.IsFlag {
			flags = append(flags, setting.Setting)
		}
	}
	for _, name := range []string{
		"quota-backend-bytes", "heartbeat-interval", "election-timeout", "auto-compaction-mode", "auto-compaction-retention", "snapshot-count",
	} {
		if !slices.ContainsFunc(flags, func(flag string) bool { return strings.HasPrefix(flag, "--"+name+"=") }) {
			t.Errorf("nothing about --%s: %v", name, flags)
		}
	}
	server := harness.Start(t, harness.Cairn, flags...)
	if server.MustCtl("put", "a", "b") != "OK\n" {
		t.Error("it serves nobody")
	}
	result := cairn(t, "doctor", "--data-dir", t.TempDir())
	for _, flag := range flags {
		if !regexp.MustCompile(`(?m)^  ` + regexp.QuoteMeta(strings.SplitN(flag, "=", 2)[0])).MatchString(result.Stdout) {
			t.Errorf("no %s in\n%s", flag, result.Stdout)
		}
	}
}

// What is wrong is found.
func TestDoctorFinds(t *testing.T) {
	const quota = 1 << 20
	server := harness.Start(t, harness.Cairn, fmt.Sprint("--quota-backend-bytes=", quota))
	value := strings.Repeat("v", 100_000)
	for i := range 9 {
		server.MustCtl("put", fmt.Sprint("key", i), value)
	}
	var found report
	object(t, &found, "doctor", "--endpoints", server.Endpoint(), "--data-dir", t.TempDir())
	if texts := found.texts("quota"); len(texts) != 1 || !strings.HasPrefix(texts[0], "WARN ") || !strings.Contains(texts[0], "of 1 MiB") {
		t.Errorf("%q", texts)
	}
	for i := 9; server.Ctl("put", fmt.Sprint("key", i), value).Code == 0; i++ {
		if i > 100 {
			t.Fatal("the quota ends nothing")
		}
	}
	result := object(t, &found, "doctor", "--endpoints", server.Endpoint(), "--data-dir", t.TempDir())
	if texts := found.texts("alarms"); result.Code != 1 || len(texts) != 1 || !strings.HasPrefix(texts[0], "FAIL ") {
		t.Errorf("exit %d: %q", result.Code, texts)
	}

	nobody := fmt.Sprintf("127.0.0.1:%d", harness.Port(t))
	result = cairn(t, "doctor", "--endpoints", nobody, "--command-timeout=1s", "--data-dir", "/nowhere")
	for _, part := range []string{"  FAIL  disk ", "/nowhere`: No such file", "  FAIL  cluster "} {
		if result.Code != 1 || !strings.Contains(result.Stdout, part) {
			t.Errorf("exit %d, no `%s` in\n%s%s", result.Code, part, result.Stdout, result.Stderr)
		}
	}
}

package config

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"cairn.dev/conformance/harness"
)

// Every line of the log is an object with level, time, caller and message.
func TestJSONLines(t *testing.T) {
	path := filepath.Join(t.TempDir(), "server.log")
	server := harness.Start(t, harness.Subject(), "--log-outputs=stderr,"+path, "--log-level=debug")
	server.MustCtl("put", "a", "b")
	server.Stop()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Contains(content, []byte("ready to serve client requests")) {
		t.Errorf("the file has not all lines: %s", content)
	}
	for _, line := range strings.Split(strings.TrimSpace(string(content)), "\n") {
		var entry struct{ Level, TS, Caller, Msg string }
		if err := json.Unmarshal([]byte(line), &entry); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		if _, err := time.Parse("2006-01-02T15:04:05.999999Z0700", entry.TS); err != nil {
			t.Error(err)
		}
		if entry.Level == "" || entry.Caller == "" || entry.Msg == "" {
			t.Errorf("%q has no level, caller or message", line)
		}
		// The genuine server tells of its own sockets when it stops.
		if entry.Level == "error" && harness.Subject() == harness.Cairn {
			t.Errorf("an error in normal operation: %s", line)
		}
	}
}

// A file that is full is put aside.
func TestRotation(t *testing.T) {
	for _, kind := range []harness.Kind{harness.Etcd, harness.Subject()} {
		dir := t.TempDir()
		path := filepath.Join(dir, "server.log")
		if err := os.WriteFile(path, append(bytes.Repeat([]byte("x"), 1<<20-20), '\n'), 0o600); err != nil {
			t.Fatal(err)
		}
		server := harness.Start(t, kind, "--log-outputs=stderr,"+path, "--enable-log-rotation",
			`--log-rotation-config-json={"maxsize": 1, "compress": true}`)
		server.MustCtl("put", "a", "b")
		for deadline := time.Now().Add(endMax); ; time.Sleep(50 * time.Millisecond) {
			aside, _ := filepath.Glob(filepath.Join(dir, "server-????-??-??T??-??-??.???.log.gz"))
			now, err := os.Stat(path)
			if len(aside) == 1 && err == nil && now.Size() < 1<<20 {
				break
			}
			if time.Now().After(deadline) {
				files, _ := os.ReadDir(dir)
				t.Fatalf("%s: %v", kind, files)
			}
		}
		server.Stop()
	}
}

// Where the log cannot go, the member does not start.
func TestRefusedOutputs(t *testing.T) {
	for _, flags := range [][]string{
		{"--log-outputs=/proc/none/log"},
		{"--log-outputs=default,stdout"},
		{"--enable-log-rotation"},
		{"--enable-log-rotation", "--log-outputs=a,b"},
		{"--enable-log-rotation", "--log-outputs=/tmp/x", "--log-rotation-config-json={"},
		{"--enable-log-rotation", "--log-outputs=/tmp/x", `--log-rotation-config-json={"maxsize": "large"}`},
		{"--logger=capnslog"},
		{"--logger=log4j"},
	} {
		dir := "--data-dir=" + filepath.Join(t.TempDir(), "data")
		run := func(kind harness.Kind) harness.Result {
			return harness.Command{Path: harness.Binary(t, kind), Args: append([]string{dir}, flags...), Max: endMax}.Run(t)
		}
		if want, got := run(harness.Etcd), run(harness.Subject()); want.Code != got.Code || got.Code == 0 {
			t.Errorf("%v: exit %d, etcd's is %d: %s", flags, got.Code, want.Code, got.Stderr)
		}
	}
}

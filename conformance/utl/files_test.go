package utl

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"cairn.dev/conformance/harness"
	"github.com/google/go-cmp/cmp"
)

// save saves a snapshot of a server with a history.
func save(t *testing.T, kind harness.Kind) (*harness.Server, string) {
	t.Helper()
	server := harness.Start(t, kind)
	write(t, server.Client(), 1)
	settle(t, server)
	file := filepath.Join(t.TempDir(), "snapshot.db")
	server.MustCtl("snapshot", "save", file)
	return server, file
}

// Both tools say the same of snapshots of both servers, in every form.
func TestFiles(t *testing.T) {
	genuine, own := harness.Tool(t, "etcdutl"), ours(t)
	for _, kind := range []harness.Kind{harness.Etcd, harness.Cairn} {
		t.Run(string(kind), func(t *testing.T) {
			_, file := save(t, kind)
			cut := filepath.Join(t.TempDir(), "cut.db")
			content, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(cut, content[:len(content)/2], 0o600); err != nil {
				t.Fatal(err)
			}
			for _, line := range []string{
				"snapshot status FILE", "snapshot status FILE -w json", "snapshot status FILE -w fields",
				"snapshot status FILE -w table", "snapshot status FILE -w protobuf", "snapshot status FILE -w yaml",
				"snapshot status", "snapshot status a b", "snapshot status /nowhere",
				"hashkv FILE", "hashkv FILE -w json", "hashkv FILE -w fields", "hashkv FILE -w table",
				"hashkv FILE --rev=500", "hashkv FILE --rev=480", "hashkv FILE --rev=9999", "hashkv FILE --rev=2",
				"hashkv /nowhere", "hashkv", "defrag", "version", "nonsense", "snapshot restore", "snapshot restore /nowhere --data-dir NEW",
				"snapshot restore FILE --bump-revision=5", "snapshot restore FILE --mark-compacted",
				"snapshot restore FILE --bump-revision=-5 --mark-compacted", "snapshot restore FILE --bump-revision=0_x --mark-compacted",
				"snapshot restore FILE --data-dir FULL", "snapshot restore FILE --data-dir NEW --name=other",
				"snapshot restore BARE --data-dir NEW", "snapshot restore WRONG --data-dir NEW",
			} {
				// The genuine tool writes to the file when it hashes.
				var results [2]harness.Result
				for i, tool := range []string{genuine, own} {
					dir := t.TempDir()
					wrong := append([]byte{}, content...)
					wrong[len(wrong)/2] ^= 1
					files := map[string][]byte{"FILE": content, "BARE": content[:len(content)-32], "WRONG": wrong}
					for name, content := range files {
						if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
							t.Fatal(err)
						}
					}
					full := filepath.Join(dir, "FULL")
					if err := os.MkdirAll(filepath.Join(full, "something"), 0o700); err != nil {
						t.Fatal(err)
					}
					var args []string
					for _, word := range strings.Fields(line) {
						switch word {
						case "FILE", "BARE", "WRONG", "FULL", "NEW":
							word = filepath.Join(dir, word)
						}
						args = append(args, word)
					}
					results[i] = harness.Command{Path: tool, Args: args}.Run(t)
					results[i].Stdout = strings.ReplaceAll(results[i].Stdout, dir, "DIR")
					results[i].Stderr = complaint(strings.ReplaceAll(results[i].Stderr, dir, "DIR"))
				}
				if difference := cmp.Diff(results[0], results[1]); difference != "" {
					t.Errorf("%s: %s", line, difference)
				}
			}
			if text := refused(t, "snapshot", "status", cut); !strings.Contains(text, "cut off") {
				t.Errorf("half a snapshot: %s", text)
			}
		})
	}
}

// A file that a server works with is waited for, and no longer than asked.
func TestFilesInUse(t *testing.T) {
	server := harness.Start(t, harness.Etcd)
	write(t, server.Client(), 1)
	file := filepath.Join(server.DataDir, "member", "snap", "db")
	for _, command := range [][]string{{"hashkv", file}, {"snapshot", "status", file}} {
		if text := refused(t, append(command, "--timeout=300ms")...); !strings.Contains(text, "in use") {
			t.Errorf("%v: %s", command, text)
		}
	}
	server.Stop()
	run(t, "hashkv", file, "--timeout=300ms")
}

// complaint is the line of a text that tells of an error: the genuine tool logs
// what it does, and repeats errors behind its usage.
func complaint(text string) string {
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, "Error: ") {
			return line
		}
	}
	return ""
}

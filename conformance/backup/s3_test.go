package backup

import (
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"cairn.dev/conformance/harness"
)

// Bytes of the file system that the S3 server has.
const diskBytes = 48 << 20

// TestS3 follows a member into a real S3 server, which has keys, dies, and whose disk becomes full; then it restores random revisions.
func TestS3(t *testing.T) {
	if os.Getenv("S3") == "" {
		t.Skip("it takes long, and root: make backup-s3")
	}
	server := startS3(t)
	place := []string{"--from", "s3://bucket/some/prefix", "--s3-endpoint", server.url()}
	member := harness.Start(t, harness.Cairn)
	s := newSource(t, member, harness.Seed(t))
	s.run(10)
	to := []string{"--endpoints", member.Endpoint(), "--to", "s3://bucket/some/prefix", "--s3-endpoint", server.url(), "--every", "200ms"}

	// A wrong key is told of at once, and leaves nothing.
	for _, env := range [][]string{keys("nobody", "secret"), keys("root", "wrong")} {
		f := follow(t, env, to...)
		if code := f.wait(); code != 2 || !strings.Contains(f.log(), "does not let this key in") {
			t.Errorf("%v: %d %s", env, code, f.log())
		}
	}
	env := keys("root", "secret")
	if left := server.objects(t); len(left) > 0 {
		t.Fatalf("there is something: %v", left)
	}

	f := follow(t, env, to...)
	f.await("a base is at entry")
	begin := len(s.facts)
	s.run(100)
	// The store dies and comes back.
	server.kill()
	s.run(50)
	f.await("trying again")
	server.run(t)
	s.run(50)
	awaitArchived(t, s, env, place...)
	// The disk becomes full, whatever is being written.
	filler := filepath.Join(server.dir, "filler")
	fill(t, filler)
	for deadline := time.Now().Add(2 * time.Minute); !strings.Contains(f.log(), "has no room left"); {
		if time.Now().After(deadline) {
			t.Fatalf("it does not tell of the full disk: %s", f.log())
		}
		s.run(5)
	}
	s.run(50)
	// It is killed meanwhile, goes on, and still there is no room.
	f.stop(syscall.SIGKILL)
	if once := follow(t, env, append(to, "--once")...); once.wait() != 2 || !strings.Contains(once.log(), "has no room left") {
		t.Errorf("on a full disk --once ends with %s", once.log())
	}
	// What was there before is still there.
	for range 3 {
		want := s.facts[begin+s.random.IntN(150)]
		check(t, env, want, atRevision(want.revision), place...)
	}
	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}
	f = follow(t, env, to...)
	s.run(harness.Number(t, "REVISIONS", 1_000))
	awaitArchived(t, s, env, place...)
	if code := f.stop(syscall.SIGTERM); code != 0 {
		t.Errorf("it ends with %d: %s", code, f.log())
	}
	found := statusOf(t, env, place...)
	t.Logf("%+v", found)
	if len(found.Gaps) > 0 || len(found.Bases) != 1 {
		t.Fatalf("%+v: %s", found, f.log())
	}
	check(t, env, s.last(), nil, place...)
	for range harness.Number(t, "REVISIONS", 1_000) {
		want := s.facts[begin+s.random.IntN(len(s.facts)-begin)]
		check(t, env, want, atRevision(want.revision), place...)
	}
	// A second base, and nothing older.
	if result := cairn(t, env, append(append([]string{"backup"}, to...), "--once", "--base-every", "1ms")...); result.Code != 0 {
		t.Fatalf("%+v", result)
	}
	if result := cairn(t, env, append([]string{"backup", "prune", "--keep", "1ms"}, place...)...); result.Code != 0 {
		t.Fatalf("%+v", result)
	}
	if found := statusOf(t, env, place...); len(found.Bases) != 1 || found.FirstRevision != s.last().revision {
		t.Errorf("%+v", found)
	}
	check(t, env, s.last(), nil, place...)
	file := filepath.Join(t.TempDir(), "none.db")
	result := cairn(t, env, append(append([]string{"restore", "--to-snapshot", file}, atRevision(s.facts[begin].revision)...), place...)...)
	if result.Code == 0 || !strings.Contains(result.Stderr, "it begins with entry") {
		t.Errorf("what was pruned: %+v", result)
	}
}

func keys(id, secret string) []string {
	return []string{"AWS_ACCESS_KEY_ID=" + id, "AWS_SECRET_ACCESS_KEY=" + secret, "AWS_REGION=us-east-1"}
}

// s3 is a versitygw on a file system of its own.
type s3 struct {
	dir, iam string
	port     int
	process  *exec.Cmd
	path     string
	mutex    sync.Mutex
	text     strings.Builder
}

func (s *s3) Write(part []byte) (int, error) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	return s.text.Write(part)
}

func (s *s3) url() string { return fmt.Sprintf("http://127.0.0.1:%d", s.port) }

func startS3(t *testing.T) *s3 {
	t.Helper()
	image, dir := filepath.Join(t.TempDir(), "disk"), t.TempDir()
	if err := os.WriteFile(image, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(image, diskBytes); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"mkfs.ext4", "-q", "-m", "0", image}, {"mount", "-o", "loop", image, dir}} {
		if output, err := exec.Command(args[0], args[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("%v: %v: %s", args, err, output)
		}
	}
	server := &s3{dir: dir, iam: t.TempDir(), port: harness.Port(t), path: harness.Tool(t, "versitygw")}
	t.Cleanup(func() {
		server.kill()
		if output, err := exec.Command("umount", dir).CombinedOutput(); err != nil {
			t.Errorf("umount: %v: %s", err, output)
		}
	})
	if err := os.Mkdir(filepath.Join(dir, "bucket"), 0o700); err != nil {
		t.Fatal(err)
	}
	server.run(t)
	return server
}

// run starts it, and waits until it answers.
func (s *s3) run(t *testing.T) {
	t.Helper()
	s.process = exec.Command(s.path, "--port", fmt.Sprintf("127.0.0.1:%d", s.port), "--access", "root", "--secret", "secret",
		"--region", "us-east-1", "--iam-dir", s.iam, "--health", "/health", "posix", s.dir)
	s.process.Stdout, s.process.Stderr = s, s
	s.process.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := s.process.Start(); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(50 * time.Millisecond) {
		if answer, err := http.Get(s.url() + "/health"); err == nil {
			answer.Body.Close()
			return
		}
		if time.Now().After(deadline) {
			s.mutex.Lock()
			defer s.mutex.Unlock()
			t.Fatalf("the S3 server does not answer: %s", s.text.String())
		}
	}
}

func (s *s3) kill() {
	s.process.Process.Kill()
	s.process.Wait()
}

// objects are the files of the bucket.
func (s *s3) objects(t *testing.T) (files []string) {
	t.Helper()
	err := filepath.Walk(filepath.Join(s.dir, "bucket"), func(path string, info os.FileInfo, err error) error {
		if err == nil && !info.IsDir() {
			files = append(files, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// fill leaves no room on a file system.
func fill(t *testing.T, path string) {
	t.Helper()
	file, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	for size := 1 << 20; size > 0; size /= 2 {
		for err = nil; err == nil; {
			_, err = file.Write(make([]byte, size))
		}
	}
	if err := file.Sync(); err != nil {
		t.Logf("sync of the filler: %v", err)
	}
}

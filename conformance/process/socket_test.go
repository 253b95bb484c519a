package process

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"go.uber.org/zap"

	clientv3 "go.etcd.io/etcd/client/v3"

	"cairn.dev/conformance/harness"
)

// The command line of Kubernetes' integration tests: clients come through a
// socket inside the data directory, which they may dial as soon as it is there,
// the kernel gives the peers' port, and the address that is advertised is
// nobody's.
func TestKubernetesCommandLine(t *testing.T) {
	for _, kind := range []harness.Kind{harness.Etcd, harness.Subject()} {
		t.Run(fmt.Sprint(kind), func(t *testing.T) {
			// The path of a socket is at most 107 bytes long.
			dir, err := os.MkdirTemp("", "socket")
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { os.RemoveAll(dir) })
			socket := filepath.Join(dir, "etcd.sock")
			server := exec.Command(harness.Binary(t, kind),
				"--data-dir", dir,
				"--listen-client-urls", "unix://"+socket,
				"--advertise-client-urls", "http://127.0.0.111:0",
				"--listen-peer-urls", "http://127.0.0.1:0",
				"-log-level", "warn",
				"--quota-backend-bytes", "8589934592",
				"--watch-progress-notify-interval", "1s")
			server.Stderr = os.Stderr
			server.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
			if err := server.Start(); err != nil {
				t.Fatal(err)
			}
			ended := make(chan struct{})
			go func() {
				server.Wait()
				close(ended)
			}()
			t.Cleanup(func() {
				server.Process.Kill()
				<-ended
			})
			ctx := harness.Context(t)
			for {
				connection, err := net.Dial("unix", socket)
				if err == nil {
					connection.Close()
					break
				}
				select {
				case <-ended:
					t.Fatal("it ended")
				case <-ctx.Done():
					t.Fatal(err)
				case <-time.After(20 * time.Millisecond):
				}
			}
			client, err := clientv3.New(clientv3.Config{Endpoints: []string{"unix://" + socket}, Logger: zap.NewNop()})
			if err != nil {
				t.Fatal(err)
			}
			defer client.Close()
			put, err := client.Put(ctx, "a", "b")
			if err != nil {
				t.Fatal(err)
			}
			watch := client.Watch(ctx, "a", clientv3.WithRev(put.Header.Revision), clientv3.WithProgressNotify())
			if answer := <-watch; len(answer.Events) != 1 || answer.Err() != nil {
				t.Fatalf("%+v instead of one event", answer)
			}
			if answer := <-watch; !answer.IsProgressNotify() || answer.Header.Revision != put.Header.Revision {
				t.Errorf("%+v instead of a progress notification", answer)
			}
			// The tests kill it after five seconds, which etcd needs while a client watches.
			server.Process.Signal(syscall.SIGTERM)
			select {
			case <-ended:
			case <-ctx.Done():
				t.Error("it does not end on SIGTERM while a client watches")
			}
		})
	}
}

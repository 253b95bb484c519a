package auth

import (
	"context"
	"fmt"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"cairn.dev/conformance/harness"
)

// Passwords are hashed and logins let in while all processors are busy with
// something else: bcrypt takes what others leave, and a little more.
func TestLoginsOnBusyProcessors(t *testing.T) {
	server := harness.Start(t, harness.Cairn)
	var over atomic.Bool
	defer over.Store(true)
	for range runtime.NumCPU() {
		go func() {
			for !over.Load() {
			}
		}()
	}
	// The time that etcdctl gives a command.
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	client := server.Client()
	if _, err := client.UserAdd(ctx, "root", "secret"); err != nil {
		t.Fatal(err)
	}
	server.MustCtl("user", "grant-role", "root", "root")
	server.MustCtl("auth", "enable")
	for i := range 3 {
		began := time.Now()
		server.MustCtl("--user=root:secret", "put", fmt.Sprint("key", i), "value")
		t.Logf("login and put after %v", time.Since(began))
	}
}

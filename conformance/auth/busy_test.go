package auth

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"cairn.dev/conformance/harness"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
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
	const commandMax = 5 * time.Second
	client := server.Client()
	harness.Attempt(t, func() error {
		ctx, cancel := context.WithTimeout(context.Background(), commandMax)
		defer cancel()
		_, err := client.UserAdd(ctx, "root", "secret")
		if errors.Is(err, rpctypes.ErrUserAlreadyExist) {
			// The attempt before was made, but late.
			_, err = client.UserChangePassword(ctx, "root", "secret")
		}
		return err
	})
	server.MustCtl("user", "grant-role", "root", "root")
	server.MustCtl("auth", "enable")
	for i := range 3 {
		harness.Attempt(t, func() error {
			began := time.Now()
			result := server.Ctl("--command-timeout="+commandMax.String(), "--user=root:secret", "put", fmt.Sprint("key", i), "value")
			if result.Code != 0 {
				return errors.New(result.Stderr)
			}
			t.Logf("login and put after %v", time.Since(began))
			return nil
		})
	}
}

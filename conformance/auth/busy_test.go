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
	// The time that etcdctl gives a command; more where others have the processors, too.
	const commandMax, waitMax = 5 * time.Second, time.Minute
	lateness := harness.WatchLateness(t)
	inTime := func(began time.Time) error {
		if took, late := time.Since(began), lateness.Take(); took > commandMax+late {
			return fmt.Errorf("it took %v on a machine that is %v late", took, late)
		}
		return nil
	}
	client := server.Client()
	harness.Attempt(t, func() error {
		ctx, cancel := context.WithTimeout(context.Background(), waitMax)
		defer cancel()
		lateness.Take()
		began := time.Now()
		_, err := client.UserAdd(ctx, "root", "secret")
		if errors.Is(err, rpctypes.ErrUserAlreadyExist) {
			// The attempt before was made, but late.
			_, err = client.UserChangePassword(ctx, "root", "secret")
		}
		if err != nil {
			return err
		}
		return inTime(began)
	})
	server.MustCtl("user", "grant-role", "root", "root")
	server.MustCtl("auth", "enable")
	for i := range 3 {
		harness.Attempt(t, func() error {
			lateness.Take()
			began := time.Now()
			result := server.Ctl("--command-timeout=50s", "--user=root:secret", "put", fmt.Sprint("key", i), "value")
			if result.Code != 0 {
				return errors.New(result.Stderr)
			}
			t.Logf("login and put after %v", time.Since(began))
			return inTime(began)
		})
	}
}

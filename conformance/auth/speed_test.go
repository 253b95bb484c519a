package auth

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"cairn.dev/conformance/harness"
	"go.etcd.io/etcd/api/v3/authpb"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
)

// tick is what /proc counts processor time in.
const tick = 10 * time.Millisecond

// processor is the time that a process has taken of the processors.
func processor(t *testing.T, pid int) time.Duration {
	t.Helper()
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		t.Fatal(err)
	}
	fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
	var ticks int
	for _, field := range fields[11:13] {
		count, err := strconv.Atoi(field)
		if err != nil {
			t.Fatal(err)
		}
		ticks += count
	}
	return time.Duration(ticks) * tick
}

// load makes calls from many goroutines and returns what one of them took, of
// the server's processor time and of ours.
func load(t *testing.T, server *harness.Server, conns []*grpc.ClientConn, calls int, call func(conn *grpc.ClientConn, number int) error) (cost, took time.Duration) {
	t.Helper()
	var next, failed atomic.Int64
	before, began := processor(t, server.Pid()), time.Now()
	var group sync.WaitGroup
	for at := range 128 {
		group.Go(func() {
			for {
				number := int(next.Add(1))
				if number > calls {
					return
				}
				if err := call(conns[at%len(conns)], number); err != nil && failed.Add(1) == 1 {
					t.Errorf("call %d: %v", number, err)
				}
			}
		})
	}
	group.Wait()
	return (processor(t, server.Pid()) - before) / time.Duration(calls), time.Since(began) / time.Duration(calls)
}

// What users and permissions cost, in processor time of the server: run with
// AUTH_SPEED=1 (make auth-speed), on a machine that does little else for the
// rates to mean something. Reads may cost 15 % more than without, and a
// repeated credential at most 20 microseconds.
func TestSpeed(t *testing.T) {
	if os.Getenv("AUTH_SPEED") == "" {
		t.Skip("a measurement: set AUTH_SPEED=1")
	}
	const users, rangesEach, reads, logins = 100, 1000, 200_000, 100_000
	server := harness.Start(t, harness.Subject(), "--bcrypt-cost=10")
	s := &side{server: server, conn: server.Conn(), tokens: map[string]string{}}
	var conns []*grpc.ClientConn
	for range 8 {
		conns = append(conns, server.Conn())
	}
	name := func(user, number int) []byte {
		return fmt.Appendf(nil, "/registry/pods/team-%03d/%06d", user, 2*number)
	}
	for user := range users {
		role, who := fmt.Sprintf("role-%d", user), fmt.Sprintf("user-%d", user)
		s.must(t, nobody, &pb.AuthRoleAddRequest{Name: role})
		s.must(t, nobody, &pb.AuthUserAddRequest{Name: who, Options: &authpb.UserAddOptions{NoPassword: user > 2}, Password: "pw"})
		s.must(t, nobody, &pb.AuthUserGrantRoleRequest{User: who, Role: role})
		s.must(t, nobody, &pb.PutRequest{Key: name(user, 7), Value: make([]byte, 256)})
		for number := range rangesEach {
			key := name(user, number)
			s.must(t, nobody, &pb.AuthRoleGrantPermissionRequest{Name: role, Perm: &authpb.Permission{PermType: authpb.READWRITE, Key: key, RangeEnd: append(slices.Clone(key), 0)}})
		}
	}
	s.must(t, nobody, &pb.AuthUserAddRequest{Name: "root", Password: "pw"})
	s.must(t, nobody, &pb.AuthUserGrantRoleRequest{User: "root", Role: "root"})
	var contexts [3]context.Context
	read := func(conn *grpc.ClientConn, number int) error {
		user := number % 3
		_, err := pb.NewKVClient(conn).Range(contexts[user], &pb.RangeRequest{Key: name(user, 7)})
		return err
	}
	measure := func() time.Duration {
		var best time.Duration
		for range 3 {
			if cost, _ := load(t, server, conns, reads, read); best == 0 || cost < best {
				best = cost
			}
		}
		return best
	}
	// A token that means nothing yet: the requests are the same.
	for user := range contexts {
		contexts[user] = metadata.AppendToOutgoingContext(t.Context(), "token", "AAAAAAAAAAAAAAAA.12345")
	}
	without := measure()
	s.must(t, nobody, &pb.AuthEnableRequest{})
	for user := range contexts {
		who := fmt.Sprintf("user-%d", user)
		s.login(t, who, "pw")
		contexts[user] = metadata.AppendToOutgoingContext(t.Context(), "token", s.tokens[who])
	}
	with := measure()
	t.Logf("a read: %v without, %v with users (%+.1f %%)", without, with, 100*(float64(with)/float64(without)-1))
	cost, took := load(t, server, conns, logins, func(conn *grpc.ClientConn, _ int) error {
		_, err := pb.NewAuthClient(conn).Authenticate(t.Context(), &pb.AuthenticateRequest{Name: "user-1", Password: "pw"})
		return err
	})
	t.Logf("a repeated login: %v of the server's processor time, %.0f a second with the client on the same machine", cost, 1/took.Seconds())
	if harness.Subject() == harness.Cairn && cost > 20*time.Microsecond {
		t.Errorf("a repeated login costs %v", cost)
	}
	if harness.Subject() == harness.Cairn && float64(with) > 1.15*float64(without) {
		t.Errorf("a read costs %v with users, %v without", with, without)
	}
}

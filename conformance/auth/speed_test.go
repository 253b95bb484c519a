package auth

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
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
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// loaded is what cairn-bench tells of a load. It verifies every answer.
type loaded struct {
	Succeeded uint64   `json:"succeeded"`
	Rate      float64  `json:"rate"`
	Tokens    []string `json:"tokens"`
	ServerCPU float64  `json:"server_cpu_us"`
	ClientCPU float64  `json:"client_cpu_us"`
	Latency   struct {
		P50 float64 `json:"p50"`
		P99 float64 `json:"p99"`
	} `json:"latency_us"`
}

// load runs cairn-bench against servers: a client that costs so much less than
// they do that they are what is measured.
func load(t *testing.T, servers []*harness.Server, arguments ...string) loaded {
	t.Helper()
	var endpoints, pids []string
	for _, server := range servers {
		endpoints = append(endpoints, server.Endpoint())
		pids = append(pids, strconv.Itoa(server.Pid()))
	}
	arguments = append(arguments, "--endpoints", strings.Join(endpoints, ","), "--pids", strings.Join(pids, ","))
	command := exec.Command(os.Getenv("CAIRN_BENCH"), arguments...)
	var stderr bytes.Buffer
	command.Stderr = &stderr
	output, err := command.Output()
	var found loaded
	if err == nil {
		err = json.Unmarshal(output, &found)
	}
	if err != nil {
		t.Fatalf("cairn-bench %s: %v\n%s%s", arguments, err, output, stderr.Bytes())
	}
	return found
}

// What users and permissions cost: run with AUTH_SPEED=1 and cairn-bench in
// CAIRN_BENCH (make auth-speed), on a machine that does little else.
func TestSpeed(t *testing.T) {
	if os.Getenv("AUTH_SPEED") == "" {
		t.Skip("a measurement: set AUTH_SPEED=1")
	}
	t.Run("reads", readSpeed)
	t.Run("logins", loginSpeed)
	t.Run("wrong passwords", guessSpeed)
}

// best is the lowest of a few.
func best(of func() float64) float64 {
	return slices.Min([]float64{of(), of(), of()})
}

// A read by one of many users with many permissions each may cost 15 % more of
// the server's processor time than without users, and a repeated login at most
// 20 microseconds.
func readSpeed(t *testing.T) {
	const users, rangesEach = 100, 1000
	server := harness.Start(t, harness.Subject(), "--bcrypt-cost=10")
	servers := []*harness.Server{server}
	s := &side{server: server, conn: server.Conn(), tokens: map[string]string{}}
	name := func(user, number int) []byte {
		return fmt.Appendf(nil, "/registry/pods/team-%03d/%06d", user, 2*number)
	}
	for user := range users {
		role, who := fmt.Sprintf("role-%d", user), fmt.Sprintf("user-%d", user)
		s.must(t, nobody, &pb.AuthRoleAddRequest{Name: role})
		s.must(t, nobody, &pb.AuthUserAddRequest{Name: who, Options: &authpb.UserAddOptions{NoPassword: user > 2}, Password: "pw"})
		s.must(t, nobody, &pb.AuthUserGrantRoleRequest{User: who, Role: role})
		for number := range rangesEach {
			key := name(user, number)
			s.must(t, nobody, &pb.AuthRoleGrantPermissionRequest{Name: role, Perm: &authpb.Permission{PermType: authpb.READWRITE, Key: key, RangeEnd: append(slices.Clone(key), 0)}})
		}
	}
	s.must(t, nobody, &pb.AuthUserAddRequest{Name: "root", Password: "pw"})
	s.must(t, nobody, &pb.AuthUserGrantRoleRequest{User: "root", Role: "root"})
	for user := range 3 {
		load(t, servers, "put", "--key", string(name(user, 7)), "--requests", "1")
	}
	read := func(tokens [3]string) float64 {
		return best(func() float64 {
			var cost float64
			for user, token := range tokens {
				cost += load(t, servers, "range", "--key", string(name(user, 7)), "--connections", "8", "--streams", "16",
					"--requests", "300000", "--token", token).ServerCPU
			}
			return cost / float64(len(tokens))
		})
	}
	// A token that means nothing yet: the requests are the same.
	const early = "AAAAAAAAAAAAAAAA.12345"
	without := read([3]string{early, early, early})
	s.must(t, nobody, &pb.AuthEnableRequest{})
	var tokens [3]string
	for user := range tokens {
		who := fmt.Sprintf("user-%d", user)
		s.login(t, who, "pw")
		tokens[user] = s.tokens[who]
	}
	with := read(tokens)
	t.Logf("a read: %.2f us of the server's processor time without users, %.2f us with (%+.1f %%)", without, with, 100*(with/without-1))
	login := best(func() float64 {
		return load(t, servers, "authenticate", "--user", "user-1", "--password", "pw", "--connections", "8", "--streams", "16",
			"--requests", "100000").ServerCPU
	})
	t.Logf("a repeated login: %.2f us of the server's processor time", login)
	if harness.Subject() == harness.Cairn && login > 20 {
		t.Errorf("a repeated login costs %.2f us", login)
	}
	if harness.Subject() == harness.Cairn && with > 1.15*without {
		t.Errorf("a read costs %.2f us with users, %.2f us without", with, without)
	}
}

// A repeated credential gets 50,000 tokens a second of three members. Each is
// good at all of them, and there are only a few different ones.
func loginSpeed(t *testing.T) {
	cluster := harness.StartCluster(t, harness.Subject(), 3, nil, "--bcrypt-cost=10")
	var members []*side
	for _, member := range cluster.Members {
		members = append(members, &side{server: member, conn: member.Conn(), tokens: map[string]string{}})
	}
	members[0].addUsers(t)
	login := func(requests string) loaded {
		return load(t, cluster.Members, "authenticate", "--user", "ann", "--password", "ann-pw", "--connections", "12", "--streams", "64",
			"--requests", requests)
	}
	// Each member looks at the password once.
	login("300")
	found := login("500000")
	t.Logf("a repeated login at three members: %.0f a second, p99 %.2f ms, %.2f us of their processor time and %.2f us of the client's, %d tokens",
		found.Rate, found.Latency.P99/1000, found.ServerCPU, found.ClientCPU, len(found.Tokens))
	const tokensMax = 10
	if len(found.Tokens) == 0 || len(found.Tokens) > tokensMax {
		t.Errorf("%d different tokens", len(found.Tokens))
	}
	for _, token := range found.Tokens {
		for at, member := range members {
			member.tokens["ann"] = token
			if _, err := member.ask(t, "ann", &pb.RangeRequest{Key: key("b"), Serializable: true}); err != nil {
				t.Errorf("member %d does not take a token: %v", at, err)
			}
		}
	}
	if harness.Subject() == harness.Cairn && found.Rate < 50_000 {
		t.Errorf("%.0f repeated logins a second", found.Rate)
	}
}

// Ten wrong passwords a second, each of which costs a bcrypt, do not raise the
// p99 of reads at 30 % load by more than 20 %.
func guessSpeed(t *testing.T) {
	const guesses, rounds = 10, 5
	server := harness.Start(t, harness.Subject(), "--bcrypt-cost=10")
	servers := []*harness.Server{server}
	s := &side{server: server, conn: server.Conn(), tokens: map[string]string{}}
	load(t, servers, "put", "--requests", "1")
	for number := range 2 * guesses {
		s.must(t, nobody, &pb.AuthUserAddRequest{Name: fmt.Sprintf("user-%d", number), Password: "pw"})
	}
	s.must(t, nobody, &pb.AuthUserAddRequest{Name: "root", Password: "pw"})
	s.must(t, nobody, &pb.AuthUserGrantRoleRequest{User: "root", Role: "root"})
	s.must(t, nobody, &pb.AuthEnableRequest{})
	s.login(t, "root", "pw")
	read := func(more ...string) loaded {
		return load(t, servers, append([]string{"range", "--token", s.tokens["root"], "--connections", "8", "--streams", "16"}, more...)...)
	}
	most := read("--seconds", "3").Rate
	p99 := func() float64 {
		return read("--seconds", "5", "--rate", fmt.Sprintf("%.0f", 0.3*most)).Latency.P99
	}
	var without, with []float64
	var sent, tried int
	for range rounds {
		without = append(without, p99())
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan [2]int)
		go func() { done <- s.guess(ctx, t, guesses) }()
		with = append(with, p99())
		stop()
		counts := <-done
		sent, tried = sent+counts[0], tried+counts[1]
	}
	slices.Sort(without)
	slices.Sort(with)
	before, after := without[rounds/2], with[rounds/2]
	t.Logf("p99 of reads at %.0f a second: %.0f us, %.0f us beside %d wrong passwords a second (%+.1f %%; %d sent, %d looked at, runs %.0f and %.0f)",
		0.3*most, before, after, guesses, 100*(after/before-1), sent, tried, without, with)
	// Five seconds in each round. How many are looked at in them is for the processors to say: bcrypt has what others leave.
	if sent < rounds*guesses*4 || tried == 0 {
		t.Errorf("%d wrong passwords were sent, %d looked at", sent, tried)
	}
	if harness.Subject() == harness.Cairn && after > 1.2*before {
		t.Errorf("wrong passwords raise the p99 from %.0f to %.0f us", before, after)
	}
}

// guess sends so many wrong passwords a second, whatever becomes of those
// before, of one user after the other: a user's are slowed down after ten. It
// counts them, and those that were looked at.
func (s *side) guess(ctx context.Context, t *testing.T, each int) [2]int {
	var tried atomic.Int64
	var group sync.WaitGroup
	ticker := time.NewTicker(time.Second / time.Duration(each))
	defer ticker.Stop()
	for number := 0; ; number++ {
		select {
		case <-ctx.Done():
			group.Wait()
			return [2]int{number, int(tried.Load())}
		case <-ticker.C:
		}
		request := &pb.AuthenticateRequest{Name: fmt.Sprintf("user-%d", number%(2*each)), Password: fmt.Sprintf("wrong-%d", number)}
		group.Go(func() {
			_, err := pb.NewAuthClient(s.conn).Authenticate(ctx, request)
			switch {
			case ctx.Err() != nil:
			case status.Code(err) == codes.InvalidArgument && strings.Contains(err.Error(), "authentication failed"):
				tried.Add(1)
			default:
				t.Errorf("a wrong password: %v", err)
			}
		})
	}
}

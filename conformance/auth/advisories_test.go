package auth

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"cairn.dev/conformance/harness"
	"go.etcd.io/etcd/api/v3/authpb"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
)

// startWithUsers is a server with a user `ann` who may read and write [b, c).
func startWithUsers(t *testing.T, flags ...string) *side {
	t.Helper()
	server := harness.Start(t, harness.Subject(), append([]string{"--bcrypt-cost=4"}, flags...)...)
	s := &side{server: server, conn: server.Conn(), tokens: map[string]string{}}
	s.addUsers(t)
	return s
}

func (s *side) addUsers(t *testing.T) {
	t.Helper()
	for _, request := range []proto.Message{
		&pb.AuthUserAddRequest{Name: "root", Password: "root-pw"}, &pb.AuthUserGrantRoleRequest{User: "root", Role: "root"},
		&pb.AuthRoleAddRequest{Name: "r"}, grant("r", authpb.READWRITE, "b", "c"),
		&pb.AuthUserAddRequest{Name: "ann", Password: "ann-pw"}, &pb.AuthUserGrantRoleRequest{User: "ann", Role: "r"},
		&pb.PutRequest{Key: key("a"), Value: key("secret")}, &pb.PutRequest{Key: key("b"), Value: key("own")},
		&pb.AuthEnableRequest{},
	} {
		s.must(t, nobody, request)
	}
	s.login(t, "root", "root-pw")
	s.login(t, "ann", "ann-pw")
}

func (s *side) must(t *testing.T, user string, request proto.Message) proto.Message {
	t.Helper()
	answer, err := s.ask(t, user, request)
	if err != nil {
		t.Fatalf("%v as %q: %v", request, user, err)
	}
	return answer
}

func (s *side) login(t *testing.T, user, password string) {
	t.Helper()
	s.tokens[user] = s.must(t, nobody, &pb.AuthenticateRequest{Name: user, Password: password}).(*pb.AuthenticateResponse).Token
}

func (s *side) refused(t *testing.T, user string, code codes.Code, requests ...proto.Message) {
	t.Helper()
	for _, request := range requests {
		if answer, err := s.ask(t, user, request); status.Code(err) != code {
			t.Errorf("%v as %q is answered %v, %v; want %v", request, user, answer, err, code)
		}
	}
}

// CVE-2026-33413 and CVE-2026-33343: what is nested in a transaction was not
// looked at, nor what a put there does to a lease.
func TestNestedTransactions(t *testing.T) {
	s := startWithUsers(t)
	s.must(t, "root", &pb.LeaseGrantRequest{ID: 7, TTL: 1000})
	s.must(t, "root", &pb.PutRequest{Key: key("a"), Value: key("secret"), Lease: 7})
	a := key("a")
	forbidden := []*pb.RequestOp{
		rangeOp("a", ""), rangeOp("b", "\x00"), rangeOp("\x00", "\x00"), putOp(&pb.PutRequest{Key: a, Value: a}),
		putOp(&pb.PutRequest{Key: key("b"), Lease: 7}), deleteOp(&pb.DeleteRangeRequest{Key: a}),
		deleteOp(&pb.DeleteRangeRequest{Key: a, RangeEnd: key("c"), PrevKv: true}),
	}
	nest := func(txn *pb.TxnRequest, depth int, branch bool) *pb.TxnRequest {
		for range depth {
			around := &pb.TxnRequest{}
			if branch {
				around.Success = ops(rangeOp("b", ""), txnOp(txn))
			} else {
				around.Failure = ops(txnOp(txn))
			}
			txn = around
		}
		return txn
	}
	for _, op := range forbidden {
		for depth := range 4 {
			for _, branch := range []bool{true, false} {
				s.refused(t, "ann", codes.PermissionDenied,
					nest(&pb.TxnRequest{Success: ops(op)}, depth, branch), nest(&pb.TxnRequest{Failure: ops(op)}, depth, branch))
			}
		}
	}
	for depth := range 4 {
		compare := &pb.TxnRequest{Compare: []*pb.Compare{{Key: a, Target: pb.Compare_VALUE, TargetUnion: &pb.Compare_Value{Value: a}}}}
		s.refused(t, "ann", codes.PermissionDenied, nest(compare, depth, true), nest(compare, depth, false))
	}
	s.must(t, "ann", nest(&pb.TxnRequest{Success: ops(putOp(&pb.PutRequest{Key: key("b"), PrevKv: true}))}, 3, true))
	kept := s.must(t, "root", &pb.RangeRequest{Key: a}).(*pb.RangeResponse)
	if len(kept.Kvs) != 1 || string(kept.Kvs[0].Value) != "secret" || kept.Kvs[0].Lease != 7 {
		t.Errorf("the key has become %v", kept.Kvs)
	}
}

// GHSA-xg4h-6gfc-h4m8: a watch of an open range told of keys beyond the
// permission.
func TestWatchRanges(t *testing.T) {
	s := startWithUsers(t)
	for _, r := range [][2]string{{"a", ""}, {"b", "\x00"}, {"b", "d"}, {"", ""}, {"", "\x00"}, {"\x00", "\x00"}, {"a", "c"}, {"c", ""}, {"bz", "ca"}} {
		answer := s.must(t, "ann", watch(r[0], r[1])).(*pb.WatchResponse)
		if !answer.Canceled || !strings.HasSuffix(answer.CancelReason, "permission denied") {
			t.Errorf("a watch of %q: %v", r, answer)
		}
	}
	for _, r := range [][2]string{{"b", ""}, {"b", "c"}, {"ba", "bz"}} {
		if answer := s.must(t, "ann", watch(r[0], r[1])).(*pb.WatchResponse); answer.Canceled {
			t.Errorf("a watch of %q: %v", r, answer)
		}
	}
}

// CVE-2021-28235: a password could be read in debug output and sent again.
func TestPasswordsStayNowhere(t *testing.T) {
	s := startWithUsers(t, "--log-level=debug", "--snapshot-count=10")
	// Letters that nothing else has.
	first, second, wrong := "qZ8xFirstPassword", "qZ8xSecondPassword", "qZ8xWrongPassword"
	s.must(t, "root", &pb.AuthUserAddRequest{Name: "bob", Password: first})
	s.login(t, "bob", first)
	s.must(t, "root", &pb.AuthUserChangePasswordRequest{Name: "bob", Password: second})
	s.login(t, "bob", second)
	s.refused(t, nobody, codes.InvalidArgument, &pb.AuthenticateRequest{Name: "bob", Password: wrong}, &pb.AuthenticateRequest{Name: "bob", Password: first})
	for range 30 {
		s.must(t, "root", &pb.PutRequest{Key: key("b"), Value: key("x")})
	}
	tokens := []string{s.tokens["bob"], s.tokens["root"]}
	s.server.Stop()
	secrets := [][]byte{[]byte(first), []byte(second), []byte(wrong)}
	look := func(name string, content []byte) {
		for _, secret := range secrets {
			if bytes.Contains(content, secret) {
				t.Errorf("%s holds %s", name, secret)
			}
		}
	}
	log := s.server.Log()
	look("the log", []byte(log))
	for _, token := range tokens {
		if strings.Contains(log, token) {
			t.Errorf("the log holds the token %s", token)
		}
	}
	files := 0
	err := filepath.WalkDir(s.server.DataDir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		content, err := os.ReadFile(path)
		look(path, content)
		files++
		return err
	})
	if err != nil || files == 0 {
		t.Errorf("%d files were looked at: %v", files, err)
	}
}

// Nobody without a right learns that a key exists: the answers are the same
// for keys that are there and keys that are not.
func TestNothingIsLearned(t *testing.T) {
	s := startWithUsers(t)
	s.must(t, "root", &pb.LeaseGrantRequest{ID: 7, TTL: 1000})
	s.must(t, "root", &pb.PutRequest{Key: key("a"), Value: key("secret"), Lease: 7})
	for _, user := range []string{nobody, "ann"} {
		code := codes.PermissionDenied
		if user == nobody {
			code = codes.InvalidArgument
		}
		for _, name := range []string{"a", "aa"} {
			s.refused(t, user, code,
				&pb.RangeRequest{Key: key(name)}, &pb.RangeRequest{Key: key(name), Serializable: true}, &pb.RangeRequest{Key: key(name), Revision: 1 << 40},
				&pb.PutRequest{Key: key(name), IgnoreValue: true}, &pb.PutRequest{Key: key(name), IgnoreLease: true},
				&pb.PutRequest{Key: key(name), Lease: 99}, &pb.PutRequest{Key: key(name), Value: key("v"), PrevKv: true},
				&pb.DeleteRangeRequest{Key: key(name)}, &pb.DeleteRangeRequest{Key: key(name), PrevKv: true},
				&pb.TxnRequest{Compare: []*pb.Compare{{Key: key(name), Target: pb.Compare_VERSION}}},
				&pb.TxnRequest{Success: ops(putOp(&pb.PutRequest{Key: key(name), IgnoreValue: true}))})
		}
		s.refused(t, user, code, &pb.LeaseTimeToLiveRequest{ID: 7, Keys: true}, &pb.LeaseLeasesRequest{}, &pb.LeaseRevokeRequest{ID: 7}, &pb.LeaseKeepAliveRequest{ID: 7},
			&pb.HashKVRequest{}, &pb.HashRequest{}, &pb.SnapshotRequest{}, &pb.CompactionRequest{Revision: 1})
	}
}

// A token is worth nothing once its user is deleted, has another password, or
// nobody has to log in; nor is one with an absurd number.
func TestTokensEnd(t *testing.T) {
	if harness.Subject() == harness.Etcd {
		t.Skip("the genuine server waits for any number until the call's time is over")
	}
	s := startWithUsers(t, "--auth-token-ttl=16")
	read := &pb.RangeRequest{Key: key("b")}
	s.must(t, "ann", read)
	for _, token := range []string{"", "x", ".", "AAAAAAAAAAAAAAAA.18446744073709551615", "AAAAAAAAAAAAAAAA.99999999999999999999999999", strings.Repeat("9", 8000)} {
		s.tokens["odd"] = token
		started := time.Now()
		s.refused(t, "odd", codes.Unauthenticated, read, &pb.RangeRequest{Key: key("b"), Serializable: true}, &pb.PutRequest{Key: key("b")})
		if took := time.Since(started); took > 40*time.Second {
			t.Errorf("the token %.40q is thought about for %v", token, took)
		}
	}
	s.login(t, "root", "root-pw")
	s.must(t, "root", &pb.AuthUserChangePasswordRequest{Name: "ann", Password: "other"})
	s.refused(t, "ann", codes.Unauthenticated, read)
	s.refused(t, nobody, codes.InvalidArgument, &pb.AuthenticateRequest{Name: "ann", Password: "ann-pw"})
	s.login(t, "ann", "other")
	s.must(t, "ann", read)
	for range 5 {
		// Use keeps it alive, for longer than that in all.
		time.Sleep(4 * time.Second)
		s.must(t, "ann", read)
		s.must(t, "root", read)
	}
	s.must(t, "root", &pb.AuthUserDeleteRequest{Name: "ann"})
	s.refused(t, "ann", codes.Unauthenticated, read)
	s.refused(t, nobody, codes.InvalidArgument, &pb.AuthenticateRequest{Name: "ann", Password: "other"})
	time.Sleep(17 * time.Second)
	s.refused(t, "root", codes.Unauthenticated, read)
	s.login(t, "root", "root-pw")
	old := s.tokens["root"]
	s.must(t, "root", &pb.AuthDisableRequest{})
	s.must(t, nobody, &pb.AuthEnableRequest{})
	s.refused(t, "root", codes.Unauthenticated, read)
	s.login(t, "root", "root-pw")
	if s.tokens["root"] == old {
		t.Error("the token from before is handed out again")
	}
	s.must(t, "root", read)
}

// Names that no backend file can hold are refused. The genuine server ends.
func TestLongNames(t *testing.T) {
	if harness.Subject() == harness.Etcd {
		t.Skip("the genuine server ends")
	}
	s := startWithUsers(t)
	long := strings.Repeat("n", 1<<20)
	s.refused(t, "root", codes.InvalidArgument, &pb.AuthUserAddRequest{Name: long, Password: "x"}, &pb.AuthRoleAddRequest{Name: long},
		&pb.AuthenticateRequest{Name: long, Password: "x"}, &pb.AuthUserAddRequest{Name: long, Options: &authpb.UserAddOptions{NoPassword: true}})
	s.refused(t, "root", codes.FailedPrecondition, &pb.AuthUserGetRequest{Name: long}, &pb.AuthRoleGetRequest{Role: long}, &pb.AuthUserDeleteRequest{Name: long})
}

// Wrong passwords are counted for user and address; the right one of another
// user is not held up.
func TestGuessing(t *testing.T) {
	if harness.Subject() == harness.Etcd {
		t.Skip("the genuine server lets anybody guess on")
	}
	s := startWithUsers(t)
	// Ten at once, and then one a second, however long the machine takes for them.
	const atOnce, heldMin, guessesMax = 10, 20, 400
	held, number, began := 0, 0, time.Now()
	for ; held < heldMin && number < guessesMax; number++ {
		_, err := s.ask(t, nobody, &pb.AuthenticateRequest{Name: "ann", Password: fmt.Sprint("x", number)})
		switch status.Code(err) {
		case codes.ResourceExhausted:
			held++
		case codes.InvalidArgument:
		default:
			t.Fatalf("a wrong password: %v", err)
		}
	}
	if took := time.Since(began); held < heldMin || number-held > atOnce+1+int(took/time.Second) {
		t.Errorf("of %d guesses in %v %d are held up", number, took, held)
	}
	s.login(t, "root", "root-pw")
	// Known already.
	s.login(t, "ann", "ann-pw")
}

package takeover

import (
	"crypto/tls"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"cairn.dev/conformance/harness"
	certificates "cairn.dev/conformance/tls"
)

// Certificates are checked as by the other commands, and a member that makes its
// own goes on with them: one is moved, and with ROUNDS three are, there and back.
func TestTLS(t *testing.T) {
	t.Parallel()
	s := secured(t, &tls.Config{InsecureSkipVerify: true}, "--auto-tls", "--peer-auto-tls")
	const skip = "--insecure-skip-tls-verify"
	checked := func(wanted string) {
		t.Helper()
		done := s.run(nil, skip, "--dry-run")
		if done.code != 0 || !strings.Contains(done.out, wanted) {
			t.Errorf("exit %d:\n%s", done.code, done.out)
		}
		s.unreachable("handshake failed")
	}
	checked("Nothing was changed")
	s.moveSecured(skip)
	checked("Nothing is to be moved")
}

// Members that let in nobody without a certificate, neither clients nor each other,
// are moved by those alone who have one.
func TestCertificates(t *testing.T) {
	t.Parallel()
	set := certificates.NewSet(t)
	s := secured(t, set.Client, set.MemberFlags()...)
	s.unreachable("received fatal alert: CertificateRequired", "--cacert="+set.Authority)
	s.moveSecured("--cacert="+set.Authority, "--cert="+set.Cert, "--key="+set.Key)
}

// secured is a stage of one member, or of three with ROUNDS, whose URLs are all
// of TLS.
func secured(t *testing.T, secrets *tls.Config, flags ...string) *stage {
	t.Helper()
	size := 1
	if harness.Number(t, "ROUNDS", 1) > 1 {
		size = 3
	}
	s := around(t, nil, harness.Etcd, certified(t, size, flags...), flags...)
	s.secrets = secrets
	return s
}

// unreachable runs the tool, which must be told why it is not let in.
func (s *stage) unreachable(why string, args ...string) {
	s.t.Helper()
	done := s.run(nil, append(args, "--dry-run", "--command-timeout=1s", "--timeout=1s")...)
	if done.code != 2 || !strings.Contains(done.out, why) {
		s.t.Errorf("%v: exit %d without %q:\n%s", args, done.code, why, done.out)
	}
}

// moveSecured moves all to Cairn, and three to etcd and to Cairn again. All keep
// what they have.
func (s *stage) moveSecured(shown ...string) {
	s.t.Helper()
	if _, err := s.client(s.endpoints()...).Put(harness.Context(s.t), "key", "value"); err != nil {
		s.t.Fatal(err)
	}
	size := len(s.members())
	moved := func(to harness.Kind, args ...string) {
		s.t.Helper()
		s.move(append(args, shown...)...)
		s.only(to, size)
		for _, member := range s.members() {
			got, err := s.direct(member).Get(harness.Context(s.t), "key")
			if err != nil || len(got.Kvs) != 1 || string(got.Kvs[0].Value) != "value" {
				s.t.Errorf("%s of %s has %v, %v", member.Name, to, got, err)
			}
		}
	}
	moved(harness.Cairn)
	if size > 1 {
		moved(harness.Etcd, "--back")
		moved(harness.Cairn)
	}
}

// certified starts members of etcd whose URLs are all of TLS.
func certified(t *testing.T, size int, flags ...string) (members []*harness.Server) {
	t.Helper()
	var initial []string
	for number := range size {
		server := harness.Prepare(t, harness.Etcd, filepath.Join(t.TempDir(), "data"), flags...)
		server.Name, server.Secure = fmt.Sprintf("m%d", number), true
		members, initial = append(members, server), append(initial, server.Name+"="+server.PeerURL())
	}
	var starting sync.WaitGroup
	failures := make([]error, size)
	for number, server := range members {
		server.InitialCluster = strings.Join(initial, ",")
		starting.Go(func() { failures[number] = server.TryRun(startMax) })
	}
	starting.Wait()
	for _, err := range failures {
		if err != nil {
			t.Fatal(err)
		}
	}
	return members
}

package tls

import (
	"bytes"
	"fmt"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"cairn.dev/conformance/harness"
)

// A gRPC proxy speaks TLS to members that want a certificate, and to clients of
// which it wants one that is not revoked; a certificate with a name is refused
// for members.
func TestProxy(t *testing.T) {
	both(t, func(t *testing.T, kind harness.Kind) {
		inner, outer := newAuthority(t, "inner"), newAuthority(t, "outer")
		shown := inner.server("member")
		member := start(t, kind, "--cert-file="+shown.cert, "--key-file="+shown.key,
			"--client-cert-auth", "--trusted-ca-file="+inner.file)
		nameless, named := inner.issue("nameless", want{}), inner.client("named")
		front := outer.server("proxy")
		revoked := outer.client("revoked")
		list := outer.revoke("crl", revoked)
		address := fmt.Sprintf("127.0.0.1:%d", harness.Port(t))
		flags := func(pair pair) []string {
			return []string{
				"grpc-proxy", "start", "--listen-addr=" + address, "--endpoints=https://" + member.Endpoint(),
				"--advertise-client-url=", "--cacert=" + inner.file, "--cert=" + pair.cert, "--key=" + pair.key,
				"--cert-file=" + front.cert, "--key-file=" + front.key, "--trusted-ca-file=" + outer.file,
				"--client-crl-file=" + list,
			}
		}
		if kind == harness.Cairn {
			got := harness.Command{Path: harness.Binary(t, kind), Args: flags(named)}.Run(t)
			if got.Code != 1 || !strings.Contains(got.Stderr, "cert has non empty Common Name (named)") {
				t.Errorf("with a name: exit %d, %q", got.Code, got.Stderr)
			}
		}
		var log bytes.Buffer
		command := exec.Command(harness.Binary(t, kind), flags(nameless)...)
		command.Stdout, command.Stderr = &log, &log
		command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
		if err := command.Start(); err != nil {
			t.Fatal(err)
		}
		stop := func() {
			command.Process.Kill()
			command.Wait()
		}
		var err error
		for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
			if err = put("https://"+address, outer.trust(outer.client("somebody")), 10*time.Second); err == nil {
				break
			}
		}
		if err != nil {
			stop()
			t.Fatalf("%v\n%s", err, log.String())
		}
		defer stop()
		if err := put("https://"+address, outer.trust(), refusal); err == nil {
			t.Error("a client without a certificate is let in")
		}
		if err := put("https://"+address, outer.trust(inner.client("stranger")), refusal); err == nil {
			t.Error("a client of another authority is let in")
		}
		if err := put("https://"+address, outer.trust(revoked), refusal); err == nil {
			t.Error("a client whose certificate is revoked is let in")
		}
	})
}

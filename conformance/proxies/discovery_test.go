package proxies

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/net/dns/dnsmessage"

	"cairn.dev/conformance/harness"
)

// nameServer answers for `*.m.test`, which is this machine, and for the given
// SRV records; it returns a file for the place of /etc/resolv.conf.
func nameServer(t testing.TB, records map[string][]dnsmessage.SRVResource) string {
	t.Helper()
	address := fmt.Sprintf("127.%d.%d.%d", 1+rand.IntN(254), rand.IntN(255), 2+rand.IntN(250))
	conn, err := net.ListenPacket("udp", address+":53")
	if err != nil {
		harness.Unproved(t, "the port of name servers needs root: "+err.Error())
	}
	t.Cleanup(func() { conn.Close() })
	go func() {
		buffer := make([]byte, 4096)
		for {
			n, from, err := conn.ReadFrom(buffer)
			if errors.Is(err, net.ErrClosed) {
				return
			}
			var question dnsmessage.Message
			if err != nil || question.Unpack(buffer[:n]) != nil || len(question.Questions) != 1 {
				continue
			}
			asked := question.Questions[0]
			answer := dnsmessage.Message{Header: dnsmessage.Header{ID: question.ID, Response: true, RecursionAvailable: true}, Questions: question.Questions}
			header := dnsmessage.ResourceHeader{Name: asked.Name, Type: asked.Type, Class: asked.Class, TTL: 1}
			name := strings.ToLower(strings.TrimSuffix(asked.Name.String(), "."))
			switch {
			case strings.HasSuffix(name, ".m.test"):
				if asked.Type == dnsmessage.TypeA {
					answer.Answers = append(answer.Answers, dnsmessage.Resource{Header: header, Body: &dnsmessage.AResource{A: [4]byte{127, 0, 0, 1}}})
				}
			case records[name] != nil && asked.Type == dnsmessage.TypeSRV:
				for _, record := range records[name] {
					answer.Answers = append(answer.Answers, dnsmessage.Resource{Header: header, Body: &record})
				}
			default:
				answer.RCode = dnsmessage.RCodeNameError
			}
			if packed, err := answer.Pack(); err == nil {
				conn.WriteTo(packed, from)
			}
		}
	}()
	path := filepath.Join(t.TempDir(), "resolv.conf")
	if err := os.WriteFile(path, []byte("nameserver "+address+"\noptions timeout:10 attempts:3\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

// startWith starts a program in a place where this file is /etc/resolv.conf.
func startWith(t testing.TB, resolver, ready string, args ...string) *proxy {
	t.Helper()
	p := &proxy{address: fmt.Sprintf("127.0.0.1:%d", harness.Port(t)), logPath: filepath.Join(t.TempDir(), "log")}
	log, err := os.Create(p.logPath)
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	words := append([]string{"-m", "sh", "-c", `mount --bind "$0" /etc/resolv.conf && exec "$@"`, resolver, harness.Binary(t, harness.Subject())}, args...)
	command := exec.Command("unshare", append(words, "--listen-addr="+p.address)...)
	command.Dir, command.Stdout, command.Stderr = filepath.Dir(p.logPath), log, log
	command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	p.pid = command.Process.Pid
	ended := make(chan struct{})
	go func() {
		command.Wait()
		close(ended)
	}()
	t.Cleanup(func() {
		command.Process.Kill()
		<-ended
	})
	await(t, "it is not ready", func() bool {
		select {
		case <-ended:
			t.Fatalf("%q ended: %s", args, p.log(t))
		default:
		}
		return strings.Contains(p.log(t), ready)
	})
	return p
}

// Gateways and proxies find members by the SRV records of a domain: those of
// the lowest priority number that answer. Records of members without TLS count
// only where DNS is trusted, and --endpoints where no record counts.
func TestDiscovery(t *testing.T) {
	t.Parallel()
	if harness.Subject() == harness.Etcd {
		t.Skip("the genuine gateway goes to members of a higher number, too")
	}
	if os.Geteuid() != 0 {
		harness.Unproved(t, "another /etc/resolv.conf needs root")
	}
	ctx := harness.Context(t)
	first, second := harness.Start(t, harness.Subject()), harness.Start(t, harness.Subject())
	var ids []uint64
	for number, server := range []*harness.Server{first, second} {
		status, err := server.Client().Status(ctx, server.Endpoint())
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, status.Header.MemberId)
		mustPut(ctx, t, server.Client(), "who", []string{"first", "second"}[number])
	}
	record := func(name string, server *harness.Server, priority uint16) dnsmessage.SRVResource {
		return dnsmessage.SRVResource{Priority: priority, Port: uint16(server.ClientPort), Target: dnsmessage.MustNewName(name + ".m.test.")}
	}
	resolver := nameServer(t, map[string][]dnsmessage.SRVResource{
		"_etcd-client._tcp.plain.test":      {record("b", second, 20), record("a", first, 10)},
		"_etcd-client-blue._tcp.plain.test": {record("b", second, 10)},
	})
	gateway := func(flags ...string) *proxy {
		t.Helper()
		return startWith(t, resolver, "ready to proxy client requests", append([]string{"gateway", "start", "--discovery-srv=plain.test", "--retry-delay=1h"}, flags...)...)
	}
	leads := func(what string, p *proxy, want int) {
		t.Helper()
		for range 4 {
			if id, err := memberBehind(ctx, t, p); err != nil || id != ids[want] {
				t.Errorf("%s leads to %x, %v and not to %x", what, id, err, ids[want])
			}
		}
	}
	found := gateway("--insecure-discovery")
	leads("the lowest priority", found, 0)
	leads("a service with another name", gateway("--insecure-discovery", "--discovery-srv-name=blue"), 1)
	untrusted := gateway("--endpoints=" + second.Endpoint())
	leads("without a record that counts", untrusted, 1)
	if log := untrusted.log(t); !strings.Contains(log, "failed to validate discovered endpoints") || !strings.Contains(log, "is insecure") {
		t.Errorf("it does not say what is wrong with the records:\n%s", log)
	}
	asks := startWith(t, resolver, "started gRPC proxy", "grpc-proxy", "start", "--discovery-srv=plain.test", "--discovery-srv-name=blue", "--insecure-discovery", "--advertise-client-url=")
	reads(ctx, t, clientOf(t, asks), "who", "second")
	first.Kill()
	await(t, "the next priority is not tried", func() bool {
		id, err := memberBehind(ctx, t, found)
		return err == nil && id == ids[1]
	})
	first.Run()
}

package ctl

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"io"
	"math/big"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"cairn.dev/conformance/harness"
)

// doorbell is a server whose handshakes fail; it counts who comes.
type doorbell struct {
	endpoint string
	accepted atomic.Int32
	looks    int32
}

// rings is how many have come so far. The kernel hands connections over in
// their order, so a connection of its own, once accepted, has all before it counted.
func (d *doorbell) rings(t *testing.T) int32 {
	t.Helper()
	look, err := net.Dial("tcp", d.endpoint)
	if err != nil {
		t.Fatal(err)
	}
	defer look.Close()
	// The server speaks first only to refuse: an empty hello ends the handshake.
	look.(*net.TCPConn).CloseWrite()
	io.Copy(io.Discard, look)
	d.looks++
	return d.accepted.Load() - d.looks
}

func newDoorbell(t *testing.T) *doorbell {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	config := &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}, NextProtos: []string{"h2"}}
	bell := &doorbell{endpoint: listener.Addr().String()}
	go func() {
		for {
			connection, err := listener.Accept()
			if err != nil {
				return
			}
			bell.accepted.Add(1)
			go func() {
				defer connection.Close()
				tls.Server(connection, config).Handshake()
			}()
		}
	}()
	return bell
}

// A member whose handshakes fail is tried as often as the genuine tool tries
// it: at once, after a second, and then less and less often.
func TestBackoffOfFailedHandshakes(t *testing.T) {
	for name, tool := range map[string]string{"genuine": harness.Tool(t, "etcdctl"), "ours": ours(t)} {
		for _, words := range [][]string{{"get", "a"}, {"endpoint", "status"}, {"endpoint", "health"}} {
			t.Run(name+" "+words[0]+" "+words[1], func(t *testing.T) {
				t.Parallel()
				bell := newDoorbell(t)
				args := append([]string{"--endpoints=https://" + bell.endpoint, "--command-timeout=5s", "--dial-timeout=5s"}, words...)
				result := harness.Command{Path: tool, Args: args}.Run(t)
				// The pauses of 5 s add up to two or three; a command may begin twice.
				if count := bell.rings(t); result.Code == 0 || count < 1 || count > 6 {
					t.Errorf("exit %d, %d connections\n%s", result.Code, count, result.Stderr)
				}
			})
		}
	}
}

// Another member is tried at once, however long the first is left alone.
func TestBackoffHoldsNobodyUp(t *testing.T) {
	server := harness.Start(t, harness.Subject())
	dead := newDoorbell(t)
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	for range 5 {
		args := []string{"--endpoints=https://" + dead.endpoint + "," + silent.Addr().String() + "," + server.Endpoint(), "--insecure-skip-tls-verify=false", "put", "a", "b"}
		before, began := dead.rings(t), time.Now()
		result := harness.Command{Path: ours(t), Args: args}.Run(t)
		// A call that waits for another attempt at a dead one makes a second connection. It is dialled again after a second in any
		// case, which is the machine's doing.
		most := 1 + int32(time.Since(began)/time.Second)
		if count := dead.rings(t) - before; result.Code != 0 || count > most {
			t.Errorf("exit %d, %d connections\n%s", result.Code, count, result.Stderr)
		}
	}
}

package peer

import (
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"cairn.dev/conformance/harness"
)

// broken is a peer that answers each stream with the same bytes.
type broken struct {
	port    int
	streams atomic.Int64
}

func startBroken(t *testing.T, body []byte) *broken {
	t.Helper()
	b := &broken{port: harness.Port(t)}
	listener, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", b.port))
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: http.HandlerFunc(func(answer http.ResponseWriter, request *http.Request) {
		for _, header := range []string{"X-Etcd-Cluster-ID", "X-Server-Version"} {
			answer.Header().Set(header, request.Header.Get(header))
		}
		if !strings.HasPrefix(request.URL.Path, "/raft/stream/") {
			answer.WriteHeader(http.StatusNoContent)
			return
		}
		b.streams.Add(1)
		answer.Write(body)
		// More than the announced length would need is never sent.
		filler := make([]byte, 1<<20)
		for range 64 {
			if _, err := answer.Write(filler); err != nil {
				return
			}
		}
		answer.(http.Flusher).Flush()
		time.Sleep(2 * time.Second)
	})}
	go server.Serve(listener)
	t.Cleanup(func() { server.Close() })
	return b
}

// A member dials its peers and reads what they send. One that announces 10 GB,
// or sends nonsense, costs neither memory nor the member's life.
func TestStreams(t *testing.T) {
	for _, bad := range []struct {
		name string
		body []byte
		// trusted: the genuine server takes the number at its word.
		trusted bool
	}{
		{"LengthOf10GB", lengthWord(hugeBytes), true},
		{"LengthOf10GBInMsgApp", append([]byte{2}, lengthWord(hugeBytes)...), true},
		{"CountOf10GInMsgApp", append([]byte{1}, lengthWord(hugeBytes)...), true},
		{"LengthOf512MB", lengthWord(512<<20 - 1), true},
		{"AllOnes", []byte(strings.Repeat("\xff", 100)), false},
		{"EmptyMessages", make([]byte, 100), false},
	} {
		t.Run(bad.name, func(t *testing.T) {
			t.Parallel()
			if bad.trusted {
				aboutCairn(t)
			}
			peer := startBroken(t, bad.body)
			server := harness.Prepare(t, harness.Subject(), t.TempDir()+"/data")
			server.SetFlags(fmt.Sprintf("--initial-cluster=default=%s,other=http://127.0.0.1:%d", server.PeerURL(), peer.port))
			// Without its peer the member has no leader and is not ready.
			ended := make(chan error, 1)
			go func() { ended <- server.TryRun(15 * time.Second) }()
			most := 0
			for deadline := time.Now().Add(14 * time.Second); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
				if pid := server.PidNow(); pid != 0 {
					most = max(most, harness.AnonymousBytes(t, pid))
				}
			}
			err := <-ended
			if err == nil || !strings.Contains(err.Error(), "is not ready after") {
				t.Errorf("the member ended: %v", err)
			}
			if peer.streams.Load() < 2 {
				t.Errorf("the peer was dialled %d times", peer.streams.Load())
			}
			if most > 2*growthMax {
				t.Errorf("the member took %d MB", most>>20)
			}
			if strings.Contains(server.Log(), "panicked at") {
				t.Errorf("a thread panicked:\n%s", server.LogTail())
			}
			t.Logf("%d streams, at most %d MB", peer.streams.Load(), most>>20)
		})
	}
}

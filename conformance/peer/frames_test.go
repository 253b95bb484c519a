package peer

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"cairn.dev/conformance/harness"
	"go.etcd.io/etcd/client/pkg/v3/types"
	"go.etcd.io/etcd/server/v3/etcdserver/api/rafthttp"
	stats "go.etcd.io/etcd/server/v3/etcdserver/api/v2stats"
	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
	"go.uber.org/zap"
	"google.golang.org/protobuf/proto"
)

// frames is where Cairn's unit tests find the streams that etcd writes. They
// hold that Cairn writes the same bytes and reads the same messages.
const frames = "../../crates/peer/src/codec/testdata/"

func entry(term, index uint64, data string) *raftpb.Entry {
	return &raftpb.Entry{Term: &term, Index: &index, Type: raftpb.EntryNormal.Enum(), Data: []byte(data)}
}

func message(kind raftpb.MessageType, fill func(*raftpb.Message)) *raftpb.Message {
	m := &raftpb.Message{Type: kind.Enum(), From: proto.Uint64(1), To: proto.Uint64(2), Term: proto.Uint64(5)}
	if fill != nil {
		fill(m)
	}
	return m
}

func appending(term, logTerm, index uint64, entries []*raftpb.Entry, commit uint64) *raftpb.Message {
	return message(raftpb.MsgApp, func(m *raftpb.Message) {
		m.Term, m.LogTerm, m.Index, m.Entries, m.Commit = &term, &logTerm, &index, entries, &commit
	})
}

// appends are the messages of `appends` in `codec/tests.rs`.
func appends() []*raftpb.Message {
	change := entry(5, 14, "c")
	change.Type = raftpb.EntryConfChange.Enum()
	return []*raftpb.Message{
		appending(5, 4, 10, []*raftpb.Entry{entry(5, 11, "a"), entry(5, 12, "")}, 9),
		appending(5, 5, 12, []*raftpb.Entry{entry(5, 13, strings.Repeat("x", 300))}, 12),
		appending(5, 5, 13, nil, 13),
		appending(5, 5, 13, []*raftpb.Entry{change}, 13),
		appending(5, 5, 20, nil, 14),
		appending(6, 5, 20, []*raftpb.Entry{entry(6, 21, "d")}, 14),
		appending(6, 6, 21, []*raftpb.Entry{entry(6, 22, "e"), entry(6, 23, "f"), entry(6, 24, "g")}, 21),
	}
}

// others are the messages of `others` in `codec/tests.rs`.
func others() []*raftpb.Message {
	at := func(index, logTerm uint64) func(*raftpb.Message) {
		return func(m *raftpb.Message) { m.Index, m.LogTerm = &index, &logTerm }
	}
	return []*raftpb.Message{
		message(raftpb.MsgHeartbeat, func(m *raftpb.Message) { m.Commit, m.Context = proto.Uint64(7), []byte("ctx") }),
		message(raftpb.MsgHeartbeatResp, func(m *raftpb.Message) { m.Context = []byte("ctx") }),
		message(raftpb.MsgVote, func(m *raftpb.Message) { at(9, 4)(m); m.Context = []byte("CampaignTransfer") }),
		message(raftpb.MsgVoteResp, func(m *raftpb.Message) { m.Reject = proto.Bool(true) }),
		message(raftpb.MsgPreVote, at(9, 4)),
		message(raftpb.MsgPreVoteResp, nil),
		message(raftpb.MsgAppResp, func(m *raftpb.Message) {
			at(11, 3)(m)
			m.Reject, m.RejectHint = proto.Bool(true), proto.Uint64(8)
		}),
		message(raftpb.MsgProp, func(m *raftpb.Message) { m.Entries = []*raftpb.Entry{{Data: []byte("p")}} }),
		message(raftpb.MsgReadIndex, func(m *raftpb.Message) {
			m.Index, m.Entries = proto.Uint64(4), []*raftpb.Entry{{Data: []byte("r")}}
		}),
		message(raftpb.MsgTimeoutNow, nil),
	}
}

// inbox is the Raft of a genuine transport: it remembers what it was given.
type inbox struct{ received chan *raftpb.Message }

func (i *inbox) Process(_ context.Context, m *raftpb.Message) error {
	i.received <- m
	return nil
}
func (i *inbox) IsIDRemoved(uint64) bool                    { return false }
func (i *inbox) ReportUnreachable(uint64)                   {}
func (i *inbox) ReportSnapshot(uint64, raft.SnapshotStatus) {}

func transport(t *testing.T, id uint64) (*rafthttp.Transport, *inbox) {
	t.Helper()
	// No heartbeats of the link in between.
	rafthttp.ConnReadTimeout = time.Hour
	box := &inbox{received: make(chan *raftpb.Message, 100)}
	tr := &rafthttp.Transport{
		Logger: zap.NewNop(), ID: types.ID(id), ClusterID: 1, Raft: box, DialTimeout: time.Second,
		ServerStats: stats.NewServerStats("", ""), LeaderStats: stats.NewLeaderStats(zap.NewNop(), "1"),
		ErrorC: make(chan error, 1),
	}
	if err := tr.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(tr.Stop)
	return tr, box
}

// The genuine transport writes the bytes that Cairn's tests know. With
// FRAMES=write they are written anew.
func TestGenuineWriter(t *testing.T) {
	for name, messages := range map[string][]*raftpb.Message{"msgapp": appends(), "message": others()} {
		// The stream is attached within this time, except on a machine that is late: then there is more of it.
		attached := 100 * time.Millisecond
		harness.Attempt(t, func() error {
			defer func() { attached *= 10 }()
			return writes(t, name, messages, attached)
		})
	}
}

// writes has the genuine transport write messages to a stream of that name,
// which is attached within a time.
func writes(t *testing.T, name string, messages []*raftpb.Message, attached time.Duration) error {
	t.Helper()
	writer, _ := transport(t, 1)
	server := httptest.NewServer(writer.Handler())
	writer.AddPeer(2, []string{"http://127.0.0.1:1"})
	request, _ := http.NewRequest(http.MethodGet, server.URL+"/raft/stream/"+name+"/2", nil)
	for header, value := range map[string]string{
		"X-Server-From": "2", "X-Server-Version": "3.7.0", "X-Min-Cluster-Version": "3.0.0",
		"X-Etcd-Cluster-ID": "1", "X-Raft-To": "1",
	} {
		request.Header.Set(header, value)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil || response.StatusCode != http.StatusOK {
		t.Fatalf("%s: %v, %v", name, response, err)
	}
	time.Sleep(attached)
	writer.Send(messages)
	var got []byte
	end := time.AfterFunc(max(attached, time.Second), func() { response.Body.Close() })
	buffer := make([]byte, 4096)
	for {
		n, err := response.Body.Read(buffer)
		got = append(got, buffer[:n]...)
		if err != nil {
			break
		}
	}
	end.Stop()
	if os.Getenv("FRAMES") == "write" {
		if err := os.WriteFile(frames+name+".stream", got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(frames + name + ".stream")
	server.CloseClientConnections()
	if err != nil || !bytes.Equal(got, want) {
		return fmt.Errorf("%s: the genuine server writes\n%q, known is\n%q (%v)", name, got, want, err)
	}
	return nil
}

// The genuine transport reads from those bytes, which Cairn writes, what was
// meant.
func TestGenuineReader(t *testing.T) {
	for name, messages := range map[string][]*raftpb.Message{"msgapp": appends(), "message": others()} {
		content, err := os.ReadFile(frames + name + ".stream")
		if err != nil {
			t.Fatal(err)
		}
		served := make(chan struct{}, 1)
		hold := make(chan struct{})
		server := httptest.NewServer(http.HandlerFunc(func(answer http.ResponseWriter, request *http.Request) {
			answer.Header().Set("X-Server-Version", "3.7.3")
			if !strings.Contains(request.URL.Path, "/raft/stream/"+name+"/") {
				answer.WriteHeader(http.StatusNotFound)
				return
			}
			select {
			case served <- struct{}{}:
				io.Copy(answer, bytes.NewReader(content))
			default:
			}
			answer.(http.Flusher).Flush()
			<-hold
		}))
		reader, box := transport(t, 2)
		reader.AddPeer(1, []string{server.URL})
		got := map[string]bool{}
		for range messages {
			select {
			case m := <-box.received:
				bytes, _ := proto.MarshalOptions{Deterministic: true}.Marshal(m)
				got[string(bytes)] = true
			case <-time.After(30 * time.Second):
				t.Fatalf("%s: only %d of %d messages arrived", name, len(got), len(messages))
			}
		}
		// Proposals take another way inside than the rest: no order.
		for _, m := range messages {
			bytes, _ := proto.MarshalOptions{Deterministic: true}.Marshal(m)
			if !got[string(bytes)] {
				t.Errorf("%s: %v did not arrive", name, m)
			}
		}
		close(hold)
		server.CloseClientConnections()
	}
}

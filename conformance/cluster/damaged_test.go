package cluster

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"cairn.dev/conformance/harness"
	bolt "go.etcd.io/bbolt"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"
)

// marker is in a value that is to be damaged.
const marker = "a value whose bytes are to be damaged"

// damages are those of images of a hundred kilobytes and more.
func damages(t testing.TB) []damage {
	cut := func(bytes int64, rest io.Reader) func(io.Reader) io.Reader {
		return func(body io.Reader) io.Reader { return io.MultiReader(io.LimitReader(body, bytes), rest) }
	}
	meta := func(change func(*bolt.Bucket) error) func(*bolt.Tx) error {
		return func(tx *bolt.Tx) error { return change(tx.Bucket([]byte("meta"))) }
	}
	return []damage{
		{"a connection that breaks", "", cut(40_000, failing{})},
		{"an end that comes early", "is no database", cut(40_000, strings.NewReader(""))},
		{"no image at all", "is no database", whole(t, func([]byte) []byte { return nil })},
		// Through bbolt, since a copy of the value may lie in a page that is free, where nobody reads it.
		{"a byte of a value", "the image is damaged: at revision", inBolt(t, func(tx *bolt.Tx) error {
			revisions := tx.Bucket([]byte("key"))
			cursor := revisions.Cursor()
			for key, value := cursor.Last(); key != nil; key, value = cursor.Prev() {
				if at := bytes.Index(value, []byte(marker)); at >= 0 {
					damaged := bytes.Clone(value)
					damaged[at+3] ^= 4
					return revisions.Put(bytes.Clone(key), damaged)
				}
			}
			return errors.New("the value is not in the image")
		})},
		{"pages that say they have more than fits", "is damaged at page", whole(t, func(image []byte) []byte {
			for page := 3 * 4096; page+4096 <= len(image); page += 4096 {
				if binary.LittleEndian.Uint16(image[page+8:]) == 2 {
					binary.LittleEndian.PutUint16(image[page+10:], 0xfff0)
				}
			}
			return image
		})},
		{"an image of 3.5", "another version of etcd", inBolt(t, func(tx *bolt.Tx) error {
			if err := tx.Bucket([]byte("cluster")).Put([]byte("clusterVersion"), []byte("3.5.0")); err != nil {
				return err
			}
			return meta(func(bucket *bolt.Bucket) error { return bucket.Delete([]byte("storageVersion")) })(tx)
		})},
		{"an image of another entry", "but the leader's message says", inBolt(t, meta(func(bucket *bolt.Bucket) error {
			return bucket.Put([]byte("consistent_index"), []byte{0, 0, 0, 0, 0, 0, 0, 9})
		}))},
		{"a change that is missing", "refused the database of an etcd member", inBolt(t, func(tx *bolt.Tx) error {
			cursor := tx.Bucket([]byte("key")).Cursor()
			cursor.Last()
			cursor.Prev()
			return cursor.Delete()
		})},
	}
}

// trimmed is a member of etcd that sends images to those who are a little
// behind, and a learner of Cairn whose images can be tampered with.
func trimmed(t *testing.T, dataDir string) (*harness.Cluster, *harness.Server, *tamper) {
	t.Helper()
	cluster := harness.StartCluster(t, harness.Etcd, 1, nil, "--snapshot-count=50", "--snapshot-catchup-entries=5")
	client := cluster.Client()
	fill(t, client, "first")
	ours := harness.Prepare(t, harness.Cairn, dataDir)
	ours.Name = "m1"
	tamper := startTamper(t, ours)
	if _, err := client.MemberAddAsLearner(harness.Context(t), []string{tamper.address}); err != nil {
		t.Fatal(err)
	}
	ours.SetFlags("--initial-advertise-peer-urls="+tamper.address, "--initial-cluster-state=existing",
		"--initial-cluster=m0="+cluster.Members[0].PeerURL()+",m1="+tamper.address)
	cluster.Members = append(cluster.Members, ours)
	return cluster, ours, tamper
}

// forget has a member of etcd forget the log before its last snapshot: it keeps
// all of it for half a minute after it has sent an image.
func forget(etcd *harness.Server) {
	etcd.Stop()
	etcd.Run()
}

// level waits until a learner has what its leader has.
func level(t *testing.T, leader, learner *harness.Server) {
	t.Helper()
	var seen string
	for deadline := time.Now().Add(60 * time.Second); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		theirs, own := revisionOf(t, leader), revisionOf(t, learner)
		if theirs == own {
			return
		}
		seen = fmt.Sprintf("revision %d, and the leader's %d", own, theirs)
	}
	t.Fatalf("%s\n%s", seen, learner.LogTail())
}

// revisionOf is a member's own revision.
func revisionOf(t *testing.T, member *harness.Server) int64 {
	t.Helper()
	client := member.Client()
	defer client.Close()
	got, err := client.Get(harness.Context(t), "any", clientv3.WithSerializable())
	if err != nil {
		t.Fatal(err)
	}
	return got.Header.Revision
}

// said waits for a text in a log.
func said(t *testing.T, server *harness.Server, from int, text string) {
	t.Helper()
	for deadline := time.Now().Add(60 * time.Second); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		if strings.Contains(server.Log()[from:], text) {
			return
		}
	}
	t.Fatalf("the log does not say %q:\n%s", text, server.LogTail())
}

// Images that are damaged on their way are refused: by a member that has
// nothing yet, and by one that lags, which keeps what it has, through a kill
// too. The next whole image is installed.
func TestDamagedImages(t *testing.T) {
	t.Parallel()
	cluster, ours, tamper := trimmed(t, filepath.Join(t.TempDir(), "data"))
	etcd, client := cluster.Members[0], cluster.Client(0)
	put := func(value string) {
		t.Helper()
		if _, err := client.Put(harness.Context(t), "marked", value); err != nil {
			t.Fatal(err)
		}
	}
	put(marker)
	fill(t, client, "second")

	// A new member.
	list := damages(t)
	tamper.await(list...)
	ours.Run()
	tamper.sent()
	refused(t, ours, 0, list)
	level(t, etcd, ours)

	// The same member, behind. It serves once it is level.
	before := revisionOf(t, ours)
	restored := fmt.Sprintf(`"revision":%d,`, before)
	ours.Stop()
	fill(t, client, "third")
	put("another one with " + marker)
	fill(t, client, "fourth")
	forget(etcd)
	from := len(ours.Log())
	stalls := func() (damage, chan struct{}, chan struct{}) {
		held, release := make(chan struct{}), make(chan struct{})
		return damage{"an image that stalls", "", func(body io.Reader) io.Reader {
			close(held)
			return io.MultiReader(io.LimitReader(body, 30_000), waiting{release}, failing{})
		}}, held, release
	}
	stall, held, release := stalls()
	list = damages(t)
	tamper.await(append(list, stall)...)
	started := make(chan error)
	start := func() { started <- ours.TryRun(2 * time.Minute) }
	go start()
	within(t, held, ours)
	refused(t, ours, from, list)
	said(t, ours, from, restored)
	if found := strings.Count(ours.Log()[from:], "refused the database of an etcd member"); found != 2 {
		t.Errorf("%d images were refused for their hash, not 2", found)
	}
	syscall.Kill(ours.PidNow(), syscall.SIGKILL)
	close(release)
	if err := <-started; err == nil {
		t.Fatal("a member that was killed is ready")
	}

	// Killed in the middle of an image, it has what it had; then its leader dies in the middle of another one.
	stall, held, release = stalls()
	tamper.await(stall)
	from = len(ours.Log())
	go start()
	within(t, held, ours)
	said(t, ours, from, restored)
	etcd.Kill()
	close(release)
	etcd.Run()
	if err := <-started; err != nil {
		t.Fatal(err)
	}
	level(t, etcd, ours)
	members, err := client.MemberList(harness.Context(t))
	if err != nil {
		t.Fatal(err)
	}
	for _, member := range members.Members {
		if member.IsLearner {
			promote(t, client, member.ID)
		}
	}
	alike(t, cluster)
	if _, err := os.Stat(filepath.Join(ours.DataDir, "member", "image")); !os.IsNotExist(err) {
		t.Errorf("something of the images is left: %v", err)
	}
}

// The database of a genuine etcd 3.5 in place of an image is refused for its
// version, by a member that has nothing yet and by one that lags, and nothing of
// it is installed. EARLIER=1: its server takes minutes to build.
func TestImageOfEarlier(t *testing.T) {
	if os.Getenv("EARLIER") == "" {
		t.Skip("EARLIER=1 builds etcd 3.5 and runs this")
	}
	t.Parallel()
	earlier := harness.Start(t, harness.Etcd35)
	fill(t, earlier.Client(), "earlier")
	earlier.Stop()
	database, err := os.ReadFile(filepath.Join(earlier.DataDir, "member", "snap", "db"))
	if err != nil {
		t.Fatal(err)
	}
	cluster, ours, tamper := trimmed(t, filepath.Join(t.TempDir(), "data"))
	etcd, client := cluster.Members[0], cluster.Client(0)
	image := damage{
		what: "the database of etcd 3.5",
		says: "another version of etcd than 3.6 and 3.7: its storage version is none, its cluster's version `3.5.0`",
		change: announced(t, func(message, _ []byte) []byte {
			// Another entry than the message's is refused before anybody looks at the version.
			var sent raftpb.Message
			if err := proto.Unmarshal(message, &sent); err != nil {
				t.Error(err)
			}
			index := binary.BigEndian.AppendUint64(nil, sent.GetSnapshot().GetMetadata().GetIndex())
			return changed(t, database, func(tx *bolt.Tx) error { return tx.Bucket([]byte("meta")).Put([]byte("consistent_index"), index) })
		}),
	}
	for _, fresh := range []bool{true, false} {
		from, before := len(ours.Log()), ""
		if !fresh {
			before = fmt.Sprintf(`"revision":%d,`, revisionOf(t, ours))
			ours.Stop()
			fill(t, client, "later")
			forget(etcd)
		}
		held, release := make(chan struct{}), make(chan struct{})
		tamper.await(image, damage{"an image that waits", "", func(body io.Reader) io.Reader {
			close(held)
			return io.MultiReader(waiting{release}, body)
		}})
		started := make(chan error)
		go func() { started <- ours.TryRun(2 * time.Minute) }()
		within(t, held, ours)
		said(t, ours, from, image.says)
		said(t, ours, from, before)
		if log := ours.Log()[from:]; strings.Contains(log, "installed the database of an etcd member") || !strings.Contains(log, "failed to save incoming database snapshot") {
			t.Errorf("it was installed:\n%s", ours.LogTail())
		}
		close(release)
		if err := <-started; err != nil {
			t.Fatal(err)
		}
		level(t, etcd, ours)
		got, err := ours.Client().Get(harness.Context(t), "earlier/", clientv3.WithPrefix(), clientv3.WithSerializable())
		if err != nil || got.Count != 0 {
			t.Errorf("keys of the other database: %v, %v", got, err)
		}
	}
}

// refused checks that each of these images was refused for its reason.
func refused(t *testing.T, server *harness.Server, from int, list []damage) {
	t.Helper()
	for _, one := range list {
		if one.says != "" {
			said(t, server, from, one.says)
		}
	}
	log := server.Log()[from:]
	if found := strings.Count(log, "failed to save incoming database snapshot"); found < len(list)-1 {
		t.Errorf("%d images were refused, and %d of %d lines say so", len(list), found, len(list)-1)
	}
}

// within waits until an image is held.
func within(t *testing.T, held chan struct{}, receiver *harness.Server) {
	t.Helper()
	select {
	case <-held:
	case <-time.After(60 * time.Second):
		t.Fatalf("no image has come:\n%s", receiver.LogTail())
	}
}

// waiting ends once it is released.
type waiting struct{ release chan struct{} }

func (w waiting) Read([]byte) (int, error) {
	<-w.release
	return 0, io.EOF
}

func promote(t *testing.T, client *clientv3.Client, id uint64) {
	t.Helper()
	var err error
	for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); time.Sleep(100 * time.Millisecond) {
		if _, err = client.MemberPromote(harness.Context(t), id); err == nil {
			return
		}
	}
	t.Fatal(err)
}

// A disk that has no room for an image in the middle of it: it is refused, the
// member goes on with its old data, and takes the image once there is room.
func TestImageOnFullDisk(t *testing.T) {
	t.Parallel()
	disk := t.TempDir()
	size := func(megabytes int) string { return fmt.Sprintf("size=%dm", megabytes) }
	if err := syscall.Mount("tmpfs", disk, "tmpfs", 0, size(460)); err != nil {
		harness.Unproved(t, fmt.Sprint("a tmpfs needs root: ", err))
	}
	t.Cleanup(func() { syscall.Unmount(disk, syscall.MNT_DETACH) })
	cluster, ours, _ := trimmed(t, filepath.Join(disk, "data"))
	etcd, client := cluster.Members[0], cluster.Client(0)
	ours.Run()
	level(t, etcd, ours)
	before := revisionOf(t, ours)
	ours.Stop()
	value := strings.Repeat("v", 1<<20)
	for number := range 160 {
		if _, err := client.Put(harness.Context(t), fmt.Sprintf("large/%03d", number), value); err != nil {
			t.Fatal(err)
		}
	}
	forget(etcd)
	from := len(ours.Log())
	started := make(chan error)
	go func() { started <- ours.TryRun(2 * time.Minute) }()
	said(t, ours, from, "no space left on the disk")
	said(t, ours, from, fmt.Sprintf(`"revision":%d,`, before))
	if !strings.Contains(ours.Log()[from:], "receiving database snapshot") {
		t.Error("the image was not begun")
	}
	if err := syscall.Mount("tmpfs", disk, "tmpfs", syscall.MS_REMOUNT, size(1500)); err != nil {
		t.Fatal(err)
	}
	if err := <-started; err != nil {
		t.Fatal(err)
	}
	level(t, etcd, ours)
}

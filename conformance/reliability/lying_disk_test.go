package reliability

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"cairn.dev/conformance/harness"
)

// lyingDisk is a disk that drops what was not synced when its process is
// killed, and fails when it is told to: testdata/lying.c, preloaded.
type lyingDisk struct {
	t                        testing.TB
	dir                      string
	control, journal, shadow string
}

// The fields of struct control in lying.c.
const (
	failAt = iota
	delayMicroseconds
	isFull
	isReadOnly
	clockShiftSeconds
	callsSoFar
	callsFailed
	controlFields
)

// The kinds of records in lying.c.
const (
	recordWrite = iota + 1
	recordSize
	recordSync
	recordSyncFailed
	recordCreate
	recordRename
	recordUnlink
	recordSyncDir
)

const sectorBytes = 512

// buildLyingDisk compiles the library. It skips the test where that cannot be
// done, and fails it instead where CI is set.
func buildLyingDisk(t testing.TB) string {
	t.Helper()
	if harness.Subject() == harness.Etcd {
		t.Skip("the genuine server calls the kernel by itself: nothing can be put in between")
	}
	library := filepath.Join(t.TempDir(), "lying.so")
	build := exec.Command("cc", "-shared", "-fPIC", "-O1", "-Wall", "-Werror", "-o", library, "testdata/lying.c", "-ldl", "-lpthread")
	if output, err := build.CombinedOutput(); err != nil {
		harness.Unproved(t, fmt.Sprintf("no C compiler for the lying disk: %v\n%s", err, output))
	}
	return library
}

// lie gives a server that is not started yet such a disk.
func lie(t testing.TB, library string, server *harness.Server) *lyingDisk {
	t.Helper()
	dir := filepath.Dir(server.DataDir)
	disk := &lyingDisk{
		t: t, dir: server.DataDir, control: filepath.Join(dir, "control"),
		journal: filepath.Join(dir, "journal"), shadow: filepath.Join(dir, "shadow"),
	}
	if err := os.MkdirAll(disk.shadow, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(disk.control, make([]byte, 8*8), 0o600); err != nil {
		t.Fatal(err)
	}
	disk.set(failAt, -1)
	server.Setenv("LD_PRELOAD", library)
	server.Setenv("LYING_DIR", disk.dir)
	server.Setenv("LYING_CONTROL", disk.control)
	server.Setenv("LYING_JOURNAL", disk.journal)
	server.Setenv("LYING_SHADOW", disk.shadow)
	return disk
}

func (d *lyingDisk) set(field int, value int64) {
	d.t.Helper()
	file, err := os.OpenFile(d.control, os.O_WRONLY, 0)
	if err != nil {
		d.t.Fatal(err)
	}
	defer file.Close()
	if _, err := file.WriteAt(binary.LittleEndian.AppendUint64(nil, uint64(value)), int64(8*field)); err != nil {
		d.t.Fatal(err)
	}
}

func (d *lyingDisk) get(field int) int64 {
	d.t.Helper()
	page, err := os.ReadFile(d.control)
	if err != nil || len(page) < 8*controlFields {
		d.t.Fatalf("%d bytes of control: %v", len(page), err)
	}
	return int64(binary.LittleEndian.Uint64(page[8*field:]))
}

// header is struct record of lying.c.
type header struct {
	Kind, File, Offset, Length, Size, Shadow uint64
	PathLength, OtherLength, IsZero, _       uint16
}

// sector is what a sector of a file held when it was last durable.
type sector struct {
	old []byte
	// A sync of it has failed: no later one makes it durable, unless it is
	// written again.
	doomed bool
}

// unsynced is what a file has that no sync has covered.
type unsynced struct {
	sectors map[uint64]*sector
	// Its length when it was last durable, -1 if it is durable.
	size int64
}

// name is a change of a name that no sync of its directory has covered.
type name struct {
	header
	path, other string
}

// takeBack drops what was not synced: all of it, or of the sectors and of the
// last names a part. The process is gone. Returns how many sectors and names.
func (d *lyingDisk) takeBack(random *rand.Rand) (sectors, names int) {
	d.t.Helper()
	files, changes := d.readJournal()
	paths := d.paths()
	odds := []int{100, 100, 50, 90}[random.IntN(4)]
	for number, file := range files {
		path, isThere := paths[number]
		if !isThere {
			continue
		}
		handle, err := os.OpenFile(path, os.O_RDWR, 0)
		if err != nil {
			d.t.Fatal(err)
		}
		for at, sector := range file.sectors {
			if sector.doomed || random.IntN(100) < odds {
				if _, err := handle.WriteAt(sector.old, int64(at*sectorBytes)); err != nil {
					d.t.Fatal(err)
				}
				sectors++
			}
		}
		if file.size >= 0 && random.IntN(100) < odds {
			if err := handle.Truncate(file.size); err != nil {
				d.t.Fatal(err)
			}
		}
		handle.Close()
	}
	// Names change in order, so what is lost of them is the end.
	kept := 0
	if odds < 100 && len(changes) > 0 {
		kept = random.IntN(len(changes) + 1)
	}
	for at := len(changes) - 1; at >= kept; at-- {
		d.undo(changes[at])
		names++
	}
	for _, path := range []string{d.journal, d.shadow} {
		if err := os.RemoveAll(path); err != nil {
			d.t.Fatal(err)
		}
	}
	if err := os.Mkdir(d.shadow, 0o700); err != nil {
		d.t.Fatal(err)
	}
	return sectors, names
}

func (d *lyingDisk) undo(change name) {
	d.t.Helper()
	shadow := filepath.Join(d.shadow, fmt.Sprintf("%d-%d", change.Size, change.Shadow))
	var err error
	switch change.Kind {
	case recordCreate:
		err = os.Remove(change.path)
	case recordUnlink:
		err = os.Link(shadow, change.path)
	case recordRename:
		if err = os.Rename(change.other, change.path); err == nil && change.Shadow != 0 {
			err = os.Link(shadow, change.other)
		}
	}
	if err != nil {
		d.t.Fatalf("cannot undo %+v: %v", change, err)
	}
}

// readJournal finds what no sync has covered.
func (d *lyingDisk) readJournal() (map[uint64]*unsynced, []name) {
	d.t.Helper()
	journal, err := os.ReadFile(d.journal)
	if err != nil && !os.IsNotExist(err) {
		d.t.Fatal(err)
	}
	files := map[uint64]*unsynced{}
	of := func(number uint64) *unsynced {
		if files[number] == nil {
			files[number] = &unsynced{sectors: map[uint64]*sector{}, size: -1}
		}
		return files[number]
	}
	var changes []name
	for reader := bytes.NewReader(journal); reader.Len() > 0; {
		var record header
		// A process that was killed in the middle of a record has not changed anything yet.
		if binary.Read(reader, binary.LittleEndian, &record) != nil {
			break
		}
		path, other := make([]byte, record.PathLength), make([]byte, record.OtherLength)
		reader.Read(path)
		reader.Read(other)
		file := of(record.File)
		switch record.Kind {
		case recordWrite:
			old := make([]byte, record.Length)
			if record.IsZero == 0 {
				if read, _ := reader.Read(old); uint64(read) < record.Length {
					return files, changes
				}
			}
			file.write(record, old)
		case recordSize:
			if file.size < 0 {
				file.size = int64(record.Size)
			}
		case recordSync:
			file.sync()
		case recordSyncFailed:
			for _, sector := range file.sectors {
				sector.doomed = true
			}
		case recordSyncDir:
			left := changes[:0]
			for _, change := range changes {
				if change.File != record.File {
					left = append(left, change)
				}
			}
			changes = left
		default:
			changes = append(changes, name{header: record, path: string(path), other: string(other)})
		}
	}
	return files, changes
}

func (u *unsynced) write(record header, old []byte) {
	if u.size < 0 {
		u.size = int64(record.Size)
	}
	for at := uint64(0); at < record.Length; at += sectorBytes {
		number := (record.Offset + at) / sectorBytes
		if known := u.sectors[number]; known != nil {
			known.doomed = false
		} else {
			u.sectors[number] = &sector{old: old[at : at+sectorBytes]}
		}
	}
}

func (u *unsynced) sync() {
	u.size = -1
	for number, sector := range u.sectors {
		if !sector.doomed {
			delete(u.sectors, number)
		}
	}
}

// paths finds a name of each file, by its number.
func (d *lyingDisk) paths() map[uint64]string {
	d.t.Helper()
	paths := map[uint64]string{}
	for _, root := range []string{d.dir, d.shadow} {
		err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() {
				return err
			}
			info, err := entry.Info()
			if err == nil {
				paths[info.Sys().(*syscall.Stat_t).Ino] = path
			}
			return err
		})
		if err != nil && !os.IsNotExist(err) {
			d.t.Fatal(err)
		}
	}
	return paths
}

package soak

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"cairn.dev/conformance/harness"
)

// sample is what one process had at one time.
type sample struct {
	at      time.Time
	memory  float64 // MiB, RssAnon and RssShmem
	files   float64 // descriptors
	threads float64
	disk    float64 // MiB of the data directory
}

// samples follow the members' processes.
type samples struct {
	t       *testing.T
	cluster *harness.Cluster
	began   time.Time
	// By process: one that is started again is another.
	of map[int][]sample
}

func newSamples(t *testing.T, cluster *harness.Cluster) *samples {
	return &samples{t: t, cluster: cluster, began: time.Now(), of: map[int][]sample{}}
}

// take looks at each member's process.
func (s *samples) take() {
	for _, member := range s.cluster.Members[:size] {
		if !member.Running() {
			s.t.Errorf("member %s has ended:\n%s", member.Name, member.LogTail())
			continue
		}
		pid := member.Pid()
		status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
		if err != nil {
			s.t.Fatal(err)
		}
		now := sample{at: time.Now()}
		for line := range strings.Lines(string(status)) {
			name, rest, _ := strings.Cut(line, ":")
			var number float64
			fmt.Sscan(rest, &number)
			switch name {
			case "RssAnon", "RssShmem":
				now.memory += number / 1024
			case "Threads":
				now.threads = number
			}
		}
		files, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
		if err != nil {
			s.t.Fatal(err)
		}
		now.files = float64(len(files))
		filepath.Walk(member.DataDir, func(_ string, info os.FileInfo, err error) error {
			// Files come and go meanwhile.
			if err == nil && info.Mode().IsRegular() {
				now.disk += float64(info.Size()) / (1 << 20)
			}
			return nil
		})
		s.of[pid] = append(s.of[pid], now)
	}
}

func (s sample) String() string {
	return fmt.Sprintf("%.0f MiB, %.0f descriptors, %.0f threads, %.0f MiB of files", s.memory, s.files, s.threads, s.disk)
}

// latest is what member 0 has.
func (s *samples) latest() string {
	all := s.of[s.cluster.Members[0].Pid()]
	return "member 0: " + all[len(all)-1].String()
}

// what a figure may grow by between the second quarter of a process's life
// and the last one.
var figures = []struct {
	name          string
	of            func(sample) float64
	floor, factor float64
}{
	{"memory in MiB", func(s sample) float64 { return s.memory }, 16, 0.1},
	{"descriptors", func(s sample) float64 { return s.files }, 8, 0},
	{"threads", func(s sample) float64 { return s.threads }, 4, 0},
	{"files in MiB", func(s sample) float64 { return s.disk }, 256, 0.25},
}

// check looks for growth in each process that lived for a quarter of the time.
func (s *samples) check(minutes int) {
	s.t.Helper()
	s.save()
	followed := 0
	for pid, all := range s.of {
		if len(all) < 12 || all[len(all)-1].at.Sub(all[0].at) < time.Duration(minutes)*time.Minute/4 {
			continue
		}
		followed++
		for _, figure := range figures {
			quarter := len(all) / 4
			before, after := median(all[quarter:2*quarter], figure.of), median(all[3*quarter:], figure.of)
			hours := all[len(all)-1].at.Sub(all[0].at).Hours()
			s.t.Logf("process %d, %.2f hours: %s %.0f in the second quarter, %.0f in the last; slope %+.2f an hour", pid, hours, figure.name, before, after, slope(all[quarter:], figure.of))
			if after > before+max(figure.floor, before*figure.factor) {
				s.t.Errorf("process %d: %s grew from %.0f to %.0f", pid, figure.name, before, after)
			}
		}
	}
	if followed == 0 {
		s.t.Error("no process lived long enough")
	}
}

// save writes all samples to the file that SAMPLES names.
func (s *samples) save() {
	path := os.Getenv("SAMPLES")
	if path == "" {
		return
	}
	var text strings.Builder
	text.WriteString("process,seconds,memory_mib,descriptors,threads,files_mib\n")
	for pid, all := range s.of {
		for _, one := range all {
			fmt.Fprintf(&text, "%d,%.0f,%.1f,%.0f,%.0f,%.1f\n", pid, one.at.Sub(s.began).Seconds(), one.memory, one.files, one.threads, one.disk)
		}
	}
	if err := os.WriteFile(path, []byte(text.String()), 0o600); err != nil {
		s.t.Error(err)
	}
}

func median(all []sample, of func(sample) float64) float64 {
	var values []float64
	for _, one := range all {
		values = append(values, of(one))
	}
	slices.Sort(values)
	return values[len(values)/2]
}

// slope is the straight line through all samples, in units an hour.
func slope(all []sample, of func(sample) float64) float64 {
	var x, y, xx, xy float64
	for _, one := range all {
		at, value := one.at.Sub(all[0].at).Hours(), of(one)
		x, y, xx, xy = x+at, y+value, xx+at*at, xy+at*value
	}
	n := float64(len(all))
	return (n*xy - x*y) / (n*xx - x*x)
}

// A figure that grows is found, one that varies is not.
func TestGrowthIsFound(t *testing.T) {
	var grows, varies []sample
	for n := range 400 {
		at := time.Unix(int64(n)*5, 0)
		grows = append(grows, sample{at: at, memory: 100 + float64(n)})
		varies = append(varies, sample{at: at, memory: 100 + float64(n%7)})
	}
	of := func(s sample) float64 { return s.memory }
	if got := slope(grows, of); got < 719 || got > 721 {
		t.Errorf("slope %f", got)
	}
	if got := slope(varies, of); got < -3 || got > 3 {
		t.Errorf("slope %f", got)
	}
	if median(grows, of) != 300 {
		t.Errorf("median %f", median(grows, of))
	}
}

package checks

import (
	"encoding/json"
	"fmt"
	"os/exec"
	"strings"
	"testing"
	"time"

	"cairn.dev/conformance/harness"
)

// topReport is what `cairn top --json` prints for each look.
type topReport struct {
	Leader  string
	Members []struct {
		Name, Role, Error string
		PutsPerSecond     float64
		FsyncP99Seconds   *float64
		Connections       float64
		StageP99Seconds   map[string]*float64
	}
	SampledWrites int
	Hottest       []struct {
		Prefix string
		Writes int
	}
}

// The page shows what a cluster does, also of a genuine one as far as that
// tells, and a member that is down as such.
func TestTop(t *testing.T) {
	if harness.Subject() == harness.Etcd {
		t.Skip("about our tool only")
	}
	for _, kind := range []harness.Kind{harness.Etcd, harness.Cairn} {
		t.Run(string(kind), func(t *testing.T) {
			cluster := harness.StartCluster(t, kind, 3, nil)
			client := cluster.Members[0].Client()
			ended := make(chan struct{})
			t.Cleanup(func() { <-ended })
			stop := make(chan struct{})
			go func() {
				defer close(ended)
				for i := 0; ; i++ {
					select {
					case <-stop:
						return
					default:
					}
					client.Put(t.Context(), fmt.Sprintf("/registry/%s/%d", []string{"pods", "pods", "pods", "leases"}[i%4], i%100), "value")
				}
			}()
			defer close(stop)
			look := func(args ...string) (found topReport, text string) {
				t.Helper()
				args = append([]string{"top", "--once", "--interval=1s", "--endpoints=" + cluster.Members[0].Endpoint()}, args...)
				result := cairn(t, args...)
				if result.Code != 0 {
					t.Fatalf("%v: %+v", args, result)
				}
				json.Unmarshal([]byte(result.Stdout), &found)
				return found, result.Stdout
			}
			found, text := look("--json")
			if len(found.Members) != 3 || found.Leader == "" || found.SampledWrites == 0 || len(found.Hottest) == 0 || found.Hottest[0].Prefix != "/registry/pods/" {
				t.Fatalf("%s", text)
			}
			roles := map[string]int{}
			for _, member := range found.Members {
				roles[member.Role]++
				if member.PutsPerSecond <= 0 || member.FsyncP99Seconds == nil {
					t.Errorf("%+v", member)
				}
				// The stages of a write are those of the member that took it.
				if member.Name == "m0" && kind == harness.Cairn && (member.StageP99Seconds["log_sync"] == nil || member.StageP99Seconds["replication"] == nil) {
					t.Errorf("no stages: %s", text)
				}
			}
			if roles["leader"] != 1 || roles["follower"] != 2 {
				t.Errorf("roles: %v", roles)
			}
			cluster.Members[2].Kill()
			_, text = look()
			for _, part := range []string{"2 of 3 members", "FSYNC P99", "HOTTEST PREFIXES", `"/registry/pods/"`, "m2         down"} {
				if !strings.Contains(text, part) {
					t.Errorf("no %q in\n%s", part, text)
				}
			}
		})
	}
}

// In a terminal it draws itself in its size, and leaves the terminal as it was.
func TestTopInTerminal(t *testing.T) {
	script, err := exec.LookPath("script")
	if err != nil {
		t.Fatal("there is no `script`, which makes a terminal")
	}
	server := harness.Start(t, harness.Cairn)
	for _, size := range [][2]int{{80, 24}, {200, 60}} {
		line := fmt.Sprintf("stty cols %d rows %d; timeout -s INT 4 %s top --interval=500ms --endpoints=%s", size[0], size[1], harness.CairnBinary(t), server.Endpoint())
		result := harness.Command{Path: script, Args: []string{"-qec", line, "/dev/null"}, Max: 20 * time.Second}.Run(t)
		before, page, found := strings.Cut(result.Stdout, "\x1b[?1049h")
		page, after, left := strings.Cut(page, "\x1b[?1049l")
		if !found || !left || strings.Contains(before+after, "cairn top") || strings.Count(page, "\x1b[H") < 2 {
			t.Fatalf("%v: %q", size, result.Stdout)
		}
		for _, drawn := range strings.Split(page, "\x1b[H")[1:] {
			lines := strings.Split(drawn, "\r\n")
			if len(lines) > size[1] || !strings.HasPrefix(lines[0], "cairn top   1 of 1 members") {
				t.Errorf("%v: %d lines: %q", size, len(lines), drawn)
			}
			for _, line := range lines {
				if line, _, _ = strings.Cut(line, "\x1b[K"); len([]rune(line)) > size[0] {
					t.Errorf("%v: %q", size, line)
				}
			}
			if wide := strings.Contains(drawn, "DATABASE"); wide != (size[0] == 200) {
				t.Errorf("%v: %q", size, drawn)
			}
		}
	}
}

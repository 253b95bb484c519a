package benchpages

import (
	"bufio"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"cairn.dev/conformance/harness"
)

// sweepFlags are a sweep of all tables that takes seconds.
func sweepFlags(server *harness.Server, path string, more ...string) []string {
	return append(slowSweepFlags(server, path, "0.1"), more...)
}

// slowSweepFlags are one with rows of so many seconds.
func slowSweepFlags(server *harness.Server, path, seconds string, more ...string) []string {
	flags := []string{"sweep", "--endpoints=" + server.Endpoint(), "--out=" + path, "--quick", "--row-seconds=" + seconds,
		"--get-keys=10000", "--data-dir=" + server.DataDir, "--label=" + string(server.Kind)}
	return append(flags, more...)
}

// A sweep that is interrupted goes on where it was, on both servers; what it has written is gone at its end.
func TestSweepGoesOnAfterAnInterrupt(t *testing.T) {
	for _, kind := range []harness.Kind{harness.Subject(), harness.Etcd} {
		t.Run(string(kind), func(t *testing.T) {
			server := harness.Start(t, kind)
			path := filepath.Join(t.TempDir(), "run.json")
			flags := sweepFlags(server, path)
			output := interruptedBench(t, path, 3, flags...)
			cut := readRun(t, path)
			if cut.Finished != nil || !strings.Contains(output, "the same command goes on after them") {
				t.Fatalf("finished %v\n%s", cut.Finished, output)
			}
			if keys := server.MustCtl("get", "", "--prefix", "--keys-only"); strings.TrimSpace(keys) != "" {
				t.Errorf("keys are left by the interrupt: %.200s", keys)
			}
			output = mustBench(t, 0, flags...)
			if !strings.Contains(output, "going on after "+strconv.Itoa(len(cut.Rows))+" rows") {
				t.Errorf("nothing about going on:\n%s", output)
			}
			t.Log(output)
			whole := readRun(t, path)
			if whole.Finished == nil || len(whole.Rows) <= len(cut.Rows) {
				t.Fatalf("%d rows, %d before", len(whole.Rows), len(cut.Rows))
			}
			seen, tables := map[string]bool{}, map[string]bool{}
			for number, row := range whole.Rows {
				name := row.Table + string(row.Parameters)
				if seen[name] {
					t.Errorf("%s is there twice", name)
				}
				seen[name], tables[row.Table] = true, true
				result := row.Result
				if result.State != "measured" || result.Succeeded == 0 || result.Succeeded != result.Requests || result.LatencyUs == nil {
					t.Errorf("row %d: %s %+v", number, name, result)
				}
				if result.ServerCPU == nil || result.ServerMemory == nil || *result.ServerMemory < 1<<20 {
					t.Errorf("row %d: nothing about the server: %+v", number, result)
				}
			}
			if len(tables) != 6 {
				t.Errorf("tables: %v", tables)
			}
			if keys := server.MustCtl("get", "", "--prefix", "--keys-only"); strings.TrimSpace(keys) != "" {
				t.Errorf("keys are left: %.200s", keys)
			}
			if output := mustBench(t, 0, flags...); !strings.Contains(output, "is finished") {
				t.Errorf("a finished run: %s", output)
			}
			refusals(t, path)
		})
	}
}

// What cannot be gone on with is refused, and left as it is.
func refusals(t *testing.T, path string) {
	other, third := harness.Start(t, harness.Subject()), harness.Start(t, harness.Etcd)
	before, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for wanted, flags := range map[string][]string{
		"it is of cluster":     sweepFlags(other, path),
		"its plan has":         sweepFlags(other, path, "--threads=2"),
		"name members of one":  {"sweep", "--endpoints=" + other.Endpoint() + "," + third.Endpoint(), "--out=" + path, "--quick"},
		"are the same cluster": {"compare", "--endpoints=" + other.Endpoint(), "--peer-endpoints=localhost:" + port(other)},
		"are too many":         {"compare", "--peer-endpoints=" + other.Endpoint(), "--connections=1000000"},
		"is no table":          sweepFlags(other, path, "--only=puts"),
		"127.0.0.1:1":          {"sweep", "--endpoints=127.0.0.1:1", "--out=" + path, "--quick"},
		"is no run of `cairn":  {"sweep", "--endpoints=" + other.Endpoint(), "--out=/proc/self/comm"},
	} {
		if output := mustBench(t, 2, flags...); !strings.Contains(output, wanted) {
			t.Errorf("%v: %s", flags, output)
		}
	}
	after, err := os.ReadFile(path)
	if err != nil || string(after) != string(before) {
		t.Errorf("the run was changed: %v", err)
	}
}

func port(server *harness.Server) string { return strconv.Itoa(server.ClientPort) }

// A server that stands still while puts are offered is told in the rows, and ends none of them.
func TestSweepUnderWritesThatAreNotTaken(t *testing.T) {
	server := harness.Start(t, harness.Subject())
	path := filepath.Join(t.TempDir(), "run.json")
	flags := slowSweepFlags(server, path, "4", "--only=mixed")
	flags[1] = "--endpoints=" + server.Endpoint() + ",localhost:" + port(server)
	done := make(chan harness.Result)
	go func() { done <- bench(t, flags...) }()
	// Each row begins with 10,000 puts. The second one offers 1,000 a second to 1,000 calls.
	waitForRows(t, path, 1)
	for deadline := time.Now().Add(studyMax); time.Now().Before(deadline) && puts(t, server) < 20_100; {
		time.Sleep(5 * time.Millisecond)
	}
	server.Pause()
	// Longer than the row: what is due until its end, and more than may be under way, is not sent. It may be seen late that it has begun.
	time.Sleep(5 * time.Second)
	server.Resume()
	result := <-done
	if result.Code != 0 || !strings.Contains(result.Stderr, "counts once") {
		t.Fatalf("exit %d\n%s%s", result.Code, result.Stdout, result.Stderr)
	}
	r := readRun(t, path)
	if r.Finished == nil || len(r.Rows) != 4 {
		t.Fatalf("%d rows, finished %v", len(r.Rows), r.Finished)
	}
	if row := r.Rows[1].Result; row.Unsent < 1 || row.Unsent > 3000 || row.Succeeded != row.Requests || !strings.Contains(row.Reason, "due and not sent") {
		t.Errorf("%+v", row)
	}
}

// puts is how many the server has begun.
func puts(t *testing.T, server *harness.Server) (all int) {
	t.Helper()
	response, err := http.Get(server.URL("/metrics"))
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	for lines := bufio.NewScanner(response.Body); lines.Scan(); {
		if line := lines.Text(); strings.HasPrefix(line, "grpc_server_started_total{") && strings.Contains(line, `grpc_method="Put"`) {
			all, _ = strconv.Atoi(line[strings.LastIndex(line, " ")+1:])
		}
	}
	return all
}

// A server that ends, or is full, ends the sweep; the rows before it stay, and are gone on with.
func TestSweepStopsWithTheServer(t *testing.T) {
	server := harness.Start(t, harness.Subject(), "--quota-backend-bytes=30000000")
	path := filepath.Join(t.TempDir(), "run.json")
	// 100,000 puts of 1 kB do not fit: the row has fewer, by the quota that the server tells.
	output := mustBench(t, 0, slowSweepFlags(server, path, "0.3", "--only=put")...)
	if !strings.Contains(output, "no more than") {
		t.Errorf("no row was cut to what there is room for:\n%s", output)
	}
	for _, row := range readRun(t, path).Rows {
		if row.Result.Succeeded != row.Result.Requests {
			t.Errorf("%s%s: %+v", row.Table, row.Parameters, row.Result)
		}
	}

	path = filepath.Join(t.TempDir(), "run.json")
	flags := slowSweepFlags(server, path, "1", "--only=read")
	done := make(chan harness.Result)
	go func() { done <- bench(t, flags...) }()
	waitForRows(t, path, 1)
	server.Kill()
	result := <-done
	if result.Code != 3 || !strings.Contains(result.Stderr, "the same command goes on after them") {
		t.Fatalf("exit %d\n%s%s", result.Code, result.Stdout, result.Stderr)
	}
	server.Run()
	mustBench(t, 0, flags...)
	if r := readRun(t, path); r.Finished == nil || len(r.Rows) != 4 {
		t.Errorf("%d rows, finished %v", len(r.Rows), r.Finished)
	}
}

// A store that is full stops the sweep in words; once there is space, it goes on.
func TestSweepStopsWithoutSpace(t *testing.T) {
	server := harness.Start(t, harness.Subject())
	alarm := func(action pb.AlarmRequest_AlarmAction) {
		request := &pb.AlarmRequest{Action: action, Alarm: pb.AlarmType_NOSPACE}
		if _, err := pb.NewMaintenanceClient(server.Client().ActiveConnection()).Alarm(harness.Context(t), request); err != nil {
			t.Fatal(err)
		}
	}
	path := filepath.Join(t.TempDir(), "run.json")
	flags := slowSweepFlags(server, path, "1", "--only=put")
	done := make(chan harness.Result)
	go func() { done <- bench(t, flags...) }()
	waitForRows(t, path, 1)
	alarm(pb.AlarmRequest_ACTIVATE)
	result := <-done
	if result.Code != 3 || !strings.Contains(result.Stderr, "cairn ctl alarm disarm") {
		t.Fatalf("exit %d\n%s%s", result.Code, result.Stdout, result.Stderr)
	}
	rows := readRun(t, path).Rows
	if last := rows[len(rows)-1].Result; last.State != "stopped" {
		t.Errorf("the last row: %+v", last)
	}
	alarm(pb.AlarmRequest_DEACTIVATE)
	mustBench(t, 0, flags...)
	if r := readRun(t, path); r.Finished == nil || len(r.Rows) != 9 {
		t.Errorf("%d rows, finished %v", len(r.Rows), r.Finished)
	}
}

// page is a page with so many charts at least.
type page struct {
	name   string
	charts int
}

// Runs of both servers, and their comparison, have pages whose charts are drawn, whatever the window and its colours.
// In short: smaller runs, and a telephone in the dark beside a screen in the light.
func TestPages(t *testing.T) {
	etcd, subject := harness.StartPair(t)
	dir := t.TempDir()
	file := func(name string) string { return filepath.Join(dir, name) }
	seconds, pairs := "0.1", []string{"--pairs=3", "--seconds=0.2"}
	tables := map[*harness.Server]string{etcd: "put,get,write,read,mixed,large", subject: "put,get,write,read,mixed,large"}
	pages := []page{{"alone", 20}, {"beside", 22}, {"compare", 6}}
	if testing.Short() {
		seconds, pairs = "0.02", []string{"--pairs=1", "--seconds=0.1"}
		// Answers of megabytes to 1,000 clients take most of the time, whatever a row may take.
		tables = map[*harness.Server]string{etcd: "put,read", subject: "put,get,write,read,mixed"}
		pages = []page{{"alone", 16}, {"beside", 17}, {"compare", 6}}
	}
	for server, tables := range tables {
		mustBench(t, 0, append(slowSweepFlags(server, file(string(server.Kind)+".json"), seconds), "--only="+tables)...)
	}
	own := string(subject.Kind)
	compared := mustBench(t, 0, append([]string{"compare", "--endpoints=" + subject.Endpoint(), "--peer-endpoints=" + etcd.Endpoint(),
		"--connections=10", "--keys=1000", "--out=" + file("compare.json")}, pairs...)...)
	t.Log(compared)
	mustBench(t, 0, "report", file(own+".json"), "--out="+file("alone.html"))
	mustBench(t, 0, "report", file(own+".json"), "--baseline="+file("etcd.json"), "--out="+file("beside.html"),
		"--markdown="+file("beside.md"), "--json="+file("beside.json"))
	mustBench(t, 0, "report", file("compare.json"), "--out="+file("compare.html"))
	parts := map[string]string{"beside.md": "| rate ratio |", "beside.json": "\"rate_ratio\": "}
	if testing.Short() {
		parts["beside.html"] = "The baseline was made under other conditions"
	}
	for name, wanted := range parts {
		if content, err := os.ReadFile(file(name)); err != nil || !strings.Contains(string(content), wanted) {
			t.Errorf("%s: %v, `%s` is not there", name, err, wanted)
		}
	}
	browser := startBrowser(t)
	pictures := os.Getenv("PICTURES")
	for _, page := range pages {
		for _, window := range []struct {
			width  int
			scheme string
			always bool
		}{{1280, "light", true}, {400, "dark", true}, {1280, "dark", false}, {400, "light", false}} {
			if testing.Short() && !window.always {
				continue
			}
			name := page.name + "-" + window.scheme + "-" + strconv.Itoa(window.width)
			browser.open(file(page.name+".html"), window.width, window.scheme)
			look(t, browser, name, page.charts)
			if pictures != "" {
				browser.picture(filepath.Join(pictures, name+".png"))
			}
		}
		checkPaper(t, browser, page.name)
		if pictures != "" {
			browser.pdf(filepath.Join(pictures, page.name+".pdf"))
		}
	}
	if len(browser.complaints) > 0 {
		t.Errorf("the console says: %s", strings.Join(browser.complaints, "\n"))
	}
}

// checkPaper looks at the page that is open as it is printed: tables are unfolded, and nothing is cut off.
func checkPaper(t *testing.T, browser *browser, name string) {
	t.Helper()
	browser.paper()
	var seen struct {
		Folded, Cut []string
		Over        bool
	}
	browser.evaluate(`(() => {
		const tables = [...document.querySelectorAll("table")];
		const box = e => e.getBoundingClientRect();
		const name = e => e.caption.textContent + " " + box(e).width + " x " + box(e).height;
		return {
			Folded: tables.filter(e => box(e.rows[1]).height < 5).map(name),
			Cut: tables.filter(e => box(e).right > window.innerWidth || e.parentElement.scrollWidth > e.parentElement.clientWidth + 1).map(name),
			Over: document.documentElement.scrollWidth > window.innerWidth,
		};
	})()`, &seen)
	if len(seen.Folded)+len(seen.Cut) > 0 || seen.Over {
		t.Errorf("%s on paper: %+v", name, seen)
	}
}

// look looks at the page that is open: every chart has a size and marks in it, letters can be read, nothing goes over the edge.
func look(t *testing.T, browser *browser, name string, charts int) {
	t.Helper()
	var seen struct {
		Charts, Empty, Bad, Asked int
		Letters                   float64
		Over                      bool
	}
	browser.evaluate(`(() => {
		const charts = [...document.querySelectorAll("svg.chart")];
		const box = e => e.getBoundingClientRect();
		const marks = c => c.querySelectorAll(".dot, .bar, .cell, .strip").length;
		const size = c => box(c).width / c.viewBox.baseVal.width;
		return {
			Charts: charts.length,
			Empty: charts.filter(c => box(c).width < 200 || box(c).height < 30 || marks(c) == 0).length,
			Bad: (document.documentElement.outerHTML.match(/NaN|Infinity|undefined/g) || []).length,
			Asked: performance.getEntriesByType("resource").length,
			Letters: Math.min(...charts.map(c => size(c) * 12)),
			Over: document.documentElement.scrollWidth > window.innerWidth,
		};
	})()`, &seen)
	if seen.Charts < charts || seen.Empty > 0 || seen.Bad > 0 || seen.Asked > 0 || seen.Letters < 9 || seen.Over {
		t.Errorf("%s: %+v, at least %d charts are wanted", name, seen, charts)
	}

	if told := browser.described(); told != seen.Charts {
		t.Errorf("%s: %d of %d charts are told to those who do not see them", name, told, seen.Charts)
	}

	// The first value shows under the pointer, and nowhere else.
	var place struct{ X, Y float64 }
	browser.evaluate(`(() => {
		const area = document.querySelector(".hit .area");
		area.scrollIntoView({block: "center"});
		const box = area.getBoundingClientRect();
		return {X: box.x + box.width / 2, Y: box.y + box.height / 2};
	})()`, &place)
	browser.point(place.X, place.Y)
	var shown []string
	browser.evaluate(`[...document.querySelectorAll(".tip")].filter(e => getComputedStyle(e).visibility == "visible").map(e => e.textContent)`, &shown)
	if len(shown) != 1 || shown[0] == "" {
		t.Errorf("%s: under the pointer: %q", name, shown)
	}
	browser.point(0, 0)
}

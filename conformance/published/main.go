// Command published runs the black-box suites that etcd publishes as a Go
// module against a server binary, test by test, and compares the outcome with
// the lists of what is not passed yet.
package main

import (
	"flag"
	"fmt"
	"log"
	"os"
	"regexp"
	"time"
)

func main() {
	log.SetFlags(0)
	if len(os.Args) > 1 && os.Args[1] == enterArgument {
		enter(os.Args[2:])
	}
	if len(os.Args) == 3 && os.Args[1] == noFailpoints {
		answerNoFailpoints(os.Args[2])
		return
	}
	var (
		server  = flag.String("server", "", "the server binary; the genuine etcd if empty")
		ctl     = flag.String("tools", "", "the binary to run as `etcdctl` and `etcdutl`; the genuine ones if empty")
		suites  = flag.String("suites", "common,e2e", "which suites to run")
		match   = flag.String("run", ".", "only the tests whose name matches")
		short   = flag.Bool("short", false, "leave out what takes long or is judged by time, and one shape of clusters: the form of CI")
		jobs    = flag.Int("jobs", 3, "tests at a time, each in a network of its own; 1 without that privilege")
		folder  = flag.String("cache", "", "folder for the built tools and suites")
		points  = flag.Bool("failpoints", false, "the server was built with failpoints: only the tests of the suites that need them")
		release = flag.Bool("last-release", false, "put etcd 3.6 beside the server as the release before: only the tests of the suites that need it; three members of a robustness scenario may be of both")
		passes  = flag.Int("passes", 0, "run the scenarios of the robustness suite so many times, and no other suite")
		limit   = flag.Duration("for", 0, "begin no scenario after this time")
		through = flag.Bool("proxy", false, "clients reach each member through `etcd grpc-proxy` of the server binary, as the suites do with the tag cluster_proxy")
		verbose = flag.Bool("v", false, "print the log of each failed test")
	)
	flag.Parse()
	pattern, err := regexp.Compile(*match)
	if err != nil {
		log.Fatalf("-run: %v", err)
	}
	started := time.Now()
	tools, err := build(*folder, *server, *ctl, *points || *passes > 0, *through)
	if err != nil {
		log.Fatal(err)
	}
	if *release {
		if err := tools.addLastRelease(*server); err != nil {
			log.Fatal(err)
		}
	}
	fmt.Printf("built in %v\n", time.Since(started).Round(time.Second))

	options := &run{tools: tools, short: *short, pattern: pattern, jobs: *jobs, verbose: *verbose, only: only(*points, *release)}
	good := false
	if *passes > 0 {
		if good, err = options.scenarioRuns(soak{*passes, *limit}); err != nil {
			log.Print(err)
		}
	} else {
		good = runAll(chosen(*suites), options)
	}
	tools.remove()
	fmt.Printf("%v in all\n", time.Since(started).Round(time.Second))
	if !good {
		os.Exit(1)
	}
}

// runAll runs the suites as the options say, and says whether all went as the
// lists have it.
func runAll(suites []suite, options *run) bool {
	good := true
	for _, suite := range suites {
		run := &run{
			suite: suite, tools: options.tools, short: options.short, pattern: options.pattern,
			jobs: options.jobs, verbose: options.verbose, only: options.only,
		}
		results, err := run.everything()
		if err != nil {
			log.Printf("%s: %v", suite.name, err)
			return false
		}
		good = run.judge(results) && good
	}
	return good
}

package main

import (
	"regexp"
	"slices"
	"strings"
)

// suite is one package of the published tests. All of its tests count; those
// that a list beside this file names are known not to pass, and why.
type suite struct {
	name string
	// timed tests judge by milliseconds: they run last and alone, and not in CI.
	timed *regexp.Regexp
	// slow tests take half a minute and more each, and others of their kind do
	// not: they are not for CI.
	slow *regexp.Regexp
	// mixed tests run on clusters of two releases as well, if there are two.
	mixed bool
}

// toolsList is the file with the tests of all suites that do not pass with our
// tools in the place of the genuine ones.
const toolsList = "tools.txt"

// proxyList is the file with the tests of all suites that do not pass behind a
// gRPC proxy.
const proxyList = "proxy.txt"

// failpointsList is the file with the tests that do not pass with failpoints
// either.
const failpointsList = "failpoints.txt"

// releaseList is the file with the tests that do not pass with the release
// before beside the server either.
const releaseList = "release.txt"

// list is the file with the tests that are known not to pass.
func (s suite) list() string { return s.name + ".txt" }

var suites = []suite{
	{
		name:  "common",
		mixed: true,
		timed: regexp.MustCompile(`^$`),
		slow:  regexp.MustCompile(`^Test(MemberAdd|VerifyHashKVAfterCompact|VerifyHashKVAfterCompactOnLastTombstone)$`),
	},
	{
		name:  "e2e",
		timed: regexp.MustCompile(`^TestWatchDelay`),
		slow: regexp.MustCompile(`^Test(RuntimeReconfig(Grow|Decrease)ClusterSize|CtlV3MemberAddAsLearnerWithOneMemberDown|ForceNewCluster_AddLearner` +
			`|ForceNewCluster$|CtlV3AuthCertCNWithWithConcurrentOperation|InPlaceRecovery|CurlV3_MaxStreamsNoTLS_BelowLimit_Large` +
			`|CurlV3_MaxStreams_ReachLimit_.*_Medium)`),
	},
}

// chosen are the suites with the given names, separated by commas.
func chosen(names string) []suite {
	var found []suite
	for _, suite := range suites {
		if slices.Contains(strings.Split(names, ","), suite.name) {
			found = append(found, suite)
		}
	}
	return found
}

package main

import (
	"regexp"
	"slices"
	"strings"
)

// suite is one package of the published tests, and which of its tests count.
type suite struct {
	name string
	// included tests count, unless they are excluded.
	included, excluded *regexp.Regexp
	// skip names subtests that do not count, as `-test.skip` takes it.
	skip string
	// timed tests judge by milliseconds: they run last and alone, and not in CI.
	timed *regexp.Regexp
}

// suites grow with the server: TLS and authentication are still out of scope.
var suites = []suite{
	{
		name:     "common",
		included: regexp.MustCompile(`.`),
		excluded: regexp.MustCompile(`^TestAuth[A-Z].*|^Test(Role|RootRole|User).*|With(No|Invalid|Root|User)Auth$`),
		skip:     `.*/(^Peer(Auto)?TLS$|"https:|"unixs:)`,
		timed:    regexp.MustCompile(`^$`),
	},
	{
		name: "e2e",
		included: regexp.MustCompile(`^Test(CtlV3(Member|ConsistentMember|MoveLeader|Watch|Lease|Lock|Elect)|RemoveNonExistingMember|MemberReplace` +
			`|GracefulShutdown|ClusterOf|RuntimeReconfig|Watch|DeleteEventDrop|StartWatcherFromCompacted|ResumeCompaction|Lease)`),
		excluded: regexp.MustCompile(`TLS$|TLSDisable|WithAuth|LowPermission`),
		skip:     `.*/^(TLS$|SeparateHTTPTLS$|Secure)`,
		timed:    regexp.MustCompile(`^TestWatchDelay`),
	},
}

// noTLS are names that end like the excluded ones and are not.
var noTLS = regexp.MustCompile(`NoTLS|NonTLS`)

// counts says whether a test, without its subtests, is in scope.
func (s suite) counts(test string) bool {
	return s.included.MatchString(test) && (noTLS.MatchString(test) || !s.excluded.MatchString(test))
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

package ctl

import (
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"cairn.dev/conformance/harness"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/protobuf/encoding/protowire"
)

// watchMax ends a `watch` that prints less than expected.
const watchMax = 30 * time.Second

// session is a script's state on one server: its variables, and what must be
// masked in its output.
type session struct {
	t      testing.TB
	server *harness.Server
	// tool is the etcdctl that runs.
	tool      string
	client    *clientv3.Client
	variables map[string]string
	masks     []mask
	// ids are the cluster's and the member's as a header has them in protobuf.
	ids string
}

// mask replaces what differs between two servers that do the same.
type mask struct {
	pattern *regexp.Regexp
	text    string
}

var commonMasks = []mask{
	{regexp.MustCompile(`"ts":"[^"]*"`), `"ts":"TIME"`},
	{regexp.MustCompile(`etcd-endpoints://0x[0-9a-f]+/`), `etcd-endpoints://POINTER/`},
	{regexp.MustCompile(`took( =)? [0-9.a-zµ]+`), `took TIME`},
	{regexp.MustCompile(`"took":"[^"]*"`), `"took":"TIME"`},
	{regexp.MustCompile(`"Took" : .*`), `"Took" : TIME`},
	// The simple form of `endpoint status`: sizes, then terms and indexes.
	{regexp.MustCompile(`[\d.]+ [kM]?B, [\d.]+ [kM]?B, \d+%`), `SIZES`},
	{regexp.MustCompile(`larger than max \(\d+ vs`), `larger than max (N vs`},
	{regexp.MustCompile(`\b[\d.]+ [kMG]?B │`), `SIZE │`},
	{regexp.MustCompile(`\b\d+% │`), `N% │`},
	{regexp.MustCompile(`(true|false), (true|false), \d+, \d+, \d+,`), `$1, $2, TERM, INDEX, INDEX,`},
	{regexp.MustCompile(`("(?:raft_term|raftTerm|RaftTerm|raftIndex|raftAppliedIndex|RaftIndex|RaftAppliedIndex)"\s*:\s*)\d+`), `${1}N`},
	{regexp.MustCompile(`("(?:dbSize|dbSizeInUse|DBSize|DBSizeInUse|DBSizeQuota)"\s*:\s*)\d+`), `${1}N`},
	{regexp.MustCompile(`remaining\(\d+s\)`), `remaining(Ns)`},
	{regexp.MustCompile(`("(?:ttl|TTL)"\s*:\s*)[1-9]\d+`), `${1}N`},
	{regexp.MustCompile(`LocalAddr: '[^']*'`), `LocalAddr`},
	// Columns of tables are as wide as what is masked in them.
	{regexp.MustCompile(`─+`), `─`},
	{regexp.MustCompile(`  +`), `  `},
	// Keys of locks and elections end in a lease id.
	{regexp.MustCompile(`/[0-9a-f]{12,16}\b`), `/LEASE`},
	// The same in JSON, for a lock named mutex and an election named chair.
	{regexp.MustCompile(`"(bXV0ZXgv|Y2hhaXIv)[^"]*"`), `"$1LEASE"`},
	{regexp.MustCompile(`("[lL]ease"\s*:\s*)\d{12,}`), `${1}N`},
}

func newSession(t testing.TB, server *harness.Server) *session {
	t.Helper()
	return newToolSession(t, server, harness.Tool(t, "etcdctl"))
}

func newToolSession(t testing.TB, server *harness.Server, tool string) *session {
	s := &session{t: t, server: server, tool: tool, client: server.Client(), variables: map[string]string{}}
	members, err := s.client.MemberList(harness.Context(t))
	if err != nil {
		t.Fatal(err)
	}
	s.hide(server.Endpoint(), "CLIENT")
	s.hide(server.PeerURL(), "PEER")
	s.hideID(members.Header.ClusterId, "CLUSTER")
	s.hideID(members.Header.MemberId, "MEMBER")
	ids := protowire.AppendVarint([]byte{0x08}, members.Header.ClusterId)
	s.ids = string(protowire.AppendVarint(append(ids, 0x10), members.Header.MemberId))
	return s
}

func (s *session) hide(text, name string) {
	s.masks = append(s.masks, mask{regexp.MustCompile(regexp.QuoteMeta(text)), name})
}

// hideID hides an id as etcdctl prints it: decimal, hexadecimal with and
// without padding.
func (s *session) hideID(id uint64, name string) {
	hexadecimal := strconv.FormatUint(id, 16)
	s.hide(strings.Repeat("0", 16-len(hexadecimal))+hexadecimal, name)
	s.hide(hexadecimal, name)
	s.hide(strconv.FormatUint(id, 10), name)
}

// run runs one step and returns the masked result.
func (s *session) run(step step, format string, lines int) harness.Result {
	var args []string
	if !strings.HasPrefix(step.words[0], "--endpoints=") {
		args = append(args, "--endpoints="+s.server.Endpoint())
	}
	if len(step.env) == 0 {
		// Passwords take long to check where much else is going on, and the
		// genuine server's syncs.
		args = append(args, "--dial-timeout=20s", "--command-timeout=20s")
	}
	if step.name == "" {
		args = append(args, "-w", format)
	}
	for _, word := range step.words {
		args = append(args, s.expand(word))
	}
	command := harness.Command{
		Path: s.tool, Args: args, Stdin: step.stdin, Env: step.env, Lines: lines,
	}
	if lines > 0 {
		command.Max = watchMax
	}
	result := command.Run(s.t)
	if step.name != "" {
		s.keep(step, result)
	}
	if lines > 0 {
		// It was ended somewhere after them.
		return harness.Result{Stdout: s.masked(head(result.Stdout, lines))}
	}
	return harness.Result{Stdout: s.masked(result.Stdout), Stderr: s.masked(result.Stderr), Code: result.Code}
}

// head is the beginning of a text: so many lines.
func head(text string, lines int) string {
	all := strings.SplitAfter(text, "\n")
	return strings.Join(all[:min(lines, len(all))], "")
}

func (s *session) masked(text string) string {
	// The length before them depends on them.
	if at := strings.Index(text, s.ids); at > 0 {
		text = text[:at-1] + "IDS" + text[at+len(s.ids):]
	}
	for _, mask := range append(s.masks[:len(s.masks):len(s.masks)], commonMasks...) {
		text = mask.pattern.ReplaceAllString(text, mask.text)
	}
	return text
}

var idPattern = regexp.MustCompile(`\b[0-9a-f]{16}\b`)

func (s *session) keep(step step, result harness.Result) {
	id := idPattern.FindString(result.Stdout)
	number, err := strconv.ParseUint(id, 16, 64)
	if err != nil {
		s.t.Fatalf("line %d: no id in %q %q", step.line, result.Stdout, result.Stderr)
	}
	s.variables[step.name] = id
	s.hideID(number, step.name)
}

var variablePattern = regexp.MustCompile(`\$([A-Z]+)\b(-\d+)?`)

func (s *session) expand(word string) string {
	return variablePattern.ReplaceAllStringFunc(word, func(found string) string {
		parts := variablePattern.FindStringSubmatch(found)
		if parts[1] != "REV" {
			value, ok := s.variables[parts[1]]
			if !ok {
				s.t.Fatalf("no variable %s", parts[1])
			}
			return value
		}
		less, _ := strconv.ParseInt("0"+strings.TrimPrefix(parts[2], "-"), 10, 64)
		return strconv.FormatInt(s.revision()-less, 10)
	})
}

func (s *session) revision() int64 {
	response, err := s.client.Get(harness.Context(s.t), "revision?", clientv3.WithCountOnly())
	if err != nil {
		s.t.Fatal(err)
	}
	return response.Header.Revision
}

// Package ctl runs scripts of etcdctl commands against two servers and
// compares what a user would see.
package ctl

import (
	"bufio"
	"fmt"
	"os"
	"strconv"
	"strings"
)

// step is one line of a script.
//
//	put foo bar                a command of etcdctl
//	LEASE = lease grant 600    keeps the first id of the output as $LEASE
//	watch --rev=1 foo @6,1     is ended after 6 lines of output in the first
//	                           format, 1 in the second
//	txn <<                     standard input follows, up to a line `<<`
//	env A=1 B=2 put foo bar    with these variables in the environment
//	formats: simple json       output formats of the whole script
//	prose: because             of the next line only the exit code, the first
//	                           line of errors, and whether there is output at
//	                           all are compared by TestTools
//
// Words may be quoted as in Go. $REV is the current revision, $REV-2 is two
// before it.
type step struct {
	line  int
	name  string
	words []string
	stdin string
	lines []int
	env   []string
	// prose says why not all of the output is compared.
	prose string
}

type script struct {
	formats []string
	steps   []step
}

func parse(path string) (script, error) {
	parsed := script{formats: []string{"simple", "json", "fields"}}
	file, err := os.Open(path)
	if err != nil {
		return parsed, err
	}
	defer file.Close()
	scanner := bufio.NewScanner(file)
	prose := ""
	for number := 1; scanner.Scan(); number++ {
		line := strings.TrimSpace(scanner.Text())
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		if formats, ok := strings.CutPrefix(line, "formats:"); ok {
			parsed.formats = strings.Fields(formats)
			continue
		}
		if reason, ok := strings.CutPrefix(line, "prose:"); ok {
			prose = strings.TrimSpace(reason)
			continue
		}
		next := step{line: number, prose: prose}
		prose = ""
		if next.words, err = split(line); err != nil {
			return parsed, fmt.Errorf("%s:%d: %w", path, number, err)
		}
		if next.words[0] == "env" {
			next.words = next.words[1:]
			for strings.Contains(next.words[0], "=") {
				next.env, next.words = append(next.env, next.words[0]), next.words[1:]
			}
		}
		if len(next.words) > 2 && next.words[1] == "=" {
			next.name, next.words = next.words[0], next.words[2:]
		}
		last := next.words[len(next.words)-1]
		if last == "<<" {
			next.words = next.words[:len(next.words)-1]
			for scanner.Scan() && scanner.Text() != "<<" {
				next.stdin += scanner.Text() + "\n"
				number++
			}
			number++
		}
		if strings.HasPrefix(last, "@") {
			next.words = next.words[:len(next.words)-1]
			for _, count := range strings.Split(last[1:], ",") {
				lines, err := strconv.Atoi(count)
				if err != nil {
					return parsed, fmt.Errorf("%s:%d: %w", path, number, err)
				}
				next.lines = append(next.lines, lines)
			}
		}
		parsed.steps = append(parsed.steps, next)
	}
	return parsed, scanner.Err()
}

// split cuts a line into words; a word in double quotes is a Go string.
func split(line string) ([]string, error) {
	var words []string
	for line = strings.TrimSpace(line); line != ""; line = strings.TrimSpace(line) {
		if line[0] == '"' {
			quoted, err := strconv.QuotedPrefix(line)
			if err != nil {
				return nil, fmt.Errorf("`%s`: %w", line, err)
			}
			word, err := strconv.Unquote(quoted)
			if err != nil {
				return nil, fmt.Errorf("`%s`: %w", quoted, err)
			}
			words, line = append(words, word), line[len(quoted):]
			continue
		}
		word, rest, _ := strings.Cut(line, " ")
		words, line = append(words, word), rest
	}
	return words, nil
}

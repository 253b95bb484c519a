package main

import (
	"bufio"
	"fmt"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"
)

// usage is what a process has used: seconds of CPU, bytes of memory.
type usage struct {
	cpu                 float64
	resident, anonymous int64
}

// ticksPerSecond is the unit of /proc/PID/stat on Linux.
const ticksPerSecond = 100

func usageOf(pid int) (usage, error) {
	var u usage
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return u, err
	}
	for line := range strings.Lines(string(status)) {
		parts := strings.Fields(line)
		if len(parts) < 2 {
			continue
		}
		kibibytes, _ := strconv.ParseInt(parts[1], 10, 64)
		switch parts[0] {
		case "VmRSS:":
			u.resident = kibibytes << 10
		case "RssAnon:":
			u.anonymous = kibibytes << 10
		}
	}
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return u, err
	}
	// The name in brackets may hold spaces; the 14th and 15th fields are the
	// times in user and system mode.
	parts := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
	for _, part := range parts[11:13] {
		ticks, err := strconv.ParseFloat(part, 64)
		if err != nil {
			return u, err
		}
		u.cpu += ticks / ticksPerSecond
	}
	return u, nil
}

// sampling notes the highest memory of a process, every few milliseconds.
type sampling struct {
	pid        int
	first, top usage
	stop       chan struct{}
	stopped    chan error
}

const sampleTime = 5 * time.Millisecond

func watchUsage(pid int) (*sampling, error) {
	first, err := usageOf(pid)
	if err != nil {
		return nil, err
	}
	s := &sampling{pid: pid, first: first, top: first, stop: make(chan struct{}), stopped: make(chan error, 1)}
	go func() {
		for {
			now, err := usageOf(pid)
			if err != nil {
				s.stopped <- err
				return
			}
			s.top.resident, s.top.anonymous = max(s.top.resident, now.resident), max(s.top.anonymous, now.anonymous)
			select {
			case <-s.stop:
				s.top.cpu = now.cpu
				s.stopped <- nil
				return
			case <-time.After(sampleTime):
			}
		}
	}()
	return s, nil
}

// end is what was used since the beginning; memory is the highest growth.
func (s *sampling) end() (usage, error) {
	close(s.stop)
	err := <-s.stopped
	return usage{s.top.cpu - s.first.cpu, s.top.resident - s.first.resident, s.top.anonymous - s.first.anonymous}, err
}

// streamCalls is how many calls of RangeStream the server has begun.
func streamCalls(endpoint string) (int, error) {
	response, err := http.Get(endpoint + "/metrics")
	if err != nil {
		return 0, err
	}
	defer response.Body.Close()
	lines := bufio.NewScanner(response.Body)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		line := lines.Text()
		if strings.HasPrefix(line, "grpc_server_started_total{") && strings.Contains(line, `"RangeStream"`) {
			value, err := strconv.ParseFloat(line[strings.LastIndexByte(line, ' ')+1:], 64)
			return int(value), err
		}
	}
	return 0, lines.Err()
}

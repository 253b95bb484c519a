// Package benchpages runs the studies of `cairn bench` (sweep, compare,
// report) as a user does, and looks at their pages in a browser.
package benchpages

import (
	"bufio"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"cairn.dev/conformance/harness"
)

// answerMax is how long the browser may take for one answer.
const answerMax = 60 * time.Second

// browser is a headless Chromium, driven over a pipe by its DevTools protocol.
type browser struct {
	t        testing.TB
	in       *os.File
	messages chan message
	session  string
	last     int
	// complaints are errors of the console and of the page.
	complaints []string
}

type message struct {
	ID     int             `json:"id"`
	Method string          `json:"method"`
	Params json.RawMessage `json:"params"`
	Result json.RawMessage `json:"result"`
	Error  json.RawMessage `json:"error"`
}

// chromium is the path of the browser, which is installed where it is absent.
func chromium(t testing.TB) string {
	t.Helper()
	if path, err := exec.LookPath("chromium"); err == nil {
		return path
	}
	install := exec.Command("sh", "-c", "apt-get update -qq && apt-get install -y -qq chromium")
	if output, err := install.CombinedOutput(); err != nil {
		harness.Unproved(t, fmt.Sprintf("pages are looked at with chromium, and it cannot be installed: %v\n%s", err, output))
	}
	path, err := exec.LookPath("chromium")
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// startBrowser starts one with a profile of its own and an empty page.
func startBrowser(t testing.TB) *browser {
	t.Helper()
	toBrowser, in, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	out, fromBrowser, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	command := exec.Command(chromium(t), "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
		"--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage",
		"--hide-scrollbars", "--user-data-dir="+t.TempDir(), "--remote-debugging-pipe", "about:blank")
	// The browser reads from 3 and writes to 4.
	command.ExtraFiles = []*os.File{toBrowser, fromBrowser}
	command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	toBrowser.Close()
	fromBrowser.Close()
	t.Cleanup(func() {
		in.Close()
		syscall.Kill(-command.Process.Pid, syscall.SIGKILL)
		command.Wait()
		out.Close()
	})
	b := &browser{t: t, in: in, messages: make(chan message, 1000)}
	go b.receive(out)

	var target struct{ TargetID string }
	b.call("Target.createTarget", map[string]any{"url": "about:blank"}, &target)
	var attached struct{ SessionID string }
	b.call("Target.attachToTarget", map[string]any{"targetId": target.TargetID, "flatten": true}, &attached)
	b.session = attached.SessionID
	for _, domain := range []string{"Page", "Runtime", "Log"} {
		b.call(domain+".enable", nil, nil)
	}
	return b
}

// receive reads messages, each with a zero byte behind it.
func (b *browser) receive(out *os.File) {
	defer close(b.messages)
	reader := bufio.NewReader(out)
	for {
		text, err := reader.ReadBytes(0)
		if err != nil {
			return
		}
		var m message
		if json.Unmarshal(text[:len(text)-1], &m) == nil {
			b.messages <- m
		}
	}
}

// call calls a method and waits for its answer.
func (b *browser) call(method string, params map[string]any, result any) {
	b.t.Helper()
	b.last++
	request := map[string]any{"id": b.last, "method": method}
	if params != nil {
		request["params"] = params
	}
	if b.session != "" {
		request["sessionId"] = b.session
	}
	text, err := json.Marshal(request)
	if err != nil {
		b.t.Fatal(err)
	}
	if _, err := b.in.Write(append(text, 0)); err != nil {
		b.t.Fatal(err)
	}
	id := b.last
	answer := b.await(method, func(m message) bool { return m.ID == id })
	if answer.Error != nil {
		b.t.Fatalf("%s: %s", method, answer.Error)
	}
	if result != nil {
		if err := json.Unmarshal(answer.Result, result); err != nil {
			b.t.Fatalf("%s: %v", method, err)
		}
	}
}

// await returns the next message that is wanted; complaints on the way are kept.
func (b *browser) await(what string, wanted func(message) bool) message {
	b.t.Helper()
	deadline := time.After(answerMax)
	for {
		select {
		case m, open := <-b.messages:
			if !open {
				b.t.Fatalf("the browser has ended before `%s` was done", what)
			}
			if m.Method == "Runtime.exceptionThrown" || m.Method == "Log.entryAdded" || m.Method == "Runtime.consoleAPICalled" {
				b.complaints = append(b.complaints, string(m.Params))
			}
			if wanted(m) {
				return m
			}
		case <-deadline:
			b.t.Fatalf("no answer to `%s`", what)
		}
	}
}

// open shows a file in a window of so many pixels, in the light or dark scheme.
func (b *browser) open(path string, width int, scheme string) {
	b.t.Helper()
	b.call("Emulation.setDeviceMetricsOverride", map[string]any{
		"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 600,
	}, nil)
	b.call("Emulation.setEmulatedMedia", map[string]any{
		"media":    "screen",
		"features": []map[string]string{{"name": "prefers-color-scheme", "value": scheme}},
	}, nil)
	b.call("Page.navigate", map[string]any{"url": "file://" + path}, nil)
	b.await("load", func(m message) bool { return m.Method == "Page.loadEventFired" })
}

// paper shows the page that is open as it is printed, as wide as A4 on its side
// between its margins.
func (b *browser) paper() {
	b.t.Helper()
	b.call("Emulation.setDeviceMetricsOverride", map[string]any{"width": 1039, "height": 720, "deviceScaleFactor": 1, "mobile": false}, nil)
	b.call("Emulation.setEmulatedMedia", map[string]any{"media": "print"}, nil)
}

// pdf prints the page into a file.
func (b *browser) pdf(path string) {
	b.t.Helper()
	var printed struct{ Data string }
	b.call("Page.printToPDF", map[string]any{"preferCSSPageSize": true, "printBackground": true}, &printed)
	b.keep(path, printed.Data)
}

// evaluate is the value of an expression in the page.
func (b *browser) evaluate(expression string, result any) {
	b.t.Helper()
	var answer struct {
		Result           struct{ Value json.RawMessage }
		ExceptionDetails json.RawMessage
	}
	b.call("Runtime.evaluate", map[string]any{"expression": expression, "returnByValue": true}, &answer)
	if answer.ExceptionDetails != nil {
		b.t.Fatalf("%s: %s", strings.TrimSpace(expression), answer.ExceptionDetails)
	}
	if err := json.Unmarshal(answer.Result.Value, result); err != nil {
		b.t.Fatal(err)
	}
}

// described is how many pictures of the page have a name and a description for
// who has the page read aloud.
func (b *browser) described() (count int) {
	b.t.Helper()
	type value struct{ Value any }
	var tree struct {
		Nodes []struct{ Role, Name, Description value }
	}
	b.call("Accessibility.getFullAXTree", nil, &tree)
	for _, node := range tree.Nodes {
		name, _ := node.Name.Value.(string)
		description, _ := node.Description.Value.(string)
		if node.Role.Value == "image" && name != "" && description != "" {
			count++
		}
	}
	return count
}

// point moves the pointer.
func (b *browser) point(x, y float64) {
	b.t.Helper()
	b.call("Input.dispatchMouseEvent", map[string]any{"type": "mouseMoved", "x": x, "y": y}, nil)
}

// picture puts the whole page into a PNG file.
func (b *browser) picture(path string) {
	b.t.Helper()
	var shot struct{ Data string }
	b.call("Page.captureScreenshot", map[string]any{"format": "png", "captureBeyondViewport": true}, &shot)
	b.keep(path, shot.Data)
}

// keep writes what the browser has sent.
func (b *browser) keep(path, data string) {
	b.t.Helper()
	content, err := base64.StdEncoding.DecodeString(data)
	if err == nil {
		err = os.WriteFile(path, content, 0o600)
	}
	if err != nil {
		b.t.Fatal(fmt.Errorf("picture: %w", err))
	}
}

package process

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"cairn.dev/conformance/harness"
)

// records waits until the audit log holds as many lines as wanted.
func records(t *testing.T, path string, wanted int) (found []map[string]any) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		content, err := os.ReadFile(path)
		if err != nil {
			continue
		}
		found = nil
		for line := range strings.Lines(string(content)) {
			record := map[string]any{}
			if err := json.Unmarshal([]byte(line), &record); err != nil {
				break
			}
			found = append(found, record)
		}
		if len(found) >= wanted {
			return found
		}
	}
	t.Fatalf("%d records instead of %d: %v", len(found), wanted, found)
	return nil
}

// Writes, logins and what operators do leave a trail: who, from where, what,
// and how it ended. Nothing of it is a secret.
func TestAudit(t *testing.T) {
	t.Parallel()
	if harness.Subject() == harness.Etcd {
		t.Skip("etcd has no audit log")
	}
	path := filepath.Join(t.TempDir(), "new", "audit.log")
	server := harness.Start(t, harness.Subject(), "--audit-log="+path, "--bcrypt-cost=4")
	server.MustCtl("put", "a", "the-value")
	server.MustCtl("get", "a")
	server.MustCtl("user", "add", "root:the-password")
	server.MustCtl("user", "grant-role", "root", "root")
	server.MustCtl("auth", "enable")
	if server.Ctl("--user=root:wrong-password", "put", "a", "1").Code == 0 {
		t.Error("a wrong password is taken")
	}
	if server.Ctl("put", "a", "1").Code == 0 {
		t.Error("a put without a user is taken")
	}
	server.MustCtl("--user=root:the-password", "del", "a", "b")
	server.MustCtl("--user=root:the-password", "snapshot", "save", filepath.Join(t.TempDir(), "snapshot"))
	server.MustCtl("--user=root:the-password", "defrag")

	var told []string
	for _, record := range records(t, path, 13) {
		keys := ""
		if list, ok := record["keys"].([]any); ok {
			for _, one := range list {
				entry := one.(map[string]any)
				keys += fmt.Sprintf(" %v %v..%v", entry["op"], entry["key"], entry["end"])
			}
		}
		if from := fmt.Sprint(record["from"]); !strings.HasPrefix(from, "127.0.0.1:") {
			t.Errorf("a record from %s", from)
		}
		method := fmt.Sprint(record["method"])
		told = append(told, fmt.Sprintf("%v %s%s user=%v %v", record["class"], method[strings.LastIndex(method, "/")+1:], keys, record["user"], record["code"]))
	}
	wanted := []string{
		"write Put put a..<nil> user= OK",
		"auth UserAdd user= OK",
		"auth UserGrantRole user= OK",
		"auth AuthEnable user= OK",
		"login Authenticate user= InvalidArgument",
		"write Put put a..<nil> user= InvalidArgument",
		"login Authenticate user= OK",
		"write DeleteRange delete a..b user=root OK",
		"login Authenticate user= OK",
		"maintenance Snapshot user=root OK",
		"login Authenticate user= OK",
		"maintenance Defragment user=root OK",
	}
	missing := wanted
	for _, line := range told {
		if len(missing) > 0 && line == missing[0] {
			missing = missing[1:]
		}
	}
	if len(missing) > 0 {
		t.Errorf("missing %q and what follows in\n%s", missing[0], strings.Join(told, "\n"))
	}
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	// Nothing secret is in it, nor a read.
	for _, secret := range []string{"the-value", "the-password", "wrong-password", "/Range\""} {
		if strings.Contains(string(content), secret) {
			t.Errorf("the audit log has %q:\n%s", secret, content)
		}
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the mode of the audit log: %v %v", info.Mode(), err)
	}
	for _, line := range []string{
		"added a user", "granted a role to a user", "enabled authentication", "invalid password",
		"sending database snapshot to client", "successfully sent database snapshot to client",
	} {
		server.AwaitLog(t, `"msg":"`+line)
	}
	log := server.Log()
	if strings.Contains(log, "the-password") || strings.Contains(log, "wrong-password") {
		t.Error("the log has a password")
	}
}

// What a transaction writes is in its record, whatever it reads before, and in
// whichever branch it is.
func TestAuditOfTransactions(t *testing.T) {
	t.Parallel()
	if harness.Subject() == harness.Etcd {
		t.Skip("etcd has no audit log")
	}
	path := filepath.Join(t.TempDir(), "audit.log")
	server := harness.Start(t, harness.Subject(), "--audit-log="+path)
	reads := make([]clientv3.Op, 100)
	for i := range reads {
		reads[i] = clientv3.OpGet(fmt.Sprint("harmless", i))
	}
	write := append(append([]clientv3.Op{}, reads...), clientv3.OpDelete("victim"))
	absent := clientv3.Compare(clientv3.CreateRevision("absent"), "=", 0)
	present := clientv3.Compare(clientv3.CreateRevision("absent"), ">", 0)
	for _, compare := range []clientv3.Cmp{absent, present} {
		if _, err := server.Client().Txn(t.Context()).If(compare).Then(reads...).Else(write...).Commit(); err != nil {
			t.Fatal(err)
		}
	}
	for i, record := range records(t, path, 2) {
		if keys := fmt.Sprint(record["keys"]); keys != "[map[branch:failure key:victim op:delete]]" {
			t.Errorf("the keys of the record: %s", keys)
		}
		if record["succeeded"] != (i == 0) {
			t.Errorf("transaction %d: %v", i, record)
		}
	}
}

// A token that is not valid has one line in the log, with an audit log as
// without.
func TestInvalidTokenIsToldOnce(t *testing.T) {
	t.Parallel()
	if harness.Subject() == harness.Etcd {
		t.Skip("etcd has no audit log")
	}
	server := harness.Start(t, harness.Subject(), "--bcrypt-cost=4", "--audit-log="+filepath.Join(t.TempDir(), "audit.log"))
	server.MustCtl("user", "add", "root:pw")
	server.MustCtl("user", "grant-role", "root", "root")
	server.MustCtl("auth", "enable")
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, server.URL("/v3/kv/put"), strings.NewReader(`{"key":"YQ=="}`))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Authorization", "nonsense.1")
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	response.Body.Close()
	server.MustCtl("--user=root:pw", "role", "add", "later")
	server.AwaitLog(t, "created a role")
	if count := strings.Count(server.Log(), `"msg":"invalid auth token"`); response.StatusCode == http.StatusOK || count != 1 {
		t.Errorf("status %d, %d lines", response.StatusCode, count)
	}
}

// Names that a client chose do not fill the log.
func TestLongNamesInTheLog(t *testing.T) {
	t.Parallel()
	if harness.Subject() == harness.Etcd {
		t.Skip("etcd writes names of any length")
	}
	server := harness.Start(t, harness.Subject(), "--bcrypt-cost=4")
	name := strings.Repeat("u", 5_000)
	server.MustCtl("user", "add", "root:pw")
	server.MustCtl("user", "add", name+":pw")
	for _, user := range []string{"root", name} {
		server.MustCtl("user", "grant-role", user, "root")
	}
	server.MustCtl("auth", "enable")
	server.MustCtl("--user="+name+":pw", "role", "add", "reader")
	server.AwaitLog(t, "created a role")
	server.Ctl("--user="+name+":wrong", "get", "a")
	server.AwaitLog(t, `"msg":"invalid password"`)
	if log := server.Log(); strings.Contains(log, name[:300]) || !strings.Contains(log, `"requested-by":"`+name[:256]+`"`) {
		t.Error("the log has a long name, or nothing of it")
	}
}

// Reads are recorded if that is asked for; watches one by one.
func TestAuditOfReads(t *testing.T) {
	t.Parallel()
	if harness.Subject() == harness.Etcd {
		t.Skip("etcd has no audit log")
	}
	path := filepath.Join(t.TempDir(), "audit.log")
	server := harness.Start(t, harness.Subject(), "--audit-log="+path, "--audit-log-reads")
	client := server.Client()
	watch := client.Watch(t.Context(), "w")
	server.MustCtl("get", "a", "b")
	_ = watch
	seen := map[string]bool{}
	for _, record := range records(t, path, 2) {
		if list, ok := record["keys"].([]any); ok && record["class"] == "read" {
			entry := list[0].(map[string]any)
			seen[fmt.Sprintf("%v %v", entry["op"], entry["key"])] = true
		}
	}
	if !seen["range a"] || !seen["watch w"] {
		t.Errorf("seen: %v", seen)
	}
}

// An audit log that cannot be opened refuses the start; one whose disk is full
// costs records, which are counted, and no request.
func TestAuditThatCannotBeWritten(t *testing.T) {
	t.Parallel()
	if harness.Subject() == harness.Etcd {
		t.Skip("etcd has no audit log")
	}
	refused := harness.Prepare(t, harness.Subject(), t.TempDir()+"/data", "--audit-log=/proc/none/audit.log")
	if err := refused.TryRun(time.Minute); err == nil || !strings.Contains(err.Error(), "cannot write the audit log /proc/none/audit.log") {
		t.Errorf("the start: %v", err)
	}
	server := harness.Start(t, harness.Subject(), "--audit-log=/dev/full")
	for range 3 {
		server.MustCtl("put", "a", "1")
	}
	server.AwaitLog(t, "lines of the audit log are lost")
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		family := families(t, server)["cairn_audit_records_total"]
		if family != nil && len(family.Metric) == 2 && family.Metric[1].GetCounter().GetValue() >= 3 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("dropped records are not counted: %v", family)
		}
	}
}

// A pipe that nobody reads, and words that are no file, refuse the start.
func TestAuditLogThatIsNoFile(t *testing.T) {
	t.Parallel()
	if harness.Subject() == harness.Etcd {
		t.Skip("etcd has no audit log")
	}
	pipe := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	for value, said := range map[string]string{pipe: "a pipe that has no reader", "stdout": "it must be a file, or stderr"} {
		refused := harness.Prepare(t, harness.Subject(), t.TempDir()+"/data", "--audit-log="+value)
		if err := refused.TryRun(time.Minute); err == nil || !strings.Contains(err.Error(), said) {
			t.Errorf("%s: %v", value, err)
		}
	}
}

// A SIGHUP that comes while the member is still starting opens the audit log
// anew, too.
func TestHangupDuringTheStart(t *testing.T) {
	t.Parallel()
	if harness.Subject() == harness.Etcd {
		t.Skip("SIGHUP ends etcd")
	}
	dir := t.TempDir()
	key, audit := filepath.Join(dir, "key"), filepath.Join(dir, "audit.log")
	// The start waits for someone to write the key.
	if err := syscall.Mkfifo(key, 0o600); err != nil {
		t.Fatal(err)
	}
	server := harness.Prepare(t, harness.Subject(), dir+"/data", "--audit-log="+audit, "--auth-token=jwt,sign-method=HS256,priv-key="+key)
	seen := server.Launch()
	// It opens once the member reads.
	writer, err := os.OpenFile(key, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(audit, audit+".1"); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(server.Pid(), syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	server.AwaitLog(t, "opened the audit log anew")
	if _, err := writer.WriteString(strings.Repeat("k", 64)); err != nil {
		t.Fatal(err)
	}
	writer.Close()
	if err := server.AwaitReady(seen, time.Minute); err != nil {
		t.Fatal(err)
	}
	server.MustCtl("put", "a", "1")
	if found := records(t, audit, 1); len(found) != 1 {
		t.Errorf("the new audit log: %v", found)
	}
}

// SIGHUP opens log files anew after another program has moved them away, and
// reads certificates anew; the member goes on.
func TestHangup(t *testing.T) {
	t.Parallel()
	if harness.Subject() == harness.Etcd {
		t.Skip("SIGHUP ends etcd")
	}
	dir := filepath.Join(t.TempDir(), "logs", "of", "cairn")
	log, audit := filepath.Join(dir, "cairn.log"), filepath.Join(dir, "audit.log")
	server := harness.Start(t, harness.Subject(), "--log-outputs=stderr,"+log, "--audit-log="+audit)
	server.MustCtl("put", "a", "1")
	records(t, audit, 1)
	for _, path := range []string{log, audit} {
		if err := os.Rename(path, path+".1"); err != nil {
			t.Fatal(err)
		}
	}
	if err := syscall.Kill(server.Pid(), syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	server.AwaitLog(t, "received SIGHUP: opened log files anew, read certificates anew")
	server.AwaitLog(t, "opened the audit log anew")
	server.MustCtl("put", "b", "1")
	if found := records(t, audit, 1); len(found) != 1 {
		t.Errorf("the new audit log: %v", found)
	}
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		if content, _ := os.ReadFile(log); strings.Contains(string(content), "received SIGHUP") {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("the new log file does not get lines")
		}
	}
}

package packages

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// A member on a real systemd, in a container of the host's kernel.
const service = `[Unit]
After=multi-user.target
SuccessAction=poweroff
FailureAction=poweroff
[Service]
Type=oneshot
ExecStart=/root/lifecycle.sh
StandardOutput=file:/root/out
StandardError=file:/root/out
[Install]
WantedBy=default.target
`

// A package that wants etcd's server and client.
const wantsEtcd = `Package: needs-etcd
Version: 1
Architecture: all
Maintainer: nobody <nobody@example.invalid>
Depends: etcd-server (>= 3.4), etcd-client
Description: wants what Debian calls so
`

// debian is a fresh copy of a Debian with systemd and rpm, which debootstrap makes once.
func debian(t *testing.T) string {
	t.Helper()
	cache, err := os.UserCacheDir()
	if err != nil {
		t.Fatal(err)
	}
	const suite = "bookworm"
	base := filepath.Join(cache, "cairn-conformance", "debian-"+suite)
	if _, err := os.Stat(base); err != nil {
		mirror := strings.TrimSpace(run(t, "sh", "-c", `apt-get indextargets --format '$(SITE)' 'Created-By: Packages' | head -1`))
		run(t, "rm", "-rf", base+".new")
		run(t, "mkdir", "-p", filepath.Dir(base))
		run(t, "debootstrap", "--variant=minbase", "--include=systemd,systemd-sysv,dbus,rpm", suite, base+".new", mirror)
		if err := os.Rename(base+".new", base); err != nil {
			t.Fatal(err)
		}
	}
	dir := filepath.Join(t.TempDir(), "debian")
	run(t, "cp", "-a", base, dir)
	return dir
}

// Both kinds of packages are installed, used, upgraded under load, removed and installed again, on a booted system.
func TestPackages(t *testing.T) {
	one, two := release(t, first), release(t, second)
	needs(t, "systemd-nspawn", "debootstrap", "dpkg-deb")
	dir := debian(t)
	inside := func(name string) string { return filepath.Join(dir, "root", name) }
	for name, from := range map[string]string{
		"one.deb": one + "-linux-amd64.deb", "two.deb": two + "-linux-amd64.deb",
		"one.rpm": one + "-linux-amd64.rpm", "two.rpm": two + "-linux-amd64.rpm",
		"lifecycle.sh": "lifecycle.sh",
	} {
		run(t, "cp", from, inside(name))
	}
	control := filepath.Join(t.TempDir(), "needs", "DEBIAN")
	if err := os.MkdirAll(control, 0o755); err != nil {
		t.Fatal(err)
	}
	write := func(path, text string) {
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write(filepath.Join(control, "control"), wantsEtcd)
	run(t, "dpkg-deb", "--build", filepath.Dir(control), inside("needs.deb"))
	unit := filepath.Join(dir, "etc/systemd/system/lifecycle.service")
	write(unit, service)
	wants := filepath.Join(dir, "etc/systemd/system/default.target.wants")
	if err := os.MkdirAll(wants, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("../lifecycle.service", filepath.Join(wants, "lifecycle.service")); err != nil {
		t.Fatal(err)
	}

	command := exec.Command("systemd-nspawn", "--directory="+dir, "--register=no", "--keep-unit", "--private-network", "--console=pipe", "--boot")
	command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	timer := time.AfterFunc(10*time.Minute, func() { command.Process.Signal(syscall.SIGTERM) })
	console, err := command.CombinedOutput()
	timer.Stop()
	output, failed := os.ReadFile(inside("out"))
	if failed != nil {
		t.Fatalf("the system did not run the script: %v, %v\n%s", failed, err, console)
	}
	if !strings.HasSuffix(string(output), "\nPASSED\n") {
		t.Fatalf("%v\n%s", err, output)
	}
}

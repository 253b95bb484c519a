package main

import (
	"fmt"
	"log"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// enterArgument starts this program inside a fresh network, before it becomes
// the test binary.
const enterArgument = "enter-network"

// outside is the second address of a fresh network. One test asks for the
// machine's address by way of 8.8.8.8, which must therefore have a route.
var outside = [4]byte{8, 8, 8, 1}

// enter gives the fresh network its loopback device with two addresses, and
// becomes the command.
func enter(command []string) {
	if err := raiseLoopback(); err != nil {
		log.Fatalf("raise lo: %v", err)
	}
	log.Fatal(syscall.Exec(command[0], command, os.Environ()))
}

func raiseLoopback() error {
	socket, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(socket)
	device, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	device.SetUint16(unix.IFF_UP | unix.IFF_RUNNING)
	if err := unix.IoctlIfreq(socket, unix.SIOCSIFFLAGS, device); err != nil {
		return err
	}
	second, err := unix.NewIfreq("lo:1")
	if err != nil {
		return err
	}
	if err := second.SetInet4Addr(outside[:]); err != nil {
		return err
	}
	return unix.IoctlIfreq(socket, unix.SIOCSIFADDR, second)
}

// ownNetwork makes the command start in a network of its own: the suites use
// fixed ports, which no other process can then hold.
func ownNetwork(command *exec.Cmd) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	command.Args = append([]string{self, enterArgument, command.Path}, command.Args[1:]...)
	command.Path = self
	command.SysProcAttr.Cloneflags = syscall.CLONE_NEWNET
	return nil
}

// canIsolate says whether this process may make networks.
func canIsolate() bool {
	probe := exec.Command("true")
	probe.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET}
	return probe.Run() == nil
}

// adoptOrphans makes what a dead test binary leaves behind children of this
// process.
func adoptOrphans() error {
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("adopt orphans: %w", err)
	}
	return nil
}

// killOrphans ends the processes that test binaries left behind: children of
// this process that it did not start itself.
func killOrphans(own map[int]bool) {
	for deadline := time.Now().Add(5 * time.Second); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		left := 0
		for _, pid := range children() {
			if own[pid] {
				continue
			}
			left++
			syscall.Kill(pid, syscall.SIGKILL)
			var status syscall.WaitStatus
			syscall.Wait4(pid, &status, syscall.WNOHANG, nil)
		}
		if left == 0 {
			break
		}
	}
}

// children are the processes whose parent is this one.
func children() []int {
	var found []int
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	for _, entry := range entries {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil {
			continue
		}
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil {
			continue
		}
		// The fields follow the program's name, which may hold anything.
		_, fields, _ := strings.Cut(string(stat[strings.LastIndexByte(string(stat), ')')+1:]), " ")
		parts := strings.Fields(fields)
		if len(parts) > 1 && parts[1] == strconv.Itoa(os.Getpid()) {
			found = append(found, pid)
		}
	}
	return found
}

// lock waits for an exclusive lock on a file; it ends with the process.
func lock(path string) (unlock func(), err error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	for {
		err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX)
		if err == nil {
			return func() { file.Close() }, nil
		}
		if err != syscall.EINTR {
			file.Close()
			return nil, fmt.Errorf("lock `%s`: %w", path, err)
		}
	}
}

package network

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"

	"golang.org/x/sys/unix"
)

// space is a network namespace with a loopback device and one point-to-point
// device, whose packets the test forwards itself. It goes away with its
// descriptors.
type space struct {
	namespace *os.File
	device    *os.File
}

const deviceName = "tun0"

// newSpace makes a namespace whose device has the address, in a /24.
func newSpace(address string) (*space, error) {
	s := &space{}
	unshare := func() error { return unix.Unshare(unix.CLONE_NEWNET) }
	if err := elsewhere(unshare, func() error { return s.equip(address) }); err != nil {
		s.close()
		return nil, fmt.Errorf("a network namespace for %s: %w", address, err)
	}
	return s, nil
}

// adoptSpace gives the namespace of this process such a device.
func adoptSpace(address string) (*space, error) {
	s := &space{}
	if err := s.equip(address); err != nil {
		s.close()
		return nil, fmt.Errorf("a device for %s: %w", address, err)
	}
	return s, nil
}

// equip gives the namespace of this thread its devices.
func (s *space) equip(address string) error {
	namespace, err := os.Open(threadNamespace())
	if err != nil {
		return err
	}
	s.namespace = namespace
	descriptor, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open /dev/net/tun: %w", err)
	}
	request, err := unix.NewIfreq(deviceName)
	if err != nil {
		return err
	}
	request.SetUint16(unix.IFF_TUN | unix.IFF_NO_PI)
	if err := unix.IoctlIfreq(descriptor, unix.TUNSETIFF, request); err != nil {
		unix.Close(descriptor)
		return fmt.Errorf("TUNSETIFF: %w", err)
	}
	if err := unix.SetNonblock(descriptor, true); err != nil {
		return err
	}
	s.device = os.NewFile(uintptr(descriptor), deviceName)
	for _, arguments := range [][]string{
		{"link", "set", "lo", "up"},
		{"addr", "add", address + "/24", "dev", deviceName},
		// Room for bursts: what overflows here would be loss that nobody asked for.
		{"link", "set", deviceName, "up", "txqueuelen", "10000"},
	} {
		if output, err := exec.Command("ip", arguments...).CombinedOutput(); err != nil {
			return fmt.Errorf("ip %v: %w: %s", arguments, err, output)
		}
	}
	return nil
}

// run runs a function on a thread inside the namespace. Sockets and processes
// that it makes stay there.
func (s *space) run(function func() error) error {
	return elsewhere(func() error { return unix.Setns(int(s.namespace.Fd()), unix.CLONE_NEWNET) }, function)
}

// elsewhere enters a namespace, runs a function there, and goes back. The thread
// must not end instead: with it would end what it has started for other tests.
func elsewhere(enter, function func() error) error {
	runtime.LockOSThread()
	before, err := os.Open(threadNamespace())
	if err != nil {
		runtime.UnlockOSThread()
		return err
	}
	defer before.Close()
	if err := enter(); err != nil {
		runtime.UnlockOSThread()
		return fmt.Errorf("enter the namespace: %w", err)
	}
	defer func() {
		// One that cannot go back stays locked, so it ends with its goroutine.
		if unix.Setns(int(before.Fd()), unix.CLONE_NEWNET) == nil {
			runtime.UnlockOSThread()
		}
	}()
	return function()
}

func (s *space) close() {
	for _, file := range []*os.File{s.device, s.namespace} {
		if file != nil {
			file.Close()
		}
	}
}

func threadNamespace() string { return fmt.Sprintf("/proc/self/task/%d/ns/net", unix.Gettid()) }

package main

import (
	"flag"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"time"
)

// Base is what one put of one client cannot be cheaper than on this machine: its bytes over loopback to another
// process and back, and one write with fdatasync into a file that is already allocated.
type Base struct {
	RoundTrip Micros `json:"round_trip_us"`
	Fdatasync Micros `json:"fdatasync_us"`
}

// Micros is a distribution of times in microseconds.
type Micros struct {
	Mean   float64 `json:"mean"`
	Median float64 `json:"median"`
	P99    float64 `json:"p99"`
	Count  int     `json:"count"`
}

func runBase(arguments []string) (any, error) {
	flags := flag.NewFlagSet("base", flag.ExitOnError)
	directory := flags.String("dir", ".", "directory on the disk to measure")
	seconds := flags.Float64("seconds", 1, "time for each of the two measurements")
	request := flags.Int("request-bytes", 330, "bytes of a request, and of a record on disk")
	reply := flags.Int("reply-bytes", 80, "bytes of an answer")
	_ = flags.Parse(arguments)
	duration := time.Duration(*seconds * float64(time.Second))

	roundTrip, err := measureRoundTrip(duration, *request, *reply)
	if err != nil {
		return nil, err
	}
	fdatasync, err := measureFdatasync(duration, *directory, *request)
	if err != nil {
		return nil, err
	}
	return Base{RoundTrip: roundTrip, Fdatasync: fdatasync}, nil
}

// runEcho is the other process: for every `request` bytes it sends `reply` bytes. Descriptor 3 is the listening socket.
// Blocking system calls on both sides: the Go poller would add its own wake-ups.
func runEcho(arguments []string) error {
	var request, reply int
	if _, err := fmt.Sscan(arguments[0]+" "+arguments[1], &request, &reply); err != nil {
		return err
	}
	if err := syscall.SetNonblock(3, false); err != nil {
		return err
	}
	fd, _, err := syscall.Accept(3)
	if err != nil {
		return err
	}
	_ = syscall.SetsockoptInt(fd, syscall.IPPROTO_TCP, syscall.TCP_NODELAY, 1)
	in, out := make([]byte, request), make([]byte, reply)
	for {
		if err := readFull(fd, in); err != nil {
			return nil // the measuring side is done
		}
		if _, err := syscall.Write(fd, out); err != nil {
			return err
		}
	}
}

func readFull(fd int, buffer []byte) error {
	for len(buffer) > 0 {
		n, err := syscall.Read(fd, buffer)
		if err != nil {
			return err
		}
		if n == 0 {
			return syscall.EPIPE
		}
		buffer = buffer[n:]
	}
	return nil
}

func measureRoundTrip(duration time.Duration, request, reply int) (Micros, error) {
	listener, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		return Micros{}, err
	}
	defer listener.Close()
	socket, err := listener.(*net.TCPListener).File()
	if err != nil {
		return Micros{}, err
	}
	echo := exec.Command(os.Args[0], "echo", fmt.Sprint(request), fmt.Sprint(reply))
	echo.ExtraFiles = []*os.File{socket}
	echo.Stderr = os.Stderr
	if err := echo.Start(); err != nil {
		return Micros{}, err
	}
	defer func() { _ = echo.Wait() }()
	fd, err := dial(listener.Addr().String())
	if err != nil {
		return Micros{}, err
	}
	defer syscall.Close(fd)

	out, in := make([]byte, request), make([]byte, reply)
	return measure(duration, func() error {
		if _, err := syscall.Write(fd, out); err != nil {
			return err
		}
		return readFull(fd, in)
	})
}

func measureFdatasync(duration time.Duration, directory string, record int) (Micros, error) {
	const fileBytes = 64 << 20
	path := filepath.Join(directory, "loadgen-base.tmp")
	file, err := os.Create(path)
	if err != nil {
		return Micros{}, err
	}
	defer os.Remove(path)
	defer file.Close()
	zeros := make([]byte, 1<<20)
	for written := 0; written < fileBytes; written += len(zeros) {
		if _, err := file.Write(zeros); err != nil {
			return Micros{}, err
		}
	}
	if err := file.Sync(); err != nil {
		return Micros{}, err
	}
	fd, offset := int(file.Fd()), int64(0)
	buffer := make([]byte, record)
	return measure(duration, func() error {
		if _, err := syscall.Pwrite(fd, buffer, offset); err != nil {
			return err
		}
		offset = (offset + int64(record)) % (fileBytes - int64(record))
		return syscall.Fdatasync(fd)
	})
}

func measure(duration time.Duration, once func() error) (Micros, error) {
	var times []uint32
	started := time.Now()
	for before := started; before.Sub(started) < duration; {
		if err := once(); err != nil {
			return Micros{}, err
		}
		after := time.Now()
		times = append(times, uint32(after.Sub(before).Nanoseconds()))
		before = after
	}
	total := uint64(0)
	for _, t := range times {
		total += uint64(t)
	}
	slices.Sort(times)
	return Micros{
		Mean:   float64(total) / float64(len(times)) / 1000,
		Median: float64(times[len(times)/2]) / 1000,
		P99:    float64(times[len(times)*99/100]) / 1000,
		Count:  len(times),
	}, nil
}

package main

import (
	"flag"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"syscall"
	"time"
)

// Base is what one put of one client cannot be cheaper than on this machine: its bytes over loopback to another
// process and back, and one write with fdatasync into a file that is already allocated. With more writers, as many other
// processes less one do the same to files of their own meanwhile, as the members of a cluster on one disk do.
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
	writers := flags.Int("writers", 1, "processes that write and sync at once")
	_ = flags.Parse(arguments)
	duration := time.Duration(*seconds * float64(time.Second))

	roundTrip, err := measureRoundTrip(duration, *request, *reply)
	if err != nil {
		return nil, err
	}
	stop, err := startWriters(*writers-1, *directory, *request)
	if err != nil {
		return nil, err
	}
	defer stop()
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

// startWriters has so many other processes write and sync until the function that it returns is called.
func startWriters(count int, directory string, record int) (func(), error) {
	var running []*exec.Cmd
	stop := func() {
		for _, writer := range running {
			_ = writer.Process.Signal(syscall.SIGTERM)
			_ = writer.Wait()
		}
	}
	for range count {
		writer := exec.Command(os.Args[0], "write", directory, fmt.Sprint(record))
		writer.Stderr = os.Stderr
		said, err := writer.StdoutPipe()
		if err == nil {
			err = writer.Start()
		}
		if err != nil {
			stop()
			return nil, err
		}
		running = append(running, writer)
		// It says a byte when its file is there.
		if _, err := said.Read(make([]byte, 1)); err != nil {
			stop()
			return nil, fmt.Errorf("a writer has ended: %w", err)
		}
	}
	return stop, nil
}

// runWriter is one of those processes.
func runWriter(arguments []string) error {
	record := 0
	if _, err := fmt.Sscan(arguments[1], &record); err != nil {
		return err
	}
	once, remove, err := syncer(arguments[0], record)
	if err != nil {
		return err
	}
	defer remove()
	stopped := make(chan os.Signal, 1)
	signal.Notify(stopped, syscall.SIGTERM)
	if _, err := os.Stdout.Write([]byte{'\n'}); err != nil {
		return err
	}
	for len(stopped) == 0 {
		if err := once(); err != nil {
			return err
		}
	}
	return nil
}

func measureFdatasync(duration time.Duration, directory string, record int) (Micros, error) {
	once, remove, err := syncer(directory, record)
	if err != nil {
		return Micros{}, err
	}
	defer remove()
	return measure(duration, once)
}

// syncer returns a function that writes one record into a new file and waits for the disk, and one that removes the file.
func syncer(directory string, record int) (once func() error, remove func(), err error) {
	const fileBytes = 64 << 20
	file, err := os.CreateTemp(directory, "loadgen-base-*.tmp")
	if err != nil {
		return nil, nil, err
	}
	remove = func() {
		_ = file.Close()
		_ = os.Remove(file.Name())
	}
	defer func() {
		if err != nil {
			remove()
		}
	}()
	zeros := make([]byte, 1<<20)
	for written := 0; written < fileBytes; written += len(zeros) {
		if _, err := file.Write(zeros); err != nil {
			return nil, nil, err
		}
	}
	if err := file.Sync(); err != nil {
		return nil, nil, err
	}
	fd, offset := int(file.Fd()), int64(0)
	buffer := make([]byte, record)
	once = func() error {
		if _, err := syscall.Pwrite(fd, buffer, offset); err != nil {
			return err
		}
		offset = (offset + int64(record)) % (fileBytes - int64(record))
		return syscall.Fdatasync(fd)
	}
	return once, remove, nil
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

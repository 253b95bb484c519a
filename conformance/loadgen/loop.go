package main

import (
	"fmt"
	"net"
	"syscall"
	"time"
)

// loop drives all connections from one thread.
type loop struct {
	epoll     int
	sessions  map[int32]*session
	source    *source
	started   time.Time
	limit     time.Duration // no new request after it; 0: none
	open      int           // requests in flight
	failed    int
	dataBytes int64
	latencies []uint32 // nanoseconds
}

func newLoop(address, path string, connections, streams int, source *source) (*loop, error) {
	epoll, err := syscall.EpollCreate1(0)
	if err != nil {
		return nil, err
	}
	l := &loop{epoll: epoll, sessions: map[int32]*session{}, source: source}
	l.latencies = make([]uint32, 0, source.end-source.next)
	for range connections {
		fd, err := dial(address)
		if err != nil {
			return nil, err
		}
		s := newSession(fd, address, path, streams)
		if err := s.handshake(); err != nil {
			return nil, err
		}
		if err := syscall.SetNonblock(fd, true); err != nil {
			return nil, err
		}
		event := syscall.EpollEvent{Events: syscall.EPOLLIN, Fd: int32(fd)}
		if err := syscall.EpollCtl(epoll, syscall.EPOLL_CTL_ADD, fd, &event); err != nil {
			return nil, err
		}
		l.sessions[int32(fd)] = s
	}
	return l, nil
}

func dial(address string) (int, error) {
	resolved, err := net.ResolveTCPAddr("tcp4", address)
	if err != nil {
		return 0, err
	}
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM, 0)
	if err != nil {
		return 0, err
	}
	peer := syscall.SockaddrInet4{Port: resolved.Port}
	copy(peer.Addr[:], resolved.IP.To4())
	if err := syscall.Connect(fd, &peer); err != nil {
		return 0, fmt.Errorf("connect %s: %w", address, err)
	}
	return fd, syscall.SetsockoptInt(fd, syscall.IPPROTO_TCP, syscall.TCP_NODELAY, 1)
}

// run sends until the source is empty and every request has its answer.
func (l *loop) run() error {
	l.started = time.Now()
	for _, s := range l.sessions {
		if err := l.turn(s); err != nil {
			return err
		}
	}
	events := make([]syscall.EpollEvent, 256)
	for l.open > 0 {
		n, err := syscall.EpollWait(l.epoll, events, 10_000)
		if err == syscall.EINTR {
			continue
		}
		if err != nil {
			return err
		}
		if n == 0 {
			return fmt.Errorf("no answer for 10 s, %d requests are open", l.open)
		}
		for _, event := range events[:n] {
			s := l.sessions[event.Fd]
			if event.Events&^syscall.EPOLLOUT != 0 {
				if err := s.receive(l); err != nil {
					return err
				}
			}
			if err := l.turn(s); err != nil {
				return err
			}
		}
	}
	return nil
}

// turn fills the free streams of a connection and writes once.
func (l *loop) turn(s *session) error {
	now := time.Since(l.started).Nanoseconds()
	if l.limit > 0 && now > l.limit.Nanoseconds() {
		l.source.end = l.source.next
	}
	for s.hasRoom(len(l.source.frame)) {
		frame := l.source.take()
		if frame == nil {
			break
		}
		s.send(frame, now)
		l.open++
	}
	blocked, err := s.flush()
	if err != nil || blocked == s.blocked {
		return err
	}
	s.blocked = blocked
	event := syscall.EpollEvent{Events: syscall.EPOLLIN, Fd: int32(s.fd)}
	if blocked {
		event.Events |= syscall.EPOLLOUT
	}
	return syscall.EpollCtl(l.epoll, syscall.EPOLL_CTL_MOD, s.fd, &event)
}

// finished accounts for one answered request. An answer without a message is a gRPC error.
func (l *loop) finished(slot *slot, ok bool) {
	l.open--
	if !ok || slot.dataBytes == 0 {
		l.failed++
	}
	l.dataBytes += slot.dataBytes
	l.latencies = append(l.latencies, uint32(time.Since(l.started).Nanoseconds()-slot.started))
}

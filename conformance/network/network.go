// Package network connects members and clients by links that a test cuts, delays
// and makes lossy. It needs root.
package network

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
)

// Link says what happens to the packets of one direction between two places.
type Link struct {
	// Cut drops all.
	Cut bool
	// Loss is the share that is dropped.
	Loss float64
	// Delay is added to each, in order.
	Delay time.Duration
}

// Network connects members and clients, each place in a network namespace of
// its own. Every packet goes through this process, which drops and delays as
// the links say: that needs no packet filter and no queueing discipline of the
// kernel, and each direction is on its own.
type Network struct {
	spaces []*space // the last one is the clients'
	links  [][]atomic.Pointer[Link]
	wires  [][]chan delayed
	done   chan struct{}
	ended  sync.WaitGroup
}

// delayed is a packet and when it is due.
type delayed struct {
	due    time.Time
	packet []byte
}

// packetMax is more than the devices' 1500 bytes.
const packetMax = 2048

// New has a place for each member and one for the clients.
func New(t testing.TB, members int) *Network {
	t.Helper()
	return start(t, members, newSpace)
}

// Around is New with the clients in the namespace of this process, which gets
// a device for it. It has to be a namespace that nothing else uses.
func Around(t testing.TB, members int) *Network {
	t.Helper()
	return start(t, members, adoptSpace)
}

func start(t testing.TB, members int, clients func(address string) (*space, error)) *Network {
	t.Helper()
	n := &Network{done: make(chan struct{})}
	places := members + 1
	for place := range places {
		create := newSpace
		if place == members {
			create = clients
		}
		space, err := create(n.Host(place))
		if err != nil {
			t.Fatal(err)
		}
		n.spaces = append(n.spaces, space)
	}
	n.links = make([][]atomic.Pointer[Link], places)
	n.wires = make([][]chan delayed, places)
	for from := range places {
		n.links[from] = make([]atomic.Pointer[Link], places)
		n.wires[from] = make([]chan delayed, places)
		for to := range places {
			n.links[from][to].Store(&Link{})
			n.wires[from][to] = make(chan delayed, 10_000)
			n.ended.Go(func() { n.deliver(from, to) })
		}
	}
	for place := range places {
		n.ended.Go(func() { n.receive(place) })
	}
	t.Cleanup(func() {
		close(n.done)
		for _, space := range n.spaces {
			space.close()
		}
		n.ended.Wait()
	})
	return n
}

// receive takes the packets that a place sends.
func (n *Network) receive(from int) {
	buffer := make([]byte, packetMax)
	for {
		length, err := n.spaces[from].device.Read(buffer)
		if err != nil {
			return
		}
		// IPv4 only: the last byte of the destination is the place.
		if length < 20 || buffer[0]>>4 != 4 {
			continue
		}
		to := int(buffer[19]) - 1
		if to < 0 || to >= len(n.spaces) || to == from {
			continue
		}
		link := n.links[from][to].Load()
		if link.Cut || link.Loss > 0 && rand.Float64() < link.Loss {
			continue
		}
		select {
		case n.wires[from][to] <- delayed{time.Now().Add(link.Delay), append([]byte(nil), buffer[:length]...)}:
		default: // a full wire drops, as a router does
		}
	}
}

// deliver hands packets over when they are due.
func (n *Network) deliver(from, to int) {
	for {
		select {
		case <-n.done:
			return
		case next := <-n.wires[from][to]:
			time.Sleep(time.Until(next.due))
			// What was under way when the link was cut is lost with it.
			if !n.links[from][to].Load().Cut {
				n.spaces[to].device.Write(next.packet)
			}
		}
	}
}

// Set changes one direction between two members.
func (n *Network) Set(from, to int, link Link) { n.links[from][to].Store(&link) }

// Between changes both directions between a member and all other members, not
// the clients.
func (n *Network) Between(member int, link Link) {
	for other := range len(n.spaces) - 1 {
		if other != member {
			n.Set(member, other, link)
			n.Set(other, member, link)
		}
	}
}

// All changes every direction between members.
func (n *Network) All(link Link) {
	for member := range len(n.spaces) - 1 {
		n.Between(member, link)
	}
}

// Host is the address of a place.
func (n *Network) Host(place int) string { return fmt.Sprintf("10.77.0.%d", place+1) }

// Run runs a function in the network of a member.
func (n *Network) Run(member int, function func() error) error { return n.spaces[member].run(function) }

// RunClient runs a function in the clients' network.
func (n *Network) RunClient(function func() error) error {
	return n.spaces[len(n.spaces)-1].run(function)
}

// Options make a client's connections start in the clients' network.
func (n *Network) Options() []grpc.DialOption {
	dial := func(ctx context.Context, address string) (conn net.Conn, err error) {
		err = n.RunClient(func() error {
			conn, err = (&net.Dialer{Timeout: 3 * time.Second}).DialContext(ctx, "tcp4", address)
			return err
		})
		return conn, err
	}
	return []grpc.DialOption{grpc.WithContextDialer(dial)}
}

package kubernetes

import (
	"time"

	"cairn.dev/conformance/kubernetes/plane"
	"cairn.dev/conformance/network"
)

// fault breaks something, waits and mends it.
type fault struct {
	name   string
	inject func(s *store, control *plane.Plane)
}

// faultTime is how long a fault lasts that does not end by itself. It is
// longer than an election and shorter than the API server's compactions.
const faultTime = 8 * time.Second

var faults = []fault{
	{"a killed follower", func(s *store, _ *plane.Plane) { s.killed(s.follower()) }},
	{"a killed leader", func(s *store, _ *plane.Plane) { s.killed(s.leader()) }},
	{"a leader that no member hears", func(s *store, _ *plane.Plane) {
		leader := s.leader()
		s.links.Between(leader, network.Link{Cut: true})
		time.Sleep(faultTime)
		s.links.Between(leader, network.Link{})
	}},
	{"a follower that nobody hears", func(s *store, _ *plane.Plane) {
		place := s.follower()
		s.reach(place, network.Link{Cut: true})
		time.Sleep(faultTime)
		s.reach(place, network.Link{})
	}},
	{"a replaced follower", func(s *store, _ *plane.Plane) { s.replace(s.follower()) }},
	{"a leader that nobody hears", func(s *store, _ *plane.Plane) {
		place := s.leader()
		s.reach(place, network.Link{Cut: true})
		time.Sleep(faultTime)
		s.reach(place, network.Link{})
	}},
	{"a stopped leader", func(s *store, _ *plane.Plane) {
		member := s.places[s.leader()]
		s.t.Cleanup(member.Resume)
		member.Pause()
		time.Sleep(faultTime)
		member.Resume()
	}},
	{"a replaced leader", func(s *store, _ *plane.Plane) { s.replace(s.leader()) }},
	{"lost packets", func(s *store, _ *plane.Plane) {
		s.links.All(network.Link{Loss: 0.1})
		time.Sleep(faultTime)
		s.links.All(network.Link{})
	}},
	{"killed controllers and scheduler", func(_ *store, control *plane.Plane) {
		control.Controllers.Kill()
		control.Scheduler.Kill()
		control.Controllers.Start()
		control.Scheduler.Start()
	}},
	{"all members killed", func(s *store, _ *plane.Plane) {
		for _, member := range s.places {
			if member != nil {
				member.Kill()
			}
		}
		time.Sleep(time.Second)
		s.runAll()
	}},
	{"a killed API server", func(_ *store, control *plane.Plane) {
		control.APIServer.Kill()
		control.APIServer.Start()
		control.AwaitReady()
	}},
}

// killed kills a member, leaves it dead for a moment and starts it.
func (s *store) killed(place int) {
	s.t.Helper()
	s.places[place].Kill()
	time.Sleep(2 * time.Second)
	s.places[place].Run()
}

// reach changes both directions between a place and all others, the clients'
// included.
func (s *store) reach(place int, link network.Link) {
	for other := range len(s.places) + 1 {
		if other != place {
			s.links.Set(place, other, link)
			s.links.Set(other, place, link)
		}
	}
}

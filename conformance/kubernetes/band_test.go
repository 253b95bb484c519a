package kubernetes

import (
	"context"
	"sync"
	"time"
)

// band is a number of goroutines that go on until they are stopped.
type band struct {
	ended   context.Context
	end     context.CancelFunc
	members sync.WaitGroup
}

func newBand() *band {
	b := &band{}
	b.ended, b.end = context.WithCancel(context.Background())
	return b
}

// loop repeats a step until the band is stopped.
func (b *band) loop(step func()) {
	b.members.Go(func() {
		for b.ended.Err() == nil {
			step()
		}
	})
}

// try repeats a call until it succeeds or the band is stopped.
func (b *band) try(call func(ctx context.Context) error) bool {
	for {
		ctx, cancel := once()
		err := call(ctx)
		cancel()
		if err == nil {
			return true
		}
		select {
		case <-b.ended.Done():
			return false
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// stop ends the band and waits.
func (b *band) stop() {
	b.end()
	b.members.Wait()
}

// once is the time that one request has. It outlives the band, so that no
// write is left without an answer because the test is over.
func once() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), writeMax)
}

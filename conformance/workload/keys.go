package workload

import (
	"fmt"
	"math"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// unknownLease is never granted.
const unknownLease = 4711

// oddKeys lie where order and prefixes are easily got wrong.
var oddKeys = []string{
	"\x00", "\x00\x00", "a", "a\x00", "a\x00\x00", "aa", "b\xff", "b\xff\xff", "c", "\xfe", "\xff", "\xff\xff",
	"dir/", "dir/1", "dir/10", "dir/2", "dir0", "\u00fc",
}

func (g *Generator) key() []byte {
	if g.rare(1) {
		return nil
	}
	if g.chance(35) {
		return []byte(pick(g, oddKeys...))
	}
	return fmt.Appendf(nil, "k%02d", g.random.IntN(30))
}

// rangeEnd is an end that does not look at the key: the interval may be empty
// or inverted.
func (g *Generator) rangeEnd() []byte {
	switch n := g.random.IntN(10); {
	case n < 4:
		return nil
	case n < 6:
		return []byte{0}
	case n < 8:
		return []byte(clientv3.GetPrefixRangeEnd(pick(g, "k", "k1", "dir/", "a", "b\xff", "\xff")))
	default:
		return g.key()
	}
}

// value repeats often, so that sorting by value has ties.
func (g *Generator) value() []byte {
	switch n := g.random.IntN(100); {
	case n < 10:
		return nil
	case n < 40:
		return fmt.Appendf(nil, "v%d", g.random.IntN(5))
	case n < 99:
		return fmt.Appendf(nil, "value-%d", g.random.Int64())
	default:
		large := make([]byte, g.random.IntN(100_000))
		for i := range large {
			large[i] = byte(i)
		}
		return large
	}
}

// revision is one to read at: mostly one that can be read.
func (g *Generator) revision() int64 {
	switch n := g.random.IntN(100); {
	case n < 60:
		return 0
	case n < 90:
		return g.between(max(1, g.state.Compacted()), g.state.Revision())
	case n < 95:
		return g.between(1, g.state.Revision())
	case n < 97:
		return g.state.Revision() + g.between(1, 3)
	default:
		if g.wild {
			return g.oddNumber()
		}
		return g.state.Compacted()
	}
}

func (g *Generator) oddNumber() int64 {
	return pick[int64](g, -2, -1, 0, 1, math.MaxInt32, math.MaxInt64, math.MinInt64)
}

func (g *Generator) leaseID() int64 {
	ids := g.state.LeaseIDs()
	if len(ids) == 0 || g.chance(5) {
		return unknownLease
	}
	return pick(g, ids...)
}

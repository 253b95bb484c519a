//! Which queues go first where all of them hold too much together.

use std::collections::BTreeMap;

use super::Options;

/// Events that all queues together may hold, and what is left to a queue in any case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Bounds {
    /// Beyond so many, long queues are given up.
    pub(super) all: usize,
    /// A queue with more than so many is a long one.
    pub(super) short: usize,
}

impl Bounds {
    /// Those for so many queues. The more there are, the less each may keep.
    pub(super) fn of(queues: usize, options: &Options) -> Bounds {
        let share = options.short_queues_events_max.checked_div(queues).unwrap_or(usize::MAX);
        let short = options.long_queue_events.min(share.max(1));
        Bounds { all: options.all_queues_events_max.saturating_add(short.saturating_mul(queues)), short }
    }
}

/// The queues that became long and were not given up, in the order in which they last did. Some are short again.
#[derive(Default)]
pub(super) struct LongQueues {
    places: BTreeMap<u64, u32>,
    /// How often a queue became long.
    count: u64,
    /// The number that [`LongQueues::sweep`] gave last.
    swept: usize,
}

impl LongQueues {
    /// Puts a queue at the end of the line. Returns its place.
    pub(super) fn join(&mut self, queue: u32) -> u64 {
        self.count = self.count.saturating_add(1);
        self.places.insert(self.count, queue);
        self.count
    }

    /// Takes a queue out of the line.
    pub(super) fn leave(&mut self, place: u64) {
        self.places.remove(&place);
    }

    /// Takes out the queue that has been long for the longest time.
    pub(super) fn next(&mut self) -> Option<u32> {
        self.places.pop_first().map(|(_, queue)| queue)
    }

    /// One number after the other of those below `numbers`, for queues that became long only because others were opened, after the last
    /// event that was queued for them: they are not in the line.
    pub(super) fn sweep(&mut self, numbers: usize) -> u32 {
        self.swept = self.swept.wrapping_add(1);
        if self.swept >= numbers {
            self.swept = 0;
        }
        self.swept as u32
    }

    /// The line, from its front: places and queues.
    #[cfg(test)]
    pub(super) fn iter(&self) -> impl ExactSizeIterator<Item = (u64, u32)> {
        self.places.iter().map(|(&place, &queue)| (place, queue))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_more_queues_there_are_the_less_each_keeps() {
        let options = Options::default();
        let of = |queues| Bounds::of(queues, &options);
        assert_eq!(of(0), Bounds { all: 1 << 20, short: 128 });
        assert_eq!(of(1_000), Bounds { all: (1 << 20) + 128_000, short: 128 });
        assert_eq!(of(8_192), Bounds { all: 2 << 20, short: 128 });
        assert_eq!(of(100_000), Bounds { all: (1 << 20) + 1_000_000, short: 10 });
        assert_eq!(of(1 << 20), Bounds { all: 2 << 20, short: 1 });
        assert_eq!(of(4 << 20), Bounds { all: 5 << 20, short: 1 });
    }
}

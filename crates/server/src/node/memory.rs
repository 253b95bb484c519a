//! The memory budget: the index of the keys is in memory, and a member that has no more of it refuses writes before the system ends it.
//! What clients have it hold beside that has bounds of its own (`docs/design/memory-budget.md`) and does not count.

use super::Node;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

/// Time between two looks. Within it a member that is filled at full speed takes a few MiB.
const LOOK: Duration = Duration::from_millis(100);
/// So many looks in a row must find too much: a hash or a checkpoint at work takes memory for a moment.
const LOOKS_OVER: u32 = 10;
/// From so many on, freed memory is given back, which others may wait for. The pause before it is tried again: the least, and the longest, to
/// which it comes by doubling while little comes of it.
const LOOKS_RETURN: u32 = 5;
const RETURN_PAUSE: Duration = Duration::from_secs(5);
const RETURN_PAUSE_MAX: Duration = Duration::from_secs(80);
/// This part of the budget must be free again before there is memory; it is also what giving back has to bring.
const BACK_SHARE: u64 = 32;

/// What a connection and a watch may take: they have limits of their own.
const CONNECTION_BYTES: u64 = 64 << 10;
const WATCH_BYTES: u64 = 1 << 10;

/// Runs until the member stops.
pub(crate) fn run(node: &Arc<Node>, stats: &rpc::Stats, held: &rpc::Held) {
    let mut watch = Watch::new(node.metrics.memory.budget_bytes.load(Ordering::Relaxed));
    // No more of clients than the default budget leaves them.
    let clients_max = node.config.transport.held_bytes_max.saturating_add(node.config.incomplete_bytes_max());
    // It comes and goes and is bounded: nobody may stop the writes of a cluster by holding answers.
    let excused = || {
        let answers = node.budget.usage().iter().map(|pool| pool.held_bytes).fold(held.bytes(), u64::saturating_add);
        let connections = stats.connections_open().saturating_mul(CONNECTION_BYTES);
        let watches = node.watches.taken().saturating_mul(WATCH_BYTES);
        let clients = answers.saturating_add(connections).saturating_add(watches).min(clients_max);
        let applying = node.applying.get().and_then(Weak::upgrade).map_or(0, |shared| shared.queued_bytes());
        let queued = node.inbox.proposal_bytes().saturating_add(applying) as u64;
        clients.saturating_add(queued).saturating_add(node.status.log_bytes())
    };
    let look = || host::anonymous_bytes().saturating_sub(excused());
    while !node.stopping.load(Ordering::Relaxed) {
        watch.compacted(node.store.compacted());
        // The index of a snapshot is in memory beside the one that it replaces, for a while.
        let is_temporary = node.store.has_second_index();
        let mut used = look();
        if watch.wants_return(used, Instant::now()) && !is_temporary {
            host::return_freed_memory();
            let before = std::mem::replace(&mut used, look());
            watch.returned(before.saturating_sub(used), Instant::now());
        }
        node.metrics.memory.used_bytes.store(used, Ordering::Relaxed);
        let is_low = if is_temporary { watch.is_low } else { watch.look(used) };
        node.store.set_memory_is_low(is_low);
        if is_low {
            node.raise_no_space(0);
        }
        std::thread::sleep(LOOK);
    }
}

/// What the looks have found so far.
struct Watch {
    budget: u64,
    looks_over: u32,
    returned: Option<Instant>,
    pause: Duration,
    /// The revision up to which keys have been dropped.
    compacted: i64,
    is_low: bool,
}

impl Watch {
    fn new(budget: u64) -> Watch {
        Watch { budget, looks_over: 0, returned: None, pause: RETURN_PAUSE, compacted: 0, is_low: false }
    }

    /// Whether to give back what was freed before this counts.
    fn wants_return(&self, used: u64, now: Instant) -> bool {
        let is_wanted = self.looks_over >= LOOKS_RETURN || (self.is_low && used > self.back());
        is_wanted && self.returned.is_none_or(|at| now.saturating_duration_since(at) >= self.pause)
    }

    /// A compaction that is over may have freed much: whoever has deleted keys to get out of the alarm does not wait for a long pause.
    fn compacted(&mut self, revision: i64) {
        if revision != self.compacted {
            self.compacted = revision;
            self.pause = RETURN_PAUSE;
        }
    }

    /// So many bytes were given back.
    fn returned(&mut self, bytes: u64, now: Instant) {
        let is_little = bytes < self.budget / BACK_SHARE;
        self.pause = if is_little { self.pause.saturating_mul(2).min(RETURN_PAUSE_MAX) } else { RETURN_PAUSE };
        self.returned = Some(now);
    }

    /// Whether there is no memory for more keys, now that so much is used.
    fn look(&mut self, used: u64) -> bool {
        self.looks_over = if used > self.budget { self.looks_over.saturating_add(1) } else { 0 };
        if self.looks_over >= LOOKS_OVER {
            self.is_low = true;
        } else if used <= self.back() {
            self.is_low = false;
            self.pause = RETURN_PAUSE;
        }
        self.is_low
    }

    fn back(&self) -> u64 {
        self.budget.saturating_sub(self.budget / BACK_SHARE)
    }
}

/// The budget that the flag means. 0 stands for nine tenths of what the system allows, without what clients may hold, of which `held_bytes_max`
/// are answers and `incomplete_bytes_max` requests; and at least for half of it.
pub(super) fn budget(flag_bytes: u64, limit_bytes: Option<u64>, held_bytes_max: u64, incomplete_bytes_max: u64) -> u64 {
    match (flag_bytes, limit_bytes) {
        (0, None) => u64::MAX,
        (0, Some(limit)) => {
            let clients = held_bytes_max.saturating_add(incomplete_bytes_max);
            limit.saturating_sub(limit / 10).saturating_sub(clients).max(limit / 2)
        }
        (bytes, _) => bytes,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moment_over_the_budget_does_not_count() {
        let mut watch = Watch::new(3200);
        for _ in 0..3 {
            for _ in 1..LOOKS_OVER {
                assert!(!watch.look(3201));
            }
            assert!(!watch.look(3200));
        }
        for _ in 1..LOOKS_OVER {
            assert!(!watch.look(u64::MAX));
        }
        assert!(watch.look(3201));
        assert!(watch.look(3101), "not until there is some room");
        assert!(!watch.look(3100));
        assert!(!watch.look(3200));
    }

    #[test]
    fn freed_memory_is_given_back_less_and_less_often() {
        let (mut watch, now) = (Watch::new(3200), Instant::now());
        for _ in 0..LOOKS_RETURN {
            assert!(!watch.wants_return(3201, now));
            watch.look(3201);
        }
        assert!(watch.wants_return(3201, now));
        watch.returned(99, now);
        assert!(!watch.wants_return(3201, now + RETURN_PAUSE));
        assert!(watch.wants_return(3201, now + 2 * RETURN_PAUSE));
        watch.returned(100, now);
        assert!(watch.wants_return(3201, now + RETURN_PAUSE));
        for _ in 0..10 {
            watch.returned(0, now);
        }
        assert!(!watch.wants_return(3201, now + RETURN_PAUSE_MAX / 2));
        assert!(watch.wants_return(3201, now + RETURN_PAUSE_MAX));
        watch.compacted(7);
        assert!(watch.wants_return(3201, now + RETURN_PAUSE), "a compaction may have freed much");
        watch.returned(0, now);
        watch.compacted(7);
        assert!(!watch.wants_return(3201, now + RETURN_PAUSE), "only once for each");
        for _ in 0..LOOKS_OVER {
            watch.look(3201);
        }
        assert!(watch.wants_return(3150, now + RETURN_PAUSE_MAX), "it is low, and this is not yet enough");
        watch.look(3100);
        assert!(!watch.wants_return(3150, now + RETURN_PAUSE_MAX), "there is memory");
    }

    #[test]
    fn without_a_flag_the_system_decides() {
        assert_eq!(budget(0, Some(10 << 30), 512 << 20, 256 << 20), (9 << 30) - (768 << 20));
        assert_eq!(budget(0, Some(1 << 30), 512 << 20, 64 << 20), 512 << 20);
        assert_eq!(budget(0, None, 1, 1), u64::MAX);
        assert_eq!(budget(5000, Some(1000), 1, 1), 5000);
    }
}

//! Linearizable reads that wait: for a leader to say up to where, then for the store to get there.
//!
//! They are behind a lock of their own, so that they end in time even when consensus is stuck in the store's disk.

use super::inbox::Read;
use super::{Node, lock};
use crate::overload::Class;
use api::Error;
use replica::Member;
use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

/// An answer that takes longer than this is asked for again: a message may have been lost.
const ASK_AGAIN_MS: u64 = 500;

struct Waiting {
    read: Read,
    since_ms: u64,
}

/// Reads asked about together.
struct Asked {
    reads: Vec<Waiting>,
    at_ms: u64,
}

/// The reads that wait.
#[derive(Default)]
pub(super) struct Reads {
    queues: Mutex<Queues>,
    /// How many there are. Changes under the lock, and keeps consensus away from it while there are none.
    count: AtomicUsize,
}

#[derive(Default)]
struct Queues {
    /// Without a read index yet.
    asking: Vec<Waiting>,
    /// For the answer to a read index, by its number, oldest first.
    asked: BTreeMap<u64, Asked>,
    /// For the store to apply an index.
    applying: VecDeque<(u64, Waiting)>,
}

/// Reads that were given up.
struct Late {
    reads: Vec<Waiting>,
    /// Some of them were never told an index.
    is_unasked: bool,
}

impl Reads {
    /// How many wait.
    pub(super) fn count(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }

    /// Takes reads; more than may wait are refused.
    pub(super) fn add(&self, node: &Node, mut reads: Vec<Read>, now_ms: u64) {
        let mut queues = lock(&self.queues);
        let room = node.config.queues.of(Class::Read).saturating_sub(self.count());
        let refused = reads.split_off(room.min(reads.len()));
        self.count.fetch_add(reads.len(), Ordering::Relaxed);
        queues.asking.extend(reads.into_iter().map(|read| Waiting { read, since_ms: now_ms }));
        drop(queues);
        for read in refused {
            read(Err(node.refuse(Class::Read)));
        }
    }

    /// Asks for an index on behalf of all that have none.
    pub(super) fn ask(&self, member: &mut Member, node: &Node) {
        if self.count() == 0 {
            return;
        }
        let mut queues = lock(&self.queues);
        if !queues.asking.is_empty()
            && let Some(number) = member.read_index()
        {
            let reads = std::mem::take(&mut queues.asking);
            queues.asked.insert(number, Asked { reads, at_ms: node.now_ms() });
        }
    }

    /// The leader has said up to where the store must be for these reads.
    pub(super) fn answered(&self, number: u64, index: u64) {
        let mut queues = lock(&self.queues);
        let Some(asked) = queues.asked.remove(&number) else { return };
        // Answers come in order, but a question asked again may overtake one that is answered late.
        let index = queues.applying.back().map_or(index, |(before, _)| index.max(*before));
        queues.applying.extend(asked.reads.into_iter().map(|waiting| (index, waiting)));
    }

    /// Answers the reads whose index the store has applied.
    pub(super) fn release(&self, node: &Node) {
        if self.count() == 0 {
            return;
        }
        loop {
            let (due, next) = self.due(node.status.applied());
            for waiting in due {
                (waiting.read)(Ok(()));
            }
            // The apply thread wakes this one when it gets there; it may have got there just now.
            if node.status.wait_for(next) {
                return;
            }
        }
    }

    /// Takes those that wait for no more than `applied`, and says what the next one waits for.
    fn due(&self, applied: u64) -> (Vec<Waiting>, Option<u64>) {
        let mut queues = lock(&self.queues);
        let mut due = Vec::new();
        while let Some((_, waiting)) = queues.applying.pop_front_if(|(index, _)| *index <= applied) {
            due.push(waiting);
        }
        self.count.fetch_sub(due.len(), Ordering::Relaxed);
        (due, queues.applying.front().map(|(index, _)| *index))
    }

    /// There is another leader. Who waits for the answer of the last one is told so.
    pub(super) fn leader_changed(&self, node: &Arc<Node>, member: &mut Member) {
        member.forget_reads();
        let asked = std::mem::take(&mut lock(&self.queues).asked);
        node.metrics.read_indexes_failed.fetch_add(asked.len() as u64, Ordering::Relaxed);
        for waiting in asked.into_values().flat_map(|asked| asked.reads) {
            self.count.fetch_sub(1, Ordering::Relaxed);
            (waiting.read)(Err(Error::LeaderChanged));
        }
    }

    /// Asks again what was not answered.
    pub(super) fn tick(&self, member: &mut Member, now_ms: u64) {
        let mut queues = lock(&self.queues);
        let queues = &mut *queues;
        while let Some(oldest) = queues.asked.first_entry().filter(|oldest| oldest.get().at_ms + ASK_AGAIN_MS <= now_ms)
        {
            let (number, asked) = oldest.remove_entry();
            member.forget_read(number);
            queues.asking.extend(asked.reads);
        }
    }

    /// Ends the reads whose time is over, whatever they wait for: a leader, its answer, or the store.
    pub(super) fn expire(&self, node: &Node, now_ms: u64) {
        let timeout_ms = node.config.request_timeout().as_millis() as u64;
        let Some(before_ms) = now_ms.checked_sub(timeout_ms).filter(|_| self.count() > 0) else { return };
        let late = self.take_late(before_ms);
        if late.is_unasked {
            node.metrics.slow_read_indexes.fetch_add(1, Ordering::Relaxed);
        }
        for waiting in late.reads {
            (waiting.read)(Err(Error::Timeout));
        }
    }

    /// Takes those that came before.
    fn take_late(&self, before_ms: u64) -> Late {
        let is_late = |waiting: &Waiting| waiting.since_ms <= before_ms;
        let mut queues = lock(&self.queues);
        let mut reads: Vec<Waiting> = queues.asking.extract_if(.., |waiting| is_late(waiting)).collect();
        for asked in queues.asked.values_mut() {
            reads.extend(asked.reads.extract_if(.., |waiting| is_late(waiting)));
        }
        let is_unasked = !reads.is_empty();
        if queues.applying.iter().any(|(_, waiting)| is_late(waiting)) {
            let (late, rest): (VecDeque<_>, _) =
                std::mem::take(&mut queues.applying).into_iter().partition(|(_, waiting)| is_late(waiting));
            queues.applying = rest;
            reads.extend(late.into_iter().map(|(_, waiting)| waiting));
        }
        self.count.fetch_sub(reads.len(), Ordering::Relaxed);
        Late { reads, is_unasked }
    }

    /// Answers everyone with `error`.
    pub(super) fn fail_all(&self, error: Error) {
        let Queues { asking, asked, applying } = std::mem::take(&mut *lock(&self.queues));
        self.count.store(0, Ordering::Relaxed);
        let asked = asked.into_values().flat_map(|asked| asked.reads);
        for waiting in asking.into_iter().chain(asked).chain(applying.into_iter().map(|(_, waiting)| waiting)) {
            (waiting.read)(Err(error));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::{Sender, channel};

    fn waiting(name: u32, since_ms: u64, tell: &Sender<(u32, Result<(), Error>)>) -> Waiting {
        let tell = tell.clone();
        Waiting { read: Box::new(move |allowed| tell.send((name, allowed)).unwrap_or(())), since_ms }
    }

    #[test]
    fn reads_end_in_time_whatever_they_wait_for() {
        let (tell, told) = channel();
        let reads = Reads::default();
        let mut queues = lock(&reads.queues);
        queues.asking.extend([waiting(1, 10, &tell), waiting(2, 30, &tell)]);
        queues.asked.insert(7, Asked { reads: vec![waiting(3, 20, &tell), waiting(4, 40, &tell)], at_ms: 20 });
        drop(queues);
        reads.count.store(4, Ordering::Relaxed);
        reads.answered(7, 100);
        // The store never gets there.
        assert!(reads.due(99).0.is_empty());
        let end = |before_ms| {
            let late = reads.take_late(before_ms);
            late.reads.into_iter().for_each(|waiting| (waiting.read)(Err(Error::Timeout)));
            (late.is_unasked, told.try_iter().map(|(name, _)| name).collect::<Vec<_>>())
        };
        assert_eq!(end(9), (false, vec![]));
        assert_eq!(end(10), (true, vec![1]));
        assert_eq!(end(20), (false, vec![3]));
        assert_eq!(reads.count(), 2);
        let (due, next) = reads.due(100);
        assert_eq!((due.len(), next, reads.count()), (1, None, 1));
        assert_eq!(end(1_000), (true, vec![2]));
        assert_eq!(reads.count(), 0);
    }
}

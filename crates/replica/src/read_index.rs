//! Linearizable reads that wait: for a leader to confirm an index, then for the store to apply it.
//!
//! A read is a token of the caller's. It goes in with [`ReadIndex::add`] and comes out exactly once: from [`ReadIndex::due`] when it may
//! be answered, or from one of the methods that give up on it. Nothing is evaluated here: the caller runs what has come out when and
//! where it wants.

use crate::consensus::Member;
use std::collections::{BTreeMap, VecDeque};

/// A read index that is not answered within this time is requested again: a message may have been lost.
const ASK_AGAIN_MS: u64 = 500;

struct Waiting<R> {
    read: R,
    since_ms: u64,
}

/// Reads that share one request for a read index.
struct Asked<R> {
    reads: Vec<Waiting<R>>,
    at_ms: u64,
}

/// The reads that wait.
pub struct ReadIndex<R> {
    /// Reads for which no read index is requested yet.
    asking: Vec<Waiting<R>>,
    /// Reads that wait for the answer to a read index, by its number, oldest first.
    asked: BTreeMap<u64, Asked<R>>,
    /// Reads that wait until the store has applied an index.
    applying: VecDeque<(u64, Waiting<R>)>,
    count: usize,
}

/// Reads that were given up.
pub struct Late<R> {
    /// The reads.
    pub reads: Vec<R>,
    /// Whether some of the reads never got an index.
    pub is_unasked: bool,
}

impl<R> Default for ReadIndex<R> {
    fn default() -> ReadIndex<R> {
        ReadIndex { asking: Vec::new(), asked: BTreeMap::new(), applying: VecDeque::new(), count: 0 }
    }
}

impl<R> ReadIndex<R> {
    /// The number of waiting reads.
    pub fn len(&self) -> usize {
        self.count
    }

    /// Whether no read waits.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Adds reads; returns those above the limit `max`.
    pub fn add(&mut self, mut reads: Vec<R>, max: usize, now_ms: u64) -> Vec<R> {
        let room = max.saturating_sub(self.count);
        let refused = reads.split_off(room.min(reads.len()));
        self.count = self.count.saturating_add(reads.len());
        self.asking.extend(reads.into_iter().map(|read| Waiting { read, since_ms: now_ms }));
        refused
    }

    /// Requests one index for all reads that have none.
    pub fn ask(&mut self, raft: &mut Member, now_ms: u64) {
        if !self.asking.is_empty()
            && let Some(number) = raft.read_index()
        {
            let reads = std::mem::take(&mut self.asking);
            self.asked.insert(number, Asked { reads, at_ms: now_ms });
        }
    }

    /// The mistake [`Mistake::ReadsWithoutIndex`](crate::Mistake::ReadsWithoutIndex).
    pub(crate) fn skip_asking(&mut self) {
        let reads = std::mem::take(&mut self.asking);
        self.applying.extend(reads.into_iter().map(|read| (0, read)));
    }

    /// The mistake [`Mistake::ReadsJoinEarlierQuestion`](crate::Mistake::ReadsJoinEarlierQuestion).
    pub(crate) fn join_asked(&mut self) {
        if let Some(mut last) = self.asked.last_entry() {
            last.get_mut().reads.append(&mut self.asking);
        }
    }

    /// The leader has confirmed the index that these reads need.
    pub fn answered(&mut self, number: u64, index: u64) {
        let Some(asked) = self.asked.remove(&number) else { return };
        // Answers come in order, but a repeated request may overtake one that is answered late.
        let index = self.applying.back().map_or(index, |(before, _)| index.max(*before));
        self.applying.extend(asked.reads.into_iter().map(|waiting| (index, waiting)));
    }

    /// Takes the reads whose index is at most `applied`. Also returns the index of the next one.
    pub fn due(&mut self, applied: u64) -> (Vec<R>, Option<u64>) {
        let mut due = Vec::new();
        while let Some((_, waiting)) = self.applying.pop_front_if(|(index, _)| *index <= applied) {
            due.push(waiting.read);
        }
        self.count = self.count.saturating_sub(due.len());
        (due, self.applying.front().map(|(index, _)| *index))
    }

    /// Called when the leader has changed. Takes the reads that wait for the old leader's answer, and returns the
    /// number of their requests.
    pub fn leader_changed(&mut self, raft: &mut Member) -> (Vec<R>, usize) {
        raft.forget_reads();
        let asked = std::mem::take(&mut self.asked);
        let questions = asked.len();
        let reads: Vec<R> = asked.into_values().flat_map(|asked| asked.reads).map(|waiting| waiting.read).collect();
        self.count = self.count.saturating_sub(reads.len());
        (reads, questions)
    }

    /// Repeats each request whose time for an answer is over.
    pub fn tick(&mut self, raft: &mut Member, now_ms: u64) {
        while let Some(oldest) =
            self.asked.first_entry().filter(|oldest| oldest.get().at_ms.saturating_add(ASK_AGAIN_MS) <= now_ms)
        {
            let (number, asked) = oldest.remove_entry();
            raft.forget_read(number);
            self.asking.extend(asked.reads);
        }
    }

    /// Takes the reads that came at or before `before_ms`, whether they wait for a leader, its answer, or the store.
    pub fn expire(&mut self, before_ms: u64) -> Late<R> {
        let is_late = |waiting: &Waiting<R>| waiting.since_ms <= before_ms;
        let mut late: Vec<Waiting<R>> = self.asking.extract_if(.., |waiting| is_late(waiting)).collect();
        for asked in self.asked.values_mut() {
            late.extend(asked.reads.extract_if(.., |waiting| is_late(waiting)));
        }
        let is_unasked = !late.is_empty();
        if self.applying.iter().any(|(_, waiting)| is_late(waiting)) {
            let (over, rest): (VecDeque<_>, _) =
                std::mem::take(&mut self.applying).into_iter().partition(|(_, waiting)| is_late(waiting));
            self.applying = rest;
            late.extend(over.into_iter().map(|(_, waiting)| waiting));
        }
        self.count = self.count.saturating_sub(late.len());
        Late { reads: late.into_iter().map(|waiting| waiting.read).collect(), is_unasked }
    }

    /// When the oldest read came that waits for a leader or its answer.
    pub fn unanswered_since_ms(&self) -> Option<u64> {
        let asked = self.asked.values().next().and_then(|asked| asked.reads.first());
        [self.asking.first(), asked].into_iter().flatten().map(|waiting| waiting.since_ms).min()
    }

    /// Takes all reads.
    pub fn take_all(&mut self) -> Vec<R> {
        let ReadIndex { asking, asked, applying, .. } = std::mem::take(self);
        let asked = asked.into_values().flat_map(|asked| asked.reads);
        let all = asking.into_iter().chain(asked).chain(applying.into_iter().map(|(_, waiting)| waiting));
        all.map(|waiting| waiting.read).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_end_in_time_whatever_they_wait_for() {
        let waiting = |read: u32, since_ms| Waiting { read, since_ms };
        let mut reads = ReadIndex::default();
        reads.asking.extend([waiting(1, 10), waiting(2, 30)]);
        reads.asked.insert(7, Asked { reads: vec![waiting(3, 20), waiting(4, 40)], at_ms: 20 });
        reads.count = 4;
        reads.answered(7, 100);
        // The store never gets there.
        assert!(reads.due(99).0.is_empty());
        let mut end = |before_ms| {
            let late = reads.expire(before_ms);
            (late.is_unasked, late.reads)
        };
        assert_eq!(end(9), (false, vec![]));
        assert_eq!(end(10), (true, vec![1]));
        assert_eq!(end(20), (false, vec![3]));
        assert_eq!(reads.len(), 2);
        assert_eq!((reads.due(100), reads.len()), ((vec![4], None), 1));
        let late = reads.expire(1_000);
        assert_eq!((late.is_unasked, late.reads, reads.is_empty()), (true, vec![2], true));
    }

    #[test]
    fn more_than_may_wait_are_given_back() {
        let mut reads = ReadIndex::default();
        assert_eq!(reads.add(vec![1, 2], 3, 0), [0; 0]);
        assert_eq!(reads.add(vec![3, 4, 5], 3, 0), [4, 5]);
        assert_eq!(reads.take_all(), [1, 2, 3]);
        assert!(reads.is_empty());
    }
}

//! Linearizable reads that wait: for a leader to say up to where, then for the store to get there.

use super::Node;
use super::inbox::Read;
use crate::overload::Class;
use api::Error;
use member::Member;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::Ordering;

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
    /// Without a read index yet.
    asking: Vec<Waiting>,
    /// For the answer to a read index, by its number, oldest first.
    asked: BTreeMap<u64, Asked>,
    /// For the store to apply an index.
    applying: VecDeque<(u64, Read)>,
    count: usize,
}

impl Reads {
    /// Takes reads; more than may wait are refused.
    pub(super) fn add(&mut self, node: &Node, reads: Vec<Read>, now_ms: u64) {
        let most = node.config.queues.of(Class::Read);
        for read in reads {
            if self.count >= most {
                read(Err(node.refuse(Class::Read)));
                continue;
            }
            self.count += 1;
            self.asking.push(Waiting { read, since_ms: now_ms });
        }
    }

    /// Asks for an index on behalf of all that have none.
    pub(super) fn ask(&mut self, member: &mut Member, node: &Node) {
        if !self.asking.is_empty()
            && let Some(number) = member.read_index()
        {
            self.asked.insert(number, Asked { reads: std::mem::take(&mut self.asking), at_ms: node.now_ms() });
        }
    }

    /// The leader has said up to where the store must be for these reads.
    pub(super) fn answered(&mut self, number: u64, index: u64) {
        let Some(asked) = self.asked.remove(&number) else { return };
        // Answers come in order, but a question asked again may overtake one that is answered late.
        let index = self.applying.back().map_or(index, |(before, _)| index.max(*before));
        self.applying.extend(asked.reads.into_iter().map(|waiting| (index, waiting.read)));
    }

    /// Answers the reads whose index the store has applied.
    pub(super) fn release(&mut self, node: &Node) {
        if self.applying.is_empty() {
            return;
        }
        loop {
            let applied = node.status.applied();
            while let Some((_, read)) = self.applying.pop_front_if(|(index, _)| *index <= applied) {
                self.count -= 1;
                read(Ok(()));
            }
            // The apply thread wakes this one when it gets there; it may have got there just now.
            if node.status.wait_for(self.applying.front().map(|(index, _)| *index)) {
                return;
            }
        }
    }

    /// There is another leader. Who waits for the answer of the last one is told so.
    pub(super) fn leader_changed(&mut self, node: &Arc<Node>, member: &mut Member) {
        member.forget_reads();
        for asked in std::mem::take(&mut self.asked).into_values() {
            node.metrics.read_indexes_failed.fetch_add(1, Ordering::Relaxed);
            for waiting in asked.reads {
                self.count -= 1;
                (waiting.read)(Err(Error::LeaderChanged));
            }
        }
    }

    /// Asks again what was not answered, and gives up what nobody answered in time.
    pub(super) fn tick(&mut self, node: &Arc<Node>, member: &mut Member, now_ms: u64) {
        while let Some(oldest) = self.asked.first_entry().filter(|oldest| oldest.get().at_ms + ASK_AGAIN_MS <= now_ms) {
            let (number, asked) = oldest.remove_entry();
            member.forget_read(number);
            self.asking.extend(asked.reads);
        }
        let timeout_ms = node.config.request_timeout().as_millis() as u64;
        if self.asking.iter().all(|waiting| waiting.since_ms + timeout_ms > now_ms) {
            return;
        }
        let (late, rest): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.asking).into_iter().partition(|waiting| waiting.since_ms + timeout_ms <= now_ms);
        self.asking = rest;
        node.metrics.slow_read_indexes.fetch_add(1, Ordering::Relaxed);
        for waiting in late {
            self.count -= 1;
            (waiting.read)(Err(Error::Timeout));
        }
    }

    /// Says how many wait.
    pub(super) fn publish(&self, node: &Node) {
        node.reads_waiting.store(self.count, Ordering::Relaxed);
    }

    /// Answers everyone with `error`.
    pub(super) fn fail_all(self, error: Error) {
        let asked = self.asked.into_values().flat_map(|asked| asked.reads);
        let waiting = self.asking.into_iter().chain(asked).map(|waiting| waiting.read);
        for read in waiting.chain(self.applying.into_iter().map(|(_, read)| read)) {
            read(Err(error));
        }
    }
}

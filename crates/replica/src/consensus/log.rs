//! The recent part of the Raft log in memory, as raft-rs reads it.

use crate::consensus::chunked::Chunked;
use crate::consensus::lagging::Allowance;
use raft::eraftpb::{ConfState, Entry, HardState, Snapshot};
use raft::{GetEntriesContext, RaftState, Result, Storage, StorageError};
use std::cell::Cell;
use std::collections::VecDeque;

/// Bytes of an entry in a message besides its data: at most four small fields.
const ENTRY_OVERHEAD_BYTES: u64 = 24;

/// Limit of remembered terms of trimmed entries: each election adds one.
const TRIMMED_TERMS_MAX: usize = 1024;

/// Entries after `start`, all of them handed to the log on disk or about to be.
pub(crate) struct Log {
    /// Index and term of the last entry that was trimmed.
    start: (u64, u64),
    /// The first index of each term up to `start`: the terms of trimmed entries, which raft-rs must not see.
    trimmed_terms: VecDeque<(u64, u64)>,
    entries: Chunked<Entry>,
    bytes: u64,
    pub(crate) hard_state: HardState,
    pub(crate) conf_state: ConfState,
    /// A snapshot that can be sent to a follower whose entries were trimmed.
    offer: Option<Snapshot>,
    /// Whether a follower needs a snapshot that `offer` does not cover.
    wanted: Cell<bool>,
    /// The allowance of reads for followers that are far behind.
    pub(crate) allowance: Allowance,
}

pub(crate) fn size(entry: &Entry) -> u64 {
    let bytes = entry.data.len().saturating_add(entry.context.len()) as u64;
    bytes.saturating_add(ENTRY_OVERHEAD_BYTES)
}

impl Log {
    pub(crate) fn new(
        start: (u64, u64),
        entries: Vec<Entry>,
        hard_state: HardState,
        conf_state: ConfState,
        allowance: Allowance,
    ) -> Self {
        let bytes = entries.iter().map(size).sum();
        let wanted = Cell::new(false);
        let trimmed_terms = [start].into();
        let mut kept = Chunked::new();
        kept.extend(entries);
        Log { start, trimmed_terms, entries: kept, bytes, hard_state, conf_state, offer: None, wanted, allowance }
    }

    /// Adds entries, replacing those from the first one's index on.
    pub(crate) fn append(&mut self, entries: Vec<Entry>) {
        let Some(first) = entries.first() else { return };
        let Some(keep) = self.place(first.index) else {
            panic!(
                "entry {}, in the trimmed part of the log, was replaced: only applied entries are trimmed, and Raft replaces none that \
                 is committed",
                first.index
            );
        };
        assert!(keep <= self.entries.len(), "the log would have a hole");
        while self.entries.len() > keep
            && let Some(replaced) = self.entries.pop_back()
        {
            self.bytes = self.bytes.saturating_sub(size(&replaced));
        }
        let bytes = entries.iter().map(size).sum::<u64>();
        self.bytes = self.bytes.saturating_add(bytes);
        self.allowance.grow(bytes);
        self.entries.extend(entries);
    }

    /// Restarts after an installed snapshot.
    pub(crate) fn restore(&mut self, snapshot: &Snapshot) {
        let metadata = snapshot.get_metadata();
        self.start = (metadata.index, metadata.term);
        self.trimmed_terms = [self.start].into();
        self.entries.clear();
        self.bytes = 0;
        self.conf_state = metadata.get_conf_state().clone();
        self.offer = None;
    }

    /// Offers a snapshot to followers that need one.
    pub(crate) fn offer(&mut self, snapshot: Snapshot) {
        self.wanted.set(false);
        self.offer = Some(snapshot);
    }

    /// Withdraws the offered snapshot: it can no longer be sent.
    pub(crate) fn withdraw_offer(&mut self) {
        self.offer = None;
    }

    /// Whether a follower needed a snapshot that no offer covers.
    pub(crate) fn wants_offer(&self) -> bool {
        self.wanted.get()
    }

    /// Forgets entries up to and including `index`.
    pub(crate) fn trim(&mut self, index: u64) {
        while let Some(first) = self.entries.front().filter(|first| first.index <= index) {
            if first.term > self.start.1 {
                self.trimmed_terms.push_back((first.index, first.term));
            }
            self.start = (first.index, first.term);
            self.bytes = self.bytes.saturating_sub(size(first));
            self.entries.pop_front();
        }
        let excess = self.trimmed_terms.len().saturating_sub(TRIMMED_TERMS_MAX);
        self.trimmed_terms.drain(..excess);
    }

    /// The term of an entry that was trimmed since the start, or since a snapshot was installed.
    pub(crate) fn trimmed_term(&self, index: u64) -> Option<u64> {
        let after = self.trimmed_terms.partition_point(|(began, _)| *began <= index);
        let (_, term) = self.trimmed_terms.get(after.checked_sub(1)?)?;
        (index <= self.start.0).then_some(*term)
    }

    /// The index for [`Log::trim`] that leaves at most `bytes_max` bytes.
    pub(crate) fn index_to_fit(&self, bytes_max: u64) -> u64 {
        let mut excess = self.bytes.saturating_sub(bytes_max);
        let mut index = self.start.0;
        for entry in self.entries.iter() {
            if excess == 0 {
                break;
            }
            excess = excess.saturating_sub(size(entry));
            index = entry.index;
        }
        index
    }

    /// Bytes of the entries.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Index of the last entry.
    pub(crate) fn last_entry(&self) -> u64 {
        self.last().0
    }

    /// Entries from the newest to the oldest.
    pub(crate) fn newest(&self) -> impl Iterator<Item = &Entry> {
        self.entries.iter().rev()
    }

    /// The position of an entry, present or not; `None` if it was trimmed.
    fn place(&self, index: u64) -> Option<usize> {
        usize::try_from(index.checked_sub(self.start.0)?.checked_sub(1)?).ok()
    }

    fn last(&self) -> (u64, u64) {
        self.entries.back().map_or(self.start, |last| (last.index, last.term))
    }
}

impl Storage for Log {
    fn initial_state(&self) -> Result<RaftState> {
        Ok(RaftState::new(self.hard_state.clone(), self.conf_state.clone()))
    }

    fn entries(
        &self,
        low: u64,
        high: u64,
        max_size: impl Into<Option<u64>>,
        context: GetEntriesContext,
    ) -> Result<Vec<Entry>> {
        let (Some(from), Some(to)) = (self.place(low), self.place(high.max(low))) else {
            return Err(StorageError::Compacted.into());
        };
        if to > self.entries.len() {
            return Err(StorageError::Unavailable.into());
        }
        let mut max_size = max_size.into().unwrap_or(u64::MAX);
        // raft-rs can wait only for entries that it is about to send.
        let is_lagging = context.can_async() && self.is_far_behind(low);
        if is_lagging {
            if self.allowance.left() == 0 {
                return Err(StorageError::LogTemporarilyUnavailable.into());
            }
            max_size = max_size.min(self.allowance.left());
        }
        let mut taken_bytes = 0u64;
        let count = to.saturating_sub(from);
        // raft-rs asks for all that there are behind a follower's last, which may be a million, and for as many as a message holds.
        let count_max = max_size.checked_div(ENTRY_OVERHEAD_BYTES).unwrap_or(0).saturating_add(1);
        let mut taken = Vec::with_capacity(count.min(usize::try_from(count_max).unwrap_or(usize::MAX)));
        for entry in self.entries.from(from).take(count) {
            taken_bytes = taken_bytes.saturating_add(size(entry));
            // At least one entry is always sent, or a large one would stall the follower for good.
            if taken_bytes > max_size && !taken.is_empty() {
                break;
            }
            taken.push(entry.clone());
        }
        if is_lagging {
            self.allowance.spend(taken_bytes);
        }
        Ok(taken)
    }

    fn term(&self, index: u64) -> Result<u64> {
        if index == self.start.0 {
            return Ok(self.start.1);
        }
        let Some(at) = self.place(index) else { return Err(StorageError::Compacted.into()) };
        self.entries.get(at).map(|entry| entry.term).ok_or_else(|| StorageError::Unavailable.into())
    }

    fn first_index(&self) -> Result<u64> {
        Ok(self.start.0.saturating_add(1))
    }

    fn last_index(&self) -> Result<u64> {
        Ok(self.last().0)
    }

    fn snapshot(&self, request_index: u64, to: u64) -> Result<Snapshot> {
        // The shell sends the snapshot itself. If the log in memory did not continue a snapshot, the follower would
        // need another one at once.
        let usable = |offer: &&Snapshot| {
            let metadata = offer.get_metadata();
            let conf_state = metadata.get_conf_state();
            // A member takes no snapshot whose configuration lacks it.
            let knows = conf_state.voters.contains(&to) || conf_state.learners.contains(&to);
            metadata.index >= self.start.0 && metadata.index >= request_index && knows
        };
        match self.offer.as_ref().filter(usable) {
            Some(offer) => Ok(offer.clone()),
            None => {
                self.wanted.set(true);
                Err(StorageError::SnapshotTemporarilyUnavailable.into())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(index: u64, term: u64) -> Entry {
        Entry { index, term, ..Default::default() }
    }

    fn log() -> Log {
        let entries = (6..=9).map(|index| entry(index, 2)).collect();
        Log::new((5, 1), entries, HardState::default(), ConfState::default(), Allowance::new(100))
    }

    #[test]
    fn a_later_term_replaces_the_tail() {
        let mut log = log();
        log.append(vec![entry(8, 3)]);
        assert_eq!(log.last(), (8, 3));
        assert_eq!(log.term(7), Ok(2));
        assert!(log.term(9).is_err());
    }

    #[test]
    fn trimmed_entries_are_compacted() {
        let mut log = log();
        log.trim(7);
        assert_eq!(log.first_index(), Ok(8));
        assert_eq!(log.term(7), Ok(2));
        assert_eq!(log.term(6), Err(raft::Error::Store(StorageError::Compacted)));
        assert_eq!(log.entries(8, 10, None, GetEntriesContext::empty(false)).map(|entries| entries.len()), Ok(2));
        assert_eq!(log.entries(8, 10, 1, GetEntriesContext::empty(false)).map(|entries| entries.len()), Ok(1));
    }

    #[test]
    fn the_terms_of_trimmed_entries_are_remembered() {
        let mut log = log();
        log.append(vec![entry(9, 3), entry(10, 3), entry(11, 7)]);
        let terms = |log: &Log| (4..=12).map(|index| log.trimmed_term(index)).collect::<Vec<_>>();
        assert_eq!(terms(&log), [None, Some(1), None, None, None, None, None, None, None]);
        log.trim(8);
        assert_eq!(terms(&log)[1..6], [Some(1), Some(2), Some(2), Some(2), None]);
        log.trim(11);
        assert_eq!(terms(&log)[5..], [Some(3), Some(3), Some(7), None]);
        let mut snapshot = Snapshot::default();
        (snapshot.mut_metadata().index, snapshot.mut_metadata().term) = (12, 8);
        log.restore(&snapshot);
        assert_eq!(terms(&log)[6..], [None, None, Some(8)]);
        // The list stays small, however many elections there are.
        let last = 12 + 2 * TRIMMED_TERMS_MAX as u64;
        log.append((13..=last).map(|index| entry(index, index)).collect());
        log.trim(last);
        assert_eq!(log.trimmed_terms.len(), TRIMMED_TERMS_MAX);
        assert_eq!((log.trimmed_term(12), log.trimmed_term(last - 1)), (None, Some(last - 1)));
    }

    #[test]
    fn bytes_are_counted() {
        let mut log = log();
        assert_eq!(log.bytes(), 4 * ENTRY_OVERHEAD_BYTES);
        assert_eq!(log.index_to_fit(2 * ENTRY_OVERHEAD_BYTES), 7);
        log.trim(6);
        log.append(vec![Entry { data: vec![0; 10].into(), ..entry(9, 3) }]);
        assert_eq!(log.bytes(), 3 * ENTRY_OVERHEAD_BYTES + 10);
        assert_eq!(log.index_to_fit(u64::MAX), 6);
    }

    #[test]
    fn only_a_snapshot_that_the_log_continues_is_handed_out() {
        let mut log = log();
        assert!(log.snapshot(0, 2).is_err());
        assert!(log.wants_offer());
        let snapshot = |index| {
            let mut snapshot = Snapshot::default();
            snapshot.mut_metadata().index = index;
            snapshot.mut_metadata().mut_conf_state().voters = vec![1, 2];
            snapshot
        };
        log.offer(snapshot(7));
        assert!(!log.wants_offer());
        log.trim(7);
        assert!(log.snapshot(0, 2).is_ok());
        assert!(log.snapshot(0, 3).is_err(), "it does not know this member");
        log.trim(8);
        assert!(log.snapshot(0, 2).is_err() && log.wants_offer());
    }
}

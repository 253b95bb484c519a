//! The recent part of the Raft log in memory, as raft-rs reads it.

use raft::eraftpb::{ConfState, Entry, HardState, Snapshot};
use raft::{GetEntriesContext, RaftState, Result, Storage, StorageError};
use std::collections::VecDeque;

/// Entries after `start`, all of them handed to the log on disk or about to be.
pub(crate) struct Log {
    /// Index and term of the last entry that was trimmed.
    start: (u64, u64),
    entries: VecDeque<Entry>,
    pub(crate) hard_state: HardState,
    pub(crate) conf_state: ConfState,
}

impl Log {
    pub(crate) fn new(start: (u64, u64), entries: Vec<Entry>, hard_state: HardState, conf_state: ConfState) -> Self {
        Log { start, entries: entries.into(), hard_state, conf_state }
    }

    /// Adds entries, replacing those from the first one's index on.
    pub(crate) fn append(&mut self, entries: &[Entry]) {
        let Some(first) = entries.first() else { return };
        assert!(first.index > self.start.0, "an entry below the trimmed part of the log was replaced");
        let keep = (first.index - self.start.0 - 1) as usize;
        assert!(keep <= self.entries.len(), "the log would have a hole");
        self.entries.truncate(keep);
        self.entries.extend(entries.iter().cloned());
    }

    /// Forgets entries up to and including `index`.
    pub(crate) fn trim(&mut self, index: u64) {
        while let Some(first) = self.entries.front().filter(|first| first.index <= index) {
            self.start = (first.index, first.term);
            self.entries.pop_front();
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.len()
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
        _context: GetEntriesContext,
    ) -> Result<Vec<Entry>> {
        if low <= self.start.0 {
            return Err(StorageError::Compacted.into());
        }
        if high > self.last().0 + 1 {
            return Err(StorageError::Unavailable.into());
        }
        let from = (low - self.start.0 - 1) as usize;
        let to = (high - self.start.0 - 1) as usize;
        let max_size = max_size.into().unwrap_or(u64::MAX);
        let mut size = 0;
        let mut taken = Vec::with_capacity(to - from);
        for entry in self.entries.range(from..to) {
            // What an entry takes in a message: its data and at most four small fields.
            size += entry.data.len() as u64 + 24;
            // At least one entry is always sent, or a large one would stall the follower for good.
            if size > max_size && !taken.is_empty() {
                break;
            }
            taken.push(entry.clone());
        }
        Ok(taken)
    }

    fn term(&self, index: u64) -> Result<u64> {
        if index == self.start.0 {
            return Ok(self.start.1);
        }
        if index < self.start.0 {
            return Err(StorageError::Compacted.into());
        }
        let at = (index - self.start.0 - 1) as usize;
        self.entries.get(at).map(|entry| entry.term).ok_or_else(|| StorageError::Unavailable.into())
    }

    fn first_index(&self) -> Result<u64> {
        Ok(self.start.0 + 1)
    }

    fn last_index(&self) -> Result<u64> {
        Ok(self.last().0)
    }

    fn snapshot(&self, _request_index: u64, _to: u64) -> Result<Snapshot> {
        // Snapshots are checkpoints of the store, sent by the shell; there is none to hand out from memory.
        Err(StorageError::SnapshotTemporarilyUnavailable.into())
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
        Log::new((5, 1), entries, HardState::default(), ConfState::default())
    }

    #[test]
    fn a_later_term_replaces_the_tail() {
        let mut log = log();
        log.append(&[entry(8, 3)]);
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
}

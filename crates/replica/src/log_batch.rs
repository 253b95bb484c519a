//! Work for the Raft log.

use api::{raftpb, walpb};
use wal::{EntryRef, Wal};

/// The work for the log of one piece of Raft's work.
pub(crate) struct LogWork {
    pub(crate) number: u64,
    /// A snapshot that was installed: the log restarts after it.
    pub(crate) snapshot: Option<walpb::Snapshot>,
    pub(crate) entries: Vec<raftpb::Entry>,
    pub(crate) hard_state: Option<raftpb::HardState>,
    pub(crate) must_sync: bool,
    /// Messages for peers, to be sent once the work is durable.
    pub(crate) messages: Vec<raftpb::Message>,
}

/// The work of one turn for the log: one write, one sync, then [`Replica::persisted`](crate::Replica::persisted).
#[derive(Default)]
pub struct LogBatch {
    pub(crate) work: Vec<LogWork>,
}

/// One change of the log.
#[derive(Clone, Copy, Debug)]
pub struct LogChange<'a> {
    /// The log restarts after this snapshot.
    pub snapshot: Option<&'a walpb::Snapshot>,
    /// Entries, which replace those from the first one's index on.
    pub entries: &'a [raftpb::Entry],
    /// Term, vote and commit index.
    pub hard_state: Option<&'a raftpb::HardState>,
    /// Whether the change must be synced; otherwise it may wait for the next sync.
    pub must_sync: bool,
}

impl LogBatch {
    /// Whether the batch is empty.
    pub fn is_empty(&self) -> bool {
        self.work.is_empty()
    }

    /// Whether the log must be synced before the batch counts as persisted. Otherwise it may wait for the next sync.
    pub fn must_sync(&self) -> bool {
        self.work.iter().any(|work| work.must_sync)
    }

    /// Index of the last entry.
    pub fn last_index(&self) -> Option<u64> {
        self.work.iter().rev().find_map(|work| work.entries.last()).map(raftpb::Entry::index)
    }

    /// Bytes of the entries.
    pub fn bytes(&self) -> usize {
        self.work.iter().flat_map(|work| &work.entries).map(|entry| entry.data().len()).sum()
    }

    /// The changes of the log, in order.
    pub fn changes(&self) -> impl Iterator<Item = LogChange<'_>> {
        self.work.iter().map(|work| LogChange {
            snapshot: work.snapshot.as_ref(),
            entries: &work.entries,
            hard_state: work.hard_state.as_ref(),
            must_sync: work.must_sync,
        })
    }

    /// Appends the batch to the log's buffer. Nothing reaches the disk before the log is committed.
    pub fn append_to(&self, wal: &mut Wal) {
        wal.reserve(self.work.iter().map(|work| work.entries.len()).sum(), self.bytes());
        for work in &self.work {
            if let Some(snapshot) = &work.snapshot {
                wal.save_snapshot(snapshot);
            }
            let mut entries = work.entries.iter().map(|entry| EntryRef {
                term: entry.term(),
                index: entry.index(),
                kind: entry.r#type() as i32,
                data: entry.data(),
            });
            wal.append(&mut entries, work.hard_state.as_ref());
        }
    }
}

//! Committed entries on their way to the store, and what a configuration change must wait for.

use api::Message;
use api::raftpb::{ConfChange, ConfChangeType, Entry, EntryType};
use std::collections::VecDeque;

/// The next piece for the store.
#[derive(Debug, PartialEq)]
pub enum Piece {
    /// Entries to apply, now or behind those that are being applied.
    Entries(Vec<Entry>),
    /// A configuration change. It must be applied now and passed to [`crate::consensus::Member::apply_conf_change`];
    /// only then may it be answered or another piece follow.
    Change(Entry),
}

/// Committed entries that the store was not given yet.
///
/// A change needs a store that has applied everything before it. A removal takes effect, and is answered, once it is durable
/// ([`is_to_last`]): after the sync of the work that brought it. No thread waits for either while it holds the core: the change stays
/// here with all entries after it, and the shell looks again when the log is synced and when the store is idle.
#[derive(Default)]
pub struct Backlog {
    /// With the number of the work that brought them. A change is a piece of its own.
    pieces: VecDeque<(u64, Vec<Entry>)>,
    bytes: usize,
    durable: u64,
}

impl Backlog {
    /// Queues the entries that the work of this number has committed.
    pub fn add(&mut self, number: u64, mut entries: Vec<Entry>) {
        self.bytes = self.bytes.saturating_add(bytes(&entries));
        while let Some(at) = entries.iter().position(is_change) {
            let mut change = entries.split_off(at);
            let behind = change.split_off(1);
            self.push(number, std::mem::replace(&mut entries, behind));
            self.push(number, change);
        }
        self.push(number, entries);
    }

    fn push(&mut self, number: u64, entries: Vec<Entry>) {
        if !entries.is_empty() {
            self.pieces.push_back((number, entries));
        }
    }

    /// Notes that the log is durable up to the work of this number.
    pub fn persisted(&mut self, number: u64) {
        self.durable = self.durable.max(number);
    }

    /// The next piece, if the store can be given one now. `store_is_idle` is called only if the answer depends on it.
    /// If it returns false, it must cause another call of this method once the store is idle.
    pub fn next(&mut self, store_is_idle: impl FnOnce() -> bool) -> Option<Piece> {
        let (number, entries) = self.pieces.front()?;
        let changes = entries.first().is_some_and(is_change);
        let waits_for_disk = *number > self.durable && entries.iter().any(is_to_last);
        if waits_for_disk || (changes && !store_is_idle()) {
            return None;
        }
        let (_, mut entries) = self.pieces.pop_front()?;
        self.bytes = self.bytes.saturating_sub(bytes(&entries));
        if !changes {
            return Some(Piece::Entries(entries));
        }
        let change = entries.pop()?;
        assert!(entries.is_empty(), "a configuration change came together with other entries");
        Some(Piece::Change(change))
    }

    /// Whether no entry waits.
    pub fn is_empty(&self) -> bool {
        self.pieces.is_empty()
    }

    /// Bytes of the waiting entries.
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

fn is_change(entry: &Entry) -> bool {
    entry.r#type() != EntryType::EntryNormal
}

/// Whether a committed entry must be durable, with its commit index, before it takes effect. A removal must be, since
/// the removed member ends once it learns of it: a remaining member that forgot the removal, because its commit index
/// was not synced, would need the removed one's vote again. An addition may be forgotten: all old members still exist,
/// each of their quorums intersects each of the new ones, and a member that takes the next change into its log syncs
/// the commit index of this one with it.
pub fn is_to_last(entry: &Entry) -> bool {
    let removes = |change: ConfChange| change.r#type() == ConfChangeType::ConfChangeRemoveNode;
    is_change(entry) && ConfChange::decode(entry.data.clone().unwrap_or_default()).map_or(true, removes)
}

fn bytes(entries: &[Entry]) -> usize {
    entries.iter().map(|entry| entry.data().len()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;

    fn normal(index: u64) -> Entry {
        Entry { index: Some(index), data: Some(Bytes::from_static(b"data")), ..Default::default() }
    }

    fn change(index: u64, kind: ConfChangeType) -> Entry {
        let change = ConfChange { r#type: Some(kind as i32), node_id: Some(7), ..Default::default() };
        Entry {
            index: Some(index),
            r#type: Some(EntryType::EntryConfChange as i32),
            data: Some(change.encode_to_vec().into()),
            ..Default::default()
        }
    }

    fn removal(index: u64) -> Entry {
        change(index, ConfChangeType::ConfChangeRemoveNode)
    }

    fn addition(index: u64) -> Entry {
        change(index, ConfChangeType::ConfChangeAddNode)
    }

    #[test]
    fn without_a_change_nothing_waits() {
        let mut backlog = Backlog::default();
        backlog.add(1, vec![normal(1), normal(2)]);
        assert_eq!(
            backlog.next(|| unreachable!("nobody needs to know")),
            Some(Piece::Entries(vec![normal(1), normal(2)]))
        );
        assert!(backlog.is_empty() && backlog.bytes() == 0);
    }

    #[test]
    fn a_removal_waits_for_the_disk_and_for_the_store_and_the_rest_for_the_removal() {
        let mut backlog = Backlog::default();
        backlog.add(3, vec![normal(1), removal(2), removal(3), normal(4)]);
        backlog.add(4, vec![normal(5)]);
        assert_eq!(backlog.next(|| false), Some(Piece::Entries(vec![normal(1)])));
        assert_eq!(backlog.next(|| true), None, "the log is not synced");
        backlog.persisted(2);
        assert_eq!(backlog.next(|| true), None, "not that far");
        backlog.persisted(3);
        assert_eq!(backlog.next(|| false), None, "the store is busy");
        assert_eq!(backlog.bytes(), 2 * removal(2).data().len() + 8);
        assert_eq!(backlog.next(|| true), Some(Piece::Change(removal(2))));
        assert_eq!(backlog.next(|| true), Some(Piece::Change(removal(3))));
        assert_eq!(backlog.next(|| false), Some(Piece::Entries(vec![normal(4)])));
        assert_eq!(backlog.next(|| false), Some(Piece::Entries(vec![normal(5)])));
        assert_eq!(backlog.next(|| true), None);
        assert!(backlog.is_empty() && backlog.bytes() == 0);
    }

    #[test]
    fn an_addition_waits_for_the_store_alone() {
        let mut backlog = Backlog::default();
        backlog.add(1, vec![addition(1), normal(2)]);
        assert_eq!(backlog.next(|| false), None);
        assert_eq!(backlog.next(|| true), Some(Piece::Change(addition(1))));
        assert_eq!(backlog.next(|| false), Some(Piece::Entries(vec![normal(2)])));
    }

    #[test]
    fn a_removal_of_work_that_is_durable_already_does_not_wait() {
        let mut backlog = Backlog::default();
        backlog.persisted(7);
        backlog.add(7, vec![removal(1)]);
        assert_eq!(backlog.next(|| true), Some(Piece::Change(removal(1))));
    }
}

//! The voters of a cluster, as its log tells them. The database is not asked: one that was restored from a snapshot names the voters of
//! another cluster.

use api::Message;
use api::raftpb::{ConfChange, ConfChangeType, ConfState, Entry, EntryType};
use api::walpb::Snapshot;
use std::collections::BTreeSet;

/// The configuration changes and the snapshots of a log.
#[derive(Clone, Debug, Default)]
pub(crate) struct Votes {
    snapshots: Vec<Snapshot>,
    changes: Vec<(u64, ConfChange)>,
}

impl Votes {
    pub(crate) fn snapshot(&mut self, snapshot: &Snapshot) {
        self.snapshots.push(snapshot.clone());
    }

    /// The newest state that the log continues after, of those that were committed.
    pub(crate) fn newest(&self, commit: u64) -> Option<&Snapshot> {
        self.snapshots.iter().filter(|snapshot| snapshot.index() <= commit).max_by_key(|snapshot| snapshot.index())
    }

    /// An entry, which replaces all from its index on.
    pub(crate) fn entry(&mut self, entry: &Entry) {
        while self.changes.last().is_some_and(|(index, _)| *index >= entry.index()) {
            self.changes.pop();
        }
        if entry.r#type() == EntryType::EntryConfChange
            && let Ok(change) = ConfChange::decode(entry.data.clone().unwrap_or_default())
        {
            self.changes.push((entry.index(), change));
        }
    }

    /// Forgets changes up to the entry `index` that the cluster has refused. They are in the log like all others, and `is_member` tells them:
    /// whom they were to add is no member after that entry. Nobody misses those who were added and removed again.
    pub(crate) fn forget_refused(&mut self, index: u64, is_member: impl Fn(u64) -> bool) {
        let adds = |change: &ConfChange| {
            matches!(change.r#type(), ConfChangeType::ConfChangeAddNode | ConfChangeType::ConfChangeAddLearnerNode)
        };
        self.changes.retain(|(at, change)| *at > index || !adds(change) || is_member(change.node_id()));
    }

    pub(crate) fn term_of(&self, index: u64) -> Option<u64> {
        self.snapshots.iter().rev().find(|snapshot| snapshot.index() == index).map(Snapshot::term)
    }

    /// Raft's configuration after the entry `index`; `None` if the log does not say.
    pub(crate) fn at(&self, index: u64) -> Option<ConfState> {
        let known = |snapshot: &&Snapshot| snapshot.index() <= index && snapshot.conf_state.is_some();
        let base = self.snapshots.iter().rev().find(known);
        let state = base.and_then(|base| base.conf_state.clone()).unwrap_or_default();
        let after = base.map_or(0, Snapshot::index);
        let (mut voters, mut learners): (BTreeSet<u64>, BTreeSet<u64>) =
            (state.voters.iter().copied().collect(), state.learners.iter().copied().collect());
        for (_, change) in self.changes.iter().filter(|(at, _)| *at > after && *at <= index) {
            let id = change.node_id();
            match change.r#type() {
                ConfChangeType::ConfChangeAddNode => {
                    learners.remove(&id);
                    voters.insert(id);
                }
                ConfChangeType::ConfChangeAddLearnerNode => {
                    voters.remove(&id);
                    learners.insert(id);
                }
                ConfChangeType::ConfChangeRemoveNode => {
                    voters.remove(&id);
                    learners.remove(&id);
                }
                ConfChangeType::ConfChangeUpdateNode => {}
            }
        }
        let (voters, learners) = (voters.into_iter().collect(), learners.into_iter().collect());
        let state = ConfState { voters, learners, ..state };
        (!state.voters.is_empty()).then_some(state)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn change(index: u64, kind: ConfChangeType, id: u64) -> Entry {
        let change = ConfChange { r#type: Some(kind as i32), node_id: Some(id), ..ConfChange::default() };
        let (kind, data) = (EntryType::EntryConfChange as i32, change.encode_to_vec().into());
        Entry { index: Some(index), term: Some(1), r#type: Some(kind), data: Some(data) }
    }

    #[test]
    fn refused_changes_do_not_count() {
        use ConfChangeType::{
            ConfChangeAddLearnerNode as Learn, ConfChangeAddNode as Add, ConfChangeRemoveNode as Remove,
        };
        let mut votes = Votes::default();
        for (index, kind, id) in
            [(1, Add, 1), (2, Add, 2), (3, Add, 3), (4, Remove, 3), (5, Learn, 4), (6, Learn, 5), (7, Add, 6)]
        {
            votes.entry(&change(index, kind, id));
        }
        // 2 and 5 never were members, and 6 is not yet.
        votes.forget_refused(6, |id| [1, 4].contains(&id));
        let found = |votes: &Votes, index| votes.at(index).map(|state| (state.voters, state.learners));
        assert_eq!(found(&votes, 6), Some((vec![1], vec![4])));
        assert_eq!(found(&votes, 7), Some((vec![1, 6], vec![4])));
    }

    #[test]
    fn changes_count_behind_the_newest_state() {
        use ConfChangeType::{
            ConfChangeAddLearnerNode as Learn, ConfChangeAddNode as Add, ConfChangeRemoveNode as Remove,
        };
        let mut votes = Votes::default();
        assert_eq!(votes.at(9), None);
        for (index, kind, id) in [(1, Add, 1), (2, Add, 2), (3, Learn, 3), (4, Remove, 2), (5, Add, 3), (6, Add, 9)] {
            votes.entry(&change(index, kind, id));
        }
        // Another leader has put something else in the place of the last one.
        votes.entry(&Entry { index: Some(6), ..Entry::default() });
        let found = |votes: &Votes, index| votes.at(index).map(|state| (state.voters, state.learners));
        assert_eq!(found(&votes, 3), Some((vec![1, 2], vec![3])));
        assert_eq!(found(&votes, 9), Some((vec![1, 3], vec![])));
        let conf_state = Some(ConfState { voters: vec![7], ..ConfState::default() });
        votes.snapshot(&Snapshot { index: Some(4), term: Some(1), conf_state });
        assert_eq!(found(&votes, 9), Some((vec![3, 7], vec![])));
        assert_eq!((found(&votes, 3), votes.term_of(4)), (Some((vec![1, 2], vec![3])), Some(1)));
        let last = Snapshot { index: Some(u64::MAX), ..Snapshot { conf_state: votes.at(9), ..Snapshot::default() } };
        let mut at_the_end = votes.clone();
        at_the_end.snapshot(&last);
        assert_eq!(found(&at_the_end, u64::MAX), Some((vec![3, 7], vec![])), "nothing is behind the last number");
        assert_eq!((votes.newest(3), votes.newest(4).map(Snapshot::index)), (None, Some(4)));
    }
}

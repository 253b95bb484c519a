//! `--force-new-cluster`: one member continues alone from its own data, when the others are lost for good.

use api::Message;
use api::raftpb::{ConfChange, ConfChangeType, Entry, EntryType};
use replica::Restored;
use std::collections::BTreeSet;
use store::{ConfChangeContext, Member};

/// The member was removed, so it cannot continue alone: a removed id never comes back.
#[derive(Debug, thiserror::Error)]
#[error(
    "cannot force a new cluster from this data: the cluster has removed this member, {0:x}, for good; start from the data of \
     another member, or restore a snapshot"
)]
pub struct RemovedForGood(u64);

/// What this member must write to its log before it starts.
pub(crate) struct Forced {
    /// Entries that remove every other member. They follow the entries of the log that are kept.
    pub(crate) entries: Vec<Entry>,
    /// The members that these entries remove.
    pub(crate) removed: Vec<u64>,
}

/// Appends the removal of every other member to the restored log, and marks the whole log as committed. The ids of this
/// member and the cluster stay.
///
/// The last entries of a follower were often acknowledged by its leader before the follower heard that they are
/// committed. Dropping them, as etcd does, would lose those writes. Keeping an entry that was never acknowledged does
/// no harm: its client has no answer. Only an uncommitted removal of this member is cut off, with all entries behind
/// it, because a removal can never be undone. `removed` are the removed members that the store knows.
pub(crate) fn force(
    restored: &mut Restored,
    own_id: u64,
    peer_urls: &[String],
    removed: &BTreeSet<u64>,
) -> Result<Forced, RemovedForGood> {
    let cut = cut_own_removal(restored, own_id, removed)?;
    let learner = restored.conf_state.learners.contains(&own_id);
    let (ids, learner) = members(restored, own_id, learner);
    let last = restored.entries.last().map_or(restored.applied, Entry::index);
    let mut changes: Vec<ConfChange> = Vec::new();
    let others: Vec<u64> = ids.iter().copied().filter(|id| *id != own_id).collect();
    // This member is added first: the cluster must have a voter after every change.
    if !ids.contains(&own_id) || learner {
        let member = Member { id: own_id, peer_urls: peer_urls.to_vec(), ..Member::default() };
        let context = ConfChangeContext { member, is_promote: learner };
        changes.push(change(ConfChangeType::ConfChangeAddNode, own_id, Some(context)));
    }
    changes.extend(others.iter().map(|id| change(ConfChangeType::ConfChangeRemoveNode, *id, None)));
    // Entries that were cut off are gone from the disk only when another entry takes their place.
    let blank = cut.then(|| (EntryType::EntryNormal, Vec::new()));
    let changes: Vec<_> = changes.iter().map(|change| (EntryType::EntryConfChange, change.encode_to_vec())).collect();
    // The new entries get a new term: a leader of the last term may have other entries at these indexes.
    let known = restored.hard_state.term().max(restored.applied_term);
    let term = if blank.is_some() || !changes.is_empty() { known.saturating_add(1) } else { known };
    let entries: Vec<Entry> = (last + 1..)
        .zip(blank.into_iter().chain(changes))
        .map(|(index, (kind, data))| Entry {
            term: Some(term),
            index: Some(index),
            r#type: Some(kind as i32),
            data: Some(data.into()),
        })
        .collect();
    restored.entries.extend(entries.iter().cloned());
    if term > restored.hard_state.term() {
        // No other member knows the new term, so only this member can have led it.
        restored.hard_state.vote = Some(if entries.is_empty() { 0 } else { own_id });
    }
    restored.hard_state.term = Some(term);
    restored.hard_state.commit = Some(restored.entries.last().map_or(restored.applied, Entry::index));
    Ok(Forced { entries, removed: others })
}

/// Cuts this member's removal and all entries behind it off the restored log. Returns whether there was a removal.
/// Fails if the removal is committed.
fn cut_own_removal(restored: &mut Restored, own_id: u64, removed: &BTreeSet<u64>) -> Result<bool, RemovedForGood> {
    if removed.contains(&own_id) {
        return Err(RemovedForGood(own_id));
    }
    let is_removal = |entry: &Entry| {
        entry.index() > restored.applied
            && change_in(entry).is_some_and(|change| {
                change.r#type() == ConfChangeType::ConfChangeRemoveNode && change.node_id() == own_id
            })
    };
    let Some(at) = restored.entries.iter().position(is_removal) else { return Ok(false) };
    if restored.entries[at].index() <= restored.hard_state.commit() {
        return Err(RemovedForGood(own_id));
    }
    restored.entries.truncate(at);
    Ok(true)
}

/// The configuration change that an entry holds.
fn change_in(entry: &Entry) -> Option<ConfChange> {
    let holds = entry.r#type() == EntryType::EntryConfChange;
    holds.then(|| ConfChange::decode(entry.data.clone().unwrap_or_default()).ok()).flatten()
}

fn change(kind: ConfChangeType, id: u64, context: Option<ConfChangeContext>) -> ConfChange {
    let context = context.map(|context| context.encode().into());
    ConfChange { r#type: Some(kind as i32), node_id: Some(id), context, id: None }
}

/// All members of the cluster once the restored log is applied, and whether this member is a learner then.
fn members(restored: &Restored, own_id: u64, mut learner: bool) -> (BTreeSet<u64>, bool) {
    let state = &restored.conf_state;
    let mut ids: BTreeSet<u64> =
        state.voters.iter().chain(&state.learners).chain(&state.voters_outgoing).copied().collect();
    for entry in restored.entries.iter().filter(|entry| entry.index() > restored.applied) {
        let Some(change) = change_in(entry) else { continue };
        match change.r#type() {
            kind @ (ConfChangeType::ConfChangeAddNode | ConfChangeType::ConfChangeAddLearnerNode) => {
                ids.insert(change.node_id());
                if change.node_id() == own_id {
                    learner = kind == ConfChangeType::ConfChangeAddLearnerNode;
                }
            }
            ConfChangeType::ConfChangeRemoveNode => {
                ids.remove(&change.node_id());
            }
            ConfChangeType::ConfChangeUpdateNode => {}
        }
    }
    (ids, learner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use api::raftpb::{ConfState, HardState};

    fn add(index: u64, id: u64) -> Entry {
        entry(index, &change(ConfChangeType::ConfChangeAddNode, id, None))
    }

    fn remove(index: u64, id: u64) -> Entry {
        entry(index, &change(ConfChangeType::ConfChangeRemoveNode, id, None))
    }

    fn entry(index: u64, change: &ConfChange) -> Entry {
        Entry {
            term: Some(2),
            index: Some(index),
            r#type: Some(EntryType::EntryConfChange as i32),
            data: Some(change.encode_to_vec().into()),
        }
    }

    fn restored(voters: &[u64], learners: &[u64], entries: Vec<Entry>, commit: u64) -> Restored {
        Restored {
            hard_state: HardState { term: Some(3), vote: Some(2), commit: Some(commit) },
            entries,
            newest_applied: Vec::new(),
            applied: 5,
            applied_term: 2,
            conf_state: ConfState { voters: voters.into(), learners: learners.into(), ..ConfState::default() },
            joined: Vec::new(),
            observes: false,
        }
    }

    fn force(restored: &mut Restored, own_id: u64, peer_urls: &[String]) -> Forced {
        match super::force(restored, own_id, peer_urls, &BTreeSet::new()) {
            Ok(forced) => forced,
            Err(error) => panic!("{error}"),
        }
    }

    #[test]
    fn the_others_are_removed_behind_all_there_is() {
        let mut restored = restored(&[1, 2, 3], &[], vec![add(6, 4), add(7, 5)], 6);
        let forced = force(&mut restored, 2, &[]);
        assert_eq!(forced.removed, [1, 3, 4, 5]);
        let places: Vec<(u64, u64)> = forced.entries.iter().map(|entry| (entry.index(), entry.term())).collect();
        assert_eq!(places, [(8, 4), (9, 4), (10, 4), (11, 4)]);
        assert_eq!((restored.hard_state.commit(), restored.entries.len()), (11, 6));
        assert_eq!((restored.hard_state.term(), restored.hard_state.vote()), (4, 2));
    }

    /// The members left behind may have other entries of the last term at the same indexes. Neither a log nor a member
    /// that hears both clusters may take the two histories for one.
    #[test]
    fn its_entries_have_a_term_that_nobody_else_has_led() {
        for (term, applied_term, own) in [(3, 2, 4), (0, 2, 3), (2, 2, 3)] {
            let mut restored = restored(&[1, 2, 3], &[], vec![add(6, 4)], 6);
            restored.hard_state.term = Some(term);
            restored.applied_term = applied_term;
            let forced = force(&mut restored, 2, &[]);
            assert!(forced.entries.iter().all(|entry| entry.term() == own));
            assert_eq!((restored.hard_state.term(), restored.hard_state.vote()), (own, 2));
            // Raft accepts the state.
            let config = replica::Config {
                id: 2,
                election_ticks: 10,
                heartbeat_ticks: 1,
                pre_vote: true,
                seed: 1,
                boot_nonce: 1,
                near_entries: 1,
                unsafe_ignore_lost_log: false,
            };
            let member = replica::Member::new(&config, restored).expect("a sound log");
            assert_eq!(
                (member.status().term, member.status().committed),
                (own, forced.entries.last().expect("some").index())
            );
        }
    }

    #[test]
    fn a_member_alone_stays_as_it_is() {
        let mut restored = restored(&[2], &[], Vec::new(), 5);
        assert!(force(&mut restored, 2, &[]).entries.is_empty());
        assert_eq!((restored.hard_state.commit(), restored.hard_state.term(), restored.hard_state.vote()), (5, 3, 2));
    }

    #[test]
    fn a_learner_becomes_the_voter() {
        let mut restored = restored(&[1], &[2], Vec::new(), 5);
        let forced = force(&mut restored, 2, &["http://a:1".into()]);
        let changes: Vec<ConfChange> = forced
            .entries
            .iter()
            .filter_map(|entry| ConfChange::decode(entry.data.clone().unwrap_or_default()).ok())
            .collect();
        assert_eq!((changes[0].node_id(), changes[0].r#type()), (2, ConfChangeType::ConfChangeAddNode));
        assert!(String::from_utf8_lossy(changes[0].context()).contains("\"isPromote\":true"));
        assert_eq!((changes[1].node_id(), changes[1].r#type()), (1, ConfChangeType::ConfChangeRemoveNode));
    }

    #[test]
    fn an_own_removal_that_is_not_committed_is_cut_off() {
        let mut restored = restored(&[1, 2, 3], &[], vec![add(6, 4), remove(7, 2), add(8, 5)], 6);
        let forced = force(&mut restored, 2, &[]);
        assert_eq!(forced.removed, [1, 3, 4]);
        let indexes: Vec<u64> = restored.entries.iter().map(Entry::index).collect();
        assert_eq!(indexes, [6, 7, 8, 9, 10]);
        assert!(restored.entries[1..].iter().all(|entry| entry.index() == 7 || change_in(entry).is_some()));
        assert_eq!(restored.entries[1].r#type(), EntryType::EntryNormal);
        assert_eq!(forced.entries, restored.entries[1..]);
        assert_eq!(restored.hard_state.commit(), 10);
    }

    #[test]
    fn an_own_removal_is_cut_off_the_disk_even_when_there_is_nobody_else() {
        let mut restored = restored(&[2], &[], vec![remove(6, 2)], 5);
        let forced = force(&mut restored, 2, &[]);
        assert_eq!((forced.entries.len(), forced.entries[0].index(), forced.removed.len()), (1, 6, 0));
    }

    #[test]
    fn a_member_that_is_removed_for_good_is_refused_before_anything_is_changed() {
        let mut committed = restored(&[1, 2, 3], &[], vec![remove(6, 2), add(7, 5)], 6);
        let refused = super::force(&mut committed, 2, &[], &BTreeSet::new());
        assert!(refused.is_err_and(|error| error.to_string().contains("has removed this member, 2, for good")));
        assert_eq!((committed.entries.len(), committed.hard_state.commit()), (2, 6));
        let mut applied = restored(&[1, 3], &[], Vec::new(), 5);
        assert!(super::force(&mut applied, 2, &[], &BTreeSet::from([2])).is_err());
        assert!(applied.entries.is_empty());
    }
}

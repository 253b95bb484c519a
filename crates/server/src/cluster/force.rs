//! `--force-new-cluster`: one member goes on alone from its own data. The way back when the others are lost for good.

use api::Message;
use api::raftpb::{ConfChange, ConfChangeType, Entry, EntryType};
use member::Restored;
use std::collections::BTreeSet;
use store::{ConfChangeContext, Member};

/// What this member is to write to its log before it starts.
pub(crate) struct Forced {
    /// Entries that remove every other member, behind everything that is in the log.
    pub(crate) entries: Vec<Entry>,
    /// The members they remove.
    pub(crate) removed: Vec<u64>,
}

/// Adds the removal of every other member to the restored log, and takes all of it as committed. Ids stay.
///
/// The last entries of a follower were often acknowledged by its leader before the follower heard that they are committed. To
/// leave them out, as etcd does, would lose those writes; to keep one that nobody acknowledged harms nobody, since its client was
/// told nothing.
pub(crate) fn force(restored: &mut Restored, own_id: u64, peer_urls: &[String]) -> Forced {
    let learner = restored.conf_state.learners.contains(&own_id);
    let (ids, learner) = members(restored, own_id, learner);
    let last = restored.entries.last().map_or(restored.applied, Entry::index);
    let term = restored.hard_state.term().max(restored.applied_term);
    let mut changes: Vec<ConfChange> = Vec::new();
    let removed: Vec<u64> = ids.iter().copied().filter(|id| *id != own_id).collect();
    // This member first: a cluster must not be left without a voter on the way.
    if !ids.contains(&own_id) || learner {
        let member = Member { id: own_id, peer_urls: peer_urls.to_vec(), ..Member::default() };
        let context = ConfChangeContext { member, is_promote: learner };
        changes.push(change(ConfChangeType::ConfChangeAddNode, own_id, Some(context)));
    }
    changes.extend(removed.iter().map(|id| change(ConfChangeType::ConfChangeRemoveNode, *id, None)));
    let entries: Vec<Entry> = (last + 1..)
        .zip(changes)
        .map(|(index, change)| Entry {
            term: Some(term),
            index: Some(index),
            r#type: Some(EntryType::EntryConfChange as i32),
            data: Some(change.encode_to_vec().into()),
        })
        .collect();
    restored.entries.extend(entries.iter().cloned());
    restored.hard_state.term = Some(term);
    restored.hard_state.commit = Some(restored.entries.last().map_or(restored.applied, Entry::index));
    Forced { entries, removed }
}

fn change(kind: ConfChangeType, id: u64, context: Option<ConfChangeContext>) -> ConfChange {
    let context = context.map(|context| context.encode().into());
    ConfChange { r#type: Some(kind as i32), node_id: Some(id), context, id: None }
}

/// Everyone who is in the cluster once the restored log is applied, and whether this member is a learner then.
fn members(restored: &Restored, own_id: u64, mut learner: bool) -> (BTreeSet<u64>, bool) {
    let state = &restored.conf_state;
    let mut ids: BTreeSet<u64> =
        state.voters.iter().chain(&state.learners).chain(&state.voters_outgoing).copied().collect();
    for entry in restored.entries.iter().filter(|entry| entry.index() > restored.applied) {
        if entry.r#type() != EntryType::EntryConfChange {
            continue;
        }
        let Ok(change) = ConfChange::decode(entry.data.clone().unwrap_or_default()) else { continue };
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
        let change = change(ConfChangeType::ConfChangeAddNode, id, None);
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
            applied: 5,
            applied_term: 2,
            conf_state: ConfState { voters: voters.into(), learners: learners.into(), ..ConfState::default() },
        }
    }

    #[test]
    fn the_others_are_removed_behind_all_there_is() {
        let mut restored = restored(&[1, 2, 3], &[], vec![add(6, 4), add(7, 5)], 6);
        let forced = force(&mut restored, 2, &[]);
        assert_eq!(forced.removed, [1, 3, 4, 5]);
        let places: Vec<(u64, u64)> = forced.entries.iter().map(|entry| (entry.index(), entry.term())).collect();
        assert_eq!(places, [(8, 3), (9, 3), (10, 3), (11, 3)]);
        assert_eq!((restored.hard_state.commit(), restored.entries.len()), (11, 6));
    }

    #[test]
    fn a_member_alone_stays_as_it_is() {
        let mut restored = restored(&[2], &[], Vec::new(), 5);
        assert!(force(&mut restored, 2, &[]).entries.is_empty());
        assert_eq!(restored.hard_state.commit(), 5);
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
}

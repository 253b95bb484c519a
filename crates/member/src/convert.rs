//! Between the messages on the wire (`api::raftpb`, decoded by prost) and the ones raft-rs works with.
//!
//! Nothing that came from outside is parsed by raft-rs' own protobuf crate: it has a known flaw with hostile input.

use api::raftpb;
use raft::eraftpb;

/// An entry as raft-rs holds it.
pub(crate) fn entry_to_raft(entry: raftpb::Entry) -> eraftpb::Entry {
    let mut to = eraftpb::Entry::default();
    to.set_entry_type(match entry.r#type() {
        raftpb::EntryType::EntryNormal => eraftpb::EntryType::EntryNormal,
        raftpb::EntryType::EntryConfChange => eraftpb::EntryType::EntryConfChange,
        raftpb::EntryType::EntryConfChangeV2 => eraftpb::EntryType::EntryConfChangeV2,
    });
    to.term = entry.term();
    to.index = entry.index();
    to.data = entry.data.unwrap_or_default();
    to
}

/// An entry as the log and the store take it.
pub(crate) fn entry_from_raft(entry: eraftpb::Entry) -> raftpb::Entry {
    raftpb::Entry {
        term: Some(entry.term),
        index: Some(entry.index),
        r#type: Some(entry.get_entry_type() as i32),
        data: Some(entry.data),
    }
}

pub(crate) fn hard_state_to_raft(state: &raftpb::HardState) -> eraftpb::HardState {
    eraftpb::HardState { term: state.term(), vote: state.vote(), commit: state.commit(), ..Default::default() }
}

pub(crate) fn hard_state_from_raft(state: &eraftpb::HardState) -> raftpb::HardState {
    raftpb::HardState { term: Some(state.term), vote: Some(state.vote), commit: Some(state.commit) }
}

pub(crate) fn conf_state_to_raft(state: &raftpb::ConfState) -> eraftpb::ConfState {
    eraftpb::ConfState {
        voters: state.voters.clone(),
        learners: state.learners.clone(),
        voters_outgoing: state.voters_outgoing.clone(),
        learners_next: state.learners_next.clone(),
        auto_leave: state.auto_leave(),
        ..Default::default()
    }
}

pub(crate) fn conf_state_from_raft(state: &eraftpb::ConfState) -> raftpb::ConfState {
    raftpb::ConfState {
        voters: state.voters.clone(),
        learners: state.learners.clone(),
        voters_outgoing: state.voters_outgoing.clone(),
        learners_next: state.learners_next.clone(),
        auto_leave: Some(state.auto_leave),
    }
}

/// `None` for an update: it changes URLs only, and raft-rs knows nothing but ids.
pub(crate) fn conf_change_to_raft(change: &raftpb::ConfChange) -> Option<eraftpb::ConfChange> {
    let mut to = eraftpb::ConfChange::default();
    to.set_change_type(match change.r#type() {
        raftpb::ConfChangeType::ConfChangeUpdateNode => return None,
        raftpb::ConfChangeType::ConfChangeAddNode => eraftpb::ConfChangeType::AddNode,
        raftpb::ConfChangeType::ConfChangeRemoveNode => eraftpb::ConfChangeType::RemoveNode,
        raftpb::ConfChangeType::ConfChangeAddLearnerNode => eraftpb::ConfChangeType::AddLearnerNode,
    });
    to.node_id = change.node_id();
    Some(to)
}

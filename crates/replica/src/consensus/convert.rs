//! Between the messages on the wire (`api::raftpb`, decoded by prost) and the ones raft-rs works with.
//!
//! Nothing that came from outside is parsed by raft-rs' own protobuf crate: it has a known flaw with hostile input.

use api::raftpb;
use raft::eraftpb::{self, MessageType};

/// An entry as raft-rs holds it.
///
/// raft-rs decodes proposed configuration changes itself, with the flawed decoder and without the types that only etcd
/// has. So raft-rs sees an empty change, and the real one is in a field that only raft-rs' entries have.
pub(crate) fn entry_to_raft(entry: raftpb::Entry) -> eraftpb::Entry {
    let mut to = eraftpb::Entry { term: entry.term(), index: entry.index(), ..Default::default() };
    to.set_entry_type(match entry.r#type() {
        raftpb::EntryType::EntryNormal => eraftpb::EntryType::EntryNormal,
        raftpb::EntryType::EntryConfChange => eraftpb::EntryType::EntryConfChange,
        raftpb::EntryType::EntryConfChangeV2 => eraftpb::EntryType::EntryConfChangeV2,
    });
    let data = entry.data.unwrap_or_default();
    if to.get_entry_type() == eraftpb::EntryType::EntryNormal {
        to.data = data
    } else {
        to.context = data
    }
    to
}

/// An entry in the form of the log, the store and peers.
pub(crate) fn entry_from_raft(entry: &eraftpb::Entry) -> raftpb::Entry {
    let kind = entry.get_entry_type();
    let data = if kind == eraftpb::EntryType::EntryNormal { &entry.data } else { &entry.context };
    raftpb::Entry {
        term: Some(entry.term),
        index: Some(entry.index),
        r#type: Some(kind as i32),
        data: Some(data.clone()),
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

/// `None` for an update: it changes only URLs, and raft-rs knows only ids.
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

/// A snapshot's metadata; its data never passes through raft-rs.
pub(crate) fn snapshot_to_raft(metadata: &raftpb::SnapshotMetadata) -> eraftpb::Snapshot {
    let mut to = eraftpb::SnapshotMetadata { index: metadata.index(), term: metadata.term(), ..Default::default() };
    to.set_conf_state(conf_state_to_raft(metadata.conf_state.as_ref().unwrap_or(&raftpb::ConfState::default())));
    let mut snapshot = eraftpb::Snapshot::default();
    snapshot.set_metadata(to);
    snapshot
}

pub(crate) fn snapshot_from_raft(snapshot: &eraftpb::Snapshot) -> raftpb::Snapshot {
    let metadata = snapshot.get_metadata();
    raftpb::Snapshot {
        data: None,
        metadata: Some(raftpb::SnapshotMetadata {
            conf_state: Some(conf_state_from_raft(metadata.get_conf_state())),
            index: Some(metadata.index),
            term: Some(metadata.term),
        }),
    }
}

/// A message from a peer. Its fields must have been checked: `kind` is its type.
pub(crate) fn message_to_raft(message: raftpb::Message, kind: MessageType) -> eraftpb::Message {
    let mut to = eraftpb::Message {
        to: message.to(),
        from: message.from(),
        term: message.term(),
        log_term: message.log_term(),
        index: message.index(),
        commit: message.commit(),
        commit_term: message.commit_term(),
        reject: message.reject(),
        reject_hint: message.reject_hint(),
        ..Default::default()
    };
    to.set_msg_type(kind);
    if let Some(metadata) = message.snapshot.as_ref().and_then(|snapshot| snapshot.metadata.as_ref()) {
        to.set_snapshot(snapshot_to_raft(metadata));
    }
    to.context = message.context.unwrap_or_default();
    to.set_entries(message.entries.into_iter().map(entry_to_raft).collect::<Vec<_>>().into());
    to
}

/// A message to a peer. Only one of raft-rs' own fields (13 to 16 mean something else to an etcd peer) is sent, under a
/// number of Cairn's: votes and their answers contain the commit index. Without it, the last of two members could never
/// learn that the other's removal is committed if the removed one has more entries in its log: it would wait for that
/// member's vote forever. In heartbeats `work` sets the field, not raft-rs.
pub(crate) fn message_from_raft(message: eraftpb::Message) -> raftpb::Message {
    let kind = message.get_msg_type();
    let snapshot = (kind == MessageType::MsgSnapshot).then(|| snapshot_from_raft(message.get_snapshot()));
    let entries = message.entries.iter().map(entry_from_raft).collect();
    raftpb::Message {
        r#type: Some(kind as i32),
        to: Some(message.to),
        from: Some(message.from),
        term: Some(message.term),
        log_term: Some(message.log_term),
        index: Some(message.index),
        entries,
        commit: Some(message.commit),
        vote: None,
        snapshot,
        reject: Some(message.reject),
        reject_hint: Some(message.reject_hint),
        context: (!message.context.is_empty()).then_some(message.context),
        responses: Vec::new(),
        commit_term: (message.commit_term != 0).then_some(message.commit_term),
        headroom: None,
        headroom_index: None,
    }
}

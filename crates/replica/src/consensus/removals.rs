//! Removals of members that a power cut may still undo, and what others may be told of the commit index meanwhile.
//!
//! A removed member ends once it learns that its removal is committed. If the leader told it of a commit that is not on the leader's own
//! disk, and lost power, it would come back with the configuration from before, and wait for a vote of the member that has ended. While
//! the disk is slow a leader goes on sending: so no message names a commit index from such a removal on.

use crate::consensus::backlog::is_to_last;
use crate::consensus::core::Member;
use api::raftpb::Entry;
use raft::eraftpb::{self, MessageType};
use std::collections::VecDeque;

/// The removals in the log whose commit is not known to be durable.
#[derive(Default)]
pub(crate) struct Removals {
    /// Their indexes, in order.
    indexes: VecDeque<u64>,
}

impl Removals {
    /// Notes entries that go into the log, where they replace everything from the first of them on.
    pub(crate) fn append(&mut self, entries: &[Entry]) {
        let Some(first) = entries.first() else { return };
        self.indexes.truncate(self.indexes.partition_point(|index| *index < first.index()));
        self.indexes.extend(entries.iter().filter(|entry| is_to_last(entry)).map(Entry::index));
    }

    /// Notes that the commit of everything up to `index` is durable, or in a snapshot.
    pub(crate) fn settled(&mut self, index: u64) {
        while self.indexes.pop_front_if(|removal| *removal <= index).is_some() {}
    }

    /// The highest commit index that a message may name.
    pub(crate) fn commit_max(&self) -> u64 {
        self.indexes.front().map_or(u64::MAX, |first| first.saturating_sub(1))
    }
}

impl Member {
    /// The mistake [`Mistake::TellsRemovalsEarly`](crate::Mistake::TellsRemovalsEarly).
    pub(crate) fn forget_removals(&mut self) {
        self.removals = Removals::default();
    }
}

/// The commit index that the receiver of this message takes over; 0 for those of which it takes none.
pub(crate) fn named(message: &eraftpb::Message) -> u64 {
    match message.get_msg_type() {
        MessageType::MsgAppend
        | MessageType::MsgHeartbeat
        | MessageType::MsgRequestVote
        | MessageType::MsgRequestVoteResponse
        | MessageType::MsgRequestPreVote
        | MessageType::MsgRequestPreVoteResponse => message.commit,
        MessageType::MsgReadIndexResp => message.index,
        _ => 0,
    }
}

/// Lowers the commit index of messages that must not wait for the disk, and takes out the others that name more than `commit_max`.
pub(crate) fn hold_back(messages: &mut Vec<eraftpb::Message>, commit_max: u64) -> Vec<eraftpb::Message> {
    let is_held = |message: &mut eraftpb::Message| {
        let brings_entries = message.get_msg_type() == MessageType::MsgAppend && !message.entries.is_empty();
        let must_go = brings_entries || message.get_msg_type() == MessageType::MsgHeartbeat;
        if named(message) > commit_max && must_go {
            message.commit = commit_max;
        }
        named(message) > commit_max
    };
    messages.extract_if(.., is_held).collect()
}

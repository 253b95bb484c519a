//! Proposals, taken or forwarded to the leader.

use crate::consensus::convert;
use crate::consensus::core::Member;
use crate::consensus::error::Error;
use api::raftpb;
use bytes::Bytes;
use raft::StateRole;
use raft::eraftpb::{self, MessageType};

/// Proposals that a follower forwards in one message, in bytes.
const FORWARD_MESSAGE_BYTES_MAX: usize = 1 << 20;

impl Member {
    /// Proposes entries in order, in one step. Either all entries are taken or none.
    pub fn propose(&mut self, batch: Vec<Bytes>) -> Result<(), Error> {
        let entries: Vec<eraftpb::Entry> =
            batch.into_iter().map(|data| eraftpb::Entry { data, ..Default::default() }).collect();
        self.propose_entries(entries)
    }

    /// Whether there is a leader that can take a proposal.
    pub fn takes_proposals(&self) -> bool {
        let raft = &self.node.raft;
        raft.leader_id != 0 && raft.lead_transferee.is_none() && !self.is_closed()
    }

    /// Proposes a configuration change. A leader takes one at a time.
    pub fn propose_conf_change(&mut self, change: &raftpb::ConfChange) -> Result<(), Error> {
        let raft = &self.node.raft;
        if raft.state == StateRole::Leader && raft.has_pending_conf() {
            // raft-rs would replace the change by an empty entry, and its proposer would get no answer.
            return Err(Error::Dropped);
        }
        if self.decides_change() && self.removes_last_voter(change) {
            return Err(Error::LastVoter);
        }
        if self.hands_over_first(change) {
            self.after_input();
            return Err(Error::Dropped);
        }
        let entry = raftpb::Entry {
            r#type: Some(raftpb::EntryType::EntryConfChange as i32),
            data: Some(api::Message::encode_to_vec(change).into()),
            ..Default::default()
        };
        self.propose_entries(vec![convert::entry_to_raft(entry)])
    }

    /// Whether a change that is proposed now goes into this member's log, and no other change is under way before it.
    pub fn decides_change(&self) -> bool {
        let raft = &self.node.raft;
        raft.state == StateRole::Leader && !raft.has_pending_conf() && self.takes_proposals()
    }

    /// Whether no voter would be left after this change. Exact if [`Member::decides_change`].
    pub(crate) fn removes_last_voter(&self, change: &raftpb::ConfChange) -> bool {
        change.r#type() == raftpb::ConfChangeType::ConfChangeRemoveNode && self.conf_state.voters == [change.node_id()]
    }

    fn propose_entries(&mut self, mut entries: Vec<eraftpb::Entry>) -> Result<(), Error> {
        if entries.is_empty() {
            return Ok(());
        }
        if self.is_closed() {
            return Err(Error::Dropped);
        }
        let forwards = self.node.raft.state != StateRole::Leader;
        while !entries.is_empty() {
            let mut bytes = 0usize;
            let mut fits = |entry: &eraftpb::Entry| {
                bytes = entry.data.len().saturating_add(bytes);
                bytes <= FORWARD_MESSAGE_BYTES_MAX
            };
            let count =
                if forwards { entries.iter().take_while(|entry| fits(entry)).count().max(1) } else { entries.len() };
            let rest = entries.split_off(count);
            let mut message = eraftpb::Message::default();
            message.set_msg_type(MessageType::MsgPropose);
            message.from = self.node.raft.id;
            message.set_entries(std::mem::replace(&mut entries, rest).into());
            // Forwarding does not change this member's state: if the first message is taken, all are.
            self.node.step(message).map_err(|error| self.refusal(error))?;
        }
        self.after_input();
        Ok(())
    }

    fn refusal(&self, error: raft::Error) -> Error {
        let raft = &self.node.raft;
        match error {
            raft::Error::ProposalDropped
                if raft.state == StateRole::Leader && raft.lead_transferee.is_none() && self.is_voter() =>
            {
                Error::Full
            }
            raft::Error::ProposalDropped => Error::Dropped,
            error => error.into(),
        }
    }
}

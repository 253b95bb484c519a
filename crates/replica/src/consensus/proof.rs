//! Proof that this member's log has lost entries that it acknowledged: the only Raft message of a peer that ends a member.
//!
//! A member that has forgotten what it acknowledged can help to elect a leader that lacks it too; then it is lost. The sender counts:
//! - A leader of this member's term or a later one, from this member's configuration, knows up to where this member has acknowledged its
//!   log in that term. Its heartbeats name the lower one of that and the commit index. A log that ends before has lost its end.
//!   Entries that this member has in memory but not on the disk count as held: what is acknowledged in a term is never replaced in it.
//!   Heartbeats of Cairn's members name the term of that entry too: a log that has another entry there has lost what it acknowledged.
//! - The same leader has every committed entry (leader completeness). Where it names a term that a committed entry here does not have,
//!   one of the two logs has lost an acknowledged entry.
//! - A response, a member outside of the configuration, and a second leader of one term prove nothing: they are refused.

use crate::consensus::core::Member;
use crate::consensus::step::{Refusal, beyond};
use api::raftpb::{Message, MessageType};
use raft::StateRole;
use std::iter::once;

/// The proof that this member's log was lost: the member must end, and never take part again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Proof {
    /// Entries that this member acknowledged are gone.
    #[error(
        "the leader {leader:x} of term {term} was told by this member that it holds every entry up to {acknowledged}, but its Raft log \
         ends at entry {last}: the log was truncated, lost, or replaced by an older copy"
    )]
    Lost {
        /// Who says so.
        leader: u64,
        /// In which term.
        term: u64,
        /// The last entry that was acknowledged and committed.
        acknowledged: u64,
        /// The last entry of the log.
        last: u64,
    },
    /// The log has another entry where this member had acknowledged one.
    #[error(
        "the leader {leader:x} of term {term} was told by this member that it holds every entry up to {acknowledged}, the last of them \
         of term {theirs}, but in its Raft log that entry is of term {ours}: the log was replaced by an older copy"
    )]
    Replaced {
        /// Who says so.
        leader: u64,
        /// In which term.
        term: u64,
        /// The last entry that was acknowledged and committed.
        acknowledged: u64,
        /// Its term.
        theirs: u64,
        /// The term of the uncommitted entry at that index here.
        ours: u64,
    },
    /// A committed entry of this member is not in the log of the leader.
    #[error(
        "the leader {leader:x} of term {term} has entry {index} in term {theirs}, which contradicts this member's log, where everything \
         up to entry {committed} of term {ours} is committed: one of the two logs has lost acknowledged entries"
    )]
    Contradicted {
        /// Who says so.
        leader: u64,
        /// In which term.
        term: u64,
        /// The entry that the leader has.
        index: u64,
        /// Its term there.
        theirs: u64,
        /// The last entry that is committed here.
        committed: u64,
        /// Its term.
        ours: u64,
    },
}

impl Member {
    /// The proof that this member must end, if there is one. The member then has no more work, takes no input, and does
    /// not vote.
    pub fn proof(&self) -> Option<Proof> {
        self.proof
    }

    /// The proof that a refused message gives, if it is one.
    pub(crate) fn judge(&self, refusal: &Refusal, message: &Message) -> Option<Proof> {
        let (leader, term) = (message.from(), message.term());
        let proof = match *refusal {
            Refusal::BeyondLog { named: acknowledged, last } => Proof::Lost { leader, term, acknowledged, last },
            Refusal::OtherThanAcknowledged { index: acknowledged, theirs, ours } => {
                Proof::Replaced { leader, term, acknowledged, theirs, ours }
            }
            Refusal::ContradictsCommitted { index, theirs, committed, ours } => {
                Proof::Contradicted { leader, term, index, theirs, committed, ours }
            }
            _ => return None,
        };
        (!self.ignores_lost_log && self.comes_from_the_leader(message)).then_some(proof)
    }

    /// Whether a message comes from the only leader of this term, or from that of a later one.
    fn comes_from_the_leader(&self, message: &Message) -> bool {
        let raft = &self.node.raft;
        if !matches!(message.r#type(), MessageType::MsgHeartbeat | MessageType::MsgApp | MessageType::MsgSnap) {
            return false;
        }
        // This term has one leader: this member, the member that it follows, or one that it has not heard of yet.
        let leads = message.term() > raft.term
            || (message.term() == raft.term
                && raft.state != StateRole::Leader
                && [0, message.from()].contains(&raft.leader_id));
        leads && self.is_configured(message.from())
    }

    /// Whether a member is in the configuration. A member without a configuration checks the members of the joined
    /// cluster instead.
    fn is_configured(&self, id: u64) -> bool {
        let state = &self.conf_state;
        let mut ids = state.voters.iter().chain(&state.voters_outgoing).chain(&state.learners);
        if state.voters.is_empty() { self.joined.contains(&id) } else { ids.any(|known| *known == id) }
    }

    /// Checks the entry that a heartbeat says this member has acknowledged. `theirs` is its term, 0 in heartbeats of etcd's members.
    pub(crate) fn check_acknowledged(&self, index: u64, theirs: u64) -> Result<(), Refusal> {
        beyond(index, self.last_index())?;
        if theirs == 0 {
            return Ok(());
        }
        self.check_committed(once((index, theirs)))?;
        match self.known_term(index) {
            Some(ours) if ours != theirs => Err(Refusal::OtherThanAcknowledged { index, theirs, ours }),
            _ => Ok(()),
        }
    }

    /// Fails at the first entry whose term in the message contradicts an entry that is committed here.
    pub(crate) fn check_committed(&self, places: impl Iterator<Item = (u64, u64)>) -> Result<(), Refusal> {
        let log = &self.node.raft.raft_log;
        let committed = log.committed;
        let Some(ours) = self.known_term(committed) else { return Ok(()) };
        let start = log.first_index().saturating_sub(1);
        for (index, theirs) in places {
            let contradicts = match index {
                0 => false,
                // Terms never fall along a log.
                _ if index > committed => theirs < ours,
                _ => match self.known_term(index) {
                    Some(known) => known != theirs,
                    None => self.known_term(start).is_some_and(|known| known < theirs),
                },
            };
            if contradicts {
                return Err(Refusal::ContradictsCommitted { index, theirs, committed, ours });
            }
        }
        Ok(())
    }

    /// The term of an entry that is in memory, or was at some time since the start.
    pub(crate) fn known_term(&self, index: u64) -> Option<u64> {
        // raft-rs returns 0 for a term that it does not know.
        let in_memory = self.node.raft.raft_log.term(index).ok().filter(|term| *term > 0);
        in_memory.or_else(|| self.node.store().trimmed_term(index).filter(|term| *term > 0))
    }
}

//! The status of a member.

use crate::consensus::core::Member;
use api::raftpb;
use raft::StateRole;

/// The role of a member in its term.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Role {
    Leader,
    Follower,
    Candidate,
}

/// The status of a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Status {
    /// The member's role.
    pub role: Role,
    /// The leader, 0 when none is known.
    pub leader: u64,
    /// The term.
    pub term: u64,
    /// Last committed entry.
    pub committed: u64,
    /// Last applied entry, as reported.
    pub applied: u64,
    /// The member leads and its first entry of the term is applied: its state holds everything that was ever acknowledged.
    pub serves_reads: bool,
    /// The member is the only voter: as a leader it needs no round of heartbeats for a read index.
    pub sole_voter: bool,
    /// There is no other member, not even a learner, and every entry is applied that former members were told to be
    /// committed.
    pub alone: bool,
    /// The member votes.
    pub voter: bool,
    /// The member is a learner.
    pub learner: bool,
    /// The member to which leadership is being transferred, 0 for none. No proposal is taken meanwhile.
    pub transferee: u64,
}

impl Status {
    /// Whether a linearizable read may be answered from this member's state at once: it holds everything that was ever acknowledged, and
    /// no other member can acknowledge anything. Being the only voter is not enough: a learner that has applied an entry before this
    /// member answers writes and reads that show it, and so may a member that was just removed.
    ///
    /// A leader need not consider earlier terms: its first entry of the term is applied, and that entry follows
    /// everything that others can have known.
    pub fn serves_local_reads(&self) -> bool {
        self.serves_reads && self.alone
    }
}

impl Member {
    /// The status of the member.
    pub fn status(&self) -> Status {
        let raft = &self.node.raft;
        let role = match raft.state {
            StateRole::Leader => Role::Leader,
            StateRole::Follower => Role::Follower,
            StateRole::Candidate | StateRole::PreCandidate => Role::Candidate,
        };
        let leads = role == Role::Leader && self.term_is_durable();
        Status {
            role,
            leader: raft.leader_id,
            term: raft.term,
            committed: raft.raft_log.committed,
            applied: self.applied,
            serves_reads: leads && raft.apply_to_current_term(),
            sole_voter: self.conf_state.voters == [raft.id] && self.conf_state.voters_outgoing.is_empty(),
            alone: !self.observes && !self.has_others() && self.applied >= self.told,
            voter: self.is_voter(),
            learner: self.conf_state.learners.contains(&raft.id),
            transferee: raft.lead_transferee.unwrap_or(0),
        }
    }

    /// Whether there are other members that learn the commit index from this one.
    pub(crate) fn has_others(&self) -> bool {
        let raftpb::ConfState { voters, learners, voters_outgoing, learners_next, .. } = &self.conf_state;
        [voters, learners, voters_outgoing, learners_next].into_iter().flatten().any(|id| *id != self.node.raft.id)
    }

    pub(crate) fn is_voter(&self) -> bool {
        let id = &self.node.raft.id;
        self.conf_state.voters.contains(id) || self.conf_state.voters_outgoing.contains(id)
    }
}

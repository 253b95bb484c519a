//! Leadership transfer, the progress of other members, and snapshots for those that lag.

use crate::consensus::convert;
use crate::consensus::core::Member;
use crate::consensus::error::Error;
use api::raftpb;
use raft::{ProgressState, SnapshotStatus, StateRole};

/// How a leader sends to a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// One append at a time, until the end of the member's log is known.
    Probe,
    /// Appends one after the other, without waiting for answers.
    Replicate,
    /// Nothing, while the member receives a snapshot.
    Snapshot,
}

/// The progress of a member, as its leader knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// The member.
    pub id: u64,
    /// The last entry that the member is known to have.
    pub matched: u64,
    /// The first entry that the member will be sent.
    pub next: u64,
    /// Whether the leader heard from the member within the last election timeout.
    pub recently_active: bool,
    /// Whether the member is a learner, which does not vote.
    pub learner: bool,
    /// How the leader sends to the member.
    pub mode: Mode,
}

impl Member {
    /// Begins a leader transfer. It has succeeded when [`crate::consensus::Status::leader`] is another member. It was
    /// given up when [`crate::consensus::Status::transferee`] is 0 again, after an election timeout.
    pub fn transfer(&mut self, to: u64) -> Result<(), Error> {
        if self.node.raft.state != StateRole::Leader {
            return Err(Error::NotLeader);
        }
        if !self.conf_state.voters.contains(&to) {
            return Err(Error::NotVoter(to));
        }
        if to != self.node.raft.id && !self.is_closed() {
            self.node.transfer_leader(to);
            self.after_input();
        }
        Ok(())
    }

    /// The voter that can take over soonest: among the recently active ones, the one with most of the log.
    pub fn successor(&self) -> Option<u64> {
        let others = self.progress().into_iter().filter(|member| member.id != self.node.raft.id && !member.learner);
        // Ids decide ties, so that a run can be repeated.
        others.max_by_key(|member| (member.recently_active, member.matched, member.id)).map(|member| member.id)
    }

    /// Steps down, without waiting for another member to take over.
    pub fn step_down(&mut self) {
        if self.node.raft.state == StateRole::Leader {
            let term = self.node.raft.term;
            self.node.raft.become_follower(term, 0);
            self.after_input();
        }
    }

    /// A leader that is to be removed transfers leadership before the removal is proposed: once removed, it is ignored, and the others
    /// would notice only after an election timeout. Tried once a term. Returns whether the change must wait for it.
    pub(crate) fn hands_over_first(&mut self, change: &raftpb::ConfChange) -> bool {
        let raft = &self.node.raft;
        let removes_own =
            change.r#type() == raftpb::ConfChangeType::ConfChangeRemoveNode && change.node_id() == raft.id;
        if !removes_own || raft.state != StateRole::Leader || self.handed_over_in == raft.term {
            return false;
        }
        self.handed_over_in = raft.term;
        let Some(successor) = self.successor() else { return false };
        self.node.transfer_leader(successor);
        true
    }

    /// A leader that a change has removed must step down, since raft-rs relies on the leader being a member. The voter
    /// with most of the log is told to begin an election at once.
    pub(crate) fn leave_office(&mut self) {
        if self.is_voter() || self.node.raft.state == StateRole::Follower {
            return;
        }
        if let Some(successor) = self.successor() {
            self.node.raft.send_timeout_now(successor);
        }
        let term = self.node.raft.term;
        self.node.raft.become_follower(term, 0);
    }

    /// A message to this member was lost: its entries are sent one message at a time until it answers.
    pub fn report_unreachable(&mut self, id: u64) {
        if !self.is_closed() {
            self.node.report_unreachable(id);
            self.hasten_election(id);
            self.after_input();
        }
    }

    /// How sending a snapshot to this member ended.
    pub fn report_snapshot(&mut self, id: u64, ok: bool) {
        if !self.is_closed() {
            self.node.report_snapshot(id, if ok { SnapshotStatus::Finish } else { SnapshotStatus::Failure });
            self.after_input();
        }
    }

    /// Whether a follower needs a snapshot that no offer covers: capture one and [`Member::offer_snapshot`] it.
    pub fn wants_snapshot(&self) -> bool {
        self.node.raft.state == StateRole::Leader && self.node.store().wants_offer()
    }

    /// Offers a snapshot: from now on, a follower whose entries are trimmed is sent a message that names it.
    pub fn offer_snapshot(&mut self, metadata: &raftpb::SnapshotMetadata) {
        self.node.mut_store().offer(convert::snapshot_to_raft(metadata));
        if self.node.raft.state != StateRole::Leader || self.is_closed() {
            return;
        }
        let first = self.node.raft.raft_log.first_index();
        let own = self.node.raft.id;
        let lagging = |member: &Progress| member.id != own && member.next < first && member.mode != Mode::Snapshot;
        for member in self.progress().into_iter().filter(lagging) {
            self.node.raft.send_append(member.id);
        }
    }

    /// The offered snapshot can no longer be sent.
    pub fn withdraw_snapshot(&mut self) {
        self.node.mut_store().withdraw_offer();
    }

    /// The progress of each member; empty on a member that does not lead.
    pub fn progress(&self) -> Vec<Progress> {
        let raft = &self.node.raft;
        if raft.state != StateRole::Leader {
            return Vec::new();
        }
        let tracked = raft.prs().iter().map(|(id, progress)| Progress {
            id: *id,
            matched: progress.matched,
            next: progress.next_idx,
            recently_active: progress.recent_active || *id == raft.id,
            learner: self.conf_state.learners.contains(id),
            mode: match progress.state {
                ProgressState::Probe => Mode::Probe,
                ProgressState::Replicate => Mode::Replicate,
                ProgressState::Snapshot => Mode::Snapshot,
            },
        });
        let mut members: Vec<Progress> = tracked.collect();
        members.sort_unstable_by_key(|member| member.id);
        members
    }

    /// Raft's configuration: voters and learners.
    pub fn conf_state(&self) -> &raftpb::ConfState {
        &self.conf_state
    }

    /// Lets a member that has just started begin an election this many ticks earlier, but never at once.
    pub fn advance_election(&mut self, ticks: usize) {
        let raft = &mut self.node.raft;
        if raft.state != StateRole::Leader {
            let most = raft.election_timeout().saturating_sub(1);
            raft.election_elapsed = raft.election_elapsed.max(raft.election_elapsed.saturating_add(ticks).min(most));
        }
    }
}

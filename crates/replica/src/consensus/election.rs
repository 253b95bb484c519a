//! Ticks and elections.

use crate::consensus::core::Member;
use crate::consensus::error::Error;
use raft::StateRole;

impl Member {
    /// Handles a tick of the clock.
    pub fn tick(&mut self) {
        self.drop_late_proposals();
        if self.ticks.is_multiple_of(self.election_ticks as u64) {
            self.leaps.refill();
        }
        let raft = &self.node.raft;
        let election_due =
            raft.state != StateRole::Leader && raft.election_elapsed.saturating_add(1) >= self.election_timeout;
        // raft-rs assumes that a candidate's log is durable. A member whose disk does not answer would not be a good
        // leader either.
        if self.is_closed() || (election_due && !self.log_is_durable()) {
            return;
        }
        if election_due && std::mem::take(&mut self.yields) {
            // The other had its time. If it is still there, it refuses this member again.
            self.draw_election_timeout();
        }
        self.node.tick();
        self.tick_lagging();
        self.after_input();
    }

    /// Begins an election at once. An observer never does, although raft-rs would let one win that has no configuration yet.
    pub fn campaign(&mut self) -> Result<(), Error> {
        if self.observes || self.is_closed() || !self.log_is_durable() {
            return Err(Error::Dropped);
        }
        self.node.campaign()?;
        self.after_input();
        Ok(())
    }

    /// raft-rs draws election timeouts from the thread's random source. They are replaced by the member's own, drawn again
    /// whenever raft-rs would have, so that a seed decides a whole run.
    pub(crate) fn after_input(&mut self) {
        self.answer_early_reads();
        self.take_early_proposals();
        let raft = &self.node.raft;
        let now = (raft.term, raft.state, raft.leader_id);
        if now != self.seen {
            self.seen = now;
            self.yields &= raft.leader_id == 0;
            self.draw_election_timeout();
        }
        self.node.raft.set_randomized_election_timeout(self.election_timeout);
    }

    /// Called when the connection to member `lost` broke. If that member leads, it has most likely ended. The order of
    /// the members then replaces the random part of the election timeout, so that they do not compete. One tick is
    /// added to the timeout itself, because until then the other members do not answer a candidate.
    pub(crate) fn hasten_election(&mut self, lost: u64) {
        let raft = &self.node.raft;
        if raft.state == StateRole::Follower && raft.leader_id == lost && self.is_voter() {
            let before = self.conf_state.voters.iter().filter(|id| **id != lost && **id < raft.id).count();
            self.election_timeout = self
                .election_timeout
                .min(self.election_ticks.saturating_add(1).saturating_add(before.saturating_mul(2)));
        }
    }

    /// Called for two of which one has refused the other its vote, with the end of the other's log. If this member has less
    /// in its log it waits longer until it stands next, and lets the other begin an election first. Without pre-vote each of
    /// its failed elections would restart the other's timeout, or be a term ahead of it.
    pub(crate) fn yield_to(&mut self, (log_term, index): (u64, u64)) {
        let raft = &self.node.raft;
        let is_longer = (log_term, index) > (raft.raft_log.last_term(), raft.raft_log.last_index());
        if is_longer && raft.leader_id == 0 && !self.yields {
            self.yields = true;
            self.draw_election_timeout();
        }
    }

    pub(crate) fn draw_election_timeout(&mut self) {
        // xorshift64*: the numbers need a good spread, not cryptographic quality.
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        let least = self.election_ticks.saturating_mul(if self.yields { 2 } else { 1 });
        let spread = self.random.checked_rem(self.election_ticks as u64).unwrap_or(0);
        self.election_timeout = least.saturating_add(spread as usize);
    }
}

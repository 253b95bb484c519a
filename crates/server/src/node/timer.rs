//! What must happen in time whatever the disk does: requests end, and a leader whose disk stalls goes on talking to its
//! followers, then hands over.

use super::Node;
use super::consensus::Consensus;
use super::membership;
use api::Error;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Longest time between two rounds.
const PERIOD_MAX: Duration = Duration::from_millis(100);

/// Runs until the member stops.
pub(super) fn run(node: &Arc<Node>, consensus: &Consensus) {
    let period = node.config.heartbeat.clamp(Duration::from_millis(10), PERIOD_MAX);
    let timeout_ms = node.config.request_timeout().as_millis() as u64;
    while !node.stopping.load(Ordering::Relaxed) {
        std::thread::sleep(period);
        let now_ms = node.now_ms();
        if let Some(before_ms) = now_ms.checked_sub(timeout_ms) {
            let expired = node.pending.with(|pending| pending.expire(before_ms));
            let count = expired.len() as u64;
            for late in expired {
                // The proposal may still be applied: these errors leave the outcome open.
                late.waiter.done.end(Err(node.why_late(late.taken.ms)));
            }
            node.metrics.proposals_failed.fetch_add(count, Ordering::Relaxed);
            node.metrics.proposals_pending.fetch_sub(count, Ordering::Relaxed);
        }
        node.expire_reads(now_ms);
        consensus.stand_in();
        membership::look_at_parting(node);
    }
}

impl Node {
    /// Ends queued proposals and configuration changes whose time is over. For a consensus thread that is stuck and
    /// does not take them.
    pub(super) fn expire_queued(&self) {
        let Some(before) = Instant::now().checked_sub(self.config.request_timeout()) else { return };
        let late = self.inbox.take_late(before);
        let count = late.len() as u64;
        for waiter in late {
            waiter.done.end(Err(Error::Timeout));
        }
        self.metrics.proposals_failed.fetch_add(count, Ordering::Relaxed);
        self.metrics.proposals_pending.fetch_sub(count, Ordering::Relaxed);
    }

    /// The error for a request that came at `since_ms` and was not answered in time, by etcd's rules.
    fn why_late(&self, since_ms: u64) -> Error {
        let elected_ms = self.status.leader_since_ms();
        let lost_ms = elected_ms.saturating_sub(2 * self.config.election_timeout.as_millis() as u64);
        if since_ms > lost_ms && since_ms < elected_ms {
            return Error::TimeoutDueToLeaderFail;
        }
        let began = self.clock.moment(since_ms);
        let reached = |id: u64| self.active_since(id).is_some_and(|since| since < began);
        match self.status.leader() {
            0 => Error::TimeoutDueToConnectionLost,
            leader if leader == self.member_id => {
                let members = self.store.members().members;
                let connected = members.keys().filter(|id| **id == leader || reached(**id)).count();
                if connected > members.len() / 2 { Error::Timeout } else { Error::TimeoutDueToConnectionLost }
            }
            leader if reached(leader) => Error::Timeout,
            _ => Error::TimeoutDueToConnectionLost,
        }
    }
}

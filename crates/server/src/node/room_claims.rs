//! Claims of the room that deletions and ends of leases take on every member's disk.

use super::rooms::{Claim, NoEnd};
use super::{Node, Outcome};
use api::Error;

impl Claim {
    /// What became of the proposal. If that is not known, the claim stays until it can no longer be applied.
    pub(crate) fn end(mut self, node: &Node, outcome: &Outcome) {
        let is_doubtful =
            matches!(outcome, Err(Error::Timeout | Error::TimeoutDueToLeaderFail | Error::TimeoutDueToConnectionLost));
        let is_told = self.rooms.least_told_bytes().is_some();
        let Some(room) = self.room.take().filter(|room| room.bytes() > 0 && (is_doubtful || is_told)) else { return };
        // A message to the leader, and what it has appended because of it, has arrived or is lost by then.
        let patience_ms = if is_doubtful { 2 * node.config.election_timeout.as_millis() as u64 } else { 0 };
        self.rooms.keep(room, self.ending.take(), node.now_ms() + patience_ms);
    }
}

impl Node {
    /// Claims room for a deletion that writes `cost` bytes on every member.
    pub(crate) fn claim_room(&self, cost: u64) -> Result<Claim, Error> {
        let room = self.store.claim_room(cost, self.rooms.share())?;
        Ok(Claim { room: Some(room), rooms: self.rooms.clone(), ending: None })
    }

    /// Claims room for the end of a lease.
    pub(super) fn claim_lease_end(&self, lease: i64) -> Result<Claim, NoEnd> {
        self.rooms.claim_lease_end(&self.store, lease, self.store.revoke_cost_bytes(lease))
    }
}

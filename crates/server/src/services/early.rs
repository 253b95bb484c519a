//! What a member answers before it is published: see [`crate::node::Opening`].

use super::is_for_learners;
use super::methods::Rpc;
use crate::node::Node;
use api::Error;
use bytes::Bytes;

/// Refuses what cannot be answered yet. The refusal comes at once and says that the member is unavailable, so that a client that knows
/// other members turns to them.
pub(super) fn admit(node: &Node, rpc: Rpc, message: &Bytes) -> Result<(), Error> {
    // A watch of the health would have to be told of the change.
    if node.opening.is_published() || matches!(rpc, Rpc::HealthCheck | Rpc::HealthList) {
        return Ok(());
    }
    let has_leader = node.status.leader() != 0;
    match node.shows_local_data() && (has_leader || is_for_learners(rpc, message)) {
        true => Ok(()),
        false => Err(Error::NoLeader),
    }
}

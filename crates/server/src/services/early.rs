//! What a member answers before it is published: see [`crate::node::Opening`].

use super::is_for_learners;
use super::methods::Rpc;
use crate::node::Node;
use api::Error;
use api::etcdserverpb::MemberListRequest;
use api::unread;
use bytes::Bytes;

/// Refuses what cannot be answered yet. The refusal comes at once and says that the member is unavailable, so that a client that knows
/// other members turns to them.
pub(super) fn admit(node: &Node, rpc: Rpc, message: &Bytes) -> Result<(), Error> {
    if node.opening.is_published() {
        return Ok(());
    }
    let is_answered = match rpc {
        Rpc::HealthCheck | Rpc::HealthList => true,
        // It would have to be told of the change.
        Rpc::HealthWatch => false,
        _ => node.shows_local_data() && (node.status.leader() != 0 || needs_no_quorum(rpc, message)),
    };
    if is_answered { Ok(()) } else { Err(Error::NoLeader) }
}

/// Whether a call is answered from what this member has.
fn needs_no_quorum(rpc: Rpc, message: &Bytes) -> bool {
    match rpc {
        Rpc::MemberList => {
            unread::decode::<MemberListRequest>(message.clone()).is_ok_and(|request| !request.linearizable)
        }
        _ => is_for_learners(rpc, message),
    }
}

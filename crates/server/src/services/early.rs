//! What a member answers before it is published: see [`crate::node::Opening`].

use super::is_for_learners;
use super::methods::Rpc;
use crate::node::Node;
use api::etcdserverpb::MemberListRequest;
use api::unread;
use api::{Code, Error};
use bytes::Bytes;
use rpc::Status;

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

/// What the client of a stream is told. etcd's Go client ends a watch for good when it hears that there is no leader, which it takes for the
/// answer to its own wish (`hasleader`). Other clients open the stream again when the member is just unavailable, as they would with etcd,
/// whose port is closed meanwhile.
pub(super) fn refusal(error: Error, needs_leader: bool) -> Status {
    if needs_leader {
        return error.into();
    }
    Status::new(Code::Unavailable, "etcdserver: waiting for a quorum, streams are refused until then")
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

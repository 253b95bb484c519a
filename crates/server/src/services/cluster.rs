//! `etcdserverpb.Cluster`.

use super::reply::{decode, encode, refuse};
use crate::node::Node;
use api::etcdserverpb::{Member, MemberListRequest, MemberListResponse};
use rpc::{Call, Reply, Responder, Status};
use std::sync::Arc;

pub(super) fn member_list(node: &Arc<Node>, call: Call, responder: Responder) {
    let request: MemberListRequest = match decode(call.message) {
        Ok(request) => request,
        Err(status) => return refuse(responder, status),
    };
    if !request.linearizable {
        return responder.send(answer(node));
    }
    let own = node.clone();
    node.linearize(move |allowed| match allowed {
        Ok(()) => responder.send(answer(&own)),
        Err(error) => refuse(responder, error),
    });
}

fn answer(node: &Node) -> Result<Reply, Status> {
    let members = node.store.members().members.into_values().map(|member| Member {
        id: member.id,
        name: member.name,
        peer_ur_ls: member.peer_urls,
        client_ur_ls: member.client_urls,
        is_learner: member.is_learner,
    });
    // The cluster API answers no revision.
    encode(&MemberListResponse { header: Some(node.header(0)), members: members.collect() })
}

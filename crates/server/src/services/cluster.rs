//! `etcdserverpb.Cluster`.

use super::reply::{encode, refuse};
use super::within::{self, Order, counted, encode_within};
use crate::auth::Permitted;
use crate::auth::rules::{Root, User};
use crate::cluster::change;
use crate::node::{For, Node, Weight};
use api::Message;
use api::etcdserverpb::{
    Member, MemberAddRequest, MemberAddResponse, MemberListRequest, MemberListResponse, MemberPromoteRequest,
    MemberPromoteResponse, MemberRemoveRequest, MemberRemoveResponse, MemberUpdateRequest, MemberUpdateResponse,
    ResponseHeader,
};
use rpc::{Address, Call, Responder};
use std::sync::Arc;

pub(super) fn member_list(
    node: &Arc<Node>,
    call: Call,
    request: Permitted<User, MemberListRequest>,
    responder: Responder,
) {
    let client = call.peer.address;
    if !request.linearizable {
        return list(node, client, responder);
    }
    let own = node.clone();
    node.linearize_call(Weight::NONE, responder, move |allowed, responder| match allowed {
        Ok(()) => list(&own, client, responder),
        Err(error) => refuse(responder, error),
    });
}

/// Answers with the members, whose URLs may be long, within the budget.
fn list(node: &Arc<Node>, client: Address, responder: Responder) {
    let order = Order { client, is_heavy: false, likely_bytes: 0, request_bytes: 0 };
    within::answer(node, order, responder, |terms| {
        let members = shown(change::members(terms.node));
        encode_within(terms, &MemberListResponse { header: header(terms.node), members })
    });
}

/// Answers what was done, and so whether there is memory for the answer or not.
fn answer(node: &Node, responder: Responder, message: &impl Message) {
    responder.send(encode(message).map(|reply| counted(node, None, reply)));
}

/// The header of answers of the cluster API, which has no revision.
fn header(node: &Node) -> Option<ResponseHeader> {
    Some(node.header(0))
}

fn shown(members: Vec<store::Member>) -> Vec<Member> {
    members.into_iter().map(show).collect()
}

fn show(member: store::Member) -> Member {
    Member {
        id: member.id,
        name: member.name,
        peer_ur_ls: member.peer_urls,
        client_ur_ls: member.client_urls,
        is_learner: member.is_learner,
        zone: member.zone,
    }
}

pub(super) fn member_add(
    node: &Arc<Node>,
    _call: Call,
    request: Permitted<Root, MemberAddRequest>,
    responder: Responder,
) {
    let own = node.clone();
    let done = move |responder: Responder, added: change::Added| match added {
        Ok((member, members)) => {
            let (header, member) = (header(&own), Some(show(member)));
            answer(&own, responder, &MemberAddResponse { header, member, members: shown(members) });
        }
        Err(error) => refuse(responder, error),
    };
    let (MemberAddRequest { peer_ur_ls, is_learner }, _) = request.into_parts();
    change::add(node, peer_ur_ls, is_learner, For::new(responder, done));
}

pub(super) fn member_remove(
    node: &Arc<Node>,
    _call: Call,
    request: Permitted<Root, MemberRemoveRequest>,
    responder: Responder,
) {
    let own = node.clone();
    let done = move |responder: Responder, changed: change::Changed| match changed {
        Ok(members) => {
            answer(&own, responder, &MemberRemoveResponse { header: header(&own), members: shown(members) });
        }
        Err(error) => refuse(responder, error),
    };
    change::remove(node, request.id, For::new(responder, done));
}

pub(super) fn member_update(
    node: &Arc<Node>,
    _call: Call,
    request: Permitted<Root, MemberUpdateRequest>,
    responder: Responder,
) {
    let own = node.clone();
    let done = move |responder: Responder, changed: change::Changed| match changed {
        Ok(members) => {
            answer(&own, responder, &MemberUpdateResponse { header: header(&own), members: shown(members) });
        }
        Err(error) => refuse(responder, error),
    };
    let (MemberUpdateRequest { id, peer_ur_ls }, _) = request.into_parts();
    change::update(node, id, peer_ur_ls, For::new(responder, done));
}

pub(super) fn member_promote(
    node: &Arc<Node>,
    call: Call,
    request: Permitted<Root, MemberPromoteRequest>,
    responder: Responder,
) {
    let own = node.clone();
    let done = move |responder: Responder, changed: change::Changed| match changed {
        Ok(members) => {
            answer(&own, responder, &MemberPromoteResponse { header: header(&own), members: shown(members) });
        }
        Err(error) => refuse(responder, error),
    };
    change::promote(node, request.id, Some(call.peer.address), For::new(responder, done));
}

//! The effects of a configuration change outside of consensus: which peers are connected, and whether this member retires.

use super::Node;
use api::raftpb::{ConfChange, ConfChangeType};
use contain::lock;
use std::sync::Arc;
use std::time::{Duration, Instant};
use store::ConfChangeContext;
use telemetry::logging::{self, Value};

/// How long the connections to a removed member stay open.
const FAREWELL: Duration = Duration::from_millis(500);

/// Called when a configuration change is in effect in the store and in Raft.
pub(super) fn changed(node: &Arc<Node>, change: &ConfChange) {
    let id = change.node_id();
    // Id 0 stands for a change that the cluster refused.
    if id == 0 {
        return;
    }
    let peer_urls = node.store.members().members.remove(&id).map(|member| member.peer_urls).unwrap_or_default();
    let removed = change.r#type() == ConfChangeType::ConfChangeRemoveNode;
    let is_promotion = || ConfChangeContext::of(change).is_ok_and(|context| context.is_promote);
    logging::info(
        match change.r#type() {
            _ if removed => "removed member",
            ConfChangeType::ConfChangeUpdateNode => "updated member",
            ConfChangeType::ConfChangeAddNode if is_promotion() => "promote member",
            _ => "added member",
        },
        &[
            ("member-id", Value::Shown(&format_args!("{id:x}"))),
            ("cluster-id", Value::Id(node.cluster_id)),
            ("peer-urls", Value::List(&peer_urls)),
            ("change", change.r#type().as_str_name().into()),
            ("local-member-id", Value::Shown(&format_args!("{:x}", node.member_id))),
        ],
    );
    if node.is_observer() {
        return;
    }
    match (id == node.member_id, removed) {
        (true, true) => node.retire(),
        (true, false) => {}
        (false, true) => part(node, id),
        (false, false) => connect(node, id),
    }
}

/// Has the connections to a removed member closed after [`FAREWELL`]. By then the member has heard that its removal is
/// committed, and can answer a client that requested the removal from it.
fn part(node: &Node, id: u64) {
    lock(&node.parting).push((later(Instant::now()), id));
}

/// Closes the connections to removed members whose time has come.
pub(super) fn look_at_parting(node: &Node) {
    let now = Instant::now();
    let due: Vec<_> = lock(&node.parting).extract_if(.., |(at, _)| *at <= now).collect();
    if let Some(peers) = node.peers.get() {
        due.into_iter().for_each(|(_, id)| peers.remove(id));
    }
}

fn later(now: Instant) -> Instant {
    now.checked_add(FAREWELL).unwrap_or(now)
}

/// Applies the membership of an installed snapshot.
pub(super) fn replaced(node: &Arc<Node>) {
    if node.is_observer() {
        return;
    }
    let members = node.store.members();
    if members.removed.contains(&node.member_id) {
        return node.retire();
    }
    let Some(peers) = node.peers.get() else { return };
    for id in members.removed {
        peers.remove(id);
    }
    for (id, member) in members.members {
        if id != node.member_id {
            peers.set(id, member.peer_urls);
        }
    }
}

fn connect(node: &Arc<Node>, id: u64) {
    if let Some(peers) = node.peers.get()
        && let Some(member) = node.store.members().members.remove(&id)
    {
        peers.set(id, member.peer_urls);
    }
}

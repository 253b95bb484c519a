//! `etcdserverpb.Maintenance`.

use super::kv::{propose, run_slowly};
use super::reply::{complete, decode, encode, refuse, unanswered};
use crate::auth::{Identity, Principal, admit, identify};
use crate::cluster::handover;
use crate::node::{self, Node};
use api::Error;
use api::etcdserverpb::{
    AlarmRequest, AlarmType, DefragmentResponse, DowngradeInfo, HashKvRequest, HashResponse, MoveLeaderRequest,
    MoveLeaderResponse, StatusResponse, alarm_request::AlarmAction,
};
use rpc::{Call, Reply, Responder, Status};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;
use store::Ask;

pub(super) fn alarm(node: &Arc<Node>, call: Call, responder: Responder) {
    let request: AlarmRequest = match decode(call.message.clone()) {
        Ok(request) => request,
        Err(status) => return refuse(responder, status),
    };
    admit(node, Identity::of(&call), request, ask_alarm, move |node, request, pass| {
        match allowed(node, &request, pass) {
            Ok(pass) => propose(node, pass.author(), node::ALARM, &call.message, call.is_alone, responder),
            Err(error) => refuse(responder, error),
        }
    });
}

fn allowed(node: &Node, request: &AlarmRequest, pass: Result<Principal, Error>) -> Result<Principal, Error> {
    let pass = pass?;
    node.store.alarm_check(request)?;
    Ok(pass)
}

/// Whoever sets an alarm stops the cluster from being written.
fn ask_alarm(request: &AlarmRequest) -> Ask<'_> {
    if request.action == AlarmAction::Get as i32 { Ask::Login } else { Ask::Root }
}

/// Calls `then` if the caller has the role `root`.
pub(super) fn as_root(
    node: &Arc<Node>,
    call: &Call,
    responder: Responder,
    then: impl FnOnce(&Arc<Node>, Responder) + Send + 'static,
) {
    admit(
        node,
        Identity::of(call),
        (),
        |()| Ask::Root,
        move |node, (), pass| match pass {
            Ok(_) => then(node, responder),
            Err(error) => refuse(responder, error),
        },
    );
}

pub(super) fn status(node: &Arc<Node>, call: Call, responder: Responder) {
    // Who asks for the status of a member may do so because it cannot catch up: only a token that it does not know makes it try.
    identify(node, Identity::of(&call), move |node, pass| {
        match pass.and_then(|pass| pass.decide(Ask::Login, &node.store)) {
            Ok(()) => responder.send(answer_status(node)),
            Err(error) => refuse(responder, error),
        }
    });
}

fn answer_status(node: &Node) -> Result<Reply, Status> {
    // Never 0: `etcdctl endpoint status` divides by it.
    let live_bytes = node.store.usage().live_bytes.max(1) as i64;
    let leader = node.status.leader();
    let mut errors: Vec<String> = Vec::new();
    if leader == 0 {
        errors.push(api::Error::NoLeader.message().into());
    }
    errors.extend(node.store.alarms().iter().map(|alarm| {
        let name = AlarmType::try_from(alarm.alarm).map_or("NONE", |kind| kind.as_str_name());
        format!("memberID:{} alarm:{name} ", alarm.member_id)
    }));
    let downgrade = node.store.members().downgrade;
    encode(&StatusResponse {
        header: Some(node.header(node.store.revision())),
        version: api::version::ETCD.into(),
        db_size: live_bytes,
        leader,
        raft_index: node.status.committed(),
        raft_term: node.status.term(),
        raft_applied_index: node.status.applied(),
        errors,
        db_size_in_use: live_bytes,
        is_learner: node.status.is_learner(),
        storage_version: node.storage_version(),
        db_size_quota: node.store.quota_bytes().map_or(0, |quota| quota as i64),
        downgrade_info: Some(DowngradeInfo { enabled: downgrade.enabled, target_version: downgrade.target_version }),
    })
}

pub(super) fn move_leader(node: &Arc<Node>, call: Call, responder: Responder) {
    let request: MoveLeaderRequest = match decode(call.message.clone()) {
        Ok(request) => request,
        Err(status) => return refuse(responder, status),
    };
    as_root(node, &call, responder, move |node, responder| {
        handover::move_leader(node, request.target_id, move |moved| match moved {
            Ok(()) => responder.send(encode(&MoveLeaderResponse::default())),
            Err(error) => refuse(responder, error),
        });
    });
}

/// Space comes back by itself. What is worth waiting for is that the last compaction is through: who compacts, defragments and
/// disarms an alarm expects the quota to have room then.
pub(super) fn defragment(node: &Arc<Node>, call: Call, responder: Responder) {
    as_root(node, &call, responder, |node, responder| {
        let compacted = node.store.compact_revision();
        let (own, began) = (node.clone(), Instant::now());
        node.metrics.disk.defrags.fetch_add(1, Ordering::Relaxed);
        let answer = move || {
            own.metrics.disk.defrags.fetch_sub(1, Ordering::Relaxed);
            own.metrics.disk.defrag.observe(began.elapsed());
            responder.send(encode(&DefragmentResponse::default()));
        };
        if node.store.compacted() >= compacted { answer() } else { node.when_compacted(compacted, Box::new(answer)) }
    });
}

pub(super) fn hash(node: &Arc<Node>, call: Call, responder: Responder) {
    as_root(node, &call, responder, |node, responder| {
        run_slowly(node, responder, |node, wanted| {
            let began = Instant::now();
            let hash = node.store.hash_while(wanted).map_err(|unread| unanswered(node, unread))?;
            node.metrics.reads.hash.observe(began.elapsed());
            encode(&HashResponse { header: Some(node.header(node.store.revision())), hash })
        });
    });
}

pub(super) fn hash_kv(node: &Arc<Node>, call: Call, responder: Responder) {
    let request: HashKvRequest = match decode(call.message.clone()) {
        Ok(request) => request,
        Err(status) => return refuse(responder, status),
    };
    as_root(node, &call, responder, move |node, responder| {
        run_slowly(node, responder, move |node, wanted| {
            let began = Instant::now();
            let hashed = node.store.hash_kv_while(request.revision, wanted);
            let mut response = hashed.map_err(|unread| unanswered(node, unread))?;
            node.metrics.reads.hash_kv.observe(began.elapsed());
            complete(node, &mut response.header);
            encode(&response)
        });
    });
}

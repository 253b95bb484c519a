//! `etcdserverpb.Maintenance`.

use super::kv::{propose_holding, run_slowly, run_slowly_with};
use super::reply::{complete, encode, refuse, unanswered};
use crate::auth::Permitted;
use crate::auth::rules::{Alarms, Root, User};
use crate::cluster::handover;
use crate::node::{For, Node};
use api::etcdserverpb::{
    AlarmRequest, AlarmType, DefragmentRequest, DefragmentResponse, DowngradeInfo, HashKvRequest, HashRequest,
    HashResponse, MoveLeaderRequest, MoveLeaderResponse, StatusRequest, StatusResponse,
};
use api::{Message, RaftRequest};
use rpc::{Call, Reply, Responder, Status};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;
use telemetry::logging::{self, Value};

pub(super) fn alarm(node: &Arc<Node>, _call: Call, request: Permitted<Alarms, AlarmRequest>, responder: Responder) {
    match node.store.claim_alarm(&request) {
        // Never on this thread's own turn of consensus, which would overtake what is queued: a client that was refused
        // for lack of space must find the alarm that its refusal raised.
        Ok(place) => {
            // Not as it came either: it goes ahead of all writes, which only the number of requests bounds.
            let (author, alarm) = (request.author(), request.encode_to_vec());
            propose_holding(place, node, author, RaftRequest::Alarm, &alarm, false, responder);
        }
        Err(error) => refuse(responder, error),
    }
}

pub(super) fn status(node: &Arc<Node>, _call: Call, _: Permitted<User, StatusRequest>, responder: Responder) {
    responder.send(answer_status(node));
}

fn answer_status(node: &Node) -> Result<Reply, Status> {
    // Never 0: `etcdctl endpoint status` divides by it.
    let live_bytes = node.store.usage().live_bytes.max(1) as i64;
    let leader = node.status.leader();
    let mut errors: Vec<String> = Vec::new();
    if leader == 0 {
        errors.push(api::Error::NoLeader.message().into());
    }
    if node.link.as_ref().is_some_and(|link| !link.has_source()) {
        errors.push("etcdserver: this observer follows nobody at the moment".into());
    }
    if node.store.memory_is_low() {
        let memory = &node.metrics.memory;
        let (used, budget) = (memory.used_bytes.load(Ordering::Relaxed), memory.budget_bytes.load(Ordering::Relaxed));
        errors.push(format!("etcdserver: the memory budget of this member is used up: {used} of {budget} bytes"));
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
        zone: node.config.zone.clone(),
    })
}

pub(super) fn move_leader(
    node: &Arc<Node>,
    _call: Call,
    request: Permitted<Root, MoveLeaderRequest>,
    responder: Responder,
) {
    handover::move_leader(node, request.target_id, move |moved| match moved {
        Ok(()) => responder.send(encode(&MoveLeaderResponse::default())),
        Err(error) => refuse(responder, error),
    });
}

/// Space comes back without defragmenting. This call only waits until the last compaction is finished: a client that
/// compacts, defragments and disarms the alarm expects room in the quota then.
pub(super) fn defragment(node: &Arc<Node>, call: Call, _: Permitted<Root, DefragmentRequest>, responder: Responder) {
    if failpoint::ENABLED {
        // A thread that a failpoint holds up serves nobody else.
        run_slowly_with(node, call.peer.address, responder, |node, responder| match defragment_fails() {
            Ok(()) => wait_compacted(node, responder),
            Err(text) => refuse(responder, Status::new(api::Code::Unknown, text)),
        });
    } else {
        wait_compacted(node, responder);
    }
}

/// The points of etcd's defragmentation, in its order.
fn defragment_fails() -> Result<(), String> {
    failpoint::text!(DEFRAG_OPEN_FILE_ERROR, |text| Err(text));
    failpoint::point!(DEFRAG_BEFORE_COPY);
    failpoint::text!(DEFRAGDB_FAIL, |text| Err(text));
    failpoint::point!(DEFRAG_BEFORE_RENAME);
    Ok(())
}

fn wait_compacted(node: &Arc<Node>, responder: Responder) {
    let compacted = node.store.compact_revision();
    let (own, began) = (node.clone(), Instant::now());
    logging::info("starting defragment", &[("compact-revision", compacted.into())]);
    node.metrics.disk.defrags.fetch_add(1, Ordering::Relaxed);
    let answer = move |responder: Responder, waited| {
        own.metrics.disk.defrags.fetch_sub(1, Ordering::Relaxed);
        if let Err(error) = waited {
            return refuse(responder, error);
        }
        let took = began.elapsed();
        own.metrics.disk.defrag.observe(took);
        logging::info("finished defragment", &[("took", Value::Shown(&format_args!("{took:?}")))]);
        responder.send(encode(&DefragmentResponse::default()));
    };
    if node.store.compacted() >= compacted {
        answer(responder, Ok(()));
    } else {
        node.when_compacted(compacted, For::new(responder, answer));
    }
}

pub(super) fn hash(node: &Arc<Node>, call: Call, _: Permitted<Root, HashRequest>, responder: Responder) {
    run_slowly(node, call.peer.address, responder, |node, wanted| {
        let began = Instant::now();
        let hash = node.store.hash_while(wanted).map_err(|unread| unanswered(node, unread))?;
        node.metrics.reads.hash.observe(began.elapsed());
        encode(&HashResponse { header: Some(node.header(node.store.revision())), hash })
    });
}

pub(super) fn hash_kv(node: &Arc<Node>, call: Call, request: Permitted<Root, HashKvRequest>, responder: Responder) {
    run_slowly(node, call.peer.address, responder, move |node, wanted| {
        let began = Instant::now();
        let hashed = node.store.hash_kv_while(request.revision, wanted);
        let mut response = hashed.map_err(|unread| unanswered(node, unread))?;
        node.metrics.reads.hash_kv.observe(began.elapsed());
        complete(node, &mut response.header);
        encode(&response)
    });
}

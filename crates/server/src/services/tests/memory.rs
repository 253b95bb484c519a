//! Answers and events that have to wait for memory.

use crate::services::LateRooms;
use crate::test_support::{Pending, Rig};
use api::etcdserverpb::{
    CompactionRequest, CompactionResponse, DeleteRangeRequest, DeleteRangeResponse, LeaseGrantRequest,
    LeaseGrantResponse, LeaseTimeToLiveRequest, LeaseTimeToLiveResponse, PutRequest, PutResponse, RequestOp,
    TxnRequest, TxnResponse, WatchCreateRequest, WatchProgressRequest, WatchRequest, WatchResponse,
    request_op::Request, watch_request::RequestUnion,
};
use api::{Error, Message};
use budget::Pool;
use rpc::LocalStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};

const PUT: &str = "/etcdserverpb.KV/Put";
const DELETE_RANGE: &str = "/etcdserverpb.KV/DeleteRange";
const TXN: &str = "/etcdserverpb.KV/Txn";
const GRANT: &str = "/etcdserverpb.Lease/LeaseGrant";
const TIME_TO_LIVE: &str = "/etcdserverpb.Lease/LeaseTimeToLive";
const ANSWER_BYTES: usize = 100 << 10;

fn put(prev_kv: bool) -> PutRequest {
    PutRequest { key: "k".into(), value: vec![7; ANSWER_BYTES].into(), prev_kv, ..Default::default() }
}

/// A member with one large key-value pair.
fn rig() -> Rig {
    let rig = Rig::start(&[]);
    rig.call::<PutResponse>(PUT, None, &put(false)).expect("put");
    rig
}

/// Begins a put, a deletion and a transaction.
fn begin_all(rig: &Rig) -> [Pending; 3] {
    let deletion = DeleteRangeRequest { key: "k".into(), prev_kv: true, ..Default::default() };
    let op = RequestOp { request: Some(Request::RequestDeleteRange(deletion.clone())) };
    let txn = TxnRequest { success: vec![op], ..Default::default() };
    [rig.begin(PUT, None, &put(true)), rig.begin(DELETE_RANGE, None, &deletion), rig.begin(TXN, None, &txn)]
}

#[test]
fn room_on_the_disk_is_claimed_after_the_wait() {
    let rig = rig();
    let node = rig.node();
    let memory = node.budget.claim_anyway(None, 1 << 40);
    let [put, deletion, txn] = begin_all(&rig);
    drop(put);
    // Claims all room on the disk, to the byte.
    let claim = |bit: u32| node.store.reserve_delete(1 << bit, store::Share::default()).ok();
    let room: Vec<store::Reservation> = (0..64).rev().filter_map(claim).collect();
    drop(memory);
    let refused = [deletion, txn].map(|call| call.take::<DeleteRangeResponse>().err().map(|status| status.message));
    assert_eq!(refused, [(); 2].map(|()| Some(Error::NoSpace.message().into())), "there is less room than there was");
    drop(room);
}

#[test]
fn what_nobody_waits_for_any_more_is_not_done() {
    let rig = rig();
    let node = rig.node();
    let memory = node.budget.claim_anyway(None, 1 << 40);
    let before = node.store.revision();
    drop(begin_all(&rig));
    drop(memory);
    rig.wait_for("the end of all three", || node.slow.canceled() == 3 || node.store.revision() > before);
    assert_eq!(node.store.revision(), before, "its client was told that it took too long");
}

#[test]
fn long_keys_of_a_lease_wait_for_memory() {
    let rig = Rig::start(&[]);
    let grant = LeaseGrantRequest { id: 7, ttl: 600 };
    rig.call::<LeaseGrantResponse>(GRANT, None, &grant).expect("granted");
    let key = vec![b'k'; ANSWER_BYTES];
    let put = PutRequest { key: key.clone().into(), lease: 7, ..Default::default() };
    rig.call::<PutResponse>(PUT, None, &put).expect("put");
    let node = rig.node();
    let memory = node.budget.claim_anyway(None, 1 << 40);
    let waits = || node.budget.usage().iter().map(|pool| pool.waits).sum::<u64>();
    let before = waits();
    let ask = LeaseTimeToLiveRequest { id: 7, keys: true };
    let asked = rig.begin(TIME_TO_LIVE, None, &ask);
    rig.wait_for("an answer that waits for room", || waits() > before);
    drop(memory);
    let answer: LeaseTimeToLiveResponse = asked.take().expect("there is room");
    assert_eq!(answer.keys, [key]);
}

/// Adds the revisions of the events that have come on a watch.
fn read_events(stream: &mut LocalStream, revisions: &mut Vec<i64>) {
    while let Poll::Ready(next) = stream.poll_next(&mut Context::from_waker(Waker::noop())) {
        let message = next.expect("the watch goes on").into_whole().expect("as long as it says");
        let response = WatchResponse::decode(message).expect("a response of a watch");
        revisions.extend(response.events.into_iter().filter_map(|event| event.kv).map(|kv| kv.mod_revision));
    }
}

#[test]
fn events_without_room_come_in_order_once_there_is_some() {
    let rig = rig();
    let node = rig.node();
    let create = WatchCreateRequest { range_end: b"\0".to_vec().into(), ..Default::default() };
    let watch = WatchRequest { request_union: Some(RequestUnion::CreateRequest(create)) };
    let mut stream = rig.stream("/etcdserverpb.Watch/Watch", None, &watch);
    let memory = node.budget.claim_anyway(None, 1 << 40);
    let held = node.budget.held(Pool::Long);
    let put_op =
        |key: usize| PutRequest { key: key.to_string().into(), value: vec![7; 10_000].into(), ..Default::default() };
    let op = |key| RequestOp { request: Some(Request::RequestPut(put_op(key))) };
    let txn = TxnRequest { success: (0..10).map(op).collect(), ..Default::default() };
    let before = node.store.revision();
    rig.call::<TxnResponse>(TXN, None, &txn).expect("written");
    // A value that is not copied needs no room, but waits for its turn.
    rig.call::<PutResponse>(PUT, None, &put(false)).expect("written");
    let mut revisions = Vec::new();
    rig.wait_for("a claim that waits", || {
        read_events(&mut stream, &mut revisions);
        node.budget.is_waited_for(rpc::Address::Unix)
    });
    assert!(revisions.is_empty() && node.budget.held(Pool::Long) == held, "nothing is built");
    drop(memory);
    rig.wait_for("all events", || {
        read_events(&mut stream, &mut revisions);
        revisions.len() > 10
    });
    assert_eq!(revisions, [vec![before + 1; 10], vec![before + 2]].concat());
    drop(stream);
    rig.wait_for("the end of what was held", || node.budget.held(Pool::Long) == 0);
}

/// Writes ten keys in one revision, for which a watch of all keys needs memory.
fn write_ten(rig: &Rig) -> i64 {
    let put =
        |key: usize| PutRequest { key: key.to_string().into(), value: vec![7; 10_000].into(), ..Default::default() };
    let op = |key| RequestOp { request: Some(Request::RequestPut(put(key))) };
    let txn = TxnRequest { success: (0..10).map(op).collect(), ..Default::default() };
    rig.call::<TxnResponse>(TXN, None, &txn).expect("written");
    rig.node().store.revision()
}

fn watch_all(rig: &Rig, start_revision: i64) -> LocalStream {
    let create = WatchCreateRequest { range_end: b"\0".to_vec().into(), start_revision, ..Default::default() };
    let watch = WatchRequest { request_union: Some(RequestUnion::CreateRequest(create)) };
    rig.stream("/etcdserverpb.Watch/Watch", None, &watch)
}

#[test]
fn a_stream_that_waits_for_memory_does_not_read_the_log_for_each_message() {
    let rig = rig();
    let node = rig.node();
    let memory = node.budget.claim_anyway(None, 1 << 40);
    let written = write_ten(&rig);
    let last = write_ten(&rig);
    let mut stream = watch_all(&rig, written);
    let mut revisions = Vec::new();
    rig.wait_for("a claim that waits", || {
        read_events(&mut stream, &mut revisions);
        node.budget.is_waited_for(rpc::Address::Unix)
    });
    // If it read the log it would find out that this is gone.
    let compact = CompactionRequest { revision: last, physical: true };
    rig.call::<CompactionResponse>("/etcdserverpb.KV/Compact", None, &compact).expect("compacted");
    let progress = WatchRequest { request_union: Some(RequestUnion::ProgressRequest(WatchProgressRequest {})) };
    let poll = |stream: &mut LocalStream| stream.poll_next(&mut Context::from_waker(Waker::noop()));
    for _ in 0..100 {
        stream.send(progress.encode_to_vec().into());
        assert!(poll(&mut stream).is_pending(), "it was read");
    }
    drop(memory);
    let mut canceled = None;
    rig.wait_for("the end of the watch", || {
        LateRooms::fire(node);
        if let Poll::Ready(Ok(message)) = poll(&mut stream) {
            let message = message.into_whole().expect("as long as it says");
            canceled = Some(WatchResponse::decode(message).expect("a response of a watch"));
        }
        canceled.is_some()
    });
    let canceled = canceled.expect("it has come");
    assert!(canceled.canceled && canceled.compact_revision == last, "{canceled:?}");
}

#[derive(Default)]
struct Wakes(AtomicUsize);

impl Wake for Wakes {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

#[test]
fn a_stream_is_not_woken_before_there_is_memory() {
    let rig = rig();
    let node = rig.node();
    let memory = node.budget.claim_anyway(None, 1 << 40);
    // All places of its host among those that wait are taken.
    for _ in 0..api::limits::BUDGET_QUEUE_MAX / 4 {
        node.budget.wait(Pool::of_answer(ANSWER_BYTES as u64), 1, Some(rpc::Address::Unix), drop);
    }
    let written = write_ten(&rig);
    let refusals = || node.budget.usage().iter().map(|pool| pool.refusals).sum::<u64>();
    let before = refusals();
    let mut stream = watch_all(&rig, written);
    let mut revisions = Vec::new();
    rig.wait_for("a place that is refused", || {
        read_events(&mut stream, &mut revisions);
        refusals() > before
    });
    let wakes = Arc::new(Wakes::default());
    let waker = Waker::from(wakes.clone());
    for _ in 0..3 {
        assert!(stream.poll_next(&mut Context::from_waker(&waker)).is_pending());
        LateRooms::fire(node);
        assert_eq!(wakes.0.load(Ordering::SeqCst), 0, "there is still none");
    }
    drop(memory);
    rig.wait_for("all events", || {
        LateRooms::fire(node);
        read_events(&mut stream, &mut revisions);
        revisions.len() == 10
    });
    assert_eq!(revisions, [written; 10]);
}

//! Writes whose answers have to wait for memory.

use crate::test_support::{Pending, Rig};
use api::Error;
use api::etcdserverpb::{
    DeleteRangeRequest, DeleteRangeResponse, LeaseGrantRequest, LeaseGrantResponse, LeaseTimeToLiveRequest,
    LeaseTimeToLiveResponse, PutRequest, PutResponse, RequestOp, TxnRequest, request_op::Request,
};

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

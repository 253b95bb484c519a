//! The quota, and the alarm when it is reached.

use crate::test_support::Rig;
use api::etcdserverpb::{
    LeaseGrantRequest, PutRequest, PutResponse, RequestOp, TxnRequest, TxnResponse, request_op::Request,
};
use api::v3lockpb::{LockRequest, LockResponse};
use api::{Error, Message, RaftRequest};

const PUT: &str = "/etcdserverpb.KV/Put";
const TXN: &str = "/etcdserverpb.KV/Txn";
const LOCK: &str = "/v3lockpb.Lock/Lock";
const QUOTA_BYTES: u64 = 1 << 20;

fn rig() -> Rig {
    Rig::start(&["--quota-backend-bytes=1048576"])
}

fn put(bytes: usize) -> PutRequest {
    PutRequest { key: "k".into(), value: vec![7; bytes].into(), ..Default::default() }
}

fn txn(bytes: usize) -> TxnRequest {
    let op = RequestOp { request: Some(Request::RequestPut(put(bytes))) };
    TxnRequest { success: vec![op], ..Default::default() }
}

#[test]
fn who_may_not_write_raises_no_alarm() {
    let rig = rig();
    let token = rig.enable_auth();
    let too_large = QUOTA_BYTES as usize + 1;
    let stranger = [
        rig.call::<PutResponse>(PUT, None, &put(too_large)).err(),
        rig.call::<TxnResponse>(TXN, None, &txn(too_large)).err(),
    ];
    assert_eq!(
        stranger.map(|status| status.map(|status| status.message)),
        [Some(Error::UserEmpty.message().into()), Some(Error::UserEmpty.message().into())]
    );
    assert!(rig.node().store.alarms().is_empty(), "whoever may not write has used no space");
    // A user with the permission to write has reached the quota.
    let refused = rig.call::<PutResponse>(PUT, Some(&token), &put(too_large)).expect_err("there is no room");
    assert_eq!(refused.message, Error::NoSpace.message());
    rig.wait_for("the alarm", || !rig.node().store.alarms().is_empty());
}

/// Members may have different quotas: an entry that another member found room for is applied here too, though it is answered with an
/// error. A lease that it grants must end like any other.
#[test]
fn a_lease_over_the_quota_ends() {
    let rig = Rig::start(&["--quota-backend-bytes=1"]);
    let node = rig.node();
    let (answer, answered) = std::sync::mpsc::channel();
    let grant = LeaseGrantRequest { id: 7, ttl: 5 };
    let done = Box::new(move |outcome: crate::node::Outcome| {
        let _ = answer.send(outcome.err());
    });
    node.propose(node.as_member(), RaftRequest::LeaseGrant, &grant.encode_to_vec(), done);
    let error = answered.recv_timeout(std::time::Duration::from_secs(20)).expect("an answer");
    assert_eq!(error, Some(Error::NoSpace));
    assert!(node.store.leases().get(7).is_some(), "the entry was not applied");
    rig.wait_for("the end of the lease", || node.store.leases().get(7).is_none());
}

#[test]
fn what_is_only_under_way_raises_no_alarm() {
    let rig = rig();
    let node = rig.node();
    let under_way = node.store.claim_quota(QUOTA_BYTES - (64 << 10)).expect("an empty store");
    let large = 128 << 10;
    let lock = LockRequest { name: vec![7; large].into(), lease: 0 };
    let refused = [
        rig.call::<PutResponse>(PUT, None, &put(large)).err(),
        rig.call::<TxnResponse>(TXN, None, &txn(large)).err(),
        rig.call::<LockResponse>(LOCK, None, &lock).err(),
    ];
    assert_eq!(
        refused.map(|status| status.map(|status| status.message)),
        [(); 3].map(|()| Some(Error::TooManyRequests.message().into()))
    );
    assert!(node.store.alarms().is_empty(), "nothing was written");
    drop(under_way);
    rig.call::<PutResponse>(PUT, None, &put(large)).expect("there is room now");
    rig.call::<TxnResponse>(TXN, None, &txn(large)).expect("there is room now");
}

//! Calls of clients that have taken more than their share.

use super::fill;
use crate::client_share::{Client, ClientShares, Entry};
use crate::overload::Class;
use crate::test_support::{Pending, Rig};
use api::Error;
use api::etcdserverpb::{
    AuthUserAddRequest, AuthUserAddResponse, AuthUserGrantRoleRequest, AuthUserGrantRoleResponse, LeaseGrantRequest,
    LeaseGrantResponse, PutRequest, PutResponse, RangeRequest, RangeResponse, RequestOp, TxnRequest, TxnResponse,
    range_request::{SortOrder, SortTarget},
    request_op::Request,
};
use budget::Pool;
use std::task::{Context, Poll, Waker};

const RANGE: &str = "/etcdserverpb.KV/Range";
const KEYS: usize = 500;

/// Tokens of two users who may do everything.
fn two_users(rig: &Rig) -> (String, String) {
    let root = rig.enable_auth();
    let user = AuthUserAddRequest { name: "other".into(), password: "pw".into(), ..Default::default() };
    let _: AuthUserAddResponse = rig.call("/etcdserverpb.Auth/UserAdd", Some(&root), &user).expect("a user");
    let grant = AuthUserGrantRoleRequest { user: "other".into(), role: "root".into() };
    let _: AuthUserGrantRoleResponse =
        rig.call("/etcdserverpb.Auth/UserGrantRole", Some(&root), &grant).expect("granted");
    let other = rig.log_in("other", "pw").expect("a token");
    (root, other)
}

#[test]
fn who_has_its_share_waits_and_others_do_not() {
    let rig = Rig::start(&["--client-share=1", "--queue-limits=shares=8"]);
    fill(&rig, KEYS);
    let (greedy, other) = two_users(&rig);
    let everything = RangeRequest { key: "\0".into(), range_end: "\0".into(), ..Default::default() };
    let list = || rig.begin(RANGE, Some(&greedy), &everything);
    let get = || {
        let one = RangeRequest { key: "none".into(), ..Default::default() };
        let _: RangeResponse = rig.call(RANGE, Some(&other), &one).expect("the other client has its share left");
    };
    let node = rig.node();
    let (mut begun, mut refused): (Vec<Pending>, _) = (Vec::new(), false);
    rig.wait_for("calls that wait, and one that is refused", || {
        get();
        begun.extend((0..8).map(|_| list()));
        refused |= node.refused(Class::Share) > 0;
        node.depth(Class::Share) > 0 && refused
    });
    get();
    let lease = LeaseGrantRequest { ttl: 60, id: 0 };
    let _: LeaseGrantResponse =
        rig.call("/etcdserverpb.Lease/LeaseGrant", Some(&greedy), &lease).expect("leases do not wait");
    let waited = node.client_shares.as_ref().expect("the flag is given").waited();
    assert!(waited > 0);
    for call in begun {
        match call.take::<RangeResponse>() {
            Ok(range) => assert_eq!(range.count, KEYS as i64),
            Err(refusal) => assert_eq!(refusal.message, Error::TooManyRequests.message()),
        }
    }
    assert_eq!(node.depth(Class::Share), 0);
    let waited = || node.client_shares.as_ref().expect("the flag is given").waited();
    let before = waited();
    (0..10).for_each(|_| get());
    assert_eq!(waited(), before, "gets of the other client are within its share");
}

#[test]
fn what_a_transaction_takes_where_it_is_applied_counts() {
    // The share is one of all threads, of which a large machine has many.
    let rig = Rig::start(&["--client-share=1", "--threads=1"]);
    fill(&rig, KEYS);
    let (greedy, other) = two_users(&rig);
    // It looks at all keys for an answer of one: without what applying took, 50 of them cost less than a client may take at a time.
    let sorted = RangeRequest {
        key: "\0".into(),
        range_end: "\0".into(),
        limit: 1,
        sort_order: SortOrder::Descend.into(),
        sort_target: SortTarget::Value.into(),
        ..Default::default()
    };
    let put = PutRequest { key: "k".into(), ..Default::default() };
    let op = |request| RequestOp { request: Some(request) };
    let success = vec![op(Request::RequestRange(sorted)), op(Request::RequestPut(put))];
    let txn = TxnRequest { success, ..Default::default() };
    for _ in 0..50 {
        let one = RangeRequest { key: "none".into(), ..Default::default() };
        let _: RangeResponse = rig.call(RANGE, Some(&other), &one).expect("somebody else is there");
        let answer: TxnResponse = rig.call("/etcdserverpb.KV/Txn", Some(&greedy), &txn).expect("a transaction");
        assert!(answer.succeeded);
    }
    let waited = rig.node().client_shares.as_ref().expect("the flag is given").waited();
    assert!(waited > 0);
}

#[test]
fn a_chunk_keeps_its_memory_while_it_waits_for_its_turn() {
    let rig = Rig::start(&["--client-share=1", "--max-held-bytes=67108864"]);
    fill(&rig, 4 * KEYS);
    let node = rig.node();
    let shares = node.client_shares.clone().expect("the flag is given");
    let held = || node.budget.held(Pool::Short);
    let all: Vec<_> = std::iter::from_fn(|| node.budget.try_claim(Pool::Short, 64 << 10, None)).collect();
    let everything = RangeRequest { key: "\0".into(), range_end: "\0".into(), ..Default::default() };
    let mut stream = rig.stream("/etcdserverpb.KV/RangeStream", None, &everything);
    let mut poll = || stream.poll_next(&mut Context::from_waker(Waker::noop()));
    rig.wait_for("a chunk that waits for memory", || {
        // Short chunks need none.
        poll().is_pending() && node.budget.is_waited_for(rpc::Address::Unix)
    });
    use_up(&shares);
    drop(all);
    rig.wait_for("a stream that waits for its turn", || {
        assert!(poll().is_pending());
        node.depth(Class::Share) > 0
    });
    assert!(held() > 0, "the chunk is there, and so is the claim for it");
    rig.wait_for("the chunk", || matches!(poll(), Poll::Ready(Ok(_))));
    drop(stream);
    rig.wait_for("the end of what was held", || held() == 0);
}

/// Takes the share of clients that come as if through a Unix socket, as all of these tests do. There are others, so they have to wait.
fn use_up(shares: &ClientShares) {
    let enter = |client| match shares.enter(client) {
        Entry::Now(turn) => turn,
        Entry::Later(_) => panic!("a fresh client"),
    };
    enter(Client::User("other".into()));
    shares.settle(enter(Client::Host(None)), usize::MAX);
    enter(Client::User("another".into()));
}

#[test]
fn calls_that_wait_end_with_the_member() {
    let rig = Rig::start(&["--client-share=1"]);
    let shares = rig.node().client_shares.clone().expect("the flag is given");
    use_up(&shares);
    let put = PutRequest { key: "k".into(), ..Default::default() };
    let call = rig.begin("/etcdserverpb.KV/Put", None, &put);
    drop(rig);
    assert_eq!(shares.waiting(), 0);
    // On a machine that stood still for a second the others were gone, and it was made, or failed in another way.
    let _answered = call.take::<PutResponse>();
}

//! Answers and events that have to wait for memory.

use crate::node::Node;
use crate::services::LateRooms;
use crate::test_support::{Pending, Rig};
use api::authpb::Permission;
use api::etcdserverpb::{
    AuthRoleAddRequest, AuthRoleAddResponse, AuthRoleGetRequest, AuthRoleGetResponse, AuthRoleGrantPermissionRequest,
    AuthRoleGrantPermissionResponse, AuthRoleListRequest, AuthRoleListResponse, AuthUserAddRequest,
    AuthUserAddResponse, AuthUserGetRequest, AuthUserGetResponse, AuthUserGrantRoleRequest, AuthUserGrantRoleResponse,
    AuthUserListRequest, AuthUserListResponse, CompactionRequest, CompactionResponse, DeleteRangeRequest,
    DeleteRangeResponse, LeaseGrantRequest, LeaseGrantResponse, LeaseTimeToLiveRequest, LeaseTimeToLiveResponse,
    MemberListRequest, MemberListResponse, MemberUpdateRequest, MemberUpdateResponse, PutRequest, PutResponse,
    RequestOp, TxnRequest, TxnResponse, WatchCancelRequest, WatchCreateRequest, WatchProgressRequest, WatchRequest,
    WatchResponse, request_op::Request, watch_request::RequestUnion,
};
use api::limits::PEER_URLS_MAX;
use api::{Error, Message};
use budget::Pool;
use rpc::LocalStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};

const PUT: &str = "/etcdserverpb.KV/Put";
const DELETE_RANGE: &str = "/etcdserverpb.KV/DeleteRange";
const TXN: &str = "/etcdserverpb.KV/Txn";
const MEMBER_LIST: &str = "/etcdserverpb.Cluster/MemberList";
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
    let before = waits(node);
    let ask = LeaseTimeToLiveRequest { id: 7, keys: true };
    let asked = rig.begin(TIME_TO_LIVE, None, &ask);
    rig.wait_for("an answer that waits for room", || waits(node) > before);
    drop(memory);
    let answer: LeaseTimeToLiveResponse = asked.take().expect("there is room");
    assert_eq!(answer.keys, [key]);
}

#[test]
fn long_lists_of_users_and_roles_wait_for_memory() {
    let rig = Rig::start(&[]);
    let long = |at: usize| format!("{at}") + &"n".repeat(ANSWER_BYTES / 4);
    for name in (0..4).map(long) {
        let user = AuthUserAddRequest { name: name.clone(), password: "p".into(), ..Default::default() };
        rig.call::<AuthUserAddResponse>("/etcdserverpb.Auth/UserAdd", None, &user).expect("added");
        let role = AuthRoleAddRequest { name: name.clone() };
        rig.call::<AuthRoleAddResponse>("/etcdserverpb.Auth/RoleAdd", None, &role).expect("added");
        let member = AuthUserGrantRoleRequest { user: long(0), role: name.clone() };
        rig.call::<AuthUserGrantRoleResponse>("/etcdserverpb.Auth/UserGrantRole", None, &member).expect("granted");
        let perm = Some(Permission { key: name.into(), ..Default::default() });
        let grant = AuthRoleGrantPermissionRequest { name: long(0), perm };
        rig.call::<AuthRoleGrantPermissionResponse>("/etcdserverpb.Auth/RoleGrantPermission", None, &grant)
            .expect("granted");
    }
    let node = rig.node();
    let memory = node.budget.claim_anyway(None, 1 << 40);
    let before = waits(node);
    let users = rig.begin("/etcdserverpb.Auth/UserList", None, &AuthUserListRequest {});
    let roles = rig.begin("/etcdserverpb.Auth/RoleList", None, &AuthRoleListRequest {});
    let user = rig.begin("/etcdserverpb.Auth/UserGet", None, &AuthUserGetRequest { name: long(0) });
    let role = rig.begin("/etcdserverpb.Auth/RoleGet", None, &AuthRoleGetRequest { role: long(0) });
    rig.wait_for("four answers that wait for room", || waits(node) == before + 4);
    drop(memory);
    assert_eq!(users.take::<AuthUserListResponse>().expect("there is room").users.len(), 4);
    assert_eq!(roles.take::<AuthRoleListResponse>().expect("there is room").roles.len(), 4);
    assert_eq!(user.take::<AuthUserGetResponse>().expect("there is room").roles.len(), 4);
    assert_eq!(role.take::<AuthRoleGetResponse>().expect("there is room").perm.len(), 4);
}

#[test]
fn a_long_list_of_members_waits_for_memory() {
    let rig = Rig::start(&[]);
    let list = MemberListRequest { linearizable: true };
    let members: MemberListResponse = rig.call(MEMBER_LIST, None, &list).expect("a list");
    let mut own = members.members.into_iter().next().expect("the member itself");
    // As long as they may be.
    own.peer_ur_ls.extend((1..PEER_URLS_MAX).map(|at| format!("http://{:a>240}:{at}", "")));
    let update = MemberUpdateRequest { id: own.id, peer_ur_ls: own.peer_ur_ls.clone() };
    rig.call::<MemberUpdateResponse>("/etcdserverpb.Cluster/MemberUpdate", None, &update).expect("updated");
    let node = rig.node();
    // All that there is for answers of this length.
    let memory: Vec<_> = (0..4_000).map(|_| node.budget.claim_anyway(None, 60 << 10)).collect();
    let before = waits(node);
    let asked = [true, false].map(|linearizable| rig.begin(MEMBER_LIST, None, &MemberListRequest { linearizable }));
    rig.wait_for("two answers that wait for room", || waits(node) == before + 2);
    drop(memory);
    for asked in asked {
        let answer: MemberListResponse = asked.take().expect("there is room");
        assert_eq!(answer.members.first().map(|member| member.peer_ur_ls.len()), Some(own.peer_ur_ls.len()));
    }
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

fn create(range: (&'static str, &'static str), start_revision: i64, prev_kv: bool) -> WatchRequest {
    let (key, range_end) = (range.0.into(), range.1.into());
    let create = WatchCreateRequest { key, range_end, start_revision, prev_kv, ..Default::default() };
    WatchRequest { request_union: Some(RequestUnion::CreateRequest(create)) }
}

fn watch_all(rig: &Rig, start_revision: i64, prev_kv: bool) -> LocalStream {
    rig.stream("/etcdserverpb.Watch/Watch", None, &create(("", "\0"), start_revision, prev_kv))
}

fn send(stream: &mut LocalStream, request: RequestUnion) {
    stream.send(WatchRequest { request_union: Some(request) }.encode_to_vec().into());
}

/// The next response of a watch, if one is there.
fn next_response(stream: &mut LocalStream) -> Option<WatchResponse> {
    let Poll::Ready(next) = stream.poll_next(&mut Context::from_waker(Waker::noop())) else { return None };
    let message = next.expect("the watch goes on").into_whole().expect("as long as it says");
    Some(WatchResponse::decode(message).expect("a response of a watch"))
}

/// Waits until a watch has ended.
fn wait_for_end(rig: &Rig, stream: &mut LocalStream) -> WatchResponse {
    let mut last = WatchResponse::default();
    rig.wait_for("the end of a watch", || {
        last = next_response(stream).unwrap_or_default();
        last.canceled
    });
    last
}

fn compact(rig: &Rig, revision: i64) {
    let compact = CompactionRequest { revision, physical: true };
    rig.call::<CompactionResponse>("/etcdserverpb.KV/Compact", None, &compact).expect("compacted");
}

/// How many claims had to wait.
fn waits(node: &Node) -> u64 {
    node.budget.usage().iter().map(|pool| pool.waits).sum()
}

/// How many claims were given up.
fn refusals(node: &Node) -> u64 {
    node.budget.usage().iter().map(|pool| pool.refusals).sum()
}

#[test]
fn a_stream_that_waits_for_memory_does_not_read_the_log_for_each_message() {
    let rig = rig();
    let node = rig.node();
    let memory = node.budget.claim_anyway(None, 1 << 40);
    write_ten(&rig);
    let written = write_ten(&rig);
    let mut stream = watch_all(&rig, written, true);
    let mut revisions = Vec::new();
    rig.wait_for("a claim that waits", || {
        read_events(&mut stream, &mut revisions);
        node.budget.is_waited_for(rpc::Address::Unix)
    });
    // If it read the log it would find out that what was there before is gone, and ask for less.
    compact(&rig, written);
    let before = waits(node);
    for _ in 0..100 {
        send(&mut stream, RequestUnion::ProgressRequest(WatchProgressRequest {}));
        assert!(next_response(&mut stream).is_none(), "it was read");
    }
    assert_eq!(waits(node), before, "it was read");
    drop(memory);
    rig.wait_for("all events", || {
        LateRooms::fire(node);
        read_events(&mut stream, &mut revisions);
        revisions.len() == 10
    });
    assert_eq!(revisions, [written; 10]);
}

/// Takes all places of the clients of a rig among the claims that wait.
fn fill_line(node: &Node) {
    for _ in 0..api::limits::BUDGET_QUEUE_MAX / 4 {
        node.budget.wait(Pool::of_answer(ANSWER_BYTES as u64), 1, Some(rpc::Address::Unix), drop);
    }
}

#[test]
fn a_stream_that_waits_for_memory_is_told_of_a_compaction() {
    for is_late in [false, true] {
        let rig = rig();
        let node = rig.node();
        let _memory = node.budget.claim_anyway(None, 1 << 40);
        if is_late {
            fill_line(node);
        }
        let written = write_ten(&rig);
        let last = write_ten(&rig);
        let before = (waits(node), refusals(node));
        let mut stream = watch_all(&rig, written, false);
        rig.wait_for("a claim that waits", || {
            assert!(next_response(&mut stream).is_none_or(|response| response.created));
            waits(node) > before.0 && (!is_late || refusals(node) > before.1)
        });
        compact(&rig, last);
        if is_late {
            LateRooms::fire(node);
        } else {
            send(&mut stream, RequestUnion::ProgressRequest(WatchProgressRequest {}));
        }
        let end = wait_for_end(&rig, &mut stream);
        assert_eq!(end.compact_revision, last, "{end:?}");
    }
}

/// Writes 18 MB of keys, which all begin with an `a`.
fn write_many(rig: &Rig) {
    for part in 0..13 {
        let key = |key: usize| format!("a{part:02}{key}");
        let put = |place| PutRequest { key: key(place).into(), value: vec![7; 11_000].into(), ..Default::default() };
        let op = |key| RequestOp { request: Some(Request::RequestPut(put(key))) };
        let txn = TxnRequest { success: (0..128).map(op).collect(), ..Default::default() };
        rig.call::<TxnResponse>(TXN, None, &txn).expect("written");
    }
}

/// Deletes them in one revision.
fn delete_many(rig: &Rig) {
    let deletion = DeleteRangeRequest { key: "a".into(), range_end: "b".into(), ..Default::default() };
    rig.call::<DeleteRangeResponse>(DELETE_RANGE, None, &deletion).expect("deleted");
}

#[test]
fn a_stream_waits_only_for_what_it_still_needs() {
    let rig = Rig::start(&["--max-held-bytes=67108864"]);
    let node = rig.node();
    let room = || node.budget.try_claim(Pool::Long, ANSWER_BYTES as u64, Some(rpc::Address::Unix));
    // There is room for little of the 32 MiB, and not for more than a host's share.
    let memory = node.budget.claim_anyway(None, 20 << 20);
    write_many(&rig);
    let mut stream = rig.stream("/etcdserverpb.Watch/Watch", None, &create(("a", "b"), 0, true));
    let other = create(("0", "9"), 0, false).request_union.expect("a request");
    send(&mut stream, other);
    let cancel = || RequestUnion::CancelRequest(WatchCancelRequest { watch_id: 0 });
    let before = refusals(node);
    delete_many(&rig);
    let written = write_ten(&rig);
    let mut revisions = Vec::new();
    rig.wait_for("a claim that waits", || {
        read_events(&mut stream, &mut revisions);
        node.budget.is_waited_for(rpc::Address::Unix)
    });
    assert!(revisions.is_empty() && room().is_none(), "its own connection waits behind it");
    send(&mut stream, cancel());
    rig.wait_for("the events of the other watch", || {
        LateRooms::fire(node);
        read_events(&mut stream, &mut revisions);
        revisions.len() == 9
    });
    assert_eq!(revisions, [written; 9]);

    // A claim that nothing is needed for any more leaves the line, whether its watch or its stream has ended.
    for ends in [false, true] {
        write_many(&rig);
        let mut stream = rig.stream("/etcdserverpb.Watch/Watch", None, &create(("a", "b"), 0, true));
        delete_many(&rig);
        rig.wait_for("a claim that waits", || {
            read_events(&mut stream, &mut revisions);
            room().is_none()
        });
        if ends {
            drop(stream);
        } else {
            send(&mut stream, cancel());
            wait_for_end(&rig, &mut stream);
        }
        rig.wait_for("the claim to leave", || {
            LateRooms::fire(node);
            room().is_some()
        });
    }
    assert_eq!(refusals(node), before, "no claim was given up: each left the line");
    drop(memory);
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
    fill_line(node);
    let written = write_ten(&rig);
    let before = refusals(node);
    let mut stream = watch_all(&rig, written, false);
    let mut revisions = Vec::new();
    rig.wait_for("a place that is refused", || {
        read_events(&mut stream, &mut revisions);
        refusals(node) > before
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

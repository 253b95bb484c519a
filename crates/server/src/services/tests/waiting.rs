//! What calls hold while they wait for a read index.

use crate::test_support::{Pending, Rig};
use api::Message;
use api::etcdserverpb::{
    AuthRoleGetRequest, AuthUserGetRequest, DeleteRangeRequest, LeaseKeepAliveRequest, PutRequest, RangeRequest,
    RangeResponse,
};
use api::v3electionpb::{CampaignRequest, LeaderKey, LeaderRequest, ProclaimRequest, ResignRequest};
use api::v3lockpb::{LockRequest, UnlockRequest};
use api::{Error, limits};
use budget::Pool;
use bytes::Bytes;
use rpc::{Address, LocalStream};
use std::task::{Context, Poll, Waker};

/// Length of the longest field of each request, in bytes.
const LONG: usize = 256 << 10;

fn long() -> Bytes {
    vec![7; LONG].into()
}

fn held(rig: &Rig) -> usize {
    rig.node().budget.held(Pool::Requests) as usize
}

/// Begins calls that wait, and checks that their memory is counted.
struct Waiting<'a> {
    rig: &'a Rig,
    token: Option<&'a str>,
    begun: Vec<Pending>,
}

impl Waiting<'_> {
    /// Begins a call that keeps `times` copies of its request.
    fn begin(&mut self, path: &str, times: usize, request: &impl Message) {
        let before = held(self.rig);
        self.begun.push(self.rig.begin(path, self.token, request));
        let more = held(self.rig) - before;
        assert!(more >= times * LONG, "{path} waits with its request, but only {more} bytes are counted");
    }
}

#[test]
fn all_that_waits_for_a_read_index_is_counted() {
    let rig = Rig::start(&[]);
    let token = rig.enable_auth();
    rig.cut_off(Some(&token));
    let name = || "n".repeat(LONG);
    let leader = || Some(LeaderKey { name: long(), key: "k".into(), rev: 1, lease: 1 });
    let mut waiting = Waiting { rig: &rig, token: Some(&token), begun: Vec::new() };
    waiting.begin("/etcdserverpb.KV/Range", 1, &RangeRequest { key: long(), ..Default::default() });
    // The requests below are kept a second time, for a retry if users change meanwhile.
    waiting.begin("/etcdserverpb.Auth/UserGet", 2, &AuthUserGetRequest { name: name() });
    waiting.begin("/etcdserverpb.Auth/RoleGet", 2, &AuthRoleGetRequest { role: name() });
    waiting.begin("/v3electionpb.Election/Leader", 2, &LeaderRequest { name: long() });
    // The token names an entry that is not applied yet, so no call is refused before this member has caught up.
    waiting.token = Some("no.99999999999");
    waiting.begin("/etcdserverpb.KV/Put", 2, &PutRequest { key: long(), ..Default::default() });
    waiting.begin("/etcdserverpb.KV/DeleteRange", 2, &DeleteRangeRequest { key: long(), ..Default::default() });
    // The requests that the server makes from these calls wait too.
    waiting.begin("/v3lockpb.Lock/Lock", 3, &LockRequest { name: long(), lease: 1 });
    waiting.begin("/v3lockpb.Lock/Unlock", 3, &UnlockRequest { key: long() });
    let campaign = CampaignRequest { name: long(), lease: 1, value: "v".into() };
    waiting.begin("/v3electionpb.Election/Campaign", 3, &campaign);
    let value: Bytes = "v".into();
    waiting.begin("/v3electionpb.Election/Proclaim", 2, &ProclaimRequest { leader: leader(), value });
    waiting.begin("/v3electionpb.Election/Resign", 2, &ResignRequest { leader: leader() });
    for pending in waiting.begun {
        pending.take::<RangeResponse>().expect_err("nobody leads");
    }
    rig.wait_for("the end of what was held", || held(&rig) == 0);
    let list = RangeRequest { key: long(), ..Default::default() };
    let _stream = rig.stream("/etcdserverpb.KV/RangeStream", None, &list);
    assert!(held(&rig) >= LONG, "a stream waits with its request");
    let _observer = rig.stream("/v3electionpb.Election/Observe", None, &LeaderRequest { name: long() });
    assert!(held(&rig) >= 3 * LONG, "an observer waits with its own and what is made of it");
}

#[test]
fn what_waits_for_the_lease_of_its_session_is_counted() {
    let rig = Rig::start(&[]);
    rig.cut_off(None);
    let mut waiting = Waiting { rig: &rig, token: None, begun: Vec::new() };
    waiting.begin("/v3lockpb.Lock/Lock", 1, &LockRequest { name: long(), lease: 0 });
    let campaign = CampaignRequest { name: long(), lease: 0, value: "v".into() };
    waiting.begin("/v3electionpb.Election/Campaign", 1, &campaign);
    let leader = Some(LeaderKey { name: long(), key: "k".into(), rev: 1, lease: 0 });
    waiting.begin("/v3electionpb.Election/Proclaim", 1, &ProclaimRequest { leader, value: "v".into() });
    for pending in waiting.begun {
        pending.take::<RangeResponse>().expect_err("nobody leads");
    }
    rig.wait_for("the end of what was held", || held(&rig) == 0);
}

#[test]
fn a_stream_counts_its_request_as_long_as_it_lives() {
    let rig = Rig::start(&[]);
    let list = RangeRequest { key: long(), serializable: true, ..Default::default() };
    let stream = rig.stream("/etcdserverpb.KV/RangeStream", None, &list);
    assert!(held(&rig) >= LONG, "{} bytes are counted", held(&rig));
    drop(stream);
    rig.wait_for("the end of what was held", || held(&rig) == 0);
}

/// A stream with `count` keep-alives, while there is no leader.
fn keep_alive(rig: &Rig, count: i64) -> LocalStream {
    let request = |id| LeaseKeepAliveRequest { id };
    let mut stream = rig.stream("/etcdserverpb.Lease/LeaseKeepAlive", None, &request(1));
    (2..=count).for_each(|id| stream.send(request(id).encode_to_vec().into()));
    stream
}

#[test]
fn keep_alives_that_wait_are_counted() {
    let rig = Rig::start(&[]);
    rig.cut_off(None);
    let few = keep_alive(&rig, 100);
    assert_eq!(held(&rig), 0, "so many are free");
    let count = limits::KEEP_ALIVES_WAITING_MAX / 2;
    let many = keep_alive(&rig, count as i64);
    assert!(held(&rig) >= (count - 1) * 3 * size_of::<i64>(), "{} bytes are counted", held(&rig));
    drop((few, many));
    rig.wait_for("the end of what was held", || held(&rig) == 0);
}

#[test]
fn a_stream_of_more_keep_alives_than_its_share_ends() {
    let rig = Rig::start(&["--max-held-bytes=67108864"]);
    rig.cut_off(None);
    let ended = |stream: &mut LocalStream| match stream.poll_next(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(Err(status)) => Some(status.message),
        _ => None,
    };
    let mut first = keep_alive(&rig, 1_000);
    assert_eq!(ended(&mut first), None, "there was room for the first");
    // Something else of the same client has all of its share but for what is left of a step.
    let mut other = rig.node().budget.request(Address::Unix);
    let steps = (1..).take_while(|steps| other.resize(steps * limits::BUDGET_FREE_BYTES as u64)).count();
    assert!(steps > 100, "{steps} steps");
    let mut second = keep_alive(&rig, 1_000);
    assert_eq!(ended(&mut second).as_deref(), Some(Error::TooManyRequests.message()));
    drop((first, second, other));
    rig.wait_for("the end of what was held", || held(&rig) == 0);
}

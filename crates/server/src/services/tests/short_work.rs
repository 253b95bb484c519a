//! Short work that must not wait behind lists, counts and snapshots: keep-alives at a leader, and logins.

use super::occupy_slow_threads;
use crate::test_support::Rig;
use api::Message;
use api::etcdserverpb::{
    AuthenticateRequest, AuthenticateResponse, LeaseGrantRequest, LeaseGrantResponse, LeaseKeepAliveRequest,
    LeaseKeepAliveResponse,
};
use std::task::{Context, Poll, Waker};

const AUTHENTICATE: &str = "/etcdserverpb.Auth/Authenticate";
const GRANT: &str = "/etcdserverpb.Lease/LeaseGrant";
const KEEP_ALIVE: &str = "/etcdserverpb.Lease/LeaseKeepAlive";

#[test]
fn a_keep_alive_waits_for_no_slow_thread() {
    let rig = Rig::start(&[]);
    let grant = LeaseGrantRequest { id: 7, ttl: 1_000 };
    let _: LeaseGrantResponse = rig.call(GRANT, None, &grant).expect("a lease");
    let go_on = occupy_slow_threads(&rig);
    // Nobody has confirmed yet that this member leads, so it is not renewed at once.
    let now_ms = rig.node().now_ms();
    assert!(!rig.node().lessor.with(|lessor| lessor.renews_at_once(7, now_ms)));
    let mut stream = rig.stream(KEEP_ALIVE, None, &LeaseKeepAliveRequest { id: 7 });
    let mut answer = None;
    rig.wait_for("the renewal", || {
        if let Poll::Ready(next) = stream.poll_next(&mut Context::from_waker(Waker::noop())) {
            answer = next.expect("no error").into_whole();
        }
        answer.is_some()
    });
    let answer = LeaseKeepAliveResponse::decode(answer.expect("it was waited for")).expect("an answer of this kind");
    assert_eq!((answer.id, answer.ttl), (7, 1_000));
    drop(go_on);
}

#[test]
fn a_login_waits_for_no_slow_thread() {
    let rig = Rig::start(&[]);
    rig.enable_auth();
    let go_on = occupy_slow_threads(&rig);
    let refused = |password: &str| {
        let request = AuthenticateRequest { name: "root".into(), password: password.into() };
        let answer: Result<AuthenticateResponse, _> = rig.begin(AUTHENTICATE, None, &request).take_in_time(&rig);
        answer.is_err()
    };
    // Known from the login before, and one that bcrypt has to check.
    assert!(!refused("pw") && refused("other"));
    drop(go_on);
}

//! What an observer of an election reads.

use super::fill;
use crate::test_support::Rig;
use api::Message;
use api::etcdserverpb::{DeleteRangeRequest, DeleteRangeResponse, PutRequest, PutResponse};
use api::v3electionpb::{LeaderRequest, LeaderResponse};
use rpc::LocalStream;
use std::task::{Context, Poll, Waker};

const OBSERVE: &str = "/v3electionpb.Election/Observe";
const KEYS: usize = 1_000;

fn poll(observer: &mut LocalStream) -> Option<LeaderResponse> {
    match observer.poll_next(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(next) => {
            let message = next.expect("the stream goes on").into_whole().expect("as long as it says");
            Some(LeaderResponse::decode(message).expect("a response"))
        }
        Poll::Pending => None,
    }
}

#[test]
fn an_observer_without_a_leader_reads_no_deletions() {
    let rig = Rig::start(&[]);
    let events = || rig.node().store.hub().metrics().events();
    let clear = || {
        let request = DeleteRangeRequest { key: "large/".into(), range_end: "large0".into(), prev_kv: false };
        let deleted: DeleteRangeResponse = rig.call("/etcdserverpb.KV/DeleteRange", None, &request).expect("deleted");
        assert_eq!(deleted.deleted, KEYS as i64);
    };
    fill(&rig, KEYS);
    clear();
    let mut observer = rig.stream(OBSERVE, None, &LeaderRequest { name: "large".into() });
    rig.wait_for("a watch", || poll(&mut observer).is_none() && rig.node().watches.taken() == 1);
    // What the watch reads of the log it reads now.
    assert!(poll(&mut observer).is_none());
    assert_eq!(events(), 0, "events of the deletion before");
    let put = PutRequest { key: "large/leader".into(), value: "v".into(), ..Default::default() };
    let _: PutResponse = rig.call("/etcdserverpb.KV/Put", None, &put).expect("written");
    let mut leader = None;
    rig.wait_for("the leader", || {
        leader = poll(&mut observer);
        leader.is_some()
    });
    let pair = leader.and_then(|leader| leader.kv).expect("a leader");
    assert_eq!((pair.key, pair.value), (put.key, put.value));
    assert_eq!(events(), 1);
}

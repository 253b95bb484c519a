//! What the requests of one watch stream cost the clients of its thread.

use super::fill;
use crate::test_support::Rig;
use api::Message;
use api::etcdserverpb::watch_request::RequestUnion;
use api::etcdserverpb::{WatchCreateRequest, WatchRequest, WatchResponse};
use rpc::LocalStream;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

const WATCHES: usize = 200;

fn create(start_revision: i64) -> WatchRequest {
    let create = WatchCreateRequest { key: "none".into(), start_revision, ..Default::default() };
    WatchRequest { request_union: Some(RequestUnion::CreateRequest(create)) }
}

fn created(rig: &Rig, stream: &mut LocalStream) -> usize {
    let mut created = 0;
    rig.wait_for("the answers", || {
        while let Poll::Ready(next) = stream.poll_next(&mut Context::from_waker(Waker::noop())) {
            let message = next.expect("the stream goes on").into_whole().expect("as long as it says");
            created += usize::from(WatchResponse::decode(message).expect("a response").created);
        }
        created > WATCHES
    });
    created
}

/// The least time, of some, that the requests for watches take which arrive at once, and of many more until that is `enough`: other
/// programs have the processor meanwhile.
fn taken(rig: &Rig, start_revision: i64, enough: impl Fn(Duration) -> bool) -> Duration {
    let mut least = Duration::MAX;
    for round in 0..100 {
        let mut stream = rig.stream("/etcdserverpb.Watch/Watch", None, &create(start_revision));
        let began = Instant::now();
        for _ in 0..WATCHES {
            stream.send(create(start_revision).encode_to_vec().into());
        }
        least = least.min(began.elapsed());
        assert_eq!(created(rig, &mut stream), WATCHES + 1);
        if round >= 4 && enough(least) {
            break;
        }
    }
    least
}

#[test]
fn requests_of_a_watch_stream_do_not_read_the_log_each() {
    let rig = Rig::start(&[]);
    fill(&rig, 20_000);
    let now = taken(&rig, 0, |_| true);
    let past = taken(&rig, 2, |past| past < now * 20);
    assert!(past < now * 20, "{past:?} and {now:?}");
}

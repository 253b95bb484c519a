//! Streams of clients that want none without a leader: they end once the cluster has been without one for a while, so that the
//! client turns to a member on the other side of the partition.

use crate::node::Node;
use contain::lock;
use rpc::StreamWaker;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, Instant};

/// Election time-outs without a leader after which the streams end.
const TIMEOUTS: u32 = 3;

/// The streams that are to end with the leader.
#[derive(Default)]
pub(crate) struct Leaderless {
    streams: Mutex<Vec<(Weak<AtomicBool>, StreamWaker)>>,
}

impl Leaderless {
    /// Adds a stream: the flag is raised, and the stream woken, when the leader is lost.
    pub(crate) fn add(&self, waker: StreamWaker) -> Arc<AtomicBool> {
        let lost = Arc::new(AtomicBool::new(false));
        let mut streams = lock(&self.streams);
        // The ended ones go before the list grows, so it stays as long as twice the open ones at most.
        if streams.len() == streams.capacity() {
            streams.retain(|(stream, _)| stream.strong_count() > 0);
        }
        streams.push((Arc::downgrade(&lost), waker));
        lost
    }

    fn end_all(&self) {
        for (lost, waker) in std::mem::take(&mut *lock(&self.streams)) {
            if let Some(lost) = lost.upgrade() {
                lost.store(true, Ordering::Release);
                waker.wake();
            }
        }
    }
}

/// Watches for the leader until the member stops.
pub(crate) fn run(node: &Node) {
    let mut seen = Instant::now();
    let pause = (node.config.election_timeout / 10).clamp(Duration::from_millis(10), Duration::from_millis(100));
    while !node.stopping.load(Ordering::Relaxed) {
        std::thread::sleep(pause);
        if node.status.leader() != 0 {
            seen = Instant::now();
        } else if seen.elapsed() >= TIMEOUTS * node.config.election_timeout {
            node.leaderless.end_all();
        }
    }
}

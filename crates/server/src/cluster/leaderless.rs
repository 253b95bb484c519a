//! Streams that require a leader: they end once the cluster has been without one for a while, so that the client turns to a member on the
//! other side of the partition.

use contain::lock;
use rpc::StreamWaker;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Weak};

/// The streams that end when the leader is lost.
#[derive(Default)]
pub(crate) struct Leaderless {
    streams: Mutex<Vec<(Weak<AtomicBool>, StreamWaker)>>,
}

impl Leaderless {
    /// Adds a stream: the flag is raised, and the stream woken, when the leader is lost.
    pub(crate) fn add(&self, waker: StreamWaker) -> Arc<AtomicBool> {
        let lost = Arc::new(AtomicBool::new(false));
        let mut streams = lock(&self.streams);
        // Ended streams are dropped before the list grows, so the list has at most twice as many places as there are
        // open streams.
        if streams.len() == streams.capacity() {
            streams.retain(|(stream, _)| stream.strong_count() > 0);
        }
        streams.push((Arc::downgrade(&lost), waker));
        lost
    }

    pub(super) fn end_all(&self) {
        for (lost, waker) in std::mem::take(&mut *lock(&self.streams)) {
            if let Some(lost) = lost.upgrade() {
                lost.store(true, Ordering::Release);
                waker.wake();
            }
        }
    }
}

//! Watch streams that are told now and then how far they are.

use rpc::StreamWaker;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Weak};

/// The streams that get progress notifications from time to time.
#[derive(Default)]
pub(crate) struct ProgressStreams {
    streams: Mutex<Vec<(Weak<AtomicBool>, StreamWaker)>>,
}

impl ProgressStreams {
    pub(super) fn add(&self, due: &Arc<AtomicBool>, waker: StreamWaker) {
        let mut streams = contain::lock(&self.streams);
        // Ended streams are dropped before the list grows, so the list has at most twice as many places as there are
        // open streams.
        if streams.len() == streams.capacity() {
            streams.retain(|(stream, _)| stream.strong_count() > 0);
        }
        streams.push((Arc::downgrade(due), waker));
    }

    /// Marks every stream and wakes it.
    pub(super) fn fire(&self) {
        let mut streams = contain::lock(&self.streams);
        streams.retain(|(stream, waker)| match stream.upgrade() {
            Some(due) => {
                due.store(true, Ordering::Relaxed);
                waker.wake();
                true
            }
            None => false,
        });
    }
}

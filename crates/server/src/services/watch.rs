//! `etcdserverpb.Watch`.

use super::reply::decode;
use crate::node::Node;
use api::etcdserverpb::{WatchRequest, watch_request::RequestUnion};
use api::limits;
use bytes::{Bytes, BytesMut};
use rpc::{Outbound, StreamCall, StreamHandler, StreamWaker};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;
use store::watch::{Hub, Sink, WatchStream};

/// One watch stream: requests in, responses out as the client takes them.
pub(super) struct Watch {
    node: Arc<Node>,
    stream: WatchStream,
    waker: StreamWaker,
    progress_due: Arc<AtomicBool>,
}

impl Watch {
    pub(super) fn new(node: &Arc<Node>, call: StreamCall) -> Watch {
        let waker = call.waker.clone();
        let stream = Hub::stream(&node.store, Arc::new(move || waker.wake()));
        let progress_due = Arc::new(AtomicBool::new(false));
        node.metrics.progress.add(&progress_due, call.waker.clone());
        Watch { node: node.clone(), stream, waker: call.waker, progress_due }
    }

    fn pump(&mut self, out: &mut Outbound<'_>) {
        if self.progress_due.swap(false, Ordering::Relaxed) {
            self.stream.periodic_progress();
        }
        let origin = self.node.origin();
        // The connection's other streams get their turn after so many bytes.
        let mut left = limits::TURN_BYTES_MAX;
        while left > 0 {
            if !out.has_room() {
                // The transport calls again when there is room.
                return;
            }
            let written = self.stream.poll(&origin, left, &mut Responses(out));
            if written == 0 {
                return;
            }
            left = left.saturating_sub(written);
        }
        self.waker.wake();
    }
}

/// Has responses written right where they leave.
struct Responses<'a, 'b>(&'a mut Outbound<'b>);

impl Sink for Responses<'_, '_> {
    fn response(&mut self, len: usize) -> &mut BytesMut {
        self.0.message(len)
    }
}

impl StreamHandler for Watch {
    fn message(&mut self, message: Bytes, out: &mut Outbound<'_>) {
        match decode::<WatchRequest>(message).map(|request| request.request_union) {
            Ok(Some(RequestUnion::CreateRequest(request))) => self.stream.create(request),
            Ok(Some(RequestUnion::CancelRequest(request))) => self.stream.cancel(request.watch_id),
            Ok(Some(RequestUnion::ProgressRequest(_))) => self.stream.progress(),
            Ok(None) => {}
            Err(status) => return out.finish(status),
        }
        self.pump(out);
    }

    /// A client that has nothing more to ask still gets its events.
    fn half_closed(&mut self, _out: &mut Outbound<'_>) {}

    fn ready(&mut self, out: &mut Outbound<'_>) {
        self.pump(out);
    }
}

/// The streams that are to be told about progress now and then.
#[derive(Default)]
pub(crate) struct Progress {
    streams: Mutex<Vec<(Weak<AtomicBool>, StreamWaker)>>,
}

impl Progress {
    fn add(&self, due: &Arc<AtomicBool>, waker: StreamWaker) {
        let mut streams = crate::node::lock(&self.streams);
        // The ended ones go before the list grows, so it stays as long as twice the open ones at most.
        if streams.len() == streams.capacity() {
            streams.retain(|(stream, _)| stream.strong_count() > 0);
        }
        streams.push((Arc::downgrade(due), waker));
    }

    /// Marks every stream and wakes it.
    fn fire(&self) {
        let mut streams = crate::node::lock(&self.streams);
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

/// Tells streams about progress until the member stops.
pub(crate) fn run_progress(node: &Node) {
    let pause = Duration::from_millis(50);
    let mut waited = Duration::ZERO;
    while !node.stopping.load(Ordering::Relaxed) {
        std::thread::sleep(pause);
        waited += pause;
        if waited >= node.config.watch_progress_interval {
            waited = Duration::ZERO;
            node.metrics.progress.fire();
        }
    }
}

//! HTTP requests over HTTP/2 whose bodies are handled in pieces.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Waker};

use api::Code;
use bytes::Bytes;
use http::Response;

use crate::grpc::body::Body;
use crate::grpc::pipe::{BodyReceiver, BodySender};
use crate::{Outbound, Status, StreamHandler, StreamWaker};

/// Where the maker of the response leaves it for the stream.
#[derive(Default)]
pub(crate) struct Slot(Mutex<Option<Response<Body>>>);

impl Slot {
    pub(crate) fn put(&self, response: Response<Body>) {
        *self.lock() = Some(response);
    }

    /// Nothing that holds it can panic half way.
    fn lock(&self) -> MutexGuard<'_, Option<Response<Body>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Slot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Slot")
    }
}

/// The stream's side of both bodies.
pub(crate) struct Exchange {
    /// Where the request goes, until it has ended.
    request: Option<BodySender>,
    /// What of it is not read yet, as of the last look.
    held_bytes: usize,
    slot: Option<Arc<Slot>>,
    response: Option<BodyReceiver>,
    /// Has this called again.
    waker: Waker,
}

impl Exchange {
    /// For a request that comes in pieces.
    pub(crate) fn asking(request: BodySender, slot: Arc<Slot>, waker: StreamWaker) -> Exchange {
        let waker = Waker::from(Arc::new(waker));
        Exchange { request: Some(request), held_bytes: 0, slot: Some(slot), response: None, waker }
    }

    /// For a response that goes in pieces.
    pub(crate) fn answering(response: BodyReceiver, waker: StreamWaker) -> Exchange {
        let waker = Waker::from(Arc::new(waker));
        Exchange { request: None, held_bytes: 0, slot: None, response: Some(response), waker }
    }

    /// Looks at what is not read yet.
    fn weigh(&mut self) {
        self.held_bytes = self.request.as_ref().map_or(0, |request| request.held_bytes(&self.waker));
    }

    fn pump(&mut self, out: &mut Outbound<'_>) {
        let Some(response) = &mut self.response else { return };
        while out.has_room() {
            let status = match response.poll_next(&mut Context::from_waker(&self.waker)) {
                std::task::Poll::Pending => return,
                std::task::Poll::Ready(Some(Ok(chunk))) => {
                    out.send(chunk);
                    continue;
                }
                std::task::Poll::Ready(None) => Status::OK,
                std::task::Poll::Ready(Some(Err(gone))) => Status::new(Code::Internal, gone.to_string()),
            };
            return out.finish(status);
        }
    }
}

impl StreamHandler for Exchange {
    fn message(&mut self, message: Bytes, _out: &mut Outbound<'_>) {
        if let Some(request) = &mut self.request {
            // Bounded by the stream's window, which does not open before this was read.
            request.put(message);
        }
        self.weigh();
    }

    fn half_closed(&mut self, _out: &mut Outbound<'_>) {
        if let Some(request) = &mut self.request {
            request.end(false);
        }
    }

    fn ready(&mut self, out: &mut Outbound<'_>) {
        self.weigh();
        if let Some(response) = self.slot.as_ref().and_then(|slot| slot.lock().take()) {
            let (head, body) = response.into_parts();
            out.begin(head.status, head.headers);
            match body {
                Body::Whole(whole) => {
                    out.send(whole);
                    return out.finish(Status::OK);
                }
                Body::Piped(response) => self.response = Some(response),
            }
        }
        self.pump(out);
    }

    fn held_bytes(&self) -> usize {
        self.held_bytes
    }
}

//! A client's watch stream.

use api::Code;
use api::Message as _;
use api::etcdserverpb::WatchRequest;
use api::etcdserverpb::watch_request::RequestUnion;
use budget::Claim;
use bytes::Bytes;
use parking_lot::Mutex;
use rpc::{Outbound, Status, StreamHandler, StreamWaker};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::sync::mpsc::UnboundedSender;

use super::feed::Live;
use super::thread::Command;
use super::{ClientId, Telling, encode};
use crate::namespace::Namespace;

/// Bytes that may wait for a client before its watches are taken off their feeds.
const WAITING_BYTES_MAX: usize = 256 * 1024;
/// Bytes that may wait for it while events take too much memory in all.
const CROWDED_BYTES_MAX: usize = 16 * 1024;
/// Bytes of events in memory that are too much.
const LIVE_BYTES_MAX: usize = 128 << 20;
/// What a request takes at least until it is handled.
const REQUEST_BYTES_MIN: usize = 256;

/// What a client is to be told.
pub(crate) struct Mailbox {
    state: Mutex<State>,
    waker: StreamWaker,
    /// All events in memory.
    live: Live,
    /// Bytes of its requests that are not handled yet.
    pub(crate) asked_bytes: AtomicUsize,
}

#[derive(Default)]
struct State {
    tellings: VecDeque<Telling>,
    bytes: usize,
    is_stalled: bool,
    end: Option<Status>,
}

impl Mailbox {
    pub(crate) fn new(waker: StreamWaker, live: Live) -> Mailbox {
        Mailbox { state: Mutex::default(), waker, live, asked_bytes: AtomicUsize::new(0) }
    }

    /// Leaves something for the client. True as long as that is more than it may have waiting, not just at first: the client may take it,
    /// and resume its watches, before who is told of the first time has stalled them.
    pub(crate) fn push(&self, telling: Telling) -> bool {
        let mut state = self.state.lock();
        let is_first = state.tellings.is_empty();
        state.bytes = state.bytes.saturating_add(telling.bytes());
        state.tellings.push_back(telling);
        let is_crowded = self.live.bytes() > LIVE_BYTES_MAX;
        let stalls = state.bytes > if is_crowded { CROWDED_BYTES_MAX } else { WAITING_BYTES_MAX };
        state.is_stalled |= stalls;
        drop(state);
        if is_first {
            self.waker.wake();
        }
        stalls
    }

    /// Ends the client's stream after what waits.
    pub(crate) fn end(&self, status: Status) {
        self.state.lock().end = Some(status);
        self.waker.wake();
    }

    /// A request was handled.
    pub(crate) fn handled(&self, bytes: usize) {
        self.asked_bytes.fetch_sub(bytes, Ordering::Relaxed);
        self.waker.wake();
    }
}

/// The client's side of it.
pub(crate) struct Watching {
    pub(crate) id: ClientId,
    pub(crate) mailbox: Arc<Mailbox>,
    pub(crate) commands: UnboundedSender<Command>,
    pub(crate) namespace: Namespace,
    /// For requests that are not handled yet.
    pub(crate) claim: Claim,
}

impl Watching {
    fn pump(&self, out: &mut Outbound<'_>) {
        while out.has_room() {
            let mut state = self.mailbox.state.lock();
            let Some(telling) = state.tellings.pop_front() else {
                if let Some(status) = state.end.take() {
                    out.finish(status);
                }
                return;
            };
            state.bytes = state.bytes.saturating_sub(telling.bytes());
            // Something is left, so that a client at its limit does not go to and fro.
            let resumes = state.is_stalled && state.bytes <= CROWDED_BYTES_MAX / 4;
            state.is_stalled &= !resumes;
            drop(state);
            encode(telling).into_iter().for_each(|message| out.send(message));
            if resumes {
                self.command(Command::Resume(self.id));
            }
        }
    }

    /// The thread of watches never ends before the process.
    fn command(&self, command: Command) {
        let _ = self.commands.send(command);
    }
}

impl StreamHandler for Watching {
    fn message(&mut self, message: Bytes, out: &mut Outbound<'_>) {
        let bytes = message.len().max(REQUEST_BYTES_MIN);
        let held = self.held_bytes().saturating_add(bytes);
        if held > api::limits::BUDGET_FREE_BYTES && !self.claim.resize(held as u64) {
            return out.finish(api::Error::TooManyRequests.into());
        }
        let request = match WatchRequest::decode(message) {
            Ok(WatchRequest { request_union: Some(request) }) => request,
            Ok(_) => return,
            Err(error) => {
                let text = format!("grpc: error unmarshalling request: {error}");
                return out.finish(Status::new(Code::Internal, text));
            }
        };
        let request = match request {
            RequestUnion::CreateRequest(mut request) => {
                self.namespace.watch(&mut request);
                RequestUnion::CreateRequest(request)
            }
            other => other,
        };
        self.mailbox.asked_bytes.fetch_add(bytes, Ordering::Relaxed);
        self.command(Command::Ask(self.id, request, bytes));
    }

    /// A client that sends no more requests still gets its events.
    fn half_closed(&mut self, _out: &mut Outbound<'_>) {}

    fn ready(&mut self, out: &mut Outbound<'_>) {
        let held = self.held_bytes() as u64;
        if self.claim.bytes() > held {
            // Less is always granted.
            self.claim.resize(held);
        }
        self.pump(out);
    }

    fn held_bytes(&self) -> usize {
        self.mailbox.asked_bytes.load(Ordering::Relaxed)
    }
}

impl Drop for Watching {
    fn drop(&mut self) {
        self.command(Command::Close(self.id));
    }
}

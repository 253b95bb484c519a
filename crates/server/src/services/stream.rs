//! `etcdserverpb.KV/RangeStream`: a range in chunks, read as the client takes them.

use super::fair::Turns;
use super::kv::PairsSource;
use super::reply::{decode, unanswered};
use super::rooms::{Kept, Rooms};
use crate::auth::rules::Keys;
use crate::auth::{Asking, Permitted};
use crate::node::Node;
use api::etcdserverpb::{RangeRequest, RangeResponse};
use api::{Message, check, limits, varint};
use budget::Claim;
use bytes::{Bytes, BytesMut};
use contain::lock;
use rpc::{Outbound, Reply, Status, StreamCall, StreamHandler, StreamWaker};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, Weak};
use store::watch::Room;

/// The next step of the stream's thread, set by other threads.
enum Step {
    /// The read index is complete: the call begins.
    Begin(Box<dyn FnOnce() + Send>),
    /// The call has begun, on this thread or on a slow one.
    Begun(Result<Box<Chunks>, Status>),
}

/// The chunks that are being read, and the permitted request.
struct Chunks {
    stream: store::RangeStream,
    request: Permitted<Keys, RangeRequest>,
}

/// One RangeStream call.
pub(super) struct RangeStream {
    node: Arc<Node>,
    asking: Asking<Keys>,
    waker: StreamWaker,
    step: Arc<Mutex<Option<Step>>>,
    chunks: Option<Box<Chunks>>,
    /// A chunk for whose places there was no room.
    late: Option<store::RangeChunk>,
    rooms: Rooms,
    /// The request, which is kept as long as there are chunks to come.
    kept: Option<Arc<Claim>>,
    /// With `--client-share`.
    turns: Option<Turns>,
}

impl RangeStream {
    pub(super) fn new(node: &Arc<Node>, call: StreamCall, asking: Asking<Keys>) -> RangeStream {
        let turns = Turns::of(node, &call);
        let rooms = Rooms::new(node, call.peer.address, call.waker.clone());
        let (step, chunks, late) = (Arc::default(), None, None);
        RangeStream { node: node.clone(), asking, waker: call.waker, step, chunks, late, rooms, kept: None, turns }
    }

    fn start(&mut self, message: Bytes) -> Result<(), Status> {
        let asking = self.asking.clone().holding(message.len());
        self.kept = asking.weight().claim(&self.node.budget)?.map(Arc::new);
        let request: RangeRequest = decode(message)?;
        check::range(&request)?;
        let (serializable, client) = (request.serializable, asking.weight().client());
        // The reference is weak: once the stream has ended, no thread takes the step, and the step must not keep itself
        // alive.
        let (node, step, waker) = (self.node.clone(), Arc::downgrade(&self.step), self.waker.clone());
        let (next, resumed) = (step.clone(), waker.clone());
        let leave = |step: &Weak<Mutex<Option<Step>>>, next: Step| {
            if let Some(step) = step.upgrade() {
                *lock(&step) = Some(next);
            }
        };
        let kept = self.kept.clone();
        let begin = move |decided: Result<Permitted<Keys, RangeRequest>, api::Error>| {
            // At an old revision the keys are counted one by one.
            let heavy = decided.as_ref().is_ok_and(|request| node.store.is_heavy(request));
            let (own, left, wake, wanted) = (node.clone(), step.clone(), waker.clone(), waker.clone());
            let work = move || {
                // A job that nobody waits for any more has the request until its turn comes.
                let _kept = kept;
                let chunks = decided.map_err(Status::from).and_then(|request| {
                    let stream = own.store.range_stream_while(request.clone(), &|| !wake.is_canceled());
                    Ok(Box::new(Chunks { stream: stream.map_err(|unread| unanswered(&own, unread))?, request }))
                });
                leave(&left, Step::Begun(chunks));
                wake.wake();
            };
            if !heavy {
                work();
            } else if !node.slow.try_run_while(client, move || !wanted.is_canceled(), work) {
                leave(&step, Step::Begun(Err(api::Error::TooManyRequests.into())));
                waker.wake();
            }
        };
        if serializable {
            asking.decide_once_known(&self.node, request, begin);
        } else {
            let own = self.node.clone();
            // The permission check and the read run on this stream's thread, so that consensus is not delayed.
            self.node.linearize(asking.weight(), move |allowed| {
                let begin = Box::new(move || begin(allowed.and_then(|()| asking.decide(&own, request))));
                leave(&next, Step::Begin(begin));
                resumed.wake();
            });
        }
        Ok(())
    }

    /// Gives back memory that is not needed. That for a late chunk stays, also while the chunk waits for its turn.
    fn settle(&mut self) {
        if self.late.is_none() {
            self.rooms.settle(false);
        }
    }

    fn take_step(&self) -> Option<Step> {
        lock(&self.step).take()
    }

    fn pump(&mut self, out: &mut Outbound<'_>) -> Result<(), Status> {
        while let Some(step) = self.take_step() {
            match step {
                Step::Begin(begin) => begin(),
                Step::Begun(begun) => self.chunks = Some(begun?),
            }
        }
        // One chunk a turn: it may be as large as a request.
        let Some(chunks) = &mut self.chunks else { return Ok(()) };
        if !out.has_room() {
            return Ok(());
        }
        let turn = match &self.turns {
            None => None,
            Some(turns) => match turns.take(&self.node, &self.waker)? {
                None => return Ok(()),
                turn => turn,
            },
        };
        let (late, rooms) = (&mut self.late, &mut self.rooms);
        let mut make = || -> Result<Made, Status> {
            let chunk = match late.take() {
                Some(chunk) => chunk,
                None => match chunks.stream.next() {
                    Some(chunk) => chunk?,
                    None => return Ok(Made::End),
                },
            };
            if chunk.kvs.is_empty() && chunk.end.is_none() {
                return Ok(Made::Nothing);
            }
            chunks.request.decide_anew(&self.node.store)?;
            let held = chunk.kvs.held_bytes();
            let room = if held > limits::BUDGET_FREE_BYTES { rooms.ask(held, true) } else { None };
            if held > limits::BUDGET_FREE_BYTES && room.is_none() {
                *late = Some(chunk);
                return Ok(Made::Late);
            }
            Ok(Made::Chunk(encode(&self.node, chunk, room)))
        };
        let made = match (&self.turns, turn) {
            (Some(turns), Some(turn)) => turns.count(turn, make, |made| match made {
                Ok(Made::Chunk(reply)) => reply.len(),
                _ => 0,
            }),
            _ => make(),
        };
        match made? {
            Made::Chunk(reply) => {
                out.send_reply(reply);
                self.waker.wake();
            }
            Made::Nothing => self.waker.wake(),
            Made::Late => {}
            Made::End => out.finish(Status::OK),
        }
        Ok(())
    }
}

/// What a turn of a stream has made.
enum Made {
    Chunk(Reply),
    /// Nothing yet: there are many keys without a pair.
    Nothing,
    /// Nothing: there is no room. The stream is woken once there is.
    Late,
    End,
}

/// A `RangeStreamResponse` around one `RangeResponse`. Only the last chunk has the fields `header`, `count` and
/// `more`. The pairs of a long one are copied as the client takes them, large ones not at all; `room` is for their places.
fn encode(node: &Node, mut chunk: store::RangeChunk, room: Option<Arc<dyn Room>>) -> Reply {
    let rest = match chunk.end {
        Some(end) => {
            RangeResponse { header: Some(node.header(end.revision)), more: end.more, count: end.count, kvs: Vec::new() }
        }
        None => RangeResponse::default(),
    };
    let len = chunk.kvs.encoded_len().saturating_add(rest.encoded_len());
    let is_long = len > limits::TURN_BYTES_MAX;
    let mut message = BytesMut::with_capacity(if is_long { 0 } else { len.saturating_add(8) });
    varint::put_delimited(&mut message, 1, len);
    if is_long {
        let len = message.len().saturating_add(len);
        let tail = BytesMut::from(&rest.encode_to_vec()[..]);
        let source = PairsSource::new(message, VecDeque::from([(chunk.kvs, tail)]), None);
        return match room {
            None => Reply::Parts { len, source },
            Some(room) => Reply::Parts { len, source: Box::new(Kept { source, _room: room }) },
        };
    }
    while !chunk.kvs.encode_next(&mut message, usize::MAX) {}
    rest.encode_raw(&mut message);
    Reply::Whole(message.freeze())
}

impl StreamHandler for RangeStream {
    fn message(&mut self, message: Bytes, out: &mut Outbound<'_>) {
        match self.start(message).and_then(|()| self.pump(out)) {
            Ok(()) => self.settle(),
            Err(status) => out.finish(status),
        }
    }

    fn half_closed(&mut self, _out: &mut Outbound<'_>) {}

    fn ready(&mut self, out: &mut Outbound<'_>) {
        match self.pump(out) {
            Ok(()) => self.settle(),
            Err(status) => out.finish(status),
        }
    }
}

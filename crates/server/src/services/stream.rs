//! `etcdserverpb.KV/RangeStream`: a range in chunks, read as the client takes them.

use super::reply::{decode, put_varint, unanswered};
use crate::auth::{Identity, Pass, identify};
use crate::node::Node;
use api::etcdserverpb::{RangeRequest, RangeResponse};
use api::{Message, check};
use bytes::{BufMut, Bytes, BytesMut};
use contain::lock;
use rpc::{Outbound, Status, StreamCall, StreamHandler, StreamWaker};
use std::sync::{Arc, Mutex};
use store::Ask;

/// Where the beginning of the stream is left by whoever made it: the thread that was told that it may read, or a slow one.
type Begun = Arc<Mutex<Option<Result<Chunks, Status>>>>;

/// What is being read, for whom.
struct Chunks {
    stream: store::RangeStream,
    request: RangeRequest,
    pass: Pass,
}

/// One RangeStream call.
pub(super) struct RangeStream {
    node: Arc<Node>,
    identity: Identity,
    waker: StreamWaker,
    begun: Begun,
    chunks: Option<Chunks>,
}

impl RangeStream {
    pub(super) fn new(node: &Arc<Node>, call: StreamCall) -> RangeStream {
        let identity = Identity::of_stream(&call);
        RangeStream { node: node.clone(), identity, waker: call.waker, begun: Begun::default(), chunks: None }
    }

    fn start(&mut self, message: Bytes) -> Result<(), Status> {
        let identity = self.identity.clone().holding(message.len());
        let request: RangeRequest = decode(message)?;
        check::range(&request)?;
        let serializable = request.serializable;
        let (node, begun, waker) = (self.node.clone(), self.begun.clone(), self.waker.clone());
        let begin = move |pass: Result<Pass, api::Error>| {
            let allowed = pass.and_then(|pass| pass.decide(Ask::Range(&request), &node.store).map(|()| pass));
            // At an old revision the keys are counted one by one.
            let heavy = allowed.is_ok() && node.store.is_heavy(&request);
            let (own, left, wake, wanted) = (node.clone(), begun.clone(), waker.clone(), waker.clone());
            let work = move || {
                let chunks = allowed.map_err(Status::from).and_then(|pass| {
                    let stream = own.store.range_stream_while(request.clone(), &|| !wake.is_canceled());
                    Ok(Chunks { stream: stream.map_err(|unread| unanswered(&own, unread))?, request, pass })
                });
                *lock(&left) = Some(chunks);
                wake.wake();
            };
            if !heavy {
                work();
            } else if !node.slow.try_run_while(move || !wanted.is_canceled(), work) {
                *lock(&begun) = Some(Err(api::Error::TooManyRequests.into()));
                waker.wake();
            }
        };
        if serializable {
            identify(&self.node, identity, |_, pass| begin(pass));
        } else {
            let own = self.node.clone();
            self.node
                .linearize(identity.weight(), move |allowed| begin(allowed.and_then(|()| own.pass_now(&identity))));
        }
        Ok(())
    }

    /// A `RangeStreamResponse` around one `RangeResponse`: header, count and more come with the last chunk.
    fn encode(&self, mut chunk: store::RangeChunk) -> Bytes {
        let rest = match chunk.end {
            Some(end) => RangeResponse {
                header: Some(self.node.header(end.revision)),
                more: end.more,
                count: end.count,
                kvs: Vec::new(),
            },
            None => RangeResponse::default(),
        };
        let len = chunk.kvs.encoded_len().saturating_add(rest.encoded_len());
        let mut message = BytesMut::with_capacity(len.saturating_add(8));
        message.put_u8(0x0a);
        put_varint(len as u64, &mut message);
        while !chunk.kvs.encode_next(&mut message, usize::MAX) {}
        rest.encode_raw(&mut message);
        message.freeze()
    }

    fn pump(&mut self, out: &mut Outbound<'_>) -> Result<(), Status> {
        if let Some(begun) = lock(&self.begun).take() {
            self.chunks = Some(begun?);
        }
        // One chunk a turn: it may be as large as a request.
        let Some(chunks) = &mut self.chunks else { return Ok(()) };
        if !out.has_room() {
            return Ok(());
        }
        match chunks.stream.next() {
            Some(chunk) => {
                chunks.pass.decide_anew(Ask::Range(&chunks.request), &self.node.store)?;
                out.send(self.encode(chunk?));
                self.waker.wake();
            }
            None => out.finish(Status::OK),
        }
        Ok(())
    }
}

impl StreamHandler for RangeStream {
    fn message(&mut self, message: Bytes, out: &mut Outbound<'_>) {
        match self.start(message).and_then(|()| self.pump(out)) {
            Ok(()) => {}
            Err(status) => out.finish(status),
        }
    }

    fn half_closed(&mut self, _out: &mut Outbound<'_>) {}

    fn ready(&mut self, out: &mut Outbound<'_>) {
        if let Err(status) = self.pump(out) {
            out.finish(status);
        }
    }
}

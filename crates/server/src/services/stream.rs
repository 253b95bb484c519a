//! `etcdserverpb.KV/RangeStream`: a range in chunks, read as the client takes them.

use super::reply::{decode, put_varint};
use crate::node::{Node, lock};
use api::etcdserverpb::{RangeRequest, RangeResponse};
use api::{Message, check};
use bytes::{BufMut, Bytes, BytesMut};
use rpc::{Outbound, Status, StreamCall, StreamHandler, StreamWaker};
use std::sync::{Arc, Mutex};

/// What the read index answers into.
type Allowed = Arc<Mutex<Option<Result<(), api::Error>>>>;

/// One RangeStream call.
pub(super) struct RangeStream {
    node: Arc<Node>,
    waker: StreamWaker,
    request: Option<RangeRequest>,
    allowed: Allowed,
    chunks: Option<store::RangeStream>,
}

impl RangeStream {
    pub(super) fn new(node: &Arc<Node>, call: StreamCall) -> RangeStream {
        RangeStream { node: node.clone(), waker: call.waker, request: None, allowed: Allowed::default(), chunks: None }
    }

    fn start(&mut self, message: Bytes) -> Result<(), Status> {
        let request: RangeRequest = decode(message)?;
        check::range(&request)?;
        let serializable = request.serializable;
        self.request = Some(request);
        if serializable {
            *lock(&self.allowed) = Some(Ok(()));
        } else {
            let (allowed, waker) = (self.allowed.clone(), self.waker.clone());
            self.node.linearize(move |result| {
                *lock(&allowed) = Some(result);
                waker.wake();
            });
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
        let len = chunk.kvs.encoded_len() + rest.encoded_len();
        let mut message = BytesMut::with_capacity(len + 8);
        message.put_u8(0x0a);
        put_varint(len as u64, &mut message);
        while !chunk.kvs.encode_next(&mut message, usize::MAX) {}
        rest.encode_raw(&mut message);
        message.freeze()
    }

    fn pump(&mut self, out: &mut Outbound<'_>) -> Result<(), Status> {
        if let Some(allowed) = lock(&self.allowed).take() {
            allowed?;
            let request = self.request.take().unwrap_or_default();
            self.chunks = Some(self.node.store.range_stream(request)?);
        }
        // One chunk a turn: it may be as large as a request.
        let Some(chunks) = &mut self.chunks else { return Ok(()) };
        if !out.has_room() {
            return Ok(());
        }
        match chunks.next() {
            Some(chunk) => {
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

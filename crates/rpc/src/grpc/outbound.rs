//! The sending side of a stream as its handler sees it.

use std::fmt;

use api::Code;
use bytes::{Bytes, BytesMut};
use http::{HeaderMap, StatusCode};

use crate::http2::outflow::Outflow;
use crate::{Reply, Status};

/// Where the handler of a stream puts its messages.
pub struct Outbound<'a> {
    flow: &'a mut Outflow,
    messages: u64,
    bytes: usize,
    /// Takes messages that are sent after the end.
    void: BytesMut,
}

impl<'a> Outbound<'a> {
    pub(crate) fn new(flow: &'a mut Outflow) -> Outbound<'a> {
        Outbound { flow, messages: 0, bytes: 0, void: BytesMut::new() }
    }

    /// Messages and bytes sent through this.
    pub(crate) fn counts(&self) -> (u64, usize) {
        (self.messages, self.bytes)
    }

    /// Whether less than [`limits::STREAM_SEND_BYTES_MAX`](api::limits::STREAM_SEND_BYTES_MAX) is queued, and not much more than
    /// the client's window for the stream takes, and the streams of the connection together hold less than theirs. After it was false,
    /// [`StreamHandler::ready`](crate::StreamHandler::ready) is called when there is room again.
    pub fn has_room(&self) -> bool {
        self.flow.has_room()
    }

    /// Bytes that are queued and have not left.
    pub fn left_bytes(&self) -> usize {
        self.flow.left()
    }

    /// Queues a message. Without regard to [`Outbound::has_room`]: a handler that ignores it is not bounded.
    pub fn send(&mut self, message: Bytes) {
        let len = message.len();
        if self.flow.push(message) {
            self.messages = self.messages.saturating_add(1);
            self.bytes = self.bytes.saturating_add(len);
        }
    }

    /// Queues a message as a reply. Of one in parts, what is made of it at once counts among what is queued.
    pub fn send_reply(&mut self, reply: Reply) {
        match reply {
            Reply::Whole(message) => self.send(message),
            Reply::Parts { len, source } => {
                if self.flow.push_parts(len, source) {
                    self.messages = self.messages.saturating_add(1);
                    self.bytes = self.bytes.saturating_add(len);
                }
            }
        }
    }

    /// Queues a message of `len` bytes, which are to be appended to what this returns, exactly so many. Messages that are small lie
    /// together and leave together. One larger than [`limits::SEND_BYTES_MAX`](api::limits::SEND_BYTES_MAX) ends the stream.
    pub fn message(&mut self, len: usize) -> &mut BytesMut {
        let Some(block) = self.flow.message(len) else {
            self.void.clear();
            return &mut self.void;
        };
        self.messages = self.messages.saturating_add(1);
        self.bytes = self.bytes.saturating_add(len);
        block
    }

    /// Begins an HTTP response, whose body is sent like messages.
    pub(crate) fn begin(&mut self, status: StatusCode, headers: HeaderMap) {
        self.flow.begin(status, headers);
    }

    /// The code that the stream ends with after what is queued, once that is known.
    pub fn end_code(&self) -> Option<Code> {
        self.flow.end_code()
    }

    /// Ends the stream after what is queued; the handler is dropped afterwards. The first status counts.
    pub fn finish(&mut self, status: Status) {
        self.flow.finish(status);
    }
}

impl fmt::Debug for Outbound<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Outbound").field("has_room", &self.has_room()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Chunks;
    use crate::http2::outflow::Opening;

    #[test]
    fn what_is_sent_in_blocks_comes_out_as_messages() {
        let mut flow = Outflow::new(Opening::Sent, i64::MAX);
        let sizes = [0, 1, 300, 16_384, 2_048, 7, 8_192, 8_187, 3];
        let all: Vec<Bytes> = sizes.iter().enumerate().map(|(at, size)| vec![at as u8; *size].into()).collect();
        for (at, message) in all.iter().enumerate() {
            let mut out = Outbound::new(&mut flow);
            match at % 3 {
                0 => out.send(message.clone()),
                1 => {
                    let chunks: Chunks = message.chunks(1_000).map(Bytes::copy_from_slice).collect();
                    out.send_reply(chunks.into_reply());
                }
                _ => out.message(message.len()).extend_from_slice(message),
            }
            assert_eq!(out.counts(), (1, message.len()));
        }
        let popped: Vec<Bytes> = std::iter::from_fn(|| flow.pop()?.into_whole()).collect();
        assert_eq!(popped, all);
        assert_eq!(flow.held_bytes(), 0);
    }

    #[test]
    fn a_message_larger_than_grpc_sends_ends_the_stream() {
        let mut flow = Outflow::new(Opening::Sent, i64::MAX);
        let mut out = Outbound::new(&mut flow);
        out.message(3).extend_from_slice(b"abc");
        out.message(api::limits::SEND_BYTES_MAX + 1).extend_from_slice(b"lost");
        out.message(3).extend_from_slice(b"def");
        assert_eq!(out.counts(), (1, 3));
        assert_eq!(flow.pop().and_then(Reply::into_whole), Some("abc".into()));
        assert!(flow.pop().is_none());
        assert_eq!(flow.take_status().map(|status| status.code), Some(api::Code::ResourceExhausted));
    }

    #[test]
    fn nothing_is_sent_behind_the_end() {
        let mut flow = Outflow::new(Opening::Sent, i64::MAX);
        flow.finish(Status::OK);
        let mut out = Outbound::new(&mut flow);
        out.message(3).extend_from_slice(b"abc");
        out.send(Bytes::from_static(b"def"));
        assert_eq!(out.counts(), (0, 0));
        assert!(flow.pop().is_none());
    }
}

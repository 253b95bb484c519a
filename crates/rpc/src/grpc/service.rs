//! The service of a server: the method table and the two shapes of a call.

use std::fmt;
use std::time::{Duration, Instant};

use bytes::Bytes;

use crate::{Address, HttpResponder, Metadata, Outbound, Peer, RequestBody, Responder, Status, StreamWaker};

/// How many messages each side of a method sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// One request, one reply.
    Unary,
    /// One request, many replies.
    ServerStream,
    /// Many requests, one reply.
    ClientStream,
    /// Many requests, many replies.
    Bidi,
}

/// One row of the method table.
#[derive(Clone, Copy, Debug)]
pub struct Method {
    /// The request path, `/package.Service/Method`.
    pub path: &'static str,
    /// How many messages each side sends.
    pub kind: Kind,
}

/// A unary call whose message is complete.
#[derive(Debug)]
pub struct Call {
    /// The request message, decompressed, without its length prefix.
    pub message: Bytes,
    /// The request headers.
    pub metadata: Metadata,
    /// When the client stops waiting, from `grpc-timeout`.
    pub deadline: Option<Instant>,
    /// The other end of the connection.
    pub peer: Peer,
    /// Nothing else is under way on the connection's thread: the service may take a moment on it, if handing the call to another
    /// thread would take longer.
    pub is_alone: bool,
}

/// A streaming call, given out when its headers are here.
#[derive(Debug)]
pub struct StreamCall {
    /// The request headers.
    pub metadata: Metadata,
    /// When the client stops waiting, from `grpc-timeout`. The engine ends the stream by itself then.
    pub deadline: Option<Instant>,
    /// The other end of the connection.
    pub peer: Peer,
    /// Has [`StreamHandler::ready`] called, from any thread.
    pub waker: StreamWaker,
}

/// What a server serves. Every method is called on the thread of the connection and must not block.
pub trait Service: Send + Sync + 'static {
    /// The table of methods; `method` in the calls below is an index into it.
    fn methods(&self) -> &'static [Method];

    /// Answers a [`Kind::Unary`] call, now or later.
    fn unary(&self, method: usize, call: Call, responder: Responder);

    /// Begins a call of any other kind.
    fn stream(&self, method: usize, call: StreamCall) -> Result<Box<dyn StreamHandler>, Status>;

    /// Answers an HTTP/1.1 request, or an HTTP/2 request that is not gRPC.
    fn http(&self, request: http::Request<Bytes>, responder: HttpResponder);

    /// Whether the body of this request is to be handed over as it comes, by [`Service::http_in_pieces`], rather than whole.
    fn takes_pieces(&self, _head: &http::request::Parts) -> bool {
        false
    }

    /// Answers an HTTP request of which only the head is here. Also called for requests that would like to leave HTTP: those have
    /// an [`Upgrade`](crate::Upgrade) among their extensions.
    fn http_in_pieces(&self, request: http::Request<RequestBody>, responder: HttpResponder) {
        drop((request, responder));
    }

    /// So many answers that other threads have given were handed to the system, as far as clients take them; `took` has passed since the first
    /// of them was given. Called on the thread of the connections, for each batch.
    fn sent(&self, _answers: u64, _took: Duration) {}

    /// Whether calls wait for memory that the answers to `client` may take, a call of another connection at least. Then the connection of
    /// `client` is closed if it lets nothing through of what it has asked for.
    fn is_short_of_memory(&self, _client: Address) -> bool {
        false
    }

    /// A connection could not be taken, and why. Called on the listener's thread, for each.
    fn turned_away(&self, _why: &dyn fmt::Display) {}
}

/// The server's side of one stream. Driven by events, all on the thread of the connection; dropped when the stream ends, however
/// that comes about (finished, reset by the client, past its deadline, connection lost).
pub trait StreamHandler: Send {
    /// One message has come. Not called while `out` has no room: the client is held back by flow control instead.
    fn message(&mut self, message: Bytes, out: &mut Outbound<'_>);

    /// The client will send nothing more.
    fn half_closed(&mut self, out: &mut Outbound<'_>);

    /// The waker was used, or there is room again after [`Outbound::has_room`] was false.
    fn ready(&mut self, out: &mut Outbound<'_>);

    /// Whether it owes nothing, and answers the next message at once and shortly. Then it is given one although `out` has no room, if nothing
    /// waits in that and others hold too much: what must be answered in time, such as a keep-alive, does not wait for them.
    fn answers_in_a_crowd(&self) -> bool {
        false
    }

    /// Bytes of messages that are taken but still held, as of the last call of this handler. They count as if they were not taken.
    fn held_bytes(&self) -> usize {
        0
    }
}

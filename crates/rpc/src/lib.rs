//! gRPC and HTTP on one port: HTTP/2 by its preface, anything else as HTTP/1.1.
//!
//! The path of a request through the folders and files:
//!
//! - `runtime` has the threads and sockets: `server` starts the threads. `listener` accepts a connection and hands it to a `thread`, which
//!   owns it until it closes; for TLS `handshake` comes first. `greeting` recognizes the protocol.
//! - `http2`: `connection` drives HTTP/2 in turns. `dispatch` handles one [`frame`] after the other; `receiver` and `head` make a request
//!   of a header block; `intake` turns it into a call of the [`Service`]. `http1` does the same for HTTP/1.1.
//! - `grpc` has what a service works with: its table of methods, messages, metadata, replies and status.
//! - `http2/call` holds the streams that are not answered at once: each is a `stream` with its `input`, gets a `turn` when something
//!   happened to it, and ends through `finish`.
//! - `http2/outflow` sends replies as the peer's window opens, through `sender` and `output`. Answers from other threads arrive through
//!   `runtime/mailbox`.
//!
//! [`LocalCall`] is a call without a connection, for requests that come another way to a request thread.
//!
//! [`client`] is the other end: calls of a gRPC server, over the same frames; [`dns`] finds servers by their service.
//!
//! This crate knows nothing of etcd. A [`Service`] has a table of methods and answers calls, at once or later and from any thread;
//! nothing is spawned per request.

#![deny(clippy::indexing_slicing, clippy::string_slice, clippy::arithmetic_side_effects, clippy::expect_used)]
#![cfg_attr(
    test,
    allow(clippy::indexing_slicing, clippy::string_slice, clippy::arithmetic_side_effects, clippy::expect_used)
)]

pub mod client;
pub mod dns;
mod grpc;
mod http1;
mod http2;
mod later;
mod limit;
mod mistake;
mod options;
#[cfg(feature = "planted-panics")]
mod planted;
mod runtime;
#[cfg(all(test, feature = "schedules"))]
#[allow(clippy::unwrap_used)]
mod schedule_tests;
mod stats;
mod sync;

pub use grpc::timeout::parse as parse_timeout;
pub use grpc::{
    BodySender, Call, Chunks, Gone, HttpResponder, Kind, LocalCall, LocalReply, LocalStream, Metadata, Method,
    Outbound, Reply, RequestBody, Responder, Service, Source, Status, StreamCall, StreamHandler,
};
pub use http1::{Upgrade, Upgraded};
#[cfg(feature = "driver")]
pub use http2::Driver;
pub use http2::{Pace, RateLimits, frame, hpack};
pub use limit::Limit;
pub use options::Options;
pub use runtime::{
    Acceptor, Address, Crowd, Gatekeeper, HandshakeCounts, Held, Home, Listener, Origin, Peer, Refusal, Server, Serves,
    StreamWaker,
};
pub use stats::{MethodCounts, MethodTimes, Stats, TIME_BOUNDS_MS};

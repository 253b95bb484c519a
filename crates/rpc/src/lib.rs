//! gRPC and HTTP on one port: HTTP/2 by its preface, anything else as HTTP/1.1.
//!
//! The path of a request through the files:
//!
//! - [`server`] starts the threads. `listener` accepts a connection and hands it to a `thread`, which owns it until it closes; for TLS
//!   `handshake` comes first. `greeting` recognizes the protocol.
//! - `connection` drives HTTP/2 in turns. `dispatch` handles one [`frame`] after the other; `receiver` and `head` make a request of a
//!   header block; `intake` turns it into a call of the [`Service`].
//! - `call` holds the streams that are not answered at once: each is a `stream` with its `input`, gets a `turn` when something happened
//!   to it, and ends through `finish`.
//! - `outflow` sends replies as the peer's window opens, through `sender` and `output`. Answers from other threads arrive through
//!   `mailbox`.
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

mod arrival;
mod body;
mod body_time;
mod byte_stream;
mod call;
pub mod client;
mod connection;
mod crowd;
mod deadline;
mod decoder;
mod dispatch;
pub mod dns;
#[cfg(feature = "driver")]
mod driver;
mod due;
mod encoding;
mod exchange;
mod finish;
pub mod frame;
mod gathering;
mod greeting;
mod handshake;
mod handshake_counts;
mod head;
mod held;
pub mod hpack;
mod http1;
mod ids;
mod input;
mod intake;
mod keepalive;
mod later;
mod limit;
mod listener;
mod local;
mod mailbox;
mod memo;
mod metadata;
mod mistake;
mod options;
mod outbound;
mod outflow;
mod output;
mod passed_over;
mod payload;
mod peer;
mod pipe;
#[cfg(feature = "planted-panics")]
mod planted;
mod rates;
mod receiver;
mod reply;
mod responder;
mod routes;
#[cfg(all(test, feature = "schedules"))]
#[allow(clippy::unwrap_used)]
mod schedule_tests;
mod secure;
mod sender;
mod server;
mod serves;
mod service;
mod shared;
mod shutdown;
mod signal;
mod socket;
mod stats;
mod status;
mod stream;
mod sync;
mod thread;
mod timeout;
mod tls_stream;
mod turn;
mod upgrade;

pub use body::RequestBody;
pub use body_time::Pace;
pub use crowd::{Crowd, Origin};
#[cfg(feature = "driver")]
pub use driver::Driver;
pub use handshake_counts::HandshakeCounts;
pub use limit::Limit;
pub use listener::Listener;
pub use local::{LocalCall, LocalStream};
pub use metadata::Metadata;
pub use options::Options;
pub use outbound::Outbound;
pub use peer::{Address, Peer};
pub use pipe::{BodySender, Gone};
pub use rates::RateLimits;
pub use reply::{Reply, Source};
pub use responder::{HttpResponder, LocalReply, Responder};
pub use secure::{Gatekeeper, Refusal};
pub use server::Server;
pub use serves::Serves;
pub use service::{Call, Kind, Method, Service, StreamCall, StreamHandler};
pub use signal::StreamWaker;
pub use socket::Acceptor;
pub use stats::{MethodCounts, MethodTimes, Stats, TIME_BOUNDS_MS};
pub use status::Status;
pub use timeout::parse as parse_timeout;
pub use upgrade::{Upgrade, Upgraded};

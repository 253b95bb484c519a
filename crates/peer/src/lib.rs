//! Messages between members, in etcd's peer protocol: HTTP/1.1 as the handshake, framed Raft messages after it.
//!
//! ```text
//! consensus ──send──▶ outgoing: one write, never waiting ──▶ socket ◀── flusher: what did not fit, heartbeats of links
//!              └────▶ pipeline: POST /raft while no stream is up, probes
//! handler ◀── reader: dials the peer, one per stream ◀── socket
//! handler ◀── connection ◀── listener: streams to be written, POST /raft, snapshots, all other calls
//! ```
//!
//! A member dials its peers in order to receive. It sends on the connections that its peers have dialled.

#![deny(clippy::indexing_slicing, clippy::string_slice, clippy::arithmetic_side_effects, clippy::expect_used)]
#![cfg_attr(
    test,
    allow(clippy::indexing_slicing, clippy::string_slice, clippy::arithmetic_side_effects, clippy::expect_used)
)]

mod acceptor;
mod address;
mod answers;
mod body;
mod chunks;
pub mod client;
mod codec;
mod connection;
mod connector;
mod encrypted;
mod fault;
mod flusher;
mod follow;
mod handler;
mod head;
mod identity;
mod large_body;
mod listener;
mod metrics;
mod outgoing;
mod peer;
mod peers;
mod picker;
mod pipeline;
mod places;
mod probe;
mod reader;
mod rejection;
mod routes;
mod sender;
mod shared;
mod snapshot;
mod stream;
#[cfg(test)]
mod tests;
mod timeouts;
mod waker;
mod wire;

pub use address::BadUrl;
#[cfg(feature = "test-support")]
pub use address::LOOPBACK_ONLY;
pub use connector::{Connector, Credentials, Security};
pub use fault::Fault;
pub use follow::{Fed, Feed, Follow, Follower, Refused, Unfollowed, is_of_observer};
pub use handler::{Caller, Handler, Known, LogUsage, Origin};
pub use listener::Listener;
pub use peers::{Options, Peers};
pub use snapshot::{Export, Image, Intake, OutgoingImage, Piece};
pub use timeouts::Timeouts;

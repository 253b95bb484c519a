//! The client half: gRPC calls over HTTP/2, on the frames, the header compression and the output that the server has.
//!
//! [`Connection`] is the protocol without I/O: it takes bytes, reports what they mean to [`Calls`], and returns bytes to write. `request`
//! is what goes before the messages of a call, `response` what comes before and after those of its answer; `stream` is one call in flight;
//! `dispatch` handles one frame after the other. [`Link`] drives a connection over a byte stream, in turns: a turn reads everything that
//! has arrived and writes once, and nothing is allocated per call. [`Channel`] is for all other callers: a handle whose connection is
//! driven by a `task` of its own, for single calls and for those of many messages ([`StreamingCall`], in `call`).

mod call;
mod channel;
mod connection;
mod dispatch;
mod link;
mod options;
mod request;
mod response;
mod stream;
mod task;

pub use call::{StreamingCall, Taken};
pub use channel::{Channel, authority};
pub use connection::{CallKey, Calls, Connection, Refused, Release};
pub use link::{Broken, Link, ReadBuffer};
pub use options::{Encryption, Hold, Options, ReadConfig, Room};
pub use request::RequestHead;

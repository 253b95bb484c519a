//! Threads and sockets: from accepting a connection over its TLS handshake to the request thread that owns it, and what reaches such a
//! thread or is shared by it: mail, deadlines, memory in use.

mod arrival;
pub(crate) mod byte_stream;
mod crowd;
pub(crate) mod deadline;
mod due;
pub(crate) mod gathering;
mod greeting;
mod handshake;
mod handshake_counts;
pub(crate) mod held;
mod home;
mod listener;
pub(crate) mod mailbox;
mod peer;
mod secure;
mod server;
mod serves;
pub(crate) mod shared;
pub(crate) mod signal;
mod socket;
mod thread;
mod tls_stream;

pub use crowd::{Crowd, Origin};
pub use handshake_counts::HandshakeCounts;
pub use home::Home;
pub use listener::Listener;
pub use peer::{Address, Peer};
pub use secure::{Gatekeeper, Refusal};
pub use server::{Held, Server};
pub use serves::Serves;
pub use signal::StreamWaker;
pub use socket::Acceptor;

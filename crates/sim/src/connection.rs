//! The connection of a client that watches, at its member.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use store::watch::WatchStream;

/// A connection of a client, as its member has it.
pub(crate) struct Connection {
    pub(crate) stream: WatchStream,
    /// Whether the stream has said that it has something.
    pub(crate) called: Arc<AtomicBool>,
}

//! The reply to a unary call.

use bytes::Bytes;

/// A reply message without its length prefix.
pub enum Reply {
    /// The whole message.
    Whole(Bytes),
    /// A message made piece by piece while it is sent, so that it is never all in memory.
    Parts {
        /// Length of the whole message, in bytes. The source must yield exactly that much.
        len: usize,
        /// Where the pieces come from.
        source: Box<dyn Source>,
    },
}

/// The pieces of a message, asked for as the peer's window opens. Dropped when the stream ends, finished or not.
pub trait Source: Send {
    /// The next piece, at most `bytes_max` long and not empty; `None` after the last.
    fn next(&mut self, bytes_max: usize) -> Option<Bytes>;
}

impl std::fmt::Debug for Reply {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Reply::Whole(message) => f.debug_tuple("Whole").field(&message.len()).finish(),
            Reply::Parts { len, .. } => f.debug_struct("Parts").field("len", len).finish_non_exhaustive(),
        }
    }
}

impl Reply {
    /// Length of the message in bytes.
    pub fn len(&self) -> usize {
        match self {
            Reply::Whole(message) => message.len(),
            Reply::Parts { len, .. } => *len,
        }
    }

    /// Whether the message is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

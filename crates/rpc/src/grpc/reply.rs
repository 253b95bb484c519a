//! The reply to a unary call.

use std::collections::VecDeque;

use bytes::{Bytes, BytesMut};
use contain::Outside;

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

/// A message that lies in several places and is sent from there.
#[derive(Debug, Default)]
pub struct Chunks {
    queue: VecDeque<Bytes>,
    len: usize,
}

impl Chunks {
    /// Bytes of all of it.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there is nothing.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Appends what is not empty.
    pub fn push(&mut self, chunk: Bytes) {
        if !chunk.is_empty() {
            self.len = self.len.saturating_add(chunk.len());
            self.queue.push_back(chunk);
        }
    }

    /// The message as a reply.
    pub fn into_reply(self) -> Reply {
        Reply::Parts { len: self.len, source: Box::new(self) }
    }
}

impl FromIterator<Bytes> for Chunks {
    fn from_iter<T: IntoIterator<Item = Bytes>>(chunks: T) -> Chunks {
        let mut all = Chunks::default();
        chunks.into_iter().for_each(|chunk| all.push(chunk));
        all
    }
}

impl Source for Chunks {
    fn next(&mut self, bytes_max: usize) -> Option<Bytes> {
        let mut piece = self.queue.pop_front()?;
        if piece.len() > bytes_max {
            let rest = piece.split_off(bytes_max);
            self.queue.push_front(rest);
        }
        Some(piece)
    }
}

impl Source for Outside<Box<dyn Source>> {
    fn next(&mut self, bytes_max: usize) -> Option<Bytes> {
        self.call(|source| source.next(bytes_max))
    }
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

    /// The whole message, put together where it comes in parts; `None` if its source ends before its length.
    pub fn into_whole(self) -> Option<Bytes> {
        let (len, mut source) = match self {
            Reply::Whole(message) => return Some(message),
            Reply::Parts { len, source } => (len, source),
        };
        let mut all = BytesMut::with_capacity(len);
        while all.len() < len {
            let piece = source.next(len.saturating_sub(all.len())).filter(|piece| !piece.is_empty())?;
            all.extend_from_slice(&piece);
        }
        Some(all.freeze())
    }
}

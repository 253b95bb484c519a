//! Decoding messages from the network.

use bytes::Buf;
use contain::{Panicked, contain, planted};
use prost::{DecodeError, Message};

/// Why bytes are no message.
#[derive(Debug, thiserror::Error)]
pub enum Unread {
    /// They are not what they should be.
    #[error(transparent)]
    Malformed(#[from] DecodeError),
    /// The decoder has slipped over them.
    #[error(transparent)]
    Panicked(#[from] Panicked),
}

/// Decodes a message of another program. A panic in that is an error like others.
pub fn decode<M: Message + Default>(bytes: impl Buf) -> Result<M, Unread> {
    contain(|| {
        planted::panic_over(bytes.chunk());
        M::decode(bytes)
    })?
    .map_err(Unread::Malformed)
}

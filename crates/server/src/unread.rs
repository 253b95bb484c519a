//! Decoding what others have sent.

use api::Message;
use bytes::Buf;
use contain::{Panicked, contain};
use rpc::Status;

/// Why bytes are no message.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Unread {
    /// They are not what they should be.
    #[error(transparent)]
    Malformed(#[from] api::DecodeError),
    /// The decoder has slipped over them.
    #[error(transparent)]
    Panicked(#[from] Panicked),
}

/// Decodes a message of another program. A panic in that is an error like others.
pub(crate) fn decode<M: Message + Default>(bytes: impl Buf) -> Result<M, Unread> {
    contain(|| {
        #[cfg(test)]
        crate::planted::panic_over(bytes.chunk());
        M::decode(bytes)
    })?
    .map_err(Unread::Malformed)
}

impl From<Unread> for Status {
    /// gRPC's refusal of a message that does not decode.
    fn from(unread: Unread) -> Status {
        match unread {
            Unread::Malformed(error) => crate::services::unreadable(&error),
            Unread::Panicked(panicked) => panicked.into(),
        }
    }
}

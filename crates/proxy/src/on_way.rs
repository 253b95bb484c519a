//! Messages that were handed to a client's connection and have not left yet.

use bytes::Bytes;
use std::sync::Arc;

/// Those of one stream that have claims of their own.
#[derive(Debug, Default)]
pub(crate) struct OnWay(Arc<()>);

impl OnWay {
    /// The same message, which counts until the last reference to it is gone.
    pub(crate) fn count(&self, message: Bytes) -> Bytes {
        Bytes::from_owner(Counted { message, _of: self.0.clone() })
    }

    /// Whether there are any. Then a stream without room is not kept from it by others: its own messages have what its connection may have.
    pub(crate) fn has_any(&self) -> bool {
        Arc::strong_count(&self.0) > 1
    }
}

struct Counted {
    message: Bytes,
    _of: Arc<()>,
}

impl AsRef<[u8]> for Counted {
    fn as_ref(&self) -> &[u8] {
        &self.message
    }
}

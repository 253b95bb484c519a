//! Memory for events, asked for before they are built.

use std::sync::Arc;

use bytes::Bytes;

/// Memory that was granted. It is given back with the last reference to it.
pub trait Room: Send + Sync {
    /// Gives back what is more than `bytes`.
    fn shrink(&self, bytes: usize);
}

/// Whoever has memory for events.
pub(super) type Ask<'a> = dyn FnMut(usize, bool) -> Option<Arc<dyn Room>> + 'a;

/// Of memory that is nobody's concern.
pub(super) struct Unbounded;

impl Room for Unbounded {
    fn shrink(&self, _: usize) {}
}

/// The same bytes, which keep `room` until the last reference to them is gone.
pub(super) fn kept(bytes: Bytes, room: Option<&Arc<dyn Room>>) -> Bytes {
    match room {
        Some(room) => Bytes::from_owner(Kept { bytes, _room: room.clone() }),
        None => bytes,
    }
}

struct Kept {
    bytes: Bytes,
    _room: Arc<dyn Room>,
}

impl AsRef<[u8]> for Kept {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

//! Panics on purpose, for tests of what they end: a decoder calls [`panic_over`], which does nothing without the feature
//! `planted-panics`.

/// A decoder panics over a message that contains this.
#[cfg(feature = "planted-panics")]
pub const SLIP: &[u8] = b"cairn: a decoder slips";

/// In the middle of decoding `bytes`.
#[inline]
pub fn panic_over(bytes: &[u8]) {
    #[cfg(feature = "planted-panics")]
    assert!(memchr::memmem::find(bytes, SLIP).is_none(), "planted in a decoder");
    #[cfg(not(feature = "planted-panics"))]
    let _ = bytes;
}

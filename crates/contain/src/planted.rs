//! Panics on purpose, for tests of what they end: a decoder calls [`panic_over`], which does nothing without the feature
//! `planted-panics`.

/// A decoder panics over a message that contains this.
#[cfg(feature = "planted-panics")]
pub const SLIP: &[u8] = b"cairn: a decoder slips";

/// In the middle of decoding `bytes`.
#[inline]
pub fn panic_over(bytes: &[u8]) {
    #[cfg(feature = "planted-panics")]
    assert!(!slips(bytes), "planted in a decoder");
    #[cfg(not(feature = "planted-panics"))]
    let _ = bytes;
}

/// Looks at one byte of each place first: messages have megabytes, and tests are not optimised.
#[cfg(feature = "planted-panics")]
fn slips(bytes: &[u8]) -> bool {
    let begins = |at: usize| bytes.get(at..).is_some_and(|rest| rest.starts_with(SLIP));
    bytes.iter().zip(0..).any(|(byte, at)| Some(byte) == SLIP.first() && begins(at))
}

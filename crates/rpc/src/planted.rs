//! Panics on purpose, for tests: over input that asks for one.

/// What a panic is planted over, wherever the transport parses.
const SLIP: &[u8] = b"planted!";

/// In the middle of taking `input` apart.
pub(crate) fn panic_over(input: &[u8]) {
    assert!(!input.windows(SLIP.len()).any(|window| window == SLIP), "planted in the transport");
}

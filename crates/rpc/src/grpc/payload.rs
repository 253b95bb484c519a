//! The prefix of a gRPC message.

/// Bytes of the prefix: the compression flag and the length.
pub(crate) const PREFIX_BYTES: usize = 5;

/// The prefix of an uncompressed message of `len` bytes.
pub(crate) fn prefix(len: usize) -> [u8; PREFIX_BYTES] {
    assert!(u32::try_from(len).is_ok(), "a gRPC message is at most 4 GiB long");
    let [a, b, c, d] = (len as u32).to_be_bytes();
    [0, a, b, c, d]
}

//! Why a header block cannot be decoded.

/// What is wrong with a header block. All of them end the connection with COMPRESSION_ERROR (RFC 9113 section 4.3): the two
/// tables are no longer the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The block ends inside a field.
    #[error("the header block ends inside a field")]
    Truncated,
    /// An integer of more bytes than any honest one.
    #[error("an integer of the header block is too long")]
    IntegerTooLong,
    /// An index that names no entry.
    #[error("index `{0}` is in neither table")]
    IndexUnknown(usize),
    /// A change of the table size after a field.
    #[error("a change of the table size is not at the beginning of the header block")]
    SizeUpdateLate,
    /// A change of the table size to more than was offered.
    #[error("a table of `{asked_bytes}` bytes is asked for, `{bytes_max}` were offered")]
    SizeUpdateTooLarge {
        /// What the peer wants.
        asked_bytes: usize,
        /// What SETTINGS_HEADER_TABLE_SIZE allows.
        bytes_max: usize,
    },
    /// A Huffman-coded string that ends in more than seven bits, or in other bits than ones, that are no symbol.
    #[error("a Huffman-coded string ends inside a symbol")]
    HuffmanPadding,
    /// A Huffman-coded string with the symbol that marks the end of a string.
    #[error("a Huffman-coded string contains its end mark")]
    HuffmanEndMark,
}

//! HPACK, the compression of HTTP/2 header fields (RFC 7541).
//!
//! A connection has a [`Decoder`] and an [`Encoder`], each with a table of its own of fields sent before: `static_table` is the part that
//! all connections share, `dynamic_table` the part that this connection has learnt. `integer` and `huffman` are the two primitive
//! codings. Nothing here knows what a header field means, and nothing here does I/O.
//!
//! The `generation` of each shows whether its table has changed, so that a caller may keep what a block decoded to (or was encoded as)
//! and use it again for the same block (or fields) while the table is the same.

mod decoder;
mod dynamic_table;
mod encoder;
mod error;
mod huffman;
mod integer;
mod static_table;

pub use decoder::Decoder;
pub use encoder::{Encoder, Indexing};
pub use error::Error;

/// The table size that holds until SETTINGS_HEADER_TABLE_SIZE says otherwise (RFC 9113 section 6.5.2), in bytes as
/// RFC 7541 section 4.1 counts them.
pub const TABLE_BYTES_DEFAULT: usize = 4096;

/// What an entry of a table, and a field of a header list, counts for beyond its name and value (RFC 7541 section 4.1).
pub const FIELD_OVERHEAD_BYTES: usize = 32;

/// A header field, of any bytes: which of them a name or a value may contain is a rule of HTTP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field<'a> {
    /// The name as it was sent, pseudo-header fields with their colon.
    pub name: &'a [u8],
    /// The value.
    pub value: &'a [u8],
    /// The sender wants it to be in no table on its whole way, because the value is secret (RFC 7541 section 7.1.3).
    pub never_indexed: bool,
}

impl Field<'_> {
    /// What the field counts for in a header list and in a table.
    pub fn size_bytes(&self) -> usize {
        self.name.len().saturating_add(self.value.len()).saturating_add(FIELD_OVERHEAD_BYTES)
    }
}

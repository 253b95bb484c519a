//! From header fields to header blocks (RFC 7541 section 6).

use bytes::BufMut;

use super::dynamic_table::DynamicTable;
use super::{FIELD_OVERHEAD_BYTES, TABLE_BYTES_DEFAULT, huffman, integer, static_table};

/// Encodes the header blocks of one connection, in the order in which they are sent.
pub struct Encoder {
    table: DynamicTable,
    /// The smallest size that the table has had since the last block, if the peer is to be told of a change.
    smallest_unsent_bytes: Option<usize>,
}

/// Whether a field that is in no table yet shall be remembered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Indexing {
    /// It comes again: remember it.
    Index,
    /// It is unlikely to come again.
    Without,
    /// It is secret: it is in no table on its whole way (RFC 7541 section 7.1.3).
    Never,
}

impl Default for Encoder {
    fn default() -> Encoder {
        Encoder::new()
    }
}

impl Encoder {
    /// An encoder for a peer that has said nothing about its table yet.
    pub fn new() -> Encoder {
        Encoder { table: DynamicTable::new(TABLE_BYTES_DEFAULT), smallest_unsent_bytes: None }
    }

    /// Takes note of the peer's SETTINGS_HEADER_TABLE_SIZE, between two blocks. The table never becomes larger than the
    /// default; a change is announced at the beginning of the next block (RFC 7541 section 4.2).
    pub fn set_table_bytes_max(&mut self, bytes: usize) {
        let bytes = bytes.min(TABLE_BYTES_DEFAULT);
        if bytes != self.table.size_bytes_max() {
            self.smallest_unsent_bytes = Some(self.smallest_unsent_bytes.map_or(bytes, |smallest| smallest.min(bytes)));
            self.table.set_size_bytes_max(bytes);
        }
    }

    /// Changes whenever the table does. Fields whose block has left it as it was have the same block again for as long as
    /// the generation is the same.
    pub fn generation(&self) -> u64 {
        self.table.generation()
    }

    /// Whether the next block must begin with a change of the table's size.
    pub fn owes_size(&self) -> bool {
        self.smallest_unsent_bytes.is_some()
    }

    /// Appends a field to a block. `name` is in lower case already.
    pub fn encode(&mut self, out: &mut impl BufMut, name: &[u8], value: &[u8], indexing: Indexing) {
        if let Some(smallest) = self.smallest_unsent_bytes.take() {
            self.announce(out, smallest);
        }
        let found = self.find(name, value);
        if let Some((index, true)) = found
            && indexing != Indexing::Never
        {
            return integer::encode(out, index, 7, 0x80);
        }
        let index = found.map_or(0, |(index, _)| index);
        let size_bytes = name.len().saturating_add(value.len()).saturating_add(FIELD_OVERHEAD_BYTES);
        match indexing {
            // Remembering a field larger than the table would only empty the table.
            Indexing::Index if size_bytes <= self.table.size_bytes_max() => {
                integer::encode(out, index, 6, 0x40);
                self.table.insert(name, value);
            }
            Indexing::Index | Indexing::Without => integer::encode(out, index, 4, 0),
            Indexing::Never => integer::encode(out, index, 4, 0x10),
        }
        if index == 0 {
            put_text(out, name);
        }
        put_text(out, value);
    }

    /// The index of an entry with this name, and whether it has this value.
    fn find(&self, name: &[u8], value: &[u8]) -> Option<(usize, bool)> {
        let known = static_table::find(name, value);
        if let Some((_, true)) = known {
            return known;
        }
        let learnt = self
            .table
            .find(name, value)
            .map(|(number, exact)| (number.saturating_add(static_table::ENTRIES + 1), exact));
        match learnt {
            Some((_, true)) => learnt,
            _ => known.or(learnt),
        }
    }

    /// Says how the table's size has changed since the last block: the smallest it has been, and what it is.
    #[cold]
    fn announce(&self, out: &mut impl BufMut, smallest: usize) {
        let now = self.table.size_bytes_max();
        if smallest < now {
            integer::encode(out, smallest, 5, 0x20);
        }
        integer::encode(out, now, 5, 0x20);
    }
}

/// Appends a string, Huffman-coded if that is shorter.
fn put_text(out: &mut impl BufMut, text: &[u8]) {
    let coded_bytes = huffman::encoded_bytes(text);
    if coded_bytes < text.len() {
        integer::encode(out, coded_bytes, 7, 0x80);
        huffman::encode(out, text);
    } else {
        integer::encode(out, text.len(), 7, 0);
        out.put_slice(text);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(encoder: &mut Encoder, fields: &[(&str, &str, Indexing)]) -> Vec<u8> {
        let mut out = Vec::new();
        for (name, value, indexing) in fields {
            encoder.encode(&mut out, name.as_bytes(), value.as_bytes(), *indexing);
        }
        out
    }

    const GET: (&str, &str, Indexing) = (":method", "GET", Indexing::Index);

    #[test]
    fn what_is_in_a_table_takes_a_byte() {
        let mut encoder = Encoder::new();
        let field = ("grpc-status", "0", Indexing::Index);
        let without = ("grpc-status", "0", Indexing::Without);
        assert_eq!(block(&mut encoder, &[GET]), [0x82]);
        assert_eq!(block(&mut encoder, &[without])[0], 0x00);
        assert_eq!(block(&mut encoder, &[field])[0], 0x40);
        let generation = encoder.generation();
        assert_eq!(block(&mut encoder, &[field, without, GET]), [0xbe, 0xbe, 0x82]);
        assert_eq!(encoder.generation(), generation);
        // Another value: the name by its index.
        assert_eq!(block(&mut encoder, &[("grpc-status", "&", Indexing::Index)]), [0x7e, 1, b'&']);
        assert_eq!(block(&mut encoder, &[field]), [0xbf]);
    }

    #[test]
    fn secrets_are_never_indexed() {
        let mut encoder = Encoder::new();
        block(&mut encoder, &[("token", "&&", Indexing::Index)]);
        assert_eq!(block(&mut encoder, &[("token", "&&", Indexing::Never)]), [0x1f, 62 - 15, 2, b'&', b'&']);
        assert_eq!(block(&mut encoder, &[(":method", "GET", Indexing::Never)])[0], 0x12);
    }

    #[test]
    fn a_field_larger_than_the_table_does_not_empty_it() {
        let mut encoder = Encoder::new();
        let large = "&".repeat(4096);
        block(&mut encoder, &[("a", "b", Indexing::Index)]);
        assert_eq!(block(&mut encoder, &[("a", &large, Indexing::Index)])[..2], [0x0f, 62 - 15]);
        assert_eq!(block(&mut encoder, &[("a", "b", Indexing::Index)]), [0xbe]);
    }

    #[test]
    fn changes_of_the_size_are_announced() {
        let mut encoder = Encoder::new();
        encoder.set_table_bytes_max(4096);
        encoder.set_table_bytes_max(1 << 20);
        assert_eq!(block(&mut encoder, &[GET]), [0x82]);
        encoder.set_table_bytes_max(30);
        assert_eq!(block(&mut encoder, &[]), []);
        assert_eq!(block(&mut encoder, &[GET, GET]), [0x20 | 30, 0x82, 0x82]);
        assert_eq!(block(&mut encoder, &[GET]), [0x82]);
        // Down and up again: the smallest in between, then the last.
        encoder.set_table_bytes_max(20);
        encoder.set_table_bytes_max(10);
        encoder.set_table_bytes_max(25);
        assert_eq!(block(&mut encoder, &[GET]), [0x20 | 10, 0x20 | 25, 0x82]);
        // Even if nothing seems to have changed, the entries are gone.
        encoder.set_table_bytes_max(0);
        encoder.set_table_bytes_max(25);
        assert_eq!(block(&mut encoder, &[GET]), [0x20, 0x20 | 25, 0x82]);
        encoder.set_table_bytes_max(1 << 20);
        assert_eq!(block(&mut encoder, &[GET]), [0x3f, 0xe1, 0x1f, 0x82]);
    }

    #[test]
    fn huffman_only_where_it_is_shorter() {
        let mut encoder = Encoder::new();
        assert_eq!(block(&mut encoder, &[("a", "&&&", Indexing::Without)]), [0, 1, b'a', 3, b'&', b'&', b'&']);
        assert_eq!(block(&mut encoder, &[("aaaaa", "", Indexing::Without)])[..2], [0, 0x84]);
    }
}

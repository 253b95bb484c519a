//! From header blocks to header fields (RFC 7541 section 6).

use super::dynamic_table::DynamicTable;
use super::{Error, Field, TABLE_BYTES_DEFAULT, huffman, integer, static_table};

/// Room for strings that is kept from one block to the next; what a larger block has needed is given back.
const SCRATCH_KEPT_BYTES_MAX: usize = 16 << 10;

/// Decodes the header blocks of one connection, in the order in which they come.
///
/// Memory is bounded by the table (a few times its size) and, while a block is being decoded, by 8/5 of the block. Nothing
/// is allocated per block once both have been met in their usual size.
pub struct Decoder {
    table: DynamicTable,
    /// What the peer may set the table's size to.
    table_bytes_max: usize,
    /// Strings that were Huffman-coded.
    scratch: Vec<u8>,
}

impl Decoder {
    /// A decoder for a connection on which SETTINGS_HEADER_TABLE_SIZE is `table_bytes_max`.
    ///
    /// A larger table than the default is used only when the peer says so. A smaller one must be what the peer knows of from
    /// its first block on: nothing here waits for the peer to acknowledge it.
    pub fn new(table_bytes_max: usize) -> Decoder {
        let table = DynamicTable::new(table_bytes_max.min(TABLE_BYTES_DEFAULT));
        Decoder { table, table_bytes_max, scratch: Vec::new() }
    }

    /// Changes whenever the table does. A block that leaves it as it was decodes to the same fields again for as long as
    /// the generation is the same.
    pub fn generation(&self) -> u64 {
        self.table.generation()
    }

    /// Decodes a whole header block and gives its fields to `field` one by one.
    ///
    /// All of them: a caller that needs no more must still continue, or the two tables would differ. After an
    /// error (some fields may have been given before it) the decoder can no longer be used.
    pub fn decode(&mut self, block: &[u8], mut field: impl FnMut(Field<'_>)) -> Result<(), Error> {
        let mut input = block;
        let mut at_beginning = true;
        while let Some(&first) = input.first() {
            match first {
                0x80.. => {
                    let index = integer::decode(&mut input, 7)?;
                    let (name, value) = self.entry(index)?;
                    field(Field { name, value, never_indexed: false });
                }
                0x40.. => self.literal(&mut input, Literal::Indexed, &mut field)?,
                0x20.. => {
                    self.set_table_bytes(integer::decode(&mut input, 5)?, at_beginning)?;
                    continue;
                }
                0x10.. => self.literal(&mut input, Literal::NeverIndexed, &mut field)?,
                _ => self.literal(&mut input, Literal::NotIndexed, &mut field)?,
            }
            at_beginning = false;
        }
        if self.scratch.capacity() > SCRATCH_KEPT_BYTES_MAX {
            self.scratch = Vec::new();
        }
        Ok(())
    }

    fn entry(&self, index: usize) -> Result<(&[u8], &[u8]), Error> {
        if let Some(known) = static_table::entry(index) {
            return Ok(known);
        }
        learnt(index).and_then(|number| self.table.entry(number)).ok_or(Error::IndexUnknown(index))
    }

    fn literal(&mut self, input: &mut &[u8], kind: Literal, field: &mut impl FnMut(Field<'_>)) -> Result<(), Error> {
        let index = integer::decode(input, if kind == Literal::Indexed { 6 } else { 4 })?;
        self.scratch.clear();
        let literal_name = if index == 0 { Some(Text::take(input, &mut self.scratch)?) } else { None };
        let value = Text::take(input, &mut self.scratch)?;
        let value = value.bytes(&self.scratch)?;
        let name = match &literal_name {
            Some(name) => name.bytes(&self.scratch)?,
            None => self.entry(index)?.0,
        };
        field(Field { name, value, never_indexed: kind == Literal::NeverIndexed });
        if kind == Literal::Indexed {
            match (&literal_name, static_table::entry(index), learnt(index)) {
                (Some(name), _, _) => self.table.insert(name.bytes(&self.scratch)?, value),
                (None, Some((name, _)), _) => self.table.insert(name, value),
                (None, None, Some(number)) => self.table.insert_named_by(number, value),
                (None, None, None) => return Err(Error::IndexUnknown(index)),
            }
        }
        Ok(())
    }

    fn set_table_bytes(&mut self, asked_bytes: usize, at_beginning: bool) -> Result<(), Error> {
        let bytes_max = self.table_bytes_max;
        if !at_beginning {
            return Err(Error::SizeUpdateLate);
        }
        if asked_bytes > bytes_max {
            return Err(Error::SizeUpdateTooLarge { asked_bytes, bytes_max });
        }
        self.table.set_size_bytes_max(asked_bytes);
        Ok(())
    }
}

/// The number in the dynamic table, of an index after those of the static table.
fn learnt(index: usize) -> Option<usize> {
    index.checked_sub(static_table::ENTRIES + 1)
}

/// What is to become of a field that is not in a table.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Literal {
    Indexed,
    NotIndexed,
    NeverIndexed,
}

/// A string of a block (RFC 7541 section 5.2).
enum Text<'a> {
    Plain(&'a [u8]),
    /// Where it is in the scratch.
    Decoded(std::ops::Range<usize>),
}

impl<'a> Text<'a> {
    fn take(input: &mut &'a [u8], scratch: &mut Vec<u8>) -> Result<Text<'a>, Error> {
        let is_huffman = input.first().is_some_and(|first| first & 0x80 != 0);
        let length = integer::decode(input, 7)?;
        let (text, rest) = input.split_at_checked(length).ok_or(Error::Truncated)?;
        *input = rest;
        if !is_huffman {
            return Ok(Text::Plain(text));
        }
        let start = scratch.len();
        huffman::decode(text, scratch)?;
        Ok(Text::Decoded(start..scratch.len()))
    }

    fn bytes<'b>(&self, scratch: &'b [u8]) -> Result<&'b [u8], Error>
    where
        'a: 'b,
    {
        match self {
            Text::Plain(text) => Ok(text),
            Text::Decoded(range) => scratch.get(range.clone()).ok_or(Error::Truncated),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(decoder: &mut Decoder, block: &[u8]) -> Result<Vec<(String, String)>, Error> {
        let mut fields = Vec::new();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        decoder.decode(block, |field| fields.push((text(field.name), text(field.value))))?;
        Ok(fields)
    }

    fn pair(name: &str, value: &str) -> (String, String) {
        (name.into(), value.into())
    }

    fn error(block: &[u8]) -> Result<Vec<(String, String)>, Error> {
        fields(&mut Decoder::new(4096), block)
    }

    #[test]
    fn indices_must_exist() {
        assert_eq!(error(&[0x80]), Err(Error::IndexUnknown(0)));
        assert_eq!(error(&[0x80 | 62]), Err(Error::IndexUnknown(62)));
        assert_eq!(error(&[0xff, 0xff, 0xff, 0xff, 0x7f]), Err(Error::IndexUnknown(127 + (1 << 28) - 1)));
        assert_eq!(error(&[0x80 | 61]), Ok(vec![pair("www-authenticate", "")]));
        // As a name: with and without indexing.
        for first in [[0x7f, 0], [0x1f, 62 - 15], [0x0f, 62 - 15]] {
            assert!(matches!(error(&[&first[..], &[1, b'x']].concat()), Err(Error::IndexUnknown(62 | 63))));
        }
        let mut decoder = Decoder::new(4096);
        assert_eq!(fields(&mut decoder, &[0x40, 1, b'a', 1, b'b', 0x80 | 62]), Ok(vec![pair("a", "b"); 2]));
        assert_eq!(fields(&mut decoder, &[0x80 | 63]), Err(Error::IndexUnknown(63)));
    }

    #[test]
    fn a_field_must_be_whole() {
        // Every kind of string and index; two fields, the first of which ends at its third byte.
        for block in [
            &[0x40, 1, b'a', 0x81, 0x1f][..],
            &[0x0f, 3, 2, b'a', b'b'],
            &[0x10, 0x81, 0x1f, 1, b'a'],
            &[0xff, 0x80, 0x00],
            &[0x3f, 0x80, 0x01],
        ] {
            assert!(error(block) != Err(Error::Truncated), "{block:x?}");
            for end in 1..block.len() {
                assert_eq!(error(&block[..end]), Err(Error::Truncated), "{block:x?} {end}");
            }
        }
        assert_eq!(error(&[0, 0xff, 0xff, 0xff, 0xff, 0x7f, b'a']), Err(Error::Truncated));
        assert_eq!(error(&[0, 0x7f, 0xff, 0xff, 0xff, 0xff, 0x00]), Err(Error::IntegerTooLong));
        assert_eq!(error(b""), Ok(vec![]));
    }

    #[test]
    fn the_errors_of_strings_are_passed_on() {
        assert_eq!(error(&[0, 0x81, 0xff, 0]), Err(Error::HuffmanPadding));
        assert_eq!(error(&[0, 0, 0x84, 0xff, 0xff, 0xff, 0xff]), Err(Error::HuffmanEndMark));
    }

    #[test]
    fn the_table_changes_its_size_at_the_beginning_only() {
        let mut decoder = Decoder::new(4096);
        // 4096, 0, 100.
        assert_eq!(
            fields(&mut decoder, &[0x3f, 0xe1, 0x1f, 0x20, 0x3f, 100 - 31, 0x82]),
            Ok(vec![pair(":method", "GET")])
        );
        assert_eq!(decoder.table.size_bytes_max(), 100);
        assert_eq!(fields(&mut decoder, &[0x82, 0x20]), Err(Error::SizeUpdateLate));
        let too_large = Error::SizeUpdateTooLarge { asked_bytes: 4097, bytes_max: 4096 };
        assert_eq!(error(&[0x3f, 0xe2, 0x1f]), Err(too_large));
    }

    #[test]
    fn a_larger_table_is_used_when_the_peer_says_so() {
        let mut decoder = Decoder::new(65536);
        assert_eq!(decoder.table.size_bytes_max(), 4096);
        assert_eq!(fields(&mut decoder, &[0x3f, 0xe1, 0xff, 0x03]), Ok(vec![]));
        assert_eq!(decoder.table.size_bytes_max(), 65536);
        assert!(Decoder::new(100).table.size_bytes_max() == 100);
    }

    #[test]
    fn secrets_are_marked() {
        let mut marks = Vec::new();
        let block = [0x10, 1, b'a', 1, b'b', 0x00, 1, b'a', 1, b'b', 0x40, 1, b'a', 1, b'b', 0xbe, 0x1f, 47, 1, b'c'];
        let mut decoder = Decoder::new(4096);
        assert_eq!(decoder.decode(&block, |field| marks.push((field.never_indexed, field.size_bytes()))), Ok(()));
        assert_eq!(marks, [(true, 34), (false, 34), (false, 34), (false, 34), (true, 34)]);
    }

    #[test]
    fn the_name_may_be_of_the_entry_that_is_forgotten() {
        let mut decoder = Decoder::new(32 + 4);
        let block = [0x40, 2, b'a', b'b', 2, b'c', b'd', 0x7e, 1, b'e', 0xbe];
        let expected = vec![pair("ab", "cd"), pair("ab", "e"), pair("ab", "e")];
        assert_eq!(fields(&mut decoder, &block), Ok(expected));
    }

    #[test]
    fn the_generation_changes_with_the_table() {
        let mut decoder = Decoder::new(4096);
        let before = decoder.generation();
        assert!(decoder.decode(&[0x82, 0x00, 1, b'a', 1, b'b'], |_| ()).is_ok());
        assert_eq!(decoder.generation(), before);
        assert!(decoder.decode(&[0x40, 1, b'a', 1, b'b'], |_| ()).is_ok());
        assert_ne!(decoder.generation(), before);
    }

    #[test]
    fn room_of_a_large_block_is_given_back() {
        let mut decoder = Decoder::new(4096);
        let mut block = vec![0, 1, b'a', 0xff, 0x81, 0xff, 0x02];
        block.extend_from_slice(&vec![0x18; 49152]);
        block.truncate(7 + 127 + (0x81 & 0x7f) + (0x7f << 7) + (2 << 14));
        assert!(decoder.decode(&block, |_| ()).is_ok());
        assert!(decoder.scratch.capacity() <= SCRATCH_KEPT_BYTES_MAX);
    }
}

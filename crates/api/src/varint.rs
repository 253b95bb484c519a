//! Protobuf's varints, and the keys and lengths of fields that are made of them, for messages that are written or read in place.
//!
//! Reading is as strict as prost: at most ten bytes, and of the tenth one bit. A number in more bytes than it needs is read, as
//! protobuf has it; [`take_shortest`] refuses it.

use bytes::BytesMut;

/// Bytes of the longest varint.
pub const LEN_MAX: usize = 10;
/// Bytes of the longest key: it has 32 bits.
const KEY_LEN_MAX: usize = 5;

/// Wire type of a number.
pub const NUMBER: u8 = 0;
/// Wire type of a field with a length: bytes, text or a message.
pub const DELIMITED: u8 = 2;

/// Bytes that `value` takes.
#[inline]
pub const fn len(value: u64) -> usize {
    // Seven bits a byte, and one byte for zero.
    ((value | 1).ilog2() / 7).saturating_add(1) as usize
}

/// Calls `push` with each byte of `value`.
#[inline]
fn each_byte(mut value: u64, mut push: impl FnMut(u8)) {
    while value >= 0x80 {
        push(value as u8 | 0x80);
        value >>= 7;
    }
    push(value as u8);
}

/// The bytes of a varint, or of a key and the varint behind it.
#[derive(Clone, Copy, Debug)]
pub struct Encoded {
    bytes: [u8; KEY_LEN_MAX + LEN_MAX],
    len: usize,
}

impl Encoded {
    const EMPTY: Encoded = Encoded { bytes: [0; KEY_LEN_MAX + LEN_MAX], len: 0 };

    #[inline]
    fn with(mut self, value: u64) -> Encoded {
        each_byte(value, |byte| {
            if let Some(place) = self.bytes.get_mut(self.len) {
                *place = byte;
            }
            self.len = self.len.wrapping_add(1);
        });
        self
    }
}

impl std::ops::Deref for Encoded {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        self.bytes.get(..self.len).unwrap_or_default()
    }
}

/// The bytes of `value`.
#[inline]
pub fn encode(value: u64) -> Encoded {
    Encoded::EMPTY.with(value)
}

/// What can be appended to. Each kind of buffer does it in the way that is quickest there.
pub trait Buffer {
    /// Appends `value`.
    fn push_varint(&mut self, value: u64);

    /// Appends the key of a field, and `value` behind it.
    fn push_keyed(&mut self, key: u64, value: u64);

    /// Appends `bytes`.
    fn push_bytes(&mut self, bytes: &[u8]);
}

impl Buffer for Vec<u8> {
    #[inline]
    fn push_varint(&mut self, value: u64) {
        each_byte(value, |byte| self.push(byte));
    }

    #[inline]
    fn push_keyed(&mut self, key: u64, value: u64) {
        self.push_varint(key);
        self.push_varint(value);
    }

    #[inline]
    fn push_bytes(&mut self, bytes: &[u8]) {
        self.extend_from_slice(bytes);
    }
}

/// Gathers the bytes first: it looks for room at each call, and not only when there is none.
impl Buffer for BytesMut {
    #[inline]
    fn push_varint(&mut self, value: u64) {
        self.extend_from_slice(&encode(value));
    }

    #[inline]
    fn push_keyed(&mut self, key: u64, value: u64) {
        self.extend_from_slice(&encode(key).with(value));
    }

    #[inline]
    fn push_bytes(&mut self, bytes: &[u8]) {
        self.extend_from_slice(bytes);
    }
}

/// Appends `value`.
#[inline]
pub fn put(out: &mut impl Buffer, value: u64) {
    out.push_varint(value);
}

/// The key of a field.
#[inline]
pub const fn key(field: u32, wire_type: u8) -> u64 {
    (field as u64) << 3 | wire_type as u64
}

/// Appends a number, be it zero.
#[inline]
pub fn put_number(out: &mut impl Buffer, field: u32, value: u64) {
    out.push_keyed(key(field, NUMBER), value);
}

/// Appends a number, unless it is zero: proto3 leaves that out.
#[inline]
pub fn put_nonzero(out: &mut impl Buffer, field: u32, value: u64) {
    if value != 0 {
        put_number(out, field, value);
    }
}

/// Appends key and length of a field with `len` bytes; these follow.
#[inline]
pub fn put_delimited(out: &mut impl Buffer, field: u32, len: usize) {
    out.push_keyed(key(field, DELIMITED), len as u64);
}

/// Appends bytes, text or a message, be it empty.
#[inline]
pub fn put_bytes(out: &mut impl Buffer, field: u32, bytes: &[u8]) {
    put_delimited(out, field, bytes.len());
    out.push_bytes(bytes);
}

/// Appends bytes or text, unless it is empty: proto3 leaves that out.
#[inline]
pub fn put_nonempty(out: &mut impl Buffer, field: u32, bytes: &[u8]) {
    if !bytes.is_empty() {
        put_bytes(out, field, bytes);
    }
}

/// Bytes that [`put_nonzero`] appends.
#[inline]
pub const fn nonzero_len(field: u32, value: u64) -> usize {
    if value == 0 { 0 } else { len(key(field, NUMBER)).saturating_add(len(value)) }
}

/// Bytes of a field with `content` bytes, with its key and length.
#[inline]
pub const fn delimited_len(field: u32, content: usize) -> usize {
    len(key(field, DELIMITED)).saturating_add(len(content as u64)).saturating_add(content)
}

/// Bytes that [`put_nonempty`] appends for so many.
#[inline]
pub const fn nonempty_len(field: u32, content: usize) -> usize {
    if content == 0 { 0 } else { delimited_len(field, content) }
}

/// The number at the beginning of `input`, which is moved behind it. `None` leaves `input` where it is: the number is cut off, or longer
/// than any, which it is if there are [`LEN_MAX`] bytes or more.
#[inline]
pub fn take(input: &mut &[u8]) -> Option<u64> {
    if let [byte @ 0..0x80, rest @ ..] = *input {
        *input = rest;
        return Some(u64::from(*byte));
    }
    let (value, _, rest) = read(input)?;
    *input = rest;
    Some(value)
}

/// As [`take`], and `None` for a number in more bytes than it needs: for files in which nothing has two forms.
#[inline]
pub fn take_shortest(input: &mut &[u8]) -> Option<u64> {
    if let [byte @ 0..0x80, rest @ ..] = *input {
        *input = rest;
        return Some(u64::from(*byte));
    }
    let (value, last, rest) = read(input)?;
    if last == 0 {
        return None;
    }
    *input = rest;
    Some(value)
}

/// A number, its last byte, and what follows.
#[inline]
fn read(input: &[u8]) -> Option<(u64, u8, &[u8])> {
    let (mut value, mut rest) = (0, input);
    for shift in [0, 7, 14, 21, 28, 35, 42, 49, 56] {
        let (&byte, behind) = rest.split_first()?;
        rest = behind;
        value |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return Some((value, byte, rest));
        }
    }
    // The tenth byte has the highest bit, and nothing else.
    match rest {
        [byte @ 0..=1, behind @ ..] => Some((value | u64::from(*byte) << 63, *byte, behind)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use prost::encoding::{decode_varint, encode_varint, encoded_len_varint};

    /// Each value that begins a length, the one before, and the ends.
    fn boundaries() -> impl Iterator<Item = u64> {
        [0, u64::MAX].into_iter().chain((1..64).flat_map(|bit| [(1 << bit) - 1, 1 << bit]))
    }

    fn prosts(value: u64) -> Vec<u8> {
        let mut bytes = Vec::new();
        encode_varint(value, &mut bytes);
        bytes
    }

    /// Numbers of all lengths.
    fn any_number() -> impl Strategy<Value = u64> {
        (any::<u64>(), 0_u32..64).prop_map(|(value, shift)| value >> shift)
    }

    fn taken(mut input: &[u8]) -> Option<(u64, &[u8])> {
        take(&mut input).map(|value| (value, input))
    }

    fn taken_shortest(mut input: &[u8]) -> Option<(u64, &[u8])> {
        take_shortest(&mut input).map(|value| (value, input))
    }

    #[test]
    fn numbers_are_prosts_at_every_boundary() {
        for value in boundaries() {
            let wanted = prosts(value);
            assert_eq!(&*encode(value), wanted, "{value}");
            assert_eq!(len(value), encoded_len_varint(value), "{value}");
            let followed = [&wanted[..], &[0x80]].concat();
            assert_eq!(taken(&followed), Some((value, &[0x80][..])));
            assert_eq!(taken_shortest(&followed), Some((value, &[0x80][..])));
            for cut in 0..wanted.len() {
                assert_eq!(taken(&wanted[..cut]), None, "{value} in {cut} bytes");
            }
        }
    }

    #[test]
    fn what_is_too_long_is_refused() {
        let nine = [0xff; 9];
        for last in 2..=0xff {
            assert_eq!(taken(&[&nine[..], &[last]].concat()), None, "{last}");
        }
        assert_eq!(taken(&[&nine[..], &[1]].concat()), Some((u64::MAX, &[][..])));
        assert_eq!(taken(&[&[0x80; 10][..], &[0]].concat()), None);
        let mut input = &[0xff; 12][..];
        assert_eq!((take(&mut input), input.len()), (None, 12));
    }

    #[test]
    fn longer_forms_are_numbers_but_not_the_shortest() {
        for (longer, value) in [(&[0x80, 0][..], 0), (&[0xff, 0], 127), (&[0x81, 0x80, 0], 1)] {
            assert_eq!(taken(longer), Some((value, &[][..])));
            assert_eq!(taken_shortest(longer), None);
        }
        let mut input = &[0x80, 0][..];
        assert_eq!((take_shortest(&mut input), input.len()), (None, 2));
        assert_eq!(taken_shortest(&[0, 7]), Some((0, &[7][..])));
        assert_eq!(taken_shortest(&[]), None);
    }

    proptest! {
        #[test]
        fn fields_are_prosts(field in 1_u32..1 << 29, value in any_number(), bytes: Vec<u8>) {
            let (mut ours, mut theirs) = (Vec::new(), Vec::new());
            put_number(&mut ours, field, value);
            prost::encoding::uint64::encode(field, &value, &mut theirs);
            prop_assert_eq!(&ours, &theirs);
            put_bytes(&mut ours, field, &bytes);
            prost::encoding::bytes::encode(field, &bytes, &mut theirs);
            prop_assert_eq!(&ours, &theirs);
            prop_assert_eq!(delimited_len(field, bytes.len()), prost::encoding::bytes::encoded_len(field, &bytes));
            put(&mut ours, value);
            encode_varint(value, &mut theirs);
            prop_assert_eq!(&ours, &theirs);
            // What is left out has no length.
            for (value, bytes) in [(value, &bytes[..]), (0, &[])] {
                let mut out = bytes::BytesMut::new();
                put_nonzero(&mut out, field, value);
                prop_assert_eq!(out.len(), nonzero_len(field, value));
                prop_assert_eq!(out.is_empty(), value == 0);
                out.clear();
                put_nonempty(&mut out, field, bytes);
                prop_assert_eq!(out.len(), nonempty_len(field, bytes.len()));
                prop_assert_eq!(out.is_empty(), bytes.is_empty());
            }
        }

        #[test]
        fn any_bytes_are_read_as_prost_reads_them(
            bytes in prop::collection::vec(prop_oneof![any::<u8>(), Just(0x80), Just(0xff), 0_u8..3], 0..14),
        ) {
            let mut theirs = &bytes[..];
            let wanted = decode_varint(&mut theirs).ok();
            prop_assert_eq!(taken(&bytes), wanted.map(|value| (value, theirs)));
            let shortest = wanted.filter(|value| bytes.starts_with(&prosts(*value)));
            prop_assert_eq!(taken_shortest(&bytes), shortest.map(|value| (value, theirs)));
        }
    }
}

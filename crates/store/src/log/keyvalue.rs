//! The stored bytes of one change: `mvccpb.KeyValue`, encoded exactly as etcd stores it, so that they are also the bytes that
//! Range and Watch send and HashKV hashes.
//!
//! Fields go in number order and zeros are left out. A tombstone's holds the key alone.

const KEY: u8 = 1 << 3 | 2;
const CREATE: u8 = 2 << 3;
const MODIFIED: u8 = 3 << 3;
const VERSION: u8 = 4 << 3;
const VALUE: u8 = 5 << 3 | 2;
const LEASE: u8 = 6 << 3;

/// What a put stores, the mod revision aside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KvParts<'a> {
    /// The key, never empty.
    pub key: &'a [u8],
    /// Main revision of the put that created this life of the key.
    pub create: i64,
    /// Puts since it was created, this one included.
    pub version: i64,
    /// The value.
    pub value: &'a [u8],
    /// The lease it hangs on, 0 for none.
    pub lease: i64,
}

impl KvParts<'_> {
    /// Length of [`KvParts::encode`]'s output.
    pub(crate) fn encoded_len(&self, modified: i64) -> usize {
        bytes_len(self.key)
            + int_len(self.create)
            + int_len(modified)
            + int_len(self.version)
            + bytes_len(self.value)
            + int_len(self.lease)
    }

    /// Appends the encoding to `out`.
    pub(crate) fn encode(&self, modified: i64, out: &mut Vec<u8>) {
        put_bytes(out, KEY, self.key);
        put_int(out, CREATE, self.create);
        put_int(out, MODIFIED, modified);
        put_int(out, VERSION, self.version);
        put_bytes(out, VALUE, self.value);
        put_int(out, LEASE, self.lease);
    }
}

/// Stored bytes, taken apart without copying.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct KvView<'a> {
    /// The key.
    pub key: &'a [u8],
    /// Create revision; 0 in a tombstone.
    pub create: i64,
    /// Mod revision; 0 in a tombstone.
    pub modified: i64,
    /// Version; 0 in a tombstone.
    pub version: i64,
    /// The value.
    pub value: &'a [u8],
    /// The lease, 0 for none.
    pub lease: i64,
}

impl<'a> KvView<'a> {
    /// Parses stored bytes. `None` for anything that [`KvParts`] would not have written: unknown or repeated fields, another
    /// order, an explicit zero, an empty key.
    pub fn parse(bytes: &'a [u8]) -> Option<KvView<'a>> {
        let mut view = KvView::default();
        let mut rest = bytes;
        let mut last = 0;
        while let Some((&tag, behind)) = rest.split_first() {
            if tag <= last {
                return None;
            }
            last = tag;
            let (number, mut behind) = take_varint(behind)?;
            if number == 0 {
                return None;
            }
            if tag == KEY || tag == VALUE {
                let (content, after) = behind.split_at_checked(usize::try_from(number).ok()?)?;
                if tag == KEY {
                    view.key = content;
                } else {
                    view.value = content;
                }
                behind = after;
            } else {
                // int64 goes as its two's complement.
                let number = number as i64;
                match tag {
                    CREATE => view.create = number,
                    MODIFIED => view.modified = number,
                    VERSION => view.version = number,
                    LEASE => view.lease = number,
                    _ => return None,
                }
            }
            rest = behind;
        }
        if view.key.is_empty() { None } else { Some(view) }
    }
}

/// Length of a tombstone's encoding.
pub(crate) fn tombstone_len(key: &[u8]) -> usize {
    bytes_len(key)
}

/// Appends a tombstone's encoding.
pub(crate) fn encode_tombstone(key: &[u8], out: &mut Vec<u8>) {
    put_bytes(out, KEY, key);
}

fn varint_len(number: u64) -> usize {
    // 7 bits a byte; 0 takes one byte too.
    (64 - (number | 1).leading_zeros() as usize).div_ceil(7)
}

fn int_len(number: i64) -> usize {
    if number == 0 { 0 } else { 1 + varint_len(number as u64) }
}

fn bytes_len(bytes: &[u8]) -> usize {
    if bytes.is_empty() { 0 } else { 1 + varint_len(bytes.len() as u64) + bytes.len() }
}

fn put_varint(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

fn put_int(out: &mut Vec<u8>, tag: u8, number: i64) {
    if number != 0 {
        out.push(tag);
        put_varint(out, number as u64);
    }
}

fn put_bytes(out: &mut Vec<u8>, tag: u8, bytes: &[u8]) {
    if !bytes.is_empty() {
        out.push(tag);
        put_varint(out, bytes.len() as u64);
        out.extend_from_slice(bytes);
    }
}

fn take_varint(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let mut number = 0_u64;
    for (place, &byte) in bytes.iter().take(10).enumerate() {
        if place == 9 && byte > 1 {
            return None;
        }
        number |= u64::from(byte & 0x7f) << (7 * place);
        if byte < 0x80 {
            return Some((number, &bytes[place + 1..]));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use api::Message;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_encoding_is_that_of_protobuf(key in prop::collection::vec(any::<u8>(), 1..300), create in any::<i64>(),
                modified in any::<i64>(), version in any::<i64>(), value in prop::collection::vec(any::<u8>(), 0..300),
                lease in any::<i64>()) {
            let parts = KvParts { key: &key, create, version, value: &value, lease };
            let mut ours = Vec::new();
            parts.encode(modified, &mut ours);
            let message = api::mvccpb::KeyValue {
                key: key.clone().into(), create_revision: create, mod_revision: modified, version,
                value: value.clone().into(), lease,
            };
            prop_assert_eq!(&ours, &message.encode_to_vec());
            prop_assert_eq!(ours.len(), parts.encoded_len(modified));
            let view = KvView { key: &key, create, modified, version, value: &value, lease };
            prop_assert_eq!(KvView::parse(&ours), Some(view));
        }

        #[test]
        fn any_bytes_parse_or_do_not(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
            KvView::parse(&bytes);
        }
    }

    #[test]
    fn a_tombstone_holds_the_key_alone() {
        let mut bytes = Vec::new();
        encode_tombstone(b"k", &mut bytes);
        assert_eq!(bytes, [0x0a, 1, b'k']);
        assert_eq!(tombstone_len(b"k"), bytes.len());
        assert_eq!(KvView::parse(&bytes), Some(KvView { key: b"k", ..KvView::default() }));
    }
}

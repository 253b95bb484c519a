//! The stored bytes of one change: `mvccpb.KeyValue`, encoded exactly as etcd stores it, so that they are also the bytes that
//! Range and Watch send and HashKV hashes.
//!
//! Fields go in number order and zeros are left out. A tombstone's holds the key alone.

use api::varint::{self, DELIMITED, NUMBER};

const KEY: u32 = 1;
const CREATE: u32 = 2;
const MODIFIED: u32 = 3;
const VERSION: u32 = 4;
const VALUE: u32 = 5;
const LEASE: u32 = 6;

/// [`KEY`] as it is stored.
const KEY_TAG: u8 = varint::key(KEY, DELIMITED) as u8;

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
        varint::nonempty_len(KEY, self.key.len())
            + varint::nonzero_len(CREATE, self.create as u64)
            + varint::nonzero_len(MODIFIED, modified as u64)
            + varint::nonzero_len(VERSION, self.version as u64)
            + varint::nonempty_len(VALUE, self.value.len())
            + varint::nonzero_len(LEASE, self.lease as u64)
    }

    /// Appends the encoding to `out`.
    pub(crate) fn encode(&self, modified: i64, out: &mut Vec<u8>) {
        varint::put_nonempty(out, KEY, self.key);
        varint::put_nonzero(out, CREATE, self.create as u64);
        varint::put_nonzero(out, MODIFIED, modified as u64);
        varint::put_nonzero(out, VERSION, self.version as u64);
        varint::put_nonempty(out, VALUE, self.value);
        varint::put_nonzero(out, LEASE, self.lease as u64);
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
    /// order, an explicit zero, a number in more bytes than it needs, an empty key.
    pub fn parse(bytes: &'a [u8]) -> Option<KvView<'a>> {
        let mut view = KvView::default();
        let mut rest = bytes;
        let mut last = 0;
        while let Some((&tag, mut behind)) = rest.split_first() {
            if tag <= last {
                return None;
            }
            last = tag;
            let number = varint::take_shortest(&mut behind)?;
            if number == 0 {
                return None;
            }
            let mut content = || {
                let content;
                (content, behind) = behind.split_at_checked(usize::try_from(number).ok()?)?;
                Some(content)
            };
            // int64 goes as its two's complement.
            match (u32::from(tag >> 3), tag & 7) {
                (KEY, DELIMITED) => view.key = content()?,
                (CREATE, NUMBER) => view.create = number as i64,
                (MODIFIED, NUMBER) => view.modified = number as i64,
                (VERSION, NUMBER) => view.version = number as i64,
                (VALUE, DELIMITED) => view.value = content()?,
                (LEASE, NUMBER) => view.lease = number as i64,
                _ => return None,
            }
            rest = behind;
        }
        if view.key.is_empty() { None } else { Some(view) }
    }
}

/// The key of stored bytes, their first field, whatever follows it.
pub(crate) fn stored_key(stored: &[u8]) -> &[u8] {
    let key = stored.strip_prefix(&[KEY_TAG]).and_then(|mut rest| {
        let len = usize::try_from(varint::take(&mut rest)?).ok()?;
        rest.get(..len)
    });
    let Some(key) = key else {
        panic!(
            "a stored record does not begin with its key: it did when the log was opened, so its file has changed under the mapping"
        );
    };
    key
}

/// Length of a tombstone's encoding.
pub(crate) fn tombstone_len(key: &[u8]) -> usize {
    varint::nonempty_len(KEY, key.len())
}

/// Appends a tombstone's encoding.
pub(crate) fn encode_tombstone(key: &[u8], out: &mut Vec<u8>) {
    varint::put_nonempty(out, KEY, key);
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

    #[test]
    fn longer_forms_of_a_number_are_refused() {
        assert!(KvView::parse(&[0x0a, 1, b'k', 0x18, 0x7f]).is_some());
        assert_eq!(KvView::parse(&[0x0a, 1, b'k', 0x18, 0xff, 0]), None);
        assert_eq!(KvView::parse(&[0x0a, 0x81, 0, b'k', 0x18, 0x7f]), None);
    }

    #[test]
    fn the_key_is_found_without_the_rest() {
        for len in [1, 127, 128, 300, 20_000] {
            let kv = api::mvccpb::KeyValue {
                key: vec![7; len].into(),
                mod_revision: 3,
                version: 1,
                value: b"v".to_vec().into(),
                ..Default::default()
            };
            assert_eq!(stored_key(&kv.encode_to_vec()), &kv.key[..]);
        }
    }
}

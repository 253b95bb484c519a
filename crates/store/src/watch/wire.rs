//! The pieces of protobuf from which responses are built by hand.

#![expect(clippy::arithmetic_side_effects, reason = "sums of lengths of what is in memory, and of a tag and a varint")]

use bytes::BytesMut;

/// Bytes that `value` takes as a varint.
pub(super) fn varint_len(value: u64) -> usize {
    (63 - (value | 1).leading_zeros() as usize) / 7 + 1
}

/// Appends `value` as a varint.
#[cfg(test)]
pub(super) fn put_varint(out: &mut BytesMut, value: u64) {
    put_prefixed(out, None, value);
}

/// Gathers tag and varint first: one bounds check for all bytes.
#[expect(clippy::indexing_slicing, reason = "a tag and the ten bytes of the longest varint are eleven")]
fn put_prefixed(out: &mut BytesMut, tag: Option<u8>, mut value: u64) {
    let mut bytes = [0; 11];
    let mut len = 0;
    if let Some(tag) = tag {
        bytes[0] = tag;
        len = 1;
    }
    while value >= 0x80 {
        bytes[len] = value as u8 | 0x80;
        value >>= 7;
        len += 1;
    }
    bytes[len] = value as u8;
    out.extend_from_slice(&bytes[..=len]);
}

/// Length of an integer field whose tag takes one byte; 0 for the default value, which is left out.
pub(super) fn integer_len(value: u64) -> usize {
    if value == 0 { 0 } else { 1 + varint_len(value) }
}

/// Appends an integer field, unless it has the default value.
pub(super) fn put_integer(out: &mut BytesMut, field: u8, value: u64) {
    if value != 0 {
        put_prefixed(out, Some(field << 3), value);
    }
}

/// Length of a length-delimited field with `len` bytes of content whose tag takes one byte.
pub(super) fn delimited_len(len: usize) -> usize {
    1 + varint_len(len as u64) + len
}

/// Appends tag and length of a length-delimited field; the content follows.
pub(super) fn put_delimited(out: &mut BytesMut, field: u8, len: usize) {
    put_prefixed(out, Some(field << 3 | 2), len as u64);
}

/// The key of stored `KeyValue` bytes: its first field.
pub(super) fn stored_key(stored: &[u8]) -> &[u8] {
    let rest = stored.strip_prefix(&[0x0a]).unwrap_or_default();
    let mut len = 0usize;
    for (at, byte) in rest.iter().enumerate().take(5) {
        len |= usize::from(byte & 0x7f) << (7 * at);
        if byte & 0x80 == 0 {
            let Some(key) = rest.get(at + 1..).and_then(|rest| rest.get(..len)) else { break };
            return key;
        }
    }
    panic!(
        "a stored record does not begin with its key: it did when the log was opened, so its file has changed under the mapping"
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn varints() {
        for value in [0, 1, 127, 128, 16_383, 16_384, u64::from(u32::MAX), u64::MAX >> 1, u64::MAX] {
            let mut out = BytesMut::new();
            put_varint(&mut out, value);
            assert_eq!(out.len(), varint_len(value), "{value}");
        }
    }

    #[test]
    fn keys() {
        for len in [1, 127, 128, 300, 20_000] {
            let kv = api::mvccpb::KeyValue {
                key: vec![7; len].into(),
                mod_revision: 3,
                version: 1,
                value: b"v".to_vec().into(),
                ..Default::default()
            };
            assert_eq!(stored_key(&api::Message::encode_to_vec(&kv)), &kv.key[..]);
        }
    }
}

//! Checks the answers to lists as they come, in pieces, without ever having one as a whole.

use crate::cutter::PREFIX_BYTES;
use crate::wire::{self, Value};
use api::varint;

/// Limit of the bytes of a field's key and length.
const FIELD_HEAD_BYTES_MAX: usize = 20;
/// The field of a RangeResponse that is repeated.
const KV: u64 = 2;

/// The state of an answer that is being received.
#[derive(Debug, Default)]
pub struct Listing {
    /// An incomplete field, or an incomplete prefix of gRPC.
    held: Vec<u8>,
    /// Bytes of the message that are missing, once its prefix has arrived.
    left: Option<usize>,
    /// Keys so far.
    pub keys: u64,
    more: bool,
    count: u64,
    revision: u64,
    /// The last key: they must ascend.
    last_key: Vec<u8>,
    wrong: Option<&'static str>,
}

impl Listing {
    /// Prepares for the next answer. The memory is kept.
    pub fn clear(&mut self) {
        let (mut held, mut last_key) = (std::mem::take(&mut self.held), std::mem::take(&mut self.last_key));
        held.clear();
        last_key.clear();
        *self = Listing { held, last_key, ..Listing::default() };
    }

    /// Takes the next part of the body.
    pub fn push(&mut self, data: &[u8], prefix: &[u8], value_bytes: usize) {
        let mut rest = data;
        while !self.held.is_empty() && !rest.is_empty() && self.wrong.is_none() {
            // Only the bytes that complete the held ones are copied: the rest is parsed in place.
            let wanted = self.missing().min(rest.len());
            self.held.extend_from_slice(&rest[..wanted]);
            rest = &rest[wanted..];
            let held = std::mem::take(&mut self.held);
            let done = self.walk(&held, prefix, value_bytes);
            self.held = held;
            self.held.drain(..done);
        }
        if self.wrong.is_none() && self.held.is_empty() {
            let done = self.walk(rest, prefix, value_bytes);
            self.held.extend_from_slice(&rest[done..]);
        }
    }

    /// How many more bytes the held ones need before they can be parsed.
    fn missing(&self) -> usize {
        if self.left.is_none() {
            return PREFIX_BYTES.saturating_sub(self.held.len()).max(1);
        }
        match field_bytes(&self.held) {
            Some(bytes) => bytes.saturating_sub(self.held.len()).max(1),
            None => 1,
        }
    }

    /// Parses the complete fields at the beginning of `input`; returns their length.
    fn walk(&mut self, input: &[u8], prefix: &[u8], value_bytes: usize) -> usize {
        let mut at = 0;
        if self.left.is_none() {
            let [flag, a, b, c, d, ..] = *input else { return 0 };
            if flag != 0 {
                self.wrong = Some("an answer that is compressed");
            }
            self.left = Some(u32::from_be_bytes([a, b, c, d]) as usize);
            at = PREFIX_BYTES;
        }
        while self.wrong.is_none() && at < input.len() {
            let rest = &input[at..];
            let Some(bytes) = field_bytes(rest) else {
                if rest.len() >= FIELD_HEAD_BYTES_MAX {
                    self.wrong = Some("an answer that is no RangeResponse");
                }
                break;
            };
            let Some(field) = rest.get(..bytes) else { break };
            let left = self.left.unwrap_or(0);
            if bytes > left {
                self.wrong = Some("more than one message");
                break;
            }
            self.left = Some(left - bytes);
            let whole = wire::fields(field, |number, value| self.field(number, value, prefix, value_bytes));
            if !whole {
                self.wrong = Some("an answer that is no RangeResponse");
            }
            at += bytes;
        }
        at
    }

    fn field(&mut self, number: u64, value: Value<'_>, prefix: &[u8], value_bytes: usize) {
        match (number, value) {
            (1, Value::Bytes(header)) => self.revision = wire::number(header, 3).unwrap_or(0),
            (KV, Value::Bytes(kv)) => {
                self.keys += 1;
                let (mut key, mut len) = (&[][..], 0);
                let whole = wire::fields(kv, |number, value| match (number, value) {
                    (1, Value::Bytes(bytes)) => key = bytes,
                    (5, Value::Bytes(bytes)) => len = bytes.len(),
                    _ => {}
                });
                if !whole || !key.starts_with(prefix) || key <= &self.last_key[..] {
                    self.wrong = Some("a list with a key that does not belong there");
                }
                if value_bytes > 0 && len != value_bytes {
                    self.wrong = Some("a list with a value of another length");
                }
                self.last_key.clear();
                self.last_key.extend_from_slice(key);
            }
            (3, Value::Number(more)) => self.more = more != 0,
            (4, Value::Number(count)) => self.count = count,
            _ => {}
        }
    }

    /// The verdict at the end. If `expect` is given, the answer must have that many keys.
    pub fn verdict(&self, expect: Option<u64>) -> Result<(), &'static str> {
        if let Some(why) = self.wrong {
            return Err(why);
        }
        if self.left != Some(0) || !self.held.is_empty() {
            return Err("an answer that is cut off");
        }
        if self.revision == 0 || (self.keys != self.count && !(self.more && self.keys < self.count)) {
            return Err("a list that does not have as many keys as it says");
        }
        if expect.is_some_and(|expect| expect != self.keys) {
            return Err("a list with more or fewer keys than expected");
        }
        Ok(())
    }
}

/// Length of the field at the beginning of `input`, with its key. `None` if that is not known yet.
fn field_bytes(input: &[u8]) -> Option<usize> {
    let mut rest = input;
    let key = varint::take(&mut rest)?;
    let number = varint::take(&mut rest)?;
    let head = input.len() - rest.len();
    if key & 7 == 2 { head.checked_add(usize::try_from(number).ok()?) } else { Some(head) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use api::Message;
    use api::etcdserverpb::{RangeResponse, ResponseHeader};
    use api::mvccpb::KeyValue;

    fn body(keys: &[&str], count: i64, more: bool) -> Vec<u8> {
        let kv = |key: &&str| KeyValue { key: (*key).to_owned().into(), value: "val".into(), ..KeyValue::default() };
        let header = Some(ResponseHeader { revision: 9, ..ResponseHeader::default() });
        let message = RangeResponse { header, kvs: keys.iter().map(kv).collect(), count, more }.encode_to_vec();
        [&[0, 0, 0, 0, message.len() as u8], &message[..]].concat()
    }

    fn verdict(body: &[u8], step: usize, expect: u64) -> Result<(), &'static str> {
        let mut listing = Listing::default();
        for _ in 0..2 {
            listing.clear();
            body.chunks(step).for_each(|piece| listing.push(piece, b"k", 3));
        }
        listing.verdict(Some(expect))
    }

    #[test]
    fn lists_are_checked_however_they_are_cut() {
        let whole = body(&["k1", "k2", "k3"], 3, false);
        let limited = body(&["k1", "k2"], 70_000, true);
        for step in 1..=whole.len() {
            assert_eq!(verdict(&whole, step, 3), Ok(()), "in pieces of {step}");
            assert_eq!(verdict(&limited, step, 2), Ok(()));
            assert!(verdict(&whole, step, 2).is_err());
            assert!(verdict(&whole[..whole.len() - 1], step, 3).is_err());
            assert!(verdict(&[&whole[..], b"\x18\x01"].concat(), step, 3).is_err());
            assert!(verdict(&body(&["k1", "k1"], 2, false), step, 2).is_err());
            assert!(verdict(&body(&["k1", "x2"], 2, false), step, 2).is_err());
            assert!(verdict(&body(&["k1", "k2"], 3, false), step, 2).is_err());
        }
        assert_eq!(verdict(&[], 1, 0), Err("an answer that is cut off"));
    }
}

//! Whether the answer to a request is what it has to be.

use crate::request::{key_name, value_of};
use crate::wire::{self, Value};

/// The expected content of answers.
#[derive(Debug)]
pub(crate) struct Expected {
    pub(crate) key: Vec<u8>,
    pub(crate) keys: u64,
    pub(crate) value_bytes: usize,
    value: Vec<u8>,
}

impl Expected {
    pub(crate) fn new(key: &str, keys: u64, value_bytes: usize) -> Expected {
        Expected { key: key.as_bytes().to_vec(), keys, value_bytes, value: Vec::new() }
    }

    /// Checks a RangeResponse for key `number`: it must have that key with its value.
    pub(crate) fn range(&mut self, number: u64, message: &[u8]) -> Result<(), &'static str> {
        let (mut revision, mut found, mut others) = (None, None, 0);
        let whole = wire::fields(message, |field, value| match (field, value) {
            (1, Value::Bytes(header)) => revision = wire::number(header, 3),
            (2, Value::Bytes(kv)) => {
                others += u32::from(found.replace(kv).is_some());
            }
            _ => {}
        });
        if !whole || revision.is_none_or(|revision| revision == 0) {
            return Err("an answer that is no RangeResponse");
        }
        let (Some(kv), 0) = (found, others) else { return Err("an answer without the key, or with others") };
        let (mut has_key, mut has_value) = (false, self.value_bytes == 0);
        value_of(number, self.value_bytes, &mut self.value);
        let name = key_name(&self.key, self.keys, number);
        let whole = wire::fields(kv, |field, value| match (field, value) {
            (1, Value::Bytes(key)) => has_key = key == name.as_bytes(),
            (5, Value::Bytes(value)) => has_value = value == self.value,
            _ => {}
        });
        match (whole && has_key, has_value) {
            (false, _) => Err("an answer with another key"),
            (_, false) => Err("an answer with another value"),
            _ => Ok(()),
        }
    }
}

/// Checks a PutResponse: it must have a revision.
pub fn put(message: &[u8]) -> Result<(), &'static str> {
    let mut revision = None;
    let whole = wire::fields(message, |field, value| {
        if let (1, Value::Bytes(header)) = (field, value) {
            revision = wire::number(header, 3);
        }
    });
    if whole && revision.is_some_and(|revision| revision > 0) { Ok(()) } else { Err("an answer without a revision") }
}

/// The token in an AuthenticateResponse.
pub fn token(message: &[u8]) -> Result<&str, &'static str> {
    let mut token = None;
    let whole = wire::fields(message, |field, value| {
        if let (2, Value::Bytes(bytes)) = (field, value) {
            token = std::str::from_utf8(bytes).ok().filter(|text| !text.is_empty());
        }
    });
    token.filter(|_| whole).ok_or("an answer without a token")
}

#[cfg(test)]
mod tests {
    use super::*;
    use api::Message;
    use api::etcdserverpb::{AuthenticateResponse, PutResponse, RangeResponse, ResponseHeader};
    use api::mvccpb::KeyValue;

    #[test]
    fn the_right_answers_alone_are_right() {
        let mut expected = Expected::new("key-", 10, 3);
        let kv = |key: &str, value: &str| KeyValue {
            key: key.to_owned().into(),
            value: value.to_owned().into(),
            version: 1,
            ..KeyValue::default()
        };
        let header = Some(ResponseHeader { revision: 7, ..ResponseHeader::default() });
        let mut check = |kvs: Vec<KeyValue>, header: Option<ResponseHeader>| {
            expected.range(1, &RangeResponse { header, kvs, ..RangeResponse::default() }.encode_to_vec())
        };
        let right = kv("key-000000001", "bcd");
        assert_eq!(check(vec![right.clone()], header), Ok(()));
        assert!(check(vec![], header).is_err());
        assert!(check(vec![right.clone(), right.clone()], header).is_err());
        assert!(check(vec![kv("key-000000002", "bcd")], header).is_err());
        assert!(check(vec![kv("key-000000001", "bce")], header).is_err());
        assert!(check(vec![right], None).is_err());
        assert_eq!(put(&PutResponse { header, prev_kv: None }.encode_to_vec()), Ok(()));
        assert!(put(&PutResponse::default().encode_to_vec()).is_err());
        assert!(put(b"\x0a").is_err());
        assert_eq!(token(&AuthenticateResponse { header, token: "t".into() }.encode_to_vec()), Ok("t"));
        assert!(token(&AuthenticateResponse { header, token: String::new() }.encode_to_vec()).is_err());
    }
}

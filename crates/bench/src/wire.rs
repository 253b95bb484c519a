//! Protobuf fields, read in place. Answers are checked by the million: nothing is built of them.

use api::varint;

/// The value of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Value<'a> {
    /// A varint.
    Number(u64),
    /// Bytes, text or a message.
    Bytes(&'a [u8]),
}

/// Calls `field` with each field of a message. False if it is malformed.
#[must_use]
pub fn fields<'a>(message: &'a [u8], mut field: impl FnMut(u64, Value<'a>)) -> bool {
    let mut rest = message;
    while !rest.is_empty() {
        let Some(key) = varint::take(&mut rest) else { return false };
        let value = match key & 7 {
            0 => varint::take(&mut rest).map(Value::Number),
            2 => varint::take(&mut rest).and_then(|len| {
                let (bytes, after) = rest.split_at_checked(usize::try_from(len).ok()?)?;
                rest = after;
                Some(Value::Bytes(bytes))
            }),
            _ => None,
        };
        let Some(value) = value else { return false };
        field(key >> 3, value);
    }
    true
}

/// The number in `field` of a message, 0 if it is not there. None if the message is malformed.
pub fn number(message: &[u8], field: u64) -> Option<u64> {
    let mut found = 0;
    let whole = fields(message, |number, value| {
        if let (true, Value::Number(value)) = (number == field, value) {
            found = value;
        }
    });
    whole.then_some(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_written_is_read() {
        let mut message = Vec::new();
        varint::put_bytes(&mut message, 1, b"key");
        varint::put_number(&mut message, 3, u64::MAX);
        varint::put_bytes(&mut message, 16, b"");
        let mut found = Vec::new();
        assert!(fields(&message, |field, value| found.push((field, value))));
        assert_eq!(found, [(1, Value::Bytes(b"key")), (3, Value::Number(u64::MAX)), (16, Value::Bytes(b""))]);
        assert_eq!(number(&message, 3), Some(u64::MAX));
        assert_eq!(number(&message, 9), Some(0));
        for len in [1, 3, 6, 8, message.len() - 1] {
            assert!(!fields(&message[..len], |_, _| ()), "{len} bytes");
        }
        assert!(!fields(&[0xff; 11], |_, _| ()) && !fields(&[1], |_, _| ()));
    }
}

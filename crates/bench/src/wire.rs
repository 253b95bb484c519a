//! Protobuf fields, written and read in place. Answers are checked by the million: nothing is built of them.

/// Appends a number that is not zero, as proto3 has it.
pub fn put_number(out: &mut Vec<u8>, field: u32, number: u64) {
    if number != 0 {
        put_varint(out, u64::from(field << 3));
        put_varint(out, number);
    }
}

/// Appends bytes that are not empty.
pub fn put_bytes(out: &mut Vec<u8>, field: u32, bytes: &[u8]) {
    if !bytes.is_empty() {
        put_message(out, field, bytes);
    }
}

/// Appends a message, be it empty.
pub fn put_message(out: &mut Vec<u8>, field: u32, message: &[u8]) {
    put_varint(out, u64::from(field << 3 | 2));
    put_varint(out, message.len() as u64);
    out.extend_from_slice(message);
}

fn put_varint(out: &mut Vec<u8>, mut number: u64) {
    while number > 0x7f {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

/// The value of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Value<'a> {
    /// A varint.
    Number(u64),
    /// Bytes, text or a message.
    Bytes(&'a [u8]),
}

/// The number at the beginning of `input`, which is moved behind it. None if it is cut off, or longer than any.
#[inline]
pub(crate) fn take_varint(input: &mut &[u8]) -> Option<u64> {
    if let [byte @ 0..0x80, rest @ ..] = *input {
        *input = rest;
        return Some(u64::from(*byte));
    }
    take_long_varint(input)
}

fn take_long_varint(input: &mut &[u8]) -> Option<u64> {
    let mut number = 0;
    for (at, &byte) in input.iter().enumerate().take(10) {
        number |= u64::from(byte & 0x7f) << (7 * at);
        if byte < 0x80 {
            *input = &input[at + 1..];
            return Some(number);
        }
    }
    None
}

/// Calls `field` with each field of a message. False if it is malformed.
#[must_use]
pub fn fields<'a>(message: &'a [u8], mut field: impl FnMut(u64, Value<'a>)) -> bool {
    let mut rest = message;
    while !rest.is_empty() {
        let Some(key) = take_varint(&mut rest) else { return false };
        let value = match key & 7 {
            0 => take_varint(&mut rest).map(Value::Number),
            2 => take_varint(&mut rest).and_then(|len| {
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
        put_bytes(&mut message, 1, b"key");
        put_number(&mut message, 3, u64::MAX);
        put_bytes(&mut message, 4, b"");
        put_number(&mut message, 5, 0);
        put_message(&mut message, 16, b"");
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

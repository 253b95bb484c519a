//! JSON values, cut out of a text that comes piece by piece.

use super::scanner::{Scanner, Step};
use bytes::BytesMut;

/// The text of one whole JSON value without faults of syntax, nested at most [`super::scanner::DEPTH_MAX`] times. Only [`Values`]
/// makes one, so that what reads it may rely on both.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Value(BytesMut);

impl Value {
    pub(super) fn text(&self) -> &[u8] {
        &self.0
    }

    /// A text that no scanner has seen.
    #[cfg(test)]
    pub(super) fn unchecked(text: &[u8]) -> Value {
        Value(text.into())
    }
}

/// Cuts a text that comes piece by piece into JSON values.
#[derive(Debug)]
pub(super) struct Values {
    held: BytesMut,
    /// How much of it was looked at.
    seen: usize,
    scanner: Scanner,
    /// Length of one value, in bytes.
    bytes_max: usize,
}

impl Values {
    pub(super) fn new(bytes_max: usize) -> Values {
        Values { held: BytesMut::new(), seen: 0, scanner: Scanner::new(), bytes_max }
    }

    /// Adds what has come.
    pub(super) fn push(&mut self, text: &[u8]) {
        self.held.extend_from_slice(text);
    }

    /// Bytes that are held.
    pub(super) fn held_bytes(&self) -> usize {
        self.held.len()
    }

    /// The next whole value. `is_end`: nothing more will come.
    pub(super) fn next(&mut self, is_end: bool) -> Result<Option<Value>, String> {
        let mut from = 0;
        while let Some(&byte) = self.held.get(self.seen) {
            let behind = self.seen.saturating_add(1);
            match self.scanner.step(byte)? {
                Step::Blank => from = behind,
                Step::Inside => {}
                Step::Last => return Ok(Some(self.cut(from, behind))),
                Step::Behind => return Ok(Some(self.cut(from, self.seen))),
            }
            self.seen = behind;
        }
        if from > 0 {
            let _ = self.cut(0, from);
            self.seen = self.held.len();
        }
        if self.held.len() > self.bytes_max {
            return Err(format!("a JSON value is longer than {} bytes", self.bytes_max));
        }
        if !is_end || !self.scanner.is_inside() {
            return Ok(None);
        }
        if !self.scanner.can_end() {
            return Err("unexpected EOF".into());
        }
        self.scanner = Scanner::new();
        Ok(Some(self.cut(0, self.held.len())))
    }

    /// Takes what stands before `to`, and of it what stands behind `from`.
    fn cut(&mut self, from: usize, to: usize) -> Value {
        self.seen = 0;
        let mut value = self.held.split_to(to);
        Value(value.split_off(from))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_come_in_pieces() {
        let mut values = Values::new(100);
        let mut found = Vec::new();
        for byte in br#" {"a":1} 12 {"b":"}"}"# {
            values.push(&[*byte]);
            while let Some(value) = values.next(false).expect("well-formed") {
                found.push(String::from_utf8(value.text().to_vec()).expect("text"));
            }
        }
        assert_eq!(found, [r#"{"a":1}"#, "12", r#"{"b":"}"}"#]);
        assert_eq!(values.next(true), Ok(None));
        values.push(&[b' '; 1000]);
        assert_eq!(values.next(false), Ok(None), "blanks are not kept");
        values.push(format!("\"{}", "x".repeat(100)).as_bytes());
        assert!(values.next(false).is_err_and(|text| text.contains("longer than 100 bytes")));
    }
}

//! JSON values from a text that arrives in pieces. An incomplete value is kept in the pieces that arrived: joined, it would take twice its
//! length while it grows, and its memory could not be used for the next one.

use crate::scanner::{Scanner, Step};
use bytes::{Buf, BytesMut};
use std::collections::VecDeque;

/// Room of a piece after the first.
const PIECE_BYTES: usize = 64 * 1024;

/// The text of one whole JSON value without faults of syntax, nested at most [`crate::scanner::DEPTH_MAX`] times. Only [`Values`]
/// makes one, so that what reads it may rely on both.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Value(BytesMut);

impl Value {
    pub(crate) fn text(&self) -> &[u8] {
        &self.0
    }

    /// A text that no scanner has seen.
    #[cfg(test)]
    pub(crate) fn unchecked(text: &[u8]) -> Value {
        Value(text.into())
    }
}

/// Cuts a text into JSON values.
#[derive(Debug)]
pub(crate) struct Values {
    pieces: VecDeque<BytesMut>,
    /// How much of them was looked at: whole pieces, bytes of the next one, and bytes in all.
    seen_pieces: usize,
    seen_of_piece: usize,
    seen: usize,
    /// The first piece is what a value has left of a larger one, which it keeps in memory.
    is_rest: bool,
    scanner: Scanner,
    /// Length of one value, in bytes.
    bytes_max: usize,
}

impl Values {
    pub(crate) fn new(bytes_max: usize) -> Values {
        Values {
            pieces: VecDeque::new(),
            seen_pieces: 0,
            seen_of_piece: 0,
            seen: 0,
            is_rest: false,
            scanner: Scanner::new(),
            bytes_max,
        }
    }

    /// Memory that is held.
    pub(crate) fn held_bytes(&self) -> usize {
        self.pieces.iter().map(BytesMut::capacity).fold(0, usize::saturating_add)
    }

    /// Memory that [`Values::push`] will take for so much.
    pub(crate) fn growth_bytes(&self, text_bytes: usize) -> usize {
        match self.pieces.back() {
            None => text_bytes,
            Some(last) => match text_bytes.saturating_sub(spare(last)) {
                0 => 0,
                rest => rest.max(PIECE_BYTES),
            },
        }
    }

    /// Adds what has come.
    pub(crate) fn push(&mut self, text: &[u8]) {
        let mut rest = text;
        let mut room = text.len();
        if let Some(last) = self.pieces.back_mut() {
            let (front, behind) = text.split_at_checked(spare(last)).unwrap_or((text, &[]));
            last.extend_from_slice(front);
            rest = behind;
            room = rest.len().max(PIECE_BYTES);
        }
        if !rest.is_empty() {
            let mut piece = BytesMut::with_capacity(room);
            piece.extend_from_slice(rest);
            self.pieces.push_back(piece);
        }
    }

    /// The next whole value. `is_end`: nothing more will come.
    pub(crate) fn next(&mut self, is_end: bool) -> Result<Option<Value>, String> {
        let mut from = 0;
        while let Some(byte) = self.peek() {
            let step = self.scanner.step(byte)?;
            if step == Step::Behind {
                return Ok(Some(self.cut(from, self.seen)));
            }
            self.seen_of_piece = self.seen_of_piece.saturating_add(1);
            self.seen = self.seen.saturating_add(1);
            match step {
                Step::Blank => from = self.seen,
                Step::Inside | Step::Behind => {}
                Step::Last => return Ok(Some(self.cut(from, self.seen))),
            }
        }
        if from > 0 {
            // Blanks alone end where the text does.
            let seen = self.seen;
            let _ = self.cut(0, from);
            self.seek(seen.saturating_sub(from));
        }
        if self.seen > self.bytes_max {
            return Err(format!("a JSON value is longer than {} bytes", self.bytes_max));
        }
        if !is_end || !self.scanner.is_inside() {
            self.compact();
            return Ok(None);
        }
        if !self.scanner.can_end() {
            return Err("unexpected EOF".into());
        }
        self.scanner = Scanner::new();
        Ok(Some(self.cut(0, self.seen)))
    }

    /// The next byte to be looked at.
    fn peek(&mut self) -> Option<u8> {
        loop {
            let piece = self.pieces.get(self.seen_pieces)?;
            if let Some(byte) = piece.get(self.seen_of_piece) {
                return Some(*byte);
            }
            if self.seen_pieces.saturating_add(1) >= self.pieces.len() {
                return None;
            }
            self.seen_pieces = self.seen_pieces.saturating_add(1);
            self.seen_of_piece = 0;
        }
    }

    /// Has the first `seen` bytes count as looked at.
    fn seek(&mut self, seen: usize) {
        (self.seen, self.seen_pieces, self.seen_of_piece) = (seen, 0, seen);
        while let Some(piece) = self.pieces.get(self.seen_pieces)
            && let Some(rest) = self.seen_of_piece.checked_sub(piece.len())
            && rest > 0
        {
            self.seen_pieces = self.seen_pieces.saturating_add(1);
            self.seen_of_piece = rest;
        }
    }

    /// Takes the first `to` bytes off; what stands before `from` is lost.
    fn cut(&mut self, from: usize, to: usize) -> Value {
        let mut value = match self.pieces.front_mut() {
            Some(first) if first.len() >= to => {
                self.is_rest = true;
                first.split_to(to)
            }
            _ => {
                let mut value = BytesMut::with_capacity(to);
                while let Some(first) = self.pieces.front_mut()
                    && value.len() < to
                {
                    let len = first.len().min(to.saturating_sub(value.len()));
                    value.extend_from_slice(&first.split_to(len));
                    self.is_rest = true;
                    if first.is_empty() {
                        self.pieces.pop_front();
                        self.is_rest = false;
                    }
                }
                value
            }
        };
        if self.pieces.front().is_some_and(BytesMut::is_empty) {
            self.pieces.pop_front();
            self.is_rest = false;
        }
        self.seek(0);
        value.advance(from.min(value.len()));
        Value(value)
    }

    /// Copies what a value has left of its piece, so that the rest of that is free.
    fn compact(&mut self) {
        if std::mem::take(&mut self.is_rest)
            && let Some(first) = self.pieces.front_mut()
        {
            *first = BytesMut::from(&first[..]);
        }
    }
}

/// Room at the end of a piece.
fn spare(piece: &BytesMut) -> usize {
    piece.capacity().saturating_sub(piece.len())
}

#[cfg(test)]
#[allow(clippy::indexing_slicing, clippy::arithmetic_side_effects, clippy::expect_used, reason = "tests")]
mod tests {
    use super::*;

    fn all(values: &mut Values) -> Vec<String> {
        std::iter::from_fn(|| values.next(false).expect("well-formed"))
            .map(|value| String::from_utf8(value.text().to_vec()).expect("text"))
            .collect()
    }

    #[test]
    fn values_come_in_pieces() {
        let text = br#" {"a":1} 12 {"b":"}"}"#;
        for step in 1..=text.len() {
            let mut values = Values::new(100);
            let mut found = Vec::new();
            for piece in text.chunks(step) {
                values.push(piece);
                found.extend(all(&mut values));
            }
            assert_eq!(found, [r#"{"a":1}"#, "12", r#"{"b":"}"}"#], "by {step}");
            assert_eq!(values.next(true), Ok(None));
        }
        let mut values = Values::new(100);
        values.push(&[b' '; 1000]);
        assert_eq!((values.next(false), values.held_bytes()), (Ok(None), 0), "blanks are not kept");
        values.push(format!("\"{}", "x".repeat(100)).as_bytes());
        assert!(values.next(false).is_err_and(|text| text.contains("longer than 100 bytes")));
        let mut values = Values::new(100);
        values.push(b" 12");
        assert_eq!(values.next(true), Ok(Some(Value::unchecked(b"12"))));
    }

    #[test]
    fn what_is_held_is_known_before_it_is_taken() {
        let mut values = Values::new(usize::MAX);
        values.push(b"{\"x\":\"");
        for len in [1, 10, 70_000, 300_000, 16_384, 16_384] {
            let before = values.held_bytes();
            let growth = values.growth_bytes(len);
            values.push(&vec![b'x'; len]);
            assert_eq!(values.next(false), Ok(None));
            assert_eq!(values.held_bytes(), before + growth, "{len}");
        }
        // A value out of many pieces, and what is behind it keeps none of them.
        values.push(b"\"} [");
        let value = values.next(false).expect("well-formed").expect("a value");
        let value = value.text();
        assert_eq!((value.len(), &value[value.len() - 4..]), (6 + 402_779 + 2, &b"xx\"}"[..]));
        assert_eq!(values.next(false), Ok(None));
        assert!(values.held_bytes() < 64, "{}", values.held_bytes());
        values.push(b"1,2] 3 ");
        assert_eq!(all(&mut values), ["[1,2]", "3"]);
    }
}

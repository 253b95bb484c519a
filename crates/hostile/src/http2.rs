//! Frames of HTTP/2, valid and invalid.

use crate::choices::Choices;

pub(crate) const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
pub(crate) const DATA: u8 = 0;
pub(crate) const HEADERS: u8 = 1;
pub(crate) const RESET: u8 = 3;
pub(crate) const SETTINGS: u8 = 4;
pub(crate) const PING: u8 = 6;
pub(crate) const WINDOW_UPDATE: u8 = 8;
pub(crate) const CONTINUATION: u8 = 9;
pub(crate) const END_STREAM: u8 = 1;
pub(crate) const END_HEADERS: u8 = 4;

pub(crate) fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let mut out = (payload.len() as u32).to_be_bytes()[1..].to_vec();
    out.extend([kind, flags]);
    out.extend(stream.to_be_bytes());
    out.extend(payload);
    out
}

/// Messages longer than a frame may be come in several.
pub(crate) fn data(stream: u32, bytes: &[u8], ends: bool) -> Vec<u8> {
    let mut parts = bytes.chunks(16_384).peekable();
    let mut out = Vec::new();
    while let Some(part) = parts.next() {
        out.extend(frame(DATA, if ends && parts.peek().is_none() { END_STREAM } else { 0 }, stream, part));
    }
    if bytes.is_empty() && ends {
        out.extend(frame(DATA, END_STREAM, stream, b""));
    }
    out
}

/// An integer as HPACK has it, behind `first` whose last `bits` bits are free.
fn put_integer(first: u8, bits: u8, number: usize, to: &mut Vec<u8>) {
    let largest = (1_usize << bits) - 1;
    if number < largest {
        return to.push(first | number as u8);
    }
    to.push(first | largest as u8);
    let mut rest = number - largest;
    while rest >= 0x80 {
        to.push(rest as u8 | 0x80);
        rest >>= 7;
    }
    to.push(rest as u8);
}

/// A header block of literals; some of them are kept in the table.
pub(crate) fn block<'a>(fields: impl IntoIterator<Item = (&'a [u8], &'a [u8])>, choices: &mut Choices<'_>) -> Vec<u8> {
    let mut out = Vec::new();
    for (name, value) in fields {
        out.push(choices.pick(&[0, 0x10, 0x40, 0x40]));
        for text in [name, value] {
            put_integer(0, 7, text.len(), &mut out);
            out.extend(text);
        }
    }
    out
}

/// The headers of a call, in one frame or several.
pub(crate) fn headers(stream: u32, block: &[u8], ends: bool, choices: &mut Choices<'_>) -> Vec<u8> {
    let end = if ends { END_STREAM } else { 0 };
    if !choices.chance(16) {
        return frame(HEADERS, END_HEADERS | end, stream, block);
    }
    let (first, rest) = block.split_at(choices.below(block.len() + 1));
    [frame(HEADERS, end, stream, first), frame(CONTINUATION, END_HEADERS, stream, rest)].concat()
}

/// Any frame.
pub(crate) fn any(stream: u32, choices: &mut Choices<'_>) -> Vec<u8> {
    let kind = choices.byte() % 12;
    let count = match (kind, choices.byte() % 4) {
        (PING, 0..=2) => 8,
        (RESET | WINDOW_UPDATE, 0..=2) => 4,
        (SETTINGS, 0..=2) => 6 * choices.below(5),
        _ => choices.below(40),
    };
    let payload = choices.take(count).to_vec();
    let mut bytes = frame(kind, choices.byte(), choices.pick(&[stream, stream, 0, 1, stream + 2, u32::MAX]), &payload);
    if choices.chance(16) {
        bytes[2] ^= choices.byte();
    }
    bytes.repeat(1 << (choices.byte() % 16).saturating_sub(8))
}

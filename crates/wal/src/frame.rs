//! One record on disk: a length word, `walpb.Record`, zeros up to a multiple of 8.
//!
//! Reading accepts only what writing produces, bit for bit: the running checksum covers the data alone, so a damaged kind,
//! length or padding would otherwise go unseen.

use api::varint;

/// Bytes of the length word.
pub(crate) const WORD_BYTES: usize = 8;

/// Records begin at multiples of it.
pub(crate) const ALIGN_BYTES: usize = 8;

/// What a record is (`walpb.Record.type`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Kind {
    /// The member's and the cluster's id; second record of each segment.
    Metadata = 1,
    /// `raftpb.Entry`.
    Entry = 2,
    /// `raftpb.HardState`.
    HardState = 3,
    /// The running checksum, not covered by itself. Begins a batch.
    Crc = 4,
    /// `walpb.Snapshot`.
    Snapshot = 5,
}

impl Kind {
    fn of(byte: u8) -> Option<Kind> {
        Some(match byte {
            1 => Kind::Metadata,
            2 => Kind::Entry,
            3 => Kind::HardState,
            4 => Kind::Crc,
            5 => Kind::Snapshot,
            _ => return None,
        })
    }
}

/// A record as it stands in the file; the checksum is not checked yet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Frame<'a> {
    pub(crate) kind: Kind,
    pub(crate) crc: u32,
    pub(crate) data: &'a [u8],
    /// Offset after the padding.
    pub(crate) end: usize,
}

/// Appends a record whose data is the concatenation of `parts`. Returns the offset of the data in `out`.
pub(crate) fn push(out: &mut Vec<u8>, kind: Kind, crc: u32, parts: &[&[u8]]) -> usize {
    let start = out.len();
    let len: usize = parts.iter().map(|part| part.len()).sum();
    out.extend_from_slice(&[0; WORD_BYTES]);
    out.extend_from_slice(&[0x08, kind as u8, 0x10]);
    varint::put(out, crc.into());
    out.push(0x1a);
    varint::put(out, len as u64);
    let data_offset = out.len();
    for part in parts {
        out.extend_from_slice(part);
    }
    let Some((word_place, record)) = out.get_mut(start..).and_then(|pushed| pushed.split_first_chunk_mut()) else {
        unreachable!("a word was just pushed");
    };
    let record_bytes = record.len() as u64;
    let pad = padding(record_bytes);
    *word_place = word(record_bytes, pad).to_le_bytes();
    out.extend(std::iter::repeat_n(0, pad));
    data_offset
}

/// Reads the record at `offset`, which must end within `bytes`. The error says what is wrong with it.
pub(crate) fn read(bytes: &[u8], offset: usize) -> Result<Frame<'_>, &'static str> {
    let Some((word_bytes, rest)) = bytes.get(offset..).and_then(|rest| rest.split_first_chunk::<WORD_BYTES>()) else {
        return Err("a record reaches beyond its batch");
    };
    let found = u64::from_le_bytes(*word_bytes);
    if found == 0 {
        return Err("a record is missing");
    }
    let record_bytes = found & 0x00ff_ffff_ffff_ffff;
    let pad = padding(record_bytes);
    if found != word(record_bytes, pad) {
        return Err("a record's length word is malformed");
    }
    let split = usize::try_from(record_bytes).ok().and_then(|len| rest.split_at_checked(len));
    let Some((record, (padding, behind))) =
        split.and_then(|(record, rest)| Some((record, rest.split_at_checked(pad)?)))
    else {
        return Err("a record reaches beyond its batch");
    };
    if padding.iter().any(|byte| *byte != 0) {
        return Err("a record's padding is not zero");
    }
    let (kind, crc, data) = parse(record).ok_or("a record is malformed")?;
    Ok(Frame { kind, crc, data, end: bytes.len().saturating_sub(behind.len()) })
}

/// Whether the file ends within the record at `offset`, which takes `len_max` bytes at most by its length word, if that is there.
pub(crate) fn reaches_beyond(bytes: &[u8], offset: usize, len_max: usize) -> bool {
    let rest = bytes.get(offset..).unwrap_or_default();
    let Some((word_bytes, _)) = rest.split_first_chunk::<WORD_BYTES>() else { return true };
    let found = u64::from_le_bytes(*word_bytes);
    let record_bytes = found & 0x00ff_ffff_ffff_ffff;
    let pad = padding(record_bytes);
    let len = record_bytes.saturating_add(WORD_BYTES as u64).saturating_add(pad as u64);
    found == word(record_bytes, pad) && len <= len_max as u64 && len > rest.len() as u64
}

fn parse(record: &[u8]) -> Option<(Kind, u32, &[u8])> {
    let [0x08, kind, 0x10, rest @ ..] = record else { return None };
    let kind = Kind::of(*kind)?;
    let mut rest = rest;
    let crc = varint::take_shortest(&mut rest)?;
    let mut data = rest.strip_prefix(&[0x1a])?;
    let len = varint::take_shortest(&mut data)?;
    if len != data.len() as u64 {
        return None;
    }
    Some((kind, u32::try_from(crc).ok()?, data))
}

fn padding(record_bytes: u64) -> usize {
    (record_bytes as usize).wrapping_neg() % ALIGN_BYTES
}

fn word(record_bytes: u64, pad: usize) -> u64 {
    if pad == 0 { record_bytes } else { record_bytes | (0x80 | pad as u64) << 56 }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn frames_round_trip_and_every_changed_bit_shows(crc: u32, data: Vec<u8>, bit: usize) {
            let mut bytes = vec![0; 8];
            push(&mut bytes, Kind::Entry, crc, &[&data[..data.len() / 2], &data[data.len() / 2..]]);
            prop_assert_eq!(bytes.len() % ALIGN_BYTES, 0);
            let frame = read(&bytes, 8).unwrap();
            prop_assert_eq!((frame.kind, frame.crc, frame.data, frame.end), (Kind::Entry, crc, &data[..], bytes.len()));
            let bit = 64 + bit % ((bytes.len() - 8) * 8);
            let mut changed = bytes.clone();
            changed[bit / 8] ^= 1 << (bit % 8);
            if let Ok(other) = read(&changed, 8) {
                prop_assert!((other.kind, other.crc, other.data) != (Kind::Entry, crc, &data[..]));
            }
        }

        #[test]
        fn any_bytes_can_be_read(bytes: Vec<u8>, offset in 0usize..64) {
            let _ = read(&bytes, offset);
        }
    }

    #[test]
    fn the_framing_is_etcds() {
        let mut bytes = Vec::new();
        push(&mut bytes, Kind::HardState, 300, &[&[8, 1, 16, 2, 24, 3]]);
        assert_eq!(bytes, [13, 0, 0, 0, 0, 0, 0, 0x83, 8, 3, 16, 0xac, 2, 26, 6, 8, 1, 16, 2, 24, 3, 0, 0, 0]);
    }

    #[test]
    fn longer_forms_of_a_number_are_refused() {
        assert!(parse(&[8, 3, 16, 1, 26, 0]).is_some());
        assert!(parse(&[8, 3, 16, 0x81, 0, 26, 0]).is_none());
        assert!(parse(&[8, 3, 16, 1, 26, 0x80, 0]).is_none());
    }
}

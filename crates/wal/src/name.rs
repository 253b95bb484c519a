//! Names of segments.

use std::fmt;

/// `<sequence>-<first index>.wal`, both as 16 hexadecimal digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct SegmentName {
    /// Counts segments from 0.
    pub(crate) sequence: u64,
    /// One more than the index of the last entry before the segment; 0 for the first one.
    pub(crate) first_index: u64,
}

/// Ending of files that are not part of the log yet, or no longer.
pub(crate) const TEMPORARY: &str = ".tmp";

/// Larger numbers of segments or entries are refused, so that adding one never overflows.
const NUMBER_MAX: u64 = u64::MAX / 2;

impl SegmentName {
    /// The name of the segment that follows this one, after the entry `last_index`. A name that was read leaves as many again.
    pub(crate) fn next(self, last_index: u64) -> SegmentName {
        SegmentName { sequence: self.sequence.saturating_add(1), first_index: last_index.saturating_add(1) }
    }

    /// Reads a file's name; `None` when it is not a segment's.
    pub(crate) fn parse(name: &str) -> Option<SegmentName> {
        let (sequence, first_index) = name.strip_suffix(".wal")?.split_once('-')?;
        let name = SegmentName { sequence: hex(sequence)?, first_index: hex(first_index)? };
        (name.sequence < NUMBER_MAX && name.first_index < NUMBER_MAX).then_some(name)
    }
}

fn hex(digits: &str) -> Option<u64> {
    let plain = digits.len() == 16 && digits.bytes().all(|digit| matches!(digit, b'0'..=b'9' | b'a'..=b'f'));
    if plain { u64::from_str_radix(digits, 16).ok() } else { None }
}

impl fmt::Display for SegmentName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}-{:016x}.wal", self.sequence, self.first_index)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_round_trip_and_others_are_not_taken() {
        let name = SegmentName { sequence: 0x1f, first_index: NUMBER_MAX - 1 };
        assert_eq!(name.to_string(), "000000000000001f-7ffffffffffffffe.wal");
        assert_eq!(SegmentName::parse(&name.to_string()), Some(name));
        for other in [
            "0.tmp",
            "1f-1.wal",
            "000000000000001F-0000000000000000.wal",
            "000000000000001f-0000000000000000.broken",
            "ffffffffffffffff-0000000000000000.wal",
            "0000000000000001-ffffffffffffffff.wal",
        ] {
            assert_eq!(SegmentName::parse(other), None);
        }
    }
}

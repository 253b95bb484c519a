//! Ranges of keys, merged so that no two touch.

use api::KeyRange;

/// Spans in key order, with a gap between each and the next.
#[derive(Debug, Default)]
pub(super) struct Ranges {
    /// Starts and ends, one behind the other.
    bytes: Box<[u8]>,
    spans: Box<[Span]>,
}

#[derive(Clone, Copy, Debug)]
struct Span {
    start: u32,
    end: u32,
    /// Where the end's bytes end; a span without an upper end has none.
    behind: Option<std::num::NonZeroU32>,
}

impl Ranges {
    /// Merges ranges. Those in which no key can be are left out.
    pub(super) fn merge<'a>(ranges: impl Iterator<Item = KeyRange<'a>>) -> Ranges {
        let mut all: Vec<(&[u8], End)> =
            ranges.filter(|range| !range.is_empty()).map(|range| (range.start(), End::of(range))).collect();
        all.sort_unstable_by(|a, b| a.0.cmp(b.0));
        let mut merged: Vec<(&[u8], End)> = Vec::with_capacity(all.len());
        for (start, end) in all {
            match merged.last_mut() {
                Some((_, before)) if before.reaches(start) => {
                    if end > *before {
                        *before = end;
                    }
                }
                _ => merged.push((start, end)),
            }
        }
        let mut bytes = Vec::new();
        let mut spans = Vec::with_capacity(merged.len());
        for (start, end) in merged {
            let from = bytes.len() as u32;
            bytes.extend_from_slice(start);
            let middle = bytes.len() as u32;
            let behind = match end {
                End::Key(end) => {
                    bytes.extend_from_slice(&end);
                    std::num::NonZeroU32::new(bytes.len() as u32)
                }
                End::None => None,
            };
            spans.push(Span { start: from, end: middle, behind });
        }
        assert!(u32::try_from(bytes.len()).is_ok(), "a user's permissions are far smaller than 4 GiB");
        Ranges { bytes: bytes.into(), spans: spans.into() }
    }

    fn start(&self, span: Span) -> &[u8] {
        &self.bytes[span.start as usize..span.end as usize]
    }

    fn end(&self, span: Span) -> Option<&[u8]> {
        span.behind.map(|behind| &self.bytes[span.end as usize..behind.get() as usize])
    }

    /// Whether every key of `range` is in one of the spans. A range without keys is inside if its start is.
    pub(super) fn covers(&self, range: KeyRange<'_>) -> bool {
        let start = range.start();
        let after = self.spans.partition_point(|span| self.start(*span) <= start);
        let Some(span) = after.checked_sub(1).map(|at| self.spans[at]) else { return false };
        let Some(end) = self.end(span) else { return true };
        match range {
            KeyRange::One(key) => key < end,
            KeyRange::Span(from, to) => from < end && to <= end,
            KeyRange::From(_) => false,
        }
    }
}

/// The end of a span, the first key behind it.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum End {
    Key(Vec<u8>),
    /// Greater than any key.
    None,
}

impl End {
    fn of(range: KeyRange<'_>) -> End {
        match range {
            KeyRange::One(key) => End::Key([key, &[0]].concat()),
            KeyRange::Span(_, end) => End::Key(end.to_vec()),
            KeyRange::From(_) => End::None,
        }
    }

    /// Whether a span that begins at `start` overlaps one with this end or touches it.
    fn reaches(&self, start: &[u8]) -> bool {
        match self {
            End::Key(end) => start <= &end[..],
            End::None => true,
        }
    }
}

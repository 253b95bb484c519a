//! Ranges of keys, merged so that no two touch.

use crate::state::Reach;
use api::KeyRange;

/// Spans in key order, with a gap between each and the next.
#[derive(Debug, Default)]
pub(super) struct Ranges {
    /// Starts and ends, one after the other.
    bytes: Box<[u8]>,
    spans: Box<[Span]>,
    /// Bytes with which all starts begin.
    prefix: usize,
    /// The first bytes of each start after the prefix, see [`head`]: a search compares numbers that lie side by side, and rarely keys.
    heads: Box<[u64]>,
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
        // Their places are 32 bits wide.
        Ranges::merge_within(ranges, u32::MAX as usize)
    }

    /// The same, and those left out from which on all take more than `bytes_max`: what does not fit is not permitted.
    fn merge_within<'a>(ranges: impl Iterator<Item = KeyRange<'a>>, bytes_max: usize) -> Ranges {
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
            if bytes.len().saturating_add(start.len()).saturating_add(end.bytes()) > bytes_max {
                break;
            }
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
        let mut ranges = Ranges { bytes: bytes.into(), spans: spans.into(), prefix: 0, heads: Box::default() };
        if let [first, .., last] = ranges.spans[..] {
            // They are in order, so what the first and the last share all of them do.
            let (first, last) = (ranges.start(first), ranges.start(last));
            ranges.prefix = first.iter().zip(last).take_while(|(a, b)| a == b).count();
        }
        ranges.heads = ranges.spans.iter().map(|span| head(&ranges.start(*span)[ranges.prefix..])).collect();
        ranges
    }

    /// How many spans there are.
    pub(super) fn count(&self) -> usize {
        self.spans.len()
    }

    /// How many spans start at `key` or before.
    fn starts_up_to(&self, key: &[u8]) -> usize {
        let Some(first) = self.spans.first() else { return 0 };
        let prefix = &self.start(*first)[..self.prefix];
        let Some(rest) = key.strip_prefix(prefix) else { return if key < prefix { 0 } else { self.spans.len() } };
        let wanted = head(rest);
        let less = self.heads.partition_point(|head| *head < wanted);
        let equal = self.heads[less..].partition_point(|head| *head == wanted);
        less + self.spans[less..less + equal].partition_point(|span| self.start(*span) <= key)
    }

    fn start(&self, span: Span) -> &[u8] {
        &self.bytes[span.start as usize..span.end as usize]
    }

    fn end(&self, span: Span) -> Option<&[u8]> {
        span.behind.map(|behind| &self.bytes[span.end as usize..behind.get() as usize])
    }

    /// How far the span goes that `key` lies in.
    pub(super) fn reach(&self, key: &[u8]) -> Reach<'_> {
        let Some(span) = self.starts_up_to(key).checked_sub(1).map(|at| self.spans[at]) else { return Reach::Nowhere };
        match self.end(span) {
            Some(end) if key < end => Reach::Until(end),
            Some(_) => Reach::Nowhere,
            None => Reach::End,
        }
    }

    /// Whether every key of `range` is in one of the spans. A range without keys is inside if its start is.
    pub(super) fn covers(&self, range: KeyRange<'_>) -> bool {
        let start = range.start();
        let Some(span) = self.starts_up_to(start).checked_sub(1).map(|at| self.spans[at]) else { return false };
        let Some(end) = self.end(span) else { return true };
        match range {
            KeyRange::One(key) => key < end,
            KeyRange::Span(from, to) => from < end && to <= end,
            KeyRange::From(_) => false,
        }
    }
}

/// The first eight bytes as a number, in the order of keys but for those that it cannot tell apart.
fn head(key: &[u8]) -> u64 {
    let mut head = [0; 8];
    let len = key.len().min(head.len());
    head[..len].copy_from_slice(&key[..len]);
    u64::from_be_bytes(head)
}

/// The end of a span, the first key after it.
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

    fn bytes(&self) -> usize {
        match self {
            End::Key(end) => end.len(),
            End::None => 0,
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

#[cfg(test)]
mod tests {
    use super::*;
    use disk::sim::Random;

    /// Keys that share long beginnings, end early, and hold zeros: what heads cannot tell apart.
    fn key(random: &mut Random) -> Vec<u8> {
        let mut key = b"/registry/".to_vec();
        key.truncate(if random.chance(10) { random.below(10) as usize } else { 10 });
        for _ in 0..random.below(14) {
            key.push(b"\0\0\0aab\xff"[random.below(7) as usize]);
        }
        key
    }

    #[test]
    fn what_does_not_fit_is_not_permitted() {
        let keys = ["a", "b", "d", "f"];
        let ranges = || keys.iter().map(|key| KeyRange::One(key.as_bytes()));
        // A key and the next one after it: three bytes each, and "a" and "b" do not touch.
        for (bytes_max, fitting) in [(0, 0), (2, 0), (3, 1), (8, 2), (12, 4)] {
            let merged = Ranges::merge_within(ranges(), bytes_max);
            let permitted = keys.iter().filter(|key| merged.covers(KeyRange::One(key.as_bytes()))).count();
            assert_eq!(permitted, fitting, "{bytes_max} bytes");
        }
    }

    #[test]
    fn a_search_finds_what_a_look_at_all_would() {
        let mut random = Random::new(5);
        for round in 0..2_000 {
            let mut keys: Vec<Vec<u8>> = (0..random.below(30)).map(|_| key(&mut random)).collect();
            if random.chance(30) {
                // Nothing but the common beginning: the search must do without it.
                keys.retain(|key| key.starts_with(b"/registry/"));
            }
            keys.sort();
            let ranges = Ranges::merge(keys.iter().map(|key| KeyRange::One(key)));
            for _ in 0..20 {
                let wanted = if random.chance(50) && !keys.is_empty() {
                    keys[random.below(keys.len() as u64) as usize].clone()
                } else {
                    key(&mut random)
                };
                let is_one = keys.binary_search(&wanted).is_ok();
                assert_eq!(ranges.covers(KeyRange::One(&wanted)), is_one, "round {round}: {wanted:?} in {keys:?}");
                let all = ranges.spans.iter().filter(|span| ranges.start(**span) <= &wanted[..]).count();
                assert_eq!(ranges.starts_up_to(&wanted), all);
            }
        }
    }
}

//! Numbers of streams that a client has skipped. A client that opens stream 7 after stream 1 has closed 3 and 5 unopened (RFC 9113
//! section 5.1.1), and a request on one of those breaks another rule than one on a stream that has ended.

use std::collections::VecDeque;
use std::ops::RangeInclusive;

/// Gaps that are remembered. Clients leave none.
const GAPS_MAX: usize = 64;

/// The newest gaps between the streams of a connection.
#[derive(Debug, Default)]
pub(crate) struct PassedOver {
    gaps: VecDeque<RangeInclusive<u32>>,
}

impl PassedOver {
    /// Stream `next` begins, and the one before it was `last`.
    pub(crate) fn note(&mut self, last: u32, next: u32) {
        if self.gaps.len() == GAPS_MAX {
            self.gaps.pop_front();
        }
        self.gaps.push_back(last.saturating_add(1)..=next.saturating_sub(1));
    }

    /// Whether `stream` is known to be in a gap.
    pub(crate) fn contains(&self, stream: u32) -> bool {
        self.gaps.iter().any(|gap| gap.contains(&stream))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gaps_are_known_and_bounded() {
        let mut passed = PassedOver::default();
        passed.note(0, 7);
        passed.note(9, 101);
        let known = [1, 5, 7, 9, 11, 99, 101].map(|stream| passed.contains(stream));
        assert_eq!(known, [true, true, false, false, true, true, false]);
        (0..1_000).for_each(|count| passed.note(101 + 10 * count, 111 + 10 * count));
        assert_eq!(passed.gaps.len(), GAPS_MAX);
    }
}

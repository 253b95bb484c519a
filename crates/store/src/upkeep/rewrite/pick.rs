//! Which segments are worth rewriting.

use crate::log::Segment;
use std::ops::Range;
use std::sync::Arc;

/// Neighbours no larger than this share of a segment are small.
const SMALL_SHARE: u64 = 4;
/// This many small neighbours become one.
const SMALL_RUN: usize = 4;
/// On a disk that is low, a segment of which such a share would go is worth it.
const LOW_SHARE: u64 = 16;
/// Bytes that one rewrite reads at most; offsets in what it writes are 32 bits wide.
const SOURCE_BYTES_MAX: u64 = 1 << 30;

/// What rewriting a segment would copy and free.
struct Weight {
    /// Bytes of records.
    body: u64,
    /// Bytes that would be copied, as far as known.
    keep: u64,
    /// Bytes of dead puts, and of dead tombstones not known to be graves.
    dead: u64,
    /// Bytes of graves that must stay because of an earlier segment.
    buried: u64,
}

impl Weight {
    fn is_half_dead(&self) -> bool {
        (self.body - self.keep) * 2 > self.body
    }
}

/// The next run of neighbours to rewrite, if one is worth it: mostly dead ones first, from the oldest on. When the disk `is_low`, a
/// segment with a small dead share is worth it too.
pub(super) fn pick(
    order: &[Arc<Segment>],
    published: i64,
    is_low: bool,
    segment_bytes: u64,
) -> Option<Vec<Arc<Segment>>> {
    // Records of the last transactions may not be in the index yet, and would look dead.
    let ready = order.iter().take_while(|segment| segment.is_sealed() && segment.last().main <= published).count();
    let ready = &order[..ready];
    let weights = weigh(ready);
    run(&weights, is_low, segment_bytes).map(|run| ready[run].to_vec())
}

fn run(weights: &[Weight], is_low: bool, segment_bytes: u64) -> Option<Range<usize>> {
    let keep_max = if is_low { segment_bytes.min(largest(weights)) } else { segment_bytes };
    half_dead(weights, segment_bytes, keep_max)
        .or_else(|| is_low.then(|| deadest(weights)).flatten())
        .or_else(|| blocker(weights, segment_bytes))
        .or_else(|| small(weights, segment_bytes, keep_max))
}

/// Bytes that one rewrite may copy on a disk that is low: there is room for a copy of the largest segment
/// ([`Segments::needed_reserve_bytes`](crate::log::Segments::needed_reserve_bytes)). A longer run would fill the disk and begin again, for ever.
fn largest(weights: &[Weight]) -> u64 {
    weights.iter().map(|weight| weight.body).max().unwrap_or(0)
}

fn weigh(segments: &[Arc<Segment>]) -> Vec<Weight> {
    let mut blocked = false;
    let weigh = segments.iter().map(|segment| {
        let (body, live, graves) = (segment.body(), segment.live(), segment.graves());
        let dead = body.saturating_sub(live + graves);
        let buried = if blocked { graves } else { 0 };
        blocked |= dead > 0;
        Weight { body, keep: live + buried, dead, buried }
    });
    weigh.collect()
}

/// The first segment more than half of which would go, and what can join it: others like it, and small ones.
fn half_dead(weights: &[Weight], segment_bytes: u64, keep_max: u64) -> Option<Range<usize>> {
    let start = weights.iter().position(Weight::is_half_dead)?;
    let joins = |weight: &Weight| weight.is_half_dead() || weight.body <= segment_bytes / SMALL_SHARE;
    Some(start..extend(weights, start, keep_max, joins))
}

/// The segment of which most would go, and that is not little: keys deleted here and there leave no segment half dead, and a full disk
/// cannot wait for that.
fn deadest(weights: &[Weight]) -> Option<Range<usize>> {
    let goes = |weight: &Weight| weight.body - weight.keep;
    let (at, weight) = weights.iter().enumerate().max_by_key(|(_, weight)| goes(weight))?;
    (goes(weight) > 0 && goes(weight) >= weight.body / LOW_SHARE).then_some(at..at + 1)
}

/// The first segment with dead puts, when the graves after it have become many: more than a segment, and more than a quarter
/// of what is live.
fn blocker(weights: &[Weight], segment_bytes: u64) -> Option<Range<usize>> {
    let buried = weights.iter().map(|weight| weight.buried).sum::<u64>();
    let keep = weights.iter().map(|weight| weight.keep).sum::<u64>();
    if buried <= segment_bytes.max((keep - buried) / 4) {
        return None;
    }
    let at = weights.iter().position(|weight| weight.dead > 0)?;
    Some(at..at + 1)
}

/// The first run of small neighbours.
fn small(weights: &[Weight], segment_bytes: u64, keep_max: u64) -> Option<Range<usize>> {
    let is_small = |weight: &Weight| weight.body <= segment_bytes / SMALL_SHARE;
    let mut start = 0;
    while start < weights.len() {
        let end = if is_small(&weights[start]) { extend(weights, start, keep_max, is_small) } else { start };
        if end - start >= SMALL_RUN {
            return Some(start..end);
        }
        start = end.max(start + 1);
    }
    None
}

/// The end of the run from `start` on of which no more than so much is kept; the first of it is there in any case.
fn extend(weights: &[Weight], start: usize, keep_max: u64, joins: impl Fn(&Weight) -> bool) -> usize {
    let (mut keep, mut body) = (0, 0);
    let fits = |weight: &&Weight| {
        keep += weight.keep;
        body += weight.body;
        keep <= keep_max && body <= SOURCE_BYTES_MAX && joins(weight)
    };
    start + weights[start..].iter().take_while(fits).count().max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn weight(body: u64, live: u64) -> Weight {
        Weight { body, keep: live, dead: body - live, buried: 0 }
    }

    #[test]
    fn a_low_disk_has_room_for_one_copy() {
        let behind = [weight(1000, 400), weight(1000, 400), weight(1000, 400), weight(1000, 400)];
        assert_eq!(run(&behind, false, 4000), Some(0..4));
        assert_eq!(run(&behind, true, 4000), Some(0..2), "what is kept is no more than the largest of them");
        let (one, small) = (weight(1000, 1000), || weight(400, 400));
        let few = [one, small(), small(), small(), small()];
        assert_eq!(run(&few, false, 4000), Some(0..5));
        assert_eq!(run(&few, true, 4000), None, "four of them do not fit");
    }

    #[test]
    fn a_low_disk_takes_what_gives_most() {
        let spread = [weight(1000, 900), weight(1000, 850), weight(1000, 870)];
        assert_eq!(half_dead(&spread, 1000, 1000), None);
        assert_eq!(deadest(&spread), Some(1..2));
        assert_eq!(deadest(&[weight(1600, 1500), weight(1000, 910)]), Some(0..1), "bytes count, not shares");
        assert_eq!(deadest(&[weight(1000, 1000), weight(1000, 950)]), None, "too little to be copied for");
        assert_eq!(deadest(&[weight(0, 0)]), None);
        assert_eq!(deadest(&[]), None);
    }
}

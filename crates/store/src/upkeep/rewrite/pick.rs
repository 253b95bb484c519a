//! Which segments are worth rewriting.

use super::Space;
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

/// What is known of a segment.
#[derive(Clone, Copy)]
struct Weight {
    /// Bytes of records.
    body: u64,
    /// Bytes of those that are live.
    live: u64,
    /// Bytes of dead tombstones.
    graves: u64,
    /// Whether an earlier segment has a dead put, which the graves must outlast.
    is_blocked: bool,
}

impl Weight {
    /// Bytes of dead puts.
    fn dead(&self) -> u64 {
        self.body - self.live - self.graves
    }

    /// Bytes that a copy keeps if the graves have to stay, or not.
    fn keep(&self, keeps_graves: bool) -> u64 {
        self.live + if keeps_graves { self.graves } else { 0 }
    }

    /// Bytes of graves that cannot go before another segment is rewritten.
    fn buried(&self) -> u64 {
        if self.is_blocked { self.graves } else { 0 }
    }

    /// Whether a copy that begins with this segment would leave more than half of it out.
    fn is_half_dead(&self) -> bool {
        self.goes(self.is_blocked) * 2 > self.body
    }

    fn goes(&self, keeps_graves: bool) -> u64 {
        self.body - self.keep(keeps_graves)
    }
}

/// The next run of neighbours to rewrite, if one is worth it: mostly dead ones first, from the oldest on. When the disk is low, a
/// segment with a small dead share is worth it too. What there is no room to copy is left alone.
pub(super) fn pick(
    order: &[Arc<Segment>],
    published: i64,
    space: Space,
    segment_bytes: u64,
) -> Option<Vec<Arc<Segment>>> {
    // Records of the last transactions may not be in the index yet, and would look dead.
    let ready = order.iter().take_while(|segment| segment.is_sealed() && segment.last().main <= published).count();
    let ready = &order[..ready];
    let weights = weigh(ready);
    run(&weights, space, segment_bytes).map(|run| ready[run].to_vec())
}

fn run(weights: &[Weight], space: Space, segment_bytes: u64) -> Option<Range<usize>> {
    let Space { is_low, copy_max_bytes } = space;
    let run_max = segment_bytes.min(copy_max_bytes);
    let keep_max = if is_low { run_max.min(largest(weights)) } else { run_max };
    let fits = |weight: &Weight| weight.keep(weight.is_blocked) <= copy_max_bytes;
    half_dead(weights, segment_bytes, keep_max, fits)
        .or_else(|| is_low.then(|| deadest(weights, fits)).flatten())
        .or_else(|| blocker(weights, segment_bytes, fits))
        .or_else(|| small(weights, segment_bytes, keep_max))
}

/// Bytes that one rewrite may copy on a disk that is low and does not say how much is free: there is room for a copy of the largest segment
/// ([`Segments::needed_reserve_bytes`](crate::log::Segments::needed_reserve_bytes)). A longer run would fill the disk and begin again, for ever.
fn largest(weights: &[Weight]) -> u64 {
    weights.iter().map(|weight| weight.body).max().unwrap_or(0)
}

fn weigh(segments: &[Arc<Segment>]) -> Vec<Weight> {
    let mut is_blocked = false;
    let weigh = segments.iter().map(|segment| {
        let (body, live, graves) = (segment.body(), segment.live(), segment.graves());
        // A dead put that is not counted would come back with the next start once its tombstone is dropped.
        assert!(live + graves <= body, "segment {:x} has {live} live bytes and {graves} of graves", segment.id());
        let weight = Weight { body, live, graves, is_blocked };
        is_blocked |= weight.dead() > 0;
        weight
    });
    weigh.collect()
}

/// The first segment more than half of which would go, and what can join it: others like it, and small ones.
fn half_dead(
    weights: &[Weight],
    segment_bytes: u64,
    keep_max: u64,
    fits: impl Fn(&Weight) -> bool,
) -> Option<Range<usize>> {
    let start = weights.iter().position(|weight| weight.is_half_dead() && fits(weight))?;
    // Dead puts of the run itself go with it.
    let keeps_graves = weights[start].is_blocked;
    let joins =
        |weight: &Weight| weight.goes(keeps_graves) * 2 > weight.body || weight.body <= segment_bytes / SMALL_SHARE;
    Some(start..extend(weights, start, keep_max, joins))
}

/// The segment of which most would go, and that is not little: keys deleted here and there leave no segment half dead, and a full disk
/// cannot wait for that.
fn deadest(weights: &[Weight], fits: impl Fn(&Weight) -> bool) -> Option<Range<usize>> {
    let goes = |weight: &Weight| weight.goes(weight.is_blocked);
    let fitting = weights.iter().enumerate().filter(|(_, weight)| fits(weight));
    let (at, weight) = fitting.max_by_key(|(_, weight)| goes(weight))?;
    (goes(weight) > 0 && goes(weight) >= weight.body / LOW_SHARE).then_some(at..at + 1)
}

/// The first segment with dead puts, when the graves after it have become many: more than a segment, and more than a quarter
/// of what is live.
fn blocker(weights: &[Weight], segment_bytes: u64, fits: impl Fn(&Weight) -> bool) -> Option<Range<usize>> {
    let buried = weights.iter().map(Weight::buried).sum::<u64>();
    let live = weights.iter().map(|weight| weight.live).sum::<u64>();
    if buried <= segment_bytes.max(live / 4) {
        return None;
    }
    let at = weights.iter().position(|weight| weight.dead() > 0)?;
    fits(&weights[at]).then_some(at..at + 1)
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

/// The end of the run from `start` on of which no more than so much is kept; the first of it is there in any case. All graves count: when a
/// compaction drops something during the copy, they stay.
fn extend(weights: &[Weight], start: usize, keep_max: u64, joins: impl Fn(&Weight) -> bool) -> usize {
    let (mut keep, mut body) = (0, 0);
    let fits = |weight: &&Weight| {
        keep += weight.keep(true);
        body += weight.body;
        keep <= keep_max && body <= SOURCE_BYTES_MAX && joins(weight)
    };
    start + weights[start..].iter().take_while(fits).count().max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn weight(body: u64, live: u64) -> Weight {
        Weight { body, live, graves: 0, is_blocked: false }
    }

    const AMPLE: Space = Space { is_low: false, copy_max_bytes: u64::MAX };
    const LOW: Space = Space { is_low: true, copy_max_bytes: u64::MAX };

    #[test]
    fn a_low_disk_has_room_for_one_copy() {
        let behind = [weight(1000, 400), weight(1000, 400), weight(1000, 400), weight(1000, 400)];
        assert_eq!(run(&behind, AMPLE, 4000), Some(0..4));
        assert_eq!(run(&behind, LOW, 4000), Some(0..2), "what is kept is no more than the largest of them");
        let (one, small) = (weight(1000, 1000), || weight(400, 400));
        let few = [one, small(), small(), small(), small()];
        assert_eq!(run(&few, AMPLE, 4000), Some(0..5));
        assert_eq!(run(&few, LOW, 4000), None, "four of them do not fit");
    }

    #[test]
    fn graves_that_have_to_stay_count() {
        let pairs = Weight { graves: 400, is_blocked: true, ..weight(1000, 0) };
        let first = Weight { is_blocked: false, ..weight(1000, 990) };
        assert_eq!(run(&[first, pairs, pairs, pairs], AMPLE, 1000), Some(1..3), "no more than a segment");
        let mostly = Weight { graves: 600, ..pairs };
        assert_eq!(run(&[first, mostly], AMPLE, 1000), None, "a copy of it gives little back");
        assert_eq!(run(&[first, mostly, mostly], AMPLE, 1000), Some(0..1), "the first has them go");
        let free = Weight { is_blocked: false, ..mostly };
        assert_eq!(run(&[free, mostly], AMPLE, 2000), Some(0..2), "what the run itself has dead goes with it");
    }

    #[test]
    fn what_there_is_no_room_for_is_left_alone() {
        let weights = [weight(1000, 450), weight(1000, 300), weight(1000, 900)];
        let run = |is_low, copy_max_bytes| run(&weights, Space { is_low, copy_max_bytes }, 1000);
        assert_eq!(run(true, 1000), Some(0..2));
        assert_eq!(run(true, 450), Some(0..1));
        assert_eq!(run(true, 449), Some(1..2));
        assert_eq!(run(true, 299), None);
        assert_eq!(run(false, 449), Some(1..2));
    }

    #[test]
    fn a_low_disk_takes_what_gives_most() {
        let spread = [weight(1000, 900), weight(1000, 850), weight(1000, 870)];
        assert_eq!(half_dead(&spread, 1000, 1000, |_| true), None);
        assert_eq!(deadest(&spread, |_| true), Some(1..2));
        assert_eq!(deadest(&[weight(1600, 1500), weight(1000, 910)], |_| true), Some(0..1), "bytes count, not shares");
        assert_eq!(deadest(&[weight(1000, 1000), weight(1000, 950)], |_| true), None, "too little to be copied for");
        assert_eq!(deadest(&[weight(0, 0)], |_| true), None);
        assert_eq!(deadest(&[], |_| true), None);
    }
}

//! Histograms whose buckets double, in etcd's sizes.

use super::page::Page;
use super::shard::{SHARDS, own};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Nanoseconds in a second: what durations are counted in and shown in.
const SECOND: u64 = 1_000_000_000;

/// A histogram of `BUCKETS` buckets, the first up to `FIRST`, each twice as wide as the one before. Values are counted in whole
/// numbers and shown divided by `UNIT`; durations are counted in nanoseconds. By default fourteen buckets from 1 ms on: what etcd
/// uses for disk operations.
///
/// Every thread writes to counters of its own without a locked instruction; reading adds them up.
pub struct Histogram<const BUCKETS: usize = 14, const FIRST: u64 = 1_000_000, const UNIT: u64 = SECOND> {
    shards: [OnceLock<Box<Shard<BUCKETS>>>; SHARDS],
}

struct Shard<const BUCKETS: usize> {
    buckets: [AtomicU64; BUCKETS],
    /// Beyond the last bucket.
    beyond: AtomicU64,
    sum: AtomicU64,
}

/// What was counted, at one time.
struct Counts<const BUCKETS: usize> {
    buckets: [u64; BUCKETS],
    total: u64,
    sum: u64,
}

impl<const BUCKETS: usize, const FIRST: u64, const UNIT: u64> Default for Histogram<BUCKETS, FIRST, UNIT> {
    fn default() -> Self {
        Histogram { shards: [const { OnceLock::new() }; SHARDS] }
    }
}

impl<const BUCKETS: usize, const FIRST: u64, const UNIT: u64> Histogram<BUCKETS, FIRST, UNIT> {
    /// Counts one duration.
    pub fn observe(&self, took: Duration) {
        self.count(took.as_nanos() as u64, 1);
    }

    /// Counts one duration as many times.
    pub fn observe_many(&self, took: Duration, times: u64) {
        self.count(took.as_nanos() as u64, times);
    }

    /// Counts one value.
    pub fn count(&self, value: u64, times: u64) {
        let (number, is_own) = own();
        let shard = self.shards[number].get_or_init(|| {
            Box::new(Shard {
                buckets: [const { AtomicU64::new(0) }; BUCKETS],
                beyond: AtomicU64::new(0),
                sum: AtomicU64::new(0),
            })
        });
        let counter = shard.buckets.get(Self::bucket(value)).unwrap_or(&shard.beyond);
        for (counter, add) in [(counter, times), (&shard.sum, value.wrapping_mul(times))] {
            if is_own {
                // One writer: no locked instruction.
                counter.store(counter.load(Ordering::Relaxed).wrapping_add(add), Ordering::Relaxed);
            } else {
                counter.fetch_add(add, Ordering::Relaxed);
            }
        }
    }

    /// The bucket of a value: the first whose bound is not below it.
    fn bucket(value: u64) -> usize {
        (u64::BITS - (value.saturating_sub(1) / FIRST).leading_zeros()) as usize
    }

    fn counts(&self) -> Counts<BUCKETS> {
        let mut counts = Counts { buckets: [0; BUCKETS], total: 0, sum: 0 };
        for shard in self.shards.iter().filter_map(OnceLock::get) {
            for (sum, bucket) in counts.buckets.iter_mut().zip(&shard.buckets) {
                let count = bucket.load(Ordering::Relaxed);
                *sum += count;
                counts.total += count;
            }
            counts.total += shard.beyond.load(Ordering::Relaxed);
            counts.sum = counts.sum.wrapping_add(shard.sum.load(Ordering::Relaxed));
        }
        counts
    }

    /// Whether nothing was counted.
    pub fn is_empty(&self) -> bool {
        self.shards.iter().all(|shard| shard.get().is_none())
    }

    /// Appends the family.
    pub fn write(&self, page: &mut Page, name: &str, help: &str) {
        page.family(name, "histogram", help);
        self.write_labelled(page, name, &[]);
    }

    /// Appends its lines, without the family's.
    pub fn write_labelled(&self, page: &mut Page, name: &str, labels: &[(&str, &str)]) {
        let counts = self.counts();
        let bucket_name = format!("{name}_bucket");
        let line = |page: &mut Page, bound: &str, total: u64| {
            let labels: Vec<(&str, &str)> = labels.iter().copied().chain([("le", bound)]).collect();
            page.labelled(&bucket_name, &labels, total);
        };
        let mut total = 0;
        for (bucket, count) in counts.buckets.iter().enumerate() {
            total += count;
            line(page, &((FIRST << bucket) as f64 / UNIT as f64).to_string(), total);
        }
        line(page, "+Inf", counts.total);
        page.labelled(&format!("{name}_sum"), labels, counts.sum as f64 / UNIT as f64);
        page.labelled(&format!("{name}_count"), labels, counts.total);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_on_a_bound_belongs_to_its_bucket() {
        let bucket = Histogram::<4, 1_000>::bucket;
        for (value, expected) in [(0, 0), (1_000, 0), (1_001, 1), (2_000, 1), (2_001, 2), (8_000, 3), (8_001, 4)] {
            assert_eq!(bucket(value), expected, "{value}");
        }
        assert!(Histogram::<14>::bucket(u64::MAX) >= 14, "beyond the last");
    }

    #[test]
    fn threads_are_added_up() {
        let histogram = Histogram::<4, 1_000>::default();
        std::thread::scope(|scope| {
            // More than there are shards, so that some share one.
            for _ in 0..2 * SHARDS {
                scope.spawn(|| {
                    for _ in 0..1_000 {
                        histogram.observe(Duration::from_nanos(1_500));
                    }
                });
            }
        });
        let counts = histogram.counts();
        assert_eq!((counts.total, counts.buckets[1]), (64_000, 64_000));
        assert_eq!(counts.sum, 64_000 * 1_500);
    }

    #[test]
    fn bounds_read_as_etcds_do() {
        let mut page = Page::default();
        let histogram = Histogram::<3, 500_000, 1_000_000>::default();
        histogram.observe(Duration::from_micros(700));
        histogram.write(&mut page, "pause_milliseconds", "Pauses.");
        for line in [
            "pause_milliseconds_bucket{le=\"0.5\"} 0",
            "pause_milliseconds_bucket{le=\"1\"} 1",
            "pause_milliseconds_bucket{le=\"+Inf\"} 1",
            "pause_milliseconds_sum 0.7",
        ] {
            assert!(page.text().contains(line), "{line} in {}", page.text());
        }
    }
}

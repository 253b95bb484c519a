//! Latencies, counted in classes that are at most 0.2 % wide.

/// Classes of each power of two: 2 to the power of this.
const FINE_BITS: u32 = 9;
const FINE: usize = 1 << FINE_BITS;
/// Powers of two above the first classes: up to 2^42 ns, more than an hour.
const POWERS: usize = 33;

/// Counts of times in nanoseconds.
#[derive(Clone, Debug)]
pub struct Histogram {
    counts: Vec<u64>,
    total: u64,
    sum_ns: u128,
    squares_ns: u128,
    min_ns: u64,
    max_ns: u64,
}

impl Default for Histogram {
    fn default() -> Histogram {
        Histogram {
            counts: vec![0; FINE * (POWERS + 1)],
            total: 0,
            sum_ns: 0,
            squares_ns: 0,
            min_ns: u64::MAX,
            max_ns: 0,
        }
    }
}

impl Histogram {
    pub(crate) fn record(&mut self, ns: u64) {
        self.counts[class(ns)] += 1;
        self.total += 1;
        self.sum_ns += u128::from(ns);
        self.squares_ns = self.squares_ns.saturating_add(u128::from(ns) * u128::from(ns));
        self.min_ns = self.min_ns.min(ns);
        self.max_ns = self.max_ns.max(ns);
    }

    pub(crate) fn merge(&mut self, other: &Histogram) {
        for (own, others) in self.counts.iter_mut().zip(&other.counts) {
            *own += others;
        }
        self.total += other.total;
        self.sum_ns += other.sum_ns;
        self.squares_ns = self.squares_ns.saturating_add(other.squares_ns);
        self.min_ns = self.min_ns.min(other.min_ns);
        self.max_ns = self.max_ns.max(other.max_ns);
    }

    /// The time that `share` of all times do not exceed, in microseconds.
    pub fn quantile_us(&self, share: f64) -> f64 {
        let rank = ((self.total as f64 * share).ceil() as u64).clamp(1, self.total.max(1));
        let mut seen = 0;
        for (class, count) in self.counts.iter().enumerate() {
            seen += count;
            if seen >= rank {
                return upper_ns(class).min(self.max_ns) as f64 / 1e3;
            }
        }
        0.0
    }

    /// The number of recorded times.
    pub(crate) fn total(&self) -> u64 {
        self.total
    }

    /// The times in ascending order, in nanoseconds, each with its count. The least and the greatest are exact, the
    /// others are rounded to their classes.
    pub(crate) fn steps(&self) -> impl Iterator<Item = (u64, u64)> {
        let ends = u64::from(self.total > 0) + u64::from(self.total > 1);
        let (first, last) = (class(self.min_ns), class(self.max_ns));
        let inner = self.counts.iter().enumerate().filter(|(_, count)| **count > 0).map(move |(number, &count)| {
            let end = u64::from(number == first) + u64::from(number == last && ends == 2);
            (upper_ns(number).clamp(self.min_ns, self.max_ns), count - end)
        });
        let least = (ends > 0).then_some((self.min_ns, 1));
        let most = (ends == 2).then_some((self.max_ns, 1));
        least.into_iter().chain(inner.filter(|(_, count)| *count > 0)).chain(most)
    }

    /// The standard deviation, in nanoseconds.
    pub(crate) fn deviation_ns(&self) -> f64 {
        let total = self.total.max(1) as f64;
        let mean = self.sum_ns as f64 / total;
        (self.squares_ns as f64 / total - mean * mean).max(0.0).sqrt()
    }

    pub(crate) fn min_us(&self) -> f64 {
        if self.total == 0 { 0.0 } else { self.min_ns as f64 / 1e3 }
    }

    /// The mean, in microseconds.
    pub fn mean_us(&self) -> f64 {
        self.sum_ns as f64 / self.total.max(1) as f64 / 1e3
    }

    /// The longest time, in microseconds.
    pub fn max_us(&self) -> f64 {
        self.max_ns as f64 / 1e3
    }
}

fn class(ns: u64) -> usize {
    let power = (u64::BITS - ns.leading_zeros()).saturating_sub(FINE_BITS + 1);
    let class = power as usize * FINE + (ns >> power) as usize;
    class.min(FINE * (POWERS + 1) - 1)
}

/// The largest time of a class.
fn upper_ns(class: usize) -> u64 {
    let power = (class / FINE).saturating_sub(1) as u32;
    let fine = (class - power as usize * FINE) as u64;
    ((fine + 1) << power) - 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_are_narrow_and_in_order() {
        let mut last = 0;
        for ns in (0..100_000).chain((17..41).map(|power| (1_u64 << power) + 12_345)) {
            let class = class(ns);
            assert!(class >= last, "{ns}");
            last = class;
            let upper = upper_ns(class);
            assert!(upper >= ns && upper - ns <= ns / FINE as u64, "{ns} is in a class up to {upper}");
        }
        assert_eq!(class(u64::MAX), FINE * (POWERS + 1) - 1);
    }

    #[test]
    fn quantiles_are_of_ranks() {
        let mut histogram = Histogram::default();
        assert_eq!(histogram.quantile_us(0.5), 0.0);
        let mut other = histogram.clone();
        (1..=500).for_each(|us| histogram.record(us * 1000));
        (501..=1000).for_each(|us| other.record(us * 1000));
        histogram.merge(&other);
        for share in [0.001, 0.5, 0.9, 0.99, 1.0] {
            let (found, wanted) = (histogram.quantile_us(share), share * 1000.0);
            assert!(found >= wanted && found <= wanted * 1.02, "{share}: {found}");
        }
        assert_eq!((histogram.mean_us(), histogram.max_us(), histogram.min_us()), (500.5, 1000.0, 1.0));
        assert!((histogram.deviation_ns() - 288_675.0).abs() < 1.0);
        let steps: Vec<_> = histogram.steps().collect();
        assert_eq!((steps[0], steps.last()), ((1000, 1), Some(&(1_000_000, 1))));
        assert_eq!(steps.iter().map(|(_, count)| count).sum::<u64>(), 1000);
        assert!(steps.is_sorted());
    }

    #[test]
    fn few_times_are_told_as_they_were() {
        let mut histogram = Histogram::default();
        assert_eq!(histogram.steps().count(), 0);
        histogram.record(1_000_001);
        assert_eq!(histogram.steps().collect::<Vec<_>>(), [(1_000_001, 1)]);
        histogram.record(1_000_003);
        assert_eq!(histogram.steps().collect::<Vec<_>>(), [(1_000_001, 1), (1_000_003, 1)]);
    }
}

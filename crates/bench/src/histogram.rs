//! Latencies, counted in classes that are at most 1.6 % wide.

/// Classes of each power of two: 2 to the power of this.
const FINE_BITS: u32 = 6;
const FINE: usize = 1 << FINE_BITS;
/// Powers of two above the first classes: up to 2^42 ns, more than an hour.
const POWERS: usize = 36;

/// Counts of times in nanoseconds.
#[derive(Clone, Debug)]
pub(crate) struct Histogram {
    counts: Vec<u64>,
    total: u64,
    sum_ns: u128,
    max_ns: u64,
}

impl Default for Histogram {
    fn default() -> Histogram {
        Histogram { counts: vec![0; FINE * (POWERS + 1)], total: 0, sum_ns: 0, max_ns: 0 }
    }
}

impl Histogram {
    pub(crate) fn record(&mut self, ns: u64) {
        self.counts[class(ns)] += 1;
        self.total += 1;
        self.sum_ns += u128::from(ns);
        self.max_ns = self.max_ns.max(ns);
    }

    pub(crate) fn merge(&mut self, other: &Histogram) {
        for (own, others) in self.counts.iter_mut().zip(&other.counts) {
            *own += others;
        }
        self.total += other.total;
        self.sum_ns += other.sum_ns;
        self.max_ns = self.max_ns.max(other.max_ns);
    }

    /// The time that `share` of all times do not exceed, in microseconds.
    pub(crate) fn quantile_us(&self, share: f64) -> f64 {
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

    pub(crate) fn mean_us(&self) -> f64 {
        self.sum_ns as f64 / self.total.max(1) as f64 / 1e3
    }

    pub(crate) fn max_us(&self) -> f64 {
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
        assert_eq!((histogram.mean_us(), histogram.max_us()), (500.5, 1000.0));
    }
}

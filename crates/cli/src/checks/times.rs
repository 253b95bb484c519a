//! Times of many measurements of one kind.

use crate::print::json::Object;
use std::time::Duration;

/// Times, sorted.
#[derive(Clone, Debug, Default)]
pub(super) struct Times(Vec<u64>);

/// The columns in which they are shown: name, and the share of times that are not longer.
pub(super) const PERCENTILES: [(&str, f64); 6] =
    [("p50", 0.5), ("p90", 0.9), ("p95", 0.95), ("p99", 0.99), ("p99.9", 0.999), ("p99.99", 0.9999)];

impl Times {
    pub(super) fn new(mut nanos: Vec<u64>) -> Times {
        nanos.sort_unstable();
        Times(nanos)
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    pub(super) fn min(&self) -> Duration {
        Duration::from_nanos(self.0.first().copied().unwrap_or_default())
    }

    pub(super) fn max(&self) -> Duration {
        Duration::from_nanos(self.0.last().copied().unwrap_or_default())
    }

    pub(super) fn mean(&self) -> Duration {
        let sum: u128 = self.0.iter().map(|nanos| u128::from(*nanos)).sum();
        let mean = sum / (self.0.len().max(1) as u128);
        Duration::from_nanos(u64::try_from(mean).unwrap_or(u64::MAX))
    }

    /// The shortest time that this share of all does not exceed.
    pub(super) fn percentile(&self, share: f64) -> Duration {
        let rank = (share * self.0.len() as f64).ceil() as usize;
        let nanos = self.0.get(rank.clamp(1, self.0.len().max(1)) - 1);
        Duration::from_nanos(nanos.copied().unwrap_or_default())
    }

    pub(super) fn p99(&self) -> Duration {
        self.percentile(0.99)
    }

    /// An object with everything in seconds.
    pub(super) fn json(&self) -> String {
        let mut object = Object::default().raw("count", self.len());
        let mut add = |name: &str, time: Duration| {
            object = std::mem::take(&mut object).raw(name, time.as_secs_f64());
        };
        add("min", self.min());
        add("mean", self.mean());
        PERCENTILES.iter().for_each(|(name, share)| add(name, self.percentile(*share)));
        add("max", self.max());
        object.end()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_times_that_were_taken() {
        let times = Times::new((1..=200).rev().collect());
        assert_eq!((times.min().as_nanos(), times.max().as_nanos(), times.mean().as_nanos()), (1, 200, 100));
        assert_eq!((times.percentile(0.5).as_nanos(), times.p99().as_nanos()), (100, 198));
        assert_eq!(times.percentile(0.9999).as_nanos(), 200);
        let one = Times::new(vec![7]);
        assert_eq!((one.percentile(0.01).as_nanos(), one.percentile(0.9999).as_nanos()), (7, 7));
        assert_eq!((Times::default().p99(), Times::default().mean()), (Duration::ZERO, Duration::ZERO));
        assert!(one.json().starts_with(r#"{"count":1,"min":0.000000007,"mean":0.000000007,"p50":"#), "{}", one.json());
    }
}

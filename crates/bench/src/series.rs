//! What happened in each second.

use std::collections::BTreeMap;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Latencies by the second in which their requests began.
#[derive(Clone, Debug)]
pub(crate) struct Series {
    begin: Instant,
    /// The time of day at `begin`, since 1970.
    day: Duration,
    seconds: BTreeMap<u64, Second>,
}

/// One second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Second {
    pub(crate) count: u64,
    pub(crate) least: Duration,
    pub(crate) most: Duration,
    pub(crate) sum: Duration,
}

impl Default for Series {
    fn default() -> Series {
        let day = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Series { begin: Instant::now(), day, seconds: BTreeMap::new() }
    }
}

impl Series {
    pub(crate) fn record(&mut self, since: Instant, latency: Duration) {
        let at = self.day + since.saturating_duration_since(self.begin);
        let second = self.seconds.entry(at.as_secs()).or_default();
        if second.count == 0 || latency < second.least {
            second.least = latency;
        }
        second.count += 1;
        second.most = second.most.max(latency);
        second.sum += latency;
    }

    pub(crate) fn merge(&mut self, other: &Series) {
        for (&at, other) in &other.seconds {
            let second = self.seconds.entry(at).or_default();
            let least = if second.count == 0 { other.least } else { second.least.min(other.least) };
            *second = Second {
                count: second.count + other.count,
                least,
                most: second.most.max(other.most),
                sum: second.sum + other.sum,
            };
        }
    }

    /// All seconds from the first to the last, with their number since 1970. Seconds in which no request began are
    /// empty.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u64, Second)> {
        let first = self.seconds.keys().next().copied().unwrap_or(1);
        let last = self.seconds.keys().next_back().copied().unwrap_or(0);
        (first..=last).map(|at| (at, self.seconds.get(&at).copied().unwrap_or_default()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn empty_seconds_are_told_too() {
        let mut series = Series { day: Duration::from_secs(100), ..Series::default() };
        let mut other = series.clone();
        let ms = Duration::from_millis;
        series.record(series.begin, ms(3));
        series.record(series.begin + ms(2100), ms(5));
        other.record(series.begin, ms(1));
        series.merge(&other);
        let found: Vec<_> = series.iter().collect();
        let first = Second { count: 2, least: ms(1), most: ms(3), sum: ms(4) };
        let last = Second { count: 1, least: ms(5), most: ms(5), sum: ms(5) };
        assert_eq!(found, [(100, first), (101, Second::default()), (102, last)]);
    }
}

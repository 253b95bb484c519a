//! The report about many requests.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Times and errors of requests.
pub(super) struct Report {
    begun: Instant,
    times: Vec<f64>,
    errors: BTreeMap<String, u64>,
}

impl Report {
    pub(super) fn begin() -> Report {
        Report { begun: Instant::now(), times: Vec::new(), errors: BTreeMap::new() }
    }

    pub(super) fn add(&mut self, outcome: Result<Duration, String>) {
        match outcome {
            Ok(time) => self.times.push(time.as_secs_f64()),
            Err(text) => *self.errors.entry(text).or_default() += 1,
        }
    }

    pub(super) fn count(&self) -> u64 {
        self.times.len() as u64 + self.errors.values().sum::<u64>()
    }

    pub(super) fn per_second(&self) -> f64 {
        self.times.len() as f64 / self.begun.elapsed().as_secs_f64()
    }

    fn slowest(&self) -> f64 {
        self.times.iter().copied().fold(0.0, f64::max)
    }

    fn deviation(&self) -> f64 {
        let count = self.times.len().max(1) as f64;
        let average = self.times.iter().sum::<f64>() / count;
        (self.times.iter().map(|time| (time - average).powi(2)).sum::<f64>() / count).sqrt()
    }

    /// Lines about errors; empty if there are none.
    pub(super) fn errors(&self) -> String {
        if self.errors.is_empty() {
            return String::new();
        }
        let lines = self.errors.iter().map(|(text, count)| format!("FAIL: ERROR({text}) -> {count}\n"));
        std::iter::once("FAIL: too many errors\n".to_string()).chain(lines).collect()
    }

    /// The verdict about a load of this many writes a second, and whether it is a good one.
    pub(super) fn verdict(&self, per_second: f64, wanted: u32) -> (String, bool) {
        let mut out = self.errors();
        let mut is_good = out.is_empty();
        let mut judge = |is_so: bool, good: String, bad: String| {
            out.push_str(if is_so { &good } else { &bad });
            is_good &= is_so;
        };
        let writes = per_second as u64 + 1;
        judge(
            per_second / f64::from(wanted) > 0.9,
            format!("PASS: Throughput is {writes} writes/s\n"),
            format!("FAIL: Throughput too low: {writes} writes/s\n"),
        );
        let (slowest, deviation) = (self.slowest(), self.deviation());
        judge(
            slowest <= 0.5,
            format!("PASS: Slowest request took {slowest:.6}s\n"),
            format!("Slowest request took too long: {slowest:.6}s\n"),
        );
        judge(
            deviation <= 0.1,
            format!("PASS: Stddev is {deviation:.6}s\n"),
            format!("Stddev too high: {deviation:.6}s\n"),
        );
        out.push_str(if is_good { "PASS\n" } else { "FAIL\n" });
        (out, is_good)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn verdicts_are_etcds() {
        let mut report = Report::begin();
        for ms in [10, 20, 30] {
            report.add(Ok(Duration::from_millis(ms)));
        }
        let good =
            "PASS: Throughput is 150 writes/s\nPASS: Slowest request took 0.030000s\nPASS: Stddev is 0.008165s\nPASS\n";
        assert_eq!(report.verdict(149.5, 150), (good.to_string(), true));
        report.add(Ok(Duration::from_secs(2)));
        report.add(Err("gone".into()));
        let (text, is_good) = report.verdict(135.0, 150);
        let bad = "FAIL: too many errors\nFAIL: ERROR(gone) -> 1\nFAIL: Throughput too low: 136 writes/s\n\
                   Slowest request took too long: 2.000000s\nStddev too high: 0.";
        assert!(text.starts_with(bad) && text.ends_with("s\nFAIL\n") && !is_good, "{text}");
        assert_eq!(report.count(), 5);
    }
}

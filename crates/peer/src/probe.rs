//! `/raft/probing`: asks a peer for its time, which gives the round trip and the difference of the clocks.

pub(crate) use api::probing::read;
use std::time::{Duration, SystemTime};
use telemetry::logging;

pub(crate) const PATH: &str = "/raft/probing";
/// Time between probes of a peer: less than the time after which it closes an idle connection.
pub(crate) const INTERVAL: Duration = Duration::from_secs(4);
/// A larger difference of clocks is logged: it makes leases and logs hard to understand.
const DRIFT_MAX: Duration = Duration::from_secs(1);

/// The answer to a probe.
pub(crate) fn answer() -> String {
    format!("{{\"OK\":true,\"Now\":\"{}\"}}\n", logging::timestamp(SystemTime::now()))
}

/// The difference between our clock and one that showed `now` half a round trip ago, if it is too large.
pub(crate) fn drift(now: SystemTime, round_trip: Duration) -> Option<Duration> {
    let own = SystemTime::now().checked_sub(round_trip.checked_div(2)?)?;
    let drift = own.duration_since(now).or_else(|_| now.duration_since(own)).unwrap_or_default();
    (drift > DRIFT_MAX).then_some(drift)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_read_back() {
        let now = read(answer().as_bytes()).expect("a time");
        assert_eq!(drift(now, Duration::ZERO), None);
        assert!(drift(now + Duration::from_secs(3), Duration::ZERO).is_some());
        assert!(drift(now - Duration::from_secs(3), Duration::ZERO).is_some());
        assert_eq!(read(b"{}"), None);
    }
}

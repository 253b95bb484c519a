//! The rule that relates heartbeats, election timeouts and round trips.

use super::Trip;
use crate::checks::format::time;
use crate::failure::{Failure, Outcome};
use crate::flags::Parsed;
use std::fmt;
use std::time::Duration;

/// What the members are started with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::checks) struct Rule {
    pub(in crate::checks) heartbeat_ms: u64,
    pub(in crate::checks) election_ms: u64,
}

/// Members take no longer election timeout.
const ELECTION_MS_MAX: u64 = 50_000;
/// Etcd's guide to tuning: an election timeout is to be ten round trips at least.
const TRIPS_OF_ELECTION: u32 = 10;
/// Members insist on this many heartbeats in an election timeout.
const HEARTBEATS_OF_ELECTION: u64 = 5;

impl Rule {
    /// etcd's defaults: for members that are near each other nothing is gained with less.
    pub(in crate::checks) const DEFAULT: Rule = Rule { heartbeat_ms: 100, election_ms: 1000 };

    pub(super) fn read(parsed: &Parsed) -> Outcome<Rule> {
        let number = |name: &str| match u64::try_from(parsed.int(name)) {
            Ok(0) | Err(_) => Err(Failure::args(format!("--{name} must be more than 0 milliseconds"))),
            Ok(number) => Ok(number),
        };
        let rule = Rule { heartbeat_ms: number("heartbeat-interval")?, election_ms: number("election-timeout")? };
        if rule.election_ms < rule.heartbeat_ms.saturating_mul(HEARTBEATS_OF_ELECTION) {
            let text = format!(
                "--election-timeout[{}ms] should be at least as 5 times as --heartbeat-interval[{}ms]",
                rule.election_ms, rule.heartbeat_ms
            );
            return Err(Failure::args(text));
        }
        if rule.election_ms > ELECTION_MS_MAX {
            let text = format!(
                "--election-timeout[{}ms] is too long, and should be set less than {ELECTION_MS_MAX}ms",
                rule.election_ms
            );
            return Err(Failure::args(text));
        }
        Ok(rule)
    }

    fn heartbeat(self) -> Duration {
        Duration::from_millis(self.heartbeat_ms)
    }

    fn election(self) -> Duration {
        Duration::from_millis(self.election_ms)
    }

    /// Whether heartbeats reach a member this far away in time.
    pub(super) fn allows(self, trip: Duration) -> bool {
        // A heartbeat of 0.5 to 1.5 round trips: one that is shorter still only adds to what is on its way.
        trip <= self.heartbeat() * 2 && trip * TRIPS_OF_ELECTION <= self.election()
    }

    pub(super) fn verdict(self, trip: Duration) -> String {
        let (p99, heartbeat, election) = (time(trip), self.heartbeat_ms, self.election_ms);
        if trip * TRIPS_OF_ELECTION > self.election() {
            format!(
                "ten round trips (p99 {p99}) take longer than the election timeout of {election} ms: a delay costs the leader its place"
            )
        } else if trip > self.heartbeat() * 2 {
            format!(
                "a heartbeat interval of {heartbeat} ms is less than half a round trip (p99 {p99}): answers come after the next heartbeat is sent"
            )
        } else {
            format!("p99 {p99} for a heartbeat interval of {heartbeat} ms and an election timeout of {election} ms")
        }
    }

    /// What suits this round trip.
    fn of(trip: Duration) -> Rule {
        let trip_ms = u64::try_from(trip.as_micros().div_ceil(1000)).unwrap_or(u64::MAX);
        let heartbeat_ms =
            trip_ms.next_multiple_of(10).clamp(Self::DEFAULT.heartbeat_ms, ELECTION_MS_MAX / HEARTBEATS_OF_ELECTION);
        Rule { heartbeat_ms, election_ms: (heartbeat_ms * u64::from(TRIPS_OF_ELECTION)).min(ELECTION_MS_MAX) }
    }
}

/// What suits the member that is farthest away; none, if none could be reached.
pub(in crate::checks) fn advice(trips: &[Trip]) -> Option<Rule> {
    let reached = trips.iter().filter_map(|trip| trip.outcome.as_ref().ok());
    reached.map(|reached| reached.requests.p99()).max().map(Rule::of)
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Rule { heartbeat_ms, election_ms } = self;
        let remark = if *self == Rule::DEFAULT { " (the defaults)" } else { "" };
        write!(f, "--heartbeat-interval={heartbeat_ms} --election-timeout={election_ms}{remark}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_suits_a_round_trip() {
        let of = |micros| Rule::of(Duration::from_micros(micros)).to_string();
        assert_eq!(of(200), "--heartbeat-interval=100 --election-timeout=1000 (the defaults)");
        assert_eq!(of(100_000), "--heartbeat-interval=100 --election-timeout=1000 (the defaults)");
        assert_eq!(of(151_200), "--heartbeat-interval=160 --election-timeout=1600");
        assert_eq!(of(60_000_000), "--heartbeat-interval=10000 --election-timeout=50000");
    }

    #[test]
    fn advice_is_allowed_by_itself() {
        for ms in [0, 1, 99, 100, 101, 250, 4999] {
            let trip = Duration::from_millis(ms);
            assert!(Rule::of(trip).allows(trip), "{ms}");
        }
        assert!(!Rule::DEFAULT.allows(Duration::from_millis(101)), "ten of them take longer than an election");
        let nervous = Rule { heartbeat_ms: 10, election_ms: 1000 };
        assert!(!nervous.allows(Duration::from_millis(21)) && nervous.allows(Duration::from_millis(20)));
        assert!(nervous.verdict(Duration::from_millis(21)).contains("less than half a round trip"));
    }
}

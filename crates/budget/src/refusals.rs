//! Claims on answers that were refused and do not wait. An answer of another server that is refused cannot be asked for again, so a
//! refusal shows for a while that room is wanted, as a claim in the line does for as long as it waits.

use rpc::Origin;
use std::collections::HashMap;
use std::time::{Duration, Instant};

/// How long a refusal counts: connections look once a second whether room is wanted.
const RECENT: Duration = Duration::from_secs(5);
/// Hosts that are remembered.
const HOSTS_MAX: usize = 1_024;

/// When claims were refused last.
#[derive(Debug, Default)]
pub(crate) struct Refusals {
    /// For lack of room for anybody.
    of_all: Option<Instant>,
    /// Because their host had its share.
    of_hosts: HashMap<Origin, Instant>,
}

impl Refusals {
    /// There was no room for anybody.
    pub(crate) fn note(&mut self, now: Instant) {
        self.of_all = Some(now);
    }

    /// A host had its share.
    pub(crate) fn note_host(&mut self, of: Origin, now: Instant) {
        if self.of_hosts.len() >= HOSTS_MAX {
            self.of_hosts.retain(|_, since| is_recent(*since, now));
        }
        if self.of_hosts.len() < HOSTS_MAX || self.of_hosts.contains_key(&of) {
            self.of_hosts.insert(of, now);
        }
    }

    /// Whether a claim was refused lately for which a client of this host may have the room.
    pub(crate) fn are_recent(&self, of: Origin, now: Instant) -> bool {
        [self.of_all, self.of_hosts.get(&of).copied()].into_iter().flatten().any(|since| is_recent(since, now))
    }
}

fn is_recent(since: Instant, now: Instant) -> bool {
    now.duration_since(since) < RECENT
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{IpAddr, Ipv4Addr};

    fn host(number: u32) -> Origin {
        Origin::of(Some(IpAddr::V4(Ipv4Addr::from(number))))
    }

    #[test]
    fn a_refusal_counts_for_a_while() {
        let (mut refusals, now) = (Refusals::default(), Instant::now());
        assert!(!refusals.are_recent(host(1), now));
        refusals.note_host(host(1), now);
        assert!(refusals.are_recent(host(1), now) && !refusals.are_recent(host(2), now));
        assert!(!refusals.are_recent(host(1), now + RECENT));
        refusals.note(now + RECENT);
        assert!(refusals.are_recent(host(2), now + RECENT));
        assert!(!refusals.are_recent(host(2), now + RECENT * 2));
    }

    #[test]
    fn no_more_hosts_are_remembered_than_there_are_places() {
        let (mut refusals, now) = (Refusals::default(), Instant::now());
        (0..2 * HOSTS_MAX as u32).for_each(|number| refusals.note_host(host(number), now));
        assert_eq!(refusals.of_hosts.len(), HOSTS_MAX);
        // Those that are over leave their places.
        refusals.note_host(host(1), now + RECENT);
        refusals.note_host(host(9_999), now + RECENT);
        assert!(refusals.of_hosts.len() == 2 && refusals.are_recent(host(9_999), now + RECENT));
    }
}

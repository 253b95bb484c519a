//! Peers of another cluster: a member that was started on the wrong directory, or at the wrong addresses, finds them at the addresses of its
//! own cluster, and ends when too few peers of its own are left.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// A peer's refusal counts for this long. The peer is asked again every second.
const SAID_FOR: Duration = Duration::from_secs(5);
/// How long a quorum must be impossible before the member ends. A new cluster may replace an old one, one member after
/// the other; until then the old members answer at these addresses.
pub(super) const PATIENCE: Duration = Duration::from_secs(12);

/// Peers that said that they belong to another cluster.
#[derive(Default)]
pub(crate) struct ClusterMismatch {
    said: BTreeMap<u64, Instant>,
    /// Since when these peers have made a quorum impossible.
    since: Option<Instant>,
}

impl ClusterMismatch {
    /// Notes a peer's refusal. Returns whether the remaining voters have been too few for a quorum for [`PATIENCE`].
    /// `voters` includes this member.
    pub(crate) fn met(&mut self, peer: u64, voters: &[u64], now: Instant) -> bool {
        self.said.insert(peer, now);
        self.said.retain(|_, said| now.saturating_duration_since(*said) <= SAID_FOR);
        let strange = voters.iter().filter(|id| self.said.contains_key(id)).count();
        if voters.len() - strange > voters.len() / 2 {
            self.since = None;
            return false;
        }
        now.saturating_duration_since(*self.since.get_or_insert(now)) >= PATIENCE
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn too_many_mismatch_for_long() {
        let mut mismatch = ClusterMismatch::default();
        let began = Instant::now();
        let at = |seconds| began + Duration::from_secs(seconds);
        for second in 0..10 {
            assert!(!mismatch.met(2, &[1, 2, 3], at(second)), "two of three are left");
        }
        for second in 10..23 {
            assert!(!mismatch.met(2 + second % 2, &[1, 2, 3], at(second)), "not for long");
        }
        assert!(mismatch.met(3, &[1, 2, 3], at(23)));
    }

    #[test]
    fn what_was_said_is_forgotten() {
        let mut mismatch = ClusterMismatch::default();
        let began = Instant::now();
        let at = |seconds| began + Duration::from_secs(seconds);
        assert!(!mismatch.met(2, &[1, 2, 3], at(0)));
        assert!(!mismatch.met(3, &[1, 2, 3], at(1)));
        assert!(!mismatch.met(3, &[1, 2, 3], at(7)), "the other one says so no longer");
        for second in 8..20 {
            assert!(!mismatch.met(2 + second % 2, &[1, 2, 3], at(second)));
        }
        assert!(mismatch.met(2, &[1, 2, 3], at(20)));
        assert!(!ClusterMismatch::default().met(9, &[1, 2, 3], at(0)), "a learner, or one that left");
    }
}

//! Peers that belong to another cluster: a member that was started on the wrong directory, or at the wrong addresses, finds them at
//! the addresses of its own cluster, and ends when too few others are left.

use crate::node::Node;
use crate::system::End;
use contain::lock;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// What a peer said counts for this long: it is asked again every second.
const SAID_FOR: Duration = Duration::from_secs(5);
/// For how long there must be no quorum left. Others may be started one after the other, each in the place of a member of the cluster
/// before, which runs until then.
pub(super) const PATIENCE: Duration = Duration::from_secs(12);

/// Peers that said that they belong to another cluster.
#[derive(Default)]
pub(crate) struct Strangers {
    said: BTreeMap<u64, Instant>,
    /// Since when they have been too many.
    since: Option<Instant>,
}

impl Strangers {
    /// Notes what a peer said; answers whether the voters that are left have been too few for long. `voters` has this member too.
    fn met(&mut self, peer: u64, voters: &[u64], now: Instant) -> bool {
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

impl Node {
    /// A peer refuses this member because it belongs to another cluster. Once this member has found a leader it goes on whatever
    /// appears beside it.
    pub(crate) fn estranged(self: &Arc<Self>, peer: u64, theirs: &str) {
        if self.status.leader_changes() > 0 || self.stopping.load(Ordering::Relaxed) {
            return;
        }
        let members = self.store.members().members.into_values();
        let voters: Vec<u64> = members.filter(|member| !member.is_learner).map(|member| member.id).collect();
        if !lock(&self.strangers).met(peer, &voters, Instant::now()) {
            return;
        }
        let text = format!(
            "cluster ID mismatch: `{}` holds data of cluster {:x}, but at the addresses of its members there is cluster {theirs}, \
             so this member can find no quorum. Start it on its own directory, or with its own cluster; its data was left as it was",
            self.config.data_dir.display(),
            self.cluster_id
        );
        if let Some(ended) = self.retired.get() {
            // The process may be ending for another reason.
            let _ = ended.send(End::Estranged(text));
            // Whoever waits for the member to be published learns it from this.
            self.stopping.store(true, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn too_many_strangers_for_long() {
        let mut strangers = Strangers::default();
        let began = Instant::now();
        let at = |seconds| began + Duration::from_secs(seconds);
        for second in 0..10 {
            assert!(!strangers.met(2, &[1, 2, 3], at(second)), "two of three are left");
        }
        for second in 10..23 {
            assert!(!strangers.met(2 + second % 2, &[1, 2, 3], at(second)), "not for long");
        }
        assert!(strangers.met(3, &[1, 2, 3], at(23)));
    }

    #[test]
    fn what_was_said_is_forgotten() {
        let mut strangers = Strangers::default();
        let began = Instant::now();
        let at = |seconds| began + Duration::from_secs(seconds);
        assert!(!strangers.met(2, &[1, 2, 3], at(0)));
        assert!(!strangers.met(3, &[1, 2, 3], at(1)));
        assert!(!strangers.met(3, &[1, 2, 3], at(7)), "the other one says so no longer");
        for second in 8..20 {
            assert!(!strangers.met(2 + second % 2, &[1, 2, 3], at(second)));
        }
        assert!(strangers.met(2, &[1, 2, 3], at(20)));
        assert!(!Strangers::default().met(9, &[1, 2, 3], at(0)), "a learner, or one that left");
    }
}

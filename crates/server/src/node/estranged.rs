//! Handling of a peer that says that this member belongs to another cluster.

use super::Node;
use crate::system::End;
use contain::lock;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

impl Node {
    /// A peer refuses this member because it belongs to another cluster. A member that has found a leader ignores such
    /// a refusal.
    pub(crate) fn estranged(self: &Arc<Self>, peer: u64, theirs: &str) {
        if self.status.leader_changes() > 0 || self.stopping.load(Ordering::Relaxed) {
            return;
        }
        let members = self.store.members().members.into_values();
        let voters: Vec<u64> = members.filter(|member| !member.is_learner).map(|member| member.id).collect();
        if !lock(&self.cluster_mismatch).met(peer, &voters, Instant::now()) {
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
            // The thread that waits for the member to be published learns of the end from this flag.
            self.stopping.store(true, Ordering::Relaxed);
        }
    }
}

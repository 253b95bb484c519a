//! The end of a member that its cluster has removed.

use crate::node::Node;
use crate::system::End;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use telemetry::logging;

/// What was applied goes out to clients and peers first.
const LINGER: Duration = Duration::from_secs(1);

impl Node {
    /// This member was removed from the cluster: it stops a little later.
    pub(crate) fn retire(self: &Arc<Self>) {
        if self.stopping.load(Ordering::Relaxed) || self.retiring.swap(true, Ordering::Relaxed) {
            return;
        }
        logging::warn(
            "the member has been permanently removed from the cluster; stopping. Its data directory is of no more use",
            &[("data-dir", logging::Value::Shown(&self.config.data_dir.display()))],
        );
        let linger = if self.is_needed_by_the_last() { LINGER + 2 * self.config.election_timeout } else { LINGER };
        let node = self.clone();
        let waiting = std::thread::Builder::new().name("retire".into()).spawn(move || {
            std::thread::sleep(linger);
            // The thread that waits for the member to be published learns it from this.
            node.stopping.store(true, Ordering::Relaxed);
            if let Some(ended) = node.retired.get() {
                // The process may be ending for another reason.
                let _ = ended.send(End::Removed);
            }
        });
        if let Err(error) = waiting {
            logging::fatal("cannot start a thread", &[("error", logging::Value::Shown(&error))]);
        }
    }

    /// Whether a single voter is left which may not know yet that it is alone, because it was not the one that led: it asks this one
    /// for its vote then, and learns it.
    fn is_needed_by_the_last(&self) -> bool {
        let members = self.store.members().members;
        let mut voters = members.values().filter(|member| !member.is_learner);
        match (voters.next(), voters.next()) {
            (Some(last), None) => self.status.leader() != last.id,
            _ => false,
        }
    }
}

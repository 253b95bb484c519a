//! The end of a member that its cluster has removed.

use crate::node::Node;
use crate::system::End;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use telemetry::logging;

/// A removed member stays up for this long, to answer its clients and to tell its peers what is committed.
const LINGER: Duration = Duration::from_secs(1);

impl Node {
    /// Stops this member after a while, because it was removed from the cluster.
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
            // The thread that waits for the member to be published learns of the end from this flag.
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

    /// Whether one voter is left, and it may not know yet that it is alone because it is not the leader. Such a voter
    /// asks this member for its vote, and learns of the removal from the answer.
    fn is_needed_by_the_last(&self) -> bool {
        let members = self.store.members().members;
        let mut voters = members.values().filter(|member| !member.is_learner);
        match (voters.next(), voters.next()) {
            (Some(last), None) => self.status.leader() != last.id,
            _ => false,
        }
    }
}

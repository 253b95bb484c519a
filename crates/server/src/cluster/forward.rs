//! Asking the leader what only the leader knows. The calls block, so they have threads of their own.

use crate::node::{Node, Weight, lock};
use api::Error;
use std::sync::atomic::Ordering;
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Threads that wait for answers of the leader.
pub(crate) const THREADS: usize = 8;
/// Time between looks for a leader.
const LOOK: Duration = Duration::from_millis(20);

/// Peer URLs of the leader, once there is one; `None` when `deadline` has passed or the member stops.
pub(crate) fn leader_urls(node: &Node, deadline: Instant) -> Option<Vec<String>> {
    while Instant::now() < deadline && !node.stopping.load(Ordering::Relaxed) {
        let leader = node.status.leader();
        let urls = node.store.members().members.remove(&leader).map(|member| member.peer_urls);
        if let Some(urls) = urls.filter(|urls| !urls.is_empty()) {
            return Some(urls);
        }
        std::thread::sleep(LOOK);
    }
    None
}

impl Node {
    /// Runs a call to another member on a thread that may block. When too many wait, `refused` is called instead; `owner`, who
    /// waits for the outcome, goes to whichever it is.
    pub(crate) fn forward<T: Send + 'static>(
        self: &Arc<Self>,
        owner: T,
        call: impl FnOnce(&Arc<Node>, T) + Send + 'static,
        refused: impl FnOnce(T, Error),
    ) {
        let node = self.clone();
        let slot = Arc::new(Mutex::new(Some(owner)));
        let taken = slot.clone();
        let queued = self.forwards.try_run(move || {
            if let Some(owner) = lock(&taken).take() {
                call(&node, owner);
            }
        });
        if !queued && let Some(owner) = lock(&slot).take() {
            refused(owner, Error::TooManyRequests);
        }
    }

    /// Since when this member is connected to another one.
    pub(crate) fn active_since(&self, id: u64) -> Option<Instant> {
        self.peers.get()?.active_since(id)
    }

    /// Waits until this member's state holds everything that was acknowledged before the call: for threads that may block.
    pub(crate) fn wait_linearized(self: &Arc<Self>, patience: Duration) -> Result<(), Error> {
        let (tell, told) = sync_channel(1);
        self.linearize(Weight::NONE, move |allowed| {
            // Whoever waits may have given up.
            let _ = tell.send(allowed);
        });
        told.recv_timeout(patience).unwrap_or(Err(Error::Timeout))
    }
}

//! Asking the leader what only the leader knows, on the threads of [`forward_pool`](super::forward_pool).

use crate::node::{Node, Weight};
use api::Error;
use contain::lock;
use peer::client::Kept;
use rpc::Address;
use std::sync::atomic::Ordering;
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Time between looks for a leader.
const LOOK: Duration = Duration::from_millis(20);

/// Peer URLs of the leader, or on an observer of what it follows, once there is one; `None` when `deadline` has passed or the member stops.
pub(crate) fn leader_urls(node: &Node, deadline: Instant) -> Option<Vec<String>> {
    if let Some(link) = &node.link {
        // It asks on.
        return node.source_url(link, deadline).map(|url| vec![url]);
    }
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
    /// Runs a call to another member on a thread that may block. The call counts for `client`, if there is one. When
    /// too many calls wait, `refused` is called instead. `owner`, which waits for the outcome, is passed to the closure
    /// that is called.
    pub(crate) fn forward<T: Send + 'static>(
        self: &Arc<Self>,
        client: Option<Address>,
        owner: T,
        call: impl FnOnce(&Arc<Node>, &mut Kept, T) + Send + 'static,
        refused: impl FnOnce(T, Error),
    ) {
        let node = self.clone();
        let slot = Arc::new(Mutex::new(Some(owner)));
        let taken = slot.clone();
        let job = move |kept: &mut Kept| {
            let owner = lock(&taken).take();
            if let Some(owner) = owner {
                call(&node, kept, owner);
            }
        };
        let queued = self.forwards.try_run(client, Box::new(job));
        if !queued && let Some(owner) = lock(&slot).take() {
            refused(owner, Error::TooManyRequests);
        }
    }

    /// Continues a call of [`Node::forward`] behind all calls that wait.
    pub(crate) fn forward_on(
        self: &Arc<Self>,
        client: Option<Address>,
        call: impl FnOnce(&Arc<Node>, &mut Kept) + Send + 'static,
    ) {
        let node = self.clone();
        self.forwards.run_on(client, Box::new(move |kept| call(&node, kept)));
    }

    /// Since when this member has been connected to member `id`.
    pub(crate) fn active_since(&self, id: u64) -> Option<Instant> {
        match &self.link {
            // What it follows is its connection to every member.
            Some(link) => link.source().map(|source| source.since),
            None => self.peers.get()?.active_since(id),
        }
    }

    /// Waits until this member's state holds everything that was acknowledged before the call: for threads that may block.
    pub(crate) fn wait_linearized(self: &Arc<Self>, patience: Duration) -> Result<(), Error> {
        wait(patience, |read| self.linearize(Weight::NONE, read))
    }

    /// A read index for another process: it covers everything that was acknowledged or could be read here before the call. The applied
    /// index alone does not, even on a sole member: it is noted at the end of a batch, whose entries are read and answered before.
    pub(crate) fn wait_read_index(self: &Arc<Self>, patience: Duration) -> Result<u64, Error> {
        wait(patience, |read| self.linearize_by_turn(Weight::NONE, read))?;
        Ok(self.status.applied())
    }
}

/// Begins a read, and waits until it may run.
fn wait(patience: Duration, begin: impl FnOnce(Box<dyn FnOnce(Result<(), Error>) + Send>)) -> Result<(), Error> {
    let (tell, told) = sync_channel(1);
    begin(Box::new(move |allowed| {
        // The waiting thread may have given up.
        let _ = tell.send(allowed);
    }));
    told.recv_timeout(patience).unwrap_or(Err(Error::Timeout))
}

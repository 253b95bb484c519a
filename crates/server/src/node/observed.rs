//! What following and being followed need of a node: its log, its store, and the way that entries come here.

use super::Node;
use super::peer_handler::Sending;
use api::raftpb::Message;
use disk::data_dir::{self, ObserverMark};
use peer::{Follower, Origin};
use replica::Stretch;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;
use telemetry::logging::{self, Value};

/// Pause while a configuration change is in the way of a snapshot.
const CAPTURE_LOOK: Duration = Duration::from_millis(1);

impl Node {
    /// Whether this process is an observer, and no member.
    pub(crate) fn is_observer(&self) -> bool {
        self.link.is_some()
    }

    /// Notes that this observer has everything that was acknowledged so far, for later starts too.
    pub(crate) fn note_level(&self) {
        if self.was_level.swap(true, Ordering::Relaxed) {
            return;
        }
        if let Err(error) = data_dir::mark_observer(&*self.disk, &self.config.data_dir, ObserverMark::Level) {
            logging::warn(
                "cannot mark the data directory: the next start shows nothing before what is followed is reached",
                &[("error", Value::Shown(&error))],
            );
        }
    }

    /// The ids of those that entries come through, from a member to this process; `None` on an observer that follows nobody.
    pub(crate) fn way(&self) -> Option<Vec<u64>> {
        let mut way = match &self.link {
            None => Vec::new(),
            Some(link) => link.source()?.way.clone(),
        };
        way.push(self.member_id);
        Some(way)
    }

    /// The applied entries behind an entry, given by index and term; `None` if the process stops.
    pub(crate) fn stretch(&self, (index, term): (u64, u64), bytes_max: u64) -> Option<Stretch> {
        let consensus = self.consensus.get().and_then(Weak::upgrade)?;
        // Known before the log is looked at: all of it is there.
        let applied = self.status.applied();
        Some(consensus.look(|core| core.raft().stretch(index, term, applied, bytes_max)))
    }

    /// Index and term of the last entry applied; `None` if the process stops, or the term is not known for the moment.
    pub(crate) fn applied_entry(&self) -> Option<(u64, u64)> {
        let consensus = self.consensus.get().and_then(Weak::upgrade)?;
        let applied = self.status.applied();
        consensus.look(|core| core.raft().term_of(applied)).map(|term| (applied, term))
    }

    /// Index and term of the last entry of the log; `None` if the process stops.
    pub(crate) fn last_entry(&self) -> Option<(u64, u64)> {
        let consensus = self.consensus.get().and_then(Weak::upgrade)?;
        Some(consensus.look(|core| core.raft().last_entry()))
    }

    /// Digests of an entry of the log and those before it, as far as they are in memory; none if the process stops.
    pub(crate) fn tail(&self, last: u64) -> Vec<u64> {
        let consensus = self.consensus.get().and_then(Weak::upgrade);
        consensus.map_or_else(Vec::new, |consensus| consensus.look(|core| core.raft().tail(last)))
    }

    /// The newest entry that is another one than that of an observer.
    pub(crate) fn differs(&self, follower: &Follower) -> Option<u64> {
        let consensus = self.consensus.get().and_then(Weak::upgrade)?;
        let applied = self.status.applied();
        consensus.look(|core| core.raft().differs(follower.last.0, &follower.tail, applied))
    }

    /// Captures a snapshot for an observer; `None` if the process stops.
    pub(crate) fn export(&self) -> Option<store::Export> {
        loop {
            let shared = self.applying.get().and_then(Weak::upgrade)?;
            if let Some(export) = shared.export() {
                return Some(export);
            }
            drop(shared);
            if self.stopping.load(Ordering::Relaxed) {
                return None;
            }
            std::thread::sleep(CAPTURE_LOOK);
        }
    }

    /// Stores the applied index, and wakes those who send entries to observers; returns whether a read waits for it.
    pub(super) fn set_applied(&self, index: u64) -> bool {
        let is_awaited = self.status.set_applied(index);
        self.followers.applied();
        is_awaited
    }

    /// A snapshot as the peer protocol sends it.
    pub(crate) fn sending(self: &Arc<Self>, export: Arc<store::Export>) -> Arc<dyn peer::Export> {
        Arc::new(Sending { export, node: Arc::downgrade(self) })
    }

    /// Gives consensus a message of what this observer follows.
    pub(crate) fn take_followed(&self, message: Message) {
        self.inbox.receive(vec![message], Origin::Stream);
    }
}

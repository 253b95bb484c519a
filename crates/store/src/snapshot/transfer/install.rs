//! Installing a received snapshot.
//!
//! The checkpoint gets its name first: from then on a start finds the snapshot, and before that the old state. Then all readers see the
//! snapshot at once, under the write lock of the index. A read that is half-way goes on, since a revision means the same in both; if the
//! snapshot was compacted past the revision, the read begins again or ends as compacted. Watchers that are level read what they missed
//! from the log, or are cancelled as compacted.

use super::Prepared;
use crate::apply::{Applier, Fatal};
use crate::log::{lock, write};
use crate::mistake::Mistake;
use crate::state::auth::AuthState;
use crate::state::{Alarms, Leases, Members};
use crate::upkeep::Replaced;
use std::sync::Arc;
use std::sync::atomic::Ordering;

impl Applier {
    /// Replaces this member's state by another member's snapshot. Between two calls of [`Applier::apply`]; entries continue after its index.
    /// A snapshot of the index applied last changes nothing. When this returns the snapshot is durable, and the Raft log is to
    /// be told by a snapshot record; after a power cut before that, opening the log for the snapshot writes it.
    ///
    /// Readers wait for microseconds, and this thread for what a background thread is syncing at the moment and for the names of the
    /// files to become durable.
    pub fn install(&mut self, mut ready: Prepared) -> Result<(), Fatal> {
        if self.failed {
            return Err(Fatal::Failed);
        }
        let store = Arc::clone(&self.store);
        assert!(Arc::ptr_eq(&store, &ready.store), "a snapshot is installed where it was received");
        let (index, revision) = (ready.content.applied_index, ready.content.revision);
        if index == self.index {
            return Ok(());
        }
        if index < self.index || revision < self.revision || ready.content.compact_revision < self.compact_revision {
            return Err(Fatal::Backwards { applied: self.index, revision: self.revision, found: index, at: revision });
        }
        // Set until the end: half of a snapshot must not serve.
        self.failed = true;
        let mut desk = store.maintenance.halt();
        let mut checkpoints = lock(&store.checkpoints);
        failpoint::point!(RAFT_BEFORE_SAVE_SNAP);
        checkpoints.install(&ready.checkpoint, &ready.content)?;
        ready.is_installed = true;
        failpoint::point!(RAFT_AFTER_SAVE_SNAP);
        failpoint::point!(APPLY_BEFORE_OPEN_SNAPSHOT);
        desk.abandon(&store);
        let publication = store.hub.begin();
        self.swap(&mut ready);
        if !Mistake::InstallTellsNobody.is_planted() {
            publication.skip_to(revision);
        }
        store.oldest_checkpoint.store(checkpoints.oldest_applied_index(), Ordering::Release);
        drop((checkpoints, desk));
        store.maintenance.sweep_soon();
        self.failed = false;
        Ok(())
    }

    fn swap(&mut self, ready: &mut Prepared) {
        let store = &self.store;
        let content = &ready.content;
        let members = Members::load(content);
        let alarms = Alarms::new(content.alarms.iter().copied());
        // What a checkpoint says is checked when it is read.
        let auth = AuthState::load(&content.auth).unwrap_or_default();
        let leases = std::mem::replace(&mut ready.leases, Leases::new([]));
        let last = content.segments.last().map(|entry| entry.last()).unwrap_or_default();
        {
            let mut index = write(&store.index);
            // Before the segments are others: a watcher that reads on in them and then finds its cursor compacted has missed nothing.
            store.compact_revision.store(content.compact_revision, Ordering::Release);
            std::mem::swap(&mut *index, &mut ready.index);
            store.segments.install(std::mem::take(&mut ready.segments), ready.live_bytes);
            store.unpublished.set(None);
            store.revision.store(content.revision, Ordering::Release);
            store.generation.fetch_add(1, Ordering::AcqRel);
        }
        let leases = if Mistake::InstallKeepsLeases.is_planted() { leases } else { store.leases.replace(leases) };
        if !Mistake::InstallKeepsAlarms.is_planted() {
            *write(&store.alarms) = alarms;
        }
        *write(&store.members) = members;
        if !Mistake::InstallKeepsUsers.is_planted() {
            store.auth.replace(auth);
        }
        store.hashes.clear();
        let (index, second) = (std::mem::take(&mut ready.index), ready.second_index.take());
        store
            .maintenance
            .replaced(content.compact_revision, Replaced { _index: index, _leases: leases, _second: second });
        self.log.restart(last);
        self.restart(ready);
    }

    /// Continues after the installed snapshot.
    fn restart(&mut self, ready: &mut Prepared) {
        let content = std::mem::take(&mut ready.content);
        assert!(self.changes.is_empty(), "a snapshot was installed within a stride");
        self.revision = content.revision;
        if !Mistake::InstallKeepsCompaction.is_planted() {
            self.compact_revision = content.compact_revision;
        }
        (self.index, self.term) = (content.applied_index, content.applied_term);
        self.installed_at = Some(self.index);
        self.conf_state = content.conf_state;
        self.begin_anew();
    }
}

//! Taking a checkpoint: captured between two strides in microseconds, written by a slow thread.

use super::checkpoint::Checkpoint;
use super::maintain::Finished;
use crate::apply::Applier;
use crate::log::{Error, Listing, lock};
use crate::mistake::Mistake;
use crate::state::auth::AuthState;
use crate::state::{Downgrade, Lease, LeaseCapture, Member, Members};
use crate::store::Store;
use api::etcdserverpb::DowngradeInfo;
use api::{etcdserverpb, leasepb};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// The state after one entry, to be written.
#[must_use = "a captured checkpoint is to be written"]
pub struct CheckpointJob {
    store: Arc<Store>,
    content: Checkpoint,
    leases: LeaseCapture,
    auth: Arc<AuthState>,
    listing: Listing,
    /// What was finished when it was captured.
    finished: Finished,
    generation: u64,
}

impl Applier {
    /// Captures the state as it is now. Leases are shared with the table until either changes, so this takes microseconds.
    /// Only while [`Applier::can_capture`].
    pub fn checkpoint(&mut self) -> CheckpointJob {
        assert!(self.can_capture(), "a checkpoint waits for what Raft makes of a configuration change");
        let store = Arc::clone(&self.store);
        // Before the listing, which then has what was made of these.
        let finished = store.maintenance.captured();
        let listing = self.log.listing();
        let mut content = self.content();
        if Mistake::CheckpointNamesNextEntry.is_planted() {
            content.applied_index += 1;
        }
        if Mistake::CheckpointNamesEarlierEntry.is_planted() && content.applied_index > 1 {
            content.applied_index -= 1;
        }
        if Mistake::CheckpointNamesFinishedCompaction.is_planted() {
            content.compact_revision = store.compacted();
        }
        // The log may not have been told yet: a rewrite can lead to another checkpoint of the same entry before that.
        content.installed = self.installed_at == Some(self.index);
        // After the listing: what a compaction dropped before it finished is in there.
        content.compacted = Some(store.compacted()).filter(|finished| *finished < content.compact_revision);
        CheckpointJob {
            content,
            leases: store.leases.capture(),
            auth: store.auth.capture(),
            listing,
            finished,
            generation: store.generation(),
            store,
        }
    }

    /// The state but for its leases and users, which are shared, and its segments. Whoever reads it does what its compaction has
    /// left to do.
    pub(crate) fn content(&self) -> Checkpoint {
        let mut content = Checkpoint {
            applied_index: self.index,
            applied_term: self.term,
            revision: self.revision,
            compact_revision: self.compact_revision,
            conf_state: self.conf_state.clone(),
            alarms: self.store.alarms(),
            ..Checkpoint::default()
        };
        self.store.members().save(&mut content);
        content
    }
}

impl CheckpointJob {
    /// Index of the last entry it covers.
    pub fn applied_index(&self) -> u64 {
        self.content.applied_index
    }

    /// Term of that entry.
    pub fn applied_term(&self) -> u64 {
        self.content.applied_term
    }

    /// Raft's membership after it.
    pub fn conf_state(&self) -> &api::raftpb::ConfState {
        &self.content.conf_state
    }

    /// Writes it, and removes what nothing needs any more. Jobs are written in the order they were captured; one whose state was
    /// replaced by another member's since is not. After an error the member must end, unless the disk is full: that leaves
    /// everything as it was.
    pub fn write(self) -> Result<(), Error> {
        let CheckpointJob { store, mut content, leases, auth, listing, finished, generation } = self;
        content.leases = leases.iter().map(saved).collect();
        content.auth = auth.save();
        if Mistake::CheckpointForgetsALease.is_planted() {
            content.leases.pop();
        }
        if Mistake::CheckpointForgetsUsers.is_planted() {
            content.auth = Default::default();
        }
        if Mistake::CheckpointForgetsAlarms.is_planted() {
            content.alarms.clear();
        }
        let mut checkpoints = lock(&store.checkpoints);
        if store.generation() != generation {
            return Ok(());
        }
        checkpoints.write(content, listing)?;
        store.oldest_checkpoint.store(checkpoints.oldest_applied_index(), Ordering::Release);
        drop(checkpoints);
        store.shelf.age(store.segments.reaper());
        store.maintenance.checkpointed(finished);
        Ok(())
    }
}

pub(crate) fn saved(lease: Lease) -> leasepb::Lease {
    let remaining_ttl = if Mistake::CheckpointForgetsRemainingTime.is_planted() { 0 } else { lease.remaining_ttl };
    leasepb::Lease { id: lease.id, ttl: lease.ttl, remaining_ttl }
}

/// The leases of a checkpoint.
pub(crate) fn loaded_leases(content: &Checkpoint) -> impl Iterator<Item = Lease> {
    content.leases.iter().map(|lease| Lease { id: lease.id, ttl: lease.ttl, remaining_ttl: lease.remaining_ttl })
}

impl Members {
    fn save(self, content: &mut Checkpoint) {
        content.members = self.members.into_values().map(etcdserverpb::Member::from).collect();
        content.removed = self.removed.into_iter().collect();
        content.cluster_version = self.cluster_version;
        let Downgrade { enabled, target_version } = self.downgrade;
        content.downgrade = enabled.then_some(DowngradeInfo { enabled, target_version });
    }

    /// The membership of a checkpoint.
    pub(crate) fn load(content: &Checkpoint) -> Members {
        let members = content.members.iter().map(|member| (member.id, Member::from(member.clone())));
        let downgrade = content.downgrade.clone().unwrap_or_default();
        Members {
            members: members.collect(),
            removed: content.removed.iter().copied().collect(),
            cluster_version: content.cluster_version.clone(),
            downgrade: Downgrade { enabled: downgrade.enabled, target_version: downgrade.target_version },
        }
    }
}

impl From<Member> for etcdserverpb::Member {
    fn from(member: Member) -> etcdserverpb::Member {
        let Member { id, peer_urls, is_learner, name, client_urls, zone } = member;
        etcdserverpb::Member { id, name, peer_ur_ls: peer_urls, client_ur_ls: client_urls, is_learner, zone }
    }
}

impl From<etcdserverpb::Member> for Member {
    fn from(member: etcdserverpb::Member) -> Member {
        let etcdserverpb::Member { id, name, peer_ur_ls, client_ur_ls, is_learner, zone } = member;
        Member { id, peer_urls: peer_ur_ls, is_learner, name, client_urls: client_ur_ls, zone }
    }
}

//! Where the member stands, readable from any thread without a lock.

use handover::Applied;
use replica::{Role, Status};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// A copy of [`replica::Status`], written by the consensus thread.
#[derive(Default)]
pub struct SharedStatus {
    term: AtomicU64,
    leader: AtomicU64,
    committed: AtomicU64,
    applied: Applied,
    leader_changes: AtomicU64,
    leader_since_ms: AtomicU64,
    log_bytes: AtomicU64,
    is_leader: AtomicBool,
    is_learner: AtomicBool,
    local_reads: AtomicBool,
    leads_without_rivals: AtomicBool,
}

impl SharedStatus {
    pub(super) fn publish(&self, status: &Status, now_ms: u64) {
        // A leader that is the only member holds everything that was ever acknowledged: acknowledging happens after applying.
        // The replica takes this back before it sends another member anything.
        self.local_reads.store(status.serves_local_reads(), Ordering::SeqCst);
        self.leads_without_rivals.store(status.serves_reads && status.sole_voter, Ordering::SeqCst);
        self.term.store(status.term, Ordering::Relaxed);
        self.committed.store(status.committed, Ordering::Relaxed);
        self.is_leader.store(status.role == Role::Leader, Ordering::Relaxed);
        self.is_learner.store(status.learner, Ordering::Relaxed);
        let before = self.leader.swap(status.leader, Ordering::Relaxed);
        if before != status.leader && status.leader != 0 {
            self.leader_since_ms.store(now_ms, Ordering::Relaxed);
            self.leader_changes.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Reports no leader any more: this member has been without contact for too long.
    pub(super) fn lose_leader(&self) {
        self.local_reads.store(false, Ordering::SeqCst);
        self.leads_without_rivals.store(false, Ordering::SeqCst);
        self.is_leader.store(false, Ordering::Relaxed);
        self.leader.store(0, Ordering::Relaxed);
    }

    /// Stores the applied index; returns whether a read waits for it.
    pub(super) fn set_applied(&self, index: u64) -> bool {
        self.applied.set(index)
    }

    /// Makes [`SharedStatus::set_applied`] return true when it gets to `index`. Returns `false` when `index` is already
    /// applied.
    pub(super) fn wait_for(&self, index: Option<u64>) -> bool {
        self.applied.wait_for(index)
    }

    pub(super) fn set_log_bytes(&self, bytes: u64) {
        self.log_bytes.store(bytes, Ordering::Relaxed);
    }

    /// Bytes of the log in memory.
    pub(crate) fn log_bytes(&self) -> u64 {
        self.log_bytes.load(Ordering::Relaxed)
    }

    /// The Raft term.
    pub fn term(&self) -> u64 {
        self.term.load(Ordering::Relaxed)
    }

    /// The leader's id; 0 when no leader is known.
    pub fn leader(&self) -> u64 {
        self.leader.load(Ordering::Relaxed)
    }

    /// Last committed entry.
    pub fn committed(&self) -> u64 {
        self.committed.load(Ordering::Relaxed)
    }

    /// Last applied entry.
    pub fn applied(&self) -> u64 {
        self.applied.index()
    }

    /// How often a new leader was seen.
    pub fn leader_changes(&self) -> u64 {
        self.leader_changes.load(Ordering::Relaxed)
    }

    /// When the leader was first known to lead, by the clock of [`super::Node::now_ms`].
    pub(super) fn leader_since_ms(&self) -> u64 {
        self.leader_since_ms.load(Ordering::Relaxed)
    }

    /// Whether this member is a learner.
    pub fn is_learner(&self) -> bool {
        self.is_learner.load(Ordering::Relaxed)
    }

    /// Whether this member leads.
    pub fn is_leader(&self) -> bool {
        self.is_leader.load(Ordering::Relaxed)
    }

    /// Whether this member leads and is the only voter, so that no other member can have been elected.
    pub(super) fn leads_without_rivals(&self) -> bool {
        self.leads_without_rivals.load(Ordering::SeqCst)
    }

    /// Whether a linearizable read may be answered from here at once.
    pub fn serves_local_reads(&self) -> bool {
        self.local_reads.load(Ordering::SeqCst)
    }
}

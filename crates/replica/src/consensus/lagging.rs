//! Followers that are far behind are sent entries at the shell's pace, so that these do not delay the entries that the other members
//! wait for.
//!
//! raft-rs fills the window of such a follower as soon as it answers, with everything in memory, in one turn. So the log refuses to read
//! for it, as a storage that reads in the background may, except for what [`Member::send_lagging`] has allowed.

use crate::consensus::core::Member;
use crate::consensus::log::{Log, size};
use raft::StateRole;
use std::cell::Cell;

/// A follower that lacks at most this many bytes is sent all entries at once.
const NEAR_BYTES_MAX: u64 = 1 << 20;
/// Bytes allowed every tick for a shell that does not call [`Member::send_lagging`].
const TICK_BYTES: u64 = 1 << 20;
/// If entries wait and nothing was committed for this many ticks, the quorum needs the followers that are far behind.
const STALLED_TICKS: u32 = 3;
/// How much faster than the log grows a follower must catch up, at least.
const CATCH_UP_FACTOR: u64 = 2;

/// Limits the reading of the log for followers that are far behind.
pub(crate) struct Allowance {
    /// A follower that lacks at most this many entries is sent all of them at once.
    near_entries: u64,
    /// Allowed bytes that are left.
    left: Cell<u64>,
    /// Bytes by which the log has grown since the last allowance.
    grown: u64,
    /// Whether the shell has allowed bytes since the last tick.
    is_fresh: bool,
    /// The commit index at the last tick, if entries were waiting to be committed.
    waiting: Option<u64>,
    /// Ticks in which `waiting` has not changed.
    stalled_ticks: u32,
}

impl Allowance {
    pub(crate) fn new(near_entries: u64) -> Allowance {
        Allowance { near_entries, left: Cell::new(0), grown: 0, is_fresh: false, waiting: None, stalled_ticks: 0 }
    }

    /// Notes that the log has grown.
    pub(crate) fn grow(&mut self, bytes: u64) {
        self.grown = self.grown.saturating_add(bytes);
    }

    /// Bytes that may be read now.
    pub(crate) fn left(&self) -> u64 {
        self.left.get()
    }

    /// Notes that `bytes` were read.
    pub(crate) fn spend(&self, bytes: u64) {
        self.left.set(self.left.get().saturating_sub(bytes));
    }
}

impl Log {
    /// Whether a follower that needs the entries from `low` on is far behind.
    pub(crate) fn is_far_behind(&self, low: u64) -> bool {
        let lacking = self.last_entry().saturating_add(1).saturating_sub(low);
        let bytes = || self.newest().take(lacking as usize).map(size).sum::<u64>();
        lacking > self.allowance.near_entries || bytes() > NEAR_BYTES_MAX
    }
}

impl Member {
    /// Whether there is something for [`Member::send_lagging`] to send.
    pub fn has_lagging(&self) -> bool {
        !self.far_behind().is_empty()
    }

    /// Sends the next entries to every follower that is far behind: about `bytes` bytes. It sends more if the log has
    /// grown by more than half of that, so that the followers catch up, and all entries if nothing can be committed
    /// without them. A shell calls this every few milliseconds while [`Member::has_lagging`]; if it does not, ticks do
    /// the same.
    pub fn send_lagging(&mut self, bytes: u64) {
        let followers = self.far_behind();
        let committed = self.node.raft.raft_log.committed;
        let allowance = &mut self.node.mut_store().allowance;
        let grown = std::mem::take(&mut allowance.grown);
        allowance.is_fresh = true;
        let is_needed = allowance.stalled_ticks >= STALLED_TICKS && allowance.waiting == Some(committed);
        let bytes = if is_needed { u64::MAX } else { bytes.max(grown.saturating_mul(CATCH_UP_FACTOR)) };
        for id in followers {
            self.node.store().allowance.left.set(bytes);
            while let Some(next) = self.next_of(id).filter(|next| self.node.store().is_far_behind(*next)) {
                self.node.raft.send_append(id);
                if self.next_of(id) == Some(next) {
                    // The allowance is used up, the follower's window is full, or it must answer first.
                    break;
                }
            }
        }
        self.node.store().allowance.left.set(0);
    }

    /// Handles a tick for followers that are far behind.
    pub(crate) fn tick_lagging(&mut self) {
        let log = &self.node.raft.raft_log;
        let waiting = Some(log.committed).filter(|committed| *committed < log.last_index());
        let allowance = &mut self.node.mut_store().allowance;
        let is_stalled = waiting.is_some() && waiting == allowance.waiting;
        allowance.stalled_ticks = if is_stalled { allowance.stalled_ticks.saturating_add(1) } else { 0 };
        allowance.waiting = waiting;
        if !std::mem::take(&mut allowance.is_fresh) {
            self.send_lagging(TICK_BYTES);
        }
    }

    /// Followers that are far behind, need only entries in memory, and can be sent to.
    fn far_behind(&self) -> Vec<u64> {
        let raft = &self.node.raft;
        if raft.state != StateRole::Leader || self.is_closed() {
            return Vec::new();
        }
        let first = raft.raft_log.first_index();
        let behind = raft.prs().iter().filter(|(id, progress)| {
            let can_be_sent = **id != raft.id && !progress.is_paused() && progress.next_idx >= first;
            can_be_sent && self.node.store().is_far_behind(progress.next_idx)
        });
        let mut ids: Vec<u64> = behind.map(|(id, _)| *id).collect();
        ids.sort_unstable();
        ids
    }

    fn next_of(&self, id: u64) -> Option<u64> {
        self.node.raft.prs().get(id).map(|progress| progress.next_idx)
    }
}

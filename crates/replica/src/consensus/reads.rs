//! Read indexes: requested, and distinguished from those of other members.

use crate::consensus::core::Member;
use raft::StateRole;

impl Member {
    /// Asks for the index that a linearizable read must wait for. One call serves every read that is waiting now. The number
    /// comes back in [`Work::reads`]; `None` when no leader can answer yet (ask again after the next tick).
    pub fn read_index(&mut self) -> Option<u64> {
        let raft = &self.node.raft;
        let leads = raft.state == StateRole::Leader;
        if (leads && !raft.commit_to_current_term()) || (!leads && raft.leader_id == 0) || self.is_closed() {
            return None;
        }
        // The counter never repeats: no process runs long enough for that many reads.
        self.read_counter = self.read_counter.wrapping_add(1);
        let mut context = Vec::with_capacity(24);
        for part in [self.node.raft.id, self.boot_nonce, self.read_counter] {
            context.extend_from_slice(&part.to_be_bytes());
        }
        self.pending_reads.insert(self.read_counter);
        self.node.read_index(context);
        Some(self.read_counter)
    }

    /// Forgets a read index that was requested: the caller requests it again.
    pub fn forget_read(&mut self, number: u64) {
        self.pending_reads.remove(&number);
    }

    /// Forgets read indexes that were requested and never answered because the leader changed: the caller requests them
    /// again.
    pub fn forget_reads(&mut self) {
        self.pending_reads.clear();
    }

    pub(crate) fn own_read(&mut self, read: &raft::ReadState) -> Option<(u64, u64)> {
        let (parts, []) = read.request_ctx.as_chunks::<8>() else { return None };
        let [id, nonce, number] = parts else { return None };
        let number = u64::from_be_bytes(*number);
        let own = u64::from_be_bytes(*id) == self.node.raft.id && u64::from_be_bytes(*nonce) == self.boot_nonce;
        (own && self.pending_reads.remove(&number)).then_some((number, read.index))
    }
}

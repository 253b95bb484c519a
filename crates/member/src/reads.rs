//! Read indexes: asked for, and told apart from those of others.

use crate::core::Member;
use raft::StateRole;

impl Member {
    /// Asks for the index that a linearizable read must wait for. One call serves every read that is waiting now. The number
    /// comes back in [`Work::reads`]; `None` when nobody can tell yet (ask again after the next tick).
    pub fn read_index(&mut self) -> Option<u64> {
        let raft = &self.node.raft;
        let leads = raft.state == StateRole::Leader;
        if (leads && !raft.commit_to_current_term()) || (!leads && raft.leader_id == 0) || self.is_closed() {
            return None;
        }
        self.read_counter += 1;
        let mut context = Vec::with_capacity(24);
        for part in [self.node.raft.id, self.boot_nonce, self.read_counter] {
            context.extend_from_slice(&part.to_be_bytes());
        }
        self.pending_reads.insert(self.read_counter);
        self.node.read_index(context);
        Some(self.read_counter)
    }

    /// Forgets a read that was asked for: the caller asks anew.
    pub fn forget_read(&mut self, number: u64) {
        self.pending_reads.remove(&number);
    }

    /// Forgets reads that were asked for and never answered (the leader changed): the caller asks anew.
    pub fn forget_reads(&mut self) {
        self.pending_reads.clear();
    }

    pub(crate) fn own_read(&mut self, read: &raft::ReadState) -> Option<(u64, u64)> {
        let context: &[u8; 24] = read.request_ctx.as_slice().try_into().ok()?;
        let part = |at: usize| context[at..at + 8].iter().fold(0u64, |number, byte| number << 8 | u64::from(*byte));
        let number = part(16);
        let own = part(0) == self.node.raft.id && part(8) == self.boot_nonce;
        (own && self.pending_reads.remove(&number)).then_some((number, read.index))
    }
}

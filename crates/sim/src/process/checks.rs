//! Invariants of each member, checked at every step.

use super::machine::Machine;
use crate::env::Env;
use crate::mutation::Mutation;
use crate::operation::Answer;
use crate::trace::trace;
use api::{Message, raftpb};
use replica::{LogBatch, LogChange, Member, Role, Status, Work};

impl Machine {
    /// Checks Raft's work for this member before any of it is done.
    pub(super) fn check_work(&mut self, env: &mut Env, raft: &Member, work: &Work) {
        trace!(
            env,
            "{} work {} entries {} hard state {:?} committed {} sync {}",
            self.host,
            work.number,
            work.entries.len(),
            work.hard_state.map(|state| (state.term(), state.vote(), state.commit())),
            work.committed.len(),
            work.must_sync
        );
        if let Some(metadata) = work.snapshot.as_ref().and_then(|snapshot| snapshot.metadata.as_ref()) {
            self.log.restart(metadata.index(), metadata.term());
        }
        self.log.append(work.entries.iter().map(|entry| (entry.index(), entry.term())));
        let status = raft.status();
        let (newest, known) = (work.committed.last().map_or(0, raftpb::Entry::index), env.ledger.last_committed());
        assert!(self.outbox.is_none() || newest <= known, "an observer is sent entry {newest}, of {known} committed");
        for entry in &work.committed {
            env.ledger.commits(self.id, status.role == Role::Leader, status.term, entry);
        }
        self.check_leader(env, &status);
        if env.options.mutation == Some(Mutation::AcknowledgesBeforeCommit) && status.role == Role::Leader {
            work.entries.iter().for_each(|entry| self.acknowledge_too_early(env, entry));
        }
    }

    fn acknowledge_too_early(&self, env: &mut Env, entry: &raftpb::Entry) {
        let request = api::etcdserverpb::InternalRaftRequest::decode(entry.data.clone().unwrap_or_default());
        let id = request.ok().and_then(|request| request.header).map_or(0, |header| header.id);
        if let Some(operation) = env.history.of_request(id).filter(|_| self.pending.waits(id)) {
            let result = Ok(Box::new(store::Response::None));
            env.answer(operation, Answer::Applied { index: entry.index(), result });
        }
    }

    /// Checks a member that leads, before it sends a message as a leader. A sole voter wins its election before its own
    /// vote is on the disk, and is silent until then: if it loses power first, it has never led.
    fn check_leader(&mut self, env: &mut Env, status: &Status) {
        let is_durable = env.ledger.durable.get(&self.id).is_some_and(|durable| durable.term >= status.term);
        if status.role == Role::Leader && self.leads_in != status.term && is_durable {
            self.leads_in = status.term;
            env.ledger.leads(self.id, status.term, &self.log);
        }
    }

    /// Compares the member's status with its last one.
    pub(super) fn check_status(&mut self, env: &mut Env, status: &Status) {
        if let Some(last) = self.last_status {
            assert!(last.term <= status.term, "{:x} goes from term {} to {}", self.id, last.term, status.term);
            assert!(last.committed <= status.committed, "{:x} takes a commit back: {last:?} {status:?}", self.id);
        }
        let may_be = self.outbox.is_none() || status.role == Role::Follower;
        assert!(may_be, "observer {:x} is {:?}", self.id, status.role);
        assert!(status.applied <= status.committed, "{:x} has applied what is not committed: {status:?}", self.id);
        self.check_leader(env, status);
        if self
            .last_status
            .is_none_or(|last| (last.role, last.term, last.leader) != (status.role, status.term, status.leader))
        {
            trace!(env, "{} is {:?} of term {} under {:x}", self.host, status.role, status.term, status.leader);
        }
        self.last_status = Some(*status);
    }

    /// Checks a leader's progress of the other members.
    pub(super) fn check_progress(&self, env: &Env, raft: &Member) {
        for other in raft.progress() {
            assert!(
                other.next > other.matched,
                "{:x} would send {:x} again what it is known to hold, at {} us: {other:?}",
                self.id,
                other.id,
                env.now_us
            );
        }
    }

    /// Notes a batch that is in the log: its entries are on a disk.
    pub(super) fn check_durable(&self, env: &mut Env, batch: &LogBatch) {
        for LogChange { snapshot, entries, hard_state, must_sync } in batch.changes() {
            let durable = env.ledger.durable.entry(self.id).or_default();
            if let Some(snapshot) = snapshot {
                durable.log.restart(snapshot.index(), snapshot.term());
            }
            durable.log.append(entries.iter().map(|entry| (entry.index(), entry.term())));
            if let Some(state) = hard_state.filter(|_| must_sync) {
                (durable.term, durable.vote) = (state.term(), state.vote());
            }
            if let Some(state) = hard_state {
                // State that was only written is synced with the next sync.
                durable.written_commit = durable.written_commit.max(state.commit());
            }
            if must_sync {
                durable.commit = durable.commit.max(durable.written_commit);
            }
            for entry in entries {
                let log = &env.ledger.durable.entry(self.id).or_default().log;
                if let Some(before) = entry.index().checked_sub(1).and_then(|before| log.term(before)) {
                    env.ledger.entry(before, entry);
                }
            }
        }
    }
}

//! Committed entries into the store, answers to who waits, and checkpoints.

use super::{PowerCut, Process, disk_result};
use crate::env::Env;
use crate::mutation::Mutation;
use crate::operation::{Answer, Request};
use crate::schedule::Event;
use crate::trace::trace;
use api::{Message, raftpb};
use replica::Piece;
use store::{Response, Sink};

/// What applying a batch gave.
#[derive(Default)]
struct Outcomes {
    done: Vec<(u64, u64, Result<Response, api::Error>)>,
    changes: Vec<(u64, raftpb::ConfChange)>,
}

impl Sink for Outcomes {
    fn done(&mut self, index: u64, request_id: u64, result: Result<Response, api::Error>) {
        self.done.push((index, request_id, result));
    }

    fn conf_change(&mut self, index: u64, change: raftpb::ConfChange) {
        self.changes.push((index, change));
    }

    fn raise_no_space(&mut self) {}
}

impl Process {
    /// Gives the store what it can be given now.
    pub(super) fn hand_on(&mut self, env: &mut Env) -> Result<(), PowerCut> {
        if env.options.mutation == Some(Mutation::ForgetsRemovals) {
            self.backlog.persisted(u64::MAX);
        }
        while let Some(piece) = self.backlog.next(|| self.to_apply.is_empty()) {
            match piece {
                Piece::Entries(entries) => self.apply_later(env, entries)?,
                Piece::Change(entry) => self.apply(env, &[entry])?,
            }
        }
        Ok(())
    }

    /// Applies in place, or has the apply thread do it. Configuration changes wait for everything before them.
    pub(super) fn apply_later(&mut self, env: &mut Env, entries: Vec<raftpb::Entry>) -> Result<(), PowerCut> {
        if entries.is_empty() {
            return Ok(());
        }
        let has_change = entries.iter().any(|entry| entry.r#type() != raftpb::EntryType::EntryNormal);
        let thread_is_idle = self.to_apply.is_empty();
        self.to_apply.push_back(entries);
        if has_change && self.blocked {
            self.applies_when_durable = true;
            return Ok(());
        }
        if has_change || (env.plan.apply_us == 0 && !self.blocked) {
            return self.apply_all(env);
        }
        if env.plan.apply_us > 0 && thread_is_idle {
            let delay_us = env.random.below(env.plan.apply_us) + 1;
            env.after(delay_us, Event::Apply { host: self.host, boot: self.boot });
        }
        Ok(())
    }

    /// What a shell that writes in place applies once the disk is done.
    pub(super) fn apply_in_place(&mut self, env: &mut Env) -> Result<(), PowerCut> {
        let is_waiting = std::mem::take(&mut self.applies_when_durable);
        if is_waiting || env.plan.apply_us == 0 { self.apply_all(env) } else { Ok(()) }
    }

    /// The apply thread gets to a batch.
    pub(crate) fn apply_next(&mut self, env: &mut Env) -> Result<(), PowerCut> {
        if self.applies_when_durable {
            return Ok(());
        }
        if let Some(entries) = self.to_apply.pop_front() {
            self.apply(env, &entries)?;
        }
        if !self.to_apply.is_empty() {
            let delay_us = env.random.below(env.plan.apply_us.max(1)) + 1;
            env.after(delay_us, Event::Apply { host: self.host, boot: self.boot });
        }
        self.wake(env);
        Ok(())
    }

    /// Waits for the apply thread.
    pub(super) fn apply_all(&mut self, env: &mut Env) -> Result<(), PowerCut> {
        while let Some(entries) = self.to_apply.pop_front() {
            self.apply(env, &entries)?;
        }
        Ok(())
    }

    fn apply(&mut self, env: &mut Env, entries: &[raftpb::Entry]) -> Result<(), PowerCut> {
        let before = self.applier.applied_index();
        let mut outcomes = Outcomes::default();
        disk_result(&self.disk, self.applier.apply(entries, &mut outcomes))?;
        let Outcomes { done, changes } = outcomes;
        let mut results = done.into_iter().peekable();
        for entry in entries.iter().filter(|entry| entry.index() > before) {
            let result = results.next_if(|(index, ..)| *index == entry.index());
            let result = result.map(|(_, request_id, result)| (request_id, result));
            self.applied(env, entry, result);
        }
        for (index, change) in changes {
            self.change_members(env, index, &change);
        }
        let applied = self.applier.applied_index();
        trace!(env, "{} applied up to {applied}", self.host);
        if env.random.chance(15) && self.applier.can_capture() {
            env.ledger.hash(self.id, applied, self.store.hash());
        }
        self.checkpoint_if_due(env);
        Ok(())
    }

    fn applied(&mut self, env: &mut Env, entry: &raftpb::Entry, done: Option<(u64, Result<Response, api::Error>)>) {
        let index = entry.index();
        let is_first = env.ledger.applies(self.id, index, done.as_ref().map(|(_, result)| result));
        if is_first {
            // Taken out and put back: the model asks the ledger for the entry.
            if let Some(mut model) = env.history.model.take() {
                env.ledger.teach(&mut model, index, done.as_ref().map(|(_, result)| result));
                env.history.model = Some(model);
            }
        }
        let Some((request_id, result)) = done else { return };
        if is_first {
            env.history.applied(request_id, index);
            self.note_expiry(env, request_id, entry, &result);
        }
        match &result {
            Ok(Response::LeaseGrant(grant)) => self.granted(env, grant.id, grant.ttl),
            Ok(Response::LeaseRevoke(lease, _)) => self.revoked(*lease),
            _ => {}
        }
        if let Some(waiting) = self.pending.remove(&request_id) {
            env.answer(waiting.operation, Answer::Applied { index, result: result.map(Box::new) });
        }
    }

    /// A lease that ends without a client's wish must not have been renewed.
    fn note_expiry(&self, env: &Env, request_id: u64, entry: &raftpb::Entry, result: &Result<Response, api::Error>) {
        let Some(operation) = env.history.of_request(request_id) else { return };
        let operation = &env.history.operations[operation];
        if operation.client.is_none()
            && result.is_ok()
            && matches!(operation.request, Request::Write(_))
            && let Some(lease) = revoked_lease(entry)
        {
            env.history.expired(env.now_us, lease);
        }
    }

    fn change_members(&mut self, env: &mut Env, index: u64, change: &raftpb::ConfChange) {
        if env.options.mutation == Some(Mutation::SkipsConfChange) && index > 10 && self.host % 2 == 1 {
            self.applier.keep_conf_state();
            return;
        }
        if change.r#type() == raftpb::ConfChangeType::ConfChangeRemoveNode {
            env.ledger.removes(self.id, index);
        }
        match self.member.apply_conf_change(change) {
            Ok(conf_state) => {
                env.ledger.members(self.id, index, &conf_state);
                self.applier.set_conf_state(conf_state);
            }
            Err(error) => panic!("{:x} cannot apply the configuration change {change:?}: {error}", self.id),
        }
        self.note_members(env);
    }

    /// Who belongs to the cluster has changed.
    pub(super) fn note_members(&mut self, env: &mut Env) {
        self.removed = self.store.members().removed;
        if self.removed.contains(&self.id) {
            trace!(env, "{} was removed", self.host);
            env.after(1_000_000, Event::Leave { host: self.host, boot: self.boot });
        }
    }

    pub(super) fn checkpoint_if_due(&mut self, env: &mut Env) {
        let behind = self.applier.applied_index() - self.checkpoint_index;
        if behind >= env.plan.checkpoint_entries && self.captured.is_none() && self.applier.can_capture() {
            let job = self.applier.checkpoint();
            self.checkpoint_index = job.applied_index();
            self.captured = Some(job);
            let delay_us = env.random.below(30_000);
            env.after(delay_us, Event::Checkpoint { host: self.host, boot: self.boot });
        }
    }

    /// The thread of the captured checkpoint runs.
    pub(crate) fn write_checkpoint(&mut self, env: &mut Env) -> Result<(), PowerCut> {
        let Some(job) = self.captured.take() else { return Ok(()) };
        let (index, term, conf_state) = (job.applied_index(), job.applied_term(), job.conf_state().clone());
        disk_result(&self.disk, job.write())?;
        trace!(env, "{} has a checkpoint at {index}", self.host);
        let older_index = self.store.oldest_checkpoint_index();
        let snapshot = api::walpb::Snapshot { index: Some(index), term: Some(term), conf_state: Some(conf_state) };
        self.release = Some((snapshot, older_index));
        self.release_log()
    }

    /// Compaction, rewriting and spare segments, as the slow threads do them.
    pub(crate) fn maintain(&mut self, env: &mut Env) -> Result<(), PowerCut> {
        let budget_bytes = 1 + env.random.below(60_000);
        disk_result(&self.disk, self.store.maintain(budget_bytes))?;
        if env.random.chance(50) {
            disk_result(&self.disk, self.applier.spare().prepare())?;
        }
        if env.random.chance(50) {
            disk_result(&self.disk, self.wal.spare().prepare())?;
        }
        Ok(())
    }

    /// Entries stay in memory for followers that lag.
    pub(super) fn trim(&mut self, env: &Env) {
        let status = self.member.status();
        let keep = if status.sole_voter { 0 } else { env.plan.catchup_entries };
        if self.member.log_len() as u64 > keep + 10 {
            self.member.trim(status.applied.saturating_sub(keep));
        }
    }
}

fn revoked_lease(entry: &raftpb::Entry) -> Option<i64> {
    let request = api::etcdserverpb::InternalRaftRequest::decode(entry.data.clone().unwrap_or_default()).ok()?;
    request.lease_revoke.map(|revoke| revoke.id)
}

//! Applying committed entries, answering waiters, and checkpoints.

use super::machine::Machine;
use super::{PowerCut, disk_result};
use crate::env::Env;
use crate::operation::{Answer, Request};
use crate::schedule::Event;
use crate::trace::trace;
use api::{Message, raftpb};
use disk::Reaper;
use disk::sim::SimDisk;
use std::time::Duration;
use store::{Response, Sink};

/// Errors of a disk, as Linux numbers them.
const EIO: i32 = 5;
const ENOSPC: i32 = 28;
/// Entries of a stride, in runs whose batches are applied in strides.
const STRIDE_MAX: u64 = 2;
/// The longest time between two strides, at least.
const STRIDE_PAUSE_US: u64 = 4_000;
/// The end of the names of the store's files that are not needed any more.
const INTAKE_SUFFIX: &str = ".intake";

/// The result of a request.
struct Done {
    index: u64,
    request_id: u64,
    result: Result<Response, api::Error>,
    /// What it did, if it passed the member's quota and is answered with an error for it.
    over_quota: Option<Response>,
}

/// The results of applying a batch.
#[derive(Default)]
struct Outcomes {
    done: Vec<Done>,
    changes: Vec<(u64, raftpb::ConfChange)>,
    over_quota: Option<Response>,
}

impl Sink for Outcomes {
    fn done(&mut self, index: u64, request_id: u64, result: Result<Response, api::Error>) {
        let over_quota = self.over_quota.take();
        self.done.push(Done { index, request_id, result, over_quota });
    }

    fn conf_change(&mut self, index: u64, change: raftpb::ConfChange) {
        self.changes.push((index, change));
    }

    fn over_quota(&mut self, response: &Response) {
        self.over_quota = Some(response.clone());
    }
}

impl Machine {
    /// Applies entries in place, or queues them for the apply thread.
    pub(super) fn apply(&mut self, env: &mut Env, entries: Vec<raftpb::Entry>) -> Result<(), PowerCut> {
        let was_idle = self.applying.is_idle();
        match self.applying.offer(entries, || ()) {
            Some(entries) => {
                self.apply_normal(env, &entries)?;
                self.note_applied();
                Ok(())
            }
            None if was_idle => {
                self.apply_later(env);
                Ok(())
            }
            None => Ok(()),
        }
    }

    fn apply_later(&self, env: &mut Env) {
        let longest_us = env.plan.apply_us.max(if self.under_way.is_empty() { 1 } else { STRIDE_PAUSE_US });
        let delay_us = env.random.below(longest_us) + 1;
        env.after(delay_us, Event::Apply { host: self.host, boot: self.boot });
    }

    /// Applies the next batch on the apply thread, or the next stride of the batch under way.
    pub(super) fn apply_next(&mut self, env: &mut Env) -> Result<(), PowerCut> {
        if self.under_way.is_empty() {
            let Some((entries, _)) = self.applying.take() else { return Ok(()) };
            self.under_way = entries.into();
        }
        let mut stride = self.under_way.len();
        if env.plan.extras.applies_in_strides {
            stride = stride.min(1 + env.random.below(STRIDE_MAX) as usize);
        }
        let entries: Vec<raftpb::Entry> = self.under_way.drain(..stride).collect();
        self.apply_normal(env, &entries)?;
        if self.under_way.is_empty() {
            self.note_applied();
            self.applying.done();
        }
        if !self.applying.is_idle() {
            self.apply_later(env);
        }
        Ok(())
    }

    /// Notes for all threads what is applied: once per batch, whose entries are seen and answered before.
    pub(super) fn note_applied(&mut self) {
        self.noted = self.applier.applied_index();
    }

    /// Whether a part of a batch is applied, and not all of it.
    pub(crate) fn is_within_batch(&self) -> bool {
        !self.under_way.is_empty()
    }

    /// Whether the state can be captured: not in the middle of a batch.
    pub(crate) fn can_capture(&self) -> bool {
        !self.is_within_batch() && self.applier.can_capture()
    }

    fn apply_normal(&mut self, env: &mut Env, entries: &[raftpb::Entry]) -> Result<(), PowerCut> {
        self.apply_entries(env, entries, |change| panic!("{change:?} came with entries that do not wait for it"))
    }

    pub(super) fn apply_entries(
        &mut self,
        env: &mut Env,
        entries: &[raftpb::Entry],
        mut take_effect: impl FnMut(&raftpb::ConfChange) -> Option<raftpb::ConfState>,
    ) -> Result<(), PowerCut> {
        let before = self.applier.applied_index();
        let mut outcomes = Outcomes::default();
        disk_result(&self.disk, self.applier.apply(entries, &mut outcomes))?;
        let Outcomes { done, changes, .. } = outcomes;
        let mut results = done.into_iter().peekable();
        for entry in entries.iter().filter(|entry| entry.index() > before) {
            let done = results.next_if(|done| done.index == entry.index());
            self.applied(env, entry, done);
        }
        for (index, change) in changes {
            if change.r#type() == raftpb::ConfChangeType::ConfChangeRemoveNode {
                env.ledger.removes(self.id, index);
            }
            match take_effect(&change) {
                Some(conf_state) => {
                    if change.r#type() == raftpb::ConfChangeType::ConfChangeRemoveNode {
                        env.ledger.leaves(self.id, &conf_state);
                    }
                    env.ledger.members(self.id, index, &conf_state);
                    self.applier.set_conf_state(conf_state);
                }
                None => self.applier.keep_conf_state(),
            }
            self.note_members(env);
        }
        let applied = self.applier.applied_index();
        trace!(env, "{} applied up to {applied}", self.host);
        if env.random.chance(15) && self.applier.can_capture() {
            env.ledger.hash(self.id, applied, self.store.hash());
        }
        self.checkpoint_if_due(env);
        Ok(())
    }

    fn applied(&mut self, env: &mut Env, entry: &raftpb::Entry, done: Option<Done>) {
        let index = entry.index();
        // What it did, whatever it is answered: that is the same on every member.
        let effect = done.as_ref().map(|done| done.over_quota.clone().map_or_else(|| done.result.clone(), Ok));
        let is_first = env.ledger.applies(self.id, index, effect.as_ref());
        if is_first {
            // The model is taken out and put back, because it needs the ledger while it is changed.
            if let Some(mut model) = env.history.model.take() {
                env.ledger.teach(&mut model, index, effect.as_ref());
                env.history.model = Some(model);
            }
        }
        let Some(Done { request_id, result, over_quota, .. }) = done else { return };
        if is_first {
            env.ledger.proposed(request_id, entry);
            env.history.applied(request_id, index);
            note_expiry(env, request_id, entry, &result);
        }
        if over_quota.is_some() {
            assert!(env.plan.may_fill(), "entry {index} found no space, and there is enough");
            self.raise_no_space(env);
        }
        if let Some(response) = result.as_ref().ok().or(over_quota.as_ref()) {
            self.lessor.applied(response, self.clock.now_ms(env));
            self.forgotten(env, request_id);
            match response {
                Response::Alarm(_) => self.no_space.reset(),
                Response::Auth(_, event) => self.tokens.applied(event, self.clock.now_ms(env)),
                _ => {}
            }
        }
        if let Some(waiting) = self.pending.take(request_id) {
            env.answer(waiting.waiter.operation, Answer::Applied { index, result: result.map(Box::new) });
        }
    }

    pub(super) fn checkpoint_if_due(&mut self, env: &mut Env) {
        let now = Duration::from_micros(env.now_us);
        let is_due = self.checkpoint.is_due(self.applier.applied_index(), false, now);
        if is_due && self.captured.is_none() && self.can_capture() {
            let job = self.applier.checkpoint();
            self.checkpoint.taken(job.applied_index(), now);
            self.captured = Some(job);
            let delay_us = env.random.below(30_000);
            env.after(delay_us, Event::Checkpoint { host: self.host, boot: self.boot });
        }
    }

    pub(super) fn write_checkpoint(&mut self, env: &mut Env) -> Result<(), PowerCut> {
        let Some(job) = self.captured.take() else { return Ok(()) };
        let (index, term, conf_state) = (job.applied_index(), job.applied_term(), job.conf_state().clone());
        disk_result(&self.disk, job.write())?;
        trace!(env, "{} has a checkpoint at {index}", self.host);
        let older_index = self.store.oldest_checkpoint_index();
        let snapshot = api::walpb::Snapshot { index: Some(index), term: Some(term), conf_state: Some(conf_state) };
        self.release = Some((snapshot, older_index));
        Ok(())
    }

    pub(super) fn maintain(&mut self, env: &mut Env) -> Result<(), PowerCut> {
        let budget_bytes = 1 + env.random.below(60_000);
        // A disk that is too full to rename what is not needed any more. Nothing is drawn for it.
        let is_full = budget_bytes % 16 == 1;
        self.disk.fail_renames(is_full.then_some((INTAKE_SUFFIX, ENOSPC)));
        let maintained = self.store.maintain(budget_bytes);
        self.disk.fail_renames(None);
        disk_result(&self.disk, maintained)?;
        // As the thread that gives files back.
        disk_result(&self.disk, self.store.segments().write_back())?;
        give_back(&self.disk, self.store.segments().reaper(), 1 + budget_bytes / 4)?;
        if env.random.chance(50) {
            disk_result(&self.disk, self.applier.spare().prepare())?;
        }
        Ok(())
    }
}

/// Takes a step of a reaper. In some the disk refuses to cut or remove anything, which costs no data.
pub(super) fn give_back(disk: &SimDisk, reaper: &Reaper, bytes: u64) -> Result<(), PowerCut> {
    let refuses = bytes % 8 == 1;
    disk.fail_shrinking(refuses.then_some(EIO));
    let step = reaper.step(bytes);
    disk.fail_shrinking(None);
    if refuses && !disk.is_cut() && disk.errors() == 0 {
        return match step {
            Err(error) if error.is_fatal => panic!("a directory was not synced on a disk that works: {error}"),
            _ => Ok(()),
        };
    }
    reaper.retry();
    disk_result(disk, step).map(|_| ())
}

/// Checks the end of an expired lease: it must not have been renewed.
fn note_expiry(env: &mut Env, request_id: u64, entry: &raftpb::Entry, result: &Result<Response, api::Error>) {
    let Some(operation) = env.history.of_request(request_id) else { return };
    let operation = &env.history.operations[operation];
    if operation.client.is_none()
        && result.is_ok()
        && matches!(operation.request, Request::Write(_))
        && let Some(lease) = revoked_lease(entry)
    {
        env.history.expired(env.now_us, lease);
        env.happened.leases_ended += 1;
    }
}

fn revoked_lease(entry: &raftpb::Entry) -> Option<i64> {
    let request = api::etcdserverpb::InternalRaftRequest::decode(entry.data.clone().unwrap_or_default()).ok()?;
    request.lease_revoke.map(|revoke| revoke.id)
}

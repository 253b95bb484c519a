//! Committed entries into the store, and outcomes back to who waits.
//!
//! A few entries are applied by the thread that takes the turn of consensus, more by the apply thread ([`SharedApplyQueue`]).

use super::deliveries::{Deliveries, Delivery};
use super::inbox::{Released, Waiter};
use super::{Node, Outcome, trail};
use crate::metrics::{Answered, Operation, Written};
use api::{Message, raftpb};
use contain::lock;
use handover::SharedApplyQueue;
use replica::{APPLY_IN_PLACE_ENTRIES_MAX, CheckpointDue, CheckpointPace};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, TryLockError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use store::{Applier, Response, Sink};
use telemetry::logging;

/// Outcomes that are gathered before they are handed out.
const OUTCOMES_MAX: usize = 64;
/// Least time between two checkpoints.
const CHECKPOINT_GAP: Duration = Duration::from_secs(3);
/// So many entries take a start about half a second to apply. From there on checkpoints follow each other sooner.
const CHECKPOINT_MANY: u64 = 200_000;
const CHECKPOINT_GAP_MANY: Duration = Duration::from_secs(1);
/// Longest time after the last checkpoint until the next one, if something changed.
const CHECKPOINT_AGE: Duration = Duration::from_secs(60);

/// The consensus thread's side of applying.
pub(super) struct Apply {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

pub(super) struct Shared {
    applying: Mutex<Applying>,
    /// Each batch carries the time at which its first entry was committed.
    queue: SharedApplyQueue<Instant>,
}

/// The write side of the store, and the work that becomes due as entries are applied.
struct Applying {
    node: Arc<Node>,
    applier: Applier,
    checkpoint: Checkpoint,
    /// A read waits for the entries that were applied last.
    is_awaited: bool,
}

struct Checkpoint {
    due: CheckpointDue,
    is_running: Arc<AtomicBool>,
}

impl Apply {
    pub(super) fn start(node: Arc<Node>, applier: Applier) -> std::io::Result<Apply> {
        let pace = CheckpointPace {
            entries: node.config.snapshot_count,
            gap: CHECKPOINT_GAP,
            many: CHECKPOINT_MANY,
            gap_many: CHECKPOINT_GAP_MANY,
            age_max: CHECKPOINT_AGE,
        };
        let due = CheckpointDue::new(pace, applier.applied_index(), node.clock.now().at);
        let checkpoint = Checkpoint { due, is_running: Arc::default() };
        let shared = Arc::new(Shared {
            applying: Mutex::new(Applying { node, applier, checkpoint, is_awaited: false }),
            queue: SharedApplyQueue::new(APPLY_IN_PLACE_ENTRIES_MAX),
        });
        let worker = shared.clone();
        // Set once. The reference is weak because the applying side owns the node.
        let _ = lock(&shared.applying).node.applying.set(Arc::downgrade(&shared));
        let thread = std::thread::Builder::new().name("apply".into()).spawn(move || worker.run())?;
        Ok(Apply { shared, thread: Some(thread) })
    }

    /// Applies, or queues to be applied.
    pub(super) fn committed(&self, entries: Vec<raftpb::Entry>) {
        if let Some(entries) = self.shared.queue.offer(entries, Instant::now) {
            lock(&self.shared.applying).apply(&entries, Instant::now());
        }
    }

    /// Applies a configuration change. `take_effect` puts the change into effect in consensus and returns the new
    /// configuration, or `None` when the change had no effect.
    pub(super) fn conf_change(
        &self,
        entry: &raftpb::Entry,
        take_effect: impl FnMut(&raftpb::ConfChange) -> Option<raftpb::ConfState>,
    ) {
        assert!(self.shared.queue.is_idle(), "a configuration change overtakes entries before it");
        lock(&self.shared.applying).conf_change(entry, take_effect);
    }

    /// Bytes of memory of the entries that wait to be applied.
    pub(super) fn bytes(&self) -> usize {
        self.shared.queue.bytes()
    }

    /// Captures a snapshot for a follower, unless entries are being applied right now.
    pub(super) fn export(&self) -> Option<store::Export> {
        let mut applying = match self.shared.applying.try_lock() {
            Ok(applying) => applying,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return None,
        };
        applying.applier.can_capture().then(|| applying.applier.export())
    }

    /// Replaces the store's data with a snapshot that another member sent.
    pub(super) fn install(&self, prepared: store::Prepared) {
        self.shared.queue.wait_idle();
        lock(&self.shared.applying).install(prepared);
    }

    /// Writes a checkpoint if its age makes it due.
    pub(super) fn tick(&self) {
        if self.shared.queue.is_idle() {
            lock(&self.shared.applying).checkpoint_if_due();
        }
    }

    /// Waits for everything queued, then writes a last checkpoint, so that the next start has nothing to replay.
    pub(super) fn stop(&mut self) {
        self.shared.queue.wait_idle();
        self.shared.queue.stop();
        if let Some(thread) = self.thread.take() {
            // A panic there has ended the process already.
            let _ = thread.join();
        }
        lock(&self.shared.applying).final_checkpoint();
    }

    /// Whether no entry waits to be applied or is being applied. If one does, consensus is woken when the last one is
    /// applied.
    pub(super) fn is_idle_or_tells(&self) -> bool {
        self.shared.queue.is_idle_or_tells()
    }
}

impl Shared {
    /// Bytes of memory of the entries that wait to be applied.
    pub(super) fn queued_bytes(&self) -> usize {
        self.queue.bytes()
    }

    /// Captures the state between two batches, for a client's snapshot. `None` while a configuration change is under way.
    pub(super) fn capture(&self) -> Option<store::SnapshotJob> {
        let applier = &mut lock(&self.applying).applier;
        applier.can_capture().then(|| applier.snapshot())
    }

    /// Captures a snapshot for an observer. `None` while a configuration change is under way.
    pub(super) fn export(&self) -> Option<store::Export> {
        let applier = &mut lock(&self.applying).applier;
        applier.can_capture().then(|| applier.export())
    }

    fn run(&self) {
        let node = lock(&self.applying).node.clone();
        let apply = |entries: Vec<raftpb::Entry>, since: Instant| {
            let mut applying = lock(&self.applying);
            applying.apply(&entries, since);
            if std::mem::take(&mut applying.is_awaited) {
                node.inbox.nudge();
            }
        };
        self.queue.run(apply, || node.inbox.nudge());
    }
}

impl Applying {
    fn install(&mut self, prepared: store::Prepared) {
        let (index, term) = (prepared.index(), prepared.term());
        let began = Instant::now();
        self.node.metrics.installing.fetch_add(1, Ordering::Relaxed);
        logging::info("applySnapshot: opened snapshot backend", &[("snapshot-index", index.into())]);
        failpoint::point!(APPLY_AFTER_OPEN_SNAPSHOT);
        if let Err(error) = self.applier.install(prepared) {
            logging::fatal("cannot install a snapshot; this member stops", &[("error", logging::Value::Shown(&error))]);
        }
        self.node.metrics.installing.fetch_sub(1, Ordering::Relaxed);
        self.node.auth.replaced();
        self.node.set_applied(index);
        self.checkpoint.due.taken(index, self.node.clock.now().at);
        logging::info(
            "applied snapshot",
            &[
                ("snapshot-index", index.into()),
                ("snapshot-term", term.into()),
                ("took", logging::Value::Shown(&format_args!("{:?}", began.elapsed()))),
            ],
        );
    }

    /// Applies entries that were committed at `committed`.
    fn apply(&mut self, entries: &[raftpb::Entry], committed: Instant) {
        let Some(last) = entries.last() else { return };
        let began = Instant::now();
        let mut outcomes = Outcomes::new(&self.node, entries, committed, began);
        #[cfg(test)]
        entries.iter().for_each(|entry| crate::planted::panic_half_way(entry.data.as_deref().unwrap_or_default()));
        if let Err(error) = self.applier.apply(entries, &mut outcomes) {
            stop_store(&error);
        }
        assert!(outcomes.changes.is_empty(), "a configuration change came with entries that do not wait for it");
        self.is_awaited = self.node.set_applied(last.index());
        outcomes.hand_out();
        let took = began.elapsed();
        if took > self.node.config.warning_apply {
            self.node.metrics.slow_applies.fetch_add(1, Ordering::Relaxed);
            logging::warn(
                "apply request took too long",
                &[
                    ("took", logging::Value::Shown(&format_args!("{took:?}"))),
                    ("expected-duration", logging::Value::Shown(&format_args!("{:?}", self.node.config.warning_apply))),
                    ("entries", entries.len().into()),
                    ("index", last.index().into()),
                ],
            );
        }
        self.checkpoint_if_due();
    }

    fn conf_change(
        &mut self,
        entry: &raftpb::Entry,
        mut take_effect: impl FnMut(&raftpb::ConfChange) -> Option<raftpb::ConfState>,
    ) {
        let began = Instant::now();
        let entries = std::slice::from_ref(entry);
        let mut outcomes = Outcomes::new(&self.node, entries, began, began);
        if let Err(error) = self.applier.apply(entries, &mut outcomes) {
            stop_store(&error);
        }
        for change in std::mem::take(&mut outcomes.changes) {
            match take_effect(&change) {
                Some(conf_state) => self.applier.set_conf_state(conf_state),
                None => self.applier.keep_conf_state(),
            }
        }
        failpoint::point!(AFTER_APPLY_ONE_CONF_CHANGE);
        self.is_awaited = self.node.set_applied(entry.index());
        outcomes.hand_out();
        self.checkpoint_if_due();
    }

    fn checkpoint_if_due(&mut self) {
        let wanted = self.node.checkpoint_wanted.load(Ordering::Relaxed);
        let applied = self.applier.applied_index();
        let is_due = self.checkpoint.due.is_due(applied, wanted, self.node.clock.now().at);
        if is_due && self.applier.can_capture() && !self.checkpoint.is_running.load(Ordering::Acquire) {
            self.checkpoint.is_running.store(true, Ordering::Release);
            // The checkpoint gets a thread of its own: waiting for room in a queue would delay applying.
            let job = self.take_checkpoint();
            if let Err(error) = std::thread::Builder::new().name("checkpoint".into()).spawn(job) {
                logging::fatal("cannot start a thread for a checkpoint", &[("error", logging::Value::Shown(&error))]);
            }
        }
    }

    fn final_checkpoint(&mut self) {
        while self.checkpoint.is_running.load(Ordering::Acquire) {
            std::thread::sleep(Duration::from_millis(1));
        }
        // The next start replays the entries that no checkpoint covers.
        if self.checkpoint.due.is_behind(self.applier.applied_index()) && self.applier.can_capture() {
            self.take_checkpoint()();
        }
    }

    /// Captures the state now; the job writes it.
    fn take_checkpoint(&mut self) -> impl FnOnce() + Send + 'static {
        let job = self.applier.checkpoint();
        let (index, term) = (job.applied_index(), job.applied_term());
        let conf_state = job.conf_state().clone();
        self.node.checkpoint_wanted.store(false, Ordering::Relaxed);
        self.checkpoint.due.taken(index, self.node.clock.now().at);
        let running = self.checkpoint.is_running.clone();
        let node = self.node.clone();
        move || {
            let began = Instant::now();
            match job.write() {
                Ok(()) => {}
                // Nothing is lost: the log still reaches back to the last checkpoint, and disk space may become free.
                Err(error) if error.is_out_of_space() => {
                    logging::warn(
                        "no room for a checkpoint; trying again",
                        &[("error", logging::Value::Shown(&error))],
                    );
                    node.checkpoint_wanted.store(true, Ordering::Relaxed);
                    running.store(false, Ordering::Release);
                    return;
                }
                Err(error) => logging::fatal(
                    "cannot write a checkpoint; this member stops",
                    &[("error", logging::Value::Shown(&error))],
                ),
            }
            node.metrics.disk.checkpoint.observe(began.elapsed());
            logging::info("saved snapshot", &[("snapshot-index", index.into()), ("snapshot-term", term.into())]);
            // Two checkpoints are kept, so the log must start at the older one.
            let older_index = node.store.oldest_checkpoint_index();
            let snapshot = api::walpb::Snapshot { index: Some(index), term: Some(term), conf_state: Some(conf_state) };
            node.inbox.release(Released { older_index, snapshot });
            running.store(false, Ordering::Release);
        }
    }
}

fn stop_store(error: &store::Fatal) -> ! {
    logging::fatal("the store failed; this member stops", &[("error", logging::Value::Shown(error))])
}

/// The count and size of an answer for the log line about a slow write.
fn answered_with(outcome: &Outcome) -> Answered {
    let (count, bytes) = match outcome {
        Ok(Response::Put(put)) => (0, put.encoded_len()),
        Ok(Response::DeleteRange(deleted)) => (deleted.deleted, deleted.encoded_len()),
        Ok(Response::Txn(txn)) => (0, txn.encoded_len()),
        _ => return Answered { count: -1, bytes: 0 },
    };
    Answered { count, bytes }
}

/// What came of one entry.
struct Ready {
    index: u64,
    request_id: u64,
    outcome: Outcome,
    /// What applying it took of the processor; 0 where that is not measured.
    worked: Duration,
}

/// Gathers outcomes and hands them out in batches: one lock finds the waiters of a whole batch.
struct Outcomes<'a> {
    node: &'a Arc<Node>,
    entries: &'a [raftpb::Entry],
    ready: Vec<Ready>,
    /// What applying took for the next outcome, where that is measured.
    worked: Duration,
    changes: Vec<raftpb::ConfChange>,
    committed: Instant,
    /// When applying began for the outcomes in `ready`.
    began: Instant,
}

impl<'a> Outcomes<'a> {
    fn new(node: &'a Arc<Node>, entries: &'a [raftpb::Entry], committed: Instant, began: Instant) -> Self {
        let ready = Vec::with_capacity(OUTCOMES_MAX.min(entries.len()));
        Outcomes { node, entries, ready, worked: Duration::ZERO, changes: Vec::new(), committed, began }
    }

    /// The payload of the entry at `index`.
    fn payload(&self, index: u64) -> &'a [u8] {
        let first = self.entries.first().map_or(0, |entry| entry.index());
        let place = usize::try_from(index.wrapping_sub(first)).ok();
        place.and_then(|place| self.entries.get(place)).map_or(&[], |entry| entry.data())
    }

    fn hand_out(&mut self) {
        if self.ready.is_empty() {
            return;
        }
        let node = self.node;
        let now = Instant::now();
        // The time per entry: the time of the batch divided by the number of its entries.
        let share = (now - self.began) / self.ready.len() as u32;
        self.began = now;
        let ready = std::mem::take(&mut self.ready);
        let mut synced = Vec::with_capacity(ready.len());
        node.metrics.stages.synced_at(ready.iter().map(|ready| ready.index), |at| synced.push(at));
        let waiting: Vec<_> =
            node.pending.with(|pending| ready.iter().map(|ready| pending.take(ready.request_id)).collect());
        let mut answered = 0;
        let mut deliveries = Deliveries::default();
        // In the order of the log: a lease that is revoked and granted again must end up with its new deadline.
        for ((waiting, ready), synced) in waiting.into_iter().zip(ready).zip(synced) {
            let Ready { index, outcome, worked, .. } = ready;
            let payload = self.payload(index);
            let operation = Operation::of_entry(payload);
            node.metrics.applies.observe(operation, outcome.is_ok(), share);
            if let Ok(response) = &outcome {
                self.note(response, share);
            }
            if let Some(waiting) = waiting {
                answered += 1;
                let Waiter { done, since, home, .. } = waiting.waiter;
                let taken = node.clock.at(waiting.taken.at);
                let took = now.duration_since(since);
                node.metrics.requests.observe(operation, outcome.is_ok(), took);
                let synced = synced.unwrap_or(taken).max(taken);
                let committed = self.committed.max(synced);
                let written = Written {
                    queue: taken.duration_since(since),
                    log_sync: synced - taken,
                    replication: committed - synced,
                    apply: now.duration_since(committed),
                };
                node.metrics.stages.written(&written);
                let slow = (took > node.config.warning_unary_request).then(|| answered_with(&outcome));
                deliveries.add(home, Delivery { done, outcome, worked });
                if let Some(slow) = slow {
                    node.metrics.slow.wrote(payload, took, &written, slow);
                }
            }
        }
        deliveries.send();
        node.metrics.proposals_pending.fetch_sub(answered, Ordering::Relaxed);
    }

    /// Tells the lessor and the maintenance thread about the outcome, whether or not a client of this member waits for
    /// it.
    fn note(&self, response: &Response, share: Duration) {
        self.node.metrics.operations.count(response);
        match response {
            Response::LeaseGrant(_) | Response::LeaseRevoke(..) => {
                let node = self.node;
                node.lessor.with(|lessor| lessor.applied(response, node.now_ms()));
            }
            Response::Compaction(_) => {
                self.node.metrics.disk.compaction_pause.observe(share);
                self.node.wake_maintenance();
            }
            Response::Alarm(_) => self.node.no_space.reset(),
            _ => {}
        }
    }
}

impl Sink for Outcomes<'_> {
    fn counted(&mut self, counts: &store::Counts) {
        self.node.metrics.operations.applied(counts);
    }

    fn worked(&mut self, time: Duration) {
        self.worked = time;
    }

    fn is_awaited(&self, request_id: u64) -> bool {
        self.node.pending.waits(request_id)
    }

    fn hand_out(&mut self) {
        Outcomes::hand_out(self);
    }

    fn done(&mut self, index: u64, request_id: u64, outcome: Outcome) {
        // This must happen before the entry counts as applied: its token must be known by then.
        if let Ok(Response::Auth(_, event)) = &outcome {
            self.node.auth.note(event, self.node.now_ms());
        }
        if matches!(outcome, Ok(Response::Auth(..) | Response::Alarm(_))) {
            trail::tell(self.node, index, self.payload(index));
        }
        self.ready.push(Ready { index, request_id, outcome, worked: std::mem::take(&mut self.worked) });
        if self.ready.len() >= OUTCOMES_MAX {
            self.hand_out();
        }
    }

    fn conf_change(&mut self, _index: u64, change: raftpb::ConfChange) {
        self.changes.push(change);
    }

    fn over_quota(&mut self, response: &Response) {
        // Entries before this one come first: a lease that one of them has revoked may be granted again by this one.
        self.hand_out();
        self.note(response, Duration::ZERO);
        self.node.raise_no_space(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::overload::Class;
    use crate::test_support::Rig;

    #[test]
    fn answers_are_built_for_those_who_wait_here() {
        let rig = Rig::start(&[]);
        let node = rig.node();
        let now = Instant::now();
        let outcomes = Outcomes::new(node, &[], now, now);
        let waiter = Waiter { since: now, ..Waiter::new(Box::new(|_: Outcome| ()), Class::Write) };
        node.pending.with(|pending| pending.add(7, waiter, replica::Now::default()));
        assert_eq!([7, 8].map(|id| outcomes.is_awaited(id)), [true, false]);
    }
}

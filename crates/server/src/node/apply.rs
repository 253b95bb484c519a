//! Committed entries into the store, and outcomes back to who waits.
//!
//! A few entries are applied by the consensus thread itself: handing them over would cost more than applying them. More go to
//! the apply thread, so that the next batch can be written to the log meanwhile.

use super::inbox::Released;
use super::{Node, Outcome, lock};
use crate::logging;
use crate::metrics::{Answered, Operation, Written};
use api::{Message, raftpb};
use std::collections::VecDeque;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Condvar, Mutex, TryLockError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use store::{Applier, Response, Sink};

/// Batches up to this size are applied in place when the apply thread is idle.
const IN_PLACE_ENTRIES_MAX: usize = 16;
/// Outcomes gathered before they are handed out.
const OUTCOMES_MAX: usize = 64;
/// A checkpoint is never written sooner than this after the last one,
const CHECKPOINT_GAP: Duration = Duration::from_secs(3);
/// and never later than this when something changed.
const CHECKPOINT_AGE: Duration = Duration::from_secs(60);

/// The consensus thread's side of applying.
pub(super) struct Apply {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

pub(super) struct Shared {
    applying: Mutex<Applying>,
    queue: Mutex<Queue>,
    wake: Condvar,
    idle: Condvar,
}

#[derive(Default)]
struct Queue {
    batches: VecDeque<Vec<raftpb::Entry>>,
    /// When the first entry of the oldest batch was committed.
    since: Option<Instant>,
    /// Bytes of their entries.
    bytes: usize,
    busy: bool,
    /// Consensus waits for there to be nothing left.
    is_awaited: bool,
    stop: bool,
}

impl Queue {
    fn is_idle(&self) -> bool {
        self.batches.is_empty() && !self.busy
    }
}

/// The write side of the store, and what becomes due as it moves on.
struct Applying {
    node: Arc<Node>,
    applier: Applier,
    checkpoint: CheckpointDue,
    /// A read waits for what was applied last.
    is_awaited: bool,
}

struct CheckpointDue {
    index: u64,
    written: Instant,
    running: Arc<std::sync::atomic::AtomicBool>,
}

impl Apply {
    pub(super) fn start(node: Arc<Node>, applier: Applier) -> std::io::Result<Apply> {
        let checkpoint =
            CheckpointDue { index: applier.applied_index(), written: Instant::now(), running: Arc::default() };
        let shared = Arc::new(Shared {
            applying: Mutex::new(Applying { node, applier, checkpoint, is_awaited: false }),
            queue: Mutex::default(),
            wake: Condvar::new(),
            idle: Condvar::new(),
        });
        let worker = shared.clone();
        // Set once; the node must not keep the applying side, which keeps the node.
        let _ = lock(&shared.applying).node.applying.set(Arc::downgrade(&shared));
        let thread = std::thread::Builder::new().name("apply".into()).spawn(move || worker.run())?;
        Ok(Apply { shared, thread: Some(thread) })
    }

    /// Applies, or queues to be applied.
    pub(super) fn committed(&self, mut entries: Vec<raftpb::Entry>) {
        if entries.len() <= IN_PLACE_ENTRIES_MAX && self.is_idle() {
            return lock(&self.shared.applying).apply(&entries, Instant::now());
        }
        let mut queue = lock(&self.shared.queue);
        queue.since.get_or_insert_with(Instant::now);
        queue.bytes += entries.iter().map(|entry| entry.data().len()).sum::<usize>();
        match queue.batches.back_mut() {
            Some(last) => last.append(&mut entries),
            None => queue.batches.push_back(entries),
        }
        drop(queue);
        self.shared.wake.notify_one();
    }

    /// Applies a change of the members. `take_over` makes it take effect in consensus and answers who votes from then on; `None`
    /// when it had no effect.
    pub(super) fn change(
        &self,
        entry: &raftpb::Entry,
        take_over: impl FnMut(&raftpb::ConfChange) -> Option<raftpb::ConfState>,
    ) {
        assert!(self.is_idle(), "a change of the members overtakes entries before it");
        lock(&self.shared.applying).change(entry, take_over);
    }

    /// What waits to be applied, in bytes of memory.
    pub(super) fn bytes(&self) -> usize {
        lock(&self.shared.queue).bytes
    }

    /// Captures the state for a follower, unless entries are being applied right now.
    pub(super) fn export(&self) -> Option<store::Export> {
        let mut applying = match self.shared.applying.try_lock() {
            Ok(applying) => applying,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return None,
        };
        applying.applier.can_capture().then(|| applying.applier.export())
    }

    /// Puts a state that another member sent into the place of this one's.
    pub(super) fn install(&self, prepared: store::Prepared) {
        self.wait_idle();
        lock(&self.shared.applying).install(prepared);
    }

    /// Looks whether a checkpoint is due by its age.
    pub(super) fn tick(&self) {
        if self.is_idle() {
            lock(&self.shared.applying).checkpoint_if_due();
        }
    }

    /// Waits for everything queued, then writes a last checkpoint, so that the next start has nothing to replay.
    pub(super) fn stop(&mut self) {
        self.wait_idle();
        lock(&self.shared.queue).stop = true;
        self.shared.wake.notify_one();
        if let Some(thread) = self.thread.take() {
            // A panic there has ended the process already.
            let _ = thread.join();
        }
        lock(&self.shared.applying).final_checkpoint();
    }

    fn is_idle(&self) -> bool {
        lock(&self.shared.queue).is_idle()
    }

    /// Whether nothing waits to be applied, nor is being applied. If not, consensus is woken up when that has changed.
    pub(super) fn is_idle_or_tells(&self) -> bool {
        let mut queue = lock(&self.shared.queue);
        queue.is_awaited = !queue.is_idle();
        !queue.is_awaited
    }

    fn wait_idle(&self) {
        let mut queue = lock(&self.shared.queue);
        while !queue.is_idle() {
            queue = self.shared.idle.wait(queue).unwrap_or_else(|poisoned| poisoned.into_inner());
        }
    }
}

impl Shared {
    /// Captures the state between two batches, for a client's snapshot. `None` while a configuration change is under way.
    pub(super) fn capture(&self) -> Option<store::SnapshotJob> {
        let applier = &mut lock(&self.applying).applier;
        applier.can_capture().then(|| applier.snapshot())
    }

    fn run(&self) {
        let node = lock(&self.applying).node.clone();
        let mut queue = lock(&self.queue);
        loop {
            if let Some(entries) = queue.batches.pop_front() {
                queue.bytes = 0;
                queue.busy = true;
                let since = queue.since.take().unwrap_or_else(Instant::now);
                drop(queue);
                let mut applying = lock(&self.applying);
                applying.apply(&entries, since);
                if std::mem::take(&mut applying.is_awaited) {
                    node.inbox.nudge();
                }
                drop(applying);
                queue = lock(&self.queue);
                queue.busy = false;
                self.idle.notify_all();
                if queue.batches.is_empty() && std::mem::take(&mut queue.is_awaited) {
                    node.inbox.nudge();
                }
            } else if queue.stop {
                return;
            } else {
                queue = self.wake.wait(queue).unwrap_or_else(|poisoned| poisoned.into_inner());
            }
        }
    }
}

impl Applying {
    fn install(&mut self, prepared: store::Prepared) {
        let (index, term) = (prepared.index(), prepared.term());
        let began = Instant::now();
        self.node.metrics.installing.fetch_add(1, Ordering::Relaxed);
        if let Err(error) = self.applier.install(prepared) {
            logging::fatal("cannot install a snapshot; this member stops", &[("error", logging::Value::Shown(&error))]);
        }
        self.node.metrics.installing.fetch_sub(1, Ordering::Relaxed);
        self.node.auth.replaced();
        self.node.status.set_applied(index);
        self.checkpoint.index = index;
        self.checkpoint.written = Instant::now();
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
        assert!(outcomes.changes.is_empty(), "a change of the members came with entries that do not wait for it");
        self.is_awaited = self.node.status.set_applied(last.index());
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

    fn change(
        &mut self,
        entry: &raftpb::Entry,
        mut take_over: impl FnMut(&raftpb::ConfChange) -> Option<raftpb::ConfState>,
    ) {
        let began = Instant::now();
        let entries = std::slice::from_ref(entry);
        let mut outcomes = Outcomes::new(&self.node, entries, began, began);
        if let Err(error) = self.applier.apply(entries, &mut outcomes) {
            stop_store(&error);
        }
        for change in std::mem::take(&mut outcomes.changes) {
            match take_over(&change) {
                Some(conf_state) => self.applier.set_conf_state(conf_state),
                None => self.applier.keep_conf_state(),
            }
        }
        self.is_awaited = self.node.status.set_applied(entry.index());
        outcomes.hand_out();
        self.checkpoint_if_due();
    }

    fn checkpoint_if_due(&mut self) {
        let behind = self.applier.applied_index() - self.checkpoint.index;
        let age = self.checkpoint.written.elapsed();
        let due = behind >= self.node.config.snapshot_count || (behind > 0 && age >= CHECKPOINT_AGE);
        let wanted = self.node.checkpoint_wanted.load(Ordering::Relaxed);
        let possible = self.applier.can_capture() && age >= CHECKPOINT_GAP;
        if (due || wanted) && possible && !self.checkpoint.running.load(Ordering::Acquire) {
            self.checkpoint.running.store(true, Ordering::Release);
            // A thread of its own: waiting for a place in a queue would hold up applying.
            let job = self.take_checkpoint();
            if let Err(error) = std::thread::Builder::new().name("checkpoint".into()).spawn(job) {
                logging::fatal("cannot start a thread for a checkpoint", &[("error", logging::Value::Shown(&error))]);
            }
        }
    }

    fn final_checkpoint(&mut self) {
        while self.checkpoint.running.load(Ordering::Acquire) {
            std::thread::sleep(Duration::from_millis(1));
        }
        // What a checkpoint does not cover is replayed.
        if self.applier.applied_index() > self.checkpoint.index && self.applier.can_capture() {
            self.take_checkpoint()();
        }
    }

    /// Captures the state now; the job writes it.
    fn take_checkpoint(&mut self) -> impl FnOnce() + Send + 'static {
        let job = self.applier.checkpoint();
        let (index, term) = (job.applied_index(), job.applied_term());
        let conf_state = job.conf_state().clone();
        self.checkpoint.index = index;
        self.node.checkpoint_wanted.store(false, Ordering::Relaxed);
        self.checkpoint.written = Instant::now();
        let running = self.checkpoint.running.clone();
        let node = self.node.clone();
        move || {
            let began = Instant::now();
            match job.write() {
                Ok(()) => {}
                // Everything is as it was: the log still reaches back far enough, and room may come back.
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
            // Two checkpoints are kept, so the log is kept from the older of them on.
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

/// What a line about a slow write says of its answer.
fn answered_with(outcome: &Outcome) -> Answered {
    let (count, bytes) = match outcome {
        Ok(Response::Put(put)) => (0, put.encoded_len()),
        Ok(Response::DeleteRange(deleted)) => (deleted.deleted, deleted.encoded_len()),
        Ok(Response::Txn(txn)) => (0, txn.encoded_len()),
        _ => return Answered { count: -1, bytes: 0 },
    };
    Answered { count, bytes }
}

/// Gathers outcomes and hands them out in batches, so that finding who waits costs one lock for many.
struct Outcomes<'a> {
    node: &'a Arc<Node>,
    entries: &'a [raftpb::Entry],
    ready: Vec<(u64, (u64, Outcome))>,
    changes: Vec<raftpb::ConfChange>,
    committed: Instant,
    /// When the outcomes that are ready began to be made.
    began: Instant,
}

impl<'a> Outcomes<'a> {
    fn new(node: &'a Arc<Node>, entries: &'a [raftpb::Entry], committed: Instant, began: Instant) -> Self {
        let ready = Vec::with_capacity(OUTCOMES_MAX.min(entries.len()));
        Outcomes { node, entries, ready, changes: Vec::new(), committed, began }
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
        // The share of each in what they took together.
        let share = (now - self.began) / self.ready.len() as u32;
        self.began = now;
        let ready = std::mem::take(&mut self.ready);
        let mut synced = Vec::with_capacity(ready.len());
        node.metrics.stages.synced_at(ready.iter().map(|(_, (index, _))| *index), |at| synced.push(at));
        let taken = node.pending.take(ready);
        let mut answered = 0;
        // In the order of the log: a lease that is revoked and granted again must end up with its new deadline.
        for ((waiting, (index, outcome)), synced) in taken.into_iter().zip(synced) {
            let payload = self.payload(index);
            let operation = Operation::of_entry(payload);
            node.metrics.applies.observe(operation, outcome.is_ok(), share);
            if let Ok(response) = &outcome {
                self.note(response, share);
                if matches!(operation, Operation::Put | Operation::Txn) {
                    node.metrics.put_bytes.fetch_add(payload.len() as u64, Ordering::Relaxed);
                }
            }
            if let Some(waiting) = waiting {
                answered += 1;
                let took = now.duration_since(waiting.since);
                node.metrics.requests.observe(operation, outcome.is_ok(), took);
                let synced = synced.unwrap_or(waiting.taken).max(waiting.taken);
                let committed = self.committed.max(synced);
                let written = Written {
                    queue: waiting.taken.duration_since(waiting.since),
                    log_sync: synced - waiting.taken,
                    replication: committed - synced,
                    apply: now.duration_since(committed),
                };
                node.metrics.stages.written(&written);
                let slow = (took > node.config.warning_unary_request).then(|| answered_with(&outcome));
                waiting.done.end(outcome);
                if let Some(slow) = slow {
                    node.metrics.slow.wrote(payload, took, &written, slow);
                }
            }
        }
        node.metrics.proposals_pending.fetch_sub(answered, Ordering::Relaxed);
    }

    /// What the leader's clock and the background work must know, whoever asked for it.
    fn note(&self, response: &Response, share: Duration) {
        self.node.metrics.operations.count(response);
        match response {
            Response::LeaseGrant(grant) => {
                lock(&self.node.lessor).grant(grant.id, grant.ttl, self.node.now_ms());
            }
            Response::LeaseRevoke(lease, _) => lock(&self.node.lessor).revoke(*lease),
            Response::Compaction(_) => {
                self.node.metrics.disk.compaction_pause.observe(share);
                self.node.wake_maintenance();
            }
            Response::Alarm(_) => self.node.no_space_raised.store(false, Ordering::Relaxed),
            _ => {}
        }
    }
}

impl Sink for Outcomes<'_> {
    fn done(&mut self, index: u64, request_id: u64, outcome: Outcome) {
        // Not later: when the entry counts as applied its token must be known.
        if let Ok(Response::Auth(_, event)) = &outcome {
            self.node.auth.note(event, self.node.now_ms());
        }
        self.ready.push((request_id, (index, outcome)));
        if self.ready.len() >= OUTCOMES_MAX {
            self.hand_out();
        }
    }

    fn conf_change(&mut self, _index: u64, change: raftpb::ConfChange) {
        self.changes.push(change);
    }

    fn raise_no_space(&mut self) {
        self.node.raise_no_space();
    }
}

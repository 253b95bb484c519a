//! The consensus thread: it drains everything that has arrived before it asks for work, so that all of it shares one write, one
//! `fdatasync` and one message to each follower, and writes the log itself, because a hand-over to another thread would cost more
//! than the work of one put.
//!
//! A request thread that has nothing else to do takes such a turn itself ([`Consensus::turn_for`]). What a turn decides, and in which order,
//! is the crate `replica`'s; whose turn it is, and what is locked meanwhile, the crate `handover`'s; here are the log and the time that
//! things take. Reads that a turn has made ready run once nothing is locked.
//!
//! While it waits for the disk it holds nothing but the log. When that takes longer than a heartbeat, the timer thread takes the
//! turns of a leader in its place ([`Consensus::stand_in`]): followers hear of it and reads are answered. What that brings
//! for the log is written when the disk is back. A leader whose disk is not back after an election timeout hands over.

use super::Node;
use super::apply::Apply;
use super::core::Core;
use super::inbox::{Arrived, Read};
use crate::system;
use contain::lock;
use handover::StandIn;
use replica::{LogBatch, Member, Stall};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, TryLockError};
use std::time::{Duration, Instant};
use telemetry::logging::{self, Value};
use wal::Wal;

/// A log sync slower than this is logged. The value is etcd's.
const SLOW_SYNC: Duration = Duration::from_secs(1);
/// While a sync takes less than this, request threads may wait for one.
const QUICK_SYNC_US: u64 = 1_000;
/// The moving average of the sync time spans about this many syncs.
const SYNCS_REMEMBERED: u64 = 8;
/// Time without entries after which the commit index is written on its own.
const COMMIT_IDLE_MS: u64 = 500;
/// A value of [`Shell::reading_since_ms`]: the consensus thread is not answering reads.
const NOT_READING: u64 = u64::MAX;

/// Consensus of a member.
pub(super) type Consensus = handover::Consensus<Shell>;

/// The parts around the core: the log, the inbox of the node, and measured times.
pub(super) struct Shell {
    node: Arc<Node>,
    /// Locked only by the thread that has the turn, and by the one that calls [`Shell::write_commit`].
    wal: Mutex<Wal>,
    /// Moving average of the time of a sync, in microseconds.
    sync_us: AtomicU64,
    /// The log was given a higher commit index that is not on the disk.
    is_commit_unwritten: AtomicBool,
    /// When the log was last synced, by the node's clock.
    synced_ms: AtomicU64,
    /// When the core was last seen to be free, by the node's clock.
    free_ms: AtomicU64,
    /// Since when the consensus thread has been answering reads, by the node's clock, or [`NOT_READING`].
    reading_since_ms: AtomicU64,
}

pub(super) fn new(node: Arc<Node>, member: Member, wal: Wal, apply: Apply) -> Consensus {
    let core = Core::new(node.clone(), member, apply);
    let shell = Shell {
        free_ms: AtomicU64::new(node.now_ms()),
        node,
        wal: Mutex::new(wal),
        sync_us: AtomicU64::new(QUICK_SYNC_US),
        is_commit_unwritten: AtomicBool::new(false),
        synced_ms: AtomicU64::new(0),
        reading_since_ms: AtomicU64::new(NOT_READING),
    };
    Consensus::new(shell, core)
}

/// The consensus thread: runs until told to stop.
pub(super) fn run(consensus: &Consensus) {
    let shell = consensus.shell();
    if let Some(Err(error)) = shell.node.config.io_priority.map(system::set_disk_priority) {
        logging::warn("cannot set the priority of the log at the disk", &[("error", Value::Shown(&error))]);
    }
    consensus.run();
    // A log that needs no replay longer than necessary.
    if let Err(error) = lock(&shell.wal).commit(true) {
        fail_log(&error);
    }
}

impl handover::Shell for Shell {
    type Core = Core;

    fn take(&self, deadline: Instant) -> Arrived {
        self.node.inbox.take(deadline)
    }

    fn write(&self, batch: &LogBatch) {
        failpoint::point!(RAFT_BEFORE_SAVE);
        self.save(batch);
        failpoint::point!(RAFT_AFTER_SAVE);
    }

    fn is_disk_quick(&self) -> bool {
        self.sync_us.load(Ordering::Relaxed) < QUICK_SYNC_US
    }

    fn nudge(&self) {
        self.node.inbox.nudge();
    }

    fn turn_begins(&self) {
        self.free_ms.store(self.node.now_ms(), Ordering::Relaxed);
    }

    /// Frees the part of the log that a checkpoint covers.
    fn turn_ends(&self, core: &mut Core) {
        let Some(released) = core.release.take() else { return };
        // Only `write_commit` can have the log now. A disk that holds it up must not hold up the core: the next turn releases.
        let mut wal = match self.wal.try_lock() {
            Ok(wal) => wal,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => {
                core.release = Some(released);
                return;
            }
        };
        wal.save_snapshot(&released.snapshot);
        // Followers that are far behind get a snapshot instead of the log: a full disk has no room to wait for them.
        let is_low = self.node.store.disk_is_low();
        let below = released.older_index;
        if let Err(error) = if is_low { wal.release_all(below) } else { wal.release(below) } {
            fail_log(&error);
        }
    }

    /// Answers reads for a quarter of a heartbeat, since turns wait meanwhile. The remaining reads follow the next
    /// turn.
    fn answer_some(&self, reads: &mut VecDeque<Read>) {
        let began = Instant::now();
        self.reading_since_ms.store(self.node.now_ms(), Ordering::Relaxed);
        while let Some(read) = reads.pop_front() {
            read(Ok(()));
            if began.elapsed() >= self.node.config.heartbeat / 4 {
                break;
            }
        }
        self.reading_since_ms.store(NOT_READING, Ordering::Relaxed);
    }

    fn answer(read: Read) {
        read(Ok(()));
    }

    fn look(&self, core: &mut Core) -> StandIn {
        let now_ms = self.node.now_ms();
        let reading_ms = now_ms.saturating_sub(self.reading_since_ms.load(Ordering::Relaxed));
        let is_reading = reading_ms >= self.node.config.heartbeat.as_millis() as u64;
        if is_reading && !core.leads_others() {
            // The consensus thread is stuck in a read whose value the disk does not return: no thread takes arrivals.
            return StandIn::KeepTime;
        }
        self.free_ms.store(now_ms, Ordering::Relaxed);
        match if is_reading { Stall::Leads } else { core.stall() } {
            Stall::None => {}
            Stall::Waits { is_lost } => {
                core.keep_time(self.node.inbox.take_clients());
                if is_lost {
                    self.node.status.lose_leader();
                }
            }
            Stall::Leads => return StandIn::TakeTurn,
        }
        StandIn::No
    }

    /// Ends queued requests in time as well. A leader that takes no turns stops reporting itself as leader: its
    /// followers hear nothing from it, so they have elected another one by now.
    fn keep_queued_in_time(&self) {
        let alone = self.node.status.leads_without_rivals();
        self.node.add_reads(self.node.inbox.take_reads());
        self.node.expire_queued();
        let patience_ms = self.node.config.election_timeout.as_millis() as u64;
        if !alone && self.node.now_ms().saturating_sub(self.free_ms.load(Ordering::Relaxed)) > patience_ms {
            self.node.status.lose_leader();
        }
    }
}

impl Shell {
    /// Writes the index of the last committed entry, which else waits for the next entries, once there have been none for a while: a
    /// member that is killed then knows at its next start that its last entries are committed, and shows them without a quorum.
    /// Called by a thread that takes no turns, which a stalled disk may hold up: a turn that has something to write then waits for the
    /// log as it would for the disk.
    pub(super) fn write_commit(&self) {
        let idle_ms = self.node.now_ms().saturating_sub(self.synced_ms.load(Ordering::Relaxed));
        if idle_ms < COMMIT_IDLE_MS || !self.is_commit_unwritten.swap(false, Ordering::Relaxed) {
            return;
        }
        let mut wal = lock(&self.wal);
        let began = Instant::now();
        if let Err(error) = wal.commit(true) {
            fail_log(&error);
        }
        self.node.metrics.disk.wal_fsync.observe(began.elapsed());
        self.synced_ms.store(self.node.now_ms(), Ordering::Relaxed);
    }

    /// Appends to the log, and waits for the disk if the batch must be synced.
    fn save(&self, batch: &LogBatch) {
        let mut wal = lock(&self.wal);
        let arrived = Instant::now();
        batch.append_to(&mut wal);
        if !batch.must_sync() {
            self.is_commit_unwritten.store(true, Ordering::Relaxed);
            return;
        }
        self.is_commit_unwritten.store(false, Ordering::Relaxed);
        self.synced_ms.store(self.node.now_ms(), Ordering::Relaxed);
        let began = Instant::now();
        if let Err(error) = wal.commit(true) {
            fail_log(&error);
        }
        let ended = Instant::now();
        let took = ended - began;
        let (before, now) = (self.sync_us.load(Ordering::Relaxed), took.as_micros() as u64);
        let average = (before * (SYNCS_REMEMBERED - 1) + now) / SYNCS_REMEMBERED;
        self.sync_us.store(average, Ordering::Relaxed);
        let metrics = &self.node.metrics;
        metrics.disk.wal_write.observe(began - arrived);
        metrics.disk.wal_fsync.observe(took);
        if let Some(last) = batch.last_index() {
            metrics.disk.wal_bytes.fetch_add(batch.bytes() as u64, Ordering::Relaxed);
            metrics.stages.synced(last, ended);
        }
        if took > SLOW_SYNC {
            logging::warn(
                "slow fdatasync",
                &[("took", Value::Shown(&format_args!("{took:?}"))), ("expected-duration", "1s".into())],
            );
        }
    }
}

/// The log cannot be trusted after a failed write or sync. The entries of that write were not acknowledged and never
/// will be.
fn fail_log(error: &wal::Error) -> ! {
    logging::fatal(
        "the Raft log failed; this member stops before it acknowledges anything more",
        &[("error", Value::Shown(error))],
    )
}

//! The consensus thread: it drains everything that has arrived before it asks for work, so that all of it shares one write, one
//! `fdatasync` and one message to each follower, and writes the log itself, because a hand-over to another thread would cost more
//! than the work of one put.
//!
//! While it waits for the disk it holds nothing but the log. When that takes longer than a heartbeat, the timer thread takes the
//! turns of a leader in its place ([`Consensus::stand_in`]): followers hear of it and reads are answered. What that brings
//! for the log is written when the disk is back. A leader whose disk is not back after an election timeout hands over.

use super::apply::Apply;
use super::core::{Core, Unsynced};
use super::{Node, lock};
use crate::logging::{self, Value};
use member::Member;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, TryLockError};
use std::time::{Duration, Instant};
use wal::{EntryRef, Wal};

/// A log sync slower than this is worth a line: etcd's own figure.
const SLOW_SYNC: Duration = Duration::from_secs(1);

pub(super) struct Consensus {
    node: Arc<Node>,
    core: Mutex<Core>,
    /// Only the consensus thread takes it.
    wal: Mutex<Wal>,
    /// When the core was last seen to be free, by the node's clock.
    free_ms: AtomicU64,
}

impl Consensus {
    pub(super) fn new(node: Arc<Node>, member: Member, wal: Wal, apply: Apply) -> Self {
        let core = Core::new(node.clone(), member, apply);
        Consensus { free_ms: AtomicU64::new(node.now_ms()), node, core: Mutex::new(core), wal: Mutex::new(wal) }
    }

    /// Runs until told to stop.
    pub(super) fn run(&self) {
        let mut core = self.drain(lock(&self.core));
        core.begin();
        loop {
            core = self.drain(core);
            self.release(&mut core);
            if core.stop {
                break;
            }
            let deadline = core.next_tick;
            drop(core);
            let arrived = self.node.inbox.take(deadline);
            self.free_ms.store(self.node.now_ms(), Ordering::Relaxed);
            core = lock(&self.core);
            core.accept(arrived);
            core.tick_if_due();
        }
        core.end();
        // A log that needs no replay longer than necessary.
        if let Err(error) = lock(&self.wal).commit(true) {
            fail_log(&error);
        }
    }

    /// Does all the work there is.
    fn drain<'a>(&'a self, mut core: MutexGuard<'a, Core>) -> MutexGuard<'a, Core> {
        loop {
            core.advance();
            let work = std::mem::take(&mut core.unsynced);
            if work.is_empty() {
                break;
            }
            if work.iter().any(|work| work.must_sync) {
                core.syncing_since = Some(Instant::now());
                drop(core);
                self.write(&work, true);
                core = lock(&self.core);
                core.syncing_since = None;
            } else {
                self.write(&work, false);
            }
            core.persisted(work);
        }
        core.settle();
        core
    }

    /// Writes to the log and, when Raft needs it, waits for the disk.
    fn write(&self, work: &[Unsynced], sync: bool) {
        let mut wal = lock(&self.wal);
        for work in work {
            if let Some(snapshot) = &work.snapshot {
                wal.save_snapshot(snapshot);
            }
            let mut entries = work.entries.iter().map(|entry| EntryRef {
                term: entry.term(),
                index: entry.index(),
                kind: entry.r#type() as i32,
                data: entry.data(),
            });
            wal.append(&mut entries, work.hard_state.as_ref());
        }
        if !sync {
            return;
        }
        let began = Instant::now();
        if let Err(error) = wal.commit(true) {
            fail_log(&error);
        }
        let took = began.elapsed();
        self.node.metrics.wal_fsync.observe(took);
        if took > SLOW_SYNC {
            logging::warn(
                "slow fdatasync",
                &[("took", Value::Shown(&format_args!("{took:?}"))), ("expected-duration", "1s".into())],
            );
        }
    }

    fn release(&self, core: &mut Core) {
        let Some(released) = core.release.take() else { return };
        let mut wal = lock(&self.wal);
        wal.save_snapshot(&released.snapshot);
        if let Err(error) = wal.release(released.older_index) {
            fail_log(&error);
        }
    }

    /// Takes a turn for the consensus thread if that waits for the disk and this member leads others. Called by the clock, never
    /// waits.
    pub(super) fn stand_in(&self) {
        let now_ms = self.node.now_ms();
        let patience = self.node.config.election_timeout;
        let mut core = match self.core.try_lock() {
            Ok(core) => core,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => {
                // Stuck within a turn, in the store most likely: nobody hears of this member, so the others will have moved on.
                let alone = self.node.status.serves_local_reads();
                if !alone && now_ms.saturating_sub(self.free_ms.load(Ordering::Relaxed)) > patience.as_millis() as u64 {
                    self.node.status.lose_leader();
                }
                return;
            }
        };
        self.free_ms.store(now_ms, Ordering::Relaxed);
        let Some(stalled) = core.syncing_since.map(|since| since.elapsed()) else { return };
        if stalled < self.node.config.heartbeat {
            return;
        }
        if !core.leads_others() {
            core.keep_time(self.node.inbox.take_clients());
            // A follower that cannot write hears of no leader either, and its clients are to know.
            if stalled > 2 * patience && !core.member.status().sole_voter {
                self.node.status.lose_leader();
            }
            return;
        }
        let arrived = self.node.inbox.take(Instant::now());
        core.accept(arrived);
        core.tick_if_due();
        if stalled > 2 * patience {
            logging::warn("the disk of the Raft log does not answer: stepping down", &[]);
            core.member.step_down();
        } else if stalled > patience && core.member.status().transferee == 0 {
            self.hand_over(&mut core, stalled);
        }
        core.advance();
        core.settle();
    }

    fn hand_over(&self, core: &mut Core, stalled: Duration) {
        let Some(successor) = core.member.successor() else { return };
        logging::warn(
            "the disk of the Raft log does not answer: handing leadership over",
            &[
                ("stalled", Value::Shown(&format_args!("{stalled:?}"))),
                ("to", Value::Shown(&format_args!("{successor:x}"))),
            ],
        );
        if let Err(error) = core.member.transfer(successor) {
            logging::warn("cannot hand leadership over", &[("error", Value::Shown(&error))]);
        }
    }
}

/// The log cannot be trusted after a failed write or sync: what it covered was never acknowledged, and never will be.
fn fail_log(error: &wal::Error) -> ! {
    logging::fatal(
        "the Raft log failed; this member stops before it acknowledges anything more",
        &[("error", Value::Shown(error))],
    )
}

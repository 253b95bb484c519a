//! The consensus thread: it owns the Raft core and the log, and drains everything that has arrived before it asks for work, so
//! that all of it shares one write and one fdatasync.

use super::apply::Apply;
use super::inbox::{Arrived, Read};
use super::{Done, Node, REVOKE_RETRY, entry, lock};
use crate::logging;
use api::{Error, Message, limits};
use bytes::Bytes;
use member::{Member, Role, Work};
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use wal::{EntryRef, Wal};

/// Applied entries that gather in memory before they are forgotten.
const TRIM_ENTRIES: u64 = 100;
/// A log sync slower than this is worth a line: etcd's own figure.
const SLOW_SYNC: Duration = Duration::from_secs(1);

pub(super) struct Consensus {
    node: Arc<Node>,
    member: Member,
    wal: Wal,
    apply: Apply,
    /// Reads without a read index yet.
    asking: Vec<Read>,
    /// Reads that wait for the answer to a read index.
    asked: HashMap<u64, Vec<Read>>,
    /// Reads that wait for the store to apply an index.
    applying: VecDeque<(u64, Read)>,
    was_leader: bool,
    next_sweep_ms: u64,
}

impl Consensus {
    pub(super) fn new(node: Arc<Node>, member: Member, wal: Wal, apply: Apply) -> Self {
        Consensus {
            node,
            member,
            wal,
            apply,
            asking: Vec::new(),
            asked: HashMap::new(),
            applying: VecDeque::new(),
            was_leader: false,
            next_sweep_ms: 0,
        }
    }

    /// Runs until told to stop.
    pub(super) fn run(mut self) {
        self.drain_work();
        if self.member.status().sole_voter {
            // Nobody else could be elected: there is nothing to wait for.
            if let Err(error) = self.member.campaign() {
                logging::warn("cannot stand for election", &[("error", logging::Value::Shown(&error))]);
            }
        }
        let heartbeat = self.node.config.heartbeat;
        let mut next_tick = Instant::now() + heartbeat;
        loop {
            self.drain_work();
            let arrived = self.node.inbox.take(self.wake_by(next_tick));
            let stop = arrived.stop;
            self.accept(arrived);
            let now = Instant::now();
            if now >= next_tick {
                self.member.tick();
                self.tick();
                // After a stall one tick stands for all that were missed: nobody else could act meanwhile either.
                next_tick = now + heartbeat;
            }
            if stop {
                break;
            }
        }
        self.drain_work();
        self.stop();
    }

    /// Reads waiting for the apply thread are looked at again soon: it has no other way to wake this thread.
    fn wake_by(&self, next_tick: Instant) -> Instant {
        if self.applying.is_empty() { next_tick } else { next_tick.min(Instant::now() + Duration::from_micros(100)) }
    }

    fn accept(&mut self, arrived: Arrived) {
        if !arrived.proposals.is_empty() {
            let mut batch: Vec<Bytes> = Vec::with_capacity(arrived.proposals.len());
            let mut waiting: Vec<(u64, Done)> = Vec::with_capacity(arrived.proposals.len());
            for proposal in arrived.proposals {
                batch.push(proposal.data);
                waiting.push((proposal.id, proposal.done));
            }
            self.propose(batch, waiting);
        }
        self.asking.extend(arrived.reads);
        if let Some(released) = arrived.release_below {
            self.wal.save_snapshot(&released.snapshot);
            if let Err(error) = self.wal.release(released.older_index) {
                fail_log(&error);
            }
        }
    }

    fn propose(&mut self, batch: Vec<Bytes>, waiting: Vec<(u64, Done)>) {
        let count = waiting.len() as u64;
        let deadline_ms = self.node.now_ms() + self.node.config.request_timeout().as_millis() as u64;
        match self.member.propose(batch) {
            Ok(()) => self.node.pending.add(waiting.into_iter(), deadline_ms),
            Err(error) => {
                if !matches!(error, member::Error::Dropped) {
                    logging::warn("a proposal was refused", &[("error", logging::Value::Shown(&error))]);
                }
                self.node.metrics.proposals_pending.fetch_sub(count, Ordering::Relaxed);
                self.node.metrics.proposals_failed.fetch_add(count, Ordering::Relaxed);
                for (_, done) in waiting {
                    done(Err(Error::NoLeader));
                }
            }
        }
    }

    /// Does all the work there is, and answers what can be answered.
    fn drain_work(&mut self) {
        loop {
            self.member.applied(self.node.status.applied());
            self.ask_reads();
            if !self.member.has_work() {
                break;
            }
            let work = self.member.work();
            self.persist(&work);
            self.finish(work);
        }
        let status = self.member.status();
        self.node.status.publish(&status);
        self.trim(&status);
        if (status.role == Role::Leader) != self.was_leader {
            self.change_leadership(status.role == Role::Leader);
        }
        self.answer_reads();
    }

    /// Entries stay in memory for followers that lag; a member alone needs none of them.
    fn trim(&mut self, status: &member::Status) {
        let keep = if status.sole_voter { 0 } else { self.node.config.catchup_entries };
        if self.member.log_len() as u64 > keep + TRIM_ENTRIES {
            self.member.trim(status.applied.saturating_sub(keep));
        }
    }

    /// Writes to the log and, when Raft needs it, waits for the disk.
    fn persist(&mut self, work: &Work) {
        let mut entries = work.entries.iter().map(|entry| EntryRef {
            term: entry.term(),
            index: entry.index(),
            kind: entry.r#type() as i32,
            data: entry.data(),
        });
        self.wal.append(&mut entries, work.hard_state.as_ref());
        if work.must_sync {
            let began = Instant::now();
            if let Err(error) = self.wal.commit(true) {
                fail_log(&error);
            }
            let took = began.elapsed();
            self.node.metrics.wal_fsync.observe(took);
            if took > SLOW_SYNC {
                logging::warn(
                    "slow fdatasync",
                    &[("took", logging::Value::Shown(&format_args!("{took:?}"))), ("expected-duration", "1s".into())],
                );
            }
        }
        self.member.persisted(work.number);
    }

    fn finish(&mut self, work: Work) {
        // There are no peers in this version: a member that has some refuses to start.
        debug_assert!(work.messages.is_empty() && work.persisted_messages.is_empty());
        for (number, index) in work.reads {
            let reads = self.asked.remove(&number).unwrap_or_default();
            self.applying.extend(reads.into_iter().map(|read| (index, read)));
        }
        if work.committed.is_empty() {
            return;
        }
        for change in self.apply.committed(work.committed) {
            match self.member.apply_conf_change(&change) {
                Ok(conf_state) => self.apply.set_conf_state(conf_state),
                Err(error) => {
                    logging::error("a configuration change failed", &[("error", logging::Value::Shown(&error))]);
                    self.apply.keep_conf_state();
                }
            }
        }
    }

    fn ask_reads(&mut self) {
        if !self.asking.is_empty()
            && let Some(number) = self.member.read_index()
        {
            self.asked.insert(number, std::mem::take(&mut self.asking));
        }
    }

    fn answer_reads(&mut self) {
        let applied = self.node.status.applied();
        while let Some((_, read)) = self.applying.pop_front_if(|(index, _)| *index <= applied) {
            read(Ok(()));
        }
    }

    fn change_leadership(&mut self, leads: bool) {
        self.was_leader = leads;
        let now_ms = self.node.now_ms();
        let mut lessor = lock(&self.node.lessor);
        if leads {
            let extension_ms = self.node.config.election_timeout.as_millis() as u64;
            let leases = self.node.store.leases().list();
            let leases = leases.into_iter().map(|lease| (lease.id, lease.ttl, lease.remaining_ttl));
            lessor.promote(leases, extension_ms, now_ms);
        } else {
            lessor.demote();
        }
        drop(lessor);
        logging::info(
            if leads { "became leader" } else { "no longer leader" },
            &[("term", self.member.status().term.into())],
        );
    }

    /// What the clock brings: expired leases, proposals whose time is over, a checkpoint that is due.
    fn tick(&mut self) {
        let now_ms = self.node.now_ms();
        if self.was_leader {
            let retry_ms = REVOKE_RETRY.as_millis() as u64;
            let expired = lock(&self.node.lessor).expired(now_ms, limits::LEASE_REVOKE_BATCH_MAX, retry_ms);
            if !expired.is_empty() {
                self.revoke(expired);
            }
        }
        if now_ms >= self.next_sweep_ms {
            self.next_sweep_ms = now_ms + 500;
            let expired = self.node.pending.expire(now_ms) as u64;
            self.node.metrics.proposals_failed.fetch_add(expired, Ordering::Relaxed);
            self.node.metrics.proposals_pending.fetch_sub(expired, Ordering::Relaxed);
        }
        self.apply.tick();
    }

    fn revoke(&mut self, leases: Vec<i64>) {
        self.node.metrics.leases_expired.fetch_add(leases.len() as u64, Ordering::Relaxed);
        let mut batch = Vec::with_capacity(leases.len());
        let mut waiting: Vec<(u64, Done)> = Vec::with_capacity(leases.len());
        for lease in leases {
            let id = self.node.next_request.fetch_add(1, Ordering::Relaxed);
            let request = api::etcdserverpb::LeaseRevokeRequest { id: lease };
            batch.push(entry::wrap(id, entry::LEASE_REVOKE, &request.encode_to_vec()).into());
            let node = Arc::downgrade(&self.node);
            let done = move |outcome: super::Outcome| {
                if let Some(node) = node.upgrade().filter(|_| matches!(outcome, Ok(_) | Err(Error::LeaseNotFound))) {
                    lock(&node.lessor).revoke(lease);
                }
            };
            waiting.push((id, Box::new(done)));
        }
        self.node.metrics.proposals_pending.fetch_add(batch.len() as u64, Ordering::Relaxed);
        self.propose(batch, waiting);
    }

    /// Leaves a log that needs no replay longer than necessary, and answers everyone who still waits.
    fn stop(mut self) {
        self.apply.stop();
        if let Err(error) = self.wal.commit(true) {
            fail_log(&error);
        }
        self.node.pending.fail_all(Error::Stopped);
        let reads = self.asking.into_iter().chain(self.asked.into_values().flatten());
        for read in reads.chain(self.applying.into_iter().map(|(_, read)| read)) {
            read(Err(Error::Stopped));
        }
    }
}

/// The log cannot be trusted after a failed write or sync: what it covered was never acknowledged, and never will be.
fn fail_log(error: &wal::Error) -> ! {
    logging::fatal(
        "the Raft log failed; this member stops before it acknowledges anything more",
        &[("error", logging::Value::Shown(error))],
    )
}

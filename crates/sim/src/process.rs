//! A running member: the replica, the log and the store that ship, driven by events.
//!
//! What threads do in the server happens here in events: a turn of consensus, the end of a sync, a batch on the apply thread. Between any
//! two of them the member may be stopped, and within each of them its disk may lose power. This module decides only when: `replica` decides
//! what a turn does, which requests are answered and what the store is given.

mod apply;
mod author;
mod checks;
mod leases;
mod log;
mod machine;
mod space;

pub(crate) use machine::{Machine, Read, Waiter};

use crate::clock::Clock;
use crate::env::Env;
use crate::operation::{Answer, Operation, Request};
use crate::outbox::Outbox;
use crate::plan::Form;
use crate::schedule::Event;
use crate::settings::Settings;
use crate::shadow::Shadow;
use disk::sim::SimDisk;
use machine::Shell;
use replica::{ConfChangeProposal, LogBatch, Member, Now, Options, Proof, Proposal, Replica, Role, Stall, Status};
use std::time::Duration;
use store::{Applier, Prepared};
use wal::Wal;

/// Applied entries beyond the catch-up entries that gather in memory. Few, so that followers soon need a snapshot.
const TRIM_ENTRIES: u64 = 10;
/// Bytes of entries in memory; small for the same reason.
const LOG_BYTES_MAX: u64 = 2 << 10;
/// Expired leases whose ends are under way at once.
const LEASE_ENDS_MAX: usize = 16;
const LEASE_ENDS_AT_ONCE: usize = 5;
/// Leases that a new leader lets end in a second.
const EXPIRIES_PER_SECOND_MAX: usize = 3;
/// Leases that a new leader takes over in a turn; few, so that other things happen meanwhile.
const LEASE_TAKEOVER_PIECE_MAX: usize = 2;
/// Reads that may wait.
const READS_MAX: usize = 10_000;

/// The disk lost power during an operation, or failed it.
#[derive(Debug)]
pub(crate) struct PowerCut;

/// Turns an error into a [`PowerCut`] if the disk has lost power, or has failed since the last start. Any other error is a bug and panics.
pub(crate) fn disk_result<T, E: std::fmt::Display>(disk: &SimDisk, result: Result<T, E>) -> Result<T, PowerCut> {
    match result {
        Ok(value) => Ok(value),
        Err(_) if disk.is_cut() || disk.errors() > 0 => Err(PowerCut),
        Err(error) => panic!("a member stops on a disk that works: {error}"),
    }
}

/// One process of a member.
pub(crate) struct Process {
    pub(crate) boot: u64,
    pub(crate) machine: Machine,
    replica: Replica<u64>,
    wal: Wal,
    turn_is_due: bool,
    /// The replica's own deadline for which a turn is scheduled, if it is before the next tick.
    alarm_us: u64,
    /// The batch whose write and sync is under way.
    in_log: Option<LogBatch>,
    /// Requests that came while the process stood still.
    requests: Vec<usize>,
    pub(crate) paused_until_us: u64,
    /// Until the first time, syncs take longer by the second.
    pub(crate) slow_disk: (u64, u64),
}

/// The parts of a process.
pub(crate) struct Parts {
    pub(crate) host: usize,
    pub(crate) boot: u64,
    pub(crate) id: u64,
    pub(crate) raft: Member,
    pub(crate) applier: Applier,
    pub(crate) wal: Wal,
    pub(crate) disk: SimDisk,
    pub(crate) log: Shadow,
    pub(crate) outbox: Option<Outbox>,
}

/// The time of a member.
fn now(clock: &Clock, env: &Env) -> Now {
    Now { at: Duration::from_micros(clock.now_us(env)), ms: clock.now_ms(env) }
}

impl Process {
    pub(crate) fn new(env: &Env, parts: Parts) -> Process {
        let plan = &env.plan;
        let settings = Settings::of(plan, parts.host);
        let heartbeat = Duration::from_micros(plan.tick_us);
        let options = Options {
            heartbeat,
            election_timeout: heartbeat * plan.election_ticks as u32,
            election_head_start_ticks: if settings.pre_vote { plan.election_ticks.saturating_sub(2) } else { 0 },
            catchup_entries: settings.catchup_entries,
            trim_entries: TRIM_ENTRIES,
            // Both are tried: with and without entries kept for those that answer.
            keeps_for_active: settings.catchup_entries != 20,
            log_bytes_max: LOG_BYTES_MAX,
            log_sending_bytes_max: 4 * LOG_BYTES_MAX,
            reads_max: READS_MAX,
            lease_ends_max: LEASE_ENDS_MAX,
            lease_ends_at_once: LEASE_ENDS_AT_ONCE,
            lease_expiries_per_second_max: EXPIRIES_PER_SECOND_MAX,
            lease_takeover_piece_max: LEASE_TAKEOVER_PIECE_MAX,
        };
        let (machine, raft, wal) = Machine::new(env, parts);
        let now = now(&machine.clock, env);
        Process {
            boot: machine.boot,
            machine,
            replica: Replica::new(raft, options, now),
            wal,
            turn_is_due: false,
            alarm_us: 0,
            in_log: None,
            requests: Vec::new(),
            paused_until_us: 0,
            slow_disk: (0, 0),
        }
    }

    /// Applies the replayed entries, and begins.
    pub(crate) fn begin(&mut self, env: &mut Env) -> Result<(), PowerCut> {
        self.drain(env)?;
        let now = now(&self.machine.clock, env);
        self.replica.begin(&mut Shell { machine: &mut self.machine, env }, now);
        self.wake(env);
        Ok(())
    }

    /// Whether nothing is on its way into the log.
    pub(crate) fn has_taken_all(&self) -> bool {
        let is_taken = self.machine.inputs.messages.is_empty() && self.machine.inputs.installs.is_empty();
        is_taken && self.in_log.is_none() && !self.replica.has_snapshot()
    }

    /// The Raft core, to be read.
    pub(crate) fn raft(&self) -> &Member {
        self.replica.raft()
    }

    pub(crate) fn status(&self) -> Status {
        self.replica.status()
    }

    /// The proof that the member's log was lost, if there is one.
    pub(crate) fn proof(&self) -> Option<Proof> {
        self.machine.proof
    }

    /// Whether the store has everything up to `index`.
    pub(crate) fn has_applied(&self, index: u64) -> bool {
        self.machine.noted >= index && self.machine.can_capture()
    }

    /// Receives a message from a peer.
    pub(crate) fn receive(&mut self, env: &mut Env, message: api::raftpb::Message) {
        self.machine.inputs.messages.push((message, ()));
        self.wake(env);
    }

    /// Notes that a message to this peer was lost.
    pub(crate) fn unreachable(&mut self, env: &mut Env, id: u64) {
        self.machine.inputs.unreachable.push(id);
        self.wake(env);
    }

    /// Receives a snapshot of another member, whole and checked. `transfer` is the number under which the result is
    /// reported.
    pub(crate) fn receive_snapshot(
        &mut self,
        env: &mut Env,
        message: api::raftpb::Message,
        prepared: Prepared,
        transfer: u64,
    ) {
        let message = self.machine.misread(env, message);
        self.machine.inputs.installs.push(replica::Install { message, prepared, source: transfer });
        self.wake(env);
    }

    /// Notes whether a snapshot that this member has sent has arrived.
    pub(crate) fn snapshot_sent(&mut self, env: &mut Env, to: u64, ok: bool) {
        self.machine.inputs.snapshots_sent.push((to, ok));
        self.wake(env);
    }

    /// Receives a request from a client.
    pub(crate) fn request(&mut self, env: &mut Env, operation: usize) {
        if self.paused_until_us > env.now_us {
            self.requests.push(operation);
        } else {
            self.take_request(env, operation);
        }
        self.wake(env);
    }

    /// Handles a request on the thread of its connection.
    fn take_request(&mut self, env: &mut Env, operation: usize) {
        let machine = &mut self.machine;
        let Operation { request_id: id, ref request, .. } = env.history.operations[operation];
        let request = request.clone();
        let applied = machine.noted;
        if machine.outbox.as_ref().is_some_and(|outbox| !outbox.serves(&request, applied)) {
            return env.answer(operation, Answer::Refused);
        }
        match request {
            Request::Write(data) => {
                let Some(data) = machine.sign(env, operation, data) else {
                    return env.answer(operation, Answer::Refused);
                };
                let Some(space) = machine.claim_space(env, &data) else {
                    return env.answer(operation, Answer::Refused);
                };
                let waiter = Waiter::holding(space, operation);
                machine.inputs.proposals.push(Proposal { id, data, waiter, term: None });
            }
            Request::ConfChange(change) => {
                let waiter = Waiter::new(operation);
                machine.inputs.conf_changes.push(ConfChangeProposal { change: *change, waiter });
            }
            Request::Read { range, linearizable } if !linearizable || machine.published.serves_local_reads() => {
                machine.read(env, operation, &range);
            }
            Request::ReadIndex if machine.answers_observers_at_once(env) => {
                env.answer(operation, Answer::ReadIndex { applied });
            }
            Request::Read { .. } | Request::ReadIndex => {
                machine.inputs.reads.push(Read { operation, asked_us: machine.clock.now_us(env) })
            }
            Request::KeepAlive { .. } if machine.published.role != Role::Leader => {
                env.answer(operation, Answer::Refused);
            }
            Request::KeepAlive { lease } => {
                if !machine.renew_at_once(env, operation, lease) {
                    machine.inputs.reads.push(Read { operation, asked_us: machine.clock.now_us(env) });
                }
            }
            Request::Transfer { to } => {
                machine.inputs.leader_transfer = Some(to);
                env.answer(operation, Answer::Unknown);
            }
        }
    }

    /// Schedules a turn of consensus soon: arrivals until then share it.
    pub(crate) fn wake(&mut self, env: &mut Env) {
        if !std::mem::replace(&mut self.turn_is_due, true) {
            let pause_us = self.paused_until_us.saturating_sub(env.now_us);
            let delay_us = pause_us + env.random.below(40);
            env.after(delay_us, Event::Turn { host: self.machine.host, boot: self.boot });
        }
    }

    /// Takes a turn on the consensus thread.
    pub(crate) fn turn(&mut self, env: &mut Env) -> Result<(), PowerCut> {
        self.turn_is_due = false;
        if self.paused_until_us > env.now_us {
            self.wake(env);
            return Ok(());
        }
        for operation in std::mem::take(&mut self.requests) {
            self.take_request(env, operation);
        }
        // If the thread is blocked, everything waits until the disk is done or the timer takes the turn.
        if self.is_blocked(env) { Ok(()) } else { self.take_turn(env) }
    }

    fn take_turn(&mut self, env: &mut Env) -> Result<(), PowerCut> {
        let (inputs, now) = (std::mem::take(&mut self.machine.inputs), now(&self.machine.clock, env));
        let mut shell = Shell { machine: &mut self.machine, env };
        self.replica.accept(&mut shell, inputs, now);
        let ticked = self.replica.tick_if_due(&mut shell, now);
        if ticked {
            self.machine.checkpoint_if_due(env);
        }
        self.drain(env)
    }

    /// Runs the timer thread: it ends requests that take too long, and stands in for consensus while that waits for the
    /// disk. After a pause it ticks once for all missed ticks.
    pub(crate) fn tick(&mut self, env: &mut Env) -> Result<(), PowerCut> {
        if self.paused_until_us > env.now_us {
            return Ok(());
        }
        self.machine.expire(env);
        self.machine.checkpoint_leases(env);
        let now = now(&self.machine.clock, env);
        match self.replica.stall(now) {
            Stall::Leads => {
                let inputs = std::mem::take(&mut self.machine.inputs);
                self.replica.stand_in(&mut Shell { machine: &mut self.machine, env }, inputs, now)?;
                self.settle(env);
                Ok(())
            }
            _ if !self.is_blocked(env) => self.take_turn(env),
            Stall::None => Ok(()),
            Stall::Waits { is_lost } => {
                let inputs = self.machine.inputs.take_clients();
                self.replica.keep_time(&mut Shell { machine: &mut self.machine, env }, inputs, now);
                if is_lost {
                    self.machine.lose_leader();
                }
                Ok(())
            }
        }
    }

    /// Whether only [`Process::tick`] may take a turn.
    fn is_blocked(&self, env: &Env) -> bool {
        self.in_log.is_some()
            && match env.plan.form {
                Form::Inline => true,
                Form::ByTurn => !self.replica.leads_others(),
                Form::Threaded => false,
            }
    }

    /// Does all pending work, and sends the answers that are ready.
    fn drain(&mut self, env: &mut Env) -> Result<(), PowerCut> {
        loop {
            let now = now(&self.machine.clock, env);
            self.replica.advance(&mut Shell { machine: &mut self.machine, env }, now)?;
            if self.in_log.is_some() || !self.write_log(env) {
                break;
            }
        }
        if !self.is_blocked(env) {
            self.settle(env);
        }
        Ok(())
    }

    fn settle(&mut self, env: &mut Env) {
        let now = now(&self.machine.clock, env);
        let ready = self.replica.settle(&mut Shell { machine: &mut self.machine, env }, now);
        self.machine.check_progress(env, self.replica.raft());
        for read in ready {
            self.machine.answer_read(env, &read);
        }
        let deadline_us = self.replica.deadline().as_micros() as u64;
        let now_us = self.machine.clock.now_us(env);
        if deadline_us != self.alarm_us && deadline_us < now_us + env.plan.tick_us / 4 {
            self.alarm_us = deadline_us;
            let delay_us = deadline_us.saturating_sub(now_us);
            env.after(delay_us, Event::Turn { host: self.machine.host, boot: self.boot });
        }
    }

    /// Applies the next batch on the apply thread.
    pub(crate) fn apply_next(&mut self, env: &mut Env) -> Result<(), PowerCut> {
        self.machine.apply_next(env)?;
        self.wake(env);
        Ok(())
    }

    /// Writes the captured checkpoint on its thread.
    pub(crate) fn write_checkpoint(&mut self, env: &mut Env) -> Result<(), PowerCut> {
        self.machine.write_checkpoint(env)?;
        self.release_log()
    }

    /// Runs compaction, rewriting and the preparation of spare segments, as the slow threads do.
    pub(crate) fn maintain(&mut self, env: &mut Env) -> Result<(), PowerCut> {
        self.machine.maintain(env)?;
        let bytes = Settings::of(&env.plan, self.machine.host).wal_segment_bytes / 3 + 1;
        // Differs from step to step, so that the disk refuses some.
        let bytes = bytes + self.machine.disk.operations() % 8;
        apply::give_back(&self.machine.disk, &self.wal.reaper(), bytes)?;
        if env.random.chance(50) {
            disk_result(&self.machine.disk, self.wal.spare().prepare())?;
        }
        Ok(())
    }

    /// Ends the process: all unanswered requests have an unknown outcome.
    pub(crate) fn abandon(mut self, env: &mut Env) {
        self.replica.end(&mut Shell { machine: &mut self.machine, env });
        let replica::Inputs { urgent, proposals, conf_changes, reads, .. } = std::mem::take(&mut self.machine.inputs);
        let proposals = urgent.into_iter().chain(proposals).map(|proposal| proposal.waiter.operation);
        let changes = conf_changes.into_iter().map(|change| change.waiter.operation);
        let reads = reads.into_iter().map(|read| read.operation);
        for operation in proposals.chain(changes).chain(reads).chain(self.requests) {
            env.answer(operation, Answer::Unknown);
        }
    }
}

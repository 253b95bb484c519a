//! A running member: `member`, `wal` and `store` under a shell that keeps the contract of `member` as the server's does.
//!
//! What threads do in the server happens here in events: a turn of consensus, the end of a sync, a batch on the apply thread.
//! Between any two of them the member may be stopped, and within each of them its disk may lose power.

mod apply;
mod leases;
mod persist;
mod reads;
mod state;

use crate::env::Env;
use crate::mutation::Mutation;
use crate::operation::{Answer, Request};
use crate::plan::Form;
use crate::schedule::Event;
use crate::shadow::Shadow;
use crate::trace::trace;
use api::raftpb;
use bytes::Bytes;
use disk::sim::SimDisk;
use reads::Reads;
use replica::{Backlog, Lessor, Member, Proof, Role, Status, Work};
use state::States;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use store::{Applier, CheckpointJob, Store};
use wal::Wal;

/// The disk is gone in the middle of something.
#[derive(Debug)]
pub(crate) struct PowerCut;

/// Lets an error of the disk through as what it is: a power cut, or a bug.
pub(crate) fn disk_result<T, E: std::fmt::Display>(disk: &SimDisk, result: Result<T, E>) -> Result<T, PowerCut> {
    match result {
        Ok(value) => Ok(value),
        Err(_) if disk.is_cut() => Err(PowerCut),
        Err(error) => panic!("a member stops on a disk that works: {error}"),
    }
}

/// Proposals, reads and messages that consensus has not looked at yet.
#[derive(Default)]
struct Inbox {
    messages: Vec<raftpb::Message>,
    requests: Vec<usize>,
}

/// Who waits for an entry.
struct Waiting {
    operation: usize,
    deadline_us: u64,
}

/// One process of a member.
pub(crate) struct Process {
    pub(crate) host: usize,
    pub(crate) boot: u64,
    pub(crate) id: u64,
    pub(crate) member: Member,
    pub(crate) applier: Applier,
    pub(crate) store: Arc<Store>,
    wal: Wal,
    disk: SimDisk,
    lessor: Lessor,
    inbox: Inbox,
    turn_is_due: bool,
    /// Requests that no leader takes yet.
    held: VecDeque<usize>,
    /// By request id.
    pending: BTreeMap<u64, Waiting>,
    reads: Reads,
    /// Work on its way to the log, and work whose write and sync are under way.
    to_log: VecDeque<Work>,
    in_log: Vec<Work>,
    syncing_since_us: u64,
    /// Consensus waits for the disk, as a shell does that writes in place.
    blocked: bool,
    /// What is committed and not given to the store yet, in a shell that never waits for the disk or the store.
    backlog: Backlog,
    to_apply: VecDeque<Vec<raftpb::Entry>>,
    /// What is to be applied has a change of the members, which must not be forgotten any more when it takes effect.
    applies_when_durable: bool,
    captured: Option<CheckpointJob>,
    checkpoint_index: u64,
    release: Option<(api::walpb::Snapshot, u64)>,
    pub(crate) states: States,
    /// The log as Raft has it.
    pub(crate) log: Shadow,
    last_status: Option<Status>,
    was_leader: bool,
    /// The last term in which it led with its vote on the disk.
    leads_in: u64,
    pub(crate) removed: BTreeSet<u64>,
    /// Why it must end.
    pub(crate) proof: Option<Proof>,
    pub(crate) paused_until_us: u64,
    /// While it is later than now, syncs take this long.
    pub(crate) slow_disk: (u64, u64),
}

/// What a process is made of.
pub(crate) struct Parts {
    pub(crate) host: usize,
    pub(crate) boot: u64,
    pub(crate) id: u64,
    pub(crate) member: Member,
    pub(crate) applier: Applier,
    pub(crate) wal: Wal,
    pub(crate) disk: SimDisk,
    pub(crate) log: Shadow,
}

impl Process {
    pub(crate) fn new(parts: Parts) -> Process {
        let Parts { host, boot, id, member, applier, wal, disk, log } = parts;
        let store = applier.store().clone();
        let removed = store.members().removed;
        Process {
            host,
            boot,
            id,
            member,
            checkpoint_index: applier.applied_index(),
            applier,
            store,
            wal,
            disk,
            lessor: Lessor::default(),
            inbox: Inbox::default(),
            turn_is_due: false,
            held: VecDeque::new(),
            pending: BTreeMap::new(),
            reads: Reads::default(),
            to_log: VecDeque::new(),
            in_log: Vec::new(),
            syncing_since_us: 0,
            blocked: false,
            backlog: Backlog::default(),
            to_apply: VecDeque::new(),
            applies_when_durable: false,
            captured: None,
            release: None,
            states: States::default(),
            log,
            last_status: None,
            was_leader: false,
            leads_in: 0,
            removed,
            proof: None,
            paused_until_us: 0,
            slow_disk: (0, 0),
        }
    }

    /// A sole voter does not wait for anybody, others hardly.
    pub(crate) fn begin(&mut self, env: &mut Env) -> Result<(), PowerCut> {
        self.drain(env)?;
        if !self.blocked && self.member.status().sole_voter {
            // Refused only while a change of the members is not applied; the clock will do it then.
            let _ = self.member.campaign();
        } else if !self.blocked && env.plan.pre_vote {
            self.member.advance_election(env.plan.election_ticks.saturating_sub(2));
        }
        self.wake(env);
        Ok(())
    }

    pub(crate) fn status(&self) -> Status {
        self.member.status()
    }

    /// A message from a peer.
    pub(crate) fn receive(&mut self, env: &mut Env, message: raftpb::Message) {
        self.inbox.messages.push(message);
        self.wake(env);
    }

    /// A request from a client.
    pub(crate) fn request(&mut self, env: &mut Env, operation: usize) {
        self.inbox.requests.push(operation);
        self.wake(env);
    }

    /// Has consensus take a turn soon: what arrives until then shares it.
    pub(crate) fn wake(&mut self, env: &mut Env) {
        if !std::mem::replace(&mut self.turn_is_due, true) {
            let pause_us = self.paused_until_us.saturating_sub(env.now_us);
            let delay_us = pause_us + env.random.below(40);
            env.after(delay_us, Event::Turn { host: self.host, boot: self.boot });
        }
    }

    pub(crate) fn turn(&mut self, env: &mut Env) -> Result<(), PowerCut> {
        self.turn_is_due = false;
        if self.paused_until_us > env.now_us {
            self.wake(env);
            return Ok(());
        }
        if self.blocked {
            // Everything waits in the inbox until the disk is done.
            return Ok(());
        }
        for message in std::mem::take(&mut self.inbox.messages) {
            self.step(env, message);
            if self.proof.is_some() {
                // It says nothing more, not even what it has ready.
                return Ok(());
            }
        }
        self.accept_requests(env);
        self.drain(env)
    }

    /// The clock ticks. One that stands still for a while ticks once for all that it missed.
    pub(crate) fn tick(&mut self, env: &mut Env) -> Result<(), PowerCut> {
        if self.blocked || self.paused_until_us > env.now_us {
            return Ok(());
        }
        self.member.tick();
        self.hand_over_if_stalled(env);
        self.expire(env);
        self.revoke_expired(env);
        self.reads.ask_again(env.now_us, &mut self.member);
        self.checkpoint_if_due(env);
        self.drain(env)
    }

    /// A leader whose disk does not answer for an election timeout hands over, and leads no longer after two.
    fn hand_over_if_stalled(&mut self, env: &mut Env) {
        let patience_us = env.plan.election_ticks as u64 * env.plan.tick_us;
        let stalled_us = if self.in_log.is_empty() { 0 } else { env.now_us - self.syncing_since_us };
        let status = self.member.status();
        if status.role != Role::Leader || status.sole_voter || stalled_us <= patience_us {
            return;
        }
        if stalled_us > 2 * patience_us {
            trace!(env, "{} steps down from its slow disk", self.host);
            self.member.step_down();
        } else if let Some(successor) = self.member.successor().filter(|_| status.transferee == 0) {
            trace!(env, "{} hands over to {successor:x} from its slow disk", self.host);
            // Refused when the successor is not there any more; the next tick tries again.
            let _ = self.member.transfer(successor);
        }
    }

    pub(crate) fn unreachable(&mut self, env: &mut Env, id: u64) {
        if !self.blocked {
            self.member.report_unreachable(id);
            self.wake(env);
        }
    }

    fn step(&mut self, env: &mut Env, message: raftpb::Message) {
        let shown = if env.trace.is_on() { crate::show::message(&message) } else { String::new() };
        let from = message.from();
        if let Err(error) = self.member.step(message) {
            if let replica::Error::LogLost(proof) = error {
                self.proof = Some(proof);
                return;
            }
            trace!(env, "{} refuses {shown} from {from:x}: {error}", self.host);
            let is_claim = matches!(&error, replica::Error::Message(refusal) if refusal.is_claim());
            if is_claim && self.member.conf_state().voters.is_empty() {
                // One that was set back to before its first checkpoint believes nobody until it has replayed who the members are.
                return;
            }
            // What honest members send is never refused; a log that lost its end would be.
            panic!("{:x} refuses a message of {from:x}: {error}: {shown}", self.id);
        }
    }

    fn accept_requests(&mut self, env: &mut Env) {
        let held = std::mem::take(&mut self.held);
        let arrived = std::mem::take(&mut self.inbox.requests);
        for operation in held.into_iter().chain(arrived) {
            match env.history.operations[operation].request.clone() {
                Request::Write(data) => self.propose(env, operation, data),
                Request::ConfChange(change) => self.propose_conf_change(env, operation, &change),
                Request::Read { range, linearizable: false } => self.answer_read(env, operation, &range),
                Request::Read { .. } if env.options.mutation == Some(Mutation::ReadsWithoutIndex) => {
                    self.answer_asked(env, operation);
                }
                Request::Read { .. } => self.reads.ask(operation),
                Request::KeepAlive { .. } if self.member.status().role != Role::Leader => {
                    env.answer(operation, Answer::Refused);
                }
                Request::KeepAlive { lease } => {
                    if !self.renew_at_once(env, operation, lease) {
                        self.reads.ask(operation);
                    }
                }
                Request::Transfer { to } => {
                    // Of no use on a follower without a leader.
                    let _ = self.member.transfer(to);
                    env.answer(operation, Answer::Unknown);
                }
            }
        }
    }

    fn propose(&mut self, env: &mut Env, operation: usize, data: Bytes) {
        let result = self.member.propose(vec![data]);
        let was_proposed = result.is_ok();
        self.proposed(env, operation, result);
        if was_proposed && env.options.mutation == Some(Mutation::AcknowledgesBeforeCommit) && self.was_leader {
            let index = self.member.status().committed + 1;
            env.answer(operation, Answer::Applied { index, result: Ok(Box::new(store::Response::None)) });
        }
    }

    fn propose_conf_change(&mut self, env: &mut Env, operation: usize, change: &raftpb::ConfChange) {
        let result = self.member.propose_conf_change(change);
        self.proposed(env, operation, result);
    }

    fn proposed(&mut self, env: &mut Env, operation: usize, result: Result<(), replica::Error>) {
        let facts = &env.history.operations[operation];
        let deadline_us = facts.invoked_us + env.plan.request_timeout_us;
        match result {
            Ok(()) => {
                self.pending.insert(facts.request_id, Waiting { operation, deadline_us });
            }
            // Nobody leads: the request waits for a leader as long as its client does.
            Err(replica::Error::Dropped) if deadline_us > env.now_us => self.held.push_back(operation),
            Err(_) => env.answer(operation, Answer::Refused),
        }
    }

    /// Answers those whose time is over.
    fn expire(&mut self, env: &mut Env) {
        let now_us = env.now_us;
        let over: Vec<u64> =
            self.pending.iter().filter(|(_, waiting)| waiting.deadline_us <= now_us).map(|(id, _)| *id).collect();
        for id in over {
            let Some(waiting) = self.pending.remove(&id) else { continue };
            if env.options.mutation == Some(Mutation::AppliesTwice)
                && let Request::Write(data) = env.history.operations[waiting.operation].request.clone()
            {
                // Whether it takes this one or not: the first may still come.
                let _ = self.member.propose(vec![data]);
            }
            env.answer(waiting.operation, Answer::Unknown);
        }
        // Those that no leader took are looked at again.
        if !self.held.is_empty() {
            self.wake(env);
        }
    }

    /// Does all the work there is, and answers what can be answered.
    fn drain(&mut self, env: &mut Env) -> Result<(), PowerCut> {
        while !self.blocked {
            self.hand_on(env)?;
            self.member.applied(self.applier.applied_index());
            self.reads.ask_index(env, &mut self.member);
            if !self.member.has_work() {
                if self.write_turn(env) {
                    continue;
                }
                break;
            }
            let work = self.member.work();
            self.take(env, work)?;
        }
        self.observe(env);
        self.trim(env);
        self.offer_state(env);
        self.answer_reads(env);
        Ok(())
    }

    fn take(&mut self, env: &mut Env, mut work: Work) -> Result<(), PowerCut> {
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
            let (index, term) = (metadata.index(), metadata.term());
            self.install(env, index, term)?;
            self.log.restart(index, term);
        }
        self.log.append(work.entries.iter().map(|entry| (entry.index(), entry.term())));
        let status = self.member.status();
        for entry in &work.committed {
            env.ledger.commits(self.id, status.role == Role::Leader, status.term, entry);
        }
        self.check_leader(env, &status);
        env.send(self.id, std::mem::take(&mut work.messages));
        if env.options.mutation == Some(Mutation::VotesBeforeDurable) {
            env.send(self.id, std::mem::take(&mut work.persisted_messages));
        }
        for (number, index) in std::mem::take(&mut work.reads) {
            if let Some(asked_us) = self.reads.indexed(number, index) {
                self.lessor.confirm(asked_us / 1000);
            }
        }
        let committed = std::mem::take(&mut work.committed);
        if env.plan.form == Form::ByTurn {
            self.backlog.add(work.number, committed);
            self.persist(env, work, false)?;
            return self.hand_on(env);
        }
        let changes_members = committed.iter().any(replica::is_to_last);
        self.persist(env, work, changes_members)?;
        self.apply_later(env, committed)
    }

    /// What must be true of a member that leads, before it says anything as a leader. A sole voter wins its election before its own
    /// vote is on the disk, and is silent until then: if it loses power before, it has never led.
    fn check_leader(&mut self, env: &mut Env, status: &Status) {
        let is_durable = env.ledger.durable.get(&self.id).is_some_and(|durable| durable.term >= status.term);
        if status.role == Role::Leader && self.leads_in != status.term && is_durable {
            self.leads_in = status.term;
            env.ledger.leads(self.id, status.term, &self.log);
        }
    }

    /// Compares where it stands with where it stood.
    fn observe(&mut self, env: &mut Env) {
        let status = self.member.status();
        if let Some(last) = self.last_status {
            assert!(last.term <= status.term, "{:x} goes from term {} to {}", self.id, last.term, status.term);
            assert!(last.committed <= status.committed, "{:x} takes a commit back: {last:?} {status:?}", self.id);
        }
        for other in self.member.progress() {
            assert!(
                other.next > other.matched,
                "{:x} would send {:x} again what it is known to hold: {other:?}",
                self.id,
                other.id
            );
        }
        assert!(status.applied <= status.committed, "{:x} has applied what is not committed: {status:?}", self.id);
        self.check_leader(env, &status);
        if self
            .last_status
            .is_none_or(|last| (last.role, last.term, last.leader) != (status.role, status.term, status.leader))
        {
            trace!(env, "{} is {:?} of term {} under {:x}", self.host, status.role, status.term, status.leader);
        }
        self.last_status = Some(status);
        self.change_leadership(env, &status);
    }

    fn writes_in_place(&self, form: Form) -> bool {
        let status = self.member.status();
        match form {
            Form::Inline => true,
            Form::Threaded | Form::ByTurn => false,
            Form::ByRole => status.role != Role::Leader || status.sole_voter,
        }
    }

    /// Whatever was asked of this process and not answered.
    pub(crate) fn abandon(self, env: &mut Env) {
        let reads = self.reads.all();
        let pending = self.pending.into_values().map(|waiting| waiting.operation);
        for operation in pending.chain(self.held).chain(self.inbox.requests).chain(reads) {
            env.answer(operation, Answer::Unknown);
        }
    }
}

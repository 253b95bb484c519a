//! The simulated process around a replica: the store, the tables of waiters, the network, and the checks.

use super::leases::Renewal;
use super::{LEASE_TAKEOVER_PIECE_MAX, Parts, PowerCut, disk_result};
use crate::clock::Clock;
use crate::connection::Connection;
use crate::env::Env;
use crate::mutation::Mutation;
use crate::operation::{Answer, Request};
use crate::outbox::Outbox;
use crate::removals::VOTERS_KEPT;
use crate::schedule::Event;
use crate::settings::Settings;
use crate::shadow::Shadow;
use crate::trace::trace;
use api::Message as _;
use api::etcdserverpb::{InternalRaftRequest, LeaseRevokeRequest, RangeRequest};
use api::raftpb::{ConfChange, ConfChangeType, ConfState, Entry, Message, SnapshotMetadata};
use bytes::Bytes;
use disk::sim::SimDisk;
use replica::{
    ApplyQueue, CheckpointDue, CheckpointPace, Inputs, Lessor, Member, Mistake, Note, Now, Observed, Pending, Proof,
    Proposal, ReadIndex, Status, Tokens, Work,
};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::hash::{BuildHasherDefault, DefaultHasher};
use std::sync::Arc;
use std::time::Duration;
use store::{Applier, CheckpointJob, Export, NoSpaceAlarm, Prepared, Space, Store};
use wal::Wal;

/// How long tokens live after their last use: not as long as the pauses of some clients, and longer than any run.
const TOKENS_SHORT: Duration = Duration::from_millis(1_500);
const TOKENS_LONG: Duration = Duration::from_secs(24 * 3600);

/// A client that waits for a proposal.
pub(crate) struct Waiter {
    pub(crate) operation: usize,
    /// What the proposal may add to the store.
    _space: Space,
    /// It is the member itself, which raises its alarm.
    pub(super) raises_alarm: bool,
}

impl Waiter {
    pub(super) fn new(operation: usize) -> Waiter {
        Waiter::holding(Space::default(), operation)
    }

    pub(super) fn holding(space: Space, operation: usize) -> Waiter {
        Waiter { operation, _space: space, raises_alarm: false }
    }
}

impl replica::Waiter for Waiter {}

/// A linearizable read, or a keep-alive that needs a read index.
pub(crate) struct Read {
    pub(crate) operation: usize,
    pub(crate) asked_us: u64,
}

/// Everything of a process except its replica and its log.
pub(crate) struct Machine {
    pub(crate) host: usize,
    pub(crate) boot: u64,
    pub(crate) id: u64,
    pub(crate) applier: Applier,
    pub(crate) store: Arc<Store>,
    pub(crate) disk: SimDisk,
    pub(crate) lessor: Lessor,
    /// Arrivals that consensus has not taken yet.
    pub(crate) inputs: Inputs<(), Waiter, Read, u64>,
    pub(crate) pending: Pending<Waiter>,
    reads: ReadIndex<Read>,
    pub(crate) applying: ApplyQueue<()>,
    /// What is left of the batch that is being applied.
    pub(super) under_way: VecDeque<Entry>,
    /// What all threads know to be applied.
    pub(crate) noted: u64,
    /// The status that the threads of connections see.
    pub(crate) published: Status,
    pub(crate) checkpoint: CheckpointDue,
    pub(crate) captured: Option<CheckpointJob>,
    pub(crate) release: Option<(api::walpb::Snapshot, u64)>,
    /// The log as Raft has it.
    pub(crate) log: Shadow,
    pub(crate) last_status: Option<Status>,
    /// The last term in which the member led with its vote on the disk.
    pub(crate) leads_in: u64,
    pub(crate) removed: BTreeSet<u64>,
    /// Whether the member knows the configuration, from its checkpoint or from replayed entries.
    knows_members: bool,
    pub(crate) proof: Option<Proof>,
    /// What an observer has for what it follows; `None` on a member.
    pub(crate) outbox: Option<Outbox>,
    /// What those that follow this process need of its log.
    pub(crate) observed: Observed,
    /// The connections of clients that watch, by client.
    pub(crate) connections: BTreeMap<usize, Connection>,
    /// Entries that take a lease checkpoint back: the renewal that waits for it, and the number of the checkpoint.
    pub(super) taken_back: BTreeMap<u64, (Renewal, Option<u64>)>,
    pub(crate) clock: Clock,
    pub(super) no_space: NoSpaceAlarm,
    pub(super) tokens: Tokens<BuildHasherDefault<DefaultHasher>>,
    /// Tokens of entries behind this one are known here.
    pub(super) tokens_from: u64,
    /// When lease checkpoints were written last.
    pub(super) checkpointed_us: u64,
}

impl Machine {
    /// Makes the machine around a member and a log, and returns these two for the process.
    pub(super) fn new(env: &Env, parts: Parts) -> (Machine, Member, Wal) {
        let Parts { host, boot, id, raft, applier, wal, disk, log, outbox } = parts;
        let store = applier.store().clone();
        let tokens_from = applier.applied_index();
        let tokens_ttl = if env.plan.extras.tokens_expire { TOKENS_SHORT } else { TOKENS_LONG };
        let entries = Settings::of(&env.plan, host).checkpoint_entries;
        let at_once = Duration::ZERO;
        let pace = CheckpointPace { entries, gap: at_once, many: u64::MAX, gap_many: at_once, age_max: Duration::MAX };
        let in_place_entries_max = if env.plan.apply_us == 0 { replica::APPLY_IN_PLACE_ENTRIES_MAX } else { 0 };
        let machine = Machine {
            host,
            boot,
            id,
            checkpoint: CheckpointDue::new(pace, applier.applied_index(), Duration::ZERO),
            knows_members: applier.applied_index() > 0,
            removed: store.members().removed,
            applier,
            store,
            disk,
            lessor: Lessor::default(),
            inputs: Inputs::default(),
            pending: Pending::default(),
            reads: ReadIndex::default(),
            applying: ApplyQueue::new(in_place_entries_max),
            under_way: VecDeque::new(),
            noted: tokens_from,
            published: raft.status(),
            captured: None,
            release: None,
            log,
            last_status: None,
            leads_in: 0,
            proof: None,
            outbox,
            observed: Observed::default(),
            connections: BTreeMap::new(),
            taken_back: BTreeMap::new(),
            clock: Clock::new(env, host, boot),
            no_space: NoSpaceAlarm::default(),
            tokens: Tokens::new(tokens_ttl, BuildHasherDefault::default()),
            tokens_from,
            checkpointed_us: 0,
        };
        (machine, raft, wal)
    }

    /// Ends requests that take too long.
    pub(super) fn expire(&mut self, env: &mut Env) {
        let Some(before_ms) = self.clock.now_ms(env).checked_sub(env.plan.request_timeout_us / 1000) else { return };
        for late in self.pending.expire(before_ms) {
            self.not_raised(&late.waiter);
            env.answer(late.waiter.operation, Answer::Unknown);
        }
        for late in self.reads.expire(before_ms).reads {
            env.answer(late.operation, Answer::Refused);
        }
    }

    /// Whether a question for a read index is answered without one.
    pub(super) fn answers_observers_at_once(&self, env: &Env) -> bool {
        match env.options.mutation {
            Some(Mutation::AnswersObserversAtOnce) => self.outbox.is_none(),
            Some(Mutation::AnswersObserversAtOnceAlone) => self.published.serves_local_reads(),
            _ => false,
        }
    }

    /// Reports no leader any more: the member has been without contact for too long.
    pub(super) fn lose_leader(&mut self) {
        (self.published.serves_reads, self.published.leader) = (false, 0);
        self.published.role = replica::Role::Follower;
    }

    /// Answers a read whose read index is complete.
    pub(super) fn answer_read(&mut self, env: &mut Env, read: &Read) {
        match env.history.operations[read.operation].request.clone() {
            Request::Read { range, .. } => self.read(env, read.operation, &range),
            Request::ReadIndex => {
                env.answer(read.operation, Answer::ReadIndex { applied: self.noted });
            }
            Request::KeepAlive { lease } => {
                self.lessor.confirm(read.asked_us / 1000);
                // Only the leader keeps the deadline.
                let now_ms = self.clock.now_ms(env);
                let granted = self.store.leases().get(lease);
                match granted.and_then(|lease| self.lessor.renew(&lease, now_ms)) {
                    // The checkpoint of an earlier time must be void before the client is promised more.
                    Some(ttl_seconds) if self.is_noted(lease) => {
                        self.forget_checkpoint(env, Renewal { operation: read.operation, lease, ttl_seconds });
                    }
                    Some(ttl_seconds) => env.answer(read.operation, Answer::Renewed { lease, ttl_seconds }),
                    None => env.answer(read.operation, Answer::Refused),
                }
            }
            _ => {}
        }
    }

    pub(super) fn read(&self, env: &mut Env, operation: usize, range: &RangeRequest) {
        let answer = match self.store.range(range) {
            Ok(answer) => {
                Answer::Read { revision: answer.revision, count: answer.count, kvs: answer.kvs.to_messages() }
            }
            Err(error) => panic!("a read of {range:?} fails: {error:?}"),
        };
        env.answer(operation, answer);
    }

    /// Renews a lease without a read index of its own, if the last one is new enough.
    pub(super) fn renew_at_once(&mut self, env: &mut Env, operation: usize, lease: i64) -> bool {
        let now_ms = self.clock.now_ms(env);
        if !self.lessor.renews_at_once(lease, now_ms) || self.is_noted(lease) {
            return false;
        }
        let renewed = self.store.leases().get(lease).and_then(|lease| self.lessor.renew(&lease, now_ms));
        if let Some(ttl_seconds) = renewed {
            env.answer(operation, Answer::Renewed { lease, ttl_seconds });
        }
        renewed.is_some()
    }

    /// The message that comes with a snapshot. If this mistake is planted, its configuration is replaced by this
    /// process's own.
    pub(super) fn misread(&self, env: &Env, mut message: Message) -> Message {
        if env.options.mutation == Some(Mutation::Replica(Mistake::SkipsSnapshotMembers))
            && let Some(metadata) = message.snapshot.as_mut().and_then(|snapshot| snapshot.metadata.as_mut())
            && let Some(own) = env.ledger.conf_state_of.get(&self.id).filter(|own| !own.voters.is_empty())
        {
            metadata.conf_state = Some(own.clone());
        }
        message
    }

    /// Notes that the configuration has changed.
    pub(super) fn note_members(&mut self, env: &mut Env) {
        self.knows_members = true;
        self.removed = self.store.members().removed;
        if self.removed.contains(&self.id) {
            trace!(env, "{} was removed", self.host);
            env.after(1_000_000, Event::Leave { host: self.host, boot: self.boot });
        }
    }
}

/// A machine in its world, as the replica sees it.
pub(super) struct Shell<'a> {
    pub(super) machine: &'a mut Machine,
    pub(super) env: &'a mut Env,
}

impl replica::Shell for Shell<'_> {
    type Mark = ();
    type Waiter = Waiter;
    type Read = Read;
    /// The number of the transfer.
    type Source = u64;
    type Fault = PowerCut;

    fn pending<T>(&mut self, look: impl FnOnce(&mut Pending<Waiter>) -> T) -> T {
        look(&mut self.machine.pending)
    }

    fn read_index<T>(&mut self, look: impl FnOnce(&mut ReadIndex<Read>) -> T) -> T {
        look(&mut self.machine.reads)
    }

    fn has_reads(&self) -> bool {
        !self.machine.reads.is_empty()
    }

    fn lessor<T>(&mut self, look: impl FnOnce(&mut Lessor, &Store) -> T) -> T {
        let before = self.machine.lessor.count();
        let looked = look(&mut self.machine.lessor, &self.machine.store);
        let more = self.machine.lessor.count().saturating_sub(before);
        // Members may have millions of leases, and nothing else is done meanwhile.
        assert!(more <= LEASE_TAKEOVER_PIECE_MAX, "{more} leases are taken over at once");
        looked
    }

    fn message_taken(&mut self, _raft: &Member, (): ()) {}

    fn message_refused(&mut self, from: u64, _mark: Option<()>, error: &replica::Error) {
        trace!(self.env, "{} refuses a message of {from:x}: {error}", self.machine.host);
        if let Some(outbox) = &mut self.machine.outbox {
            return outbox.refuse(error);
        }
        let machine = &*self.machine;
        let is_claim = matches!(error, replica::Error::Message(refusal) if refusal.is_claim());
        // A member that was set back to before its first checkpoint trusts no claim until it has replayed the
        // configuration.
        let is_new = is_claim && !machine.knows_members;
        // Messages of honest members are never refused; those of a member whose log has lost its end would be.
        assert!(is_new, "{:x} refuses a message of {from:x}: {error}", machine.id);
    }

    fn send(&mut self, messages: Vec<Message>) {
        if let Some(outbox) = &mut self.machine.outbox {
            return outbox.take(messages);
        }
        // A member that hears of this commit index may answer clients with the entries up to it.
        if self.machine.published.serves_local_reads() {
            let applied = self.machine.applier.applied_index();
            let told = messages.iter().map(|message| message.commit()).max().unwrap_or_default();
            assert!(told <= applied, "{:x} reads by itself up to {applied}, and tells of {told}", self.machine.id);
        }
        self.env.ledger.tells(self.machine.id, &self.machine.log, &messages);
        self.env.send(self.machine.id, messages);
    }

    fn send_snapshot(&mut self, message: Message, export: Arc<Export>) {
        self.env.ledger.sends(self.machine.id, &message);
        self.env.snapshots.push((message, export));
    }

    fn applied(&self) -> u64 {
        self.machine.noted
    }

    fn apply_queue_bytes(&self) -> usize {
        self.machine.applying.bytes()
    }

    fn is_store_idle_or_tells(&mut self) -> bool {
        self.machine.applying.is_idle_or_tells()
    }

    fn wait_for_applied(&mut self, index: Option<u64>) -> bool {
        // Every applied batch is followed by a turn, so nothing needs to be registered.
        index.is_none_or(|index| self.applied() < index)
    }

    fn apply(&mut self, entries: Vec<Entry>) -> Result<(), PowerCut> {
        self.machine.apply(self.env, entries)
    }

    fn apply_conf_change(
        &mut self,
        entry: &Entry,
        take_effect: impl FnMut(&ConfChange) -> Option<ConfState>,
    ) -> Result<(), PowerCut> {
        self.machine.apply_entries(self.env, std::slice::from_ref(entry), take_effect)?;
        self.machine.note_applied();
        Ok(())
    }

    fn install(&mut self, prepared: Prepared, metadata: &SnapshotMetadata) -> Result<(), PowerCut> {
        let (machine, index) = (&mut *self.machine, metadata.index());
        disk_result(&machine.disk, machine.applier.install(prepared))?;
        machine.note_applied();
        machine.checkpoint.taken(index, Duration::from_micros(self.env.now_us));
        trace!(self.env, "{} installed the snapshot at {index}", machine.host);
        // The configuration in Raft comes from the message and not from the data.
        let conf_state = metadata.conf_state.clone().unwrap_or_default();
        self.env.ledger.restored_members(machine.id, index, &conf_state);
        self.env.ledger.hash(machine.id, index, machine.store.hash());
        machine.tokens.clear();
        machine.tokens_from = index;
        machine.note_members(self.env);
        Ok(())
    }

    fn observed(&self) -> Observed {
        self.machine.observed
    }

    fn export(&mut self) -> Option<Export> {
        self.machine.can_capture().then(|| self.machine.applier.export())
    }

    fn may_change(&mut self, change: &ConfChange) -> Result<(), api::Error> {
        let members = self.machine.store.members().members;
        let removes = |member: &store::Member| !member.is_learner && member.id == change.node_id();
        let removes_voter = change.r#type() == ConfChangeType::ConfChangeRemoveNode && members.values().any(removes);
        // See `World::change_members`.
        let voters = members.values().filter(|member| !member.is_learner).count();
        if removes_voter && voters <= VOTERS_KEPT { Err(api::Error::MemberNotEnoughStarted) } else { Ok(()) }
    }

    fn end_proposals(&mut self, waiters: Vec<Waiter>, error: api::Error) {
        // These errors mean that the request has no effect, now or later.
        let is_refusal = matches!(
            error,
            api::Error::TooManyRequests | api::Error::NotPrimaryLessor | api::Error::MemberNotEnoughStarted
        );
        for waiter in waiters {
            self.machine.not_raised(&waiter);
            let answer = if is_refusal { Answer::Refused } else { Answer::Unknown };
            self.env.answer(waiter.operation, answer);
        }
    }

    fn end_reads(&mut self, reads: Vec<Read>, _error: api::Error) {
        for read in reads {
            self.env.answer(read.operation, Answer::Refused);
        }
    }

    fn end_install(&mut self, transfer: u64, result: Result<(), String>) {
        self.env.installed.push((transfer, result.is_ok()));
    }

    fn revoke(&mut self, lease: i64) -> Option<Proposal<Waiter>> {
        let env = &mut *self.env;
        let id = env.request_id();
        let request = InternalRaftRequest {
            header: Some(self.machine.as_member(id)),
            lease_revoke: Some(LeaseRevokeRequest { id: lease }),
            ..Default::default()
        };
        trace!(env, "{} lets lease {lease} expire", self.machine.host);
        let data: Bytes = request.encode_to_vec().into();
        let operation = env.history.begin(env.now_us, None, id, Request::Write(data.clone()));
        Some(Proposal { id, data, waiter: Waiter::new(operation), term: None })
    }

    fn publish(&mut self, status: &Status, _log_bytes: u64, _now: Now) {
        self.machine.published = *status;
        self.machine.check_status(self.env, status);
    }

    fn note(&mut self, note: Note<'_>) {
        let machine = &*self.machine;
        trace!(self.env, "{} notes {note:?}", machine.host);
        match note {
            Note::ForwardRefused => panic!("{:x} refuses a proposal of another member", machine.id),
            Note::ConfChangeFailed(error) => panic!("{:x} cannot apply a configuration change: {error}", machine.id),
            _ => {}
        }
    }

    fn log_lost(&mut self, proof: &Proof) {
        self.machine.proof = Some(*proof);
    }

    fn observe(&mut self, raft: &Member, work: &Work) {
        self.machine.check_work(self.env, raft, work);
    }

    fn makes(&self, mistake: Mistake) -> bool {
        let Some(Mutation::Replica(planted)) = self.env.options.mutation else { return false };
        let is_here = match mistake {
            // Only some members skip changes, and not those of the founding entries.
            Mistake::SkipsConfChange => self.machine.host % 2 == 1 && self.applied() >= 10,
            _ => true,
        };
        planted == mistake && is_here
    }
}

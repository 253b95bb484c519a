//! The Raft state machine of one member.

use crate::backlog::is_to_last;
use crate::convert;
use crate::log::Log;
use crate::outbox;
use crate::step::Refusal;
use api::raftpb;
use bytes::Bytes;
use raft::eraftpb::{self, MessageType};
use raft::{RawNode, StateRole};
use std::collections::{HashSet, VecDeque};

/// Entries that one append message may carry, in bytes. raft-rs' default of 0 would send one entry per message.
const APPEND_MESSAGE_BYTES_MAX: u64 = 512 * 1024;
/// Append messages to one follower that may be unanswered.
const APPENDS_IN_FLIGHT_MAX: usize = 512;
/// Committed entries handed out in one piece of work, in bytes, so that a long backlog is applied in bounded memory.
const COMMITTED_BYTES_MAX: u64 = 16 << 20;
/// Proposals of a leader that are not committed yet, in bytes: followers that do not answer must not fill its memory.
const UNCOMMITTED_BYTES_MAX: u64 = 256 << 20;
/// Proposals that a follower forwards in one message, in bytes.
const FORWARD_MESSAGE_BYTES_MAX: usize = 1 << 20;

/// How a member behaves.
#[derive(Clone, Debug)]
pub struct Config {
    /// This member's id.
    pub id: u64,
    /// Ticks without a leader before an election (`--election-timeout` / `--heartbeat-interval`).
    pub election_ticks: usize,
    /// Ticks between heartbeats.
    pub heartbeat_ticks: usize,
    /// Ask for votes without raising the term first (`--pre-vote`).
    pub pre_vote: bool,
    /// Seed of the election timeouts.
    pub seed: u64,
    /// A number that no earlier start of this member used, so that read contexts never repeat.
    pub boot_nonce: u64,
}

/// What the log and the store gave back.
#[derive(Clone, Debug, Default)]
pub struct Restored {
    /// The last hard state in the log.
    pub hard_state: raftpb::HardState,
    /// Entries after `applied`.
    pub entries: Vec<raftpb::Entry>,
    /// Index of the last entry the store has applied.
    pub applied: u64,
    /// Its term.
    pub applied_term: u64,
    /// Voters and learners as of `applied`.
    pub conf_state: raftpb::ConfState,
}

/// Why a member cannot start or does not take an input.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// raft-rs refused.
    #[error("raft: {0}")]
    Raft(#[from] raft::Error),
    /// The log does not continue where the store ends.
    #[error("the log starts at entry {first}, but the store needs it from {wanted} on")]
    Gap {
        /// First entry in the log.
        first: u64,
        /// First entry needed.
        wanted: u64,
    },
    /// No leader takes the proposal now.
    #[error("no leader takes proposals")]
    Dropped,
    /// The leader waits for its followers with as much as it may hold.
    #[error("too many proposals wait for the followers")]
    Full,
    /// Only a leader can do this.
    #[error("this member does not lead")]
    NotLeader,
    /// Leadership can go to a voter only.
    #[error("member {0:x} is not a voter")]
    NotVoter(u64),
    /// A peer sent what no honest peer sends.
    #[error("refused a message: {0}")]
    Message(#[from] Refusal),
}

/// What a member is in its term.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Role {
    Leader,
    Follower,
    Candidate,
}

/// Where a member stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Status {
    /// What it is.
    pub role: Role,
    /// Who leads, 0 when nobody is known to.
    pub leader: u64,
    /// The term.
    pub term: u64,
    /// Last committed entry.
    pub committed: u64,
    /// Last applied entry, as reported.
    pub applied: u64,
    /// The member leads and its first entry of the term is applied: its state holds all that was ever acknowledged.
    pub serves_reads: bool,
    /// The member is the only voter: a leader needs nobody's word to answer a linearizable read.
    pub sole_voter: bool,
    /// The member votes.
    pub voter: bool,
    /// The member is a learner.
    pub learner: bool,
    /// To whom leadership is being handed, 0 for nobody. No proposal is taken meanwhile.
    pub transferee: u64,
}

/// What is to be done, in one piece.
pub struct Work {
    /// Names this work in [`Member::persisted`].
    pub number: u64,
    /// To be installed in the store before anything else of this work: it replaces everything up to its index. Until
    /// [`Member::persisted`] the member takes no input.
    pub snapshot: Option<raftpb::Snapshot>,
    /// To the log.
    pub entries: Vec<raftpb::Entry>,
    /// To the log, with the entries.
    pub hard_state: Option<raftpb::HardState>,
    /// The log must be synced before [`Member::persisted`]; without it, what changed may wait for the next sync.
    pub must_sync: bool,
    /// To peers, at once.
    pub messages: Vec<raftpb::Message>,
    /// To peers, once the log is durable.
    pub persisted_messages: Vec<raftpb::Message>,
    /// To the store, in order.
    pub committed: Vec<raftpb::Entry>,
    /// Reads that may be answered once the store has applied the index.
    pub reads: Vec<(u64, u64)>,
}

/// Work that is not durable yet.
struct Unsynced {
    number: u64,
    term: u64,
    has_entries: bool,
    snapshot_index: u64,
}

/// The consensus core of one member.
pub struct Member {
    pub(crate) node: RawNode<Log>,
    random: u64,
    election_ticks: usize,
    election_timeout: usize,
    seen: (u64, StateRole, u64),
    durable_term: u64,
    unsynced: VecDeque<Unsynced>,
    /// Read indexes that followers asked for before this leader had committed anything in its term.
    pub(crate) early_reads: Vec<eraftpb::Message>,
    /// What followers proposed while this leader was handing over, or a change of the members was under way.
    pub(crate) early_proposals: VecDeque<eraftpb::Message>,
    /// The last term in which this member handed over because it is to be removed.
    pub(crate) handed_over_in: u64,
    applied: u64,
    read_counter: u64,
    boot_nonce: u64,
    pending_reads: HashSet<u64>,
    pub(crate) conf_state: raftpb::ConfState,
}

impl Member {
    /// A member as of what was restored.
    pub fn new(config: &Config, mut restored: Restored) -> Result<Self, Error> {
        if let Some(first) = restored.entries.first().map(|entry| entry.index())
            && first != restored.applied + 1
        {
            return Err(Error::Gap { first, wanted: restored.applied + 1 });
        }
        // After a crash while a state was being installed the log may still hold entries that the state replaced. None of
        // them was committed: what follows a committed entry is of its term or a later one.
        let mut term = restored.applied_term;
        let sound = restored.entries.iter().position(|entry| std::mem::replace(&mut term, entry.term()) > entry.term());
        restored.entries.truncate(sound.unwrap_or(usize::MAX));
        let mut hard_state = convert::hard_state_to_raft(&restored.hard_state);
        // A checkpoint may be newer than the last hard state that was synced: what is applied is committed.
        hard_state.commit = hard_state.commit.max(restored.applied);
        if hard_state.term < restored.applied_term {
            // No vote of this later term was ever given: it would have been in the log first.
            hard_state.term = restored.applied_term;
            hard_state.vote = 0;
        }
        let last = restored.entries.last().map_or(restored.applied, |entry| entry.index());
        hard_state.commit = hard_state.commit.min(last);
        let durable_term = hard_state.term;
        let log = Log::new(
            (restored.applied, restored.applied_term),
            restored.entries.into_iter().map(convert::entry_to_raft).collect(),
            hard_state,
            convert::conf_state_to_raft(&restored.conf_state),
        );
        let raft_config = raft::Config {
            id: config.id,
            election_tick: config.election_ticks,
            heartbeat_tick: config.heartbeat_ticks,
            applied: restored.applied,
            max_size_per_msg: APPEND_MESSAGE_BYTES_MAX,
            max_inflight_msgs: APPENDS_IN_FLIGHT_MAX,
            max_committed_size_per_ready: COMMITTED_BYTES_MAX,
            max_uncommitted_size: UNCOMMITTED_BYTES_MAX,
            check_quorum: true,
            pre_vote: config.pre_vote,
            ..raft::Config::default()
        };
        let logger = slog::Logger::root(slog::Discard, slog::o!());
        let node = RawNode::new(&raft_config, log, &logger)?;
        let mut member = Member {
            node,
            random: config.seed | 1,
            election_ticks: config.election_ticks,
            election_timeout: config.election_ticks,
            seen: (0, StateRole::Follower, 0),
            durable_term,
            unsynced: VecDeque::new(),
            early_reads: Vec::new(),
            early_proposals: VecDeque::new(),
            handed_over_in: 0,
            applied: restored.applied,
            read_counter: 0,
            boot_nonce: config.boot_nonce,
            pending_reads: HashSet::new(),
            conf_state: restored.conf_state,
        };
        member.draw_election_timeout();
        member.after_input();
        Ok(member)
    }

    /// One tick of the clock went by.
    pub fn tick(&mut self) {
        let raft = &self.node.raft;
        let election_due = raft.state != StateRole::Leader && raft.election_elapsed + 1 >= self.election_timeout;
        // raft-rs takes for granted that a member stands for election with all of its log durable. One whose disk does not
        // answer would be no good leader either.
        if self.is_installing() || (election_due && !self.log_is_durable()) {
            return;
        }
        self.node.tick();
        self.after_input();
    }

    /// Stands for election at once.
    pub fn campaign(&mut self) -> Result<(), Error> {
        if self.is_installing() || !self.log_is_durable() {
            return Err(Error::Dropped);
        }
        self.node.campaign()?;
        self.after_input();
        Ok(())
    }

    /// Proposes entries in order, in one step. All are taken or none.
    pub fn propose(&mut self, batch: Vec<Bytes>) -> Result<(), Error> {
        let entries: Vec<eraftpb::Entry> =
            batch.into_iter().map(|data| eraftpb::Entry { data, ..Default::default() }).collect();
        self.propose_entries(entries)
    }

    /// Whether a proposal has a leader to go to.
    pub fn takes_proposals(&self) -> bool {
        let raft = &self.node.raft;
        raft.leader_id != 0 && raft.lead_transferee.is_none() && !self.is_installing()
    }

    /// Proposes a change of the members. A leader takes one at a time.
    pub fn propose_conf_change(&mut self, change: &raftpb::ConfChange) -> Result<(), Error> {
        let raft = &self.node.raft;
        if raft.state == StateRole::Leader && raft.has_pending_conf() {
            // raft-rs would put an empty entry in its place, and nobody would ever hear of it.
            return Err(Error::Dropped);
        }
        if self.hands_over_first(change) {
            self.after_input();
            return Err(Error::Dropped);
        }
        let entry = raftpb::Entry {
            r#type: Some(raftpb::EntryType::EntryConfChange as i32),
            data: Some(api::Message::encode_to_vec(change).into()),
            ..Default::default()
        };
        self.propose_entries(vec![convert::entry_to_raft(entry)])
    }

    fn propose_entries(&mut self, mut entries: Vec<eraftpb::Entry>) -> Result<(), Error> {
        if entries.is_empty() {
            return Ok(());
        }
        if self.is_installing() {
            return Err(Error::Dropped);
        }
        let forwards = self.node.raft.state != StateRole::Leader;
        while !entries.is_empty() {
            let mut bytes = 0;
            let mut fits = |entry: &eraftpb::Entry| {
                bytes += entry.data.len();
                bytes <= FORWARD_MESSAGE_BYTES_MAX
            };
            let count =
                if forwards { entries.iter().take_while(|entry| fits(entry)).count().max(1) } else { entries.len() };
            let rest = entries.split_off(count);
            let mut message = eraftpb::Message::default();
            message.set_msg_type(MessageType::MsgPropose);
            message.from = self.node.raft.id;
            message.set_entries(std::mem::replace(&mut entries, rest).into());
            // Forwarding changes nothing here: when the first message is taken, all are.
            self.node.step(message).map_err(|error| self.refusal(error))?;
        }
        self.after_input();
        Ok(())
    }

    fn refusal(&self, error: raft::Error) -> Error {
        let raft = &self.node.raft;
        match error {
            raft::Error::ProposalDropped
                if raft.state == StateRole::Leader && raft.lead_transferee.is_none() && self.is_voter() =>
            {
                Error::Full
            }
            raft::Error::ProposalDropped => Error::Dropped,
            error => error.into(),
        }
    }

    /// Asks for the index that a linearizable read must wait for. One call serves every read that is waiting now. The number
    /// comes back in [`Work::reads`]; `None` when nobody can tell yet (ask again after the next tick).
    pub fn read_index(&mut self) -> Option<u64> {
        let raft = &self.node.raft;
        let leads = raft.state == StateRole::Leader;
        if (leads && !raft.commit_to_current_term()) || (!leads && raft.leader_id == 0) || self.is_installing() {
            return None;
        }
        self.read_counter += 1;
        let mut context = Vec::with_capacity(24);
        for part in [self.node.raft.id, self.boot_nonce, self.read_counter] {
            context.extend_from_slice(&part.to_be_bytes());
        }
        self.pending_reads.insert(self.read_counter);
        self.node.read_index(context);
        Some(self.read_counter)
    }

    /// Forgets a read that was asked for: the caller asks anew.
    pub fn forget_read(&mut self, number: u64) {
        self.pending_reads.remove(&number);
    }

    /// Forgets reads that were asked for and never answered (the leader changed): the caller asks anew.
    pub fn forget_reads(&mut self) {
        self.pending_reads.clear();
    }

    /// Whether [`Member::work`] has anything.
    pub fn has_work(&self) -> bool {
        self.node.has_ready()
    }

    /// The next piece of work.
    pub fn work(&mut self) -> Work {
        let mut ready = self.node.ready();
        let number = ready.number();
        let taken = ready.take_entries();
        let entries: Vec<raftpb::Entry> = taken.iter().map(convert::entry_from_raft).collect();
        let mut hard_state = ready.hs().map(convert::hard_state_from_raft);
        let mut messages = ready.take_messages();
        let mut persisted_messages = ready.take_persisted_messages();
        // raft-rs lets a leader send before its own log is durable. That is only safe once the vote that made it leader is:
        // a sole voter wins its election before anything reached the disk.
        if self.node.raft.term != self.durable_term {
            persisted_messages.splice(0..0, messages.drain(..));
        }
        let committed: Vec<raftpb::Entry> =
            ready.take_committed_entries().iter().map(convert::entry_from_raft).collect();
        let reads = ready.take_read_states().into_iter().filter_map(|read| self.own_read(&read)).collect();
        let mut must_sync = ready.must_sync();
        if committed.iter().any(is_to_last) {
            hard_state = Some(convert::hard_state_from_raft(&self.node.raft.hard_state()));
            must_sync = true;
            persisted_messages.splice(0..0, messages.drain(..));
        }
        let log = self.node.mut_store();
        let snapshot = (!ready.snapshot().is_empty()).then(|| {
            log.restore(ready.snapshot());
            convert::snapshot_from_raft(ready.snapshot())
        });
        log.append(taken);
        if let Some(state) = ready.hs() {
            log.hard_state = state.clone();
        }
        let metadata = snapshot.as_ref().and_then(|snapshot| snapshot.metadata.as_ref());
        if let Some(conf_state) = metadata.and_then(|metadata| metadata.conf_state.as_ref()) {
            self.conf_state = conf_state.clone();
        }
        self.unsynced.push_back(Unsynced {
            number,
            term: self.node.raft.term,
            has_entries: !entries.is_empty(),
            snapshot_index: metadata.map_or(0, |metadata| metadata.index()),
        });
        self.node.advance_append_async(ready);
        Work {
            number,
            snapshot,
            entries,
            hard_state,
            must_sync,
            messages: outbox::pack(messages),
            persisted_messages: outbox::pack(persisted_messages),
            committed,
            reads,
        }
    }

    /// The log is durable, and a state installed, up to the work of this number.
    pub fn persisted(&mut self, number: u64) {
        let mut installed = 0;
        while let Some(work) = self.unsynced.pop_front_if(|work| work.number <= number) {
            self.durable_term = self.durable_term.max(work.term);
            installed = installed.max(work.snapshot_index);
        }
        self.node.on_persist_ready(number);
        // The installed state is applied. raft-rs must know before anything else: it would look for entries in between.
        self.applied(installed);
        self.after_input();
    }

    /// Whether everything in the log is durable.
    pub fn log_is_durable(&self) -> bool {
        let log = &self.node.raft.raft_log;
        log.persisted == log.last_index() && !self.unsynced.iter().any(|work| work.has_entries)
    }

    /// Whether a state was handed out in [`Work::snapshot`] and is not installed yet, or is about to be handed out.
    pub(crate) fn is_installing(&self) -> bool {
        self.node.snap().is_some() || self.unsynced.iter().any(|work| work.snapshot_index > 0)
    }

    /// Whether the hard state of the current term is on the disk.
    pub(crate) fn term_is_durable(&self) -> bool {
        self.durable_term == self.node.raft.term
    }

    pub(crate) fn is_voter(&self) -> bool {
        let id = &self.node.raft.id;
        self.conf_state.voters.contains(id) || self.conf_state.voters_outgoing.contains(id)
    }

    /// The store has applied everything up to `index`. A state that was installed counts once [`Member::persisted`] says that it is
    /// durable: raft-rs knows of nothing applied beyond that.
    pub fn applied(&mut self, index: u64) {
        if index > self.applied && !self.is_installing() {
            self.applied = index;
            self.node.advance_apply_to(index);
            self.take_early_proposals();
        }
    }

    /// Makes a committed change of the members take effect; answers who votes from now on.
    pub fn apply_conf_change(&mut self, change: &raftpb::ConfChange) -> Result<raftpb::ConfState, Error> {
        if let Some(change) = convert::conf_change_to_raft(change) {
            let conf_state = self.node.apply_conf_change(&change)?;
            self.conf_state = convert::conf_state_from_raft(&conf_state);
            self.node.mut_store().conf_state = conf_state;
            self.leave_office();
            self.after_input();
        }
        Ok(self.conf_state.clone())
    }

    /// Forgets entries up to `index` in memory (the disk keeps its own count).
    pub fn trim(&mut self, index: u64) {
        self.node.mut_store().trim(index.min(self.applied));
    }

    /// Entries held in memory.
    pub fn log_len(&self) -> usize {
        self.node.store().len()
    }

    /// What they take, in bytes.
    pub fn log_bytes(&self) -> u64 {
        self.node.store().bytes()
    }

    /// Up to which index [`Member::trim`] must go for the entries to take no more than `bytes_max`.
    pub fn trim_to_fit(&self, bytes_max: u64) -> u64 {
        self.node.store().index_to_fit(bytes_max)
    }

    /// Where the member stands.
    pub fn status(&self) -> Status {
        let raft = &self.node.raft;
        let role = match raft.state {
            StateRole::Leader => Role::Leader,
            StateRole::Follower => Role::Follower,
            StateRole::Candidate | StateRole::PreCandidate => Role::Candidate,
        };
        let leads = role == Role::Leader && self.term_is_durable();
        Status {
            role,
            leader: raft.leader_id,
            term: raft.term,
            committed: raft.raft_log.committed,
            applied: self.applied,
            serves_reads: leads && raft.apply_to_current_term(),
            sole_voter: self.conf_state.voters == [raft.id] && self.conf_state.voters_outgoing.is_empty(),
            voter: self.is_voter(),
            learner: self.conf_state.learners.contains(&raft.id),
            transferee: raft.lead_transferee.unwrap_or(0),
        }
    }

    fn own_read(&mut self, read: &raft::ReadState) -> Option<(u64, u64)> {
        let context: &[u8; 24] = read.request_ctx.as_slice().try_into().ok()?;
        let part = |at: usize| context[at..at + 8].iter().fold(0u64, |number, byte| number << 8 | u64::from(*byte));
        let number = part(16);
        let own = part(0) == self.node.raft.id && part(8) == self.boot_nonce;
        (own && self.pending_reads.remove(&number)).then_some((number, read.index))
    }

    /// raft-rs draws election timeouts from the thread's random source. They are replaced by the member's own, drawn anew
    /// whenever raft-rs would have, so that a seed decides a whole run.
    pub(crate) fn after_input(&mut self) {
        self.answer_early_reads();
        self.take_early_proposals();
        let raft = &self.node.raft;
        let now = (raft.term, raft.state, raft.leader_id);
        if now != self.seen {
            self.seen = now;
            self.draw_election_timeout();
        }
        self.node.raft.set_randomized_election_timeout(self.election_timeout);
    }

    /// The link to this member broke. If it leads, it is most likely gone: the random part of the election time-out, which keeps
    /// members from standing against each other, gives way to their order. One tick more than the time-out itself, since until
    /// that is over the others hold with the leader and do not answer.
    pub(crate) fn hasten_election(&mut self, lost: u64) {
        let raft = &self.node.raft;
        if raft.state == StateRole::Follower && raft.leader_id == lost && self.is_voter() {
            let before = self.conf_state.voters.iter().filter(|id| **id != lost && **id < raft.id).count();
            self.election_timeout = self.election_timeout.min(self.election_ticks + 1 + 2 * before);
        }
    }

    fn draw_election_timeout(&mut self) {
        // xorshift64*: the spread matters, not the quality.
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.election_timeout = self.election_ticks + (self.random % self.election_ticks as u64) as usize;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn member() -> Member {
        let founders = [("a".to_string(), vec!["http://localhost:2380".to_string()])];
        let Some(start) = crate::bootstrap(&founders, "a", "token") else { panic!("a founder") };
        let config = Config {
            id: start.member_id,
            election_ticks: 10,
            heartbeat_ticks: 1,
            pre_vote: true,
            seed: 1,
            boot_nonce: 9,
        };
        let restored = Restored { hard_state: start.hard_state, entries: start.entries, ..Restored::default() };
        match Member::new(&config, restored) {
            Ok(member) => member,
            Err(error) => panic!("{error}"),
        }
    }

    /// Does all work as a shell would, and gives back what was committed.
    fn settle(member: &mut Member) -> Vec<raftpb::Entry> {
        let mut all = Vec::new();
        while member.has_work() {
            let work = member.work();
            member.persisted(work.number);
            for entry in &work.committed {
                if entry.r#type() == raftpb::EntryType::EntryConfChange {
                    let change: raftpb::ConfChange =
                        api::Message::decode(entry.data.clone().unwrap_or_default()).expect("own entry");
                    member.apply_conf_change(&change).expect("a valid change");
                }
                member.applied(entry.index());
            }
            all.extend(work.committed);
        }
        all
    }

    #[test]
    fn a_founder_elects_itself_and_commits() {
        let mut member = member();
        assert_eq!(settle(&mut member).len(), 1, "the founding change");
        assert!(matches!(member.propose(vec![Bytes::from_static(b"x")]), Err(Error::Dropped)));
        member.campaign().expect("a voter may");
        settle(&mut member);
        let status = member.status();
        assert_eq!((status.role, status.term, status.sole_voter), (Role::Leader, 2, true));
        assert!(status.serves_reads);
        member.propose(vec![Bytes::from_static(b"x"), Bytes::from_static(b"y")]).expect("a leader takes it");
        let committed = settle(&mut member);
        let data: Vec<_> = committed.iter().map(|entry| entry.data.clone().unwrap_or_default()).collect();
        assert_eq!(data, ["x", "y"]);
        let number = member.read_index().expect("a settled leader");
        assert_eq!(member.work().reads, [(number, committed[1].index())]);
    }

    #[test]
    fn nothing_is_committed_before_it_is_durable() {
        let mut member = member();
        settle(&mut member);
        member.campaign().expect("a voter may");
        settle(&mut member);
        member.propose(vec![Bytes::from_static(b"x")]).expect("a leader takes it");
        let work = member.work();
        assert!(work.must_sync && work.committed.is_empty() && !work.entries.is_empty());
        assert!(!member.has_work(), "waits for the disk");
        member.persisted(work.number);
        assert_eq!(settle(&mut member).len(), 1);
    }

    #[test]
    fn a_removal_is_not_forgotten() {
        let mut member = member();
        settle(&mut member);
        member.campaign().expect("a voter may");
        settle(&mut member);
        for (kind, is_to_last) in [
            (raftpb::ConfChangeType::ConfChangeAddLearnerNode, false),
            (raftpb::ConfChangeType::ConfChangeRemoveNode, true),
        ] {
            let change = raftpb::ConfChange { r#type: Some(kind as i32), node_id: Some(7), ..Default::default() };
            member.propose_conf_change(&change).expect("a leader takes it");
            let mut work = member.work();
            while work.committed.is_empty() {
                member.persisted(work.number);
                work = member.work();
            }
            let index = work.committed[0].index();
            assert_eq!(work.committed[0].r#type(), raftpb::EntryType::EntryConfChange);
            assert_eq!(work.must_sync, is_to_last, "{kind:?}");
            assert!(!is_to_last || work.messages.is_empty());
            assert_eq!(work.hard_state.map(|state| state.commit()), Some(index));
            member.persisted(work.number);
            member.apply_conf_change(&change).expect("a valid change");
            member.applied(index);
        }
    }
}

//! Messages from peers, checked before they reach raft-rs, which trusts every field and panics over some.

use crate::consensus::bounds::{NUMBER_MAX, is_sound};
use crate::consensus::convert;
use crate::consensus::core::Member;
use crate::consensus::error::Error;
use api::{Message as _, raftpb};
use raft::StateRole;
use raft::eraftpb::{self, MessageType};
use std::iter::once;

/// The context of a read index: Cairn's takes 24 bytes, etcd's 8.
const CONTEXT_BYTES_MAX: usize = 1024;
/// Limit of messages with proposals that wait during a leader transfer or a configuration change.
const EARLY_PROPOSALS_MAX: usize = 64;
/// Election timeouts that such proposals wait at most: by then their clients have got a time-out.
const EARLY_PROPOSALS_ELECTIONS_MAX: u64 = 5;
/// Limit of read indexes that wait until a new leader has committed in its term.
const EARLY_READS_MAX: usize = 1024;

/// A follower's proposal that the leader cannot take at once.
pub(crate) struct Early {
    message: eraftpb::Message,
    /// The tick at which the proposal came.
    tick: u64,
}

/// Why a message from a peer is not taken.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)]
pub enum Refusal {
    #[error("type {0} does not come from peers")]
    Type(i32),
    #[error("it is for member {0:x}")]
    Addressee(u64),
    #[error("it does not come from another member")]
    Sender,
    #[error("a number in it is impossible")]
    Number,
    #[error("its term {theirs} is too far beyond this member's term {ours} for one that comes of elections")]
    Term { theirs: u64, ours: u64 },
    #[error("its entries do not follow each other")]
    Entries,
    #[error("an entry in it has an unknown type or cannot be read")]
    Entry,
    #[error("the configuration in it is not sound")]
    Configuration,
    #[error(
        "it goes on behind entry {index} of term {theirs}, but this observer's log ends at entry {last} of term {ours}"
    )]
    NotNext { index: u64, theirs: u64, last: u64, ours: u64 },
    #[error("it names entry {named}, but this member's log ends at {last}; was this log truncated or lost?")]
    BeyondLog { named: u64, last: u64 },
    #[error(
        "it has entry {index} in term {theirs}, but here everything up to entry {committed} of term {ours} is committed"
    )]
    ContradictsCommitted { index: u64, theirs: u64, committed: u64, ours: u64 },
    #[error(
        "it names entry {index} of term {theirs} as held by this member, but here it is of term {ours}; was this log replaced?"
    )]
    OtherThanAcknowledged { index: u64, theirs: u64, ours: u64 },
}

impl Refusal {
    /// Whether the message claims that this member's log is not what it should be, without proving it.
    pub fn is_claim(&self) -> bool {
        matches!(
            self,
            Refusal::BeyondLog { .. } | Refusal::ContradictsCommitted { .. } | Refusal::OtherThanAcknowledged { .. }
        )
    }
}

impl Member {
    /// Takes a message from a peer. A message that is merely late or of no use now is dropped silently. After
    /// [`Error::LogLost`] the member must end.
    pub fn step(&mut self, message: raftpb::Message) -> Result<(), Error> {
        if let Some(proof) = self.proof {
            return Err(proof.into());
        }
        // While a snapshot is being installed, there is no log to check the message against. Lost messages are sent
        // again.
        if self.is_closed() {
            return Ok(());
        }
        if self.observes { self.follow(message) } else { self.step_checked(message) }
    }

    /// Checks a message, and takes it.
    pub(crate) fn step_checked(&mut self, mut message: raftpb::Message) -> Result<(), Error> {
        let kind = match self.check(&mut message) {
            Ok(kind) => kind,
            Err(refusal) => {
                if matches!(refusal, Refusal::Term { .. }) {
                    self.leaps.note_refusal();
                }
                self.proof = self.judge(&refusal, &message);
                return Err(self.proof.map_or_else(|| refusal.into(), Error::from));
            }
        };
        if !self.is_of_use(kind, &message) {
            return Ok(());
        }
        if kind == MessageType::MsgRequestVote && message.term() < self.node.raft.term {
            self.tell_term(&message);
            return Ok(());
        }
        let mut message = convert::message_to_raft(message, kind);
        if kind == MessageType::MsgAppendResponse && message.reject && !self.settle_probe(&mut message) {
            return Ok(());
        }
        if kind == MessageType::MsgReadIndex && self.leads() && !self.node.raft.commit_to_current_term() {
            // raft-rs would forget the request; the follower would have to repeat it, while its clients wait.
            if self.early_reads.len() < EARLY_READS_MAX {
                self.early_reads.push(message);
            }
            return Ok(());
        }
        if kind == MessageType::MsgPropose && self.leads() && self.must_wait(&message) {
            // raft-rs would drop the proposal, or replace a change by an empty entry, and its proposer would get no
            // answer. This happens right after an election, when a new leader does not know yet whether a change is
            // under way. A configuration change always waits here: whether the cluster can have it is decided when it
            // is taken.
            if self.early_proposals.len() < EARLY_PROPOSALS_MAX {
                self.early_proposals.push_back(Early { message, tick: self.ticks });
            }
            self.after_input();
            return Ok(());
        }
        let log_end = (message.log_term, message.index);
        let asks_for_vote = matches!(kind, MessageType::MsgRequestVote | MessageType::MsgRequestPreVote);
        let is_refusal = is_vote_response(kind) && message.reject && message.term >= self.node.raft.term;
        if is_refusal && self.node.raft.prs().get(message.from).is_some() {
            self.yield_to(log_end);
        }
        let commit_notice = self.is_commit_notice(&message).then_some((message.from, message.index));
        let (term, made) = (self.node.raft.term, self.node.raft.msgs.len());
        let stepped = self.node.step(message);
        self.leaps.note(term, self.node.raft.term);
        if asks_for_vote {
            self.complete_refusal(made, log_end);
        }
        match stepped {
            // Late messages of a removed member, and proposals that no leader takes now, are dropped: the proposer gets
            // no answer and decides itself when to give up.
            Ok(()) | Err(raft::Error::StepPeerNotFound | raft::Error::ProposalDropped) => {}
            Err(error) => return Err(error.into()),
        }
        if let Some((leader, index)) = commit_notice {
            self.leave_unanswered(leader, index);
        }
        self.after_input();
        Ok(())
    }

    /// Refuses a vote in a term that is over. raft-rs does not answer it, and a candidate that this member does not
    /// know yet (it was just added) could stay a term behind for long: neither of the two would learn the other's term.
    fn tell_term(&mut self, request: &raftpb::Message) {
        let raft = &mut self.node.raft;
        let made = raft.msgs.len();
        let mut refusal =
            eraftpb::Message { to: request.from(), from: raft.id, term: raft.term, reject: true, ..Default::default() };
        refusal.set_msg_type(MessageType::MsgRequestVoteResponse);
        raft.msgs.push(refusal);
        self.complete_refusal(made, (request.log_term(), request.index()));
        self.after_input();
    }

    /// Names the end of this member's log in its refusal of a vote, if one was made behind the first `made` messages: the
    /// candidate, whose log ends at `candidates`, does not learn otherwise whether it was refused for its log or for
    /// another candidate.
    fn complete_refusal(&mut self, made: usize, candidates: (u64, u64)) {
        let raft = &mut self.node.raft;
        let own = (raft.raft_log.last_term(), raft.raft_log.last_index());
        let is_refusal = |message: &&mut eraftpb::Message| is_vote_response(message.get_msg_type()) && message.reject;
        let Some(refusal) = raft.msgs.iter_mut().skip(made).find(is_refusal) else { return };
        (refusal.log_term, refusal.index) = own;
        self.yield_to(candidates);
    }

    /// Whether a message is a commit notice: an append that contains only a higher commit index.
    fn is_commit_notice(&self, message: &eraftpb::Message) -> bool {
        let raft = &self.node.raft;
        message.get_msg_type() == MessageType::MsgAppend
            && message.entries.is_empty()
            && message.term == raft.term
            && message.from == raft.leader_id
            && message.commit > raft.raft_log.committed
    }

    /// Drops the answer to a commit notice, which contains nothing new: the leader heard of the entries when they were
    /// durable here. If that message was lost, the leader's next heartbeat leads to an append that is no notice.
    fn leave_unanswered(&mut self, leader: u64, index: u64) {
        let messages = &mut self.node.raft.msgs;
        let is_answer = |message: &eraftpb::Message| {
            message.get_msg_type() == MessageType::MsgAppendResponse
                && (message.to, message.index, message.reject) == (leader, index, false)
        };
        if messages.last().is_some_and(is_answer) {
            messages.pop();
        }
    }

    pub(crate) fn answer_early_reads(&mut self) {
        if self.early_reads.is_empty() {
            return;
        }
        if !self.leads() {
            self.early_reads.clear();
        } else if self.node.raft.commit_to_current_term() {
            for message in std::mem::take(&mut self.early_reads) {
                // The message is dropped only if leadership is lost, which is not the case here.
                let _ = self.node.step(message);
            }
        }
    }

    /// Whether the leader cannot take a follower's proposal now.
    fn must_wait(&self, message: &eraftpb::Message) -> bool {
        self.node.raft.lead_transferee.is_some() || changes(message).next().is_some()
    }

    pub(crate) fn take_early_proposals(&mut self) {
        loop {
            let raft = &self.node.raft;
            let has_leader = raft.leader_id != 0;
            let waits = |message: &eraftpb::Message| if self.leads() { self.must_wait(message) } else { !has_leader };
            let is_next = self.early_proposals.front().is_some_and(|early| !waits(&early.message));
            let Some(Early { mut message, .. }) = self.early_proposals.pop_front_if(|_| is_next) else { return };
            // This member is named as the sender to another leader: that leader may be the proposer, and takes no
            // message from itself.
            message.from = self.node.raft.id;
            let _ = self.node.step(message);
        }
    }

    /// Takes the configuration changes that followers have proposed, if the leader can take one now. Changes that would
    /// leave no voter, or that `may_be` refuses, are dropped: their proposers decide themselves when to give up.
    pub fn take_forwarded_changes(&mut self, mut may_be: impl FnMut(&raftpb::ConfChange) -> bool) {
        while self.decides_change()
            && let Some(early) = self.early_proposals.pop_front()
        {
            let found: Vec<raftpb::ConfChange> = changes(&early.message).collect();
            if found.iter().any(|change| self.removes_last_voter(change) || !may_be(change)) {
                continue;
            }
            if found.iter().any(|change| self.hands_over_first(change)) {
                self.early_proposals.push_front(early);
            } else {
                // The change is proposed as this member's own: raft-rs does not distinguish them.
                let message = eraftpb::Message { from: self.node.raft.id, ..early.message };
                let _ = self.node.step(message);
            }
            self.after_input();
        }
    }

    /// Drops proposals that have waited for too long. Called every tick.
    pub(crate) fn drop_late_proposals(&mut self) {
        self.ticks = self.ticks.saturating_add(1);
        let patience = EARLY_PROPOSALS_ELECTIONS_MAX.saturating_mul(self.election_ticks as u64);
        let ticks = self.ticks;
        while self.early_proposals.pop_front_if(|early| early.tick.saturating_add(patience) < ticks).is_some() {}
    }

    fn leads(&self) -> bool {
        self.node.raft.state == StateRole::Leader
    }

    /// Checks everything in a message that raft-rs would trust.
    fn check(&self, message: &mut raftpb::Message) -> Result<MessageType, Refusal> {
        let raft = &self.node.raft;
        let kind = kind(message.r#type.unwrap_or_default())?;
        if message.to() != raft.id {
            return Err(Refusal::Addressee(message.to()));
        }
        if message.from() == 0 || message.from() == raft.id {
            return Err(Refusal::Sender);
        }
        let numbers = [
            message.term(),
            message.log_term(),
            message.index(),
            message.commit(),
            message.commit_term(),
            message.reject_hint(),
        ];
        if numbers.into_iter().any(|number| number > NUMBER_MAX) {
            return Err(Refusal::Number);
        }
        match kind {
            MessageType::MsgPropose => {
                // A forwarded message has no term of its own, and the leader assigns the index and term of its entries.
                message.term = Some(0);
                check_proposals(&message.entries)?;
                return Ok(kind);
            }
            MessageType::MsgReadIndex => message.term = Some(0),
            _ if message.term() == 0 => return Err(Refusal::Number),
            _ => {}
        }
        if !self.leaps.allow(raft.term, message.term()) {
            return Err(Refusal::Term { theirs: message.term(), ours: raft.term });
        }
        let last = raft.raft_log.last_index();
        // Messages of older terms are answered or ignored without using the other fields.
        let counts = message.term() >= raft.term;
        match kind {
            MessageType::MsgAppend => {
                check_entries(message)?;
                if counts {
                    let committed = raft.raft_log.committed;
                    // If the first entry behind the committed ones is right, so are those that follow.
                    let entries = message.entries.iter().map(|entry| (entry.index(), entry.term()));
                    let known = entries.take_while(|(index, _)| *index <= committed);
                    self.check_committed(once((message.index(), message.log_term())).chain(known))?;
                }
            }
            MessageType::MsgSnapshot => self.check_snapshot(message, counts)?,
            MessageType::MsgHeartbeat if counts && !(self.leads() && message.term() == raft.term) => {
                if message.commit_term() > message.term() {
                    return Err(Refusal::Number);
                }
                match self.check_acknowledged(message.commit(), message.commit_term()) {
                    // The member follows the leader, but does not take its commit index.
                    Err(_) if self.ignores_lost_log => message.commit = Some(raft.raft_log.committed),
                    checked => checked?,
                }
            }
            MessageType::MsgAppendResponse if self.leads() && message.term() == raft.term => {
                beyond(message.index().max(message.reject_hint()), last)?;
            }
            MessageType::MsgReadIndex | MessageType::MsgReadIndexResp => {
                let sizes: Vec<usize> = message.entries.iter().map(|entry| entry.data().len()).collect();
                if !matches!(sizes[..], [1..=CONTEXT_BYTES_MAX]) {
                    return Err(Refusal::Entries);
                }
            }
            _ => {}
        }
        Ok(kind)
    }

    fn check_snapshot(&self, message: &raftpb::Message, counts: bool) -> Result<(), Refusal> {
        let metadata = message.snapshot.as_ref().and_then(|snapshot| snapshot.metadata.as_ref());
        let Some(metadata) = metadata else { return Err(Refusal::Entries) };
        let (index, term) = (metadata.index(), metadata.term());
        if index == 0 || index > NUMBER_MAX || term == 0 || term > message.term() {
            return Err(Refusal::Number);
        }
        let Some(conf_state) = &metadata.conf_state else { return Err(Refusal::Configuration) };
        if !is_sound(conf_state) {
            return Err(Refusal::Configuration);
        }
        if counts { self.check_committed(once((index, term))) } else { Ok(()) }
    }

    /// Whether raft-rs can use the message now: it asserts some of these conditions.
    fn is_of_use(&self, kind: MessageType, message: &raftpb::Message) -> bool {
        let raft = &self.node.raft;
        match kind {
            // The message goes on to the leader. It must not go back to a sender that does not know yet that it leads,
            // or no longer believes so.
            MessageType::MsgPropose | MessageType::MsgReadIndex => {
                self.leads() || (raft.leader_id != 0 && raft.leader_id != message.from())
            }
            // An honest voter answers only a request, and this member sends requests only once its log is durable.
            MessageType::MsgRequestVoteResponse | MessageType::MsgRequestPreVoteResponse => {
                self.log_is_durable() && self.term_is_durable()
            }
            MessageType::MsgTimeoutNow => self.log_is_durable() && raft.prs().get(message.from()).is_some(),
            MessageType::MsgTransferLeader => self.leads() && message.term() <= raft.term,
            _ => true,
        }
    }

    /// Keeps a rejection from moving a follower's next index below the entries that it is known to have, which raft-rs
    /// 0.7 does. Returns whether the rejection has any effect.
    fn settle_probe(&self, message: &mut eraftpb::Message) -> bool {
        let raft = &self.node.raft;
        let Some(progress) = raft.prs().get(message.from).filter(|_| self.leads()) else { return true };
        if message.index <= progress.matched {
            return false;
        }
        if message.log_term > 0 {
            message.reject_hint = raft.raft_log.find_conflict_by_term(message.reject_hint, message.log_term).0;
            message.log_term = 0;
        }
        message.reject_hint = message.reject_hint.max(progress.matched);
        true
    }
}

/// The configuration changes in a message. One that cannot be read has no effect.
fn changes(message: &eraftpb::Message) -> impl Iterator<Item = raftpb::ConfChange> {
    let changes = message.entries.iter().filter(|entry| entry.get_entry_type() != eraftpb::EntryType::EntryNormal);
    changes.map(|entry| raftpb::ConfChange::decode(&entry.context[..]).unwrap_or_default())
}

fn is_vote_response(kind: MessageType) -> bool {
    matches!(kind, MessageType::MsgRequestVoteResponse | MessageType::MsgRequestPreVoteResponse)
}

fn kind(number: i32) -> Result<MessageType, Refusal> {
    Ok(match raftpb::MessageType::try_from(number) {
        Ok(raftpb::MessageType::MsgProp) => MessageType::MsgPropose,
        Ok(raftpb::MessageType::MsgApp) => MessageType::MsgAppend,
        Ok(raftpb::MessageType::MsgAppResp) => MessageType::MsgAppendResponse,
        Ok(raftpb::MessageType::MsgVote) => MessageType::MsgRequestVote,
        Ok(raftpb::MessageType::MsgVoteResp) => MessageType::MsgRequestVoteResponse,
        Ok(raftpb::MessageType::MsgPreVote) => MessageType::MsgRequestPreVote,
        Ok(raftpb::MessageType::MsgPreVoteResp) => MessageType::MsgRequestPreVoteResponse,
        Ok(raftpb::MessageType::MsgSnap) => MessageType::MsgSnapshot,
        Ok(raftpb::MessageType::MsgHeartbeat) => MessageType::MsgHeartbeat,
        Ok(raftpb::MessageType::MsgHeartbeatResp) => MessageType::MsgHeartbeatResponse,
        Ok(raftpb::MessageType::MsgTransferLeader) => MessageType::MsgTransferLeader,
        Ok(raftpb::MessageType::MsgTimeoutNow) => MessageType::MsgTimeoutNow,
        Ok(raftpb::MessageType::MsgReadIndex) => MessageType::MsgReadIndex,
        Ok(raftpb::MessageType::MsgReadIndexResp) => MessageType::MsgReadIndexResp,
        _ => return Err(Refusal::Type(number)),
    })
}

pub(crate) fn beyond(named: u64, last: u64) -> Result<(), Refusal> {
    if named > last { Err(Refusal::BeyondLog { named, last }) } else { Ok(()) }
}

fn check_entries(message: &raftpb::Message) -> Result<(), Refusal> {
    if (message.index() == 0) != (message.log_term() == 0) || message.log_term() > message.term() {
        return Err(Refusal::Number);
    }
    let mut before = (message.index(), message.log_term());
    for entry in &message.entries {
        if Some(entry.index()) != before.0.checked_add(1)
            || entry.term() < before.1.max(1)
            || entry.term() > message.term()
        {
            return Err(Refusal::Entries);
        }
        if raftpb::EntryType::try_from(entry.r#type.unwrap_or_default()).is_err() {
            return Err(Refusal::Entry);
        }
        before = (entry.index(), entry.term());
    }
    Ok(())
}

/// An entry that cannot be decoded must not get into the log.
fn check_proposals(entries: &[raftpb::Entry]) -> Result<(), Refusal> {
    if entries.is_empty() {
        return Err(Refusal::Entries);
    }
    for entry in entries {
        match raftpb::EntryType::try_from(entry.r#type.unwrap_or_default()) {
            Ok(raftpb::EntryType::EntryNormal) => {}
            Ok(raftpb::EntryType::EntryConfChange) => {
                raftpb::ConfChange::decode(entry.data()).map_err(|_| Refusal::Entry)?;
            }
            // No member proposes the newer kind, which can change several members at once.
            Ok(raftpb::EntryType::EntryConfChangeV2) | Err(_) => return Err(Refusal::Entry),
        }
    }
    Ok(())
}

//! Invariants over all members together, checked at every step.
//!
//! The ledger sees what members write, send, commit and apply, and remembers enough of it to notice the first contradiction:
//! at most one leader per term; log matching; every leader has what was committed before its term; what is committed is on
//! the disks of a quorum, and never changes; votes, terms and acknowledgements are durable before they are sent; read contexts never
//! repeat; equal members and equal answers at equal indexes.

use crate::model::Model;
use crate::removals::VOTERS_KEPT;
use crate::shadow::Shadow;
use api::{Message, raftpb};
use std::collections::{BTreeMap, BTreeSet};
use store::Response;

/// The durable state of a member's log.
#[derive(Clone, Debug, Default)]
pub(crate) struct Durable {
    pub(crate) log: Shadow,
    pub(crate) term: u64,
    pub(crate) vote: u64,
    /// The durable commit index: a restart cannot go back behind it.
    pub(crate) commit: u64,
    /// The commit index in the log, synced or not.
    pub(crate) written_commit: u64,
    /// Up to here everything was applied at the last start.
    pub(crate) applied: u64,
}

struct Committed {
    term: u64,
    checksum: u32,
    data: raftpb::Entry,
    /// The term of the first member that knew of the commit: at least the term of the commit.
    known_in_term: u64,
    /// Digest of the result of applying the entry.
    answer: Option<u32>,
}

/// Facts about the whole cluster.
#[derive(Default)]
pub(crate) struct Ledger {
    /// Whether contradictions inside the members are violations even before a client or the final check notices them.
    strict: bool,
    leaders: BTreeMap<u64, u64>,
    /// By index and term: checksum, and the term of the entry before.
    entries: BTreeMap<(u64, u64), (u32, u64)>,
    /// Index and term of entries that remove a member.
    removals: BTreeSet<(u64, u64)>,
    /// Committed entries, from index 1 on.
    committed: Vec<Committed>,
    /// The candidate that a member voted for, by member and term.
    votes: BTreeMap<(u64, u64), u64>,
    /// The highest term in a member's messages, by member.
    terms: BTreeMap<u64, u64>,
    contexts: BTreeSet<Vec<u8>>,
    /// A hash of the replicated state, by applied index.
    hashes: BTreeMap<u64, u32>,
    conf_states: BTreeMap<u64, raftpb::ConfState>,
    /// The configuration in a member's Raft, by member.
    pub(crate) conf_state_of: BTreeMap<u64, raftpb::ConfState>,
    /// The configuration before the last change, by member.
    conf_state_before: BTreeMap<u64, raftpb::ConfState>,
    pub(crate) durable: BTreeMap<u64, Durable>,
    /// The only term in which a request may be in the log, for those that only the leader of a term may propose.
    only_in: BTreeMap<u64, u64>,
}

/// A rule about the insides of members.
macro_rules! rule {
    ($ledger:expr, $holds:expr, $($message:tt)*) => {
        assert!(!$ledger.strict || $holds, $($message)*)
    };
}

impl Ledger {
    pub(crate) fn new(strict: bool) -> Ledger {
        Ledger { strict, ..Ledger::default() }
    }

    /// Index of the last entry that is known to be committed.
    pub(crate) fn last_committed(&self) -> u64 {
        self.committed.len() as u64
    }

    /// Index and term of the last entry that is known to be committed.
    pub(crate) fn last_committed_place(&self) -> (u64, u64) {
        (self.last_committed(), self.committed.last().map_or(0, |committed| committed.term))
    }

    /// The newest configuration that any member has applied, with its index.
    pub(crate) fn newest_conf_state(&self) -> Option<(u64, &raftpb::ConfState)> {
        self.conf_states.last_key_value().map(|(index, state)| (*index, state))
    }

    /// Whether there were at least so many voters and learners at once.
    pub(crate) fn had_members(&self, voters: usize, learners: usize) -> bool {
        let had = |state: &raftpb::ConfState| state.voters.len() >= voters && state.learners.len() >= learners;
        self.conf_states.values().any(had)
    }

    /// Checks an entry that is about to leave its author, or is on a disk. Log matching follows by induction over the
    /// preceding entries.
    pub(crate) fn entry(&mut self, previous_term: u64, entry: &raftpb::Entry) {
        let place = (entry.index(), entry.term());
        let facts = (checksum(entry), previous_term);
        let known = *self.entries.entry(place).or_insert(facts);
        rule!(self, known == facts, "log matching: entry {place:?} exists as {known:?} and as {facts:?}");
        rule!(self, previous_term <= entry.term(), "the terms of a log fall at {place:?}, after {previous_term}");
        if is_removal(entry) {
            self.removals.insert(place);
        }
    }

    /// Checks a member that leads with the log `log`.
    pub(crate) fn leads(&mut self, id: u64, term: u64, log: &Shadow) {
        let leader = *self.leaders.entry(term).or_insert(id);
        rule!(self, leader == id, "term {term} has two leaders: {leader:x} and {id:x}");
        let earlier = self.committed.partition_point(|committed| committed.known_in_term < term);
        if let Some(committed) = earlier.checked_sub(1).map(|last| &self.committed[last]) {
            rule!(
                self,
                log.holds(earlier as u64, committed.term),
                "leader completeness: {id:x} leads term {term} without entry {earlier} of term {}",
                committed.term
            );
        }
    }

    /// Checks an entry that a member knows to be committed.
    pub(crate) fn commits(&mut self, id: u64, leads: bool, term: u64, entry: &raftpb::Entry) {
        let index = entry.index();
        let checksum = checksum(entry);
        if let Some(known) = self.committed.get(index as usize - 1) {
            let same = (known.term, known.checksum) == (entry.term(), checksum);
            rule!(
                self,
                same,
                "entry {index} was committed in term {} and again, another one, in {}",
                known.term,
                entry.term()
            );
            return;
        }
        assert!(index == self.last_committed() + 1, "entry {index} is committed before the one ahead of it");
        // A leader may have learnt as a follower that entries of earlier terms are committed, under another
        // configuration.
        if self.strict && leads && entry.term() == term {
            self.check_quorum(id, index, entry.term());
        }
        self.committed.push(Committed {
            term: entry.term(),
            checksum,
            data: entry.clone(),
            known_in_term: term,
            answer: None,
        });
    }

    /// Checks that a quorum has a committed entry on disk: of the current configuration, or of that before the last
    /// change. A change takes effect when it is applied, and entries committed together with it needed the quorum
    /// before it.
    fn check_quorum(&self, leader: u64, index: u64, term: u64) {
        let holds = |id: &&u64| self.durable.get(id).is_some_and(|durable| durable.log.holds(index, term));
        let states = self.conf_state_of.get(&leader).into_iter().chain(self.conf_state_before.get(&leader));
        let voters: Vec<&Vec<u64>> = states.map(|state| &state.voters).filter(|voters| !voters.is_empty()).collect();
        let held = voters.iter().any(|voters| voters.iter().filter(holds).count() > voters.len() / 2);
        assert!(
            held || voters.is_empty(),
            "{leader:x} commits entry {index} of term {term} without a quorum of {voters:x?}"
        );
    }

    /// Checks what the messages of a member with this log tell of removals: a removed member ends once it knows, so that the commit must
    /// be durable.
    pub(crate) fn tells(&self, id: u64, log: &Shadow, messages: &[raftpb::Message]) {
        use raftpb::MessageType::*;
        let named = |message: &raftpb::Message| match message.r#type() {
            MsgApp | MsgHeartbeat | MsgVote | MsgVoteResp | MsgPreVote | MsgPreVoteResp => message.commit(),
            MsgReadIndexResp => message.index(),
            _ => 0,
        };
        let told = messages.iter().map(named).max().unwrap_or_default();
        let durable = self.durable.get(&id).map_or(0, |durable| durable.commit.max(durable.applied));
        if durable >= told {
            return;
        }
        let mut removals = self.removals.range((durable + 1, 0)..=(told, u64::MAX));
        let early = removals.find(|(index, term)| log.term(*index) == Some(*term));
        rule!(self, early.is_none(), "{id:x} tells of the removal {early:?} up to {told}, and has {durable} on disk");
    }

    /// Checks a message that leaves a member.
    pub(crate) fn sends(&mut self, id: u64, message: &raftpb::Message) {
        use raftpb::MessageType::*;
        let (kind, term) = (message.r#type(), message.term());
        let durable = self.durable.entry(id).or_default();
        // A pre-vote names a term that no member is in yet.
        let in_own_term = !matches!(kind, MsgPreVote | MsgPreVoteResp);
        if in_own_term && term > 0 {
            rule!(
                self,
                durable.term >= term,
                "{id:x} sends {kind:?} of term {term}, but only {} is durable",
                durable.term
            );
            let heard = self.terms.entry(id).or_default();
            rule!(self, *heard <= term, "{id:x} goes back from term {heard} to {term} with {kind:?}");
            *heard = term;
        }
        match kind {
            MsgVote | MsgVoteResp if !message.reject() => {
                let chosen = if kind == MsgVote { id } else { message.to() };
                let candidate = *self.votes.entry((id, term)).or_insert(chosen);
                rule!(self, candidate == chosen, "{id:x} votes for {candidate:x} and {chosen:x} in term {term}");
                let lasts = durable.term > term || durable.vote == chosen;
                rule!(self, lasts, "{id:x} gives {chosen:x} a vote in term {term} that is not durable");
            }
            // In an older term, a member may acknowledge entries that a later leader has replaced: they cannot be
            // committed any more.
            MsgAppResp if !message.reject() && term == durable.term => {
                let last = durable.log.last().0;
                rule!(
                    self,
                    last >= message.index(),
                    "{id:x} acknowledges entry {}, but {last} is durable",
                    message.index()
                );
            }
            MsgReadIndex => {
                // A request that is only forwarded has its author's id.
                let context = message.entries.first().map(|entry| entry.data().to_vec()).unwrap_or_default();
                if context.starts_with(&id.to_be_bytes()) {
                    self.asks_read(context);
                }
            }
            MsgApp => {
                let mut previous = message.log_term();
                for entry in &message.entries {
                    self.entry(previous, entry);
                    previous = entry.term();
                }
            }
            _ => {}
        }
    }

    /// Checks the context of a member's read index.
    pub(crate) fn asks_read(&mut self, context: Vec<u8>) {
        let is_new = self.contexts.insert(context.clone());
        rule!(self, is_new, "the read context {context:?} is used again");
    }

    /// Checks the result of an entry that a member has applied. Returns whether this member is the first.
    pub(crate) fn applies(&mut self, id: u64, index: u64, result: Option<&Result<Response, api::Error>>) -> bool {
        let digest = result.map_or(0, digest);
        let last = self.last_committed();
        let Some(committed) = self.committed.get_mut(index as usize - 1) else {
            panic!("{id:x} applies entry {index}, but only {last} is committed")
        };
        let first = committed.answer.is_none();
        let known = *committed.answer.get_or_insert(digest);
        rule!(
            self,
            known == digest,
            "state machine safety: {id:x} answers entry {index} with {result:?}, as nobody else did"
        );
        first
    }

    /// Notes a request that only the leader of `term` may propose.
    pub(crate) fn proposes(&mut self, request_id: u64, term: u64) {
        self.only_in.insert(request_id, term);
    }

    /// Checks the term of a request's entry.
    pub(crate) fn proposed(&self, request_id: u64, entry: &raftpb::Entry) {
        let term = self.only_in.get(&request_id).copied().unwrap_or(entry.term());
        rule!(
            self,
            term == entry.term(),
            "request {request_id} of the leader of term {term} is in the log as entry {} of term {}",
            entry.index(),
            entry.term()
        );
    }

    /// Applies to the model an entry that a member has applied.
    pub(crate) fn teach(&self, model: &mut Model, index: u64, result: Option<&Result<Response, api::Error>>) {
        assert!(index == model.index() + 1, "entry {index} is applied before the one ahead of it");
        let entry = &self.committed[index as usize - 1].data;
        match result {
            Some(result) if entry.r#type() == raftpb::EntryType::EntryNormal => model.apply(entry.data(), result),
            _ => model.skip(),
        }
    }

    /// Checks the hash of a member that has applied everything up to `index`.
    pub(crate) fn hash(&mut self, id: u64, index: u64, hash: u32) {
        let known = *self.hashes.entry(index).or_insert(hash);
        rule!(self, known == hash, "state machine safety: {id:x} holds another state at entry {index} than others");
    }

    /// Checks a removal that takes effect at a member.
    pub(crate) fn removes(&mut self, id: u64, index: u64) {
        let durable = self.durable.entry(id).or_default().commit;
        let lasts = durable >= index;
        rule!(self, lasts, "{id:x} may forget that the removal {index} is committed: it has {durable} on disk");
    }

    /// Checks a member's configuration after a removal.
    pub(crate) fn leaves(&self, id: u64, state: &raftpb::ConfState) {
        let Some(before) = self.conf_state_of.get(&id) else { return };
        let is_allowed = state.voters.len() == before.voters.len() || state.voters.len() >= VOTERS_KEPT;
        rule!(self, is_allowed, "{before:x?} became {state:x?}: of so few voters none may be removed");
    }

    /// Forgets the promises of a member that was set back to an older copy of its disk. Returns its durable state
    /// before that.
    pub(crate) fn forget(&mut self, id: u64) -> Durable {
        let lost = self.durable.remove(&id).unwrap_or_default();
        self.terms.remove(&id);
        self.votes.retain(|(member, _), _| *member != id);
        lost
    }

    /// Checks a member's configuration as of the entry at `index`.
    pub(crate) fn members(&mut self, id: u64, index: u64, state: &raftpb::ConfState) {
        let mut state = state.clone();
        state.auto_leave = Some(state.auto_leave());
        for ids in [&mut state.voters, &mut state.learners, &mut state.voters_outgoing, &mut state.learners_next] {
            ids.sort_unstable();
        }
        let known = self.conf_states.range(..=index).next_back();
        match known {
            Some((at, known)) if *at == index => {
                rule!(self, *known == state, "{id:x} has the members {state:?} at entry {index}, others {known:?}");
            }
            _ => {
                self.conf_states.insert(index, state.clone());
            }
        }
        let before = self.conf_state_of.insert(id, state.clone());
        if let Some(before) = before.filter(|before| *before != state) {
            self.conf_state_before.insert(id, before);
        }
    }

    /// Checks a member that was started on this log: nothing durable may be missing, unless a later entry or snapshot
    /// has replaced it.
    pub(crate) fn restores(&mut self, id: u64, log: &Shadow, restored: &replica::Restored) {
        let known = self.durable.entry(id).or_default();
        let term = restored.hard_state.term().max(restored.applied_term);
        let (index, of_term) = known.log.last();
        let kept = index <= restored.applied || log.term(index) == Some(of_term) || log.last().1 > of_term;
        rule!(self, kept, "{id:x} had entry {index} of term {of_term} on disk, and starts with {:?}", log.last());
        rule!(self, term >= known.term, "{id:x} had term {} on disk, and starts with {term}", known.term);
        let vote = restored.hard_state.vote();
        let votes = term > known.term || known.vote == 0 || vote == known.vote;
        rule!(self, votes, "{id:x} had voted for {:x} in term {term}, and starts with {vote:x}", known.vote);
        let written_commit = restored.hard_state.commit();
        let applied = restored.applied;
        *known = Durable { log: log.clone(), term, vote, commit: 0, written_commit, applied };
    }

    /// Checks the configuration of a member that was started: at `index`, it must be the one of the last change before.
    pub(crate) fn restored_members(&mut self, id: u64, index: u64, state: &raftpb::ConfState) {
        let known = self.conf_states.range(..=index).next_back().map(|(at, _)| *at);
        match known {
            Some(at) => self.members(id, at, state),
            None if index == 0 => {
                self.conf_state_of.remove(&id);
            }
            None => panic!("{id:x} has members at entry {index}, before any change"),
        }
    }
}

fn is_removal(entry: &raftpb::Entry) -> bool {
    let removes = |change: raftpb::ConfChange| change.r#type() == raftpb::ConfChangeType::ConfChangeRemoveNode;
    entry.r#type() == raftpb::EntryType::EntryConfChange && raftpb::ConfChange::decode(entry.data()).is_ok_and(removes)
}

fn checksum(entry: &raftpb::Entry) -> u32 {
    crc32c::crc32c_append(entry.r#type() as u32, entry.data())
}

/// A digest of an answer, of its encoding where many are of that kind: to write one out for a digest takes ten times as long.
fn digest(result: &Result<Response, api::Error>) -> u32 {
    let (kind, encoded) = match result {
        Ok(Response::Put(answer)) => (1, answer.encode_to_vec()),
        Ok(Response::DeleteRange(answer)) => (2, answer.encode_to_vec()),
        Ok(Response::Txn(answer)) => (3, answer.encode_to_vec()),
        Ok(Response::Range(answer)) => (4, answer.encode_to_vec()),
        other => (5, format!("{other:?}").into_bytes()),
    };
    crc32c::crc32c_append(kind, &encoded)
}

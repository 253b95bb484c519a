//! Observers: outside of the cluster's configuration, with committed entries from a member or another observer.
//!
//! An observer's Raft is a follower for ever: it is no voter of its own configuration, so raft-rs never campaigns. Since raft-rs takes no
//! snapshot whose configuration lacks it, it is a learner in those; everybody else is given the configuration without it. Only
//! committed entries are in its log, and they come in order: it has nothing to acknowledge, and nothing of its log is ever replaced.

use crate::consensus::bounds::NUMBER_MAX;
use crate::consensus::convert;
use crate::consensus::core::Member;
use crate::consensus::error::Error;
use crate::consensus::step::Refusal;
use api::raftpb::{self, ConfState, Entry, Message};
use raft::eraftpb::MessageType;
use raft::{GetEntriesContext, Storage};

/// Stands for the sender of entries while no leader is known.
const NOBODY: u64 = u64::MAX;

/// Entries whose digests an observer sends, to show that its history is that of what it follows.
pub const TAIL_MAX: usize = 16;

/// What a member has behind the last entry of an observer.
#[derive(Debug, PartialEq)]
pub enum Stretch {
    /// The entries that follow, from the first on; none if there are none yet.
    Entries(Vec<Entry>),
    /// The member is not there yet itself.
    Behind,
    /// The entries that follow are no longer in memory.
    Trimmed,
    /// The member has another entry there, of this term.
    Differs(u64),
}

impl Member {
    /// The applied entries behind the entry `index` of `term`, up to `applied`, about `bytes_max` bytes of them and at least one.
    pub fn stretch(&self, index: u64, term: u64, applied: u64, bytes_max: u64) -> Stretch {
        // A member that has nothing yet is in no term, and a message of no term is refused.
        if index > applied || applied == 0 {
            return Stretch::Behind;
        }
        match self.known_term(index) {
            Some(ours) if ours != term => return Stretch::Differs(ours),
            None if index > 0 => return Stretch::Trimmed,
            _ => {}
        }
        if index == applied {
            return Stretch::Entries(Vec::new());
        }
        let (low, high) = (index.saturating_add(1), applied.saturating_add(1));
        match self.node.store().entries(low, high, bytes_max, GetEntriesContext::empty(false)) {
            Ok(entries) => Stretch::Entries(entries.iter().map(convert::entry_from_raft).collect()),
            Err(raft::Error::Store(raft::StorageError::Unavailable)) => Stretch::Behind,
            Err(_) => Stretch::Trimmed,
        }
    }

    /// The term of an entry; `None` if the log does not say.
    pub fn term_of(&self, index: u64) -> Option<u64> {
        self.known_term(index)
    }

    /// Index and term of the last entry, from which an observer goes on.
    pub fn last_entry(&self) -> (u64, u64) {
        let log = &self.node.raft.raft_log;
        (log.last_index(), log.last_term())
    }

    /// Digests of the entry `last` and those before it, the newest first, as far as they are known.
    pub fn tail(&self, last: u64) -> Vec<u64> {
        let in_memory = self.node.store().newest().map(|entry| (entry.index, digest(entry)));
        // Those in memory begin behind what was applied at the start, or later.
        let known = in_memory.chain(self.older_tail.0.iter().copied());
        let newest = known.skip_while(|(index, _)| *index > last).take(TAIL_MAX);
        // One that is still on its way into the log has no digest, and neither have those before it.
        newest
            .zip(0..)
            .take_while(|((index, _), at)| index.checked_add(*at) == Some(last))
            .map(|((_, digest), _)| digest)
            .collect()
    }

    /// The newest entry that is another one than that of an observer whose log ends at `last`, with these digests: index and term alone are
    /// the same in two histories if a member is set back to an older copy of its data and elected again. What is not `applied` here says
    /// nothing: another entry may take its place.
    pub fn differs(&self, last: u64, tail: &[u64], applied: u64) -> Option<u64> {
        if tail.is_empty() {
            return None;
        }
        let theirs = |index: u64| tail.get(usize::try_from(last.checked_sub(index)?).ok()?).copied();
        let newest = self.node.store().newest();
        let shared = newest.skip_while(|entry| entry.index > last.min(applied)).take(TAIL_MAX);
        let mut differing = shared.filter(|entry| theirs(entry.index).is_some_and(|theirs| theirs != digest(entry)));
        differing.next().map(|entry| entry.index)
    }

    /// Takes a message of what this observer follows, or a proposal of another observer. `from` and the term are the leader and the term
    /// that the sender knows of; `from` is 0 if it knows of no leader, or if nothing is followed any more.
    pub(crate) fn follow(&mut self, mut message: Message) -> Result<(), Error> {
        let own = self.node.raft.id;
        let (leader, term) = (message.from(), message.term());
        match message.r#type() {
            // Its own, which it had passed to an observer that follows this one since: it went round, and ends here.
            raftpb::MessageType::MsgProp if leader == own => return Ok(()),
            raftpb::MessageType::MsgProp => return self.step_checked(message),
            raftpb::MessageType::MsgHeartbeat => return self.hear_of(leader, term),
            raftpb::MessageType::MsgApp => {
                let (last, ours) = self.last_entry();
                if (message.index(), message.log_term()) != (last, ours) {
                    let (index, theirs) = (message.index(), message.log_term());
                    return Err(Refusal::NotNext { index, theirs, last, ours }.into());
                }
            }
            raftpb::MessageType::MsgSnap => {
                let metadata = message.snapshot.as_mut().and_then(|snapshot| snapshot.metadata.as_mut());
                if let Some(conf_state) = metadata.and_then(|metadata| metadata.conf_state.as_mut()) {
                    if conf_state.voters.contains(&own) || conf_state.learners.contains(&own) {
                        return Err(Refusal::Configuration.into());
                    }
                    // raft-rs takes no other.
                    conf_state.learners.push(own);
                }
            }
            raftpb::MessageType::MsgReadIndexResp => {}
            other => return Err(Refusal::Type(other as i32).into()),
        }
        // What is committed stays committed, however old the term is that its sender knows of.
        message.from = Some(if leader == 0 { NOBODY } else { leader });
        message.term = Some(term.max(self.node.raft.term));
        let stepped = self.step_checked(message);
        if leader == 0 {
            self.node.raft.leader_id = 0;
        }
        // Nobody counts what an observer has.
        let asks = |kind| matches!(kind, MessageType::MsgPropose | MessageType::MsgReadIndex);
        self.node.raft.msgs.retain(|message| asks(message.get_msg_type()));
        self.after_input();
        stepped
    }

    fn hear_of(&mut self, leader: u64, term: u64) -> Result<(), Error> {
        let (own, ours) = (self.node.raft.id, self.node.raft.term);
        if leader == own {
            return Err(Refusal::Sender.into());
        }
        if term > NUMBER_MAX || !self.leaps.allow(ours, term) {
            return Err(Refusal::Number.into());
        }
        // The sender's leader counts in an older term, too: this observer may have followed a candidate that nobody else
        // heard of. A leader that was replaced answers nothing, and its own term ends when it hears of the next.
        let next = (term.max(ours), leader);
        if next != (ours, self.node.raft.leader_id) {
            self.node.raft.become_follower(next.0, next.1);
            self.leaps.note(ours, next.0);
            self.after_input();
        }
        Ok(())
    }

    /// A configuration of raft-rs as everybody else is given it.
    pub(crate) fn without_observer(&self, mut conf_state: ConfState) -> ConfState {
        if self.observes {
            conf_state.learners.retain(|id| *id != self.node.raft.id);
        }
        conf_state
    }
}

/// Index and digest of the last entries that were applied before the start, the newest first.
pub(crate) struct Tail(Vec<(u64, u64)>);

impl Tail {
    pub(crate) fn new(entries: Vec<raftpb::Entry>) -> Tail {
        let newest = entries.into_iter().rev().take(TAIL_MAX).map(convert::entry_to_raft);
        Tail(newest.map(|entry| (entry.index, digest(&entry))).collect())
    }
}

/// Bytes at both ends of an entry's data that its digest covers: the core is locked meanwhile.
const DIGESTED_BYTES: usize = 2_048;

/// FNV-1a of what an entry is.
fn digest(entry: &raft::eraftpb::Entry) -> u64 {
    let data = &entry.data[..];
    let numbers = [entry.index, entry.term, entry.entry_type as u64, data.len() as u64];
    let numbers = numbers.iter().flat_map(|number| number.to_le_bytes());
    let first = data.iter().take(DIGESTED_BYTES);
    let last = data.iter().skip(data.len().saturating_sub(DIGESTED_BYTES));
    numbers
        .chain(first.chain(last).copied())
        .fold(0xcbf2_9ce4_8422_2325, |digest, byte| (digest ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::consensus::Restored;
    use crate::consensus::bounds::tests::start;

    #[test]
    fn a_member_that_has_nothing_is_not_followed() {
        let joins = start(|restored| *restored = Restored::default()).expect("a member that is added");
        assert_eq!(joins.stretch(0, 0, 0, 100), Stretch::Behind);
        let member = start(|_| {}).expect("a member");
        assert_eq!(member.stretch(5, 2, 5, 100), Stretch::Entries(Vec::new()));
        assert_eq!(member.stretch(5, 1, 5, 100), Stretch::Differs(2));
        assert_eq!(member.stretch(0, 0, 5, 100), Stretch::Trimmed);
        assert_eq!(member.stretch(6, 2, 5, 100), Stretch::Behind);
    }
}

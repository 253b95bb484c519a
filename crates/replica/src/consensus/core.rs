//! The Raft state machine of one member.

use crate::consensus::bounds::Leaps;
use crate::consensus::config::{Config, Restored};
use crate::consensus::convert;
use crate::consensus::error::Error;
use crate::consensus::lagging::Allowance;
use crate::consensus::log::Log;
use crate::consensus::observe::Tail;
use crate::consensus::proof::Proof;
use crate::consensus::removals::Removals;
use crate::consensus::step::Early;
use crate::consensus::work::Unsynced;
use api::raftpb;
use raft::eraftpb;
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

/// The consensus core of one member.
pub struct Member {
    pub(crate) node: RawNode<Log>,
    pub(crate) random: u64,
    pub(crate) election_ticks: usize,
    pub(crate) election_timeout: usize,
    pub(crate) seen: (u64, StateRole, u64),
    /// Lets another that has more in its log stand first: see [`Member::yield_to`].
    pub(crate) yields: bool,
    pub(crate) durable_term: u64,
    pub(crate) unsynced: VecDeque<Unsynced>,
    /// Removals of which others may not be told yet.
    pub(crate) removals: Removals,
    /// Read indexes that followers asked for before this leader had committed anything in its term.
    pub(crate) early_reads: Vec<eraftpb::Message>,
    /// Proposals that followers sent during a leader transfer or a configuration change.
    pub(crate) early_proposals: VecDeque<Early>,
    /// How far messages may still raise this member's term.
    pub(crate) leaps: Leaps,
    /// Ticks since the start.
    pub(crate) ticks: u64,
    /// The last term in which this member transferred leadership because it is to be removed.
    pub(crate) handed_over_in: u64,
    pub(crate) applied: u64,
    /// Removed members may know that entries up to this index are committed, though this member is now alone.
    pub(crate) told: u64,
    pub(crate) read_counter: u64,
    pub(crate) boot_nonce: u64,
    pub(crate) pending_reads: HashSet<u64>,
    pub(crate) conf_state: raftpb::ConfState,
    /// The members of the cluster that is joined, for a member without a configuration.
    pub(crate) joined: Vec<u64>,
    /// This is an observer, which is in nobody's configuration.
    pub(crate) observes: bool,
    /// What an observer was restored with, as far as the log in memory does not have it.
    pub(crate) older_tail: Tail,
    pub(crate) ignores_lost_log: bool,
    /// The proof that this member must end, if there is one.
    pub(crate) proof: Option<Proof>,
}

impl Member {
    /// Makes a member from its restored state.
    pub fn new(config: &Config, mut restored: Restored) -> Result<Self, Error> {
        restored.check()?;
        if let Some(first) = restored.entries.first().map(|entry| entry.index())
            && Some(first) != restored.applied.checked_add(1)
        {
            return Err(Error::Gap { first, wanted: restored.applied.saturating_add(1) });
        }
        // After a crash while a snapshot was being installed, the log may still hold entries that it replaced. None of
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
        if restored.observes {
            // An observer is sent nothing else.
            hard_state.commit = last;
        }
        if hard_state.commit > last {
            return Err(Error::Uncommitted { commit: hard_state.commit, last });
        }
        let durable_term = hard_state.term;
        let mut removals = Removals::default();
        removals.append(&restored.entries);
        let older_tail = Tail::new(restored.newest_applied);
        let log = Log::new(
            (restored.applied, restored.applied_term),
            restored.entries.into_iter().map(convert::entry_to_raft).collect(),
            hard_state,
            convert::conf_state_to_raft(&restored.conf_state),
            Allowance::new(config.near_entries),
        );
        let raft_config = raft::Config {
            id: config.id,
            election_tick: config.election_ticks,
            max_election_tick: config.election_ticks.saturating_mul(3),
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
            yields: false,
            durable_term,
            unsynced: VecDeque::new(),
            removals,
            early_reads: Vec::new(),
            early_proposals: VecDeque::new(),
            leaps: Leaps::default(),
            ticks: 0,
            handed_over_in: 0,
            applied: restored.applied,
            told: 0,
            read_counter: 0,
            boot_nonce: config.boot_nonce,
            pending_reads: HashSet::new(),
            conf_state: restored.conf_state,
            joined: restored.joined,
            observes: restored.observes,
            older_tail,
            // An observer acknowledges nothing, so that nothing it lacks is a proof.
            ignores_lost_log: config.unsafe_ignore_lost_log || restored.observes,
            proof: None,
        };
        member.draw_election_timeout();
        member.after_input();
        Ok(member)
    }

    /// Forgets entries up to `index` in memory (the disk keeps its own count).
    pub fn trim(&mut self, index: u64) {
        self.node.mut_store().trim(index.min(self.applied));
    }

    /// Index of the last entry, committed or not.
    pub fn last_index(&self) -> u64 {
        self.node.raft.raft_log.last_index()
    }

    /// Entries held in memory.
    pub fn log_len(&self) -> usize {
        self.node.store().len()
    }

    /// Bytes of the entries in memory.
    pub fn log_bytes(&self) -> u64 {
        self.node.store().bytes()
    }

    /// Up to which index [`Member::trim`] must go for the entries to take no more than `bytes_max`.
    pub fn trim_to_fit(&self, bytes_max: u64) -> u64 {
        self.node.store().index_to_fit(bytes_max)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::consensus::Role;
    use bytes::Bytes;

    fn member() -> Member {
        let founders = [("a".to_string(), vec!["http://localhost:2380".to_string()])];
        let Some(start) = crate::consensus::bootstrap(&founders, "a", "token") else { panic!("a founder") };
        let config = Config {
            id: start.member_id,
            election_ticks: 10,
            heartbeat_ticks: 1,
            pre_vote: true,
            seed: 1,
            boot_nonce: 9,
            near_entries: 1_000,
            unsafe_ignore_lost_log: false,
        };
        let restored = Restored { hard_state: start.hard_state, entries: start.entries, ..Restored::default() };
        match Member::new(&config, restored) {
            Ok(member) => member,
            Err(error) => panic!("{error}"),
        }
    }

    /// Does all work as a shell would, and returns the committed entries.
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

//! Work for the shell, and its reports.

use crate::consensus::backlog::is_to_last;
use crate::consensus::core::Member;
use crate::consensus::error::Error;
use crate::consensus::{convert, outbox, removals};
use api::raftpb;
use raft::eraftpb::MessageType;

/// One piece of work.
pub struct Work {
    /// The number of this work for [`Member::persisted`].
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
pub(crate) struct Unsynced {
    pub(crate) number: u64,
    pub(crate) term: u64,
    pub(crate) has_entries: bool,
    pub(crate) snapshot_index: u64,
    /// The commit index that is durable with it; 0 if that may wait for another sync.
    pub(crate) commit: u64,
}

impl Member {
    /// Whether [`Member::work`] has anything.
    pub fn has_work(&self) -> bool {
        self.proof.is_none() && self.node.has_ready()
    }

    /// Returns the next piece of work.
    pub fn work(&mut self) -> Work {
        let mut ready = self.node.ready();
        let number = ready.number();
        let taken = ready.take_entries();
        let entries: Vec<raftpb::Entry> = taken.iter().map(convert::entry_from_raft).collect();
        let mut hard_state = ready.hs().map(convert::hard_state_from_raft);
        self.removals.append(&entries);
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
        let commit_max = self.removals.commit_max();
        if self.node.raft.raft_log.committed > commit_max {
            persisted_messages.splice(0..0, removals::hold_back(&mut messages, commit_max));
            let is_told = persisted_messages.iter().any(|message| removals::named(message) > commit_max);
            if is_told || committed.iter().any(is_to_last) {
                hard_state = Some(convert::hard_state_from_raft(&self.node.raft.hard_state()));
                must_sync = true;
            }
        }
        for heartbeat in messages.iter_mut().chain(&mut persisted_messages) {
            if heartbeat.get_msg_type() == MessageType::MsgHeartbeat {
                // The heartbeat names a committed entry, whose term never changes. A follower has acknowledged in this
                // term no entry that was trimmed before this member's start, so the term is known unless the follower
                // has acknowledged none yet.
                heartbeat.commit_term = self.known_term(heartbeat.commit).unwrap_or(0);
            }
        }
        let log = self.node.mut_store();
        let mut snapshot = (!ready.snapshot().is_empty()).then(|| {
            log.restore(ready.snapshot());
            convert::snapshot_from_raft(ready.snapshot())
        });
        log.append(taken);
        if let Some(state) = ready.hs() {
            log.hard_state = state.clone();
        }
        if let Some(metadata) = snapshot.as_mut().and_then(|snapshot| snapshot.metadata.as_mut()) {
            metadata.conf_state = metadata.conf_state.take().map(|conf_state| self.without_observer(conf_state));
        }
        let metadata = snapshot.as_ref().and_then(|snapshot| snapshot.metadata.as_ref());
        if let Some(conf_state) = metadata.and_then(|metadata| metadata.conf_state.as_ref()) {
            self.conf_state = conf_state.clone();
        }
        let snapshot_index = metadata.map_or(0, |metadata| metadata.index());
        self.removals.settled(snapshot_index);
        self.unsynced.push_back(Unsynced {
            number,
            term: self.node.raft.term,
            has_entries: !entries.is_empty(),
            snapshot_index,
            commit: hard_state.filter(|_| must_sync).map_or(0, |state| state.commit()),
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

    /// The log is durable, and a snapshot installed, up to the work of this number.
    pub fn persisted(&mut self, number: u64) {
        let mut installed = 0;
        while let Some(work) = self.unsynced.pop_front_if(|work| work.number <= number) {
            self.durable_term = self.durable_term.max(work.term);
            self.removals.settled(work.commit);
            installed = installed.max(work.snapshot_index);
        }
        self.node.on_persist_ready(number);
        // The installed snapshot is applied. raft-rs must know that first, or it would look for the entries in between.
        self.applied(installed);
        self.after_input();
    }

    /// The store has applied everything up to `index`. A snapshot that was installed counts once [`Member::persisted`] says that it is
    /// durable: raft-rs knows of nothing applied beyond that.
    pub fn applied(&mut self, index: u64) {
        if index > self.applied && !self.is_closed() {
            self.applied = index;
            self.node.advance_apply_to(index);
            self.take_early_proposals();
        }
    }

    /// Makes a committed configuration change take effect; returns the new configuration.
    pub fn apply_conf_change(&mut self, change: &raftpb::ConfChange) -> Result<raftpb::ConfState, Error> {
        let is_own = self.observes && change.node_id() == self.node.raft.id;
        if let Some(change) = convert::conf_change_to_raft(change).filter(|_| !is_own) {
            if self.has_others() {
                self.told = self.node.raft.raft_log.committed;
            }
            let conf_state = self.node.apply_conf_change(&change)?;
            self.conf_state = self.without_observer(convert::conf_state_from_raft(&conf_state));
            self.node.mut_store().conf_state = conf_state;
            self.leave_office();
            self.after_input();
        }
        Ok(self.conf_state.clone())
    }

    /// Whether everything in the log is durable.
    pub fn log_is_durable(&self) -> bool {
        let log = &self.node.raft.raft_log;
        log.persisted == log.last_index() && !self.unsynced.iter().any(|work| work.has_entries)
    }

    /// Whether no input is taken: a snapshot was handed out in [`Work::snapshot`] and is not installed yet, or is about to be handed
    /// out, or the member must end.
    pub(crate) fn is_closed(&self) -> bool {
        self.proof.is_some() || self.node.snap().is_some() || self.unsynced.iter().any(|work| work.snapshot_index > 0)
    }

    /// Whether the hard state of the current term is on the disk.
    pub(crate) fn term_is_durable(&self) -> bool {
        self.durable_term == self.node.raft.term
    }
}

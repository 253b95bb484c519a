//! The work of a turn, in the order that Raft requires.

use crate::Takeover;
use crate::consensus::{Piece, Role, Status, Work};
use crate::log_batch::{LogBatch, LogWork};
use crate::replica::Replica;
use crate::snapshot_transfer::Install;
use crate::{Mistake, Note, Now, Shell};
use api::{raftpb, walpb};
use std::time::Duration;

/// When a new leader takes over the next piece of the leases: a piece takes about a millisecond, so most of the time is left for other work.
const TAKEOVER_PAUSE: Duration = Duration::from_millis(5);

impl<C> Replica<C> {
    /// Does all pending work except writing the log: [`Replica::take_log_batch`] returns the batch to write.
    pub fn advance<S: Shell<Source = C>>(&mut self, shell: &mut S, now: Now) -> Result<(), S::Fault> {
        loop {
            self.hand_over(shell, now)?;
            self.raft.applied(shell.applied());
            self.take_forwarded_changes(shell);
            self.proposals.retry(shell, &mut self.raft);
            self.ask_read_index(shell, now);
            self.outgoing.give_up_unsent(shell, &mut self.raft, now);
            self.outgoing.offer(shell, &mut self.raft, now);
            if shell.makes(Mistake::TellsRemovalsEarly) {
                self.raft.forget_removals();
            }
            if self.raft.has_work() {
                let work = self.raft.work();
                self.take(shell, work, now)?;
            } else if let Some(install) = self.next_install(shell) {
                self.install(shell, install, now)?;
            } else {
                return Ok(());
            }
        }
    }

    fn take_forwarded_changes<S: Shell<Source = C>>(&mut self, shell: &mut S) {
        self.raft.take_forwarded_changes(|change| {
            let allowed = if shell.makes(Mistake::SkipsChangeRules) { Ok(()) } else { shell.may_change(change) };
            allowed.map_err(|error| shell.note(Note::ForwardedChangeRefused(error))).is_ok()
        });
    }

    fn ask_read_index<S: Shell<Source = C>>(&mut self, shell: &mut S, now: Now) {
        if !shell.has_reads() {
            return;
        }
        let leads = self.raft.status().role == Role::Leader;
        let skips = shell.makes(Mistake::ReadsWithoutIndex) || leads && shell.makes(Mistake::LeaderReadsAlone);
        if shell.makes(Mistake::ReadsJoinEarlierQuestion) {
            shell.read_index(|reads| reads.join_asked());
        }
        shell.read_index(|reads| if skips { reads.skip_asking() } else { reads.ask(&mut self.raft, now.ms) });
    }

    fn take<S: Shell<Source = C>>(&mut self, shell: &mut S, work: Work, now: Now) -> Result<(), S::Fault> {
        shell.observe(&self.raft, &work);
        let snapshot = match work.snapshot.and_then(|snapshot| snapshot.metadata) {
            Some(metadata) => Some(self.take_over(shell, metadata)?),
            None => None,
        };
        if failpoint::ENABLED && self.raft.status().role == Role::Leader {
            failpoint::point!(RAFT_BEFORE_LEADER_SEND);
        }
        // Followers write to their disks while this member does.
        self.send(shell, work.messages);
        let mut messages = work.persisted_messages;
        if shell.makes(Mistake::VotesBeforeDurable) || shell.makes(Mistake::AcknowledgesBeforeSync) {
            self.send(shell, std::mem::take(&mut messages));
        }
        let number = work.number;
        self.unsynced.push(LogWork {
            number,
            snapshot,
            entries: work.entries,
            hard_state: work.hard_state.filter(|_| !shell.makes(Mistake::ForgetsVote)),
            must_sync: work.must_sync,
            messages,
        });
        let is_alone = shell.makes(Mistake::AcknowledgesAloneBeforeSync) && self.raft.status().sole_voter;
        if is_alone || shell.makes(Mistake::AcknowledgesBeforeSync) {
            self.raft.persisted(number);
        }
        if !work.reads.is_empty() {
            shell.read_index(|reads| work.reads.iter().for_each(|(number, index)| reads.answered(*number, *index)));
        }
        self.backlog.add(number, work.committed);
        self.hand_over(shell, now)
    }

    /// Gives the store all pieces that it can be given now.
    fn hand_over<S: Shell<Source = C>>(&mut self, shell: &mut S, now: Now) -> Result<(), S::Fault> {
        if shell.makes(Mistake::ForgetsRemovals) {
            self.backlog.persisted(u64::MAX);
        }
        while let Some(piece) = self.backlog.next(|| shell.is_store_idle_or_tells()) {
            match piece {
                Piece::Entries(entries) => shell.apply(entries)?,
                Piece::Change(entry) => self.apply_conf_change(shell, &entry, now)?,
            }
        }
        Ok(())
    }

    /// Puts a configuration change into effect in the store and in Raft; then its client is answered.
    fn apply_conf_change<S: Shell<Source = C>>(
        &mut self,
        shell: &mut S,
        entry: &raftpb::Entry,
        now: Now,
    ) -> Result<(), S::Fault> {
        let skips = shell.makes(Mistake::SkipsConfChange);
        let mut failed = None;
        shell.apply_conf_change(entry, |change| {
            if skips {
                return None;
            }
            self.raft.apply_conf_change(change).map_err(|error| failed = Some(error)).ok()
        })?;
        if let Some(error) = failed {
            shell.note(Note::ConfChangeFailed(&error));
        }
        let status = self.raft.status();
        if self.was_leader && !status.serves_local_reads() {
            // This must precede the first message to the new member, which may learn of commits that are not applied
            // here yet.
            shell.publish(&status, self.raft.log_bytes(), now);
        }
        Ok(())
    }

    /// Takes the next snapshot to install. None while the store has entries to apply, or the log record of another
    /// snapshot is not durable: this thread would have to wait.
    fn next_install<S: Shell<Source = C>>(&mut self, shell: &mut S) -> Option<Install<C>> {
        let waits = !self.incoming.waiting.is_empty();
        let is_free = waits && self.backlog.is_empty() && self.incoming.installed.is_empty();
        if is_free && shell.is_store_idle_or_tells() { self.incoming.waiting.pop_front() } else { None }
    }

    fn install<S: Shell<Source = C>>(&mut self, shell: &mut S, install: Install<C>, now: Now) -> Result<(), S::Fault> {
        if !install.is_what_is_named() && !shell.makes(Mistake::SkipsSnapshotMembers) {
            let reason = "the message names another snapshot than the one that came";
            shell.end_install(install.source, Err(reason.into()));
            return Ok(());
        }
        let message = install.message.clone();
        let index = install.prepared.index();
        // Raft compares only indexes, but the store cannot go back to an older revision.
        if index > self.raft.status().committed && install.prepared.is_overtaken() {
            let reason =
                "the snapshot contradicts itself: it has later entries than this member, and an older revision";
            shell.end_install(install.source, Err(reason.into()));
            return Ok(());
        }
        self.incoming.installing = Some(install);
        self.step(shell, message, None);
        while self.raft.has_work() {
            let work = self.raft.work();
            self.take(shell, work, now)?;
        }
        // The work that names the snapshot takes it. If it is still here, this member is already further, or follows
        // another leader.
        if let Some(left) = self.incoming.installing.take() {
            let is_level = self.raft.status().committed >= index;
            let result = if is_level { Ok(()) } else { Err("the snapshot was not wanted".to_string()) };
            shell.end_install(left.source, result);
        }
        Ok(())
    }

    /// Installs the snapshot from which Raft now continues.
    fn take_over<S: Shell<Source = C>>(
        &mut self,
        shell: &mut S,
        metadata: raftpb::SnapshotMetadata,
    ) -> Result<walpb::Snapshot, S::Fault> {
        let Some(install) = self.incoming.installing.take() else {
            unreachable!("Raft took a snapshot that was not there");
        };
        assert_eq!(install.prepared.index(), metadata.index(), "Raft took another snapshot than the one that came");
        failpoint::point!(RAFT_BEFORE_APPLY_SNAP);
        shell.install(install.prepared, &metadata)?;
        failpoint::point!(RAFT_AFTER_APPLY_SNAP);
        self.incoming.installed.push(install.source);
        Ok(walpb::Snapshot { index: metadata.index, term: metadata.term, conf_state: metadata.conf_state })
    }

    fn send<S: Shell<Source = C>>(&mut self, shell: &mut S, mut messages: Vec<raftpb::Message>) {
        if messages.is_empty() {
            return;
        }
        let is_snapshot = |message: &raftpb::Message| message.r#type() == raftpb::MessageType::MsgSnap;
        if messages.iter().any(is_snapshot) {
            for message in messages.extract_if(.., |message| is_snapshot(message)) {
                self.outgoing.send(shell, message);
            }
        }
        shell.send(messages);
    }

    /// Takes the batch to write to the log. If it must be synced, the disk counts as busy from now on until
    /// [`Replica::persisted`].
    pub fn take_log_batch(&mut self, now: Now) -> LogBatch {
        let batch = LogBatch { work: std::mem::take(&mut self.unsynced) };
        if batch.must_sync() {
            self.syncing_since = Some(now.at);
        }
        batch
    }

    /// Reports that this batch is in the log, durably if it had to be.
    pub fn persisted<S: Shell<Source = C>>(&mut self, shell: &mut S, batch: LogBatch) {
        self.syncing_since = None;
        let Some(last) = batch.work.last().map(|last| last.number) else { return };
        let installed = batch.work.iter().any(|work| work.snapshot.is_some());
        if installed {
            failpoint::point!(RAFT_AFTER_WAL_RELEASE);
        }
        if failpoint::ENABLED && self.raft.status().role != Role::Leader {
            failpoint::point!(RAFT_BEFORE_FOLLOWER_SEND);
        }
        let messages: Vec<raftpb::Message> = batch.work.into_iter().flat_map(|work| work.messages).collect();
        self.send(shell, messages);
        failpoint::point!(RAFT_BEFORE_ADVANCE);
        self.raft.persisted(last);
        self.backlog.persisted(last);
        if installed {
            for source in std::mem::take(&mut self.incoming.installed) {
                shell.end_install(source, Ok(()));
            }
        }
    }

    /// Ends a turn: publishes the member's status, and returns the reads that may be answered. They may run on any
    /// thread and at any later time: the store has everything that they must see.
    #[must_use = "each of these reads waits for its answer"]
    pub fn settle<S: Shell<Source = C>>(&mut self, shell: &mut S, now: Now) -> Vec<S::Read> {
        let status = self.raft.status();
        self.trim(&status, shell.observed(), now);
        shell.publish(&status, self.raft.log_bytes(), now);
        if (status.role == Role::Leader) != self.was_leader {
            self.change_leadership(shell, &status);
        }
        if self.takes_over && status.serves_reads && self.next_takeover.is_none_or(|at| now.at >= at) {
            self.take_leases_over(shell, now);
        }
        if status.leader != self.leader {
            self.leader = status.leader;
            if status.leader != 0 {
                let (reads, questions) = shell.read_index(|reads| reads.leader_changed(&mut self.raft));
                shell.note(Note::ReadIndexesFailed(questions));
                shell.end_reads(reads, api::Error::LeaderChanged);
            }
            shell.note(Note::Leader { leader: status.leader, term: status.term });
        }
        ready_reads(shell)
    }

    fn change_leadership<S: Shell<Source = C>>(&mut self, shell: &mut S, status: &Status) {
        let leads = status.role == Role::Leader;
        self.was_leader = leads;
        (self.takes_over, self.next_takeover) = (leads, None);
        if leads {
            let forgets = shell.makes(Mistake::ForgetsRenewals);
            let takeover = Takeover {
                extension_ms: if forgets { 0 } else { self.options.election_timeout.as_millis() as u64 },
                per_second_max: self.options.lease_expiries_per_second_max,
                piece_max: self.options.lease_takeover_piece_max,
            };
            shell.lessor(|lessor, _| lessor.promote(takeover));
        } else {
            if !shell.makes(Mistake::ExpiresForNextLeader) {
                shell.lessor(|lessor, _| lessor.demote());
            }
            self.outgoing.lost_leadership(&mut self.raft);
        }
        shell.note(Note::Leads { leads, term: status.term });
    }

    /// Takes over a piece of the leases.
    fn take_leases_over<S: Shell<Source = C>>(&mut self, shell: &mut S, now: Now) {
        let now_ms = if shell.makes(Mistake::ForgetsRenewals) { 0 } else { now.ms };
        // The leases are listed under the lessor's lock: what is granted or revoked later is noted later.
        self.takes_over = shell.lessor(|lessor, store| {
            let leases = store.leases();
            lessor.take_over(|from, max| leases.list_from(from, max), now_ms)
        });
        self.next_takeover = self.takes_over.then(|| now.at.saturating_add(TAKEOVER_PAUSE));
    }
}

/// Takes the reads whose index the store has applied.
fn ready_reads<S: Shell>(shell: &mut S) -> Vec<S::Read> {
    let mut ready = Vec::new();
    if !shell.has_reads() {
        return ready;
    }
    loop {
        let applied = if shell.makes(Mistake::ReadsBeforeApplied) { u64::MAX } else { shell.applied() };
        let (mut due, next) = shell.read_index(|reads| reads.due(applied));
        ready.append(&mut due);
        // The store may have reached the index just now.
        if shell.wait_for_applied(next) {
            return ready;
        }
    }
}

//! Snapshots between members: what a leader offers to those that lag, and what this member takes from a leader.
//!
//! The data travel outside of this crate. This module decides when a snapshot is captured, to which members it is sent, when that is tried
//! again, how long it is kept, and checks that Raft's message names the snapshot that has arrived.

use crate::consensus::Member;
use crate::retries::Retries;
use crate::{Note, Now, Shell};
use api::raftpb::{self, Message, SnapshotMetadata};
use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;
use store::{Export, Prepared};

/// How long a snapshot that no member takes is kept: its files cannot be removed meanwhile.
const OFFER_MAX: Duration = Duration::from_secs(10);
/// How long a member that needs a newer snapshot waits while others are being sent the current one.
const SHARED_FOR: Duration = Duration::from_secs(60);
/// How long the entries behind a snapshot stay after a member took it, where they would not stay for members that answer: it has to
/// catch up with what was written meanwhile. As long as etcd's stay.
const RELEASE_DELAY: Duration = Duration::from_secs(30);

/// A snapshot that came from another member, complete and checked.
pub struct Install<C> {
    /// Raft's message, which names the snapshot.
    pub message: Message,
    /// The data.
    pub prepared: Prepared,
    /// Its sender.
    pub source: C,
}

impl<C> Install<C> {
    /// Whether the message names the snapshot that came with it: Raft continues from the message, the store from the
    /// data.
    pub(crate) fn is_what_is_named(&self) -> bool {
        let Some(metadata) = self.message.snapshot.as_ref().and_then(|snapshot| snapshot.metadata.as_ref()) else {
            return false;
        };
        let members = |state: &raftpb::ConfState| {
            let (mut voters, mut learners) = (state.voters.clone(), state.learners.clone());
            voters.sort_unstable();
            learners.sort_unstable();
            (voters, learners)
        };
        metadata.index() == self.prepared.index()
            && metadata.term() == self.prepared.term()
            && metadata.conf_state.as_ref().is_some_and(|state| members(state) == members(self.prepared.conf_state()))
    }
}

/// Snapshots on their way in.
pub(crate) struct Incoming<C> {
    /// Snapshots that wait until the store has applied all entries that it was given.
    pub(crate) waiting: VecDeque<Install<C>>,
    /// The snapshot whose message Raft is about to get.
    pub(crate) installing: Option<Install<C>>,
    /// The senders that are told once the installed snapshot is durable.
    pub(crate) installed: Vec<C>,
}

impl<C> Default for Incoming<C> {
    fn default() -> Incoming<C> {
        Incoming { waiting: VecDeque::new(), installing: None, installed: Vec::new() }
    }
}

/// The snapshot that is being sent, and its receivers.
#[derive(Default)]
pub(crate) struct Outgoing {
    export: Option<(Arc<Export>, Duration)>,
    to: BTreeSet<u64>,
    /// The last entry of a snapshot that was taken, and when.
    taken: Option<(u64, Duration)>,
    /// Members that should have been sent a snapshot that is no longer offered.
    unsent: Vec<u64>,
    retries: Retries,
}

impl Outgoing {
    /// Captures a snapshot if a follower needs one. While entries are being applied, this is left to the next turn.
    pub(crate) fn offer<S: Shell>(&mut self, shell: &mut S, raft: &mut Member, now: Now) {
        if !raft.wants_snapshot() {
            return;
        }
        let is_new = self.export.as_ref().is_some_and(|(_, since)| now.at.saturating_sub(*since) < SHARED_FOR);
        if !self.to.is_empty() && is_new {
            return;
        }
        let Some(export) = shell.export() else { return };
        let metadata = SnapshotMetadata {
            conf_state: Some(export.conf_state().clone()),
            index: Some(export.index()),
            term: Some(export.term()),
        };
        shell.note(Note::SnapshotOffered { index: export.index(), bytes: export.segment_bytes() });
        self.export = Some((Arc::new(export), now.at));
        raft.offer_snapshot(&metadata);
    }

    /// Sends the snapshot that `message` names.
    pub(crate) fn send<S: Shell>(&mut self, shell: &mut S, message: Message) {
        let to = message.to();
        let index =
            message.snapshot.as_ref().and_then(|snapshot| snapshot.metadata.as_ref()).map(SnapshotMetadata::index);
        match self.export.as_ref().filter(|(export, _)| Some(export.index()) == index) {
            Some((export, _)) => {
                self.to.insert(to);
                shell.send_snapshot(message, export.clone());
            }
            // The message waited for the disk, and the offer was withdrawn meanwhile. Raft requests another snapshot
            // once it is told.
            None => self.unsent.push(to),
        }
    }

    /// Tells Raft of snapshots whose sending could not begin.
    pub(crate) fn give_up_unsent<S: Shell>(&mut self, shell: &mut S, raft: &mut Member, now: Now) {
        for to in std::mem::take(&mut self.unsent) {
            self.sent(shell, raft, to, false, now);
        }
    }

    /// Notes whether the snapshot has arrived. After the last receiver, the snapshot is dropped.
    pub(crate) fn sent<S: Shell>(&mut self, shell: &mut S, raft: &mut Member, to: u64, ok: bool, now: Now) {
        shell.note(Note::SnapshotSent { to, ok });
        // Raft tries again as soon as it is told of a failure.
        if ok {
            if let Some((export, _)) = &self.export {
                self.taken = Some((export.index(), now.at));
            }
            self.retries.succeeded(to);
            raft.report_snapshot(to, true);
        } else {
            self.retries.failed(to, now.at);
            self.retry(raft, now);
        }
        self.to.remove(&to);
        if self.to.is_empty() {
            self.withdraw(raft);
        }
    }

    fn retry(&mut self, raft: &mut Member, now: Now) {
        for id in self.retries.due(now.at) {
            raft.report_snapshot(id, false);
        }
    }

    /// Repeats failed transfers, and drops a snapshot that no member took.
    pub(crate) fn tick(&mut self, raft: &mut Member, now: Now) {
        self.retry(raft, now);
        let is_old = |since: Duration| now.at.saturating_sub(since) > OFFER_MAX;
        if self.to.is_empty() && self.export.as_ref().is_some_and(|(_, since)| is_old(*since)) {
            self.withdraw(raft);
        }
    }

    fn withdraw(&mut self, raft: &mut Member) {
        raft.withdraw_snapshot();
        self.export = None;
    }

    /// Forgets all transfers: without leadership there are no followers to send to. Those under way end by themselves.
    pub(crate) fn lost_leadership(&mut self, raft: &mut Member) {
        self.withdraw(raft);
        self.taken = None;
        self.to.clear();
        self.retries.clear();
    }

    /// The index from which the log in memory is needed for the snapshot to be usable.
    pub(crate) fn keep_behind(&self) -> Option<u64> {
        self.export.as_ref().map(|(export, _)| export.index())
    }

    /// The index from which it is needed for a snapshot that was taken lately.
    pub(crate) fn taken_lately(&self, now: Now) -> Option<u64> {
        self.taken.filter(|(_, at)| now.at.saturating_sub(*at) < RELEASE_DELAY).map(|(index, _)| index)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_behind_a_snapshot_stay_for_a_while() {
        let now = |at| Now { at: Duration::from_secs(at), ms: 0 };
        let outgoing = Outgoing { taken: Some((7, Duration::from_secs(10))), ..Outgoing::default() };
        assert_eq!([10, 39, 40].map(|at| outgoing.taken_lately(now(at))), [Some(7), Some(7), None]);
        assert_eq!(Outgoing::default().taken_lately(now(10)), None);
    }
}

//! Whole states between members: what a leader offers to those that lag, and what this member takes from a leader.

use super::Node;
use super::apply::Apply;
use super::retries::Retries;
use crate::logging::{self, Value};
use crate::peers::Peers;
use api::raftpb::{self, Message, SnapshotMetadata};
use replica::Member;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::mpsc::SyncSender;
use std::time::{Duration, Instant};
use store::{Export, Prepared};

/// A state that came from another member, complete and checked.
pub(super) struct Install {
    /// What Raft is told; it names the state.
    pub(super) message: Message,
    pub(super) prepared: Prepared,
    /// Told whether it was installed.
    pub(super) answer: SyncSender<Result<(), String>>,
}

impl Install {
    /// Whether the message is about the state it came with: Raft goes on from the one, the store from the other.
    pub(super) fn is_what_is_named(&self) -> bool {
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

/// How long a state is kept that nobody takes: its files cannot be removed.
const OFFER_MAX: Duration = Duration::from_secs(10);
/// For how long a member that needs a state waits for those that are being sent another one.
const SHARED_FOR: Duration = Duration::from_secs(60);

/// The state that is being sent, and to whom.
#[derive(Default)]
pub(super) struct Sending {
    export: Option<(Arc<Export>, Instant)>,
    to: BTreeSet<u64>,
    retries: Retries,
}

impl Sending {
    /// Captures a state if a follower needs one. Not while entries are being applied; then the next turn does.
    pub(super) fn offer(&mut self, member: &mut Member, apply: &Apply) {
        let is_new = self.export.as_ref().is_some_and(|(_, since)| since.elapsed() < SHARED_FOR);
        if !member.wants_snapshot() || (!self.to.is_empty() && is_new) {
            return;
        }
        let Some(export) = apply.export() else { return };
        let metadata = SnapshotMetadata {
            conf_state: Some(export.conf_state().clone()),
            index: Some(export.index()),
            term: Some(export.term()),
        };
        logging::info(
            "offering a snapshot to a member that lags behind the log",
            &[("snapshot-index", export.index().into()), ("bytes", export.segment_bytes().into())],
        );
        self.export = Some((Arc::new(export), Instant::now()));
        member.offer_snapshot(&metadata);
    }

    /// Sends the state that `message` names.
    pub(super) fn send(&mut self, peers: &Peers, message: Message, node: &Node) {
        let to = message.to();
        let index =
            message.snapshot.as_ref().and_then(|snapshot| snapshot.metadata.as_ref()).map(SnapshotMetadata::index);
        match self.export.as_ref().filter(|(export, _)| Some(export.index()) == index) {
            Some((export, _)) => {
                self.to.insert(to);
                peers.send_snapshot(message, export.clone());
            }
            // The offer was taken back meanwhile; Raft asks again once it knows.
            None => node.inbox.state_sent(to, false),
        }
    }

    /// It arrived, or did not. The last one to have it lets it go.
    pub(super) fn sent(&mut self, member: &mut Member, to: u64, ok: bool) {
        logging::info(
            if ok { "sent a snapshot" } else { "could not send a snapshot" },
            &[("to", Value::Shown(&format_args!("{to:x}")))],
        );
        // Raft tries again as soon as it knows of a failure.
        if ok {
            self.retries.succeeded(to);
            member.report_snapshot(to, true);
        } else {
            self.retries.failed(to, Instant::now());
            self.retry(member);
        }
        self.to.remove(&to);
        if self.to.is_empty() {
            self.withdraw(member);
        }
    }

    fn retry(&mut self, member: &mut Member) {
        for id in self.retries.due(Instant::now()) {
            member.report_snapshot(id, false);
        }
    }

    /// Tries again what failed, and lets go of a state that nobody took.
    pub(super) fn tick(&mut self, member: &mut Member) {
        self.retry(member);
        if self.to.is_empty() && self.export.as_ref().is_some_and(|(_, since)| since.elapsed() > OFFER_MAX) {
            self.withdraw(member);
        }
    }

    fn withdraw(&mut self, member: &mut Member) {
        member.withdraw_snapshot();
        self.export = None;
    }

    /// No leader, no followers to be sent anything; what is under way ends by itself.
    pub(super) fn lost_leadership(&mut self, member: &mut Member) {
        self.withdraw(member);
        self.to.clear();
        self.retries.clear();
    }

    /// From which index on the log in memory is needed for the state to be of use.
    pub(super) fn keep_behind(&self) -> Option<u64> {
        self.export.as_ref().map(|(export, _)| export.index())
    }
}

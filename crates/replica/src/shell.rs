//! The interface between a replica and the process around it.

use crate::consensus::{Error, Proof, Role, Status, Work};
use crate::{Lessor, Member, Mistake, Now, Pending, Proposal, ReadIndex, Waiter};
use api::raftpb::{ConfChange, ConfState, Entry, Message, SnapshotMetadata};
use std::sync::Arc;
use std::time::Duration;
use store::{Export, Prepared, Store};

/// The process around a replica: it owns the store, the sockets, and the tables that other threads look at as well.
///
/// A replica makes the calls in the order in which they must take effect, and continues when a call returns. No call waits for the disk
/// of the Raft log. If a table has a lock, it is held only while `look` runs, and `look` calls nothing that locks.
pub trait Shell {
    /// What the shell knows about a message apart from its content.
    type Mark;
    /// The waiter of a proposal.
    type Waiter: Waiter;
    /// A linearizable read.
    type Read;
    /// The sender of a snapshot, which is told the result.
    type Source;
    /// Why the process ends in the middle of a turn. The turn is not continued.
    type Fault;

    /// The proposals that are on their way.
    fn pending<T>(&mut self, look: impl FnOnce(&mut Pending<Self::Waiter>) -> T) -> T;

    /// The reads that wait.
    fn read_index<T>(&mut self, look: impl FnOnce(&mut ReadIndex<Self::Read>) -> T) -> T;

    /// Whether [`Shell::read_index`] has any reads. Called every turn, so it should not take a lock.
    fn has_reads(&self) -> bool;

    /// The deadlines of leases, and the store that has the leases themselves.
    fn lessor<T>(&mut self, look: impl FnOnce(&mut Lessor, &Store) -> T) -> T;

    /// Called when Raft has taken a message of a peer, or found it outdated.
    fn message_taken(&mut self, raft: &Member, mark: Self::Mark);

    /// Called when a message of `from` was refused. A message that came with a snapshot has no mark.
    fn message_refused(&mut self, from: u64, mark: Option<Self::Mark>, error: &Error);

    /// Sends messages to peers at once, without waiting for any of them.
    fn send(&mut self, messages: Vec<Message>);

    /// Sends the snapshot that `message` names. [`Inputs::snapshots_sent`](crate::Inputs::snapshots_sent) brings the result.
    fn send_snapshot(&mut self, message: Message, export: Arc<Export>);

    /// Index of the last entry that the store has applied.
    fn applied(&self) -> u64;

    /// Bytes of the entries that wait to be applied.
    fn apply_queue_bytes(&self) -> usize;

    /// Whether the store has applied all entries that it was given. If not, the shell takes a turn once it has.
    fn is_store_idle_or_tells(&mut self) -> bool;

    /// Makes the shell take a turn when the store has applied `index`; `None` cancels that. Returns `false` if `index`
    /// is already applied.
    fn wait_for_applied(&mut self, index: Option<u64>) -> bool;

    /// Applies entries, or queues them behind those that are being applied.
    fn apply(&mut self, entries: Vec<Entry>) -> Result<(), Self::Fault>;

    /// Applies a configuration change, alone and now; the store is idle. `take_effect` puts the change into effect in
    /// consensus, and returns the new configuration, or `None` if the change had no effect. Only after that its client
    /// is answered.
    fn apply_conf_change(
        &mut self,
        entry: &Entry,
        take_effect: impl FnMut(&ConfChange) -> Option<ConfState>,
    ) -> Result<(), Self::Fault>;

    /// Replaces the store's data by a snapshot; the store is idle.
    fn install(&mut self, prepared: Prepared, metadata: &SnapshotMetadata) -> Result<(), Self::Fault>;

    /// What the observers that follow this member need of its log. Called every turn.
    #[inline(always)]
    fn observed(&self) -> Observed {
        Observed::default()
    }

    /// Captures a snapshot for a follower; `None` while that is not possible.
    fn export(&mut self) -> Option<Export>;

    /// Whether the cluster can have a configuration change. Called on the leader when the change is about to enter the
    /// log: the store has then applied every change before it.
    fn may_change(&mut self, change: &ConfChange) -> Result<(), api::Error>;

    /// Ends proposals that will not be applied, or whose outcome is unknown.
    fn end_proposals(&mut self, waiters: Vec<Self::Waiter>, error: api::Error);

    /// Ends reads with an error.
    fn end_reads(&mut self, reads: Vec<Self::Read>, error: api::Error);

    /// Reports the result of a snapshot to its sender.
    fn end_install(&mut self, source: Self::Source, result: Result<(), String>);

    /// A proposal that ends an expired lease; `None` if the lease cannot end now, because its end is already proposed
    /// or the disks have no headroom for it. It is requested again later. [`Note::LeasesExpired`] follows the calls for
    /// all leases that are due together.
    fn revoke(&mut self, lease: i64) -> Option<Proposal<Self::Waiter>>;

    /// Publishes the member's status, and the bytes of its log in memory.
    fn publish(&mut self, status: &Status, log_bytes: u64, now: Now);

    /// Reports an event for a log line or a counter.
    fn note(&mut self, note: Note<'_>);

    /// Called when the log of this member is proven to be lost: the member must send nothing more, and never start
    /// again on these files.
    fn log_lost(&mut self, proof: &Proof);

    /// Called with each piece of work before any of it is done.
    #[inline(always)]
    fn observe(&mut self, _raft: &Member, _work: &Work) {}

    /// Whether to make this mistake. Only a simulator returns anything but `false`, so the compiler removes it from the code that ships.
    #[inline(always)]
    fn makes(&self, _mistake: Mistake) -> bool {
        false
    }
}

/// What observers need of the log in memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Observed {
    /// Observers follow this member, or did lately: it keeps entries although it has no other followers.
    pub has_followers: bool,
    /// The last entry of the snapshot that some of them are being sent.
    pub sent: Option<u64>,
}

/// Events of a replica, for log lines and counters.
#[derive(Debug)]
#[allow(missing_docs)]
pub enum Note<'a> {
    /// The known leader has changed; 0 if there is none.
    Leader { leader: u64, term: u64 },
    /// This member begins or ceases to lead.
    Leads { leads: bool, term: u64 },
    /// Proposals that a peer forwarded were not taken: they cannot be applied, or too many entries wait to be applied.
    ForwardRefused,
    /// Proposals were refused.
    ProposalRefused(&'a Error),
    /// A peer forwarded a configuration change that the cluster cannot have: it was dropped.
    ForwardedChangeRefused(api::Error),
    /// This member could not begin an election at once.
    CannotCampaign(&'a Error),
    /// A leader transfer could not begin.
    CannotTransferLeader(&'a Error),
    /// A configuration change did not take effect in Raft.
    ConfChangeFailed(&'a Error),
    /// Read indexes that a former leader did not answer.
    ReadIndexesFailed(usize),
    /// A leader's ticks were late.
    HeartbeatLate(Duration),
    /// Number of leases whose end was proposed, of those that were due.
    LeasesExpired(usize),
    /// A snapshot was captured for a follower.
    SnapshotOffered { index: u64, bytes: u64 },
    /// Sending a snapshot has ended.
    SnapshotSent { to: u64, ok: bool },
    /// The disk of the log does not answer: leadership is transferred to another member.
    LogStalledHandsOver { to: u64, stalled: Duration },
    /// The disk of the log still does not answer: the leader steps down.
    LogStalledStepsDown { stalled: Duration },
}

/// Whether a member of this status leads and is not transferring leadership: its proposals are neither forwarded nor
/// held.
pub(crate) fn leads_for_sure(status: &Status) -> bool {
    status.role == Role::Leader && status.transferee == 0
}

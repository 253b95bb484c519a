//! A running member: the state its threads share, and how requests reach consensus.
//!
//! ```text
//! request thread ──propose──▶ inbox ──▶ consensus thread ──▶ log (write, fdatasync) ──▶ commit
//!       ▲            peers ──messages──▶ ▲   │ few entries: itself      │ many: apply thread
//!       └────────────── done ◀── pending ◀───┴──────── store ◀──────────┘
//! ```

mod apply;
mod clock;
mod compactor;
mod consensus;
mod core;
mod delete_reservations;
mod deliveries;
mod entry;
mod estranged;
mod headroom;
mod host;
mod image;
mod inbox;
mod late_reads;
mod looks;
mod lost_log;
mod maintenance;
mod membership;
pub(crate) mod memory;
mod no_space;
mod observed;
mod opening;
mod overload;
mod peer_handler;
mod pending;
mod reads;
mod reaper;
mod restore;
mod slow;
mod start;
mod status;
mod timer;
mod trail;
mod waits;
mod weight;

pub(crate) use start::start;
#[cfg(any(test, feature = "test-support"))]
pub(crate) use start::start_on;
pub use start::{Running, StartError};
pub use status::SharedStatus;

pub(crate) use headroom::Claim;
pub(crate) use looks::Looked;
pub(crate) use opening::Opening;
pub(crate) use slow::SlowPool;
pub(crate) use waits::{For, Waits};
pub(crate) use weight::Weight;

use crate::audit::Audit;
use crate::auth::Auth;
use crate::client_share::ClientShares;
use crate::cluster::cluster_mismatch::ClusterMismatch;
use crate::cluster::forward_pool::ForwardPool;
use crate::cluster::leaderless::Leaderless;
use crate::config::Config;
use crate::metrics::Metrics;
use crate::observer::{Followers, Link};
use crate::overload::{Class, Refusals};
use crate::services::{ClientSnapshots, LateRooms, ProgressStreams, Shares};
use crate::system::End;
use crate::tls::Tls;
use api::etcdserverpb::ResponseHeader;
use api::{Error, RaftRequest, raftpb};
use budget::Budget;
use clock::Clock;
use contain::lock;
use handover::SharedLessor;
use headroom::Headroom;
use inbox::{Arrived, ConfChange, Inbox, Proposal, Waiter};
use looks::Looks;
use overload::Posted;
use peer::{Connector, Peers};
use pending::Pending;
use reads::Reads;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Condvar, Mutex, OnceLock, Weak};
use std::time::{Duration, Instant};
use store::{Author, NoSpaceAlarm, Store, Unread};
use telemetry::tracing::Tracer;

/// The outcome of a proposal.
pub(crate) type Outcome = Result<store::Response, Error>;
/// Receives the outcome on the thread that applied the entry, or on the request thread that the proposal came from.
pub(crate) type Done = Box<dyn Waits<Outcome>>;

/// What to call once a compaction is finished.
type WaitsForCompaction = Box<dyn Waits<Result<(), Error>>>;

/// The state that all threads of a member share.
pub struct Node {
    /// This member's id.
    pub member_id: u64,
    /// The cluster's id.
    pub cluster_id: u64,
    /// The member's configuration.
    pub config: Config,
    /// Keys, leases, alarms, members.
    pub store: Arc<Store>,
    /// The state of consensus.
    pub status: SharedStatus,
    /// Counters and histograms.
    pub metrics: Metrics,
    /// Authentication and authorization of calls.
    pub(crate) auth: Auth,
    /// The audit log, if there is one.
    pub(crate) audit: Option<Arc<Audit>>,
    pub(crate) lessor: SharedLessor,
    /// Threads for work that takes long.
    pub(crate) slow: SlowPool,
    /// Threads for short work that the threads of consensus and of bcrypt must not do.
    pub(crate) short: SlowPool,
    /// Threads for calls to other members; such calls block.
    pub(crate) forwards: ForwardPool,
    /// The other members, once they can be talked to.
    pub(crate) peers: OnceLock<Arc<Peers>>,
    /// Opens connections to other members.
    pub(crate) connector: Connector,
    /// Certificates and keys.
    pub(crate) tls: Tls,
    /// Streams that end when the leader is lost, as their clients asked.
    pub(crate) leaderless: Leaderless,
    pub(crate) watches: Shares,
    /// What each client takes of the request threads' time, if that has a bound.
    pub(crate) client_shares: Option<Arc<ClientShares>>,
    /// Watch streams that get progress notifications.
    pub(crate) progress_streams: ProgressStreams,
    /// Streams that ask again for memory for their events.
    pub(crate) late_rooms: LateRooms,
    /// Takes spans if tracing is on.
    pub(crate) tracer: Option<Arc<Tracer>>,
    /// Receives the reason when this member has to end.
    pub(crate) retired: OnceLock<Sender<End>>,
    /// What this process follows, if it is an observer.
    pub(crate) link: Option<Arc<Link>>,
    /// The observers that follow this process.
    pub(crate) followers: Arc<Followers>,
    /// This observer has had everything that the cluster had at some time.
    was_level: AtomicBool,
    disk: Arc<dyn disk::Disk>,
    pub(crate) retiring: AtomicBool,
    cluster_mismatch: Mutex<ClusterMismatch>,
    pub(crate) stopping: AtomicBool,
    /// Whether this member is published, and what it may show until then.
    pub(crate) opening: Opening,
    /// The memory that clients may make the member hold.
    pub(crate) budget: Arc<Budget>,
    /// Client snapshots being sent.
    pub(crate) snapshots: ClientSnapshots,
    inbox: Inbox,
    reads: Reads,
    /// When the log last said that reads wait for the leader.
    reads_told_ms: AtomicU64,
    /// Reads that may run, and wait for the thread of their connection.
    reads_posted: Arc<AtomicUsize>,
    /// The disk space that deletions may fill, on the fullest disk of the members.
    pub(crate) headroom: Arc<Headroom>,
    refusals: Refusals,
    /// Keys that requests under way have every member look at.
    looks: Arc<Looks>,
    pending: Pending,
    next_request: AtomicU64,
    clock: Clock,
    checkpoint_wanted: AtomicBool,
    no_space: NoSpaceAlarm,
    raising: Mutex<()>,
    applying: OnceLock<Weak<apply::Shared>>,
    consensus: OnceLock<Weak<consensus::Consensus>>,
    /// Removed members, and when the connections to them are closed.
    parting: Mutex<Vec<(Instant, u64)>>,
    /// With the revision of each.
    compactions: Mutex<Vec<(i64, WaitsForCompaction)>>,
    maintenance: (Mutex<bool>, Condvar),
}

impl Node {
    /// The header of an answer at `revision`.
    pub fn header(&self, revision: i64) -> ResponseHeader {
        ResponseHeader {
            cluster_id: self.cluster_id,
            member_id: self.member_id,
            revision,
            raft_term: self.status.term(),
        }
    }

    /// The fields that the headers of all watch responses share.
    pub(crate) fn origin(&self) -> store::watch::Origin {
        store::watch::Origin { cluster_id: self.cluster_id, member_id: self.member_id, raft_term: self.status.term() }
    }

    /// The storage version, which tools check before a downgrade. It follows the cluster version.
    pub(crate) fn storage_version(&self) -> String {
        match self.store.cluster_version() {
            version if version.is_empty() || version == api::version::MIN_CLUSTER => api::version::STORAGE.into(),
            version => version,
        }
    }

    /// Milliseconds since the start, the clock of leases and time-outs.
    pub(crate) fn now_ms(&self) -> u64 {
        self.clock.at_ms(Instant::now())
    }

    /// Lets time that this member measures for leases, tokens and time-outs pass at once.
    #[cfg(feature = "test-support")]
    pub(crate) fn advance_clock(&self, ms: u64) {
        self.clock.advance(ms);
    }

    /// The author of the member's own proposals.
    pub(crate) fn as_member(&self) -> Author {
        if self.store.auth().is_enabled() { Author::member() } else { Author::nobody() }
    }

    /// Proposes one request, given as its kind and its encoding. For a client's request, the author comes from the
    /// [`Permitted`](crate::auth::Permitted) request.
    pub(crate) fn propose(&self, author: Author, kind: RaftRequest, request: &[u8], done: Done) {
        if let Some(proposal) = self.proposal(author, kind, request, done) {
            self.enqueue(proposal);
        }
    }

    /// Like [`Node::propose`], but only as the leader of this term: under another leader the reason for the proposal
    /// may no longer hold.
    pub(crate) fn propose_in_term(&self, term: u64, author: Author, kind: RaftRequest, request: &[u8], done: Done) {
        if let Some(proposal) = self.proposal(author, kind, request, done) {
            debug_assert!(proposal.waiter.class.is_urgent(), "others are not held back by term");
            self.enqueue(Proposal { term: Some(term), ..proposal });
        }
    }

    /// Like [`Node::propose`], for a thread that has nothing else to do: it takes the turn of consensus itself if no
    /// other thread has it. Waking two other threads would take longer than all the work of one small write.
    pub(crate) fn propose_here(&self, author: Author, kind: RaftRequest, request: &[u8], done: Done) {
        let Some(mut proposal) = self.proposal(author, kind, request, done) else { return };
        if let Some(consensus) = self.consensus.get().and_then(Weak::upgrade) {
            proposal = match consensus.turn_for(proposal, Arrived::of) {
                None => return,
                Some(refused) => refused,
            };
        }
        self.enqueue(proposal);
    }

    /// Makes a proposal and counts it as pending. `None` if it was refused; `done` then has the error.
    fn proposal(&self, author: Author, kind: RaftRequest, request: &[u8], done: Done) -> Option<Proposal> {
        let class = Class::of(kind);
        if let Err(error) = self.admit(class) {
            done.end(Err(error));
            return None;
        }
        let id = self.next_request.fetch_add(1, Ordering::Relaxed);
        let mut data = entry::wrap(id, author, kind, request);
        if kind == RaftRequest::LeaseGrant && self.are_all_cairn() {
            RaftRequest::mark_final(&mut data);
        }
        if data.len() > self.config.max_request_bytes {
            done.end(Err(Error::RequestTooLarge));
            return None;
        }
        self.metrics.proposals_pending.fetch_add(1, Ordering::Relaxed);
        Some(Proposal { id, data: data.into(), waiter: Waiter::new(done, class), term: None })
    }

    /// Whether every other member is known to run Cairn. One that is down since this member started is not.
    fn are_all_cairn(&self) -> bool {
        let mut others = self.store.members().members.into_keys().filter(|id| *id != self.member_id);
        others.all(|id| self.peers.get().is_some_and(|peers| peers.is_cairn(id)))
    }

    fn enqueue(&self, proposal: Proposal) {
        let class = proposal.waiter.class;
        if let Err(refused) = self.inbox.propose(proposal, self.room(class)) {
            self.metrics.proposals_pending.fetch_sub(1, Ordering::Relaxed);
            self.metrics.proposals_failed.fetch_add(1, Ordering::Relaxed);
            refused.waiter.done.end(Err(self.refuse(class)));
        }
    }

    /// Proposes a configuration change. Only the limits of all proposals are checked here, not the change itself.
    pub(crate) fn propose_conf_change(&self, mut change: api::raftpb::ConfChange, done: Done) {
        if let Err(error) = self.admit(Class::Member) {
            return done.end(Err(error));
        }
        change.id = Some(self.next_request.fetch_add(1, Ordering::Relaxed));
        self.metrics.proposals_pending.fetch_add(1, Ordering::Relaxed);
        let waiter = Waiter::new(done, Class::Member);
        if let Err(refused) = self.inbox.conf_change(ConfChange { change, waiter }, self.room(Class::Member)) {
            self.metrics.proposals_pending.fetch_sub(1, Ordering::Relaxed);
            self.metrics.proposals_failed.fetch_add(1, Ordering::Relaxed);
            refused.waiter.done.end(Err(self.refuse(Class::Member)));
        }
    }

    /// Starts a leader transfer to `to`, if that is possible. It has succeeded when [`SharedStatus::leader`] is `to`;
    /// meanwhile proposals wait.
    pub(crate) fn transfer_leader(&self, to: u64) {
        self.inbox.transfer_leader(to);
    }

    /// Asks consensus for the progress of each member. Only a leader knows it.
    pub(crate) fn progress(&self, done: Box<dyn FnOnce(Vec<replica::Progress>) + Send>) {
        self.inbox.progress(done);
    }

    /// Claims space in the quota for what a write adds to the store, until its outcome is there. Call it only for
    /// permitted writes: a write that finds no room raises the alarm, and every claim leaves less room for other
    /// writes.
    pub(crate) fn claim_space(self: &Arc<Self>, cost: u64) -> Result<store::Space, Error> {
        self.store.claim_quota(cost).inspect_err(|error| {
            if *error == Error::NoSpace {
                self.raise_no_space(cost);
            }
        })
    }

    /// Runs `read` once this member's state holds everything that was acknowledged so far. A leader that is the only
    /// member runs it at once. Otherwise it runs after a read index, on the thread that completes the read index; that
    /// thread has other work, so `read` must be short. Until then the budget counts `weight`: the bytes of a client's
    /// request that `read` keeps in memory.
    pub(crate) fn linearize(self: &Arc<Self>, weight: Weight, read: impl FnOnce(Result<(), Error>) + Send + 'static) {
        if self.status.serves_local_reads() {
            return read(Ok(()));
        }
        self.linearize_by_turn(weight, read);
    }

    /// Like [`Node::linearize`], but even on a sole member the read waits for a turn of consensus: a probe must not pass
    /// while no thread can take one.
    pub(crate) fn linearize_by_turn(
        self: &Arc<Self>,
        weight: Weight,
        read: impl FnOnce(Result<(), Error>) + Send + 'static,
    ) {
        if self.stopping.load(Ordering::Relaxed) {
            return read(Err(Error::Stopped));
        }
        let claim = match weight.claim(&self.budget) {
            Ok(claim) => claim,
            Err(error) => return read(Err(error)),
        };
        let read = move |allowed| {
            drop(claim);
            read(allowed);
        };
        if let Err(refused) = self.inbox.read(Box::new(read), self.room(Class::Read)) {
            refused(Err(self.refuse(Class::Read)));
        }
    }

    /// Like [`Node::linearize`], for a call: `then` runs on the thread of the call's connection, because the thread
    /// that completes a read index takes turns of consensus.
    pub(crate) fn linearize_call(
        self: &Arc<Self>,
        weight: Weight,
        responder: rpc::Responder,
        then: impl FnOnce(Result<(), Error>, rpc::Responder) + Send + 'static,
    ) {
        if self.status.serves_local_reads() {
            return then(Ok(()), responder);
        }
        let claim = match weight.claim(&self.budget) {
            Ok(claim) => claim,
            Err(error) => return then(Err(error), responder),
        };
        let posted = self.reads_posted.clone();
        self.linearize(Weight::NONE, move |allowed| {
            // The read still counts while it waits for the connection's thread: many reads may wait there.
            let posted = Posted::count(posted);
            responder.resume(move |responder| {
                drop((claim, posted));
                then(allowed, responder);
            });
        });
    }

    /// The data as an etcd backend file. Planning the file reads the whole index, so call it on the slow pool. The work
    /// is given up once `wanted` returns false.
    pub(crate) fn snapshot(&self, wanted: &dyn Fn() -> bool) -> Result<(raftpb::Snapshot, store::Image), Unread> {
        loop {
            let job = self.capture()?;
            let snapshot = job.raft_snapshot();
            if let Some(image) = job.image_while(wanted)? {
                return Ok((snapshot, image));
            }
        }
    }

    /// The state as it is now, for a snapshot.
    pub(crate) fn capture(&self) -> Result<store::SnapshotJob, Error> {
        loop {
            let shared = self.applying.get().and_then(Weak::upgrade).ok_or(Error::Stopped)?;
            let job = shared.capture();
            drop(shared);
            match job {
                Some(job) => return Ok(job),
                None if self.stopping.load(Ordering::Relaxed) => return Err(Error::Stopped),
                // A configuration change is in the way. Consensus completes it at once, so the wait is short.
                None => std::thread::sleep(Duration::from_millis(1)),
            }
        }
    }

    /// Calls `done` once the index has dropped everything that the compaction at `revision` freed, or at once if too many wait for that.
    pub(crate) fn when_compacted(&self, revision: i64, done: WaitsForCompaction) {
        let mut waiting = lock(&self.compactions);
        let mut gone = Vec::new();
        if waiting.len() >= api::limits::CHANGE_QUEUE_MAX {
            gone.extend(waiting.extract_if(.., |(_, done)| done.is_gone()));
        }
        if waiting.len() >= api::limits::CHANGE_QUEUE_MAX {
            gone.push((revision, done));
        } else {
            waiting.push((revision, done));
        }
        drop(waiting);
        for (_, done) in gone {
            done.end(Err(self.refuse(Class::Upkeep)));
        }
        self.wake_maintenance();
    }

    pub(crate) fn wake_maintenance(&self) {
        *lock(&self.maintenance.0) = true;
        self.maintenance.1.notify_one();
    }

    /// Proposals that are on their way.
    pub fn proposals_pending(&self) -> usize {
        self.pending.len()
    }
}

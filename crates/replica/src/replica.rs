//! The replica and its inputs.

use crate::consensus::{Backlog, Error, Member, Status};
use crate::log_batch::LogWork;
use crate::proposals::{ConfChangeProposal, Proposal, Proposals};
use crate::snapshot_transfer::{Incoming, Install, Outgoing};
use crate::{Note, Now, Shell};
use api::{limits, raftpb};
use std::collections::BTreeMap;
use std::time::Duration;

/// The options of a replica.
#[derive(Clone, Debug)]
pub struct Options {
    /// Time between ticks.
    pub heartbeat: Duration,
    /// How long others wait for a leader before they elect another.
    pub election_timeout: Duration,
    /// Ticks by which the first election timeout after a start is shorter, since an existing leader is heard from
    /// sooner.
    pub election_head_start_ticks: usize,
    /// Applied entries that stay in memory for followers that lag.
    pub catchup_entries: u64,
    /// Further applied entries that gather before they are trimmed.
    pub trim_entries: u64,
    /// Whether more entries than these stay while a follower that answers still needs them.
    pub keeps_for_active: bool,
    /// Limit of the bytes of entries in memory, however far followers lag.
    pub log_bytes_max: u64,
    /// The limit while a follower that answers, or receives a snapshot, still needs the entries.
    pub log_sending_bytes_max: u64,
    /// Reads that may wait.
    pub reads_max: usize,
    /// Expired leases whose ends are under way at once.
    pub lease_ends_max: usize,
    /// Expired leases that begin to end at once.
    pub lease_ends_at_once: usize,
    /// Leases that a new leader lets expire within a second.
    pub lease_expiries_per_second_max: usize,
    /// Leases that a new leader takes over in a turn.
    pub lease_takeover_piece_max: usize,
}

/// Everything that has arrived since the last turn. `M` is the shell's mark of a message, `W` the waiter of a proposal,
/// `R` a read, `C` the sender of a snapshot.
pub struct Inputs<M, W, R, C> {
    /// Messages of peers. Snapshots are not among them: they come with their data, in `installs`.
    pub messages: Vec<(raftpb::Message, M)>,
    /// Proposals that precede the others, and are taken even if applying is far behind.
    pub urgent: Vec<Proposal<W>>,
    /// The other proposals.
    pub proposals: Vec<Proposal<W>>,
    /// Configuration changes.
    pub conf_changes: Vec<ConfChangeProposal<W>>,
    /// Linearizable reads.
    pub reads: Vec<R>,
    /// Peers to which a message was lost.
    pub unreachable: Vec<u64>,
    /// Members that were sent a snapshot, and whether they have received it.
    pub snapshots_sent: Vec<(u64, bool)>,
    /// Snapshots that other members sent.
    pub installs: Vec<Install<C>>,
    /// The member to which leadership is to be transferred.
    pub leader_transfer: Option<u64>,
}

impl<M, W, R, C> Default for Inputs<M, W, R, C> {
    fn default() -> Self {
        Inputs {
            messages: Vec::new(),
            urgent: Vec::new(),
            proposals: Vec::new(),
            conf_changes: Vec::new(),
            reads: Vec::new(),
            unreachable: Vec::new(),
            snapshots_sent: Vec::new(),
            installs: Vec::new(),
            leader_transfer: None,
        }
    }
}

impl<M, W, R, C> Inputs<M, W, R, C> {
    /// Takes the requests of clients and leaves the rest.
    pub fn take_clients(&mut self) -> Self {
        Inputs {
            urgent: std::mem::take(&mut self.urgent),
            proposals: std::mem::take(&mut self.proposals),
            conf_changes: std::mem::take(&mut self.conf_changes),
            reads: std::mem::take(&mut self.reads),
            ..Inputs::default()
        }
    }
}

/// [`Inputs`] with the types of a shell.
pub type InputsOf<S> = Inputs<<S as Shell>::Mark, <S as Shell>::Waiter, <S as Shell>::Read, <S as Shell>::Source>;

/// One member of a cluster, from the requests and messages that reach it to the store. `C` is the sender of a snapshot.
pub struct Replica<C> {
    pub(crate) raft: Member,
    pub(crate) options: Options,
    pub(crate) backlog: Backlog,
    pub(crate) proposals: Proposals,
    pub(crate) outgoing: Outgoing,
    pub(crate) incoming: Incoming<C>,
    /// Work for the log, in order.
    pub(crate) unsynced: Vec<LogWork>,
    /// Since when the log's disk has been at work.
    pub(crate) syncing_since: Option<Duration>,
    pub(crate) next_tick: Duration,
    pub(crate) last_tick: Duration,
    /// When followers that are far behind are sent more entries; `None` if there are none.
    pub(crate) next_lagging: Option<Duration>,
    /// When more leases may end before the next tick; `None` if none are late.
    pub(crate) next_expiry: Option<Duration>,
    /// This member is a new leader that has not taken all leases over yet.
    pub(crate) takes_over: bool,
    /// When to take over the next piece of the leases; `None` before the first one.
    pub(crate) next_takeover: Option<Duration>,
    /// When members were last known to be active; empty on one that does not lead.
    pub(crate) heard: BTreeMap<u64, Duration>,
    pub(crate) was_leader: bool,
    pub(crate) leader: u64,
}

impl<C> Replica<C> {
    /// A replica around `raft`.
    pub fn new(raft: Member, options: Options, now: Now) -> Replica<C> {
        Replica {
            raft,
            options,
            backlog: Backlog::default(),
            proposals: Proposals::default(),
            outgoing: Outgoing::default(),
            incoming: Incoming::default(),
            unsynced: Vec::new(),
            syncing_since: None,
            next_tick: now.at,
            last_tick: now.at,
            next_lagging: None,
            next_expiry: None,
            takes_over: false,
            next_takeover: None,
            heard: BTreeMap::new(),
            was_leader: false,
            leader: 0,
        }
    }

    /// Whether a snapshot waits for the store to apply what comes before it, or is being installed.
    pub fn has_snapshot(&self) -> bool {
        !self.incoming.waiting.is_empty() || self.incoming.installing.is_some()
    }

    /// The Raft core, to be read.
    pub fn raft(&self) -> &Member {
        &self.raft
    }

    /// The status of the member.
    pub fn status(&self) -> Status {
        self.raft.status()
    }

    /// Whether the store was given all committed entries.
    pub fn has_handed_over_all(&self) -> bool {
        self.backlog.is_empty()
    }

    /// Begins, once the log is replayed: a sole voter begins an election at once; other members wait for a shorter time
    /// than usual.
    pub fn begin<S: Shell<Source = C>>(&mut self, shell: &mut S, now: Now) {
        self.next_tick = now.at.saturating_add(self.options.heartbeat);
        self.last_tick = now.at;
        if self.raft.status().sole_voter {
            // No other member can be elected: there is nothing to wait for.
            if let Err(error) = self.raft.campaign() {
                shell.note(Note::CannotCampaign(&error));
            }
        } else {
            self.raft.advance_election(self.options.election_head_start_ticks);
        }
    }

    /// Takes everything that has arrived.
    pub fn accept<S: Shell<Source = C>>(&mut self, shell: &mut S, inputs: InputsOf<S>, now: Now) {
        let behind_bytes = shell.apply_queue_bytes().saturating_add(self.backlog.bytes());
        let is_behind = behind_bytes > limits::APPLY_QUEUE_BYTES_MAX;
        for (message, mark) in inputs.messages {
            match message.r#type() {
                // A snapshot comes with its data or not at all.
                raftpb::MessageType::MsgSnap => {}
                // The leader sends the entries again later.
                raftpb::MessageType::MsgApp if is_behind && !message.entries.is_empty() => {}
                // An entry that cannot be applied would end every member.
                raftpb::MessageType::MsgProp if is_behind || !is_applicable(&message) => {
                    shell.note(Note::ForwardRefused);
                }
                _ => self.step(shell, message, Some(mark)),
            }
            if self.raft.proof().is_some() {
                break;
            }
        }
        self.incoming.waiting.extend(inputs.installs);
        self.proposals.add_urgent(shell, &mut self.raft, inputs.urgent, now);
        if is_behind && !inputs.proposals.is_empty() {
            let waiters = inputs.proposals.into_iter().map(|proposal| proposal.waiter).collect();
            shell.end_proposals(waiters, api::Error::TooManyRequests);
        } else {
            self.proposals.add(shell, &mut self.raft, inputs.proposals, now);
        }
        self.proposals.add_conf_changes(shell, inputs.conf_changes, now);
        self.add_reads(shell, inputs.reads, now);
        for id in inputs.unreachable {
            self.raft.report_unreachable(id);
        }
        for (id, ok) in inputs.snapshots_sent {
            self.outgoing.sent(shell, &mut self.raft, id, ok, now);
        }
        if let Some(to) = inputs.leader_transfer
            && let Err(error) = self.raft.transfer(to)
        {
            shell.note(Note::CannotTransferLeader(&error));
        }
    }

    /// Ends clients' requests in time, and does nothing else, while a member that does not lead waits for the disk of
    /// its log. Takes only the requests of clients from `inputs`.
    pub fn keep_time<S: Shell<Source = C>>(&mut self, shell: &mut S, inputs: InputsOf<S>, now: Now) {
        self.proposals.add_held(shell, inputs.urgent, inputs.proposals, now);
        self.proposals.add_conf_changes(shell, inputs.conf_changes, now);
        self.add_reads(shell, inputs.reads, now);
        if shell.has_reads() {
            shell.read_index(|reads| reads.tick(&mut self.raft, now.ms));
        }
        self.proposals.tick(shell);
    }

    fn add_reads<S: Shell<Source = C>>(&self, shell: &mut S, reads: Vec<S::Read>, now: Now) {
        if reads.is_empty() {
            return;
        }
        let refused = shell.read_index(|waiting| waiting.add(reads, self.options.reads_max, now.ms));
        if !refused.is_empty() {
            shell.end_reads(refused, api::Error::TooManyRequests);
        }
    }

    /// Passes a message of a peer to Raft. A message that came with a snapshot has no mark.
    pub(crate) fn step<S: Shell<Source = C>>(
        &mut self,
        shell: &mut S,
        message: raftpb::Message,
        mark: Option<S::Mark>,
    ) {
        let from = message.from();
        match self.raft.step(message) {
            Ok(()) => {
                if let Some(mark) = mark {
                    shell.message_taken(&self.raft, mark);
                }
            }
            Err(Error::LogLost(proof)) => shell.log_lost(&proof),
            Err(error) => shell.message_refused(from, mark, &error),
        }
    }

    /// Ends everything that waits for an answer, when the member stops.
    pub fn end<S: Shell<Source = C>>(&mut self, shell: &mut S) {
        let waiters = shell.pending(|pending| pending.take_all());
        shell.end_proposals(waiters, api::Error::Stopped);
        let reads = shell.read_index(|reads| reads.take_all());
        shell.end_reads(reads, api::Error::Stopped);
        self.incoming = Incoming::default();
    }
}

/// Whether all proposals in another member's message can be decoded as requests.
fn is_applicable(message: &raftpb::Message) -> bool {
    let is_request = |entry: &raftpb::Entry| entry.data.as_ref().is_none_or(store::is_request);
    message.entries.iter().filter(|entry| entry.r#type() == raftpb::EntryType::EntryNormal).all(is_request)
}

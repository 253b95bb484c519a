//! What waits for the consensus thread.

use super::Done;
use super::headroom::HeadroomReport;
use crate::overload::Class;
use api::{limits, raftpb};
use peer::Origin;
use std::sync::mpsc::SyncSender;
use std::time::Instant;

/// Facts about a message of a peer that are not for Raft.
pub(super) struct Mark {
    /// How the message came.
    pub(super) origin: Origin,
    /// The headroom that the message reports.
    pub(super) report: Option<HeadroomReport>,
}

/// The request that waits for a proposal.
pub(super) struct Waiter {
    pub(super) done: Done,
    pub(super) class: Class,
    /// When the proposal came.
    pub(super) since: Instant,
    /// The request thread that it came from.
    pub(super) home: Option<rpc::Home>,
}

impl Waiter {
    /// For a proposal that comes now, from this thread.
    pub(super) fn new(done: Done, class: Class) -> Waiter {
        Waiter { done, class, since: Instant::now(), home: rpc::Home::here() }
    }
}

impl replica::Waiter for Waiter {
    fn is_gone(&self) -> bool {
        self.done.is_gone()
    }

    fn class(&self) -> usize {
        self.class as usize
    }
}

/// A proposal for an entry, with its waiter.
pub(super) type Proposal = replica::Proposal<Waiter>;
/// A configuration change with its waiter.
pub(super) type ConfChange = replica::ConfChangeProposal<Waiter>;
/// Called once the member's state holds everything that was acknowledged before the read was asked for.
pub(super) type Read = Box<dyn FnOnce(Result<(), api::Error>) + Send>;
/// Receives the result of installing a snapshot that another member sent.
pub(super) type InstallAnswer = SyncSender<Result<(), String>>;
/// A snapshot that another member sent.
pub(super) type Install = replica::Install<InstallAnswer>;
/// Called with the progress of each member.
pub(super) type AskProgress = Box<dyn FnOnce(Vec<replica::Progress>) + Send>;
/// What the replica takes in.
pub(super) type Inputs = replica::Inputs<Mark, Waiter, Read, InstallAnswer>;

/// Everything that arrived since the consensus thread last looked.
#[derive(Default)]
pub(super) struct Arrived {
    pub(super) inputs: Inputs,
    pub(super) progress: Vec<AskProgress>,
    /// The log may be freed below this index: the older kept checkpoint covers it.
    pub(super) release_below: Option<Released>,
    pub(super) stop: bool,
}

impl Arrived {
    /// A single proposal as the only arrival.
    pub(super) fn of(proposal: Proposal) -> Arrived {
        let mut inputs = Inputs::default();
        let queue = if proposal.waiter.class.is_urgent() { &mut inputs.urgent } else { &mut inputs.proposals };
        queue.push(proposal);
        Arrived { inputs, ..Arrived::default() }
    }
}

/// The part of the log that a finished checkpoint makes dispensable.
pub(super) struct Released {
    pub(super) older_index: u64,
    pub(super) snapshot: api::walpb::Snapshot,
}

#[derive(Default)]
struct State {
    arrived: Arrived,
    /// Proposals of each class.
    queued: [usize; Class::COUNT],
    proposal_bytes: usize,
    message_bytes: usize,
    closed: bool,
}

/// A bounded queue with one reader, who takes everything at once.
#[derive(Default)]
pub(super) struct Inbox(handover::Inbox<State>);

impl Inbox {
    /// Queues a proposal; gives it back when the queue holds `room` of its class, or too many bytes.
    pub(super) fn propose(&self, proposal: Proposal, room: usize) -> Result<(), Proposal> {
        self.0.push(|state| {
            let (class, bytes) = (proposal.waiter.class, proposal.data.len());
            let full = state.queued[class as usize] >= room
                || (!class.is_urgent() && state.proposal_bytes + bytes > limits::PROPOSAL_QUEUE_BYTES_MAX);
            if state.closed || full {
                return Err(proposal);
            }
            state.queued[class as usize] += 1;
            if class.is_urgent() {
                state.arrived.inputs.urgent.push(proposal);
            } else {
                state.proposal_bytes += bytes;
                state.arrived.inputs.proposals.push(proposal);
            }
            Ok(())
        })
    }

    /// How many proposals of this class are queued.
    pub(super) fn queued(&self, class: Class) -> usize {
        self.0.with(|state| {
            if class == Class::Member { state.arrived.inputs.conf_changes.len() } else { state.queued[class as usize] }
        })
    }

    /// How many reads are queued.
    pub(super) fn reads(&self) -> usize {
        self.0.with(|state| state.arrived.inputs.reads.len())
    }

    /// Queues a configuration change; gives it back when the queue holds `room` of them.
    pub(super) fn conf_change(&self, change: ConfChange, room: usize) -> Result<(), ConfChange> {
        self.0.push(|state| {
            if state.closed || state.arrived.inputs.conf_changes.len() >= room {
                return Err(change);
            }
            state.arrived.inputs.conf_changes.push(change);
            Ok(())
        })
    }

    /// Queues a read that needs a read index; gives it back when the queue holds `room` of them.
    pub(super) fn read(&self, read: Read, room: usize) -> Result<(), Read> {
        self.0.push(|state| {
            if state.closed || state.arrived.inputs.reads.len() >= room {
                return Err(read);
            }
            state.arrived.inputs.reads.push(read);
            Ok(())
        })
    }

    /// Queues messages of a peer. Waits while too many bytes of messages are queued, so that nothing more is read from
    /// the peer.
    pub(super) fn receive(&self, messages: Vec<raftpb::Message>, origin: Origin) {
        failpoint::point!(RAFT_BEFORE_RECEIVE);
        if origin == Origin::Stream && failpoint::fires!(RAFT_DROP_HEARTBEAT) {
            return;
        }
        let bytes: usize = messages.iter().map(message_bytes).sum();
        let has_room = |state: &State| {
            state.message_bytes == 0 || state.message_bytes + bytes <= limits::PEER_QUEUE_BYTES_MAX || state.closed
        };
        self.0.push_when(has_room, |state| {
            if state.closed {
                return;
            }
            state.message_bytes += bytes;
            let marked = messages.into_iter().map(|message| {
                let report = HeadroomReport::of(&message);
                (message, Mark { origin, report })
            });
            state.arrived.inputs.messages.extend(marked);
        });
    }

    /// A message to this peer was lost.
    pub(super) fn unreachable(&self, id: u64) {
        self.0.push(|state| {
            if !state.arrived.inputs.unreachable.contains(&id) {
                state.arrived.inputs.unreachable.push(id);
            }
        });
    }

    /// How sending a snapshot ended.
    pub(super) fn snapshot_sent(&self, id: u64, ok: bool) {
        self.0.push(|state| state.arrived.inputs.snapshots_sent.push((id, ok)));
    }

    /// Queues the installation of another member's snapshot. When the member stops, `install` is dropped, which its
    /// sender notices.
    pub(super) fn install(&self, install: Install) {
        self.0.push(|state| {
            if !state.closed {
                state.arrived.inputs.installs.push(install);
            }
        });
    }

    /// Requests a leader transfer to the member `to`.
    pub(super) fn transfer_leader(&self, to: u64) {
        self.0.push(|state| state.arrived.inputs.leader_transfer = Some(to));
    }

    /// Requests the progress of each member.
    pub(super) fn progress(&self, ask: AskProgress) {
        self.0.push(|state| state.arrived.progress.push(ask));
    }

    /// A checkpoint is on disk.
    pub(super) fn release(&self, released: Released) {
        self.0.push(|state| state.arrived.release_below = Some(released));
    }

    /// Wakes the consensus thread for work that is not in the inbox.
    pub(super) fn nudge(&self) {
        self.0.push(|_| ());
    }

    /// Tells the consensus thread to end.
    pub(super) fn stop(&self) {
        self.0.push_and_make_room(|state| {
            state.arrived.stop = true;
            state.closed = true;
        });
    }

    /// Bytes of proposals that wait.
    pub(super) fn proposal_bytes(&self) -> usize {
        self.0.with(|state| state.proposal_bytes)
    }

    /// Takes the requests of clients and leaves the rest.
    pub(super) fn take_clients(&self) -> Inputs {
        self.0.with(|state| {
            state.queued = [0; Class::COUNT];
            state.proposal_bytes = 0;
            state.arrived.inputs.take_clients()
        })
    }

    /// Removes the proposals and configuration changes that came at `before` or earlier, and returns their waiters. For
    /// a consensus thread that does not take them.
    pub(super) fn take_late(&self, before: Instant) -> Vec<Waiter> {
        self.0.with(|state| {
            let State { arrived, queued, proposal_bytes, .. } = state;
            let is_late = |proposal: &mut Proposal| proposal.waiter.since <= before;
            let mut late: Vec<Proposal> = arrived.inputs.urgent.extract_if(.., is_late).collect();
            for proposal in arrived.inputs.proposals.extract_if(.., is_late) {
                *proposal_bytes -= proposal.data.len();
                late.push(proposal);
            }
            late.iter().for_each(|proposal| queued[proposal.waiter.class as usize] -= 1);
            let changes = arrived.inputs.conf_changes.extract_if(.., |change| change.waiter.since <= before);
            let changes: Vec<Waiter> = changes.map(|change| change.waiter).collect();
            late.into_iter().map(|proposal| proposal.waiter).chain(changes).collect()
        })
    }

    /// Takes the reads and leaves the rest.
    pub(super) fn take_reads(&self) -> Vec<Read> {
        self.0.with(|state| std::mem::take(&mut state.arrived.inputs.reads))
    }

    /// Takes everything that has arrived. If that is nothing, waits for an arrival until `deadline`.
    pub(super) fn take(&self, deadline: Instant) -> Arrived {
        self.0.take(deadline, |state| {
            state.queued = [0; Class::COUNT];
            state.proposal_bytes = 0;
            state.message_bytes = 0;
            std::mem::take(&mut state.arrived)
        })
    }
}

/// Approximate memory of a message, in bytes.
fn message_bytes(message: &raftpb::Message) -> usize {
    let entries: usize = message.entries.iter().map(|entry| entry.data().len() + 64).sum();
    entries + message.context().len() + 256
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::time::Duration;

    fn message(bytes: usize) -> raftpb::Message {
        let entry = raftpb::Entry { data: Some(vec![0; bytes].into()), ..Default::default() };
        raftpb::Message { entries: vec![entry], ..Default::default() }
    }

    #[test]
    fn peers_wait_for_room_and_go_on() {
        let inbox = Arc::new(Inbox::default());
        // A message larger than the whole room is taken too: otherwise it would never get in.
        inbox.receive(vec![message(limits::PEER_QUEUE_BYTES_MAX + 1)], Origin::Stream);
        let sender = inbox.clone();
        let waiting = std::thread::spawn(move || sender.receive(vec![message(1)], Origin::Stream));
        std::thread::sleep(Duration::from_millis(50));
        assert!(!waiting.is_finished());
        assert_eq!(inbox.take(Instant::now()).inputs.messages.len(), 1);
        waiting.join().expect("it has room now");
        assert_eq!(inbox.take(Instant::now()).inputs.messages.len(), 1);
    }

    #[test]
    fn each_class_has_its_own_room() {
        let inbox = Inbox::default();
        let propose = |class, bytes, room| {
            let done = Box::new(|_: crate::node::Outcome| ());
            let data = vec![0; bytes].into();
            let proposal = Proposal { id: 1, data, waiter: Waiter::new(done, class), term: None };
            inbox.propose(proposal, room).is_ok()
        };
        assert_eq!([1, 2, 3].map(|_| propose(Class::Write, 1, 2)), [true, true, false]);
        assert!(propose(Class::Lease, 1, 2) && propose(Class::Auth, 1, 2));
        // Only the bytes of clients' writes count.
        assert!(propose(Class::Write, limits::PROPOSAL_QUEUE_BYTES_MAX - 3, 9));
        assert!(!propose(Class::Write, 1, 9) && propose(Class::Lease, 1, 9));
        assert_eq!([Class::Write, Class::Lease, Class::Auth].map(|class| inbox.queued(class)), [3, 2, 1]);
        let arrived = inbox.take(Instant::now());
        assert_eq!((arrived.inputs.urgent.len(), arrived.inputs.proposals.len()), (2, 4));
        assert_eq!(inbox.queued(Class::Write), 0);
        assert!(propose(Class::Write, 1, 1));
    }

    #[test]
    fn proposals_that_nobody_takes_end_in_time() {
        let inbox = Inbox::default();
        let began = Instant::now();
        let at = |seconds| began + Duration::from_secs(seconds);
        for (id, class, seconds) in [(1, Class::Write, 1), (2, Class::Lease, 2), (3, Class::Write, 3)] {
            let done = Box::new(|_: crate::node::Outcome| ());
            let proposal = Proposal {
                id,
                data: vec![0; 7].into(),
                waiter: Waiter { since: at(seconds), ..Waiter::new(done, class) },
                term: None,
            };
            assert!(inbox.propose(proposal, 9).is_ok());
        }
        for seconds in [2, 3] {
            let done = Box::new(|_: crate::node::Outcome| ());
            let waiter = Waiter { since: at(seconds), ..Waiter::new(done, Class::Member) };
            assert!(inbox.conf_change(ConfChange { change: raftpb::ConfChange::default(), waiter }, 9).is_ok());
        }
        let late = |seconds| inbox.take_late(at(seconds)).iter().map(|late| late.class).collect::<Vec<_>>();
        assert_eq!((late(0), late(2)), (vec![], vec![Class::Lease, Class::Write, Class::Member]));
        assert_eq!([Class::Write, Class::Lease, Class::Member].map(|class| inbox.queued(class)), [1, 0, 1]);
        assert_eq!(inbox.0.with(|state| state.proposal_bytes), 7);
        assert_eq!(late(3), [Class::Write, Class::Member]);
    }

    #[test]
    fn a_stop_lets_peers_go() {
        let inbox = Arc::new(Inbox::default());
        inbox.receive(vec![message(limits::PEER_QUEUE_BYTES_MAX)], Origin::Stream);
        let sender = inbox.clone();
        let waiting = std::thread::spawn(move || sender.receive(vec![message(1)], Origin::Stream));
        inbox.stop();
        waiting.join().expect("it gave up");
        assert!(inbox.take(Instant::now()).stop);
    }
}

//! A new leader takes leases over in pieces, and not before it has applied what was committed before.

mod common;

use api::Message as _;
use api::etcdserverpb::{
    InternalRaftRequest, LeaseCheckpoint, LeaseCheckpointRequest, LeaseGrantRequest, RequestHeader,
};
use api::raftpb::{ConfChange, ConfState, Entry, Message, SnapshotMetadata};
use common::{conf_state, config};
use disk::sim::SimDisk;
use replica::{
    Error, Inputs, Lessor, Member, Note, Now, Options, Pending, Proof, Proposal, ReadIndex, Replica, Restored, Status,
};
use std::convert::Infallible;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use store::{Applier, Export, Prepared, Response, Sink, Store};

const PIECE_MAX: usize = 100;
const ELECTION_TIMEOUT: Duration = Duration::from_secs(1);

struct Waits;

impl replica::Waiter for Waits {}

struct Nowhere;

impl Sink for Nowhere {
    fn done(&mut self, _index: u64, _request_id: u64, _result: Result<Response, api::Error>) {}
    fn conf_change(&mut self, _index: u64, _change: ConfChange) {}
    fn over_quota(&mut self, _response: &Response) {}
}

/// A process that applies entries when the test says so.
struct Process {
    pending: Pending<Waits>,
    reads: ReadIndex<()>,
    lessor: Lessor,
    store: Arc<Store>,
    applier: Applier,
    /// What the replica is told of.
    applied: u64,
    given: u64,
}

impl Process {
    /// A store with so many leases.
    fn new(leases: i64) -> Process {
        let disk = SimDisk::new();
        let opened = store::open(Arc::new(disk), Path::new("store"), store::Options::default()).expect("a new store");
        let mut process = Process {
            pending: Pending::default(),
            reads: ReadIndex::default(),
            lessor: Lessor::default(),
            store: opened.store,
            applier: opened.applier,
            applied: 5,
            given: 5,
        };
        for id in 1..=leases {
            let grant = LeaseGrantRequest { id, ttl: 600 };
            process.apply_in_store(InternalRaftRequest { lease_grant: Some(grant), ..Default::default() });
        }
        process
    }

    fn apply_in_store(&mut self, request: InternalRaftRequest) {
        let index = self.applier.applied_index() + 1;
        let header = Some(RequestHeader { id: index, ..Default::default() });
        let data = InternalRaftRequest { header, ..request }.encode_to_vec();
        let entry = Entry { index: Some(index), term: Some(1), data: Some(data.into()), ..Default::default() };
        self.applier.apply(&[entry], &mut Nowhere).expect("it applies");
    }

    fn note_remaining(&mut self, id: i64, remaining_ttl: i64) {
        let request = LeaseCheckpointRequest { checkpoints: vec![LeaseCheckpoint { id, remaining_ttl }] };
        self.apply_in_store(InternalRaftRequest { lease_checkpoint: Some(request), ..Default::default() });
    }
}

impl replica::Shell for Process {
    type Mark = ();
    type Waiter = Waits;
    type Read = ();
    type Source = ();
    type Fault = Infallible;

    fn pending<T>(&mut self, look: impl FnOnce(&mut Pending<Waits>) -> T) -> T {
        look(&mut self.pending)
    }
    fn read_index<T>(&mut self, look: impl FnOnce(&mut ReadIndex<()>) -> T) -> T {
        look(&mut self.reads)
    }
    fn has_reads(&self) -> bool {
        false
    }
    fn lessor<T>(&mut self, look: impl FnOnce(&mut Lessor, &Store) -> T) -> T {
        let before = self.lessor.count();
        let looked = look(&mut self.lessor, &self.store);
        let more = self.lessor.count() - before;
        assert!(more <= PIECE_MAX, "{more} leases under one hold of the lock");
        looked
    }
    fn message_taken(&mut self, _raft: &Member, (): ()) {}
    fn message_refused(&mut self, _from: u64, _mark: Option<()>, _error: &Error) {}
    fn send(&mut self, _messages: Vec<Message>) {}
    fn send_snapshot(&mut self, _message: Message, _export: Arc<Export>) {}
    fn applied(&self) -> u64 {
        self.applied
    }
    fn apply_queue_bytes(&self) -> usize {
        0
    }
    fn is_store_idle_or_tells(&mut self) -> bool {
        self.applied == self.given
    }
    fn wait_for_applied(&mut self, index: Option<u64>) -> bool {
        index.is_none_or(|index| index > self.applied)
    }
    fn apply(&mut self, entries: Vec<Entry>) -> Result<(), Infallible> {
        self.given = entries.last().map_or(self.given, Entry::index);
        Ok(())
    }
    fn apply_conf_change(
        &mut self,
        _entry: &Entry,
        _take_effect: impl FnMut(&ConfChange) -> Option<ConfState>,
    ) -> Result<(), Infallible> {
        unreachable!("the configuration stays");
    }
    fn install(&mut self, _prepared: Prepared, _metadata: &SnapshotMetadata) -> Result<(), Infallible> {
        unreachable!("there is no other member");
    }
    fn export(&mut self) -> Option<Export> {
        None
    }
    fn may_change(&mut self, _change: &ConfChange) -> Result<(), api::Error> {
        Ok(())
    }
    fn end_proposals(&mut self, _waiters: Vec<Waits>, _error: api::Error) {}
    fn end_reads(&mut self, _reads: Vec<()>, _error: api::Error) {}
    fn end_install(&mut self, (): (), _result: Result<(), String>) {}
    fn revoke(&mut self, _lease: i64) -> Option<Proposal<Waits>> {
        None
    }
    fn publish(&mut self, _status: &Status, _log_bytes: u64, _now: Now) {}
    fn note(&mut self, _note: Note<'_>) {}
    fn log_lost(&mut self, _proof: &Proof) {}
}

fn options() -> Options {
    Options {
        heartbeat: Duration::from_millis(100),
        election_timeout: ELECTION_TIMEOUT,
        election_head_start_ticks: 0,
        catchup_entries: 100,
        trim_entries: 100,
        keeps_for_active: false,
        log_bytes_max: 1 << 20,
        log_sending_bytes_max: 1 << 20,
        reads_max: 10,
        lease_ends_max: 10,
        lease_ends_at_once: 10,
        lease_expiries_per_second_max: 10,
        lease_takeover_piece_max: PIECE_MAX,
    }
}

fn now(ms: u64) -> Now {
    Now { at: Duration::from_millis(ms), ms }
}

/// Takes a turn.
fn turn(replica: &mut Replica<()>, process: &mut Process, now: Now) {
    replica.accept(process, Inputs::default(), now);
    replica.tick_if_due(process, now);
    loop {
        let Ok(()) = replica.advance(process, now);
        let batch = replica.take_log_batch(now);
        if batch.is_empty() {
            break;
        }
        replica.persisted(process, batch);
    }
    assert!(replica.settle(process, now).is_empty());
}

/// The only voter, just elected. Its first entry is committed and not applied.
fn elected(process: &mut Process) -> Replica<()> {
    let restored = Restored { applied: 5, applied_term: 1, conf_state: conf_state(&[1], &[]), ..Restored::default() };
    let member = Member::new(&config(1), restored).expect("it starts");
    let mut replica = Replica::new(member, options(), now(0));
    replica.begin(process, now(0));
    turn(&mut replica, process, now(0));
    assert!(process.lessor.is_primary() && process.given == 6, "{} was given", process.given);
    replica
}

#[test]
fn leases_are_taken_over_in_pieces() {
    let mut process = Process::new(1_050);
    let mut replica = elected(&mut process);
    process.applied = 6;
    let mut now_ms = 0;
    for pieces in 1..=11 {
        turn(&mut replica, &mut process, now(now_ms));
        assert_eq!(process.lessor.count(), 1_050.min(pieces * PIECE_MAX));
        // A turn that comes too soon leaves the time to others.
        turn(&mut replica, &mut process, now(now_ms));
        assert_eq!(process.lessor.count(), 1_050.min(pieces * PIECE_MAX));
        let next_ms = replica.deadline().as_millis() as u64;
        assert!(next_ms > now_ms && (pieces == 11 || next_ms < now_ms + 10), "{now_ms} {next_ms}");
        now_ms = next_ms;
    }
    assert!(now_ms >= 100, "the next tick");
    let left = (1..=1_050).map(|id| process.lessor.remaining_seconds(id, 0));
    assert!(left.into_iter().all(|left| left == Some(601)), "as of the first piece");
}

#[test]
fn a_checkpoint_that_was_taken_back_before_does_not_count() {
    let mut process = Process::new(1);
    process.note_remaining(1, 10);
    // A client was promised the whole time by the former leader. That entry is committed, but not applied here yet.
    let mut replica = elected(&mut process);
    for now_ms in [50, 100, 3_000] {
        turn(&mut replica, &mut process, now(now_ms));
        assert_eq!(process.lessor.count(), 0);
    }
    process.note_remaining(1, 0);
    process.applied = 6;
    turn(&mut replica, &mut process, now(4_000));
    assert_eq!(process.lessor.remaining_seconds(1, 4_000), Some(601));
}

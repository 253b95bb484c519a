//! The history of the clients, and whether it is linearizable.
//!
//! Every write names the entry that made it, and every read the revision of the store it saw. Entries have one order, and so
//! have revisions, so there is nothing to search for: the only order that can explain the history is that of the log, with each read
//! after the last entry of its revision. It does explain the history if
//! 1. each answer is what the model gives at that place in the log (checked against [`Model`]),
//! 2. an operation that began after another had ended comes after it (the *floor*: the newest entry whose effect some client knew when the
//!    operation began), and
//! 3. every write is in the log at most once, and not at all when it was refused.
//!
//! A serializable read may be anywhere before the newest entry, but must be true there.

use crate::model::Model;
use crate::operation::{Answer, Operation, Request, State};
use std::collections::BTreeMap;

/// How the operations of the clients ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Operations that began.
    pub begun: u64,
    /// Answered operations, including errors of the request.
    pub done: u64,
    /// Operations that were refused without effect.
    pub refused: u64,
    /// Operations without an answer.
    pub unknown: u64,
    /// Linearizable reads among those answered.
    pub reads: u64,
    /// Writes among those answered.
    pub writes: u64,
}

/// All operations so far.
#[derive(Default)]
pub(crate) struct History {
    pub(crate) operations: Vec<Operation>,
    by_request: BTreeMap<u64, usize>,
    pub(crate) model: Option<Model>,
    /// Index of the newest entry whose effect some client knows.
    floor: u64,
    /// The time until which a lease must live because a client was promised it, by lease.
    promised_us: BTreeMap<i64, u64>,
    /// No promise to a request from before this time holds: a clock has jumped.
    void_until_us: u64,
    /// How much of a promised time must pass by the world's clock, in thousandths.
    pub(crate) promise_per_mille: u64,
    pub(crate) counts: Counts,
}

impl History {
    pub(crate) fn new() -> History {
        History { model: Some(Model::new()), promise_per_mille: 1000, ..History::default() }
    }

    pub(crate) fn model(&self) -> &Model {
        let Some(model) = &self.model else { unreachable!("taken only while it learns an entry") };
        model
    }

    /// Begins an operation; returns its number.
    pub(crate) fn begin(&mut self, now_us: u64, client: Option<usize>, request_id: u64, request: Request) -> usize {
        let number = self.operations.len();
        let floor = self.floor;
        let state = State::Pending;
        self.by_request.insert(request_id, number);
        self.counts.begun += u64::from(client.is_some());
        self.operations.push(Operation {
            client,
            request_id,
            request,
            token: None,
            invoked_us: now_us,
            floor,
            applied: None,
            state,
        });
        number
    }

    /// The operation that an entry is about.
    pub(crate) fn of_request(&self, request_id: u64) -> Option<usize> {
        self.by_request.get(&request_id).copied()
    }

    /// Notes the entry of a request when the first member applies it.
    pub(crate) fn applied(&mut self, request_id: u64, index: u64) {
        let Some(number) = self.of_request(request_id) else { return };
        let operation = &mut self.operations[number];
        assert!(operation.state != State::Refused, "operation {number} was refused, and is applied as entry {index}");
        let before = operation.applied.replace(index);
        assert!(before.is_none(), "operation {number} is applied twice, as entries {before:?} and {index}");
        assert!(index > operation.floor, "operation {number} is applied as entry {index}, before it began");
    }

    /// Voids what leases were promised before now.
    pub(crate) fn void_promises(&mut self, now_us: u64) {
        self.void_until_us = now_us;
        self.promised_us.clear();
    }

    /// Checks the end of an expired lease when the first member applies it.
    pub(crate) fn expired(&self, now_us: u64, lease: i64) {
        let promised_us = self.promised_us.get(&lease).copied().unwrap_or_default();
        assert!(
            now_us >= promised_us,
            "lease {lease} expires at {now_us} us, but was promised to live until {promised_us} us"
        );
    }

    /// Takes an answer to a client. Answers to clients that have given up are still checked.
    pub(crate) fn answer(&mut self, number: usize, answer: &Answer) {
        let Some(model) = &self.model else { return };
        let operation = &mut self.operations[number];
        let was_pending = operation.state == State::Pending;
        let mut floor = self.floor;
        let linearizable = matches!(operation.request, Request::Read { linearizable: true, .. });
        operation.state = match answer {
            Answer::Applied { index, .. } => {
                assert!(operation.applied == Some(*index), "operation {number} was not applied as entry {index}");
                floor = *index;
                State::Done
            }
            Answer::Read { revision, count, kvs } => {
                check_read(model, operation, *revision, *count, kvs);
                if linearizable {
                    floor = model.index_of(*revision);
                }
                State::Done
            }
            Answer::Renewed { lease, ttl_seconds } => {
                if operation.invoked_us > self.void_until_us {
                    let until_us = operation.invoked_us + *ttl_seconds as u64 * 1_000 * self.promise_per_mille;
                    let promised_us = self.promised_us.entry(*lease).or_default();
                    *promised_us = until_us.max(*promised_us);
                }
                State::Done
            }
            Answer::Refused => {
                assert!(operation.applied.is_none(), "operation {number} was applied, and is refused");
                State::Refused
            }
            Answer::ReadIndex { applied } => {
                let floor = operation.floor;
                assert!(
                    *applied >= floor,
                    "an observer is told read index {applied}, and asked when entry {floor} was known"
                );
                State::Done
            }
            Answer::Unknown => State::Unknown,
        };
        if !was_pending {
            // The client was told that the outcome is unknown.
            operation.state = if operation.state == State::Refused { State::Refused } else { State::Unknown };
            return;
        }
        // A client that knows of an effect may tell other clients.
        self.floor = self.floor.max(floor);
        if operation.client.is_some() {
            let counts = &mut self.counts;
            match operation.state {
                State::Done => counts.done += 1,
                State::Refused => counts.refused += 1,
                _ => counts.unknown += 1,
            }
            counts.reads += u64::from(operation.state == State::Done && linearizable);
            counts.writes += u64::from(matches!(answer, Answer::Applied { .. }));
        }
    }
}

fn check_read(model: &Model, operation: &Operation, revision: i64, count: i64, kvs: &[api::mvccpb::KeyValue]) {
    let Request::Read { range, linearizable } = &operation.request else { panic!("a read nobody asked for") };
    assert!(revision <= model.revision(), "a read saw revision {revision}, which no entry has made yet");
    let expected = model.read(&range.key, &range.range_end, revision);
    assert!(
        expected == kvs && count == expected.len() as i64,
        "a read of {range:?} at revision {revision} gave {kvs:?}, not {expected:?}"
    );
    let known = model.revision_after(operation.floor);
    assert!(
        !linearizable || revision >= known,
        "a stale read: it saw revision {revision}, but began when a client knew of revision {known}"
    );
}

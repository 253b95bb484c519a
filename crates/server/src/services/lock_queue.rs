//! Whose turn it is: calls that wait until no older key is left under their prefix.
//!
//! A waiting call watches the key before its own, so that one deletion wakes one call. All of them share one thread, which also
//! notices within [`LOOK`] that a client has given up.

use super::local_client::{Answer, LocalClient, unknown, youngest_until};
use crate::node::{Node, Weight};
use api::etcdserverpb::watch_create_request::FilterType;
use api::etcdserverpb::{RangeResponse, WatchCreateRequest};
use api::{Code, Error, limits};
use bytes::Bytes;
use contain::lock;
use rpc::Status;
use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};
use store::watch::WatchStream;

/// Time between checks for clients that have given up.
const LOOK: Duration = Duration::from_millis(20);

/// A call that waits for a lock or an election.
pub(super) trait Contender: Send {
    /// Whether the client no longer waits for the answer.
    fn is_canceled(&self) -> bool;

    /// Called when it is this call's turn, or when the wait has failed.
    fn settle(self: Box<Self>, outcome: Answer<()>);
}

struct Waiter {
    /// Claims the memory of the waiting call: its name, key and headers.
    _held: Option<budget::Claim>,
    caller: LocalClient,
    prefix: Bytes,
    /// Keys created at this revision or earlier come first.
    before: i64,
    contender: Box<dyn Contender>,
    /// Watches the key before the call's own.
    watch: Option<WatchStream>,
}

/// A message to the thread.
enum Note {
    Begin(Box<Waiter>),
    /// The read index of this waiter is complete: it may read the store.
    Read(u64, Result<(), Error>),
    /// The result of this waiter's read.
    Found(u64, Answer<RangeResponse>),
    /// The watch of this waiter has responses.
    Look(u64),
}

#[derive(Default)]
struct Inbox {
    notes: Vec<Note>,
    closed: bool,
}

/// The calls of a member that wait for a lock or an election.
#[derive(Default)]
pub(crate) struct LockQueue {
    inbox: Mutex<Inbox>,
    arrived: Condvar,
    waiting: AtomicUsize,
}

impl LockQueue {
    /// Settles `contender` when no key created until `before` is left under `prefix`.
    pub(super) fn wait(&self, caller: LocalClient, prefix: Bytes, before: i64, contender: Box<dyn Contender>) {
        if self.waiting.load(Ordering::Relaxed) >= limits::TURNS_WAITING_MAX {
            return contender.settle(Err(unknown(Error::TooManyRequests)));
        }
        let held = match caller.weight().and(prefix.len()).claim(&caller.node.budget) {
            Ok(held) => held,
            Err(error) => return contender.settle(Err(unknown(error))),
        };
        self.waiting.fetch_add(1, Ordering::Relaxed);
        self.post(Note::Begin(Box::new(Waiter { _held: held, caller, prefix, before, contender, watch: None })));
    }

    /// Ends the thread. Waiting calls end with an error: the server has stopped.
    pub(crate) fn close(&self) {
        lock(&self.inbox).closed = true;
        self.arrived.notify_one();
    }

    /// Sends a note to the thread. If the thread has ended, the note and its call are dropped.
    fn post(&self, note: Note) {
        let mut inbox = lock(&self.inbox);
        if inbox.closed {
            drop(inbox);
            return drop(note);
        }
        inbox.notes.push(note);
        drop(inbox);
        self.arrived.notify_one();
    }

    /// Takes the notes that have arrived. If there are none, waits for one, but for at most [`LOOK`] unless `patient`.
    /// `None` once the queue is closed.
    fn take(&self, patient: bool) -> Option<Vec<Note>> {
        let mut inbox = lock(&self.inbox);
        if inbox.notes.is_empty() && !inbox.closed {
            inbox = if patient {
                self.arrived.wait(inbox).unwrap_or_else(PoisonError::into_inner)
            } else {
                self.arrived.wait_timeout(inbox, LOOK).unwrap_or_else(PoisonError::into_inner).0
            };
        }
        let notes = std::mem::take(&mut inbox.notes);
        (!inbox.closed).then_some(notes)
    }
}

/// The thread of all waiting calls.
pub(crate) fn run(own: &Arc<LockQueue>) {
    let mut queue = Queue { own, waiters: HashMap::new(), late: Vec::new(), next: 0 };
    let mut looked = Instant::now();
    while let Some(notes) = own.take(queue.waiters.is_empty()) {
        for note in notes {
            match note {
                Note::Begin(waiter) => queue.begin(*waiter),
                Note::Read(id, Ok(())) => queue.read(id),
                // The call keeps its place, which is a key in the store, and reads again under the next leader.
                Note::Read(id, Err(Error::LeaderChanged)) => queue.ask(id),
                Note::Read(id, Err(error)) => queue.settle(id, Err(unknown(error))),
                Note::Found(id, found) => queue.found(id, found),
                Note::Look(id) => queue.look(id),
            }
        }
        if looked.elapsed() >= LOOK {
            looked = Instant::now();
            queue.drop_canceled();
            queue.look_again();
        }
    }
}

struct Queue<'a> {
    own: &'a Arc<LockQueue>,
    waiters: HashMap<u64, Waiter>,
    /// Waiters for whose read the slow pool had no room.
    late: Vec<u64>,
    next: u64,
}

impl Queue<'_> {
    fn begin(&mut self, waiter: Waiter) {
        self.next = self.next.wrapping_add(1);
        self.waiters.insert(self.next, waiter);
        self.ask(self.next);
    }

    /// Starts a read index, after which the waiter reads which key is before its own.
    fn ask(&self, id: u64) {
        let Some(waiter) = self.waiters.get(&id) else { return };
        let own = self.own.clone();
        // The waiter's memory is already claimed for as long as it waits.
        waiter.caller.node.linearize(Weight::NONE, move |allowed| own.post(Note::Read(id, allowed)));
    }

    fn read(&mut self, id: u64) {
        let Some(waiter) = self.waiters.get(&id) else { return };
        let request = youngest_until(&waiter.prefix, waiter.before);
        let node = waiter.caller.node.clone();
        if !node.store.is_heavy(&request) {
            let found = waiter.caller.range_now(request);
            return self.found(id, found);
        }
        // A slow thread does the read, so that the other waiters are not delayed.
        let (own, caller) = (self.own.clone(), waiter.caller.clone());
        let look = move |_: Arc<Node>| own.post(Note::Found(id, caller.range_now(request)));
        if waiter.caller.node.slow.try_give(waiter.caller.weight().client(), node, look).is_err() {
            self.late.push(id);
        }
    }

    /// Watches the key before the waiter's own, or settles the waiter if there is none.
    fn found(&mut self, id: u64, found: Answer<RangeResponse>) {
        let found = match found {
            Ok(found) => found,
            Err(status) => return self.settle(id, Err(status)),
        };
        let Some(pair) = found.kvs.into_iter().next() else { return self.settle(id, Ok(())) };
        let Some(waiter) = self.waiters.get_mut(&id) else { return };
        let own = self.own.clone();
        let mut watch = waiter.caller.watches(move || own.post(Note::Look(id)));
        watch.create(WatchCreateRequest {
            key: pair.key,
            start_revision: found.header.map_or(0, |header| header.revision),
            filters: vec![FilterType::Noput as i32],
            ..Default::default()
        });
        waiter.watch = Some(watch);
        self.look(id);
    }

    /// Checks whether the key before the waiter's own is gone.
    fn look(&mut self, id: u64) {
        let Some(waiter) = self.waiters.get_mut(&id) else { return };
        let Some(watch) = &mut waiter.watch else { return };
        let mut gone = false;
        let mut failed = None;
        while let Some(response) = waiter.caller.read_watch(watch, None) {
            match response {
                Ok(response) if response.canceled && response.compact_revision > 0 => {
                    failed = Some(unknown(Error::Compacted));
                }
                // The client has too many watches.
                Ok(response) if response.canceled => failed = Some(Status::new(Code::Unknown, response.cancel_reason)),
                Ok(response) => gone |= !response.events.is_empty(),
                Err(status) => failed = Some(status),
            }
        }
        if gone {
            waiter.watch = None;
            self.ask(id);
        } else if let Some(status) = failed {
            self.settle(id, Err(status));
        }
    }

    fn settle(&mut self, id: u64, outcome: Answer<()>) {
        if let Some(waiter) = self.waiters.remove(&id) {
            self.own.waiting.fetch_sub(1, Ordering::Relaxed);
            waiter.contender.settle(outcome);
        }
    }

    /// Repeats the reads for which there was no slow thread. The waiters keep their places, which are keys in the
    /// store.
    fn look_again(&mut self) {
        for id in std::mem::take(&mut self.late) {
            self.ask(id);
        }
    }

    fn drop_canceled(&mut self) {
        let canceled: Vec<u64> =
            self.waiters.iter().filter(|(_, waiter)| waiter.contender.is_canceled()).map(|(id, _)| *id).collect();
        for id in canceled {
            self.settle(id, Err(Status::new(Code::Canceled, "context canceled")));
        }
    }
}

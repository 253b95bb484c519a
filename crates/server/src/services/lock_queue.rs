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

/// Time between looks for clients that have given up.
const LOOK: Duration = Duration::from_millis(20);

/// Who waits for a turn.
pub(super) trait Contender: Send {
    /// Nobody waits for the answer any more.
    fn is_canceled(&self) -> bool;

    /// The turn has come, or the wait has failed.
    fn settle(self: Box<Self>, outcome: Answer<()>);
}

struct Waiter {
    /// What all of it takes, name and key and headers.
    _held: Option<budget::Claim>,
    caller: LocalClient,
    prefix: Bytes,
    /// Keys created until here come first.
    before: i64,
    contender: Box<dyn Contender>,
    /// Of the key before its own.
    watch: Option<WatchStream>,
}

/// What the thread is told.
enum Note {
    Begin(Box<Waiter>),
    /// This waiter may look at the state.
    Read(u64, Result<(), Error>),
    /// What this waiter has found there.
    Found(u64, Answer<RangeResponse>),
    /// The watch of this waiter has something to say.
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

    /// Ends the thread; who waits is told that the server has stopped.
    pub(crate) fn close(&self) {
        lock(&self.inbox).closed = true;
        self.arrived.notify_one();
    }

    /// A note to a thread that has ended is dropped, and with it the call it is about.
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

    /// What has arrived; waits for it, with calls to look after no longer than [`LOOK`]. None: the end.
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
                // It keeps its place in the queue, which is in the store: who is before it is asked of the next leader.
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
    /// Those that found no slow thread to look at the state for them.
    late: Vec<u64>,
    next: u64,
}

impl Queue<'_> {
    fn begin(&mut self, waiter: Waiter) {
        self.next = self.next.wrapping_add(1);
        self.waiters.insert(self.next, waiter);
        self.ask(self.next);
    }

    /// Reads who is before this one, once that may be read.
    fn ask(&self, id: u64) {
        let Some(waiter) = self.waiters.get(&id) else { return };
        let own = self.own.clone();
        // What the waiter holds is claimed for as long as it waits.
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
        // The others do not wait for it.
        let (own, caller) = (self.own.clone(), waiter.caller.clone());
        let look = move |_: Arc<Node>| own.post(Note::Found(id, caller.range_now(request)));
        if waiter.caller.node.slow.try_give(node, look).is_err() {
            self.late.push(id);
        }
    }

    /// Waits for the key before its own, if there is one.
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

    /// Looks whether the key before this one's is gone.
    fn look(&mut self, id: u64) {
        let Some(waiter) = self.waiters.get_mut(&id) else { return };
        let Some(watch) = &mut waiter.watch else { return };
        let mut gone = false;
        let mut failed = None;
        while let Some(response) = waiter.caller.read_watch(watch) {
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

    /// They keep their places, which are in the store.
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

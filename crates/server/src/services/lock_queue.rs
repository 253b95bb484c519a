//! Whose turn it is: calls that wait until no older key is left under their prefix.
//!
//! A waiting call watches the key before its own, so that one deletion wakes one call. All of them share one thread, which also
//! notices within [`LOOK`] that a client has given up. A client may have many calls wait for the same key with one lease: one deletion wakes all of
//! these, so they share one search for the key that is before them then, and the thread serves addresses in turn.

use super::local_client::{Answer, LocalClient, Predecessor, unknown, youngest_until};
use crate::node::Weight;
use crate::turns::{Places, Turns, Whose, whose};
use api::etcdserverpb::WatchCreateRequest;
use api::etcdserverpb::watch_create_request::FilterType;
use api::{Code, Error, limits};
use bytes::Bytes;
use contain::lock;
use rpc::Status;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};
use store::watch::WatchStream;

/// Calls that may wait. Tests need few.
const WAITING_MAX: usize = if cfg!(test) { 16 } else { limits::TURNS_WAITING_MAX };

/// The same where there is little memory, of which each takes up to 20 KB: one for 128 KiB.
fn waiting_max() -> usize {
    let by_memory = host::memory_limit_bytes().map_or(u64::MAX, |limit| (limit >> 17).max(1024));
    WAITING_MAX.min(usize::try_from(by_memory).unwrap_or(usize::MAX))
}
/// Time between checks for clients that have given up.
const LOOK: Duration = Duration::from_millis(20);

/// A call that waits for a lock or an election.
pub(super) trait Contender: Send {
    /// Whether the client no longer waits for the answer.
    fn is_canceled(&self) -> bool;

    /// Called when it is this call's turn, or when the wait has failed.
    fn settle(self: Box<Self>, outcome: Answer<()>);
}

/// What a waiter searches: the youngest key under a prefix that is older than its own.
#[derive(Clone, PartialEq, Eq, Hash)]
struct Search {
    whose: Whose,
    prefix: Bytes,
    /// Keys created at this revision or earlier come first.
    before: i64,
}

struct Waiter {
    /// Claims the memory of the waiting call: its name, key and headers.
    _held: Option<budget::Claim>,
    caller: LocalClient,
    search: Search,
    contender: Box<dyn Contender>,
    /// Watches the key before the call's own.
    watch: Option<WatchStream>,
}

/// A message to the thread.
enum Note {
    Begin(Box<Waiter>),
    /// The read index of this waiter is complete: it may read the store.
    Read(u64, Result<(), Error>),
    /// There are waiters that may make this search.
    Search(Search),
    /// The result of this waiter's search.
    Found(u64, Result<Predecessor, Error>),
    /// The watch of this waiter has responses.
    Look(u64),
}

struct Inbox {
    notes: Turns<Note>,
    /// Waiters that may read the store, by what they search. Whoever searches takes them, and searches for all of them.
    ready: HashMap<Search, Vec<u64>>,
    /// The places of calls that wait.
    places: Places,
    closed: bool,
}

/// The calls of a member that wait for a lock or an election.
pub(crate) struct LockQueue {
    inbox: Mutex<Inbox>,
    arrived: Condvar,
}

impl Default for LockQueue {
    fn default() -> LockQueue {
        let (notes, ready, places) = (Turns::default(), HashMap::new(), Places::new(waiting_max()));
        LockQueue { inbox: Mutex::new(Inbox { notes, ready, places, closed: false }), arrived: Condvar::new() }
    }
}

impl LockQueue {
    /// Settles `contender` when no key created until `before` is left under `prefix`.
    pub(super) fn wait(&self, caller: LocalClient, prefix: Bytes, before: i64, contender: Box<dyn Contender>) {
        let whose = whose(caller.weight().client());
        let held = match caller.weight().and(prefix.len()).claim(&caller.node.budget) {
            Ok(held) => held,
            Err(error) => return contender.settle(Err(unknown(error))),
        };
        let has_place = lock(&self.inbox).places.take(whose);
        if !has_place {
            return contender.settle(Err(unknown(Error::TooManyRequests)));
        }
        let search = Search { whose, prefix, before };
        self.post(whose, Note::Begin(Box::new(Waiter { _held: held, caller, search, contender, watch: None })));
    }

    /// Ends the thread. Waiting calls end with an error: the server has stopped.
    pub(crate) fn close(&self) {
        lock(&self.inbox).closed = true;
        self.arrived.notify_one();
    }

    /// Sends a note to the thread. If the thread has ended, the note and its call are dropped.
    fn post(&self, whose: Whose, note: Note) {
        let mut inbox = lock(&self.inbox);
        if inbox.closed {
            drop(inbox);
            return drop(note);
        }
        inbox.notes.add(whose, note);
        drop(inbox);
        self.arrived.notify_one();
    }

    /// Takes the next note. If there is none, waits for one, but for at most [`LOOK`] unless `patient`. `None` once the
    /// queue is closed.
    fn take(&self, patient: bool) -> Option<Option<Note>> {
        let mut inbox = lock(&self.inbox);
        if inbox.notes.len() == 0 && !inbox.closed {
            inbox = if patient {
                self.arrived.wait(inbox).unwrap_or_else(PoisonError::into_inner)
            } else {
                self.arrived.wait_timeout(inbox, LOOK).unwrap_or_else(PoisonError::into_inner).0
            };
        }
        if !inbox.closed {
            return Some(inbox.notes.next());
        }
        // Dropped without the lock, because they own calls.
        let notes = std::mem::take(&mut inbox.notes);
        drop(inbox);
        drop(notes);
        None
    }

    /// Adds a waiter that may read the store. Returns whether its search is to be begun.
    fn add_ready(&self, search: Search, id: u64) -> bool {
        match lock(&self.inbox).ready.entry(search) {
            Entry::Vacant(none) => {
                none.insert(vec![id]);
                true
            }
            Entry::Occupied(mut ready) => {
                ready.get_mut().push(id);
                false
            }
        }
    }

    /// Searches for all waiters that are ready now.
    fn search(&self, caller: &LocalClient, search: &Search) {
        // Those that are ready from now on need a later search.
        let ready = lock(&self.inbox).ready.remove(search).unwrap_or_default();
        let found = caller.predecessor(&youngest_until(&search.prefix, search.before));
        for id in ready {
            self.post(search.whose, Note::Found(id, found.clone()));
        }
    }
}

/// The thread of all waiting calls.
pub(crate) fn run(own: &Arc<LockQueue>) {
    let mut queue = Queue { own, waiters: HashMap::new(), late: Vec::new(), next: 0 };
    let mut looked = Instant::now();
    while let Some(note) = own.take(queue.waiters.is_empty()) {
        match note {
            Some(Note::Begin(waiter)) => queue.begin(*waiter),
            Some(Note::Read(id, Ok(()))) => queue.read(id),
            // The call keeps its place, which is a key in the store, and reads again under the next leader.
            Some(Note::Read(id, Err(Error::LeaderChanged))) => queue.ask(id),
            Some(Note::Read(id, Err(error))) => queue.settle(id, Err(unknown(error))),
            Some(Note::Search(search)) => queue.search(search),
            Some(Note::Found(id, found)) => queue.found(id, found),
            Some(Note::Look(id)) => queue.look(id),
            None => {}
        }
        if looked.elapsed() >= LOOK {
            looked = Instant::now();
            queue.drop_canceled();
            queue.search_again();
        }
    }
}

struct Queue<'a> {
    own: &'a Arc<LockQueue>,
    waiters: HashMap<u64, Waiter>,
    /// Searches for which the slow pool had no room.
    late: Vec<Search>,
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
        let (own, whose) = (self.own.clone(), waiter.search.whose);
        // The waiter's memory is already claimed for as long as it waits.
        waiter.caller.node.linearize(Weight::NONE, move |allowed| own.post(whose, Note::Read(id, allowed)));
    }

    /// Has the waiter take part in the next search for the key before its own.
    fn read(&mut self, id: u64) {
        let Some(waiter) = self.waiters.get(&id) else { return };
        let search = waiter.search.clone();
        // Nothing is searched for a client that may not see it.
        if let Err(status) = waiter.caller.may(youngest_until(&search.prefix, search.before)) {
            return self.settle(id, Err(status));
        }
        if self.own.add_ready(search.clone(), id) {
            // Behind the other notes of this client: what they make ready shares the search.
            self.own.post(search.whose, Note::Search(search));
        }
    }

    fn search(&mut self, search: Search) {
        let caller = lock(&self.own.inbox).ready.get_mut(&search).and_then(|ready| {
            ready.retain(|id| self.waiters.contains_key(id));
            self.waiters.get(ready.first()?).map(|waiter| waiter.caller.clone())
        });
        let Some(caller) = caller else {
            // Their clients have gone.
            lock(&self.own.inbox).ready.remove(&search);
            return;
        };
        if !caller.node.store.is_heavy(&youngest_until(&search.prefix, search.before)) {
            return self.own.search(&caller, &search);
        }
        // A slow thread does the search, so that the other waiters are not delayed.
        let (own, node, client) = (self.own.clone(), caller.node.clone(), caller.weight().client());
        let look = move |search: Search| own.search(&caller, &search);
        if let Err(search) = node.slow.try_give(client, search, look) {
            self.late.push(search);
        }
    }

    /// Watches the key before the waiter's own, or settles the waiter if there is none.
    fn found(&mut self, id: u64, found: Result<Predecessor, Error>) {
        let Some(waiter) = self.waiters.get_mut(&id) else { return };
        let found = match found {
            Ok(found) => found,
            Err(error) => return self.settle(id, Err(unknown(error))),
        };
        // The search may have been made for another call.
        if let Err(status) = waiter.caller.may(youngest_until(&waiter.search.prefix, waiter.search.before)) {
            return self.settle(id, Err(status));
        }
        if waiter.caller.node.store.auth().revision() != found.users {
            // Users have changed since: it may not have been allowed to see this.
            return self.ask(id);
        }
        let Some(key) = found.key else { return self.settle(id, Ok(())) };
        let whose = waiter.search.whose;
        let own = self.own.clone();
        let mut watch = waiter.caller.watches(move || own.post(whose, Note::Look(id)));
        watch.create(WatchCreateRequest {
            key,
            start_revision: found.revision,
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
            lock(&self.own.inbox).places.leave(waiter.search.whose);
            waiter.contender.settle(outcome);
        }
    }

    /// Repeats the searches for which there was no slow thread. The waiters keep their places, which are keys in the
    /// store.
    fn search_again(&mut self) {
        for search in std::mem::take(&mut self.late) {
            self.search(search);
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

#[cfg(test)]
mod tests {
    use super::*;
    use rpc::Address;

    #[test]
    fn addresses_are_served_in_turn() {
        let queue = LockQueue::default();
        let host = |last: u8| whose(Some(Address::Tcp(([10, 0, 0, last], 1).into())));
        (0..1_000).for_each(|id| queue.post(host(1), Note::Look(id)));
        queue.post(host(2), Note::Look(1_000));
        let next = || match queue.take(false) {
            Some(Some(Note::Look(id))) => id,
            _ => panic!("a note"),
        };
        assert_eq!([next(), next(), next()], [0, 1_000, 1]);
    }
}

//! Memory for the events of one stream: claimed before they are built, and waited for by this stream alone.

use crate::node::Node;
use api::Error;
use budget::{Claim, Pool};
use bytes::Bytes;
use contain::lock;
use rpc::{Address, Source, StreamWaker};
use std::sync::{Arc, Mutex, Weak};
use store::watch::Room;

/// What a stream has been promised.
#[derive(Default)]
enum Promise {
    #[default]
    None,
    /// The stream is woken once there is room.
    Waiting,
    Granted(Claim),
}

/// Where a stream has memory for its events from.
pub(super) struct Rooms {
    node: Arc<Node>,
    client: Address,
    waker: StreamWaker,
    promise: Arc<Mutex<Promise>>,
}

impl Rooms {
    pub(super) fn new(node: &Arc<Node>, client: Address, waker: StreamWaker) -> Rooms {
        Rooms { node: node.clone(), client, waker, promise: Arc::default() }
    }

    /// Claims `bytes`, or has the stream woken once it may have them if it `waits`.
    pub(super) fn ask(&self, bytes: usize, waits: bool) -> Option<Arc<dyn Room>> {
        let bytes = bytes as u64;
        let granted = {
            let mut promise = lock(&self.promise);
            match &*promise {
                Promise::Waiting => return None,
                Promise::Granted(_) if !waits => return None,
                _ => std::mem::take(&mut *promise),
            }
        };
        if let Promise::Granted(mut claim) = granted
            && (claim.bytes() >= bytes || claim.is_whole_pool())
        {
            claim.resize(bytes.min(claim.bytes()));
            return Some(Arc::new(Claimed(Mutex::new(claim))));
        }
        match self.node.budget.try_claim(Pool::of_answer(bytes), bytes, Some(self.client)) {
            Some(claim) => return Some(Arc::new(Claimed(Mutex::new(claim)))),
            None if waits => self.wait(bytes),
            None => {}
        }
        None
    }

    /// Whether what was asked for was neither granted nor given up yet.
    pub(super) fn is_waiting(&self) -> bool {
        matches!(*lock(&self.promise), Promise::Waiting)
    }

    /// Waits for `bytes`. This is noted first: what is waited for may come at once.
    fn wait(&self, bytes: u64) {
        *lock(&self.promise) = Promise::Waiting;
        let promise = Arc::downgrade(&self.promise);
        Wanted { promise, waker: self.waker.clone(), client: self.client, bytes }.wait(&self.node);
    }

    /// Gives back what was granted and is not needed any more.
    pub(super) fn settle(&self) {
        let unused = {
            let mut promise = lock(&self.promise);
            match &*promise {
                Promise::Granted(_) => std::mem::take(&mut *promise),
                Promise::None | Promise::Waiting => Promise::None,
            }
        };
        drop(unused);
    }
}

/// What a stream waits for.
struct Wanted {
    promise: Weak<Mutex<Promise>>,
    waker: StreamWaker,
    client: Address,
    bytes: u64,
}

impl Wanted {
    /// Wakes the stream once it may have the memory. If too many wait, or it takes too long, it is asked for again later.
    fn wait(self, node: &Arc<Node>) {
        let (own, bytes) = (node.clone(), self.bytes);
        node.budget.wait(Pool::of_answer(bytes), bytes, Some(self.client), move |claim| match claim {
            Ok(claim) => {
                if let Some(promise) = self.promise.upgrade() {
                    *lock(&promise) = Promise::Granted(claim);
                    self.waker.wake();
                }
            }
            Err(Error::Stopped) => {}
            Err(_) => own.late_rooms.add(self),
        });
    }
}

/// A claim that its bytes hold.
struct Claimed(Mutex<Claim>);

impl Room for Claimed {
    fn shrink(&self, bytes: usize) {
        let mut claim = lock(&self.0);
        let bytes = (bytes as u64).min(claim.bytes());
        claim.resize(bytes);
    }
}

/// What makes a message, with the memory that it takes until it is sent.
pub(super) struct Kept {
    pub(super) source: Box<dyn Source>,
    pub(super) _room: Arc<dyn Room>,
}

impl Source for Kept {
    fn next(&mut self, bytes_max: usize) -> Option<Bytes> {
        self.source.next(bytes_max)
    }
}

/// What was refused a place among what waits, or has waited for long: it is asked for again after a while. The streams are not woken
/// for that, because each would measure again what it needs.
#[derive(Default)]
pub(crate) struct LateRooms(Mutex<Vec<Wanted>>);

impl LateRooms {
    fn add(&self, wanted: Wanted) {
        lock(&self.0).push(wanted);
    }

    /// Asks for all of it again.
    pub(crate) fn fire(node: &Arc<Node>) {
        let late = std::mem::take(&mut *lock(&node.late_rooms.0));
        // Those of streams that have ended are dropped.
        late.into_iter().filter(|wanted| wanted.promise.strong_count() > 0).for_each(|wanted| wanted.wait(node));
    }
}

//! Memory for the events of one stream: claimed before they are built, and waited for by this stream alone.

use crate::node::Node;
use api::Error;
use budget::{Claim, Pool};
use bytes::Bytes;
use contain::lock;
use rpc::{Address, Source, StreamWaker};
use std::sync::{Arc, Mutex, Weak};
use store::watch::Room;

/// Where a stream has memory for its events from.
pub(super) struct Rooms {
    node: Arc<Node>,
    client: Address,
    waker: StreamWaker,
    asked: Option<Asked>,
}

/// What a stream waits for.
struct Asked {
    bytes: u64,
    grant: Arc<Grant>,
}

/// The memory, once it is there. The stream alone keeps this alive: what comes for one that is gone is given back.
type Grant = Mutex<Option<Claim>>;

impl Asked {
    /// Whether it was neither granted nor given up yet.
    fn is_waiting(&self) -> bool {
        lock(&self.grant).is_none()
    }
}

impl Rooms {
    pub(super) fn new(node: &Arc<Node>, client: Address, waker: StreamWaker) -> Rooms {
        Rooms { node: node.clone(), client, waker, asked: None }
    }

    /// Claims `bytes`, or has the stream woken once it may have them if it `waits`: then it does not wait any more for what it asked for
    /// before.
    pub(super) fn ask(&mut self, bytes: usize, waits: bool) -> Option<Arc<dyn Room>> {
        let bytes = bytes as u64;
        if let Some(asked) = &self.asked
            && (!waits || (asked.bytes == bytes && asked.is_waiting()))
        {
            return None;
        }
        if let Some(mut claim) = self.give_up()
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
        self.asked.as_ref().is_some_and(Asked::is_waiting)
    }

    /// Waits for `bytes`. This is noted first: what is waited for may come at once.
    fn wait(&mut self, bytes: u64) {
        let grant = Arc::default();
        let wanted = Wanted {
            grant: Arc::downgrade(&grant),
            waker: self.waker.clone(),
            client: self.client,
            bytes,
            compact_revision: -1,
        };
        self.asked = Some(Asked { bytes, grant });
        wanted.wait(&self.node);
    }

    /// Gives back what was granted and is not needed any more, and what was asked for unless the stream still `waits` for that.
    pub(super) fn settle(&mut self, waits: bool) {
        if !(waits && self.is_waiting()) {
            drop(self.give_up());
        }
    }

    /// Waits for nothing any more. Returns what was granted.
    fn give_up(&mut self) -> Option<Claim> {
        let Asked { bytes, grant } = self.asked.take()?;
        let granted = lock(&grant).take();
        drop(grant);
        if granted.is_none() {
            self.node.budget.leave(Pool::of_answer(bytes), Some(self.client));
        }
        granted
    }
}

impl Drop for Rooms {
    fn drop(&mut self) {
        drop(self.give_up());
    }
}

/// A claim that a stream waits for.
struct Wanted {
    grant: Weak<Grant>,
    waker: StreamWaker,
    client: Address,
    bytes: u64,
    /// What was compacted when the stream was last woken for that; -1 before.
    compact_revision: i64,
}

impl Wanted {
    /// Whether its stream waits for this.
    fn is_needed(&self) -> bool {
        self.grant.strong_count() > 0
    }

    /// Wakes the stream once it may have the memory. If too many wait, or it takes too long, it is asked for again later.
    fn wait(self, node: &Arc<Node>) {
        let (own, bytes) = (node.clone(), self.bytes);
        let grant = self.grant.clone();
        let is_needed = move || grant.strong_count() > 0;
        node.budget.wait_while(Pool::of_answer(bytes), bytes, Some(self.client), is_needed, move |claim| match claim {
            Ok(claim) => {
                if let Some(grant) = self.grant.upgrade() {
                    *lock(&grant) = Some(claim);
                    self.waker.wake();
                }
            }
            Err(Error::Stopped) => {}
            Err(_) if self.is_needed() => own.late_rooms.add(self),
            Err(_) => {}
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

/// What was refused a place among what waits, or has waited for long: it is asked for again after a while. The streams are woken only
/// to be told of a compaction: each would measure again what it needs.
#[derive(Default)]
pub(crate) struct LateRooms(Mutex<Vec<Wanted>>);

impl LateRooms {
    fn add(&self, wanted: Wanted) {
        lock(&self.0).push(wanted);
    }

    /// Asks for all of it again.
    pub(crate) fn fire(node: &Arc<Node>) {
        let late = std::mem::take(&mut *lock(&node.late_rooms.0));
        let compact_revision = node.store.compact_revision();
        // What is not needed any more is dropped.
        for mut wanted in late.into_iter().filter(Wanted::is_needed) {
            if std::mem::replace(&mut wanted.compact_revision, compact_revision) != compact_revision {
                wanted.waker.wake();
            }
            wanted.wait(node);
        }
    }
}

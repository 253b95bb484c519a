//! The hub: takes every revision from the applier, finds the watchers of each change, and fills the queues of their streams.

use std::sync::{Arc, PoisonError};

use bytes::Bytes;
use slab::Slab;

use super::block::Hit;
use super::interest::Interests;
use super::matcher::Matcher;
use super::spec::Spec;
use super::stream_queue::{Audience, Item, LiveEvent, LiveRevision, StreamQueue};
use super::{Event, Metrics, Options};
use crate::mistake::Mistake;
use crate::sync::atomic::{AtomicUsize, Ordering};
use crate::sync::{Mutex, MutexGuard};
use crate::types::Loc;

/// Called, from any thread, when a stream has something to poll.
pub type Wake = Arc<dyn Fn() + Send + Sync>;

/// Reads stored bytes that were flushed. `None` when the place is no longer known (its segment was rewritten meanwhile); the
/// streams concerned then read the log.
pub type Reader = Box<dyn Fn(Loc) -> Option<Bytes> + Send + Sync>;

/// Interests added or removed under one hold of the hub's lock, which the applier waits for.
const REGISTER_STRIDE: usize = 64;

/// One interest of one stream, as the matcher knows it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Subscriber {
    queue: u32,
    interest: u32,
    no_put: bool,
    no_delete: bool,
    prev_kv: bool,
}

impl Subscriber {
    fn new(queue: u32, interest: u32, spec: &Spec) -> Self {
        Subscriber { queue, interest, no_put: spec.no_put, no_delete: spec.no_delete, prev_kv: spec.prev_kv }
    }

    fn accepts(&self, kind: super::Kind) -> bool {
        match kind {
            super::Kind::Put => !self.no_put,
            super::Kind::Delete => !self.no_delete,
        }
    }
}

/// A queue and what the publication under way has for it.
struct QueueSlot {
    queue: Arc<StreamQueue>,
    /// Its queue was full; until its stream has seen that, nothing is pushed.
    lagging: bool,
    hits: Vec<Hit>,
    hits_total: usize,
    overflow: Option<i64>,
    items: Vec<Item>,
}

struct State {
    /// Everything up to here was pushed, and readers see it.
    level: i64,
    matcher: Matcher<Subscriber>,
    queues: Slab<QueueSlot>,
    /// Queues for which the publication under way has something; may name one twice.
    fed: Vec<u32>,
}

/// Takes every revision from the applier and hands it to the streams that want it.
pub struct Hub {
    /// Interests in the matcher. Changes under the lock.
    registered: AtomicUsize,
    state: Mutex<State>,
    reader: Reader,
    options: Options,
    metrics: Metrics,
}

impl Hub {
    /// A hub for a store that is at `revision`.
    pub fn new(revision: i64, reader: Reader, options: Options) -> Hub {
        Hub {
            registered: AtomicUsize::new(0),
            state: Mutex::new(State { level: revision, matcher: Matcher::new(), queues: Slab::new(), fed: Vec::new() }),
            reader,
            options,
            metrics: Metrics::default(),
        }
    }

    /// True when no watcher is registered (there may be some that read the log). A hint that events need not be built;
    /// [`Publication::is_idle`] decides.
    pub fn is_idle(&self) -> bool {
        self.registered.load(Ordering::Relaxed) == 0
    }

    /// Begins to publish. To be called by the applier alone, before readers can see what it publishes: until the publication ends,
    /// no watcher registers and none is told how far the store is. So a watcher never begins before a revision that a reader has seen,
    /// and no reader sees less than a watcher was told.
    pub fn begin(&self) -> Publication<'_> {
        Publication { hub: self, state: self.lock() }
    }

    /// Publishes revisions that readers see already.
    pub fn publish(&self, revisions: &[(i64, &[Event])]) {
        self.begin().publish(revisions);
    }

    /// Says that readers see revisions up to `revision` whose events were not built.
    pub fn skip_to(&self, revision: i64) {
        self.begin().skip_to(revision);
    }

    /// Counters.
    pub fn metrics(&self) -> &Metrics {
        &self.metrics
    }

    pub(super) fn options(&self) -> &Options {
        &self.options
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Matches one revision.
    fn route(&self, state: &mut State, main: i64, events: &[Event]) {
        let State { matcher, queues, fed, .. } = state;
        // Events with a subscriber, and whether one wants the previous value.
        let mut picked: Vec<(usize, bool)> = Vec::new();
        let mut touched: Vec<u32> = Vec::new();
        let mut looked = 0usize;
        for (index, event) in events.iter().enumerate() {
            if looked > self.options.route_hits_max {
                return leave_to_the_log(queues, fed, main);
            }
            matcher.visit(&event.key, |subscriber| {
                looked = looked.wrapping_add(1);
                let Some(slot) = queues.get_mut(subscriber.queue as usize) else { return };
                if slot.lagging || slot.overflow.is_some() || !subscriber.accepts(event.kind) {
                    return;
                }
                if picked.last().is_none_or(|last| last.0 != index) {
                    picked.push((index, false));
                }
                if let Some(last) = picked.last_mut() {
                    last.1 |= subscriber.prev_kv;
                }
                let at = picked.len().wrapping_sub(1);
                if slot.hits.is_empty() {
                    touched.push(subscriber.queue);
                }
                slot.hits.push((subscriber.interest, at as u32));
                slot.hits_total = slot.hits_total.saturating_add(1);
                if slot.hits_total > self.options.queue_events_max {
                    slot.overflow = Some(main);
                }
            });
        }
        if touched.is_empty() {
            return;
        }
        let revision = self.read(main, events, &picked);
        for &queue in &touched {
            let Some(slot) = queues.get_mut(queue as usize) else { continue };
            let hits = std::mem::take(&mut slot.hits);
            match &revision {
                Some(revision) => slot.items.push(Item { revision: revision.clone(), hits }),
                None => slot.overflow = Some(main),
            }
        }
        fed.extend(touched);
    }

    fn read(&self, main: i64, events: &[Event], picked: &[(usize, bool)]) -> Option<Arc<LiveRevision>> {
        let events: Option<Vec<LiveEvent>> = picked
            .iter()
            .map(|&(index, with_prev)| {
                let event = events.get(index)?;
                let prev = match event.prev {
                    Some(loc) if with_prev => Some((self.reader)(loc)?),
                    _ => None,
                };
                Some(LiveEvent { kind: event.kind, stored: (self.reader)(event.loc)?, prev })
            })
            .collect();
        Some(Arc::new(LiveRevision { main, events: events? }))
    }

    /// Gives the queues what was collected for them. Those to wake are called once the lock is free.
    fn hand_over(&self, state: &mut State, wakes: &mut Vec<Arc<StreamQueue>>) {
        let State { queues, fed, .. } = state;
        for queue in fed.drain(..) {
            let Some(slot) = queues.get_mut(queue as usize) else { continue };
            slot.hits_total = 0;
            let overflow = slot.overflow.take();
            if slot.lagging || (overflow.is_none() && slot.items.is_empty()) {
                continue;
            }
            let (lagging, wake) =
                slot.queue.push(&mut slot.items, overflow, self.options.queue_events_max, &self.metrics);
            slot.lagging = lagging;
            if wake {
                wakes.push(slot.queue.clone());
            }
        }
    }

    /// Adds a stream.
    pub(super) fn attach(&self, queue: Arc<StreamQueue>) -> u32 {
        self.metrics.add_streams(1);
        self.lock().queues.insert(QueueSlot {
            queue,
            lagging: false,
            hits: Vec::new(),
            hits_total: 0,
            overflow: None,
            items: Vec::new(),
        }) as u32
    }

    /// Removes a stream whose interests were all unregistered.
    pub(super) fn detach(&self, queue: u32) {
        let slot = self.lock().queues.remove(queue as usize);
        slot.queue.close(&self.metrics);
        self.metrics.add_streams(-1);
    }

    /// The revision up to which everything was pushed, which is what readers see.
    pub(super) fn level(&self) -> i64 {
        self.lock().level
    }

    /// Registers interests of a stream. Everything after the returned level will be pushed for them.
    pub(super) fn register(&self, queue: u32, interests: &[(u32, Spec)]) -> i64 {
        let mut strides = interests.chunks(REGISTER_STRIDE);
        let mistaken = Mistake::LevelBeforeRegistration.is_planted().then(|| self.level());
        loop {
            let mut state = self.lock();
            let Some(stride) = strides.next() else { return state.level };
            for (interest, spec) in stride {
                state.matcher.insert(spec, Subscriber::new(queue, *interest, spec));
            }
            self.registered.fetch_add(stride.len(), Ordering::Relaxed);
            if strides.len() == 0 {
                return mistaken.unwrap_or(state.level);
            }
        }
    }

    /// Takes back [`Hub::register`].
    pub(super) fn unregister(&self, queue: u32, interests: &[(u32, Spec)]) {
        for stride in interests.chunks(REGISTER_STRIDE) {
            let mut state = self.lock();
            for (interest, spec) in stride {
                state.matcher.remove(spec, Subscriber::new(queue, *interest, spec));
            }
            self.registered.fetch_sub(stride.len(), Ordering::Relaxed);
        }
    }

    /// Takes back everything a stream has registered.
    pub(super) fn unregister_all(&self, queue: u32, interests: &Interests) {
        let all: Vec<(u32, Spec)> =
            interests.iter().map(|(number, interest)| (number, interest.spec.clone())).collect();
        self.unregister(queue, &all);
    }

    /// Makes a stream whose queue overflowed an ordinary one again. Nothing of it is registered any more.
    pub(super) fn end_lag(&self, queue: u32) {
        let mut state = self.lock();
        if let Some(slot) = state.queues.get_mut(queue as usize) {
            slot.lagging = false;
            slot.queue.reset();
        }
    }

    /// Queues a progress answer after all events up to the level.
    pub(super) fn push_progress(&self, queue: u32, audience: Audience) {
        let state = self.lock();
        let level = state.level;
        if let Some(slot) = state.queues.get(queue as usize) {
            slot.queue.push_progress(level, audience);
        }
    }
}

/// The hub while the applier publishes, see [`Hub::begin`]. Ends when it is published, and changes nothing when it is dropped before.
pub struct Publication<'a> {
    hub: &'a Hub,
    state: MutexGuard<'a, State>,
}

impl Publication<'_> {
    /// Whether no watcher is registered. The applier then calls [`Publication::skip_to`] and need not build events.
    pub fn is_idle(&self) -> bool {
        self.hub.is_idle()
    }

    /// Pushes revisions that readers can see now, ascending, all their events in order. A revision without events may be left out.
    pub fn publish(mut self, revisions: &[(i64, &[Event])]) {
        for &(main, events) in revisions {
            self.advance(main);
            self.hub.route(&mut self.state, main, events);
        }
        self.end();
    }

    /// Says that readers can see revisions up to `revision` whose events were not built: no watcher is registered, or the store's content
    /// was replaced by a snapshot. Watchers that are registered nevertheless read them from the log.
    pub fn skip_to(mut self, revision: i64) {
        let before = self.state.level;
        self.advance(revision);
        if !self.is_idle() && revision > before {
            let State { queues, fed, .. } = &mut *self.state;
            for (queue, slot) in queues {
                slot.overflow = Some(before.saturating_add(1));
                fed.push(queue as u32);
            }
        }
        self.end();
    }

    fn advance(&mut self, revision: i64) {
        let before = std::mem::replace(&mut self.state.level, revision);
        assert!(before <= revision, "revisions are published in order: {revision} after {before}");
    }

    /// Hands over what was collected, releases the lock, and wakes the streams.
    fn end(mut self) {
        let mut wakes = Vec::new();
        self.hub.hand_over(&mut self.state, &mut wakes);
        drop(self.state);
        wakes.iter().for_each(|queue| queue.wake());
    }
}

/// Has every stream read a revision from the log: matching it here would keep the applier for too long.
fn leave_to_the_log(queues: &mut Slab<QueueSlot>, fed: &mut Vec<u32>, main: i64) {
    for (queue, slot) in queues {
        slot.hits = Vec::new();
        slot.overflow.get_or_insert(main);
        fed.push(queue as u32);
    }
}

//! Where changes meet watchers.

use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use slab::Slab;

use super::block::Hit;
use super::interest::Interests;
use super::lane::{Audience, Item, Lane, LiveEvent, LiveRevision};
use super::matcher::Matcher;
use super::spec::Spec;
use super::{Event, Metrics, Options};
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
    lane: u32,
    interest: u32,
    no_put: bool,
    no_delete: bool,
    prev_kv: bool,
}

impl Subscriber {
    fn new(lane: u32, interest: u32, spec: &Spec) -> Self {
        Subscriber { lane, interest, no_put: spec.no_put, no_delete: spec.no_delete, prev_kv: spec.prev_kv }
    }

    fn accepts(&self, kind: super::Kind) -> bool {
        match kind {
            super::Kind::Put => !self.no_put,
            super::Kind::Delete => !self.no_delete,
        }
    }
}

/// A lane and what the publication under way has for it.
struct LaneSlot {
    lane: Arc<Lane>,
    /// Its queue was full; until its stream has seen that, nothing is pushed.
    lagging: bool,
    hits: Vec<Hit>,
    hits_total: usize,
    overflow: Option<i64>,
    items: Vec<Item>,
}

struct State {
    /// Everything up to here was pushed.
    level: i64,
    matcher: Matcher<Subscriber>,
    lanes: Slab<LaneSlot>,
    /// Lanes that the publication under way has something for; may name one twice.
    fed: Vec<u32>,
}

/// Takes every revision from the applier and hands it to the streams that want it.
pub struct Hub {
    current: AtomicI64,
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
            current: AtomicI64::new(revision),
            registered: AtomicUsize::new(0),
            state: Mutex::new(State { level: revision, matcher: Matcher::new(), lanes: Slab::new(), fed: Vec::new() }),
            reader,
            options,
            metrics: Metrics::default(),
        }
    }

    /// True when publishing reaches nobody: no watcher is registered (there may be some that read the log). The applier then
    /// need not build events and calls [`Hub::skip_to`]; if a watcher comes in between, that is put right there.
    pub fn is_idle(&self) -> bool {
        self.registered.load(Ordering::SeqCst) == 0
    }

    /// Publishes revisions, ascending, all their events in order. To be called by the applier alone, after readers can see
    /// them. A revision without events may be left out.
    pub fn publish(&self, revisions: &[(i64, &[Event])]) {
        let Some(&(last, _)) = revisions.last() else { return };
        self.advance(last);
        if self.is_idle() {
            return;
        }
        let mut wakes = Vec::new();
        let mut state = self.lock();
        for &(main, events) in revisions {
            // Whoever registered since `advance`, the first to do so, has counted these as past.
            if main > state.level {
                state.level = main;
                self.route(&mut state, main, events);
            }
        }
        self.hand_over(&mut state, &mut wakes);
        drop(state);
        wakes.iter().for_each(|lane| lane.wake());
    }

    /// Says that revisions up to `revision` are visible whose events were not built: the hub was idle, or the store's content
    /// was replaced by a snapshot. Watchers that are registered nevertheless read them from the log.
    pub fn skip_to(&self, revision: i64) {
        self.advance(revision);
        if self.is_idle() {
            return;
        }
        let mut wakes = Vec::new();
        let mut state = self.lock();
        if revision > state.level {
            let missed = state.level + 1;
            state.level = revision;
            let State { lanes, fed, .. } = &mut *state;
            for (lane, slot) in lanes {
                slot.overflow = Some(missed);
                fed.push(lane as u32);
            }
            self.hand_over(&mut state, &mut wakes);
        }
        drop(state);
        wakes.iter().for_each(|lane| lane.wake());
    }

    /// Counters.
    pub fn metrics(&self) -> &Metrics {
        &self.metrics
    }

    pub(super) fn options(&self) -> &Options {
        &self.options
    }

    /// Sets the current revision: what the first who registers counts as past.
    pub(super) fn advance(&self, revision: i64) {
        let before = self.current.swap(revision, Ordering::SeqCst);
        assert!(before <= revision, "revisions are published in order: {revision} after {before}");
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Matches one revision.
    fn route(&self, state: &mut State, main: i64, events: &[Event]) {
        let State { matcher, lanes, fed, .. } = state;
        // Events that somebody wants, and whether with the previous value.
        let mut picked: Vec<(usize, bool)> = Vec::new();
        let mut touched: Vec<u32> = Vec::new();
        for (index, event) in events.iter().enumerate() {
            matcher.visit(&event.key, |subscriber| {
                let slot = &mut lanes[subscriber.lane as usize];
                if slot.lagging || slot.overflow.is_some() || !subscriber.accepts(event.kind) {
                    return;
                }
                if picked.last().is_none_or(|last| last.0 != index) {
                    picked.push((index, false));
                }
                let at = picked.len() - 1;
                picked[at].1 |= subscriber.prev_kv;
                if slot.hits.is_empty() {
                    touched.push(subscriber.lane);
                }
                slot.hits.push((subscriber.interest, at as u32));
                slot.hits_total += 1;
                if slot.hits_total > self.options.queue_events_max {
                    slot.overflow = Some(main);
                }
            });
        }
        if touched.is_empty() {
            return;
        }
        let revision = self.read(main, events, &picked);
        for &lane in &touched {
            let slot = &mut lanes[lane as usize];
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
                let event = &events[index];
                let prev = match event.prev {
                    Some(loc) if with_prev => Some((self.reader)(loc)?),
                    _ => None,
                };
                Some(LiveEvent { kind: event.kind, stored: (self.reader)(event.loc)?, prev })
            })
            .collect();
        Some(Arc::new(LiveRevision { main, events: events? }))
    }

    /// Gives the lanes what was collected for them. Those to wake are called once the lock is free.
    fn hand_over(&self, state: &mut State, wakes: &mut Vec<Arc<Lane>>) {
        let State { lanes, fed, .. } = state;
        for lane in fed.drain(..) {
            let slot = &mut lanes[lane as usize];
            slot.hits_total = 0;
            let overflow = slot.overflow.take();
            if slot.lagging || (overflow.is_none() && slot.items.is_empty()) {
                continue;
            }
            let (lagging, wake) =
                slot.lane.push(&mut slot.items, overflow, self.options.queue_events_max, &self.metrics);
            slot.lagging = lagging;
            if wake {
                wakes.push(slot.lane.clone());
            }
        }
    }

    /// Adds a stream.
    pub(super) fn attach(&self, lane: Arc<Lane>) -> u32 {
        self.metrics.add_streams(1);
        self.lock().lanes.insert(LaneSlot {
            lane,
            lagging: false,
            hits: Vec::new(),
            hits_total: 0,
            overflow: None,
            items: Vec::new(),
        }) as u32
    }

    /// Removes a stream whose interests were all unregistered.
    pub(super) fn detach(&self, lane: u32) {
        let slot = self.lock().lanes.remove(lane as usize);
        slot.lane.close(&self.metrics);
        self.metrics.add_streams(-1);
    }

    /// The revision up to which everything was pushed. While nobody is registered, nobody can miss anything, and it is the
    /// current one.
    pub(super) fn level(&self) -> i64 {
        self.settle(&mut self.lock())
    }

    fn settle(&self, state: &mut State) -> i64 {
        if self.is_idle() {
            state.level = state.level.max(self.current.load(Ordering::SeqCst));
        }
        state.level
    }

    /// Registers interests of a stream. Everything after the returned level will be pushed for them.
    pub(super) fn register(&self, lane: u32, interests: &[(u32, Spec)]) -> i64 {
        for stride in interests.chunks(REGISTER_STRIDE) {
            let mut state = self.lock();
            let first = self.is_idle();
            // Counted before `current` is read: a publisher that still found the hub idle has advanced before that.
            self.registered.fetch_add(stride.len(), Ordering::SeqCst);
            if first {
                state.level = state.level.max(self.current.load(Ordering::SeqCst));
            }
            for (interest, spec) in stride {
                state.matcher.insert(spec, Subscriber::new(lane, *interest, spec));
            }
        }
        self.level()
    }

    /// Takes back [`Hub::register`].
    pub(super) fn unregister(&self, lane: u32, interests: &[(u32, Spec)]) {
        for stride in interests.chunks(REGISTER_STRIDE) {
            let mut state = self.lock();
            for (interest, spec) in stride {
                state.matcher.remove(spec, Subscriber::new(lane, *interest, spec));
            }
            self.registered.fetch_sub(stride.len(), Ordering::SeqCst);
        }
    }

    /// Takes back everything a stream has registered.
    pub(super) fn unregister_all(&self, lane: u32, interests: &Interests) {
        let all: Vec<(u32, Spec)> =
            interests.iter().map(|(number, interest)| (number, interest.spec.clone())).collect();
        self.unregister(lane, &all);
    }

    /// Makes a stream whose queue overflowed an ordinary one again. Nothing of it is registered any more.
    pub(super) fn end_lag(&self, lane: u32) {
        let mut state = self.lock();
        let slot = &mut state.lanes[lane as usize];
        slot.lagging = false;
        slot.lane.reset();
    }

    /// Queues a progress answer behind all events up to the level.
    pub(super) fn push_progress(&self, lane: u32, audience: Audience) {
        let mut state = self.lock();
        let level = self.settle(&mut state);
        state.lanes[lane as usize].lane.push_progress(level, audience);
    }
}

//! The hub: takes every revision from the applier, finds the watchers of each change, and fills the queues of their streams.

use std::collections::VecDeque;
use std::sync::{Arc, PoisonError};

use bytes::Bytes;
use slab::Slab;

use super::block::Hit;
use super::interest::Interests;
use super::long_queues::{Bounds, LongQueues};
use super::matcher::Matcher;
use super::spec::Spec;
use super::stream_queue::{Audience, Entry, Item, LiveEvent, LiveRevision, StreamQueue};
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

/// Queues that a publication looks at where all together hold too much, if it did not feed more.
const LONG_LOOKS: usize = 1024;

/// A stream that wants fewer than one in so many events of a revision gets those by themselves: what it does not want must not be kept
/// for as long as it does not read.
const SHARED_EVENTS_MAX: usize = 4;

/// Entries that a publication frees at least, if so many wait for that.
const FREED_MIN: usize = 64;

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
    /// Its queue was given up; until its stream has seen that, nothing is pushed.
    lagging: bool,
    /// Its place among the long queues.
    long_since: Option<u64>,
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
    long: LongQueues,
    /// Entries of queues that were given up, in chunks, to be freed.
    forgotten: VecDeque<VecDeque<Entry>>,
}

impl State {
    /// Takes entries that are to be freed, about so many.
    fn take_forgotten(&mut self, entries: usize) -> Vec<VecDeque<Entry>> {
        let (mut taken, mut count) = (Vec::new(), 0_usize);
        while count < entries
            && let Some(chunk) = self.forgotten.pop_front()
        {
            count = count.saturating_add(chunk.len());
            taken.push(chunk);
        }
        taken
    }
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
            state: Mutex::new(State {
                level: revision,
                matcher: Matcher::new(),
                queues: Slab::new(),
                fed: Vec::new(),
                long: LongQueues::default(),
                forgotten: VecDeque::new(),
            }),
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
                Some(revision) => slot.items.push(Item::of(revision, hits, SHARED_EVENTS_MAX)),
                None => slot.overflow = Some(main),
            }
        }
        fed.extend(touched);
    }

    fn read(&self, main: i64, events: &[Event], picked: &[(usize, bool)]) -> Option<Arc<LiveRevision>> {
        // No more room than needed: queues may keep it for long.
        let mut live = Vec::with_capacity(picked.len());
        for &(index, with_prev) in picked {
            let event = events.get(index)?;
            let prev = match event.prev {
                Some(loc) if with_prev => Some((self.reader)(loc)?),
                _ => None,
            };
            live.push(LiveEvent { kind: event.kind, stored: (self.reader)(event.loc)?, prev });
        }
        Some(Arc::new(LiveRevision { main, events: live }))
    }

    /// Gives the queues what was collected for them, and returns how many hits that were. Those to wake are called once the lock is free.
    fn hand_over(&self, state: &mut State, wakes: &mut Vec<Arc<StreamQueue>>) -> usize {
        let bounds = Bounds::of(state.queues.len(), &self.options);
        let State { queues, fed, long, forgotten, .. } = state;
        let mut handed = 0usize;
        let looks = fed.len().max(LONG_LOOKS);
        for queue in fed.drain(..) {
            let Some(slot) = queues.get_mut(queue as usize) else { continue };
            handed = handed.saturating_add(std::mem::take(&mut slot.hits_total));
            let overflow = slot.overflow.take();
            if slot.lagging || (overflow.is_none() && slot.items.is_empty()) {
                continue;
            }
            let pushed = slot.queue.push(&mut slot.items, overflow, self.options.queue_events_max, &self.metrics);
            if pushed.wake {
                wakes.push(slot.queue.clone());
            }
            // One that was short in between begins anew.
            if pushed.hits_before <= bounds.short || pushed.given_up.is_some() {
                slot.long_since.take().into_iter().for_each(|place| long.leave(place));
            }
            if pushed.hits > bounds.short {
                slot.long_since.get_or_insert_with(|| long.join(queue));
            }
            if let Some(entries) = pushed.given_up {
                slot.lagging = true;
                forgotten.extend(entries.into_chunks());
            }
        }
        self.give_up_long(state, bounds, (looks, handed));
        handed
    }

    /// Where all queues hold too much together, gives up long ones until they do not. Of the line it looks at `looks` queues, or at as many
    /// as take with them what was `handed` over.
    fn give_up_long(&self, state: &mut State, bounds: Bounds, (looks, handed): (usize, usize)) {
        let State { queues, long, forgotten, .. } = state;
        let pending = || usize::try_from(self.metrics.pending_events()).unwrap_or(0);
        let numbers = queues.capacity();
        let mut give_up = |queue: u32, was_in_line: bool| {
            let Some(slot) = queues.get_mut(queue as usize) else { return };
            if was_in_line {
                slot.long_since = None;
            } else if slot.long_since.is_some() {
                return;
            }
            if let Some(entries) = slot.queue.give_up(bounds.short, &self.metrics) {
                slot.lagging = true;
                forgotten.extend(entries.into_chunks());
            }
        };
        let (mut looked, before) = (0usize, pending());
        while pending() > bounds.all
            && (looked < looks || before.saturating_sub(pending()) < handed)
            && let Some(queue) = long.next()
        {
            looked = looked.saturating_add(1);
            give_up(queue, true);
        }
        for _ in 0..LONG_LOOKS.min(numbers) {
            if pending() <= bounds.all {
                return;
            }
            give_up(long.sweep(numbers), false);
        }
    }

    /// Frees some of what was queued for streams that read too little. To be called now and then by a thread that may take its time: to
    /// free what a thousand streams had waiting takes most of a second.
    pub fn free_forgotten(&self, entries: usize) {
        let freed = self.lock().take_forgotten(entries);
        drop(freed);
    }

    /// Adds a stream.
    pub(super) fn attach(&self, queue: Arc<StreamQueue>) -> u32 {
        self.metrics.add_streams(1);
        self.lock().queues.insert(QueueSlot {
            queue,
            lagging: false,
            long_since: None,
            hits: Vec::new(),
            hits_total: 0,
            overflow: None,
            items: Vec::new(),
        }) as u32
    }

    /// Removes a stream whose interests were all unregistered.
    pub(super) fn detach(&self, queue: u32) {
        let mut state = self.lock();
        let slot = state.queues.remove(queue as usize);
        if let Some(place) = slot.long_since {
            state.long.leave(place);
        }
        drop(state);
        slot.queue.close(&self.metrics);
        self.metrics.add_streams(-1);
    }

    /// Fails unless the line of long queues is what it should be, and queues have no more room than they need.
    #[cfg(test)]
    pub(super) fn check_queues(&self) {
        let state = self.lock();
        for (place, queue) in state.long.iter() {
            let slot = state.queues.get(queue as usize).expect("a queue in the line");
            assert_eq!((slot.long_since, slot.lagging), (Some(place), false));
        }
        let placed = state.queues.iter().filter(|(_, slot)| slot.long_since.is_some()).count();
        assert_eq!(placed, state.long.iter().len());
        let short = Bounds::of(state.queues.len(), &self.options).short;
        for (_, slot) in state.queues.iter() {
            let (hits, entries, room) = slot.queue.sizes();
            assert!(hits <= short || slot.long_since.is_some(), "a long queue is not in the line");
            assert!(room <= entries.max(128) * 8, "room for {room} with {entries} entries");
        }
    }

    /// Entries that wait to be freed.
    #[cfg(test)]
    pub(super) fn forgotten(&self) -> usize {
        self.lock().forgotten.iter().map(VecDeque::len).sum()
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

    /// Makes a stream whose queue was given up an ordinary one again. Nothing of it is registered any more.
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
        let handed = self.hub.hand_over(&mut self.state, &mut wakes);
        // As much as was queued, so that what waits to be freed does not grow for ever.
        let freed = self.state.take_forgotten(handed.max(FREED_MIN));
        drop(self.state);
        wakes.iter().for_each(|queue| queue.wake());
        drop(freed);
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

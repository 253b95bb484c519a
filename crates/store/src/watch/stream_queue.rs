//! The bounded queue between the hub and one stream.

use std::collections::VecDeque;
use std::sync::{Arc, PoisonError};

use bytes::Bytes;

use super::block::Hit;
use super::entry_queue::EntryQueue;
use super::watchers::Member;
use super::{Kind, Metrics, Wake};
use crate::mistake::Mistake;
use crate::sync::{Mutex, MutexGuard};

/// Entries, and hits but for those of the last one, that a stream takes at a time: what it holds while its client does not read.
const TAKE_MAX: usize = 64;
/// From so many entries on, a progress answer replaces one that no event has come after.
const PROGRESS_ENTRIES: usize = 64;

/// A changed key with its bytes; they belong to the log's mapping, not to us.
#[derive(Clone)]
pub(super) struct LiveEvent {
    pub(super) kind: Kind,
    pub(super) stored: Bytes,
    pub(super) prev: Option<Bytes>,
}

/// The events of one revision that anybody wanted, shared by streams; or those that one stream wanted.
pub(super) struct LiveRevision {
    pub(super) main: i64,
    pub(super) events: Vec<LiveEvent>,
}

/// What one revision means to one stream.
pub(super) struct Item {
    pub(super) revision: Arc<LiveRevision>,
    pub(super) hits: Vec<Hit>,
}

impl Item {
    /// What `hits`, in the order of the events, are to their stream. It shares the revision's events if it wants one in `shared_max` of them.
    pub(super) fn of(revision: &Arc<LiveRevision>, mut hits: Vec<Hit>, shared_max: usize) -> Item {
        if hits.len().saturating_mul(shared_max) >= revision.events.len() {
            return Item { revision: revision.clone(), hits };
        }
        let mut events = Vec::with_capacity(hits.len());
        let mut last = None;
        for (_, at) in &mut hits {
            if last != Some(*at) {
                last = Some(*at);
                events.extend(revision.events.get(*at as usize).cloned());
            }
            *at = events.len().saturating_sub(1) as u32;
        }
        events.shrink_to_fit();
        hits.shrink_to_fit();
        Item { revision: Arc::new(LiveRevision { main: revision.main, events }), hits }
    }
}

/// What a progress answer is for.
pub(super) enum Audience {
    /// The stream: it asked.
    Stream,
    /// These watchers: it is time.
    Watchers(Vec<Member>),
}

/// Something queued for a stream.
pub(super) enum Entry {
    Revision(Item),
    /// Everything up to this revision is queued before this entry.
    Progress(i64, Audience),
}

impl Entry {
    fn revision(&self) -> Option<i64> {
        match self {
            Entry::Revision(item) => Some(item.revision.main),
            Entry::Progress(..) => None,
        }
    }
}

/// What came of [`StreamQueue::push`].
pub(super) struct Pushed {
    /// Hits that were queued before, and are now.
    pub(super) hits_before: usize,
    pub(super) hits: usize,
    /// The stream sleeps: to be woken.
    pub(super) wake: bool,
    /// What was queued, if the queue was given up. It may be much: to free it takes time.
    pub(super) given_up: Option<EntryQueue<Entry>>,
}

/// What [`StreamQueue::take`] found.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Taken {
    Entries,
    /// The queue was given up; live watchers continue from this revision in the log.
    Lagging(i64),
    /// Nothing. The next push wakes the stream.
    Empty,
}

#[derive(Default)]
struct State {
    queue: EntryQueue<Entry>,
    hits: usize,
    lag_from: Option<i64>,
    /// The stream was woken and has not looked since.
    woken: bool,
    live_watchers: usize,
}

impl State {
    /// Forgets the queue: the stream reads the log, from the first revision that was queued, or from `otherwise` on.
    fn give_up(&mut self, otherwise: Option<i64>, metrics: &Metrics) -> EntryQueue<Entry> {
        let queued = self.queue.iter().find_map(Entry::revision);
        let queued = if Mistake::ForgetsStarvedEvents.is_planted() { None } else { queued };
        self.lag_from = queued.or(otherwise);
        assert!(self.lag_from.is_some(), "a queue overflows by a revision");
        metrics.add_pending((self.hits as i64).wrapping_neg());
        metrics.add_slow(self.live_watchers as i64);
        self.hits = 0;
        std::mem::take(&mut self.queue)
    }
}

/// One stream's side of the hub. Lock order: hub, then queue.
pub(super) struct StreamQueue {
    state: Mutex<State>,
    wake: Wake,
}

impl StreamQueue {
    pub(super) fn new(wake: Wake) -> Self {
        StreamQueue { state: Mutex::default(), wake }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Queues items. With more than `hits_max` hits (or when `overflow` says that there was more than that already), gives the
    /// queue up and remembers its first revision instead.
    pub(super) fn push(
        &self,
        items: &mut Vec<Item>,
        overflow: Option<i64>,
        hits_max: usize,
        metrics: &Metrics,
    ) -> Pushed {
        let mut state = self.lock();
        let hits: usize = items.iter().map(|item| item.hits.len()).sum();
        let hits_before = state.hits;
        let given_up = if overflow.is_some() || hits_before.saturating_add(hits) > hits_max {
            let from = items.first().map(|item| item.revision.main).or(overflow);
            items.clear();
            Some(state.give_up(from, metrics))
        } else {
            metrics.add_pending(hits as i64);
            state.hits = hits_before.saturating_add(hits);
            items.drain(..).map(Entry::Revision).for_each(|entry| state.queue.push_back(entry));
            None
        };
        Pushed { hits_before, hits: state.hits, wake: !std::mem::replace(&mut state.woken, true), given_up }
    }

    /// Gives the queue up like a push that is too much, and returns what was queued; nothing unless more than `hits_kept` are. The
    /// stream need not be woken: it was when they were queued, and has not found the queue empty since.
    pub(super) fn give_up(&self, hits_kept: usize, metrics: &Metrics) -> Option<EntryQueue<Entry>> {
        let mut state = self.lock();
        if state.hits <= hits_kept {
            return None;
        }
        let last = state.queue.iter().rev().find_map(Entry::revision);
        Some(state.give_up(last, metrics))
    }

    /// Hits that are queued, entries, and room for entries.
    #[cfg(test)]
    pub(super) fn sizes(&self) -> (usize, usize, usize) {
        let state = self.lock();
        (state.hits, state.queue.len(), state.queue.room())
    }

    /// Queues a progress entry after what is there. One for the same audience that no event has come after is taken out: that of watchers
    /// always (those named there and not here were sent something since, or have ended), that of the stream where it does not keep up, since
    /// clients may ask as often as they like.
    pub(super) fn push_progress(&self, level: i64, audience: Audience) {
        let mut state = self.lock();
        if state.lag_from.is_none() {
            let is_full = state.queue.len() >= PROGRESS_ENTRIES;
            let is_same = |entry: &Entry| match (entry, &audience) {
                (Entry::Progress(_, Audience::Stream), Audience::Stream) => is_full,
                (Entry::Progress(_, Audience::Watchers(_)), Audience::Watchers(_)) => true,
                _ => false,
            };
            let trailing = state.queue.iter().rev().take_while(|entry| entry.revision().is_none());
            let found = { trailing }.position(is_same);
            // Not replaced where it is: what comes after it may tell of an earlier level.
            if let Some(from_back) = found {
                let at = state.queue.len().saturating_sub(1).saturating_sub(from_back);
                state.queue.remove(at);
            }
            if Mistake::ProgressBeforeEvents.is_planted() {
                state.queue.push_front(Entry::Progress(level, audience));
            } else {
                state.queue.push_back(Entry::Progress(level, audience));
            }
        }
    }

    /// Moves some entries to `into`.
    pub(super) fn take(&self, into: &mut VecDeque<Entry>, metrics: &Metrics) -> Taken {
        let mut state = self.lock();
        if let Some(from) = state.lag_from {
            return Taken::Lagging(from);
        }
        if state.queue.is_empty() {
            if Mistake::SleepsAfterLook.is_planted() {
                drop(state);
                state = self.lock();
            }
            state.woken = false;
            return Taken::Empty;
        }
        let (mut taken, mut hits) = (0usize, 0usize);
        while taken < TAKE_MAX
            && hits < TAKE_MAX
            && let Some(entry) = state.queue.pop_front()
        {
            taken = taken.saturating_add(1);
            if let Entry::Revision(item) = &entry {
                hits = hits.saturating_add(item.hits.len());
            }
            into.push_back(entry);
        }
        state.hits = state.hits.saturating_sub(hits);
        metrics.add_pending((hits as i64).wrapping_neg());
        Taken::Entries
    }

    /// Ends lagging: the hub knows no interest of the stream any more.
    pub(super) fn reset(&self) {
        let mut state = self.lock();
        state.lag_from = None;
        state.live_watchers = 0;
    }

    /// Counts watchers in that left the log for the hub.
    pub(super) fn add_live(&self, count: usize, metrics: &Metrics) {
        let mut state = self.lock();
        state.live_watchers = state.live_watchers.saturating_add(count);
        if state.lag_from.is_some() {
            metrics.add_slow(count as i64);
        }
    }

    /// Counts a live watcher out that ended.
    pub(super) fn end_live(&self, metrics: &Metrics) {
        let mut state = self.lock();
        state.live_watchers = state.live_watchers.saturating_sub(1);
        if state.lag_from.is_some() {
            metrics.add_slow(-1);
        }
    }

    /// Forgets everything, the stream having ended.
    pub(super) fn close(&self, metrics: &Metrics) {
        let mut state = self.lock();
        metrics.add_pending((state.hits as i64).wrapping_neg());
        if state.lag_from.is_some() {
            metrics.add_slow((state.live_watchers as i64).wrapping_neg());
        }
        state.queue = EntryQueue::default();
        state.hits = 0;
    }

    /// Wakes the stream by itself: it stopped in the middle of its work. No other wake until it looks again.
    pub(super) fn rouse(&self) {
        self.lock().woken = true;
        (self.wake)();
    }

    /// Tells the server that the stream has something.
    pub(super) fn wake(&self) {
        (self.wake)();
    }
}

//! What a read of the log finds for a cohort.

use std::ops::Range;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};

use super::block::{Change, Hit, Lengths, Pieces, for_each_interest};
use super::chunks::LARGE_BYTES_MIN;
use super::cohort::Cohort;
use super::outbox::Delivery;
use super::room::Room;
use super::{History, Kind, Options, Record};
use crate::log::{KvView, stored_key};
use crate::mistake::Mistake;
use crate::types::Revision;

/// An event that was found. Few stored bytes were copied, many are shared with the log.
struct Found {
    kind: Kind,
    main: i64,
    stored: Stored,
    prev: Option<Bytes>,
}

enum Stored {
    /// In [`Finds::bytes`].
    Copied(Range<usize>),
    Shared(Bytes),
}

impl Found {
    fn lengths(&self, with_prev: bool) -> Lengths {
        let stored = match &self.stored {
            Stored::Copied(range) => range.len(),
            Stored::Shared(stored) => stored.len(),
        };
        let prev = self.prev.as_ref().filter(|_| with_prev).map(Bytes::len);
        Lengths { kind: self.kind, main: self.main, stored, prev }
    }
}

/// What an event takes from when it is found until it is copied, its stored bytes aside: itself, its hits, and a reference to what was
/// there before.
const FOUND_BYTES: usize = 192;
/// As much work as a record to look at: so many hits, or so many bytes to copy.
const HITS_PER_RECORD: usize = 16;
const BYTES_PER_RECORD: usize = 256;

/// Events that were found, or what they come to.
pub(super) struct Finds {
    compact_revision: i64,
    bytes: BytesMut,
    events: Vec<Found>,
    hits: Vec<Hit>,
    /// The events of a cohort with one interest, built already.
    pieces: Option<Pieces>,
    /// Bytes that the deliveries will have, if no two share theirs: overlapping ranges must not multiply what waits to be sent.
    delivery_bytes: usize,
    /// What of them will be copied.
    copied_bytes: usize,
    /// What the events take until they are.
    found_bytes: usize,
    /// Hits before those of the newest revision, and what was copied for them.
    before: (usize, usize),
    /// Revisions with events.
    revisions: i64,
    newest: i64,
    /// The first and the last record with events.
    reach: Option<(Revision, Revision)>,
}

impl Finds {
    /// Nothing yet, while `compact_revision` is what was compacted.
    pub(super) fn new(compact_revision: i64) -> Self {
        Finds {
            compact_revision,
            bytes: BytesMut::new(),
            events: Vec::new(),
            hits: Vec::new(),
            pieces: None,
            delivery_bytes: 0,
            copied_bytes: 0,
            found_bytes: 0,
            before: (0, 0),
            revisions: 0,
            newest: 0,
            reach: None,
        }
    }

    /// Builds events as they come, of which `copied` bytes will be copied in `room`: those of a cohort with one interest.
    pub(super) fn build(&mut self, fragment_bytes: Option<usize>, copied: usize, room: Option<Arc<dyn Room>>) {
        self.pieces = Some(Pieces::new(fragment_bytes, copied, room));
    }

    /// What the events come to, without them.
    pub(super) fn into_measured(self) -> Self {
        Finds { bytes: BytesMut::new(), events: Vec::new(), hits: Vec::new(), ..self }
    }

    pub(super) fn copied_bytes(&self) -> usize {
        self.copied_bytes
    }

    /// Memory that it takes to copy the events.
    pub(super) fn needed_bytes(&self) -> usize {
        self.copied_bytes.saturating_add(self.found_bytes)
    }

    /// The first and the last record with events.
    pub(super) fn reach(&self) -> Option<(Revision, Revision)> {
        self.reach
    }

    pub(super) fn is_full(&self, options: &Options) -> bool {
        self.revisions >= options.catch_up_revisions_max || self.delivery_bytes >= options.catch_up_bytes_max
    }

    /// Whether the events of several watchers are too many bytes to be built at once. One watcher's events of one revision always are built.
    pub(super) fn is_wide(&self, cohort: &Cohort, options: &Options) -> bool {
        let is_much = self.delivery_bytes > options.delivery_bytes_max
            || self.hits.len().saturating_mul(std::mem::size_of::<Hit>()) > options.delivery_bytes_max;
        is_much && cohort.interests.len() > 1
    }

    /// Forgets the events of the newest revision, if it is `main` that has some.
    pub(super) fn drop_revision(&mut self, main: i64) {
        if self.newest == main {
            self.hits.truncate(self.before.0);
            self.copied_bytes = self.before.1;
        }
    }

    /// Takes the events of a record; if it `measures`, only their lengths. Returns how many records it is worth.
    pub(super) fn take(
        &mut self,
        history: &dyn History,
        cohort: &Cohort,
        record: &Record<'_>,
        measures: bool,
    ) -> usize {
        let at_compaction = record.tombstone && record.rev.main == self.compact_revision;
        if at_compaction && Mistake::WatchMissesDeleteAtCompaction.is_planted() {
            return 1;
        }
        let kind = if record.tombstone { Kind::Delete } else { Kind::Put };
        let key = stored_key(record.stored);
        let event = self.events.len() as u32;
        let first_hit = self.hits.len();
        let (mut plain, mut with_prev) = (0usize, 0usize);
        let keeps = !measures && self.pieces.is_none();
        let hits = &mut self.hits;
        cohort.matcher.visit(key, |number| {
            let Some(interest) = cohort.interests.get(number) else { return };
            if interest.spec.accepts(kind) {
                if keeps {
                    hits.push((number, event));
                }
                let shape = if interest.spec.prev_kv { &mut with_prev } else { &mut plain };
                *shape = shape.saturating_add(1);
            }
        });
        if plain == 0 && with_prev == 0 {
            return 1;
        }
        let main = record.rev.main;
        if main != self.newest {
            self.newest = main;
            self.before = (first_hit, self.copied_bytes);
            self.revisions = self.revisions.saturating_add(1);
        }
        self.reach = Some((self.reach.map_or(record.rev, |(first, _)| first), record.rev));
        // Versions before the watermark are gone for all readers, even if their bytes are still there.
        let wanted = with_prev > 0 && main > self.compact_revision && !creates(kind, record.stored);
        let prev = if wanted { history.previous(key, main) } else { None };
        let lengths = Lengths { kind, main, stored: record.stored.len(), prev: None };
        let longer = Lengths { prev: prev.as_ref().map(Bytes::len), ..lengths };
        let longest = if with_prev > 0 { longer } else { lengths };
        let hits = plain.saturating_add(with_prev);
        self.delivery_bytes = self.delivery_bytes.saturating_add(longest.encoded().saturating_mul(hits));
        let copied = lengths.copied().saturating_mul(plain).saturating_add(longer.copied().saturating_mul(with_prev));
        self.copied_bytes = self.copied_bytes.saturating_add(copied);
        let is_large = record.stored.len() >= LARGE_BYTES_MIN;
        let kept = if is_large { 0 } else { record.stored.len() };
        self.found_bytes = self.found_bytes.saturating_add(kept).saturating_add(FOUND_BYTES);
        let cost = 1_usize.saturating_add(hits / HITS_PER_RECORD);
        if measures {
            return cost;
        }
        let cost = cost.saturating_add(copied / BYTES_PER_RECORD);
        if let Some(pieces) = &mut self.pieces {
            pieces.push(&Change { kind, main, stored: &(record.share)(), prev: prev.as_ref() });
            return cost;
        }
        let stored = if is_large {
            Stored::Shared((record.share)())
        } else {
            let start = self.bytes.len();
            self.bytes.extend_from_slice(record.stored);
            Stored::Copied(start..self.bytes.len())
        };
        self.events.push(Found { kind, main, stored, prev });
        cost
    }

    /// The events for each interest, which are copied in `room`.
    pub(super) fn deliver(
        mut self,
        cohort: &Cohort,
        options: &Options,
        current: i64,
        room: Option<&Arc<dyn Room>>,
    ) -> Vec<Delivery> {
        let interests = &cohort.interests;
        if let Some(pieces) = self.pieces {
            let interest = interests.only().filter(|_| self.reach.is_some());
            let delivery = |members| Delivery::caught_up(members, pieces.finish(), current);
            return interest.map(|interest| delivery(interest.members.clone())).into_iter().collect();
        }
        let mut deliveries = Vec::new();
        let bytes = std::mem::take(&mut self.bytes).freeze();
        let events = &self.events;
        // Bounded before: they are built for this many watchers because they are not too wide, and because there is room.
        for_each_interest(
            &mut self.hits,
            |number| interests.get(number).map(|interest| (interest.spec.prev_kv, interest.spec.fragment)),
            |run, (prev_kv, fragment)| {
                let found = || run.iter().filter_map(|(_, event)| events.get(*event as usize));
                let copied = found().map(|event| event.lengths(prev_kv).copied()).fold(0, usize::saturating_add);
                let mut pieces = Pieces::new(fragment.then_some(options.fragment_bytes), copied, room.cloned());
                for event in found() {
                    let stored = match &event.stored {
                        Stored::Copied(range) => bytes.slice(range.clone()),
                        Stored::Shared(stored) => stored.clone(),
                    };
                    let prev = event.prev.as_ref().filter(|_| prev_kv);
                    pieces.push(&Change { kind: event.kind, main: event.main, stored: &stored, prev });
                }
                Some(pieces.finish())
            },
            |number, pieces| {
                let Some(interest) = interests.get(number) else { return };
                deliveries.push(Delivery::caught_up(interest.members.clone(), pieces, current));
            },
        );
        deliveries
    }
}

/// A put that begins a key has nothing before it, even where its revision deleted the key first.
fn creates(kind: Kind, stored: &[u8]) -> bool {
    kind == Kind::Put && KvView::parse(stored).is_some_and(|pair| pair.create == pair.modified)
}

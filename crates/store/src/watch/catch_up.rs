//! One bounded read of the log for a cohort.

use std::ops::{ControlFlow, Range};
use std::sync::Arc;

use api::limits::WATCH_BYTES_FREE;
use bytes::{Bytes, BytesMut};

use super::block::{Change, Hit, Lengths, Pieces, for_each_interest};
use super::chunks::LARGE_BYTES_MIN;
use super::cohort::Cohort;
use super::outbox::Delivery;
use super::room::{Ask, Room};
use super::{History, Kind, Options, Record};
use crate::log::{KvView, stored_key};
use crate::mistake::Mistake;

/// What a read gave.
pub(super) struct Reading {
    /// The next revision to read.
    pub(super) next: i64,
    /// Records looked at.
    pub(super) records: usize,
    /// One per interest that had events.
    pub(super) deliveries: Vec<Delivery>,
}

/// Why nothing was read.
#[derive(Debug)]
pub(super) enum Unread {
    /// The cursor was passed by compaction, at this revision.
    Compacted(i64),
    /// The first revision has more for the cohort than may be built at once: to be read for a part of it at a time.
    Wide,
    /// The first revision has more than there is room for. The sink says when there is.
    NoRoom,
}

/// What one revision needs of memory, which is more than there was.
struct Needs(usize);

/// An event that was found. Few stored bytes were copied, many are shared with the log.
struct Found {
    kind: Kind,
    main: i64,
    stored: Stored,
    prev: Option<Bytes>,
}

enum Stored {
    /// In [`Reader::bytes`].
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

/// Memory for the pieces.
struct Within {
    bytes_max: usize,
    room: Option<Arc<dyn Room>>,
}

impl Within {
    /// Asks for memory to read as much at once as is good, if that was not asked for.
    fn widen(&mut self, bytes_max: usize, ask: &mut Ask<'_>) {
        if self.room.is_none() && self.bytes_max < bytes_max {
            self.room = ask(bytes_max, false);
            if self.room.is_some() {
                self.bytes_max = bytes_max;
            }
        }
    }
}

struct Reader<'a> {
    history: &'a dyn History,
    cohort: &'a Cohort,
    compact_revision: i64,
    bytes: BytesMut,
    events: Vec<Found>,
    hits: Vec<Hit>,
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
}

/// Whether a compaction has passed a cursor.
pub(super) fn is_passed(cursor: i64, compact_revision: i64) -> bool {
    cursor < compact_revision && !Mistake::SwallowsCompaction.is_planted()
}

/// Reads `from..=to`, or less when that is much: whole revisions, at least one. `current` is the revision to name in the
/// header. Beyond a little `ask` is asked for memory; without it, less is read at once, and of a revision that needs it nothing.
pub(super) fn read(
    history: &dyn History,
    cohort: &Cohort,
    from: i64,
    to: i64,
    current: i64,
    records_max: usize,
    ask: &mut Ask<'_>,
) -> Result<Reading, Unread> {
    let compact_revision = history.compact_revision();
    if is_passed(from, compact_revision) {
        return Err(Unread::Compacted(compact_revision));
    }
    let mut within = Within { bytes_max: WATCH_BYTES_FREE, room: None };
    loop {
        let reader = Reader {
            history,
            cohort,
            compact_revision,
            bytes: BytesMut::new(),
            events: Vec::new(),
            hits: Vec::new(),
            delivery_bytes: 0,
            copied_bytes: 0,
            found_bytes: 0,
            before: (0, 0),
            revisions: 0,
            newest: 0,
        };
        match reader.read((from, to), current, records_max, &mut within, ask)? {
            Ok(reading) => return Ok(reading),
            Err(Needs(bytes)) => {
                // What there is may be a part of it.
                drop(within.room.take());
                let room = ask(bytes, true).ok_or(Unread::NoRoom)?;
                within = Within { bytes_max: bytes, room: Some(room) };
            }
        }
    }
}

impl Reader<'_> {
    fn read(
        mut self,
        (from, to): (i64, i64),
        current: i64,
        records_max: usize,
        within: &mut Within,
        ask: &mut Ask<'_>,
    ) -> Result<Result<Reading, Needs>, Unread> {
        let options = *self.history.hub().options();
        let mut records = 0;
        let mut last = from;
        let mut next = to.saturating_add(1);
        let mut first = None;
        let mut is_wide = false;
        let mut lacks_room = false;
        self.history.scan(from, to, &mut |record| {
            assert!(record.rev.main >= last && record.rev.main <= to, "a scan is in order and within its bounds");
            let is_whole = record.rev.main != last || Mistake::SplitsRevisions.is_planted() && records > 0;
            if is_whole && (records >= records_max || self.is_full(&options) || lacks_room) {
                next = record.rev.main;
                return ControlFlow::Break(());
            }
            last = record.rev.main;
            records = records.saturating_add(1);
            let is_first = *first.get_or_insert(last) == last;
            self.take(&record, lacks_room);
            if self.is_wide(&options) {
                is_wide = is_first;
                lacks_room = false;
            } else if self.copied_bytes > within.bytes_max && !lacks_room {
                within.widen(options.catch_up_bytes_max, ask);
                lacks_room = self.copied_bytes > within.bytes_max;
            }
            if is_wide || (!is_first && (lacks_room || self.is_wide(&options))) {
                // Those before it are read without it first.
                self.hits.truncate(self.before.0);
                self.copied_bytes = self.before.1;
                lacks_room = false;
                next = last;
                return ControlFlow::Break(());
            }
            ControlFlow::Continue(())
        });
        if is_wide {
            return Err(Unread::Wide);
        }
        if lacks_room {
            return Ok(Err(Needs(self.copied_bytes.saturating_add(self.found_bytes))));
        }
        // Compaction may have removed records while we read them.
        let compact_revision = self.history.compact_revision();
        if is_passed(from, compact_revision) {
            return Err(Unread::Compacted(compact_revision));
        }
        let copied = self.copied_bytes;
        let deliveries = self.deliver(&options, current, within.room.as_ref().filter(|_| copied > WATCH_BYTES_FREE));
        if let Some(room) = &within.room {
            room.shrink(copied);
        }
        Ok(Ok(Reading { next, records, deliveries }))
    }

    fn is_full(&self, options: &Options) -> bool {
        self.revisions >= options.catch_up_revisions_max || self.delivery_bytes >= options.catch_up_bytes_max
    }

    /// Whether the events of several watchers are too many bytes to be built at once. One watcher's events of one revision always are built.
    fn is_wide(&self, options: &Options) -> bool {
        let is_much = self.delivery_bytes > options.delivery_bytes_max
            || self.hits.len().saturating_mul(std::mem::size_of::<Hit>()) > options.delivery_bytes_max;
        is_much && self.cohort.interests.len() > 1
    }

    /// Takes the events of a record; if it `measures`, only their lengths.
    fn take(&mut self, record: &Record<'_>, measures: bool) {
        let at_compaction = record.tombstone && record.rev.main == self.compact_revision;
        if at_compaction && Mistake::WatchMissesDeleteAtCompaction.is_planted() {
            return;
        }
        let kind = if record.tombstone { Kind::Delete } else { Kind::Put };
        let key = stored_key(record.stored);
        let event = self.events.len() as u32;
        let first_hit = self.hits.len();
        let (mut plain, mut with_prev) = (0usize, 0usize);
        let Reader { cohort, hits, .. } = self;
        cohort.matcher.visit(key, |number| {
            let Some(interest) = cohort.interests.get(number) else { return };
            if interest.spec.accepts(kind) {
                if !measures {
                    hits.push((number, event));
                }
                let shape = if interest.spec.prev_kv { &mut with_prev } else { &mut plain };
                *shape = shape.saturating_add(1);
            }
        });
        if plain == 0 && with_prev == 0 {
            return;
        }
        let main = record.rev.main;
        if main != self.newest {
            self.newest = main;
            self.before = (first_hit, self.copied_bytes);
            self.revisions = self.revisions.saturating_add(1);
        }
        // Versions before the watermark are gone for all readers, even if their bytes are still there.
        let wanted = with_prev > 0 && main > self.compact_revision && !creates(kind, record.stored);
        let prev = if wanted { self.history.previous(key, main) } else { None };
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
        if measures {
            return;
        }
        let stored = if is_large {
            Stored::Shared((record.share)())
        } else {
            let start = self.bytes.len();
            self.bytes.extend_from_slice(record.stored);
            Stored::Copied(start..self.bytes.len())
        };
        self.events.push(Found { kind, main, stored, prev });
    }

    fn deliver(mut self, options: &Options, current: i64, room: Option<&Arc<dyn Room>>) -> Vec<Delivery> {
        let mut hits = std::mem::take(&mut self.hits);
        let mut deliveries = Vec::new();
        let bytes = std::mem::take(&mut self.bytes).freeze();
        let interests = &self.cohort.interests;
        let events = &self.events;
        // Bounded before: they are built for this many watchers because they are not too wide, and because there is room.
        for_each_interest(
            &mut hits,
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

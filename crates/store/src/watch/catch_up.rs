//! One bounded read of the log for a cohort.

use std::ops::{ControlFlow, Range};

use bytes::BytesMut;

use super::block::{Change, Hit, Pieces, for_each_interest};
use super::cohort::Cohort;
use super::outbox::Delivery;
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
}

/// An event as it goes out, in the two shapes that were wanted.
struct Encoded {
    plain: Option<Range<usize>>,
    with_prev: Option<Range<usize>>,
}

struct Reader<'a> {
    history: &'a dyn History,
    cohort: &'a Cohort,
    compact_revision: i64,
    bytes: BytesMut,
    events: Vec<Encoded>,
    hits: Vec<Hit>,
    /// Bytes that the deliveries will have, if no two share theirs: overlapping ranges must not multiply what waits to be sent.
    delivery_bytes: usize,
    /// Hits before those of the newest revision.
    hits_before: usize,
    /// Revisions with events.
    revisions: i64,
    newest: i64,
}

/// Reads `from..=to`, or less when that is much: whole revisions, at least one. `current` is the revision to name in the
/// header.
pub(super) fn read(
    history: &dyn History,
    cohort: &Cohort,
    from: i64,
    to: i64,
    current: i64,
    records_max: usize,
) -> Result<Reading, Unread> {
    let compact_revision = history.compact_revision();
    if from < compact_revision && !Mistake::SwallowsCompaction.is_planted() {
        return Err(Unread::Compacted(compact_revision));
    }
    let options = *history.hub().options();
    let mut reader = Reader {
        history,
        cohort,
        compact_revision,
        bytes: BytesMut::new(),
        events: Vec::new(),
        hits: Vec::new(),
        delivery_bytes: 0,
        hits_before: 0,
        revisions: 0,
        newest: 0,
    };
    let mut records = 0;
    let mut last = from;
    let mut next = to.saturating_add(1);
    let mut first = None;
    let mut is_wide = false;
    history.scan(from, to, &mut |record| {
        assert!(record.rev.main >= last && record.rev.main <= to, "a scan is in order and within its bounds");
        let is_whole = record.rev.main != last || Mistake::SplitsRevisions.is_planted() && records > 0;
        if is_whole && (records >= records_max || reader.is_full(&options)) {
            next = record.rev.main;
            return ControlFlow::Break(());
        }
        last = record.rev.main;
        records = records.saturating_add(1);
        reader.take(&record);
        if reader.is_wide(&options) {
            // Those before it are read without it first.
            reader.hits.truncate(reader.hits_before);
            is_wide = *first.get_or_insert(last) == last;
            next = last;
            return ControlFlow::Break(());
        }
        first.get_or_insert(last);
        ControlFlow::Continue(())
    });
    if is_wide {
        return Err(Unread::Wide);
    }
    // Compaction may have removed records while we read them.
    let compact_revision = history.compact_revision();
    if from < compact_revision && !Mistake::SwallowsCompaction.is_planted() {
        return Err(Unread::Compacted(compact_revision));
    }
    Ok(Reading { next, records, deliveries: reader.deliver(&options, current) })
}

impl Reader<'_> {
    fn is_full(&self, options: &Options) -> bool {
        self.revisions >= options.catch_up_revisions_max || self.delivery_bytes >= options.catch_up_bytes_max
    }

    /// Whether the events of several watchers are too many bytes to be built at once. One watcher's events of one revision always are built.
    fn is_wide(&self, options: &Options) -> bool {
        let is_much = self.delivery_bytes > options.delivery_bytes_max
            || self.hits.len().saturating_mul(std::mem::size_of::<Hit>()) > options.delivery_bytes_max;
        is_much && self.cohort.interests.len() > 1
    }

    fn take(&mut self, record: &Record<'_>) {
        let at_compaction = record.tombstone && record.rev.main == self.compact_revision;
        if at_compaction && Mistake::WatchMissesDeleteAtCompaction.is_planted() {
            return;
        }
        let kind = if record.tombstone { Kind::Delete } else { Kind::Put };
        let key = stored_key(record.stored);
        let event = self.events.len() as u32;
        let first_hit = self.hits.len();
        let (mut plain, mut with_prev) = (false, false);
        let Reader { cohort, hits, .. } = self;
        cohort.matcher.visit(key, |number| {
            let Some(interest) = cohort.interests.get(number) else { return };
            if interest.spec.accepts(kind) {
                hits.push((number, event));
                with_prev |= interest.spec.prev_kv;
                plain |= !interest.spec.prev_kv;
            }
        });
        if !plain && !with_prev {
            return;
        }
        let main = record.rev.main;
        if main != self.newest {
            self.newest = main;
            self.hits_before = first_hit;
            self.revisions = self.revisions.saturating_add(1);
        }
        // Versions before the watermark are gone for all readers, even if their bytes are still there.
        let wanted = with_prev && main > self.compact_revision && !creates(kind, record.stored);
        let prev = if wanted { self.history.previous(key, main) } else { None };
        let plain = plain.then(|| self.encode(&Change { kind, main, stored: record.stored, prev: None }));
        let with_prev =
            with_prev.then(|| self.encode(&Change { kind, main, stored: record.stored, prev: prev.as_deref() }));
        let longest = with_prev.as_ref().or(plain.as_ref()).map_or(0, Range::len);
        let hits = self.hits.len().saturating_sub(first_hit);
        self.delivery_bytes = self.delivery_bytes.saturating_add(longest.saturating_mul(hits));
        self.events.push(Encoded { plain, with_prev });
    }

    fn encode(&mut self, change: &Change<'_>) -> Range<usize> {
        let start = self.bytes.len();
        change.encode(&mut self.bytes);
        start..self.bytes.len()
    }

    fn deliver(mut self, options: &Options, current: i64) -> Vec<Delivery> {
        let mut hits = std::mem::take(&mut self.hits);
        let mut deliveries = Vec::new();
        let interests = &self.cohort.interests;
        // Bounded before: they are built for this many watchers because they are not too wide.
        for_each_interest(
            &mut hits,
            usize::MAX,
            |number| interests.get(number).map(|interest| (interest.spec.prev_kv, interest.spec.fragment)),
            |run, (prev_kv, fragment)| {
                let mut pieces = Pieces::new(fragment.then_some(options.fragment_bytes));
                for (_, event) in run {
                    let encoded = self.events.get(*event as usize);
                    let range =
                        encoded.and_then(|event| if prev_kv { event.with_prev.clone() } else { event.plain.clone() });
                    let Some(bytes) = range.and_then(|range| self.bytes.get(range)) else {
                        panic!("an event is encoded in every shape that was wanted")
                    };
                    pieces.push_encoded(bytes);
                }
                pieces.finish()
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

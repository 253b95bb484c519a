//! One bounded read of the log for a cohort.

use std::ops::ControlFlow;
use std::sync::Arc;

use api::limits::WATCH_BYTES_FREE;

use super::cohort::Cohort;
use super::finds::Finds;
use super::outbox::Delivery;
use super::room::{Ask, Room};
use super::{History, Options};
use crate::mistake::Mistake;
use crate::types::Revision;

/// What a read gave.
pub(super) struct Reading {
    /// The next revision to read.
    pub(super) next: i64,
    /// One per interest that had events.
    pub(super) deliveries: Vec<Delivery>,
}

/// Why nothing was read.
pub(super) enum Unread {
    /// The cursor was passed by compaction, at this revision.
    Compacted(i64),
    /// The first revision has more for the cohort than may be built at once: to be read for a part of it at a time.
    Wide,
    /// The first revision has more than there is room for. The sink says when there is. If it is a large one, what is known of it.
    NoRoom(Option<Box<Part>>),
    /// The turn is over, and the first revision is not.
    Later(Box<Part>),
}

/// How far one revision was read that has more records than a turn looks at.
///
/// It is measured first, and what is found is kept only once there is room for all of it: nothing waits for the next turn that was not
/// asked for.
pub(super) struct Part {
    main: i64,
    /// The first record that was not looked at.
    at: Revision,
    stage: Stage,
    finds: Finds,
}

enum Stage {
    Measuring,
    /// What it needs is known.
    Measured,
    /// Its events are taken, up to the last one.
    Taking(Revision, Option<Arc<dyn Room>>),
}

impl Part {
    /// Whether nothing was taken yet, but what it needs was counted: for fewer watchers that may be less.
    pub(super) fn is_count(&self) -> bool {
        !matches!(self.stage, Stage::Taking(..))
    }

    /// Whether it has memory that others may wait for.
    pub(super) fn holds_room(&self) -> bool {
        matches!(self.stage, Stage::Taking(_, Some(_)))
    }
}

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

/// How a look at some revisions ended.
enum Pass {
    Done(Reading),
    /// One revision needs so much memory, which is more than there was.
    Needs(usize),
    Large(Box<Part>),
}

struct Reader<'a> {
    history: &'a dyn History,
    cohort: &'a Cohort,
    options: Options,
    compact_revision: i64,
    /// The revision to name in the header.
    current: i64,
}

/// Whether a compaction has passed a cursor.
pub(super) fn is_passed(cursor: i64, compact_revision: i64) -> bool {
    cursor < compact_revision && !Mistake::SwallowsCompaction.is_planted()
}

/// Reads `from..=to`, or less when that is much: whole revisions, at least one, unless that has more records than a turn should look at.
/// Then the `part` that comes of it is to be given next time. `current` is the revision to name in the header. Beyond a little `ask` is
/// asked for memory; without it, less is read at once, and of a revision that needs it nothing.
pub(super) fn read(
    history: &dyn History,
    cohort: &Cohort,
    (from, to): (i64, i64),
    current: i64,
    part: Option<Box<Part>>,
    records_left: &mut usize,
    ask: &mut Ask<'_>,
) -> Result<Reading, Unread> {
    let compact_revision = history.compact_revision();
    if is_passed(from, compact_revision) {
        return Err(Unread::Compacted(compact_revision));
    }
    let reader = Reader { history, cohort, options: *history.hub().options(), compact_revision, current };
    let reading = match part {
        Some(part) => reader.go_on(part, records_left, ask)?,
        None => reader.begin((from, to), records_left, ask)?,
    };
    // Compaction may have removed records while we read them.
    let compact_revision = history.compact_revision();
    if is_passed(from, compact_revision) { Err(Unread::Compacted(compact_revision)) } else { Ok(reading) }
}

impl Reader<'_> {
    fn begin(&self, span: (i64, i64), records_left: &mut usize, ask: &mut Ask<'_>) -> Result<Reading, Unread> {
        let records_max = *records_left;
        let mut within = Within { bytes_max: WATCH_BYTES_FREE, room: None };
        loop {
            let (records, pass) = self.pass(span, records_max, &mut within, ask);
            *records_left = records_left.saturating_sub(records.max(1));
            match pass? {
                Pass::Done(reading) => return Ok(reading),
                Pass::Large(part) => return Err(Unread::Later(part)),
                Pass::Needs(bytes) => {
                    // What there is may be a part of it.
                    drop(within.room.take());
                    let room = ask(bytes, true).ok_or(Unread::NoRoom(None))?;
                    within = Within { bytes_max: bytes, room: Some(room) };
                }
            }
        }
    }

    /// Looks at revisions once. Returns at how many records.
    fn pass(
        &self,
        (from, to): (i64, i64),
        records_max: usize,
        within: &mut Within,
        ask: &mut Ask<'_>,
    ) -> (usize, Result<Pass, Unread>) {
        let Reader { options, cohort, .. } = self;
        let mut finds = Finds::new(self.compact_revision);
        let mut records = 0;
        let mut last = from;
        let mut next = to.saturating_add(1);
        let mut first = None;
        let mut is_wide = false;
        let mut lacks_room = false;
        let mut large = None;
        self.history.scan(Revision { main: from, sub: 0 }, to, &mut |record| {
            assert!(record.rev.main >= last && record.rev.main <= to, "a scan is in order and within its bounds");
            let is_whole = record.rev.main != last || Mistake::SplitsRevisions.is_planted() && records > 0;
            if is_whole && (records >= records_max || finds.is_full(options) || lacks_room) {
                next = record.rev.main;
                return ControlFlow::Break(());
            }
            if !is_whole && records >= options.poll_records_max {
                if first == Some(last) {
                    large = Some(record.rev);
                } else {
                    // Those before it are read without it first.
                    finds.drop_revision(last);
                    next = last;
                }
                lacks_room = false;
                return ControlFlow::Break(());
            }
            last = record.rev.main;
            records = records.saturating_add(1);
            let is_first = *first.get_or_insert(last) == last;
            finds.take(self.history, cohort, &record, lacks_room);
            if finds.is_wide(cohort, options) {
                is_wide = is_first;
                lacks_room = false;
            } else if finds.copied_bytes() > within.bytes_max && !lacks_room {
                within.widen(options.catch_up_bytes_max, ask);
                lacks_room = finds.copied_bytes() > within.bytes_max;
            }
            if is_wide || (!is_first && (lacks_room || finds.is_wide(cohort, options))) {
                finds.drop_revision(last);
                lacks_room = false;
                next = last;
                return ControlFlow::Break(());
            }
            ControlFlow::Continue(())
        });
        let pass = if is_wide {
            Err(Unread::Wide)
        } else if let Some(at) = large {
            let finds = finds.into_measured();
            Ok(Pass::Large(Box::new(Part { main: last, at, stage: Stage::Measuring, finds })))
        } else if lacks_room {
            Ok(Pass::Needs(finds.needed_bytes()))
        } else {
            Ok(Pass::Done(Reading { next, deliveries: self.deliver(finds, within.room.as_ref()) }))
        };
        (records, pass)
    }

    /// Goes on with a large revision.
    fn go_on(&self, mut part: Box<Part>, records_left: &mut usize, ask: &mut Ask<'_>) -> Result<Reading, Unread> {
        let next = part.main.saturating_add(1);
        loop {
            match &part.stage {
                Stage::Measuring => {
                    let last = Revision { main: part.main, sub: u32::MAX };
                    if !self.look(&mut part, last, records_left)? {
                        return Err(Unread::Later(part));
                    }
                    part.stage = Stage::Measured;
                }
                Stage::Measured => {
                    let Some((first, last)) = part.finds.reach() else {
                        return Ok(Reading { next, deliveries: Vec::new() });
                    };
                    // Those of one interest are built as they are found.
                    let only = self.cohort.interests.only();
                    let copied = part.finds.copied_bytes();
                    let bytes = if only.is_some() { copied } else { part.finds.needed_bytes() };
                    let room = if bytes > WATCH_BYTES_FREE { ask(bytes, true) } else { None };
                    if bytes > WATCH_BYTES_FREE && room.is_none() {
                        return Err(Unread::NoRoom(Some(part)));
                    }
                    part.at = first;
                    part.finds = Finds::new(self.compact_revision);
                    if let Some(interest) = only {
                        let fragment_bytes = interest.spec.fragment.then_some(self.options.fragment_bytes);
                        part.finds.build(fragment_bytes, copied, room.clone());
                    }
                    part.stage = Stage::Taking(last, room);
                }
                Stage::Taking(last, room) => {
                    let (last, room) = (*last, room.clone());
                    if !self.look(&mut part, last, records_left)? {
                        return Err(Unread::Later(part));
                    }
                    return Ok(Reading { next, deliveries: self.deliver(part.finds, room.as_ref()) });
                }
            }
        }
    }

    /// Looks at the records of a large revision up to `last`. False if the turn is over before.
    fn look(&self, part: &mut Part, last: Revision, records_left: &mut usize) -> Result<bool, Unread> {
        let Part { at, stage, finds, .. } = part;
        let measures = matches!(stage, Stage::Measuring);
        let (mut is_done, mut is_wide) = (true, false);
        self.history.scan(*at, last.main, &mut |record| {
            if record.rev > last {
                return ControlFlow::Break(());
            }
            if *records_left == 0 {
                *at = record.rev;
                is_done = false;
                return ControlFlow::Break(());
            }
            let cost = finds.take(self.history, self.cohort, &record, measures);
            *records_left = records_left.saturating_sub(cost);
            is_wide = finds.is_wide(self.cohort, &self.options);
            if is_wide { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        if is_wide { Err(Unread::Wide) } else { Ok(is_done) }
    }

    fn deliver(&self, finds: Finds, room: Option<&Arc<dyn Room>>) -> Vec<Delivery> {
        let copied = finds.copied_bytes();
        let deliveries =
            finds.deliver(self.cohort, &self.options, self.current, room.filter(|_| copied > WATCH_BYTES_FREE));
        if let Some(room) = room {
            room.shrink(copied);
        }
        deliveries
    }
}

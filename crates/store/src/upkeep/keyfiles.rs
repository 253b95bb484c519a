//! Making the key files of sealed segments, in steps off the apply thread.
//!
//! The records of a segment are read and verified, sorted in memory, and written in the order of their keys. The file is durable before its segment
//! knows of it, so that every checkpoint which lists it does too, once the names in the directory are synced. A file that is not finished is one that
//! no checkpoint lists: a start removes it.

use crate::keyfile::{Encoder, Finished};
use crate::log::{
    Damage, Error, FETCHED_BYTES, Keys, SEGMENT_HEADER_BYTES, Segment, SegmentEntry, Segments, Walk, key_file_name,
};
use crate::sorting::{Decoded, Item, Place, Places, shared, sort};
use crate::types::{Loc, Revision, Version};
use disk::{File, Mode, WriteBack};
use std::io::ErrorKind;
use std::path::PathBuf;
use std::sync::Arc;

/// Bytes that gather before they are written.
const BUFFER_BYTES: usize = 1 << 20;
/// So many records before its turn a record is fetched into the processor's caches.
const FETCHED_AHEAD: usize = 8;

/// Makes one key file after the other. One owner.
pub(crate) struct KeyFiles {
    segments: Arc<Segments>,
    rest: fn(),
    state: State,
    /// The room there was when the file under way was begun.
    room_bytes: u64,
    /// With no more room than this a write has failed: a quota, or whatever else the free bytes of the disk do not tell.
    too_little_bytes: Option<u64>,
}

/// What one step did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Made {
    /// Every segment that should have a key file has one, or there is no room for the next.
    Nothing,
    /// There is more to do.
    Part,
    /// A key file is finished, and the next checkpoint lists it.
    Whole,
}

enum State {
    Idle,
    /// Records are being noted.
    Reading(Reading),
    /// They are sorted, and written.
    Writing(Box<Writing>),
}

struct Reading {
    segment: Arc<Segment>,
    offset: usize,
    last: Revision,
    items: Vec<Item>,
    /// The bytes that all keys so far begin with; missing before the first.
    common: Option<Vec<u8>>,
}

struct Writing {
    segment: Arc<Segment>,
    items: Vec<Item>,
    next: usize,
    encoder: Encoder,
    path: PathBuf,
    file: Arc<dyn File>,
    written: u64,
    back: WriteBack,
}

impl KeyFiles {
    /// For the segments of a log. `rest` is called between small parts of the work.
    pub(crate) fn new(segments: Arc<Segments>, rest: fn()) -> KeyFiles {
        KeyFiles { segments, rest, state: State::Idle, room_bytes: 0, too_little_bytes: None }
    }

    /// Does the next part of the work: about `budget_bytes` of records. A key file is begun only if it leaves as much of the disk as others need: it
    /// is no longer than its segment, and `room_bytes` may be used.
    ///
    /// A full disk fails here without harm, and the file is begun again later ([`KeyFiles::put_off`]). Any other error is fatal.
    pub(crate) fn step(&mut self, room_bytes: u64, budget_bytes: u64) -> Result<Made, Error> {
        self.let_go();
        let (state, made) = match std::mem::replace(&mut self.state, State::Idle) {
            State::Idle => match self.next(room_bytes) {
                None => (State::Idle, Made::Nothing),
                Some(segment) => {
                    self.room_bytes = room_bytes;
                    (State::Reading(Reading::new(segment)), Made::Part)
                }
            },
            State::Reading(mut reading) => {
                if reading.step(budget_bytes)? {
                    (State::Writing(Box::new(reading.begin(&self.segments, self.rest)?)), Made::Part)
                } else {
                    (State::Reading(reading), Made::Part)
                }
            }
            State::Writing(mut writing) => match writing.step(budget_bytes) {
                Ok(false) => (State::Writing(writing), Made::Part),
                Ok(true) => {
                    writing.finish(&self.segments)?;
                    (State::Idle, Made::Whole)
                }
                Err(error) => {
                    writing.abandon(&self.segments);
                    return Err(error);
                }
            },
        };
        self.state = state;
        Ok(made)
    }

    /// The next segment that there is room for.
    fn next(&self, room_bytes: u64) -> Option<Arc<Segment>> {
        if self.too_little_bytes.is_some_and(|too_little| room_bytes <= too_little) {
            return None;
        }
        self.segments.without_keys().filter(|segment| segment.len() <= room_bytes)
    }

    /// Begins no file until there is more room than for the last one, which could not be written.
    pub(crate) fn put_off(&mut self) {
        self.too_little_bytes = Some(self.room_bytes);
    }

    /// Gives up the file under way if its segment is not a part of the log any more: its space comes back once nobody reads it.
    pub(crate) fn let_go(&mut self) {
        let segment = match &self.state {
            State::Idle => return,
            State::Reading(reading) => &reading.segment,
            State::Writing(writing) => &writing.segment,
        };
        if !self.segments.has(segment) {
            self.abandon();
        }
    }

    /// Gives up the file under way: the whole log is to be replaced, or there is no room for it.
    pub(crate) fn abandon(&mut self) {
        if let State::Writing(writing) = std::mem::replace(&mut self.state, State::Idle) {
            writing.abandon(&self.segments);
        }
    }
}

impl Reading {
    fn new(segment: Arc<Segment>) -> Reading {
        let (items, last) = (Vec::new(), Revision::default());
        Reading { segment, offset: SEGMENT_HEADER_BYTES, last, items, common: None }
    }

    /// Notes some records. True when all are.
    fn step(&mut self, budget_bytes: u64) -> Result<bool, Error> {
        let bytes = self.segment.published();
        let end = self.offset.saturating_add(budget_bytes.max(1) as usize).min(bytes.len());
        let damaged = |damage| Error::Damaged { path: self.segment.path().to_path_buf(), damage };
        let mut walk = Walk::after(bytes, self.offset, self.last);
        while walk.offset() < end {
            let offset = walk.offset();
            let Some(stored) = walk.next() else { break };
            let stored = stored.map_err(damaged)?;
            let what = "a record whose content does not fit its header";
            let view = stored.view().ok_or(Damage { offset: offset as u64, what }).map_err(damaged)?;
            match &mut self.common {
                Some(common) => common.truncate(shared(common, view.key)),
                none => *none = Some(view.key.to_vec()),
            }
            // Offsets are 32 bits wide.
            self.items.push(Item::new(Place { segment: 0, offset: offset as u32 }));
            self.last = stored.rev;
        }
        self.offset = walk.offset();
        Ok(self.offset >= bytes.len())
    }

    /// Sorts them, and begins the file.
    fn begin(self, segments: &Segments, rest: fn()) -> Result<Writing, Error> {
        let Reading { segment, mut items, common, .. } = self;
        let common = common.map_or(0, |common| common.len());
        sort(&mut items, common, &Places::new(vec![segment.published()]), 1, rest);
        let path = segments.dir().join(key_file_name(segment.id()));
        match segments.disk().remove(&path) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(Error::io("remove", &path)(error)),
            _ => {}
        }
        let file = segments.disk().open(&path, Mode::Create).map_err(Error::io("create", &path))?;
        let encoder = Encoder::new(SegmentEntry { keys_crc: None, ..segment.entry() }, common);
        let written = Encoder::HEADER_BYTES as u64;
        Ok(Writing { segment, items, next: 0, encoder, path, file, written, back: WriteBack::default() })
    }
}

/// A record that was verified before. Its page may have been given up and read from the disk again meanwhile, so it is verified again.
fn again(segment: &Segment, place: Place) -> Result<Decoded<'_>, Error> {
    let damaged = |damage| Error::Damaged { path: segment.path().to_path_buf(), damage };
    let unfit = Damage { offset: place.offset.into(), what: "a record whose content does not fit its header" };
    let stored = Walk::new(segment.published(), place.offset as usize).next().unwrap_or(Err(unfit)).map_err(damaged)?;
    let view = stored.view().ok_or(unfit).map_err(damaged)?;
    let loc = Loc { segment: 0, offset: stored.offset as u32, len: stored.bytes.len() as u32 };
    let version = Version { rev: stored.rev, create: view.create, version: view.version, loc };
    Ok(Decoded { key: view.key, version, lease: view.lease })
}

impl Writing {
    /// Writes some records. True when all are.
    fn step(&mut self, budget_bytes: u64) -> Result<bool, Error> {
        let segment = Arc::clone(&self.segment);
        let mut left = budget_bytes.max(1);
        while let Some(item) = self.items.get(self.next).filter(|_| left > 0) {
            // The records of neighbours in the order of keys are anywhere in the segment.
            if let Some(later) = self.items.get(self.next + FETCHED_AHEAD) {
                segment.fetch(later.place().offset as usize, FETCHED_BYTES);
            }
            let record = again(&segment, item.place())?;
            left = left.saturating_sub(record.version.loc.len.into());
            self.encoder.push(&record);
            self.next += 1;
            if self.encoder.waiting() >= BUFFER_BYTES {
                self.write()?;
            }
        }
        Ok(self.next == self.items.len())
    }

    /// Writes the blocks that wait.
    fn write(&mut self) -> Result<(), Error> {
        let mut blocks = Vec::new();
        self.encoder.take_blocks(&mut blocks);
        self.file.write_at(&blocks, self.written).map_err(Error::io("write", &self.path))?;
        self.written += blocks.len() as u64;
        // The sync then has little to do.
        self.back.advance(&*self.file, self.written).map_err(Error::io("write back", &self.path))
    }

    /// Makes the file durable, and tells the segment. An error removes it.
    fn finish(mut self: Box<Self>, segments: &Segments) -> Result<(), Error> {
        self.encoder.close_block();
        let finished = self.write().and_then(|()| {
            let encoder = std::mem::replace(&mut self.encoder, Encoder::new(SegmentEntry::default(), 0));
            let Finished { tail, header, crc } = encoder.finish(&self.segment.marks());
            self.file.write_at(&tail, self.written).map_err(Error::io("write", &self.path))?;
            self.file.write_at(&header, 0).map_err(Error::io("write", &self.path))?;
            self.file.sync_data().map_err(Error::io("sync", &self.path))?;
            Ok(Keys { crc, bytes: self.written + tail.len() as u64 })
        });
        match finished {
            Ok(keys) => {
                self.segment.set_keys(keys);
                Ok(())
            }
            Err(error) => {
                self.abandon(segments);
                Err(error)
            }
        }
    }

    fn abandon(self: Box<Self>, segments: &Segments) {
        // If it stays, the next start removes it: no checkpoint lists it.
        segments.retire_keys(self.segment.id()).ok();
    }
}

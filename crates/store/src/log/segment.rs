//! One segment file, as every thread sees it.

use super::guard::RwLock;
use super::guard::{lock, read, write};
use super::layout::{
    RECORD_HEADER_BYTES, RecordHeader, SEGMENT_HEADER_BYTES, is_sealed_record, key_file_name, record_bytes,
    segment_header, segment_name,
};
use super::{Error, SegmentEntry};
use crate::types::Revision;
use disk::{Disk, File, Mapping, Mode, WriteBack};
use std::convert::Infallible;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64};
use std::sync::{Arc, Mutex, OnceLock};

/// Bytes read at a time to sum them up.
const SUM_BYTES: u64 = 256 << 10;
/// Bytes of a record that are fetched into the processor's caches before its turn; they bring on the rest.
pub(crate) const FETCHED_BYTES: usize = 256;

/// One entry of the sparse index per this many bytes of records.
const MARK_EVERY_BYTES: u64 = 64 * 1024;

/// One segment: its file, its mapping, and what is known about its records. Dropped when nothing refers to it, which may be
/// long after the file lost its name.
pub struct Segment {
    id: u32,
    path: PathBuf,
    file: Arc<dyn File>,
    mapping: Mapping,
    /// Bytes that hold the header and whole records; stored after they are written, so what is below never changes.
    len: AtomicU64,
    sealed: AtomicBool,
    /// How much of it is known to be durable.
    synced: AtomicU64,
    /// Held while something waits for the disk: an error of [`Segment::send`] is not told to a later sync.
    sending: Mutex<Sending>,
    /// Bytes of records that were not marked dead.
    live: AtomicU64,
    /// Bytes of dead tombstones, which a rewrite may have to keep, see `upkeep::rewrite`.
    graves: AtomicU64,
    /// Listings that may still become a checkpoint.
    held: AtomicU32,
    track: RwLock<Track>,
    /// CRC-32C of the bytes after the header up to this length, as far as it was computed.
    summed: Mutex<(u64, u32)>,
    /// Records that begin before this were written or checked by this process; all others are checked each time that they are read.
    verified: AtomicU64,
    keys: OnceLock<Keys>,
    /// Where its files are, if the start has not read its records.
    unread: OnceLock<Arc<dyn Disk>>,
}

/// The key file of a segment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Keys {
    /// Checksum of its header, by which a checkpoint lists it.
    pub(crate) crc: u32,
    /// Its length.
    pub(crate) bytes: u64,
}

/// What was sent to the disk.
#[derive(Debug, Default)]
struct Sending {
    back: WriteBack,
    has_failed: bool,
}

/// What the records of a segment span.
#[derive(Clone, Debug, Default)]
struct Track {
    first: Revision,
    last: Revision,
    records: u64,
    marks: Vec<Mark>,
}

/// An entry of the sparse index: the record at `offset` has revision `rev`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Mark {
    pub(crate) rev: Revision,
    pub(crate) offset: u32,
}

/// Records that are about to be published together.
#[derive(Debug, Default)]
pub(crate) struct Batch {
    track: Track,
    bytes: u64,
    /// End of the last marked stretch.
    mark_at: u64,
}

/// Where a segment's file comes from.
pub(crate) enum Origin {
    /// New, for appending.
    New,
    /// Found at open or finished by a rewrite: no more records will come.
    Sealed,
    /// Found at open, to be appended to.
    Tail,
}

impl Batch {
    /// All records of a segment, `bytes` in all, as its key file tells them.
    pub(crate) fn of(first: Revision, last: Revision, records: u64, bytes: u64, marks: Vec<Mark>) -> Batch {
        Batch { track: Track { first, last, records, marks }, bytes, mark_at: 0 }
    }

    /// Counts a record of `bytes` (header included) that begins at `offset`.
    pub(crate) fn add(&mut self, rev: Revision, offset: u64, bytes: u64) {
        if self.track.records == 0 {
            self.track.first = rev;
        }
        if offset >= self.mark_at {
            // The writer keeps offsets within 32 bits.
            self.track.marks.push(Mark { rev, offset: offset as u32 });
            self.mark_at = offset + MARK_EVERY_BYTES;
        }
        self.track.last = rev;
        self.track.records += 1;
        self.bytes += bytes;
    }

    /// First and last revision, records and bytes; and the marks.
    #[cfg(test)]
    pub(crate) fn summary(&self) -> ((Revision, Revision, u64, u64), &[Mark]) {
        let Track { first, last, records, marks } = &self.track;
        ((*first, *last, *records, self.bytes), marks)
    }

    /// Bytes of the records counted.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Starts over for the next records of the same segment.
    pub(crate) fn clear(&mut self) {
        self.track = Track::default();
        self.bytes = 0;
    }
}

impl Segment {
    /// Creates the file of segment `id` in `dir` with `capacity` bytes reserved. Nothing is synced.
    pub(crate) fn create(disk: &dyn Disk, dir: &Path, id: u32, capacity: u64) -> Result<Segment, Error> {
        let path = dir.join(segment_name(id));
        let file = disk.open(&path, Mode::Create).map_err(Error::io("create", &path))?;
        let prepared = file
            .allocate(capacity)
            .map_err(Error::io("reserve space for", &path))
            .and_then(|()| file.write_at(&segment_header(id), 0).map_err(Error::io("write", &path)))
            .and_then(|()| file.map(capacity).map_err(Error::io("map", &path)));
        match prepared {
            Ok(mapping) => Ok(Segment::new(id, path, file, mapping, Origin::New)),
            Err(error) => {
                // The disk is full, or worse. Without its file the attempt leaves nothing behind; a failure to remove it
                // is covered by recovery, which removes what no checkpoint lists.
                disk.remove(&path).ok();
                Err(error)
            }
        }
    }

    /// A segment over an open file. Its records are told by [`Segment::publish`].
    pub(crate) fn new(id: u32, path: PathBuf, file: Arc<dyn File>, mapping: Mapping, origin: Origin) -> Segment {
        Segment {
            id,
            path,
            file,
            mapping,
            len: AtomicU64::new(SEGMENT_HEADER_BYTES as u64),
            sealed: AtomicBool::new(matches!(origin, Origin::Sealed)),
            synced: AtomicU64::new(0),
            sending: Mutex::default(),
            live: AtomicU64::new(0),
            graves: AtomicU64::new(0),
            held: AtomicU32::new(0),
            track: RwLock::default(),
            summed: Mutex::new((SEGMENT_HEADER_BYTES as u64, 0)),
            verified: AtomicU64::new(u64::MAX),
            keys: OnceLock::new(),
            unread: OnceLock::new(),
        }
    }

    /// Number of the segment, part of its file's name. Never used twice in a directory.
    pub fn id(&self) -> u32 {
        self.id
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Address range of the mapping, for the handler of SIGBUS.
    pub fn address(&self) -> std::ops::Range<usize> {
        self.mapping.address()
    }

    /// Bytes that hold the header and whole records.
    pub(crate) fn len(&self) -> u64 {
        self.len.load(Acquire)
    }

    /// Bytes reserved on disk.
    pub(crate) fn capacity(&self) -> u64 {
        self.mapping.len() as u64
    }

    /// Bytes that it takes on disk, its key file included.
    pub(crate) fn file_bytes(&self) -> u64 {
        self.capacity() + self.keys().map_or(0, |keys| keys.bytes)
    }

    /// Where its key file is, if it has one. Without it the next start reads the segment.
    fn keys_path(&self) -> PathBuf {
        self.path.with_file_name(key_file_name(self.id))
    }

    /// Its key file, if it has one.
    pub(crate) fn keys(&self) -> Option<Keys> {
        self.keys.get().copied()
    }

    /// Notes its key file, which is durable but for its name.
    pub(crate) fn set_keys(&self, keys: Keys) {
        assert!(self.is_sealed(), "a segment that takes more records has no key file");
        assert!(self.keys.set(keys).is_ok(), "a segment has one key file");
        self.mapping.removes_when_unreadable(&self.keys_path());
    }

    /// Notes that the start has not read its records: each is checked when it is read from `disk`.
    pub(crate) fn set_unread(&self, disk: Arc<dyn Disk>) {
        assert!(self.unread.set(disk).is_ok(), "a segment is found once");
        self.set_verified(0);
    }

    /// All its records, for another segment with the same ones.
    pub(crate) fn batch(&self) -> Batch {
        Batch { track: read(&self.track).clone(), bytes: self.body(), mark_at: 0 }
    }

    /// The marks of its sparse index.
    pub(crate) fn marks(&self) -> Vec<Mark> {
        read(&self.track).marks.clone()
    }

    /// Where the first record begins that was not checked yet.
    pub(crate) fn verified(&self) -> u64 {
        self.verified.load(Relaxed)
    }

    /// Whether all records were written or checked by this process.
    pub(crate) fn is_verified(&self) -> bool {
        self.verified() == u64::MAX
    }

    /// Notes that the records before `offset` were checked; all of them, if it is `u64::MAX`.
    pub(crate) fn set_verified(&self, offset: u64) {
        self.verified.store(offset, Relaxed);
    }

    /// Bytes of records.
    pub(crate) fn body(&self) -> u64 {
        self.len() - SEGMENT_HEADER_BYTES as u64
    }

    /// True when no more records will come.
    pub(crate) fn is_sealed(&self) -> bool {
        self.sealed.load(Acquire)
    }

    pub(crate) fn seal(&self) {
        self.sealed.store(true, Release);
    }

    /// Bytes of records not marked dead.
    pub(crate) fn live(&self) -> u64 {
        self.live.load(Relaxed)
    }

    pub(crate) fn add_live(&self, bytes: u64) {
        self.live.fetch_add(bytes, Relaxed);
    }

    pub(crate) fn sub_live(&self, bytes: u64) {
        let before = self.live.fetch_sub(bytes, Relaxed);
        assert!(before >= bytes, "more bytes of segment {:x} died than were live", self.id);
    }

    /// Notes that a live record of so many bytes has died.
    pub(crate) fn bury(&self, bytes: u64, is_tombstone: bool) {
        self.sub_live(bytes);
        if is_tombstone {
            self.add_graves(bytes);
        }
    }

    /// Bytes of dead tombstones: all of them, since a record that is neither live nor one of these is a dead put.
    pub(crate) fn graves(&self) -> u64 {
        self.graves.load(Relaxed)
    }

    pub(crate) fn add_graves(&self, bytes: u64) {
        self.graves.fetch_add(bytes, Relaxed);
    }

    /// Revision of the last record.
    pub(crate) fn last(&self) -> Revision {
        read(&self.track).last
    }

    /// Writes whole records at `offset`. They are not seen before [`Segment::publish`].
    pub(crate) fn write_at(&self, bytes: &[u8], offset: u64) -> Result<(), Error> {
        assert!(offset >= self.len() && offset + bytes.len() as u64 <= self.capacity(), "write outside of the tail");
        self.file.write_at(bytes, offset).map_err(Error::io("write", &self.path))
    }

    /// Makes the records of a batch readable. They must have been written.
    pub(crate) fn publish(&self, batch: &Batch) {
        let mut track = write(&self.track);
        if track.records == 0 {
            track.first = batch.track.first;
        }
        track.last = batch.track.last;
        track.records += batch.track.records;
        track.marks.extend_from_slice(&batch.track.marks);
        self.len.fetch_add(batch.bytes, Release);
    }

    /// This segment in a checkpoint.
    pub(crate) fn entry(&self) -> SegmentEntry {
        let track = read(&self.track);
        SegmentEntry {
            id: self.id,
            length: self.len(),
            records: track.records,
            first_main: track.first.main,
            first_sub: track.first.sub,
            last_main: track.last.main,
            last_sub: track.last.sub,
            body_crc: None,
            keys_crc: self.keys().map(|keys| keys.crc),
        }
    }

    /// Reads published bytes from the file: unlike a mapping it says so when the disk fails.
    pub(crate) fn read_at(&self, offset: u64, len: usize) -> Result<Vec<u8>, Error> {
        assert!(offset + len as u64 <= self.len(), "only what is published is read");
        let mut bytes = vec![0; len];
        self.file.read_at(&mut bytes, offset).map_err(Error::io("read", &self.path))?;
        Ok(bytes)
    }

    /// CRC-32C of the bytes after the header up to `len`. Reads what was not summed up before, and calls `rest` in between.
    pub(crate) fn body_crc(&self, len: u64, rest: fn()) -> Result<u32, Error> {
        let mut summed = lock(&self.summed);
        let (mut end, mut crc) = if summed.0 <= len { *summed } else { (SEGMENT_HEADER_BYTES as u64, 0) };
        while end < len {
            let bytes = self.read_at(end, (len - end).min(SUM_BYTES) as usize)?;
            crc = crc32c::crc32c_append(crc, &bytes);
            end += bytes.len() as u64;
            rest();
        }
        *summed = (end, crc);
        Ok(crc)
    }

    /// Offset from which to look for the first record at or after `from`: at most one stretch before it.
    pub(crate) fn seek(&self, from: Revision) -> usize {
        let track = read(&self.track);
        let after = track.marks.partition_point(|mark| mark.rev <= from);
        match after.checked_sub(1).and_then(|before| track.marks.get(before)) {
            Some(mark) => mark.offset as usize,
            None => SEGMENT_HEADER_BYTES,
        }
    }

    /// The record header at `offset` and the offset of the record after it.
    pub(crate) fn record_at(&self, offset: usize) -> (RecordHeader, usize) {
        let header = self.mapping.get(offset, RECORD_HEADER_BYTES).and_then(|bytes| bytes.first_chunk());
        let Some(header) = header.and_then(RecordHeader::decode) else {
            self.panic_damaged(offset, "no record where there was one");
        };
        let end = offset + record_bytes(header.len as usize);
        if end as u64 > self.len() {
            self.panic_damaged(offset, "a record that ends behind the last one");
        }
        self.check_stored(offset + RECORD_HEADER_BYTES, header.len as usize);
        (header, end)
    }

    /// The stored bytes of the record that are at `offset`, which is that of no header.
    ///
    /// # Panics
    /// If the record is damaged, which [`Segment::check_stored`] explains.
    pub(crate) fn stored(&self, offset: usize, len: usize) -> &[u8] {
        self.check_stored(offset, len);
        self.bytes(offset, len)
    }

    /// Has the processor fetch the first of these stored bytes.
    pub(crate) fn fetch(&self, offset: usize, len: usize) {
        disk::fetch(self.mapping.get(offset, len.min(FETCHED_BYTES)).unwrap_or_default());
    }

    /// Checks the record with these stored bytes, unless this process has done so or has written it. There is no answer that could be given
    /// instead of the damaged one: a panic ends the member, as a start would have refused the file.
    pub(crate) fn check_stored(&self, offset: usize, len: usize) {
        if offset as u64 >= self.verified() {
            self.verify_stored(offset, len);
        }
    }

    #[cold]
    fn verify_stored(&self, offset: usize, len: usize) {
        let begin = offset - RECORD_HEADER_BYTES;
        let record = self.mapping.get(begin, record_bytes(len)).filter(|record| is_sealed_record(record));
        let header = record.and_then(|record| record.first_chunk()).and_then(RecordHeader::decode);
        if header.is_none_or(|header| header.len as usize != len) {
            self.panic_damaged(begin, "the checksum of a record is wrong");
        }
    }

    /// Ends the process, although what reads may be in the scope of one answer: another request would be told what this one was not.
    fn panic_damaged(&self, offset: usize, what: &str) -> ! {
        match contain::outside(|| -> Infallible {
            if let Some(disk) = self.unread.get() {
                // Without its key file the next start reads the segment, and refuses it. If it stays, the damage is found again.
                disk.remove(&self.keys_path()).ok();
            }
            panic!(
                "`{}` is damaged at offset {offset}: {what}; the file has changed since it was written, and no answer can be given from it",
                self.path.display()
            )
        }) {}
    }

    /// Bytes of the mapping; the caller keeps within published records.
    pub(crate) fn bytes(&self, offset: usize, len: usize) -> &[u8] {
        let Some(bytes) = self.mapping.get(offset, len) else {
            panic!("`{}` has no bytes {offset}+{len}", self.path.display());
        };
        bytes
    }

    /// All published bytes, header included.
    pub(crate) fn published(&self) -> &[u8] {
        self.bytes(0, self.len() as usize)
    }

    /// Makes the first `len` bytes durable.
    pub(crate) fn sync(&self, len: u64) -> Result<(), Error> {
        if self.synced.load(Relaxed) < len {
            let mut sending = lock(&self.sending);
            sending.attempt(|_| self.file.sync_data()).map_err(Error::fatal("sync", &self.path))?;
            self.mark_synced(len);
        }
        Ok(())
    }

    /// Sends what was written to the disk, a part of it at a time and but for the last part. Nothing is durable by that.
    pub(crate) fn send(&self) -> Result<(), Error> {
        // A sync under way sends all of it.
        let Ok(mut sending) = self.sending.try_lock() else { return Ok(()) };
        let (file, len) = (&*self.file, self.len());
        sending.back.skip_to(self.synced.load(Relaxed));
        sending.attempt(|back| back.advance(file, len)).map_err(Error::fatal("write back", &self.path))
    }

    /// Whether nothing is left for [`Segment::send`] now, nor later.
    pub(crate) fn is_sent(&self) -> bool {
        let len = self.len();
        // A sync under way is not waited for: the segment is looked at again.
        let is_behind = || self.sending.try_lock().map_or(true, |sending| sending.back.is_behind(len));
        self.is_sealed() && (self.synced.load(Relaxed) >= len || !is_behind())
    }

    /// Notes that the first `len` bytes are durable.
    pub(crate) fn mark_synced(&self, len: u64) {
        self.synced.fetch_max(len, Relaxed);
    }

    pub(crate) fn hold(&self) {
        self.held.fetch_add(1, Acquire);
    }

    pub(crate) fn unhold(&self) {
        self.held.fetch_sub(1, Release);
    }

    pub(crate) fn is_held(&self) -> bool {
        self.held.load(Acquire) > 0
    }
}

impl Sending {
    /// Nothing is known of the disk after an attempt that failed.
    fn attempt(&mut self, attempt: impl FnOnce(&mut WriteBack) -> io::Result<()>) -> io::Result<()> {
        if self.has_failed {
            return Err(io::Error::other("an earlier write or sync of it failed"));
        }
        attempt(&mut self.back).inspect_err(|_| self.has_failed = true)
    }
}

impl std::fmt::Debug for Segment {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Segment({:x}, {} bytes, {} live)", self.id, self.len(), self.live())
    }
}

//! The read side of the log.

use super::guard::RwLock;
use super::guard::{lock, read, write};
use super::layout::{
    INTAKE_SUFFIX, RECORD_HEADER_BYTES, SEGMENT_HEADER_BYTES, intake_checkpoint_name, key_file_name,
    parse_segment_name, record_bytes, segment_name,
};
use super::table::Table;
use super::{Error, Listing, Scan, Segment, Value};
use crate::mistake::Mistake;
use crate::types::{Loc, Revision};
use disk::{Disk, Reaper, Users};
use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicU32;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex};

/// How the log is laid out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Size to which segments grow. Small logs use smaller ones, down to a sixteenth, so that an empty store does not reserve
    /// what a full one needs.
    pub segment_bytes: u64,
}

impl Default for Options {
    fn default() -> Self {
        Options { segment_bytes: 64 << 20 }
    }
}

/// Every segment of the log, shared by all threads: reading by place and in revision order, and accounting of live bytes.
///
/// A [`Loc`] is good while the index refers to it, and until the second checkpoint after a rewrite moved it. A reader that may keep
/// one for longer must turn it into a [`Value`] under the same hold of the index lock that it was read with.
pub struct Segments {
    pub(super) disk: Arc<dyn Disk>,
    pub(super) dir: PathBuf,
    options: Options,
    pub(super) table: RwLock<Table>,
    pub(super) spare: Mutex<Option<Arc<Segment>>>,
    /// Files that only an older checkpoint lists, found at open.
    leftovers: Mutex<Vec<u32>>,
    /// Shared with the store that is founded beside this one, whose segments may become this one's.
    pub(super) next_id: Arc<AtomicU32>,
    live_bytes: AtomicU64,
    /// Counts [`Segments::mark_dead`]: tells a rewrite that something died while it worked.
    deaths: AtomicU64,
    /// Gives back the files that are not needed any more.
    reaper: Arc<Reaper>,
}

impl Segments {
    /// A log without segments in `dir`, whose first segment gets the id `next_id`.
    pub(crate) fn new(disk: Arc<dyn Disk>, dir: &Path, options: Options, next_id: u32) -> Segments {
        Segments::counting(disk, dir, options, Arc::new(AtomicU32::new(next_id)))
    }

    /// The same in another directory, with ids that none of these segments has or gets.
    pub(crate) fn beside(&self, disk: Arc<dyn Disk>, dir: &Path, options: Options) -> Segments {
        Segments::counting(disk, dir, options, Arc::clone(&self.next_id))
    }

    fn counting(disk: Arc<dyn Disk>, dir: &Path, options: Options, next_id: Arc<AtomicU32>) -> Segments {
        Segments {
            reaper: Arc::new(Reaper::new(Arc::clone(&disk), dir)),
            disk,
            dir: dir.to_path_buf(),
            options,
            table: RwLock::default(),
            spare: Mutex::default(),
            leftovers: Mutex::default(),
            next_id,
            live_bytes: AtomicU64::new(0),
            deaths: AtomicU64::new(0),
        }
    }

    /// The stored bytes at `loc`: no system call, no allocation.
    ///
    /// # Panics
    /// When the log never gave out this location, or forgot it since (see [`Segments`]).
    pub fn read(&self, loc: Loc) -> Value {
        let segment = Arc::clone(find(&read(&self.table), loc));
        Value::new(segment, loc.offset, loc.len)
    }

    /// As [`Segments::read`], but `None` for a location that was forgotten.
    pub fn try_read(&self, loc: Loc) -> Option<Value> {
        let segment = Arc::clone(read(&self.table).get(loc.segment)?);
        Some(Value::new(segment, loc.offset, loc.len))
    }

    /// The segment with this id, for callers that keep many locations in it.
    ///
    /// # Panics
    /// As [`Segments::read`].
    pub(crate) fn segment(&self, id: u32) -> Arc<Segment> {
        match read(&self.table).get(id) {
            Some(segment) => Arc::clone(segment),
            None => panic!("there is no segment {id:x}"),
        }
    }

    /// Hands the stored bytes at `loc` to `f`, without touching a reference count. `f` runs under a lock that the creation of
    /// segments waits for: it must be short, and must not come back to these segments.
    pub fn with<T>(&self, loc: Loc, f: impl FnOnce(&[u8]) -> T) -> T {
        f(find(&read(&self.table), loc).stored(loc.offset as usize, loc.len as usize))
    }

    /// The records from the first one with a main revision of at least `from`, in revision order.
    pub fn scan(self: &Arc<Self>, from: i64) -> Scan {
        self.scan_from(Revision { main: from, sub: 0 })
    }

    /// The records from this one on, in revision order.
    pub(crate) fn scan_from(self: &Arc<Self>, from: Revision) -> Scan {
        Scan::new(Arc::clone(self), from)
    }

    /// Notes that nothing will ask for the record at `loc` again. Once per record, and before a rewrite takes its next step after
    /// the index lost the version: under the same hold of the index lock, or by the thread that rewrites. Dead tombstones are counted
    /// apart: a rewrite may have to keep them.
    pub fn mark_dead(&self, loc: Loc, is_tombstone: bool) {
        let bytes = record_bytes(loc.len as usize) as u64;
        find(&read(&self.table), loc).bury(bytes, is_tombstone);
        self.deaths.fetch_add(1, Relaxed);
        let before = self.live_bytes.fetch_sub(bytes, Relaxed);
        assert!(before >= bytes, "more bytes died than were live");
    }

    /// Bytes of all records that were not marked dead, headers included.
    pub fn live_bytes(&self) -> u64 {
        self.live_bytes.load(Relaxed)
    }

    /// Bytes that the log's files take on disk, reserved space, key files and replaced segments included.
    pub fn file_bytes(&self) -> u64 {
        let spare = lock(&self.spare).as_ref().map_or(0, |segment| segment.capacity());
        let table = read(&self.table);
        table.order().iter().chain(table.retired()).map(|segment| segment.file_bytes()).sum::<u64>() + spare
    }

    /// Segments of the log, replaced ones not counted.
    pub fn count(&self) -> usize {
        read(&self.table).order().len()
    }

    /// Free space that must stay on the disk for what the log does on its own: the next segment, unless it is reserved already,
    /// and the copy that one rewrite makes.
    pub fn needed_reserve_bytes(&self) -> u64 {
        self.needed_spare_bytes() + self.needed_copy_bytes()
    }

    /// The part of it that is for the copy.
    pub(crate) fn needed_copy_bytes(&self) -> u64 {
        let largest = read(&self.table).order().iter().map(|segment| segment.len()).max().unwrap_or(0);
        largest.max(self.next_capacity())
    }

    /// The part of it that is for the next segment.
    pub(crate) fn needed_spare_bytes(&self) -> u64 {
        if lock(&self.spare).is_some() { 0 } else { self.next_capacity() }
    }

    /// Bytes of the next segment, if it is reserved already.
    pub(crate) fn spare_bytes(&self) -> u64 {
        lock(&self.spare).as_ref().map_or(0, |spare| spare.capacity())
    }

    /// Segments and lengths for a checkpoint: all that is flushed. While the listing lives no file in it is removed.
    pub(crate) fn listing(&self) -> Listing {
        let table = read(&self.table);
        Listing::new(Arc::clone(&self.reaper), self.dir.clone(), table.order())
    }

    /// Gives back the files of replaced segments that no kept checkpoint (`kept`: the ids they list) and no [`Listing`] refers to,
    /// and that were replaced before the last sweep: a reader may have taken a location from the index just before. Open
    /// mappings stay valid.
    pub(crate) fn sweep(&self, kept: &HashSet<u32>) -> Result<usize, Error> {
        self.remove_unneeded(kept, true)
    }

    /// As [`Segments::sweep`], for between two of them: what was replaced since the last one stays for the next one. True when
    /// something is left that no checkpoint lists.
    pub(crate) fn sweep_settled(&self, kept: &HashSet<u32>) -> Result<bool, Error> {
        self.remove_unneeded(kept, false)?;
        Ok(read(&self.table).retired().any(|segment| !kept.contains(&segment.id())))
    }

    /// What cannot go holds up no other: the files of the others would be nobody's. The first error is told.
    fn remove_unneeded(&self, kept: &HashSet<u32>, settles: bool) -> Result<usize, Error> {
        let mut leftovers: Vec<u32> = Vec::new();
        lock(&self.leftovers).retain(|id| {
            let keep = kept.contains(id);
            if !keep {
                leftovers.push(*id);
            }
            keep
        });
        let forgets = Mistake::RemovesListedSegments.is_planted();
        let may_go = |segment: &Segment| (forgets || !kept.contains(&segment.id())) && !segment.is_held();
        let swept = write(&self.table).forget_retired(settles || forgets, may_go);
        let count = leftovers.len() + swept.len();
        let leftovers = leftovers.into_iter().map(|id| (id, self.segment_bytes(), None));
        let swept = swept.into_iter().map(|segment| (segment.id(), segment.capacity(), Some(segment)));
        let mut done = Ok(count);
        for (id, bytes, segment) in leftovers.chain(swept) {
            done = done.and(self.retire(id, bytes, segment).map(|()| count));
        }
        done
    }

    /// Takes a segment's name from its file, which no checkpoint lists, and has it given back once it has no readers, and its key file with it.
    /// Costs a rename of each.
    pub(crate) fn retire(&self, id: u32, bytes: u64, segment: Option<Arc<Segment>>) -> Result<(), Error> {
        if segment.as_ref().is_some_and(|segment| segment.keys().is_some()) {
            self.retire_keys(id)?;
        }
        let path = self.dir.join(segment_name(id));
        let retired = self.dir.join(segment_name(id) + INTAKE_SUFFIX);
        if self.reaper.put_aside(&path, &retired).map_err(Error::io("rename", &path))? {
            self.reaper.retire(retired, bytes, segment.map(|segment| segment as Users));
        }
        Ok(())
    }

    /// Has the key file of the segment `id` given back, if it is there.
    pub(crate) fn retire_keys(&self, id: u32) -> Result<(), Error> {
        match self.retire_named(&key_file_name(id)) {
            Err(Error::Io { source, .. }) if source.kind() == std::io::ErrorKind::NotFound => Ok(()),
            retired => retired,
        }
    }

    /// Removes the key file of the segment that is damaged, if the error says that one is: then the next start reads the segment, and refuses it.
    pub(crate) fn condemn(&self, error: &Error) {
        let Error::Damaged { path, .. } = error else { return };
        let name = path.file_name().and_then(|name| name.to_str());
        if let Some(id) = name.and_then(parse_segment_name) {
            // If it stays, the damage is found again.
            self.disk.remove(&self.dir.join(key_file_name(id))).ok();
        }
    }

    /// Has the file `name` given back, which no start must take for data. It gets the name of a received checkpoint, under a number that nothing
    /// else has: its own name may be used again before it is gone.
    pub(crate) fn retire_named(&self, name: &str) -> Result<(), Error> {
        let path = self.dir.join(name);
        let retired = self.dir.join(intake_checkpoint_name(self.new_id()));
        if self.reaper.put_aside(&path, &retired).map_err(Error::io("rename", &path))? {
            self.reaper.retire_found(retired);
        }
        Ok(())
    }

    /// What gives back the files that are not needed any more: to be stepped by a thread that nobody waits for.
    pub fn reaper(&self) -> &Arc<Reaper> {
        &self.reaper
    }

    /// Creates the file of the segment `id`. On a full disk nothing that waits to be given back stays in its way.
    pub(crate) fn create(&self, id: u32, capacity: u64) -> Result<Segment, Error> {
        loop {
            match Segment::create(&*self.disk, &self.dir, id, capacity) {
                Err(error) if error.is_out_of_space() && self.reaper.make_room() => {}
                created => return created,
            }
        }
    }

    /// Sends what was written to the disk, but for the last part of it, so that the checkpoint that syncs it waits for little. For a thread
    /// that nobody waits for. An error is as bad as one of a checkpoint: the member must end.
    pub fn write_back(&self) -> Result<(), Error> {
        // Those before one that needs no more are level too: each was the last one once.
        let order = self.order();
        order.iter().rev().take_while(|segment| !segment.is_sent()).try_for_each(|segment| segment.send())
    }

    /// Takes over the files of segments that only an older checkpoint lists, to be swept with it.
    pub(crate) fn adopt(&self, leftovers: Vec<u32>) {
        lock(&self.leftovers).extend(leftovers);
    }

    /// Adds the newest segment of the log, and seals the one before.
    pub(crate) fn push(&self, segment: Arc<Segment>) {
        write(&self.table).push(segment);
    }

    /// The segments of the log, oldest first.
    pub(crate) fn order(&self) -> Vec<Arc<Segment>> {
        read(&self.table).order().to_vec()
    }

    /// The first segment that takes no more records and has no key file. A start goes on with the last segment, and so it scans that.
    pub(crate) fn without_keys(&self) -> Option<Arc<Segment>> {
        let table = read(&self.table);
        let (_, before) = table.order().split_last()?;
        before.iter().find(|segment| segment.is_sealed() && segment.keys().is_none()).map(Arc::clone)
    }

    /// The first segment with records that were not checked since the start.
    pub(crate) fn unverified(&self) -> Option<Arc<Segment>> {
        read(&self.table).order().iter().find(|segment| !segment.is_verified()).map(Arc::clone)
    }

    /// Whether the segment is a part of the log. It stays one until a rewrite or the snapshot of another member replaces it.
    pub(crate) fn has(&self, segment: &Arc<Segment>) -> bool {
        read(&self.table).order().iter().any(|other| Arc::ptr_eq(other, segment))
    }

    /// Makes a segment known by its id, so that records can be moved to it.
    pub(crate) fn admit(&self, segment: &Arc<Segment>) {
        write(&self.table).admit(segment);
    }

    /// Puts `new`, which was admitted, into the place of a run of neighbours, none of whose records is live any more.
    pub(crate) fn replace(&self, run: &[Arc<Segment>], new: Option<Arc<Segment>>) {
        for old in run {
            assert!(old.live() == 0, "segment {:x} is replaced with {} live bytes", old.id(), old.live());
        }
        write(&self.table).replace(run, new);
    }

    /// Puts the segments of another state, sealed and with `live_bytes` in all, into the place of those there are. Under the write lock
    /// of the index, which changes with them.
    pub(crate) fn install(&self, segments: Vec<Arc<Segment>>, live_bytes: u64) {
        write(&self.table).install(segments);
        self.live_bytes.store(live_bytes, Relaxed);
        self.deaths.fetch_add(1, Relaxed);
    }

    /// Accounts for a live record that moved from `old` to a copy in `new`. Under the index lock that moved it.
    pub(crate) fn move_live(&self, old: Loc, new: &Segment) {
        let bytes = record_bytes(old.len as usize) as u64;
        find(&read(&self.table), old).sub_live(bytes);
        new.add_live(bytes);
    }

    /// An id that no segment had.
    pub(crate) fn new_id(&self) -> u32 {
        let id = self.next_id.fetch_add(1, Relaxed);
        assert!(id < u32::MAX, "segment ids are used up");
        id
    }

    /// Whether an id is one of those that [`Segments::new_id`] has returned.
    pub(crate) fn has_given(&self, id: u32) -> bool {
        id < self.next_id.load(Relaxed)
    }

    /// Size of the next segment: a quarter of the log, but at least a sixteenth of the full size, and at most all of it.
    pub(crate) fn next_capacity(&self) -> u64 {
        let there = read(&self.table).order().iter().map(|segment| segment.len()).sum::<u64>();
        let full = self.options.segment_bytes.clamp(4096, u64::from(u32::MAX) / 4);
        (there / 4).clamp(full / 16, full).next_multiple_of(4096)
    }

    /// Notes that the start has not read the records of a segment.
    pub(crate) fn set_unread(&self, segment: &Segment) {
        segment.set_unread(Arc::clone(&self.disk));
    }

    /// Where the files are.
    pub(crate) fn disk(&self) -> &dyn Disk {
        &*self.disk
    }

    /// The directory of the files.
    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    /// Size to which segments grow.
    pub(crate) fn segment_bytes(&self) -> u64 {
        self.options.segment_bytes
    }

    /// Counts records as live that were just published in `segment`.
    pub(crate) fn add_live(&self, segment: &Segment, bytes: u64) {
        segment.add_live(bytes);
        self.live_bytes.fetch_add(bytes, Relaxed);
    }

    /// How often something died.
    pub(crate) fn deaths(&self) -> u64 {
        self.deaths.load(Relaxed)
    }
}

/// The segment of `loc`, which must hold it.
fn find(table: &Table, loc: Loc) -> &Arc<Segment> {
    let Some(segment) = table.get(loc.segment) else {
        panic!("there is no segment {:x}", loc.segment);
    };
    let end = u64::from(loc.offset) + u64::from(loc.len);
    assert!(
        loc.offset as usize >= SEGMENT_HEADER_BYTES + RECORD_HEADER_BYTES && end <= segment.len(),
        "segment {:x} has no record at {}+{}",
        loc.segment,
        loc.offset,
        loc.len
    );
    segment
}

impl std::fmt::Debug for Segments {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Segments").field("dir", &self.dir).field("order", &read(&self.table).order()).finish()
    }
}

//! The write side of the log.

use crate::batch::Batch;
use crate::mistake::Mistake;
use crate::name::SegmentName;
use crate::segment;
use crate::terms::Terms;
use crate::{EntryRef, Error, Options, Spare};
use api::{raftpb, walpb};
use bytes::Bytes;
use disk::{Disk, File, Reaper};
use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// What an entry takes beside its data, at most; and what the batch takes beside its entries.
const ENTRY_ROOM_BYTES: usize = 96;
/// Hard states that need no sync wait in memory for the next batch that does, up to this size.
const WAITING_BYTES_MAX: usize = 64 << 10;

/// The log, open for writing. One owner; not usable after an error of [`Wal::commit`].
pub struct Wal {
    pub(crate) disk: Arc<dyn Disk>,
    pub(crate) dir: PathBuf,
    pub(crate) options: Options,
    pub(crate) metadata: Bytes,
    /// Oldest first; the last one is being written.
    pub(crate) segments: VecDeque<SegmentName>,
    pub(crate) file: Arc<dyn File>,
    /// Behind the last batch in `file`.
    pub(crate) offset: u64,
    /// Where the next segment begins: only one batch goes beyond what `file` was allocated with.
    pub(crate) segment_end: u64,
    pub(crate) batch: Batch,
    /// The newest ones, repeated at the beginning of each segment.
    pub(crate) hard_state: raftpb::HardState,
    pub(crate) snapshot: walpb::Snapshot,
    pub(crate) last_index: u64,
    pub(crate) terms: Terms,
    pub(crate) spare: Spare,
    pub(crate) poison: Option<String>,
}

impl Wal {
    /// Makes room for so many more entries with so many bytes of data: large ones would be copied whenever the batch grows.
    pub fn reserve(&mut self, entries: usize, bytes: usize) {
        self.batch.reserve(entries.saturating_add(1).saturating_mul(ENTRY_ROOM_BYTES).saturating_add(bytes));
    }

    /// Adds entries, then the hard state, to the batch. An entry replaces all earlier ones from its index on; none may leave a gap.
    /// A snapshot that the entries follow is saved before them. A poisoned log takes nothing; its next commit says why.
    pub fn append(&mut self, entries: &mut dyn Iterator<Item = EntryRef<'_>>, hard_state: Option<&raftpb::HardState>) {
        if self.poison.is_some() {
            return;
        }
        for entry in entries {
            assert!(
                entry.index <= self.last_index.saturating_add(1),
                "entry {} was appended behind entry {}",
                entry.index,
                self.last_index
            );
            self.batch.push_entry(&entry);
            self.terms.push(entry.index, entry.term);
            self.last_index = entry.index;
        }
        if let Some(hard_state) = hard_state {
            self.batch.push_hard_state(hard_state);
            self.hard_state = *hard_state;
        }
    }

    /// Adds a snapshot record to the batch. Its snapshot must be durable already. A snapshot of this member's own leaves the entries
    /// after it. One that lies beyond the last entry, or has another term than the entry at its index, came from another member: the
    /// log starts again after it, and no earlier entry counts any more. A record older than the newest one is ignored.
    pub fn save_snapshot(&mut self, snapshot: &walpb::Snapshot) {
        let (index, term) = (snapshot.index(), snapshot.term());
        if self.poison.is_some() || index < self.snapshot.index() {
            return;
        }
        failpoint::point!(RAFT_BEFORE_WAL_SAVE_SNAPSHOT);
        self.batch.push_snapshot(snapshot);
        self.snapshot = snapshot.clone();
        if index > self.last_index || self.terms.at(index).is_some_and(|known| known != term) {
            self.last_index = index;
            self.terms.restart(index, term);
        }
    }

    /// Makes the batch durable: one write, one `fdatasync`. Without `sync` a batch of nothing but hard states may wait in memory for a
    /// later one (a power cut then loses only a higher commit index). Other batches are synced all the same, because no two batches may
    /// be unsynced at a time.
    pub fn commit(&mut self, sync: bool) -> Result<(), Error> {
        if let Some(reason) = &self.poison {
            return Err(Error::Poisoned(reason.clone()));
        }
        let may_wait = !sync && !self.batch.must_sync() && self.batch.len() <= WAITING_BYTES_MAX;
        if self.batch.is_empty() || may_wait {
            return Ok(());
        }
        self.write_batch().inspect_err(|error| self.poison = Some(error.to_string()))?;
        if self.offset >= self.segment_end
            && let Err(error) = self.begin_segment()
        {
            // This batch is durable; the next one is refused.
            self.poison = Some(error.to_string());
        }
        Ok(())
    }

    fn write_batch(&mut self) -> Result<(), Error> {
        let name = self.tail();
        let bytes = self.batch.finish(name.sequence, self.offset);
        failpoint::point!(WAL_BEFORE_WRITE);
        // The last batch of a segment may go beyond it. On a full disk it gets the room of what waits to be given back; until all of it is
        // written and synced, nothing of it counts.
        while let Err(error) = self.file.write_at(bytes, self.offset) {
            if !disk::is_full(&error) || !self.spare.reaper().make_room() {
                return Err(Error::io("write", &self.dir.join(name.to_string()))(error));
            }
            if Mistake::CountsBatchOnFullDisk.is_planted() {
                break;
            }
        }
        failpoint::point!(WAL_BEFORE_SYNC);
        if !Mistake::CommitsWithoutSync.is_planted() {
            let mut synced = self.file.sync_data();
            if Mistake::SyncsAgainAfterError.is_planted() && synced.is_err() {
                synced = self.file.sync_data();
            }
            synced.map_err(|error| Error::io("sync", &self.dir.join(name.to_string()))(error))?;
        }
        failpoint::point!(WAL_AFTER_SYNC);
        self.offset = self.offset.saturating_add(bytes.len() as u64);
        self.batch.clear();
        Ok(())
    }

    /// Begins the next segment. Its first batch is durable before it gets its name, and its name is durable before it is used.
    pub(crate) fn begin_segment(&mut self) -> Result<(), Error> {
        assert!(self.batch.is_empty(), "a segment was to begin within a batch");
        let name = self.tail().next(self.last_index);
        let prepared = self.spare.take()?;
        let mut first = Batch::first(self.batch.crc(), self.options.segment_bytes);
        first.push_metadata(&self.metadata);
        if self.hard_state != raftpb::HardState::default() && !Mistake::SegmentForgetsHardState.is_planted() {
            first.push_hard_state(&self.hard_state);
        }
        first.push_snapshot(&self.snapshot);
        let path = self.dir.join(name.to_string());
        failpoint::point!(WAL_BEFORE_CUT);
        publish(&*self.disk, &self.spare.reaper(), &prepared, first.finish(name.sequence, 0), &path)?;
        failpoint::point!(WAL_AFTER_CUT);
        (self.offset, self.segment_end) = (first.len() as u64, self.options.segment_bytes);
        first.clear();
        self.batch = first;
        self.file = prepared.file;
        self.segments.push_back(name);
        Ok(())
    }

    /// The handle for preparing the next segment on another thread.
    pub fn spare(&self) -> Spare {
        self.spare.clone()
    }

    /// What gives back the files that [`Wal::release`] and opening the log have put aside: to be stepped by another thread.
    pub fn reaper(&self) -> Arc<Reaper> {
        self.spare.reaper()
    }

    /// Segments that the log consists of.
    pub fn segments(&self) -> usize {
        self.segments.len()
    }

    /// Index of the newest entry, or of the snapshot or state that the log continues from.
    pub fn last_index(&self) -> u64 {
        self.last_index
    }

    pub(crate) fn tail(&self) -> SegmentName {
        let Some(tail) = self.segments.back() else { unreachable!("a log has at least one segment") };
        *tail
    }
}

/// Writes the first batch of a segment, then gives the file its name, durably.
pub(crate) fn publish(
    disk: &dyn Disk,
    names: &Reaper,
    prepared: &segment::Prepared,
    first: &[u8],
    path: &Path,
) -> Result<(), Error> {
    prepared.file.write_at(first, 0).map_err(Error::io("write", &prepared.path))?;
    if !Mistake::NamesSegmentBeforeSync.is_planted() {
        prepared.file.sync_data().map_err(Error::io("sync", &prepared.path))?;
    }
    segment::lock(&*prepared.file, path)?;
    disk.rename(&prepared.path, path).map_err(Error::io("rename", &prepared.path))?;
    if Mistake::SegmentNameNotSynced.is_planted() {
        return Ok(());
    }
    names.sync_names().map_err(Error::io("sync", path))
}

//! Opening an existing log.

use crate::batch::Batch;
use crate::mistake::Mistake;
use crate::name::SegmentName;
use crate::reader::{Break, CHAIN_BROKEN, Reader, Tail, allocated_bytes};
use crate::replay::{Misfit, Replay};
use crate::{Cut, Error, Options, Record, Spare, Wal, segment, torn};
use api::{raftpb, walpb};
use bytes::Bytes;
use disk::{Disk, File, KnownFiles, Mode};
use std::path::Path;
use std::sync::Arc;

/// What the log held when it was opened.
#[derive(Clone, Debug)]
pub struct Recovered {
    /// As given to [`Wal::create`].
    pub metadata: Bytes,
    /// The newest hard state.
    pub hard_state: raftpb::HardState,
    /// The entries after the index asked for, without a gap.
    pub entries: Vec<raftpb::Entry>,
    /// The last few entries up to the index asked for, without a gap, as far as the segments that are read have them.
    pub applied: Vec<raftpb::Entry>,
    /// The newest snapshot record; index 0 when there was none.
    pub snapshot: walpb::Snapshot,
    /// The torn batch that was cut off, for the operator to see.
    pub cut: Option<Cut>,
    /// The log did not continue the state, and was restarted after it: the state is a snapshot from another member, and the power
    /// was cut before the log was told.
    pub restarted: bool,
}

impl Wal {
    /// Opens the log for a state that has applied everything up to the entry that `state` names by index and term. Segments that hold
    /// only older entries are not read. A torn last batch is cut off, zeroed and reported; any other damage is an error, and
    /// changes nothing.
    ///
    /// The state was made by applying this log: one that ends before it, or has another entry there, lost what it had acknowledged, and
    /// is refused.
    pub fn open(
        disk: Arc<dyn Disk>,
        dir: &Path,
        state: &walpb::Snapshot,
        options: Options,
    ) -> Result<(Wal, Recovered), Error> {
        Wal::open_behind(disk, dir, state, options, false)
    }

    /// As [`Wal::open`], for the state of a snapshot from another member: the power may have been cut before the log was told of it. A
    /// log that ends before it, or has another entry there, is restarted after it as by [`Wal::save_snapshot`], durably; its hard
    /// state then has the snapshot's index as committed and at least its term.
    pub fn open_installed(
        disk: Arc<dyn Disk>,
        dir: &Path,
        state: &walpb::Snapshot,
        options: Options,
    ) -> Result<(Wal, Recovered), Error> {
        Wal::open_behind(disk, dir, state, options, true)
    }

    fn open_behind(
        disk: Arc<dyn Disk>,
        dir: &Path,
        state: &walpb::Snapshot,
        options: Options,
        is_installed: bool,
    ) -> Result<(Wal, Recovered), Error> {
        let from_index = state.index();
        if !Wal::exists(&*disk, dir)? {
            return Err(Error::Missing(dir.into()));
        }
        let (names, temporary) = segment::list(&*disk, dir)?;
        let Selection { leftovers, unread, whole, tail: tail_name } = select(dir, &names, from_index)?;
        let tail_path = dir.join(tail_name.to_string());
        let file = segment::open_locked(&*disk, &tail_path)?;
        let replay = Replay::new(from_index, state.term(), whole.first().unwrap_or(&tail_name).first_index);
        let mut replaying = Replaying { dir, replay, from_index, is_installed, rest: options.rest, before: None };
        for name in whole {
            replaying.read_whole(&*disk, *name)?;
        }
        let (tail, last_batch, cut) = replaying.read_tail(&*file, tail_name)?;
        let (replay, restarted) = replaying.finish(tail_name, tail)?;
        if !Mistake::LeavesTornBatch.is_planted() {
            let cleared = match cut {
                Some(_) => segment::zero(&*file, tail.offset),
                // On a full disk they may need room that there is not. They matter only after a sync that failed.
                None => segment::zero_first(&*file, tail.offset).or_else(|error| match disk::is_full(&error) {
                    true => Ok(()),
                    false => Err(error),
                }),
            };
            cleared.map_err(Error::io("clear the end of", &tail_path))?;
        }
        // The process before may have died between its write and its sync, or because the sync failed. Then the page cache has the
        // last batch and the disk does not, and a sync alone reports success. So it is written again. Only one batch is ever unsynced.
        if !Mistake::TrustsLastBatch.is_planted() {
            file.write_at(&last_batch.bytes, last_batch.offset).map_err(Error::io("write", &tail_path))?;
        }
        file.sync_data().map_err(Error::io("sync", &tail_path))?;
        let spare = Spare::new(disk.clone(), dir, options.segment_bytes);
        let segments = names.iter().map(|name| dir.join(name.to_string()));
        spare.adopt(temporary, &KnownFiles::of(&*disk, segments));
        for leftover in leftovers {
            let (path, retired) = (dir.join(leftover.to_string()), spare.name_for_retired());
            if spare.reaper().put_aside(&path, &retired).map_err(Error::io("rename", &path))? {
                spare.retire(retired);
            }
        }
        spare.reaper().sync_names().map_err(Error::io("sync", dir))?;
        spare.clear_low_disk()?;

        let Replay { last_index, terms, metadata, hard_state, snapshot, entries, applied, .. } = replay;
        let metadata = metadata.unwrap_or_default();
        let mut wal = Wal {
            spare,
            disk,
            dir: dir.into(),
            options,
            metadata: metadata.clone(),
            segments: unread.iter().chain(whole).copied().chain([tail_name]).collect(),
            file,
            offset: tail.offset,
            segment_end: options.segment_bytes.min(last_batch.allocated_bytes),
            batch: Batch::new(tail.crc),
            hard_state,
            snapshot: snapshot.clone(),
            last_index,
            terms,
            poison: None,
        };
        if wal.offset >= wal.segment_end {
            wal.begin_segment()?;
        }
        if restarted {
            wal.restart(state)?;
        }
        let (hard_state, snapshot) = (wal.hard_state, wal.snapshot.clone());
        Ok((wal, Recovered { metadata, hard_state, entries, applied, snapshot, cut, restarted }))
    }

    /// Restarts the log after the snapshot `state`, which has no entry in it. A member that has a snapshot of a term has seen that
    /// term, and voted for nobody in it.
    fn restart(&mut self, state: &walpb::Snapshot) -> Result<(), Error> {
        let mut hard_state = self.hard_state;
        if hard_state.term() < state.term() {
            (hard_state.term, hard_state.vote) = (Some(state.term()), Some(0));
        }
        hard_state.commit = Some(hard_state.commit().max(state.index()));
        self.batch.push_snapshot(state);
        self.snapshot = state.clone();
        self.append(&mut std::iter::empty(), Some(&hard_state));
        self.commit(true)
    }
}

/// What becomes of each segment in the directory.
struct Selection<'a> {
    /// Freed, but their removal was not durable: names before a gap, which are not needed.
    leftovers: &'a [SegmentName],
    /// Hold only older entries.
    unread: &'a [SegmentName],
    whole: &'a [SegmentName],
    tail: SegmentName,
}

fn select<'a>(dir: &Path, names: &'a [SegmentName], from_index: u64) -> Result<Selection<'a>, Error> {
    // The entry that the state has applied last tells whether the log continues after it. It may have been freed.
    let begins_by = |index: u64| names.iter().rposition(|name| name.first_index <= index);
    let Some(start) = begins_by(from_index).or_else(|| begins_by(from_index.saturating_add(1))) else {
        let first_index = names.first().map_or(0, |name| name.first_index);
        return Err(Error::Behind { dir: dir.into(), first_index, from_index });
    };
    let (old, needed) = names.split_at(start);
    let is_gap = |before: &SegmentName, name: &SegmentName| before.sequence.saturating_add(1) != name.sequence;
    if let Some((before, _)) = needed.iter().zip(needed.iter().skip(1)).find(|(before, name)| is_gap(before, name)) {
        return Err(Error::Gap { dir: dir.into(), sequence: before.sequence.saturating_add(1) });
    }
    // Those before the last gap.
    let followers = names.iter().skip(1).take(start);
    let oldest = old.iter().zip(followers).rposition(|(before, name)| is_gap(before, name));
    let (leftovers, unread) = old.split_at(oldest.map_or(0, |last| last.saturating_add(1)));
    let Some((tail, whole)) = needed.split_last() else { unreachable!("the start is one of the segments") };
    Ok(Selection { leftovers, unread, whole, tail: *tail })
}

/// The batch written last, which may not be durable.
struct LastBatch {
    offset: u64,
    bytes: Vec<u8>,
    /// What its segment was allocated with.
    allocated_bytes: u64,
}

/// Reads segments one after the other.
struct Replaying<'a> {
    dir: &'a Path,
    replay: Replay,
    from_index: u64,
    is_installed: bool,
    rest: fn(),
    /// The segment read last, and where it ended.
    before: Option<(SegmentName, Tail)>,
}

impl Replaying<'_> {
    fn read_whole(&mut self, disk: &dyn Disk, name: SegmentName) -> Result<(), Error> {
        let path = self.dir.join(name.to_string());
        let file = disk.open(&path, Mode::Read).map_err(Error::io("open", &path))?;
        let bytes = segment::read(&*file, &path, self.rest)?;
        let (tail, _) = self.read(&bytes, name).map_err(|failure| self.error(failure, name))?;
        self.before = Some((name, tail));
        Ok(())
    }

    fn read_tail(&mut self, file: &dyn File, name: SegmentName) -> Result<(Tail, LastBatch, Option<Cut>), Error> {
        let path = self.dir.join(name.to_string());
        let bytes = segment::read(file, &path, self.rest)?;
        let (tail, offset, cut) = match self.read(&bytes, name) {
            Ok((tail, last)) => (tail, last, None),
            Err(Stop { failure: Failure::Break(found), tail, last }) if found.torn => {
                let torn = bytes.get(tail.offset as usize..).unwrap_or_default();
                let cut = Cut { file: path, offset: tail.offset, bytes: torn::written_len(torn) as u64 };
                (tail, last, Some(cut))
            }
            Err(stop) => return Err(self.error(stop, name)),
        };
        let last = bytes.get(offset as usize..tail.offset as usize);
        let Some(last) = last else { unreachable!("a batch that was read is in the file") };
        let allocated_bytes = allocated_bytes(&bytes, name.sequence).unwrap_or(u64::MAX);
        let last = LastBatch { offset, bytes: last.to_vec(), allocated_bytes };
        Ok((tail, last, cut))
    }

    /// Replays all intact batches of a segment; says where they end, and where the last of them begins.
    fn read(&mut self, bytes: &[u8], name: SegmentName) -> Result<(Tail, u64), Stop> {
        let mut reader = Reader::new(bytes, name.sequence, self.before.map(|(_, tail)| tail.crc));
        let mut last = 0;
        loop {
            let tail = reader.tail();
            match reader.next_batch() {
                Ok(None) => return Ok((tail, last)),
                Ok(Some(records)) => {
                    let mut records = records.iter();
                    let pushed = records.try_for_each(|record: &Record<'_>| self.replay.push(record));
                    pushed.map_err(|misfit| Stop { failure: Failure::Misfit(misfit), tail, last })?;
                    last = tail.offset;
                }
                Err(found) => return Err(Stop { failure: Failure::Break(found), tail, last }),
            }
        }
    }

    /// Checks the whole once everything is read.
    fn finish(mut self, name: SegmentName, tail: Tail) -> Result<(Replay, bool), Error> {
        let restarted = !self.replay.follows();
        if restarted && !self.is_installed {
            let (dir, last_index, from_index) = (self.dir.into(), self.replay.end(), self.from_index);
            return Err(match last_index < from_index {
                true => Error::Ends { dir, last_index, from_index },
                false => Error::Differs { dir, from_index },
            });
        }
        if restarted {
            self.replay.restart();
        }
        let checked = self.replay.check_end();
        checked.map_err(|misfit| self.error(Stop { failure: Failure::Misfit(misfit), tail, last: 0 }, name))?;
        Ok((self.replay, restarted))
    }

    fn error(&self, Stop { failure, tail, .. }: Stop, name: SegmentName) -> Error {
        let file = self.dir.join(name.to_string());
        match (failure, self.before) {
            (Failure::Break(Break { offset: 0, what: CHAIN_BROKEN, .. }), Some((before, tail))) => {
                // The head of this segment passed its check, so batches are missing from the end of the one before.
                let what = "batches are missing between here and the next segment".into();
                Error::Corrupt { file: self.dir.join(before.to_string()), offset: tail.offset, what }
            }
            (Failure::Break(found), _) => Error::Corrupt { file, offset: found.offset, what: found.what.into() },
            (Failure::Misfit(Misfit::Metadata), _) => Error::Metadata(file),
            (Failure::Misfit(Misfit::Behind(first_index)), _) => {
                Error::Behind { dir: self.dir.into(), first_index, from_index: self.from_index }
            }
            (Failure::Misfit(Misfit::Damage(what)), _) => Error::Corrupt { file, offset: tail.offset, what },
        }
    }
}

/// Why a segment cannot be read on.
struct Stop {
    failure: Failure,
    /// Behind the last intact batch.
    tail: Tail,
    /// Where that begins.
    last: u64,
}

enum Failure {
    Break(Break),
    Misfit(Misfit),
}

//! The contents of a file, and the older contents that a power cut may bring back.

use super::memory::{FILE_BYTES_MAX, Memory};
use super::random::Random;
use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

/// The unit that a disk writes as a whole.
pub const SECTOR_BYTES: usize = 512;

/// Versions kept per unsynced sector or length. Beyond it middle ones are forgotten, never the durable one.
const VERSIONS_MAX: usize = 8;

type Sector = [u8; SECTOR_BYTES];

pub(super) struct Contents {
    memory: Arc<Memory>,
    length: u64,
    /// Everything from here on is zeros and was never written.
    touched: u64,
    lengths: Older<u64>,
    sectors: BTreeMap<u64, Older<Sector>>,
}

/// Earlier states, the durable one first. `stuck` after a failed sync: a later sync does not bring that state to the disk, because the
/// operating system has marked the pages clean. Only writing them again does.
struct Older<T> {
    versions: Vec<T>,
    stuck: bool,
}

impl<T> Older<T> {
    fn push(&mut self, version: T) {
        if self.versions.len() == VERSIONS_MAX {
            self.versions.remove(1);
        }
        self.versions.push(version);
        self.stuck = false;
    }
}

impl Contents {
    pub(super) fn new() -> io::Result<Contents> {
        Ok(Contents {
            memory: Arc::new(Memory::new()?),
            length: 0,
            touched: 0,
            lengths: Older { versions: Vec::new(), stuck: false },
            sectors: BTreeMap::new(),
        })
    }

    pub(super) fn memory(&self) -> Arc<Memory> {
        self.memory.clone()
    }

    pub(super) fn length(&self) -> u64 {
        self.length
    }

    pub(super) fn read(&self, offset: u64, bytes: &mut [u8]) -> io::Result<()> {
        if offset.checked_add(bytes.len() as u64).is_none_or(|end| end > self.length) {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.memory.read(offset, bytes);
        Ok(())
    }

    /// Writes without any effect on what is durable.
    pub(super) fn write(&mut self, bytes: &[u8], offset: u64) -> io::Result<()> {
        let end = end_of(offset, bytes.len() as u64)?;
        self.overwrite(bytes, offset);
        if end > self.length {
            self.set_length(end)?;
        } else if end == self.length && !bytes.is_empty() {
            // The system writes the length with the last page of a file.
            self.lengths.stuck = false;
        }
        Ok(())
    }

    pub(super) fn set_length(&mut self, length: u64) -> io::Result<()> {
        end_of(length, 0)?;
        if length == self.length {
            return Ok(());
        }
        if length < self.length && length < self.touched {
            // What lies after the new end must read as zeros when the file grows again.
            let zeros = vec![0; (self.touched.min(self.length) - length) as usize];
            self.overwrite(&zeros, length);
        }
        self.lengths.push(self.length);
        self.length = length;
        Ok(())
    }

    fn overwrite(&mut self, mut bytes: &[u8], mut offset: u64) {
        while !bytes.is_empty() {
            let start = (offset % SECTOR_BYTES as u64) as usize;
            let part = bytes.len().min(SECTOR_BYTES - start);
            let (now, rest) = bytes.split_at(part);
            self.overwrite_sector(now, offset / SECTOR_BYTES as u64, start);
            bytes = rest;
            offset += part as u64;
        }
    }

    fn overwrite_sector(&mut self, bytes: &[u8], number: u64, start: usize) {
        let sector_offset = number * SECTOR_BYTES as u64;
        let mut sector = [0; SECTOR_BYTES];
        if sector_offset < self.touched {
            self.memory.read(sector_offset, &mut sector);
        }
        if sector[start..start + bytes.len()] == *bytes && !self.sectors.get(&number).is_some_and(|older| older.stuck) {
            return;
        }
        self.sectors.entry(number).or_insert(Older { versions: Vec::new(), stuck: false }).push(sector);
        let offset = sector_offset + start as u64;
        self.memory.write(offset, bytes);
        self.touched = self.touched.max(offset + bytes.len() as u64);
    }

    pub(super) fn sync(&mut self) {
        self.sectors.retain(|_, older| older.stuck);
        if !self.lengths.stuck {
            self.lengths.versions.clear();
        }
    }

    pub(super) fn fail_sync(&mut self) {
        for older in self.sectors.values_mut() {
            older.stuck = true;
        }
        self.lengths.stuck = !self.lengths.versions.is_empty();
    }

    /// What the disk holds after a power cut now.
    pub(super) fn after_cut(&self, odds: &Odds, random: &mut Random) -> io::Result<Contents> {
        let mut after = Contents::new()?;
        after.length = *odds.pick(&self.lengths.versions, &self.length, random);
        after.touched = self.touched.min(after.length);
        let mut bytes = vec![0; after.touched as usize];
        self.memory.read(0, &mut bytes);
        for (number, older) in &self.sectors {
            let start = *number as usize * SECTOR_BYTES;
            let mut newest = [0; SECTOR_BYTES];
            self.memory.read(start as u64, &mut newest);
            let survivor = odds.pick(&older.versions, &newest, random);
            // A sector that was never written before it is inside of the length only if the longer length survived.
            let visible = (after.length as usize).saturating_sub(start).min(SECTOR_BYTES);
            if bytes.len() < start + visible {
                bytes.resize(start + visible, 0);
            }
            bytes.get_mut(start..start + visible).unwrap_or_default().copy_from_slice(&survivor[..visible]);
        }
        after.touched = bytes.len() as u64;
        after.memory.write(0, &bytes);
        Ok(after)
    }
}

/// How much of what was not synced survives one cut.
pub(super) struct Odds {
    newest_percent: u64,
    all_lost: bool,
}

impl Odds {
    /// Everything lost and everything kept are ordinary cuts, so they are drawn as often as a mixture.
    pub(super) fn draw(random: &mut Random) -> Odds {
        let newest_percent = [0, 0, 10, 50, 90, 100][random.below(6) as usize];
        Odds { newest_percent, all_lost: newest_percent == 0 && random.chance(50) }
    }

    /// True when one unsynced change of a name survives.
    pub(super) fn keeps(&self, random: &mut Random) -> bool {
        !self.all_lost && random.chance(self.newest_percent.max(10))
    }

    fn pick<'a, T>(&self, older: &'a [T], newest: &'a T, random: &mut Random) -> &'a T {
        let Some(durable) = older.first() else { return newest };
        if self.all_lost {
            durable
        } else if random.chance(self.newest_percent) {
            newest
        } else {
            &older[random.below(older.len() as u64) as usize]
        }
    }
}

fn end_of(offset: u64, len: u64) -> io::Result<u64> {
    offset.checked_add(len).filter(|end| *end <= FILE_BYTES_MAX as u64).ok_or(io::ErrorKind::FileTooLarge.into())
}

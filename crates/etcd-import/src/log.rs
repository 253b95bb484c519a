//! Reads a Raft log in etcd's framing, which ours has too: to show it, and to import it.
//!
//! A record is a length, `walpb.Record` and zeros up to a multiple of 8; the checksum runs over all records of all files. The last file
//! may end in a record that a power cut tore: it was never acknowledged, and is ignored. `wal` decides that for our own logs, whose
//! batches tell what they were written with; for etcd's the rules are here.

use crate::Error;
use crate::votes::Votes;
use api::Message;
use api::raftpb::{Entry, HardState};
use api::walpb;
use bytes::Bytes;
use std::path::{Path, PathBuf};

/// Bytes of a sector: a torn write has left some of them as zeros.
const SECTOR_BYTES: usize = 512;
/// Bytes of a file that is read: segments have 64 MB, and one record may make one longer.
const FILE_BYTES_MAX: u64 = 4 << 30;

/// Longest encoding of what stands before the data of a record.
const HEAD_BYTES_MAX: usize = 20;

/// The type of a record with the checksum so far.
const CRC: i64 = 4;

/// One record.
#[derive(Clone, Debug, PartialEq)]
pub enum Record {
    /// Whose log it is: `etcdserverpb.Metadata`.
    Metadata(Vec<u8>),
    /// An entry, which replaces all from its index on.
    Entry(Entry),
    /// What the member knows of terms and votes.
    State(HardState),
    /// A snapshot after which the log continues.
    Snapshot(walpb::Snapshot),
}

/// The part of a log that a member needs which has applied everything up to an entry.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tail {
    pub(crate) metadata: Vec<u8>,
    pub(crate) hard_state: HardState,
    /// That entry, if the log has it, and those after it.
    pub(crate) entries: Vec<Entry>,
    /// The configuration changes and the snapshots of the log.
    pub(crate) votes: Votes,
}

/// Reads a log from the entry `from` on.
pub(crate) fn read_tail(dir: &Path, from: u64) -> Result<Tail, Error> {
    let mut tail = Tail::default();
    read(dir, &mut |record| match record {
        Record::Metadata(metadata) => tail.metadata = metadata,
        Record::State(state) => tail.hard_state = state,
        Record::Snapshot(snapshot) => tail.votes.snapshot(&snapshot),
        Record::Entry(entry) => {
            tail.votes.entry(&entry);
            while tail.entries.last().is_some_and(|last| last.index() >= entry.index()) {
                tail.entries.pop();
            }
            if entry.index() >= from {
                tail.entries.push(entry);
            }
        }
    })?;
    if tail.metadata.is_empty() {
        return Err(Error::Refused(format!("`{}` holds no log", dir.display())));
    }
    Ok(tail)
}

impl Tail {
    /// The term of an entry or of a snapshot, if the log has it.
    pub(crate) fn term_of(&self, index: u64) -> Option<u64> {
        let entry = self.entries.iter().find(|entry| entry.index() == index).map(Entry::term);
        entry.or_else(|| self.votes.term_of(index))
    }
}

/// Tells of every record of the log in `dir`, and checks their checksums.
///
/// # Errors
/// The first damage, with file and offset.
pub fn read(dir: &Path, visit: &mut dyn FnMut(Record)) -> Result<(), Error> {
    read_while(dir, &mut |record| {
        visit(record);
        true
    })
}

/// The same up to the first record after which `visit` wants no more.
///
/// # Errors
/// The first damage before that.
pub fn read_while(dir: &Path, visit: &mut Visit<'_>) -> Result<(), Error> {
    read_files(&files(dir)?, visit)
}

/// Told of records; says whether it wants more.
type Visit<'a> = dyn FnMut(Record) -> bool + 'a;

/// Sequence, first index and path of each file, in their order.
type Files = Vec<(u64, u64, PathBuf)>;

fn files(dir: &Path) -> Result<Files, Error> {
    let mut files = Files::new();
    for entry in std::fs::read_dir(dir).map_err(Error::io("open", dir))? {
        let path = entry.map_err(Error::io("list", dir))?.path();
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        if let Some((sequence, index)) = name.strip_suffix(".wal").and_then(|name| name.split_once('-'))
            && let (Ok(sequence), Ok(index)) = (u64::from_str_radix(sequence, 16), u64::from_str_radix(index, 16))
        {
            files.push((sequence, index, path));
        }
    }
    files.sort();
    if files.is_empty() {
        return Err(Error::Refused(format!("`{}` holds no log", dir.display())));
    }
    let gap = files.iter().zip(files.iter().skip(1)).find(|(file, next)| file.0.checked_add(1) != Some(next.0));
    if let Some((_, (_, _, path))) = gap {
        return Err(Error::Refused(format!("a file of the log is missing before `{}`", path.display())));
    }
    Ok(files)
}

/// Whether a log is there whose first file this project began.
pub(crate) fn is_ours(dir: &Path) -> bool {
    let Ok(files) = files(dir) else { return false };
    let Some((sequence, _, path)) = files.first() else { return false };
    std::fs::read(path).is_ok_and(|bytes| wal::is_own_segment(&bytes, *sequence) == Some(true))
}

fn read_files(files: &[(u64, u64, PathBuf)], visit: &mut Visit<'_>) -> Result<(), Error> {
    let mut crc = None;
    // Of a damaged file the one before tells: etcd's rules let more pass for torn.
    let mut is_own = false;
    for (behind, (sequence, _, path)) in (0..files.len()).rev().zip(files) {
        let length = std::fs::metadata(path).map_err(Error::io("stat", path))?.len();
        if length > FILE_BYTES_MAX {
            return Err(Error::Log { path: path.clone(), offset: 0, what: format!("it has {length} bytes") });
        }
        let bytes = std::fs::read(path).map_err(Error::io("read", path))?;
        let is_last = behind == 0;
        is_own = wal::is_own_segment(&bytes, *sequence).unwrap_or(is_own);
        let wants_more = match is_own {
            true => decode_own(&bytes, *sequence, &mut crc, is_last, visit),
            false => decode(&bytes, 0, &mut crc, is_last, visit),
        };
        let wants_more = wants_more.map_err(|(offset, what)| Error::Log {
            path: path.clone(),
            offset: offset as u64,
            what: what.into(),
        })?;
        if !wants_more {
            break;
        }
    }
    Ok(())
}

/// [`decode`] for a file of our own log.
fn decode_own(
    bytes: &[u8],
    sequence: u64,
    crc: &mut Option<u32>,
    is_last: bool,
    visit: &mut Visit<'_>,
) -> Result<bool, (usize, &'static str)> {
    let (tail, read) = wal::decode_segment_while(bytes, sequence, *crc, &mut |record| {
        visit(match record {
            wal::Record::Metadata(metadata) => Record::Metadata(metadata.to_vec()),
            wal::Record::HardState(state) => Record::State(*state),
            wal::Record::Snapshot(snapshot) => Record::Snapshot(snapshot.clone()),
            wal::Record::Entry(entry) => Record::Entry(Entry {
                r#type: Some(entry.kind),
                term: Some(entry.term),
                index: Some(entry.index),
                data: Some(Bytes::copy_from_slice(entry.data)),
            }),
        })
    });
    let found = match read {
        Ok(wants_more) => {
            *crc = Some(tail.crc);
            return Ok(wants_more);
        }
        Err(found) => found,
    };
    // A log that was exported is continued by etcd, in the file that we began.
    if found.offset == tail.offset && follows(bytes, tail) {
        *crc = Some(tail.crc);
        return decode(bytes, tail.offset as usize, crc, is_last, visit);
    }
    if found.torn && is_last { Ok(true) } else { Err((found.offset as usize, found.what)) }
}

/// Whether a record that is no checksum continues the running one at the end of a batch.
fn follows(bytes: &[u8], tail: wal::Tail) -> bool {
    let rest = bytes.get(tail.offset as usize..).unwrap_or_default();
    let Some((word, rest)) = rest.split_first_chunk::<8>() else { return false };
    let length = u64::from_le_bytes(*word) & 0x00ff_ffff_ffff_ffff;
    let message = usize::try_from(length).ok().and_then(|length| rest.get(..length));
    message.and_then(|message| walpb::Record::decode(message).ok()).is_some_and(|record| {
        let data = record.data.as_deref().unwrap_or_default();
        record.r#type() != CRC && crc32c::crc32c_append(tail.crc, data) == record.crc()
    })
}

/// The records of one file from `at` on, and whether those of the next are wanted. `crc` is the running checksum, none before the first
/// file.
fn decode(
    bytes: &[u8],
    mut at: usize,
    crc: &mut Option<u32>,
    is_last: bool,
    visit: &mut Visit<'_>,
) -> Result<bool, (usize, &'static str)> {
    while let Some(word) = bytes.get(at..).and_then(|rest| rest.first_chunk::<8>()) {
        let word = u64::from_le_bytes(*word);
        if word == 0 {
            // Files are made longer than what is in them.
            return Ok(true);
        }
        let (length, pad) =
            (word & 0x00ff_ffff_ffff_ffff, if word >> 63 == 1 { (word >> 56 & 0x7) as usize } else { 0 });
        let start = at.saturating_add(8);
        let end = usize::try_from(length).ok().and_then(|length| start.checked_add(length)?.checked_add(pad));
        let framed = end.and_then(|end| bytes.get(start..end));
        // The bytes between are not looked at.
        let whole = framed.and_then(|framed| Some((framed, framed.get(..framed.len().checked_sub(pad)?)?)));
        let Some((framed, message)) = whole else {
            let rest = bytes.get(start..).unwrap_or_default();
            // A damaged length must not pass for the end of the log.
            let torn = is_last && (begins_record(rest, length) || is_head_lost(rest, start));
            return if torn { Ok(true) } else { Err((at, "a record reaches beyond the end of its file")) };
        };
        let torn = |what| if is_last && is_torn(framed, start) { Ok(true) } else { Err((at, what)) };
        let Ok(record) = walpb::Record::decode(message) else {
            return torn("a record cannot be read");
        };
        let data = record.data.as_deref().unwrap_or_default();
        if record.r#type() == CRC {
            match *crc {
                Some(crc) if crc != 0 && crc != record.crc() => {
                    return torn("the checksum of the files before is another");
                }
                _ => *crc = Some(record.crc()),
            }
        } else {
            let running = crc32c::crc32c_append(crc.unwrap_or(0), data);
            if running != record.crc() {
                return torn("the checksum of a record is wrong");
            }
            *crc = Some(running);
            if !visit(contents(record.r#type(), data).ok_or((at, "a record is not what its type says"))?) {
                return Ok(false);
            }
        }
        at = start.saturating_add(framed.len());
    }
    Ok(true)
}

fn contents(kind: i64, data: &[u8]) -> Option<Record> {
    Some(match kind {
        1 => Record::Metadata(data.to_vec()),
        2 => Record::Entry(Entry::decode(data).ok()?),
        3 => Record::State(HardState::decode(data).ok()?),
        5 => Record::Snapshot(walpb::Snapshot::decode(data).ok()?),
        _ => return None,
    })
}

/// Whether `bytes` are the beginning of a record of `length` bytes, as far as they reach.
fn begins_record(mut bytes: &[u8], length: u64) -> bool {
    let whole = bytes.len();
    let mut field = |tag: u8| -> Option<u64> {
        bytes = bytes.strip_prefix(&[tag])?;
        api::varint::take(&mut bytes)
    };
    let data = field(0x08).and_then(|_| field(0x10)).and_then(|_| field(0x1a));
    match data {
        Some(data) => data.checked_add(whole.saturating_sub(bytes.len()) as u64) == Some(length),
        // Nothing but a piece of the head.
        None => whole < HEAD_BYTES_MAX,
    }
}

/// Whether the sector was never written in which the head of a record ends whose length was written.
fn is_head_lost(bytes: &[u8], start: usize) -> bool {
    let written = start.wrapping_neg() % SECTOR_BYTES;
    let sector = bytes.get(written..).unwrap_or_default();
    let sector = sector.get(..SECTOR_BYTES).unwrap_or(sector);
    written < HEAD_BYTES_MAX && sector.iter().all(|byte| *byte == 0)
}

/// Whether a whole sector of a record was never written.
fn is_torn(framed: &[u8], start: usize) -> bool {
    let mut rest = framed;
    let mut at = start;
    while !rest.is_empty() {
        let part = SECTOR_BYTES.saturating_sub(at % SECTOR_BYTES).min(rest.len());
        let (sector, behind) = rest.split_at(part);
        if sector.iter().all(|byte| *byte == 0) {
            return true;
        }
        (rest, at) = (behind, at.saturating_add(part));
    }
    false
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A file with a head, entries of these indexes, and zeros after them.
    fn file(indexes: &[u64]) -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut crc = 0;
        let mut push = |kind: i64, data: Vec<u8>| {
            if kind != 4 {
                crc = crc32c::crc32c_append(crc, &data);
            }
            let record = walpb::Record { r#type: Some(kind), crc: Some(crc), data: Some(data.into()) }.encode_to_vec();
            let pad = record.len().wrapping_neg() % 8;
            let mark = if pad == 0 { 0 } else { (0x80 | pad as u64) << 56 };
            bytes.extend_from_slice(&(record.len() as u64 | mark).to_le_bytes());
            bytes.extend_from_slice(&record);
            bytes.resize(bytes.len() + pad, 0);
        };
        push(4, Vec::new());
        push(1, b"whose".to_vec());
        for index in indexes {
            let data = Some(vec![7; 700].into());
            push(2, Entry { index: Some(*index), term: Some(1), r#type: Some(0), data }.encode_to_vec());
        }
        bytes.resize(bytes.len() + 4096, 0);
        bytes
    }

    fn indexes(bytes: &[u8], is_last: bool) -> Result<Vec<u64>, (usize, &'static str)> {
        let mut found = Vec::new();
        decode(bytes, 0, &mut None, is_last, &mut |record| {
            if let Record::Entry(entry) = record {
                found.push(entry.index());
            }
            found.len() < 3
        })?;
        Ok(found)
    }

    #[test]
    fn torn_ends_count_for_nothing_and_damage_is_refused() {
        let whole = file(&[1, 2, 3]);
        assert_eq!(indexes(&whole, true), Ok(vec![1, 2, 3]));
        assert_eq!(indexes(&file(&[1, 2, 3, 4]), true), Ok(vec![1, 2, 3]), "no more than is wanted");
        let used = whole.len() - 4096;
        let cut = &whole[..used - 100];
        assert_eq!(indexes(cut, true), Ok(vec![1, 2]));
        assert!(indexes(cut, false).is_err());
        let mut torn = whole.clone();
        let sector = (used - 1) / SECTOR_BYTES * SECTOR_BYTES;
        torn[sector - SECTOR_BYTES..used].fill(0);
        assert_eq!(indexes(&torn, true), Ok(vec![1, 2]));
        let mut damaged = whole;
        damaged[used - 300] ^= 1;
        assert!(indexes(&damaged, true).is_err());
    }

    #[test]
    fn a_damaged_length_is_no_end() {
        let whole = file(&[1, 2, 3]);
        let mut at = 0;
        let mut records = 0;
        while whole[at..at + 8] != [0; 8] {
            for (byte, flipped) in (0..7).zip([0x01, 0x40, 0x40, 0x40, 0x40, 0x40, 0x40]) {
                let mut damaged = whole.clone();
                damaged[at + byte] ^= flipped;
                assert!(indexes(&damaged, true).is_err(), "record {records}, byte {byte}");
            }
            let word = u64::from_le_bytes(whole[at..at + 8].try_into().expect("eight"));
            at += 8 + (word & 0xffff_ffff) as usize + (word >> 56 & 7) as usize;
            records += 1;
        }
        assert_eq!(records, 5);
    }

    #[test]
    fn a_record_that_the_file_is_too_short_for_is_torn() {
        let whole = file(&[1, 2, 3]);
        let used = whole.len() - 4096;
        // The third entry, from its length on, by any number of bytes, and without the sector that its head ends in.
        let begin = used - 8 - 720;
        for end in begin + 8..used {
            assert_eq!(indexes(&whole[..end], true), Ok(vec![1, 2]), "{end}");
        }
    }

    /// A log of our own with entries of a batch each, and the bytes of its only file.
    pub(crate) fn own_log(dir: &Path, entries: u64) -> (PathBuf, Vec<u8>) {
        let disk = std::sync::Arc::new(disk::OsDisk { unsafe_no_sync: true });
        let options = wal::Options { segment_bytes: 8 << 10, segments_min: 1, rest: || {} };
        let mut wal = wal::Wal::create(disk, dir, b"whose", options).expect("made");
        for index in 1..=entries {
            let entry = wal::EntryRef { term: 1, index, kind: 0, data: &[7; 300] };
            wal.append(&mut [entry].into_iter(), None);
            wal.commit(true).expect("written");
        }
        let path = dir.join("0000000000000000-0000000000000000.wal");
        let bytes = std::fs::read(&path).expect("read");
        (path, bytes)
    }

    /// The entries of a log.
    fn entries(dir: &Path) -> Result<Vec<u64>, Error> {
        let mut found = Vec::new();
        read(dir, &mut |record| {
            if let Record::Entry(entry) = record {
                found.push(entry.index());
            }
        })?;
        Ok(found)
    }

    #[test]
    fn no_flipped_byte_of_our_own_log_goes_unseen() {
        let dir = std::env::temp_dir().join(format!("cairn-etcd-import-own-{}", std::process::id()));
        let (path, whole) = own_log(&dir, 5);
        let seen = entries(&dir);
        let used = whole.len() - whole.iter().rev().take_while(|byte| **byte == 0).count();
        let last_batch = whole[..used].windows(3).rposition(|head| head == [0x08, 4, 0x10]).expect("a batch") - 8;
        let mut unseen = Vec::new();
        for at in 0..last_batch {
            let mut damaged = whole.clone();
            damaged[at] ^= 0x40;
            std::fs::write(&path, &damaged).expect("written");
            if entries(&dir).is_ok() {
                unseen.push(at);
            }
        }
        // A torn last batch counts for nothing.
        let mut torn = whole;
        torn[last_batch..].fill(0);
        std::fs::write(&path, &torn).expect("written");
        let without_last = entries(&dir);
        std::fs::remove_dir_all(&dir).expect("removed");
        assert_eq!(seen.expect("read"), (1..=5).collect::<Vec<_>>());
        assert_eq!(unseen, Vec::<usize>::new());
        assert_eq!(without_last.expect("read"), (1..=4).collect::<Vec<_>>());
    }

    #[test]
    fn etcd_continues_our_log() {
        let dir = std::env::temp_dir().join(format!("cairn-etcd-import-continued-{}", std::process::id()));
        let (path, mut bytes) = own_log(&dir, 3);
        let (tail, read) = wal::decode_segment_while(&bytes, 0, None, &mut |_| true);
        assert_eq!(read, Ok(true));
        let (mut at, mut crc) = (tail.offset as usize, tail.crc);
        for index in [4, 5] {
            let data = Entry { index: Some(index), term: Some(2), r#type: Some(0), data: None }.encode_to_vec();
            crc = crc32c::crc32c_append(crc, &data);
            let record = walpb::Record { r#type: Some(2), crc: Some(crc), data: Some(data.into()) }.encode_to_vec();
            let pad = record.len().wrapping_neg() % 8;
            let mark = if pad == 0 { 0 } else { (0x80 | pad as u64) << 56 };
            bytes[at..at + 8].copy_from_slice(&(record.len() as u64 | mark).to_le_bytes());
            bytes[at + 8..at + 8 + record.len()].copy_from_slice(&record);
            at += 8 + record.len() + pad;
        }
        std::fs::write(&path, &bytes).expect("written");
        let continued = entries(&dir);
        bytes[tail.offset as usize + 3] ^= 0x40;
        std::fs::write(&path, &bytes).expect("written");
        let damaged = entries(&dir);
        std::fs::remove_dir_all(&dir).expect("removed");
        assert_eq!(continued.expect("read"), [1, 2, 3, 4, 5]);
        assert!(damaged.is_err());
    }

    #[test]
    fn files_have_any_name() {
        let dir = std::env::temp_dir().join(format!("cairn-etcd-import-names-{}", std::process::id()));
        std::fs::create_dir_all(&dir).expect("made");
        // Numbers that are followed by none, and the same one twice.
        for name in ["ffffffffffffffff-0.wal", "ffffffffffffffff-1.wal", "-.wal", "x-0.wal", "0-.wal", "\u{e9}.wal"] {
            std::fs::write(dir.join(name), []).expect("written");
        }
        let found = files(&dir);
        std::fs::remove_dir_all(&dir).expect("removed");
        let text = found.map(drop).map_err(|error| error.to_string());
        assert!(text.is_err_and(|text| text.contains("missing before") && text.contains("ffffffffffffffff-1.wal")));
    }

    proptest! {
        #[test]
        fn any_bytes_can_be_read(bytes: Vec<u8>, is_last: bool) {
            let _ = indexes(&bytes, is_last);
        }

        #[test]
        fn any_damage_can_be_read(place in 0usize..2000, byte: u8) {
            let mut bytes = file(&[1, 2]);
            bytes[place] = byte;
            let _ = indexes(&bytes, true);
        }
    }
}

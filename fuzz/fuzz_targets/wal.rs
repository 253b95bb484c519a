//! The Raft log: any bytes as a segment, and the segments of a good log changed here and there, with checksums that are right again. Whatever
//! comes is read or refused; a log that is refused stays as it is, and one that opens goes on from there.
#![no_main]

use api::{raftpb, walpb};
use disk::sim::SimDisk;
use disk::{Disk, Mode};
use libfuzzer_sys::fuzz_target;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use wal::{EntryRef, Error, Options, Record, Recovered, Wal};

const ALIGN_BYTES: usize = 8;
const WORD_BYTES: usize = 8;
/// The kind of a record that begins a batch.
const CRC: u8 = 4;
/// Bytes of a batch's length, and of the length of the file behind it and the count of sectors.
const LENGTH_BYTES: usize = 8;
const FILE_BYTES_AT: usize = 12;
const CHECK_BYTES: usize = 4;

const DIR: &str = "/wal";

fn options() -> Options {
    Options { segment_bytes: 700, segments_min: 9, rest: || {} }
}

fn open(disk: &SimDisk, state: &walpb::Snapshot, is_installed: bool) -> Result<(Wal, Recovered), Error> {
    let open = if is_installed { Wal::open_installed } else { Wal::open };
    open(Arc::new(disk.clone()), Path::new(DIR), state, options())
}

/// Names of segments in the order of the log, and their bytes.
type Segments = Vec<(PathBuf, Vec<u8>)>;

fn segments(disk: &SimDisk) -> Segments {
    let names = disk.list(Path::new(DIR)).unwrap_or_else(|error| panic!("{error}"));
    let paths = names.iter().filter(|name| name.ends_with(".wal")).map(|name| Path::new(DIR).join(name));
    paths.map(|path| (path.clone(), disk.contents(&path).unwrap_or_default())).collect()
}

/// A small log of several segments with a record of each kind, a change of term and entries that were replaced.
fn good() -> &'static Segments {
    static GOOD: OnceLock<Segments> = OnceLock::new();
    GOOD.get_or_init(|| {
        let disk = SimDisk::new();
        let mut wal = Wal::create(Arc::new(disk.clone()), Path::new(DIR), b"metadata", options())
            .unwrap_or_else(|error| panic!("{error}"));
        for (index, term) in (1..=12).map(|index| (index, 1)).chain((11..=30).map(|index| (index, 2 + index / 20))) {
            let data = [index as u8; 40];
            let entry = EntryRef { term, index, kind: i32::from(index == 5), data: &data[..index as usize + 5] };
            let state = raftpb::HardState { term: Some(term), vote: Some(7), commit: Some(index.min(10)) };
            wal.append(&mut [entry].into_iter(), (index % 3 == 0).then_some(&state));
            if index == 9 {
                let conf_state = Some(raftpb::ConfState { voters: vec![7, 8, 9], ..Default::default() });
                wal.save_snapshot(&walpb::Snapshot { index: Some(8), term: Some(1), conf_state });
            }
            wal.commit(true).unwrap_or_else(|error| panic!("{error}"));
        }
        segments(&disk)
    })
}

fn disk_with(segments: &Segments) -> SimDisk {
    let disk = SimDisk::new();
    let write = || {
        disk.create_dir(Path::new(DIR))?;
        for (path, bytes) in segments {
            let file = disk.open(path, Mode::Create)?;
            file.write_at(bytes, 0)?;
            file.sync_data()?;
        }
        disk.sync_dir(Path::new(DIR))
    };
    write().unwrap_or_else(|error| panic!("{error}"));
    disk
}

/// A number as protobuf has it, and what follows it.
fn number(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let len = bytes.iter().take(10).position(|byte| byte & 0x80 == 0)? + 1;
    let fold =
        |value: u64, (at, byte): (usize, &u8)| value | u64::from(byte & 0x7f).checked_shl(7 * at as u32).unwrap_or(0);
    Some((bytes[..len].iter().enumerate().fold(0, fold), &bytes[len..]))
}

/// A record of any kind, as far as its length word is one: its word, its kind, what follows its checksum, and its padding.
fn record(bytes: &[u8]) -> Option<(u64, u8, &[u8], &[u8])> {
    let (word, rest) = bytes.split_first_chunk::<WORD_BYTES>()?;
    let word = u64::from_le_bytes(*word);
    let (record, rest) = rest.split_at_checked(usize::try_from(word & 0x00ff_ffff_ffff_ffff).ok()?)?;
    let padding = rest.get(..record.len().next_multiple_of(ALIGN_BYTES) - record.len())?;
    let [0x08, kind, 0x10, rest @ ..] = record else { return None };
    Some((word, *kind, number(rest)?.1, padding))
}

/// The data of a record, if its length is right.
fn data(field: &[u8]) -> Option<&[u8]> {
    let (len, data) = number(field.strip_prefix(&[0x1a])?)?;
    (len == data.len() as u64).then_some(data)
}

fn word_of(record_bytes: usize) -> u64 {
    let padding = record_bytes.next_multiple_of(ALIGN_BYTES) - record_bytes;
    record_bytes as u64 | if padding == 0 { 0 } else { (0x80 | padding as u64) << 56 }
}

/// The segment with right checksums, as far as there are records. A checksum may take more bytes than the one before, so records are put one
/// behind the other anew, and lengths that were right are right again; everything else that was wrong stays so.
fn sealed(bytes: &[u8], sequence: u64, crc: &mut u32) -> Vec<u8> {
    let (mut out, mut at) = (Vec::new(), 0);
    // Where records begin: before, and now. For those that begin a batch, where their data is and which checksum they have.
    let (mut places, mut batches) = (vec![(0, 0)], Vec::new());
    while let Some((word, kind, field, padding)) = bytes.get(at..).and_then(record) {
        let content = data(field);
        if kind != CRC {
            *crc = crc32c::crc32c_append(*crc, content.unwrap_or_default());
        }
        let mut record = vec![0x08, kind, 0x10];
        api::varint::put(&mut record, (*crc).into());
        record.extend_from_slice(field);
        let old_bytes = (word & 0x00ff_ffff_ffff_ffff) as usize;
        let new_word = if word == word_of(old_bytes) { word_of(record.len()) } else { word };
        let begin = out.len();
        out.extend_from_slice(&new_word.to_le_bytes());
        out.extend_from_slice(&record);
        if kind == CRC
            && let Some(content) = content.filter(|content| content.len() >= LENGTH_BYTES + CHECK_BYTES)
        {
            batches.push((at, begin, out.len() - content.len()..out.len(), *crc));
        }
        let new_padding = out.len().next_multiple_of(ALIGN_BYTES) - out.len();
        out.extend((0..new_padding).map(|at| padding.get(at).unwrap_or(&0)));
        at += WORD_BYTES + old_bytes + padding.len();
        places.push((at, out.len()));
    }
    out.extend_from_slice(&bytes[at..]);
    let total_bytes = out.len();
    for (old, new, content, crc) in batches {
        let content = &mut out[content];
        let said = u64::from_le_bytes(*content.first_chunk().unwrap_or(&[0; LENGTH_BYTES]));
        if let Some((_, end)) = places.iter().find(|(place, _)| Some(*place as u64) == said.checked_add(old as u64)) {
            content[..LENGTH_BYTES].copy_from_slice(&((end - new) as u64).to_le_bytes());
        }
        if let Some(file_bytes) = content.get_mut(FILE_BYTES_AT..FILE_BYTES_AT + LENGTH_BYTES)
            && *file_bytes == (bytes.len() as u64).to_le_bytes()
        {
            file_bytes.copy_from_slice(&(total_bytes as u64).to_le_bytes());
        }
        let (fields, check) = content.split_at_mut(content.len() - CHECK_BYTES);
        let numbers = [&sequence.to_le_bytes()[..], &(new as u64).to_le_bytes(), &crc.to_le_bytes()].concat();
        check.copy_from_slice(&crc32c::crc32c_append(crc32c::crc32c(&numbers), fields).to_le_bytes());
    }
    out
}

/// The good log with bytes changed, as the fuzzer says.
fn edited(edits: &[u8]) -> Segments {
    let mut segments = good().clone();
    let (edits, _) = edits.as_chunks::<4>();
    for [number, low, high, value] in edits.iter().take(64) {
        let count = segments.len();
        let bytes = &mut segments[usize::from(*number) % count].1;
        let at = usize::from(u16::from_le_bytes([*low, *high])) % bytes.len();
        bytes[at] = *value;
    }
    let mut crc = 0;
    for (sequence, (_, bytes)) in segments.iter_mut().enumerate() {
        *bytes = sealed(bytes, sequence as u64, &mut crc);
    }
    segments
}

/// What of a log must be the same when it is opened again.
fn content(recovered: &Recovered) -> String {
    let Recovered { metadata, hard_state, entries, snapshot, .. } = recovered;
    format!("{metadata:?} {hard_state:?} {entries:?} {snapshot:?}")
}

/// Reads a segment by itself: whether it is whole, or ends with a torn batch; `None` when it is damaged.
fn read(bytes: &[u8], sequence: u64) -> Option<bool> {
    let mut records = 0;
    let read = wal::decode_segment(bytes, sequence, &mut |record| {
        records += 1;
        assert!(!matches!(record, Record::Entry(entry) if entry.kind < 0), "no entry is of such a kind");
    });
    assert!(records <= bytes.len() / 16, "{records} records in {} bytes", bytes.len());
    match read {
        Ok(_) => Some(true),
        Err(found) => {
            assert!(found.batch_offset <= found.offset && found.offset <= bytes.len() as u64, "{found:?}");
            found.torn.then_some(false)
        }
    }
}

fuzz_target!(|input: &[u8]| {
    let [mode, from, rest @ ..] = input else { return };
    let first = || good()[0].0.clone();
    let before = match mode % 4 {
        0 => vec![(first(), rest.to_vec())],
        1 => vec![(first(), sealed(rest, 0, &mut 0))],
        _ => edited(rest),
    };
    let whole: Vec<_> = before.iter().zip(0..).map(|((_, bytes), sequence)| read(bytes, sequence)).collect();
    let disk = disk_with(&before);
    // The state that the log is to go on from, and whether it is another member's. The good log has 30 entries.
    let (index, term, is_installed) = (u64::from(from & 0x1f), u64::from(from >> 5 & 3), from & 0x80 != 0);
    let state = walpb::Snapshot { index: Some(index), term: Some(if index == 0 { 0 } else { term }), conf_state: None };
    let opened = open(&disk, &state, is_installed);
    let (mut log, recovered) = match opened {
        Err(error) => {
            assert!(segments(&disk) == before, "a refused log was changed: {error}");
            return;
        }
        Ok(opened) => opened,
    };
    assert!(whole.last() != Some(&None), "the last segment is damaged");
    assert!(index > 0 || whole.iter().rev().skip(1).all(|whole| *whole == Some(true)), "a segment is damaged");
    assert!(recovered.cut.is_some() == (whole.last() == Some(&Some(false))), "a torn batch is cut off, and no other");
    let indexes = recovered.entries.iter().map(|entry| entry.index());
    assert!(indexes.eq((index + 1..).take(recovered.entries.len())), "entries follow the state without a gap");
    let last = index + recovered.entries.len() as u64;
    assert!(recovered.hard_state.commit() <= last.max(log.last_index()), "what was committed is there");
    drop(log);
    let again = open(&disk, &state, is_installed).map(|(log, again)| {
        assert!(again.cut.is_none() && !again.restarted, "nothing is mended twice");
        assert!(content(&again) == content(&recovered), "it opens as it was");
        log
    });
    log = again.unwrap_or_else(|error| panic!("{error}"));
    let entry = EntryRef { term: 9, index: log.last_index() + 1, kind: 0, data: b"more" };
    log.append(&mut [entry].into_iter(), None);
    log.commit(true).unwrap_or_else(|error| panic!("{error}"));
    drop(log);
    let (_, longer) = open(&disk, &state, is_installed).unwrap_or_else(|error| panic!("{error}"));
    let (newest, older) = longer.entries.split_last().unwrap_or_else(|| panic!("the entry is not there"));
    assert!(newest.index() == entry.index && newest.data() == entry.data, "it can be written to");
    assert!(older == recovered.entries, "nothing else has changed");
});

//! Reads a segment batch by batch.

use crate::batch::{self, Start};
use crate::frame::{self, Frame, Kind, WORD_BYTES};
use crate::record::Record;
use crate::torn;

/// Where reading a segment has to stop, and why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Break {
    /// Offset of the record that cannot be read.
    pub offset: u64,
    /// Offset at which its batch begins.
    pub batch_offset: u64,
    /// True when a power cut explains it: the batch was the last one and never became durable. False when it is damage.
    pub torn: bool,
    /// What was found.
    pub what: &'static str,
}

/// What is reported of an intact batch that does not follow the one before it.
pub(crate) const CHAIN_BROKEN: &str = "a batch continues from another checksum";

/// The end of a segment that could be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tail {
    /// Offset after the last batch.
    pub offset: u64,
    /// The running checksum there.
    pub crc: u32,
}

/// Reads the batches of one segment in order. After a [`Break`] it stays where it is.
pub(crate) struct Reader<'a> {
    bytes: &'a [u8],
    sequence: u64,
    /// Behind the last batch read.
    tail: Tail,
    /// Known unless this is the first segment to be read.
    crc_known: bool,
    records: Vec<Record<'a>>,
}

impl<'a> Reader<'a> {
    /// A reader from the segment's beginning. `crc` is the running checksum at the end of the segment before, if that is known.
    pub(crate) fn new(bytes: &'a [u8], sequence: u64, crc: Option<u32>) -> Reader<'a> {
        let tail = Tail { offset: 0, crc: crc.unwrap_or_default() };
        Reader { bytes, sequence, tail, crc_known: crc.is_some(), records: Vec::new() }
    }

    /// A reader from the end of some batch.
    #[cfg(test)]
    pub(crate) fn resume(bytes: &'a [u8], sequence: u64, tail: Tail) -> Reader<'a> {
        Reader { bytes, sequence, tail, crc_known: true, records: Vec::new() }
    }

    /// Behind the last batch read.
    pub(crate) fn tail(&self) -> Tail {
        self.tail
    }

    /// The records of the next batch, which has been verified as a whole; `None` at the end of the segment.
    pub(crate) fn next_batch(&mut self) -> Result<Option<&[Record<'a>]>, Break> {
        let offset = self.tail.offset as usize;
        let rest = self.bytes.get(offset..).unwrap_or_default();
        if offset > 0 && rest.first_chunk::<WORD_BYTES>().is_none_or(|word| *word == [0; WORD_BYTES]) {
            if torn::is_zero(rest) {
                return Ok(None);
            }
            return Err(self.broken_start("bytes follow where the next batch should begin"));
        }
        let (start, frame) = self.read_start(offset).map_err(|what| self.broken_start(what))?;
        if self.crc_known && frame.crc != self.tail.crc {
            // The head is intact, so no lost sector explains it.
            let at = offset as u64;
            return Err(Break { offset: at, batch_offset: at, torn: false, what: CHAIN_BROKEN });
        }
        if let Some(file_bytes) = start.file_bytes
            && (self.bytes.len() as u64) < file_bytes
        {
            // The length was durable before the segment got its name.
            let what = "the file ends here but was longer";
            return Err(Break { offset: self.bytes.len() as u64, batch_offset: 0, torn: false, what });
        }
        self.tail.crc = frame.crc;
        self.crc_known = true;
        self.read_records(offset, frame.end, &start).map(Some)
    }

    fn read_start(&self, offset: usize) -> Result<(Start, Frame<'a>), &'static str> {
        let frame = frame::read(self.bytes, offset)?;
        if frame.kind != Kind::Crc {
            return Err("a batch does not begin with its checksum");
        }
        if frame.data.is_empty() {
            return Err("a batch does not tell its length: this log was written by another program");
        }
        let Some(start) = batch::read_start(self.sequence, offset as u64, frame.crc, frame.data) else {
            return Err("the head of a batch does not match its check");
        };
        Ok((start, frame))
    }

    fn read_records(&mut self, offset: usize, start_end: usize, start: &Start) -> Result<&[Record<'a>], Break> {
        let batch_end = usize::try_from(start.batch_bytes).ok().and_then(|len| offset.checked_add(len));
        let batch_end = batch_end.unwrap_or(usize::MAX);
        let bytes = self.bytes.get(..batch_end).unwrap_or(self.bytes);
        self.records.clear();
        let (mut at, mut crc) = (start_end, self.tail.crc);
        while at < batch_end {
            match read_record(bytes, at, crc, at == start_end && offset == 0) {
                Ok((record, record_crc, end)) => {
                    self.records.push(record);
                    (at, crc) = (end, record_crc);
                }
                Err(what) => {
                    let torn = offset > 0 && torn::is_torn_inside(self.bytes, start, offset, batch_end);
                    return Err(broken_inside(at, offset, torn, what));
                }
            }
        }
        if at > batch_end || self.records.is_empty() {
            // The head is intact, and so is all that it spans: no lost sector explains it.
            return Err(broken_inside(start_end, offset, false, "a batch is shorter than its first record"));
        }
        // Checksums do not tell all: there are sectors of data that may become zeros without changing one.
        let batch = bytes.get(offset..).unwrap_or_default();
        if torn::zero_sectors(batch, offset as u64) != start.zero_sectors {
            let torn = offset > 0 && torn::is_torn_inside(self.bytes, start, offset, batch_end);
            return Err(broken_inside(
                start_end,
                offset,
                torn,
                "a batch has other sectors of zeros than it was written with",
            ));
        }
        self.tail = Tail { offset: batch_end as u64, crc };
        Ok(&self.records)
    }

    fn broken_start(&self, what: &'static str) -> Break {
        let offset = self.tail.offset;
        // The first batch was durable before the segment got its name: whatever is wrong with it is damage.
        let torn = offset > 0 && torn::is_torn_start(self.bytes, self.sequence, offset as usize);
        Break { offset, batch_offset: offset, torn, what }
    }
}

fn broken_inside(at: usize, batch_offset: usize, torn: bool, what: &'static str) -> Break {
    Break { offset: at as u64, batch_offset: batch_offset as u64, torn, what }
}

/// Reads the record at `at`: its contents, the running checksum after it, where it ends. `metadata` says whether it must be the
/// metadata record, which is refused anywhere else.
fn read_record(bytes: &[u8], at: usize, crc: u32, metadata: bool) -> Result<(Record<'_>, u32, usize), &'static str> {
    let frame = frame::read(bytes, at)?;
    if (frame.kind == Kind::Metadata) != metadata {
        return Err("a record is of the wrong kind");
    }
    let crc = crc32c::crc32c_append(crc, frame.data);
    if frame.crc != crc {
        return Err("a record's checksum does not match");
    }
    let record = Record::decode(frame.kind, frame.data).ok_or("a record is not what its kind says")?;
    Ok((record, crc, frame.end))
}

/// What the file of a segment was allocated with, as its intact first batch says.
pub(crate) fn allocated_bytes(bytes: &[u8], sequence: u64) -> Option<u64> {
    let first = frame::read(bytes, 0).ok()?;
    batch::read_start(sequence, 0, first.crc, first.data)?.file_bytes
}

/// Whether a segment was begun by this crate, if its damage lets that be seen. etcd's begin with a checksum that tells no length.
pub fn is_own_segment(bytes: &[u8], sequence: u64) -> Option<bool> {
    match frame::read(bytes, 0) {
        Ok(frame) if frame.kind == Kind::Crc => Some(!frame.data.is_empty()),
        _ => torn::batch_begins_behind(bytes, sequence, 0).then_some(true),
    }
}

/// Reads a whole segment from its bytes, however hostile, and hands the records of each intact batch to `visit`.
pub fn decode_segment(bytes: &[u8], sequence: u64, visit: &mut dyn FnMut(&Record<'_>)) -> Result<Tail, Break> {
    let (tail, read) = decode_segment_while(bytes, sequence, None, &mut |record| {
        visit(record);
        true
    });
    read.map(|_| tail)
}

/// The same up to the first record after which `visit` wants no more; says whether it wants more. `crc` is the running checksum at the
/// end of the segment before, if that is known. The tail is behind the last intact batch, also where a break follows.
pub fn decode_segment_while(
    bytes: &[u8],
    sequence: u64,
    crc: Option<u32>,
    visit: &mut dyn FnMut(&Record<'_>) -> bool,
) -> (Tail, Result<bool, Break>) {
    let mut reader = Reader::new(bytes, sequence, crc);
    let read = loop {
        match reader.next_batch() {
            Ok(Some(records)) if !records.iter().all(&mut *visit) => break Ok(false),
            Ok(Some(_)) => {}
            Ok(None) => break Ok(true),
            Err(found) => break Err(found),
        }
    };
    (reader.tail(), read)
}

//! Reading key files. They may be damaged or made up: nothing in them is believed that was not checked.

use super::layout::{HEADER_BYTES, Header, Item, MARK_BYTES, Misfit, ROW_BYTES, u32_at};
use crate::log::{Batch, Keys, Mark, SEGMENT_HEADER_BYTES, SegmentEntry};
use crate::types::{Revision, Version};
use api::limits::REQUEST_BYTES_LIMIT;
use disk::{File, Mapping};
use std::sync::Arc;

/// The key file of a segment whose header, table and marks are as they were written. Its blocks are checked by [`KeyFile::verify`].
pub(crate) struct KeyFile {
    /// Until its blocks were verified: the mapping needs no descriptor.
    file: Option<Arc<dyn File>>,
    mapping: Mapping,
    header: Header,
    blocks: Vec<Block>,
    marks: Vec<Mark>,
    /// As the checkpoint has it.
    crc: u32,
}

/// A block in the file.
#[derive(Clone, Copy)]
struct Block {
    begin: usize,
    end: usize,
    crc: u32,
    records: u32,
}

impl KeyFile {
    /// The key file of the segment `entry`, which a checkpoint lists with this key file's checksum.
    pub(crate) fn open(file: Arc<dyn File>, entry: &SegmentEntry, crc: u32) -> Result<KeyFile, Misfit> {
        let length = file.len().map_err(unreadable)?;
        let Some(rest_bytes) = length.checked_sub(HEADER_BYTES as u64) else {
            return Err(Misfit("it is shorter than a header"));
        };
        let mut header = [0; HEADER_BYTES];
        file.read_at(&mut header, 0).map_err(unreadable)?;
        let header = Header::decode(&header, entry, crc)?;
        let table_bytes = u64::from(header.blocks) * ROW_BYTES as u64;
        let tail_bytes = table_bytes + u64::from(header.marks) * MARK_BYTES as u64;
        if header.block_bytes.checked_add(tail_bytes) != Some(rest_bytes) {
            return Err(Misfit("it has another length than its header says"));
        }
        let mut tail = vec![0; tail_bytes as usize];
        file.read_at(&mut tail, HEADER_BYTES as u64 + header.block_bytes).map_err(unreadable)?;
        if crc32c::crc32c(&tail) != header.tail_crc {
            return Err(Misfit("the checksum of its table is wrong"));
        }
        let (table, marks) = tail.split_at(table_bytes as usize);
        let blocks = read_table(table, &header).ok_or(Misfit("its table contradicts its header"))?;
        let marks = read_marks(marks, &header.entry).ok_or(Misfit("its marks contradict each other"))?;
        let mapping = file.map(length).map_err(unreadable)?;
        Ok(KeyFile { blocks, marks, crc, header, file: Some(file), mapping })
    }

    /// Compares the checksum of every block. Read from the file: what the disk cannot read is an error here, and in a mapping the end of the process.
    pub(crate) fn verify(&mut self, rest: fn()) -> Result<(), Misfit> {
        let Some(file) = self.file.take() else { return Ok(()) };
        let mut bytes = Vec::new();
        for block in &self.blocks {
            rest();
            bytes.resize(block.end - block.begin, 0);
            file.read_at(&mut bytes, block.begin as u64).map_err(unreadable)?;
            if crc32c::crc32c(&bytes) != block.crc {
                return Err(Misfit("the checksum of a block is wrong"));
            }
        }
        Ok(())
    }

    /// The file as its segment knows it.
    pub(crate) fn keys(&self) -> Keys {
        Keys { crc: self.crc, bytes: self.mapping.len() as u64 }
    }

    /// The records of the segment, for its own sparse index.
    pub(crate) fn batch(&self) -> Batch {
        let entry = &self.header.entry;
        let bytes = entry.length - SEGMENT_HEADER_BYTES as u64;
        Batch::of(entry.first(), entry.last(), entry.records, bytes, self.marks.clone())
    }

    /// The bytes that all keys begin with.
    pub(crate) fn common(&self) -> Result<&[u8], Misfit> {
        self.first_key(0)?.get(..self.header.common as usize).ok_or(MALFORMED)
    }

    /// First keys of some blocks, which lie evenly, about so many.
    pub(crate) fn samples(&self, count: usize) -> impl Iterator<Item = Result<&[u8], Misfit>> {
        let step = (self.blocks.len() / count.max(1)).max(1);
        (0..self.blocks.len()).step_by(step).map(|block| self.first_key(block))
    }

    /// The records from the first one on whose key is not before `from`. The position of the segment in the log is `segment`.
    pub(crate) fn cursor(&self, segment: u32, from: Option<&[u8]>) -> Result<Option<Cursor<'_>>, Misfit> {
        let mut block = 0;
        if let Some(from) = from {
            // The last block that begins before it.
            let mut after = self.blocks.len();
            while block + 1 < after {
                let middle = block.midpoint(after);
                if self.first_key(middle)? < from {
                    block = middle;
                } else {
                    after = middle;
                }
            }
        }
        let common = self.common()?;
        let mut cursor =
            Cursor { file: self, common, segment, block, rest: &[], left: 0, key: Vec::new(), version: None, lease: 0 };
        loop {
            if !cursor.advance()? {
                return Ok(None);
            }
            if from.is_none_or(|from| cursor.key() >= from) {
                return Ok(Some(cursor));
            }
        }
    }

    fn bytes(&self, block: &Block) -> &[u8] {
        self.mapping.get(block.begin, block.end - block.begin).unwrap_or_default()
    }

    /// The first key of a block, which is whole in it.
    fn first_key(&self, block: usize) -> Result<&[u8], Misfit> {
        let mut bytes = self.blocks.get(block).map(|block| self.bytes(block)).unwrap_or_default();
        let item = Item::take(&mut bytes, &self.header.entry, 0).ok_or(MALFORMED)?;
        if item.shared == 0 { Ok(item.suffix) } else { Err(MALFORMED) }
    }
}

fn unreadable(_: std::io::Error) -> Misfit {
    Misfit("it cannot be read")
}

const MALFORMED: Misfit = Misfit("a block of it does not hold records of its segment in their order");

fn read_table(table: &[u8], header: &Header) -> Option<Vec<Block>> {
    let (mut blocks, mut records, mut begin) = (Vec::with_capacity(table.len() / ROW_BYTES), 0, HEADER_BYTES);
    for row in table.chunks_exact(ROW_BYTES) {
        let [bytes, crc, of_block] = [0, 4, 8].map(|at| u32_at(row, at));
        let end = begin.checked_add(bytes as usize)?;
        records += u64::from(of_block);
        if of_block == 0 {
            return None;
        }
        blocks.push(Block { begin, end, crc, records: of_block });
        begin = end;
    }
    let is_whole = (begin - HEADER_BYTES) as u64 == header.block_bytes && records == header.entry.records;
    (is_whole && !blocks.is_empty()).then_some(blocks)
}

/// Marks ascend, and begin with the first record.
fn read_marks(bytes: &[u8], entry: &SegmentEntry) -> Option<Vec<Mark>> {
    let mut marks: Vec<Mark> = Vec::with_capacity(bytes.len() / MARK_BYTES);
    for row in bytes.chunks_exact(MARK_BYTES) {
        let [low, high, sub, offset] = [0, 4, 8, 12].map(|at| u32_at(row, at));
        let mark = Mark { rev: Revision { main: i64::from(high) << 32 | i64::from(low), sub }, offset };
        let follows = match marks.last() {
            None => mark.rev == entry.first() && mark.offset as usize == SEGMENT_HEADER_BYTES,
            Some(before) => before.rev < mark.rev && before.offset < mark.offset,
        };
        if !follows || mark.rev > entry.last() || u64::from(mark.offset) >= entry.length {
            return None;
        }
        marks.push(mark);
    }
    (!marks.is_empty()).then_some(marks)
}

/// Goes over the records of a key file.
pub(crate) struct Cursor<'a> {
    file: &'a KeyFile,
    common: &'a [u8],
    segment: u32,
    /// The block after the one that is read.
    block: usize,
    /// What is left of the block.
    rest: &'a [u8],
    left: u32,
    key: Vec<u8>,
    /// Missing before the first record.
    version: Option<Version>,
    lease: i64,
}

impl Cursor<'_> {
    /// The key of the record.
    pub(crate) fn key(&self) -> &[u8] {
        &self.key
    }

    /// What the index needs of it, with the position of the segment in place of its id; and its lease.
    pub(crate) fn version(&self) -> (Version, i64) {
        let Some(version) = self.version else { unreachable!("a cursor is handed out at a record") };
        (version, self.lease)
    }

    /// Moves on to the next record. False at the end.
    pub(crate) fn advance(&mut self) -> Result<bool, Misfit> {
        let begins = self.left == 0;
        if begins {
            let Some(block) = self.file.blocks.get(self.block).filter(|_| self.rest.is_empty()) else {
                return if self.rest.is_empty() { Ok(false) } else { Err(MALFORMED) };
            };
            (self.rest, self.left) = (self.file.bytes(block), block.records);
            self.block += 1;
        }
        self.left -= 1;
        let item = Item::take(&mut self.rest, &self.file.header.entry, self.segment).ok_or(MALFORMED)?;
        let is_known = item.shared <= self.key.len() && !(begins && item.shared > 0);
        if !is_known || item.shared.saturating_add(item.suffix.len()) > REQUEST_BYTES_LIMIT {
            return Err(MALFORMED);
        }
        // Later in the order: the same key at a later revision, or one that goes on after what they share with greater bytes.
        let follows = match self.version {
            None => true,
            Some(before) => match item.suffix.cmp(&self.key[item.shared..]) {
                std::cmp::Ordering::Greater => true,
                std::cmp::Ordering::Equal => before.rev < item.version.rev,
                std::cmp::Ordering::Less => false,
            },
        };
        self.key.truncate(item.shared);
        self.key.extend_from_slice(item.suffix);
        let is_common = item.shared >= self.common.len() || self.key.starts_with(self.common);
        if !follows || !is_common || self.key.is_empty() {
            return Err(MALFORMED);
        }
        (self.version, self.lease) = (Some(item.version), item.lease);
        Ok(true)
    }
}

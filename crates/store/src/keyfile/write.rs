//! Making the bytes of a key file.

use super::layout::{BLOCK_BYTES, HEADER_BYTES, Header, Item};
use crate::log::{Mark, SegmentEntry};
use crate::sorting::{Decoded, shared};

/// Encodes the records of one segment, which come sorted by key and, within a key, by revision.
pub(crate) struct Encoder {
    entry: SegmentEntry,
    /// Bytes that all keys begin with.
    common: usize,
    /// Whole blocks that were not taken yet, and the block that is being filled.
    blocks: Vec<u8>,
    /// Where in `blocks` the one begins that is being filled, and records in it.
    begin: usize,
    records: u32,
    /// The key before.
    key: Vec<u8>,
    table: Vec<u8>,
    /// Bytes and number of all whole blocks.
    block_bytes: u64,
    block_count: u32,
}

/// The end of a key file, and its header, whose place is at the beginning.
pub(crate) struct Finished {
    /// What follows the blocks.
    pub(crate) tail: Vec<u8>,
    /// The header.
    pub(crate) header: [u8; HEADER_BYTES],
    /// What a checkpoint calls the file by.
    pub(crate) crc: u32,
}

impl Encoder {
    /// Bytes before the first block.
    pub(crate) const HEADER_BYTES: usize = HEADER_BYTES;

    /// For the segment `entry`, all of whose keys agree in their first `common` bytes.
    pub(crate) fn new(entry: SegmentEntry, common: usize) -> Encoder {
        Encoder {
            entry,
            common,
            blocks: Vec::new(),
            begin: 0,
            records: 0,
            key: Vec::new(),
            table: Vec::new(),
            block_bytes: 0,
            block_count: 0,
        }
    }

    /// Adds the next record.
    pub(crate) fn push(&mut self, record: &Decoded<'_>) {
        let in_common = if self.records == 0 { 0 } else { shared(&self.key, record.key) };
        let Decoded { key, version, lease } = *record;
        Item { shared: in_common, suffix: &key[in_common..], version, lease }.encode(&self.entry, &mut self.blocks);
        self.key.truncate(in_common);
        self.key.extend_from_slice(&key[in_common..]);
        self.records += 1;
        if self.blocks.len() - self.begin >= BLOCK_BYTES {
            self.close_block();
        }
    }

    /// Takes the whole blocks that are there, to be written behind those taken before.
    pub(crate) fn take_blocks(&mut self, out: &mut Vec<u8>) {
        out.extend(self.blocks.drain(..self.begin));
        self.begin = 0;
    }

    /// Bytes of whole blocks that wait to be taken.
    pub(crate) fn waiting(&self) -> usize {
        self.begin
    }

    /// Ends the last block.
    pub(crate) fn close_block(&mut self) {
        let block = &self.blocks[self.begin..];
        if block.is_empty() {
            return;
        }
        // One record is the most that a block has beyond its size, and a segment's length has 32 bits.
        for number in [block.len() as u32, crc32c::crc32c(block), self.records] {
            self.table.extend_from_slice(&number.to_le_bytes());
        }
        self.block_bytes += block.len() as u64;
        self.block_count += 1;
        self.begin = self.blocks.len();
        self.records = 0;
    }

    /// Ends the file, whose blocks were all closed and taken. `marks` are those of the segment.
    pub(crate) fn finish(self, marks: &[Mark]) -> Finished {
        assert!(self.blocks.is_empty(), "the blocks of a key file are written before its end");
        let mut tail = self.table;
        for Mark { rev, offset } in marks {
            tail.extend_from_slice(&rev.main.to_le_bytes());
            tail.extend_from_slice(&rev.sub.to_le_bytes());
            tail.extend_from_slice(&offset.to_le_bytes());
        }
        let header = Header {
            entry: self.entry,
            block_bytes: self.block_bytes,
            blocks: self.block_count,
            // As many as there are stretches in a segment, whose length has 32 bits; keys are shorter than requests.
            marks: marks.len() as u32,
            common: self.common as u32,
            tail_crc: crc32c::crc32c(&tail),
        };
        let header = header.encode();
        let [.., a, b, c, d] = header;
        Finished { tail, header, crc: u32::from_le_bytes([a, b, c, d]) }
    }
}

impl std::fmt::Debug for Encoder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Encoder({:x}, {} blocks)", self.entry.id, self.block_count)
    }
}

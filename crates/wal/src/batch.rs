//! The batch being gathered.
//!
//! A batch is a Crc record followed by at least one other. The Crc record's data, which etcd's reader skips, is
//!
//! ```text
//! bytes of the whole batch u64 | sectors of it that are all zeros u32 |
//!     first batch of a segment only: bytes the file was allocated with u64 | check u32
//! ```
//!
//! all little-endian. The sectors are those of the file that begin behind the first byte of the Crc record. The check is CRC-32C over the segment's sequence
//! u64, the offset u64, the running checksum u32 and the data before the check.

use crate::frame::{self, Kind, WORD_BYTES};
use crate::record::{self, ENTRY_HEAD_BYTES_MAX, EntryRef};
use crate::torn;
use api::{Message, raftpb, walpb};

/// Longest Crc record of a batch that does not begin a segment.
pub(crate) const START_BYTES_MAX: usize = WORD_BYTES + 32;

/// A buffer that grew beyond this is shrunk.
const BUFFER_BYTES_KEPT: usize = 4 << 20;

const LENGTH_BYTES: usize = 8;
const COUNT_BYTES: usize = 4;
const CHECK_BYTES: usize = 4;

/// What the data of a batch's Crc record says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Start {
    /// Of the whole batch, its Crc record included.
    pub(crate) batch_bytes: u64,
    /// Sectors that begin in it and hold nothing but zeros, as written.
    pub(crate) zero_sectors: u32,
    /// In the first batch of a segment: what the file was allocated with.
    pub(crate) file_bytes: Option<u64>,
}

/// Records on their way to the disk.
pub(crate) struct Batch {
    bytes: Vec<u8>,
    /// Running checksum before the first record and after the last one.
    crc_before: u32,
    crc: u32,
    file_bytes: Option<u64>,
    start_data_offset: usize,
    scratch: Vec<u8>,
    must_sync: bool,
}

impl Batch {
    /// An empty batch after records with the running checksum `crc`.
    pub(crate) fn new(crc: u32) -> Batch {
        Batch {
            bytes: Vec::new(),
            crc_before: crc,
            crc,
            file_bytes: None,
            start_data_offset: 0,
            scratch: Vec::with_capacity(ENTRY_HEAD_BYTES_MAX),
            must_sync: false,
        }
    }

    /// The batch that begins a segment, whose file was allocated with `file_bytes`.
    pub(crate) fn first(crc: u32, file_bytes: u64) -> Batch {
        Batch { file_bytes: Some(file_bytes), ..Batch::new(crc) }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    pub(crate) fn len(&self) -> usize {
        self.bytes.len()
    }

    pub(crate) fn reserve(&mut self, bytes: usize) {
        self.bytes.reserve(bytes);
    }

    /// True when it holds more than hard states: then it cannot wait for a later batch.
    pub(crate) fn must_sync(&self) -> bool {
        self.must_sync
    }

    /// The running checksum after the batch.
    pub(crate) fn crc(&self) -> u32 {
        self.crc
    }

    pub(crate) fn push_metadata(&mut self, metadata: &[u8]) {
        self.push(Kind::Metadata, metadata);
        self.must_sync = true;
    }

    pub(crate) fn push_entry(&mut self, entry: &EntryRef<'_>) {
        let mut head = std::mem::take(&mut self.scratch);
        record::entry_head(entry, &mut head);
        self.begin();
        self.crc = crc32c::crc32c_append(crc32c::crc32c_append(self.crc, &head), entry.data);
        frame::push(&mut self.bytes, Kind::Entry, self.crc, &[&head, entry.data]);
        self.scratch = head;
        self.must_sync = true;
    }

    pub(crate) fn push_hard_state(&mut self, state: &raftpb::HardState) {
        let mut data = std::mem::take(&mut self.scratch);
        record::hard_state(state, &mut data);
        self.push(Kind::HardState, &data);
        self.scratch = data;
    }

    pub(crate) fn push_snapshot(&mut self, snapshot: &walpb::Snapshot) {
        self.push(Kind::Snapshot, &record::complete(snapshot).encode_to_vec());
        self.must_sync = true;
    }

    fn push(&mut self, kind: Kind, data: &[u8]) {
        self.begin();
        self.crc = crc32c::crc32c_append(self.crc, data);
        frame::push(&mut self.bytes, kind, self.crc, &[data]);
    }

    fn begin(&mut self) {
        if self.bytes.is_empty() {
            let data = [0; 2 * LENGTH_BYTES + COUNT_BYTES + CHECK_BYTES];
            // Only the first batch of a segment gives the file's length.
            let data = if self.file_bytes.is_some() { &data[..] } else { data.split_at(LENGTH_BYTES).1 };
            self.start_data_offset = frame::push(&mut self.bytes, Kind::Crc, self.crc, &[data]);
        }
    }

    /// The bytes to be written at `offset` of segment `sequence`.
    pub(crate) fn finish(&mut self, sequence: u64, offset: u64) -> &[u8] {
        assert!(!self.bytes.is_empty(), "an empty batch was to be written");
        assert_eq!(offset == 0, self.file_bytes.is_some(), "only the first batch of a segment gives the file's length");
        let zero_sectors = torn::zero_sectors(&self.bytes, offset);
        let mut data = Vec::with_capacity(2 * LENGTH_BYTES + COUNT_BYTES + CHECK_BYTES);
        data.extend_from_slice(&(self.bytes.len() as u64).to_le_bytes());
        data.extend_from_slice(&zero_sectors.to_le_bytes());
        if let Some(file_bytes) = self.file_bytes {
            data.extend_from_slice(&file_bytes.to_le_bytes());
        }
        let check = check(sequence, offset, self.crc_before, &data);
        data.extend_from_slice(&check.to_le_bytes());
        let place = self.bytes.get_mut(self.start_data_offset..).and_then(|rest| rest.get_mut(..data.len()));
        let Some(place) = place else { unreachable!("a batch begins with room for what is said of it") };
        place.copy_from_slice(&data);
        &self.bytes
    }

    /// Empties the batch once it is on disk; the next one follows it.
    pub(crate) fn clear(&mut self) {
        self.bytes.clear();
        self.bytes.shrink_to(BUFFER_BYTES_KEPT);
        self.crc_before = self.crc;
        self.file_bytes = None;
        self.must_sync = false;
    }
}

/// Reads the data of a Crc record that begins a batch at `offset` of segment `sequence`; `None` when it does not fit there.
pub(crate) fn read_start(sequence: u64, offset: u64, crc: u32, data: &[u8]) -> Option<Start> {
    let (fields, found) = data.split_last_chunk::<CHECK_BYTES>()?;
    if u32::from_le_bytes(*found) != check(sequence, offset, crc, fields) {
        return None;
    }
    let (length, rest) = fields.split_first_chunk::<LENGTH_BYTES>()?;
    let (zero_sectors, rest) = rest.split_first_chunk::<COUNT_BYTES>()?;
    let file_bytes = match (offset, rest) {
        (0, rest) => Some(u64::from_le_bytes(rest.try_into().ok()?)),
        (_, []) => None,
        _ => return None,
    };
    let (batch_bytes, zero_sectors) = (u64::from_le_bytes(*length), u32::from_le_bytes(*zero_sectors));
    Some(Start { batch_bytes, zero_sectors, file_bytes })
}

fn check(sequence: u64, offset: u64, crc: u32, fields: &[u8]) -> u32 {
    let mut check = crc32c::crc32c(&sequence.to_le_bytes());
    check = crc32c::crc32c_append(check, &offset.to_le_bytes());
    check = crc32c::crc32c_append(check, &crc.to_le_bytes());
    crc32c::crc32c_append(check, fields)
}

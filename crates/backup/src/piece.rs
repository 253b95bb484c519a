//! Pieces: runs of entries, as they are stored. `docs/formats.md` has the layout drawn.
//!
//! ```text
//! 0   "cairnlog"        8 bytes
//! 8   version           u32, 1
//! 12  cluster id        u64
//! 20  index and term of the entry before the first    2 x u64
//! 36  index and term of the last entry                2 x u64
//! 52  batches           each: time in ms u64, bytes of its entries u32, entries
//! -32 SHA-256 of everything before it
//! ```
//!
//! Numbers are little-endian. The entries of a batch are messages `raftpb.Entry`, each behind its length as a varint.

use api::Message;
use api::raftpb::Entry;
use bytes::Bytes;
use sha2::{Digest, Sha256};
use std::fmt;

const MAGIC: &[u8; 8] = b"cairnlog";
const VERSION: u32 = 1;
/// Bytes before the first batch.
const HEAD_BYTES: usize = 52;
/// Bytes before the entries of a batch.
const BATCH_HEAD_BYTES: usize = 12;
const CHECKSUM_BYTES: usize = 32;
/// What is wrong with a piece that is not whole.
const CUT_OFF: &str = "it is cut off";
const WRONG_SUM: &str = "its checksum does not match";
/// Entries that are read at once: one takes far more memory than it may take bytes.
const ENTRIES_MAX: usize = 1_024;
/// Larger ones are refused before they are read: a piece is sealed at 16 MiB, and an entry is far smaller than the rest.
pub const PIECE_BYTES_MAX: u64 = 1 << 30;

/// A place in the log: an entry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct At {
    /// Its index.
    pub index: u64,
    /// Its term.
    pub term: u64,
}

impl fmt::Display for At {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of term {}", self.index, self.term)
    }
}

/// What the name of a piece says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PieceName {
    /// Index of its first entry.
    pub first: u64,
    /// Its last entry.
    pub last: At,
}

impl PieceName {
    /// `log/FIRST-LAST-TERM`, with numbers of 20 digits, so that names sort as indexes do.
    pub fn parse(name: &str) -> Option<PieceName> {
        let mut numbers = name.strip_prefix("log/")?.split('-').map(|digits| digits.parse::<u64>().ok());
        let (first, index, term) = (numbers.next()??, numbers.next()??, numbers.next()??);
        let found = PieceName { first, last: At { index, term } };
        (0 < first && first <= index && numbers.next().is_none() && found.to_string() == name).then_some(found)
    }
}

impl fmt::Display for PieceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "log/{:020}-{:020}-{}", self.first, self.last.index, self.last.term)
    }
}

/// A run of entries that is being gathered.
#[derive(Clone, Debug)]
pub struct Draft {
    cluster_id: u64,
    before: At,
    last: At,
    bytes: Vec<u8>,
}

impl Draft {
    /// One that begins behind an entry.
    pub fn new(cluster_id: u64, before: At) -> Draft {
        Draft { cluster_id, before, last: before, bytes: vec![0; HEAD_BYTES] }
    }

    /// The entry that it begins behind.
    pub fn before(&self) -> At {
        self.before
    }

    /// Its last entry, or the one before it.
    pub fn last(&self) -> At {
        self.last
    }

    /// Whether it has no entry.
    pub fn is_empty(&self) -> bool {
        self.last.index == self.before.index
    }

    /// Bytes that it takes.
    pub fn len(&self) -> usize {
        self.bytes.len().saturating_add(CHECKSUM_BYTES)
    }

    /// Adds entries that were applied by `time_ms`. Returns why they cannot follow, if so; nothing is added then.
    pub fn push(&mut self, time_ms: u64, entries: &[Entry]) -> Result<(), String> {
        let mut last = self.last;
        for entry in entries {
            let at = At { index: entry.index(), term: entry.term() };
            if last.index.checked_add(1) != Some(at.index) || at.term < last.term {
                return Err(format!("entry {at} does not follow entry {last}"));
            }
            last = at;
        }
        if entries.is_empty() {
            return Ok(());
        }
        let begin = self.bytes.len();
        self.bytes.extend_from_slice(&time_ms.to_le_bytes());
        self.bytes.extend_from_slice(&[0; 4]);
        for entry in entries {
            // A vector has room for everything.
            let _ = entry.encode_length_delimited(&mut self.bytes);
        }
        let len = self.bytes.len().saturating_sub(begin).saturating_sub(BATCH_HEAD_BYTES);
        let Ok(len) = u32::try_from(len) else {
            self.bytes.truncate(begin);
            return Err(format!("{len} bytes of entries at once are too many"));
        };
        if let Some(place) = self.bytes.get_mut(begin.saturating_add(8)..begin.saturating_add(BATCH_HEAD_BYTES)) {
            place.copy_from_slice(&len.to_le_bytes());
        }
        self.last = last;
        Ok(())
    }

    /// Adds a whole piece that follows, byte for byte.
    pub fn join(&mut self, piece: &Piece) -> Result<(), String> {
        if piece.before != self.last || piece.cluster_id != self.cluster_id {
            return Err(format!("a piece behind entry {} does not follow entry {}", piece.before, self.last));
        }
        self.bytes.extend_from_slice(&piece.batches);
        self.last = piece.last;
        Ok(())
    }

    /// Its name.
    pub fn name(&self) -> PieceName {
        PieceName { first: self.before.index.saturating_add(1), last: self.last }
    }

    /// The object.
    pub fn encode(&self) -> Bytes {
        let mut head = Vec::with_capacity(self.len());
        head.extend_from_slice(MAGIC);
        head.extend_from_slice(&VERSION.to_le_bytes());
        for number in [self.cluster_id, self.before.index, self.before.term, self.last.index, self.last.term] {
            head.extend_from_slice(&number.to_le_bytes());
        }
        head.extend_from_slice(self.bytes.get(HEAD_BYTES..).unwrap_or_default());
        let hash = Sha256::digest(&head);
        head.extend_from_slice(&hash);
        head.into()
    }
}

/// A run of entries that was read, and is whole.
#[derive(Clone, Debug, PartialEq)]
pub struct Piece {
    /// The cluster that it is of.
    pub cluster_id: u64,
    /// The entry that it begins behind.
    pub before: At,
    /// Its last entry.
    pub last: At,
    batches: Bytes,
}

/// Entries that were applied by one time: a batch, or a part of a long one.
#[derive(Clone, Debug, PartialEq)]
pub struct Batch {
    /// When, in milliseconds since 1970.
    pub time_ms: u64,
    /// The entries, in order, without a gap.
    pub entries: Vec<Entry>,
}

impl Piece {
    /// Reads an object, of whatever bytes.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn decode(bytes: &Bytes) -> Result<Piece, String> {
        let end = bytes.len().checked_sub(CHECKSUM_BYTES).filter(|end| *end >= HEAD_BYTES).ok_or(CUT_OFF)?;
        let (content, hash) = bytes.split_at_checked(end).ok_or(CUT_OFF)?;
        if !content.starts_with(MAGIC) {
            return Err("it is no piece of an archive".into());
        }
        let mut rest = content.get(MAGIC.len()..).unwrap_or_default();
        let version = u32::from_le_bytes(take(&mut rest)?);
        if version != VERSION {
            return Err(format!("it is of version {version} of the format; this program knows {VERSION}"));
        }
        if *Sha256::digest(content) != *hash {
            return Err(WRONG_SUM.into());
        }
        let mut number = || take(&mut rest).map(u64::from_le_bytes);
        let cluster_id = number()?;
        let before = At { index: number()?, term: number()? };
        let last = At { index: number()?, term: number()? };
        Ok(Piece { cluster_id, before, last, batches: bytes.slice(HEAD_BYTES..end) })
    }

    /// Whether an object is what is left of a piece whose writing broke off, rather than anything else that cannot be read.
    pub(crate) fn is_torn(bytes: &Bytes) -> bool {
        matches!(Piece::decode(bytes), Err(what) if what == CUT_OFF || what == WRONG_SUM)
    }

    /// Its batches, one after the other, long ones in parts; after an error there is none.
    pub fn batches(&self) -> impl Iterator<Item = Result<Batch, String>> + '_ {
        let (mut rest, mut at, mut is_over) = (self.batches.clone(), self.before, false);
        let mut open = OpenBatch::default();
        std::iter::from_fn(move || {
            if is_over {
                return None;
            }
            if open.body.is_empty() && rest.is_empty() {
                is_over = true;
                return (at != self.last).then(|| Err(format!("it ends at entry {at}, not at entry {}", self.last)));
            }
            let opened = if open.body.is_empty() { open_batch(&mut rest).map(|next| open = next) } else { Ok(()) };
            let batch = opened.and_then(|()| open.read(&mut at));
            is_over = batch.is_err();
            Some(batch)
        })
    }
}

fn take<const N: usize>(rest: &mut &[u8]) -> Result<[u8; N], String> {
    let (head, tail) = rest.split_first_chunk::<N>().ok_or(CUT_OFF)?;
    *rest = tail;
    Ok(*head)
}

/// A batch of which there is more to read.
#[derive(Default)]
struct OpenBatch {
    time_ms: u64,
    body: Bytes,
}

impl OpenBatch {
    fn read(&mut self, at: &mut At) -> Result<Batch, String> {
        let mut entries = Vec::new();
        while !self.body.is_empty() && entries.len() < ENTRIES_MAX {
            let entry = Entry::decode_length_delimited(&mut self.body).map_err(|error| format!("an entry: {error}"))?;
            let found = At { index: entry.index(), term: entry.term() };
            if at.index.checked_add(1) != Some(found.index) || found.term < at.term {
                return Err(format!("entry {found} does not follow entry {at}"));
            }
            *at = found;
            entries.push(entry);
        }
        Ok(Batch { time_ms: self.time_ms, entries })
    }
}

fn open_batch(rest: &mut Bytes) -> Result<OpenBatch, String> {
    let mut head = &rest[..];
    let time_ms = u64::from_le_bytes(take(&mut head)?);
    let len = u32::from_le_bytes(take(&mut head)?) as usize;
    if head.len() < len {
        return Err("a batch is cut off".into());
    }
    let body = rest.slice(BATCH_HEAD_BYTES..BATCH_HEAD_BYTES.saturating_add(len));
    *rest = rest.slice(BATCH_HEAD_BYTES.saturating_add(len)..);
    Ok(OpenBatch { time_ms, body })
}

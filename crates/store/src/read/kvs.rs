//! The keys and values of an answer: references to stored bytes, which are wire bytes.

use crate::log::{KvParts, KvView, Segment, Segments, Value, shared_message, to_message};
use crate::types::Loc;
use api::mvccpb::KeyValue;
use api::varint;
use bytes::BytesMut;
use std::sync::Arc;

/// The field `kvs` of `RangeResponse`.
const KVS: u32 = 2;
/// Pairs from this size on are shared with the messages made of them.
const SHARED_BYTES_MIN: usize = 16 * 1024;
/// Bytes of one chunk of encoded pairs.
const CHUNK_BYTES: usize = 64 * 1024;

/// Segments that an answer refers to, kept readable for as long as it lives.
#[derive(Default)]
pub(crate) struct Held {
    segments: Vec<(u32, Arc<Segment>)>,
    /// Where the last lookup ended: neighbours in key order were often written together.
    last: usize,
}

impl Held {
    /// Keeps the segment of `loc`. To be called while the index lock that `loc` was read under is held.
    pub(crate) fn hold(&mut self, all: &Segments, loc: Loc) {
        if self.segments.get(self.last).is_some_and(|(id, _)| *id == loc.segment) {
            return;
        }
        match self.segments.binary_search_by_key(&loc.segment, |(id, _)| *id) {
            Ok(at) => self.last = at,
            Err(at) => {
                self.segments.insert(at, (loc.segment, all.segment(loc.segment)));
                self.last = at;
            }
        }
    }

    fn segment(&self, loc: Loc) -> &Arc<Segment> {
        match self.segments.as_slice() {
            [(id, only)] if *id == loc.segment => only,
            all => match all.binary_search_by_key(&loc.segment, |(id, _)| *id) {
                Ok(at) => &all[at].1,
                Err(_) => panic!("an answer refers to segment {} without holding it", loc.segment),
            },
        }
    }

    pub(crate) fn stored(&self, loc: Loc) -> &[u8] {
        self.segment(loc).stored(loc.offset as usize, loc.len as usize)
    }
}

/// Encoded pairs that are no stored bytes (`keys_only`).
#[derive(Default)]
pub(crate) struct Encoded {
    chunks: Vec<Vec<u8>>,
    bytes: usize,
}

impl Encoded {
    /// Adds a pair and says where it is: chunk, offset, length.
    pub(crate) fn push(&mut self, pair: &KvView<'_>) -> Loc {
        if self.chunks.last().is_none_or(|chunk| chunk.len() >= CHUNK_BYTES) {
            self.chunks.push(Vec::new());
        }
        let segment = self.chunks.len() - 1;
        let chunk = &mut self.chunks[segment];
        let offset = chunk.len();
        let KvView { key, create, modified, version, value, lease } = *pair;
        KvParts { key, create, version, value, lease }.encode(modified, chunk);
        let place = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
        self.bytes += chunk.len() - offset;
        Loc { segment: place(segment), offset: place(offset), len: place(chunk.len() - offset) }
    }

    /// Memory that they take. A chunk that grows takes up to twice what is in it.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes + self.bytes.min(CHUNK_BYTES)
    }

    fn stored(&self, loc: Loc) -> &[u8] {
        &self.chunks[loc.segment as usize][loc.offset as usize..][..loc.len as usize]
    }
}

/// How far [`Kvs::encode_around`] has come.
#[derive(Debug)]
pub enum Reached {
    /// All pairs are out.
    All,
    /// There are more.
    Part,
    /// A pair that is not copied comes next, and perhaps more after it.
    Large(Value),
}

enum Source {
    None,
    /// One pair, as most reads ask for: nothing allocated.
    One(Arc<Segment>, Loc),
    Stored(Held, Vec<Loc>),
    Encoded(Encoded, Vec<Loc>),
}

/// The pairs of an answer, in its order. Nothing is copied until they are encoded into the response.
pub struct Kvs {
    source: Source,
    next: usize,
    encoded_len: usize,
}

impl Kvs {
    pub(crate) fn none() -> Kvs {
        Kvs { source: Source::None, next: 0, encoded_len: 0 }
    }

    pub(crate) fn one(segment: Arc<Segment>, loc: Loc) -> Kvs {
        Kvs { encoded_len: field_len(loc), source: Source::One(segment, loc), next: 0 }
    }

    pub(crate) fn stored(held: Held, locs: Vec<Loc>) -> Kvs {
        let encoded_len = locs.iter().map(|&loc| field_len(loc)).sum();
        Kvs { source: Source::Stored(held, locs), next: 0, encoded_len }
    }

    pub(crate) fn encoded(encoded: Encoded, locs: Vec<Loc>) -> Kvs {
        let encoded_len = locs.iter().map(|&loc| field_len(loc)).sum();
        Kvs { source: Source::Encoded(encoded, locs), next: 0, encoded_len }
    }

    /// Number of pairs.
    pub fn len(&self) -> usize {
        match &self.source {
            Source::None => 0,
            Source::One(..) => 1,
            Source::Stored(_, locs) | Source::Encoded(_, locs) => locs.len(),
        }
    }

    /// True when there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes that all `kvs` fields of the response take, tags and lengths included.
    pub fn encoded_len(&self) -> usize {
        self.encoded_len
    }

    /// Memory that the answer takes as long as it is not encoded.
    pub fn held_bytes(&self) -> usize {
        let places = |locs: &Vec<Loc>| locs.capacity() * size_of::<Loc>();
        match &self.source {
            Source::None | Source::One(..) => 0,
            Source::Stored(_, locs) => places(locs),
            Source::Encoded(encoded, locs) => places(locs) + encoded.bytes(),
        }
    }

    /// Appends whole `kvs` fields to `out`, going on where the last call stopped, until at least `bytes_max` bytes were
    /// appended. True when all are out.
    pub fn encode_next(&mut self, out: &mut BytesMut, bytes_max: usize) -> bool {
        let stop = out.len().saturating_add(bytes_max);
        let len = self.len();
        while self.next < len && out.len() < stop {
            let stored = self.get(self.next);
            varint::put_bytes(out, KVS, stored);
            self.next += 1;
        }
        self.next == len
    }

    /// The same, but a stored pair of at least `large_min` bytes is not copied: its tag and length are appended, and the pair itself is
    /// returned, which follows them. It stays readable for as long as it is held.
    pub fn encode_around(&mut self, out: &mut BytesMut, bytes_max: usize, large_min: usize) -> Reached {
        let stop = out.len().saturating_add(bytes_max);
        while self.next < self.len() && out.len() < stop {
            let at = self.next;
            self.next += 1;
            if let Some(pair) = self.large(at, large_min) {
                varint::put_delimited(out, KVS, pair.len());
                return Reached::Large(pair);
            }
            varint::put_bytes(out, KVS, self.get(at));
        }
        if self.next == self.len() { Reached::All } else { Reached::Part }
    }

    /// A stored pair if it has at least `bytes_min` bytes.
    fn large(&self, at: usize, bytes_min: usize) -> Option<Value> {
        let is_large = |loc: &Loc| loc.len as usize >= bytes_min;
        let (segment, loc) = match &self.source {
            Source::One(segment, loc) if is_large(loc) => (segment, loc),
            Source::Stored(held, locs) if is_large(&locs[at]) => (held.segment(locs[at]), &locs[at]),
            _ => return None,
        };
        Some(Value::new(segment.clone(), loc.offset, loc.len))
    }

    /// The encoded `KeyValue` messages.
    pub fn iter(&self) -> impl Iterator<Item = &[u8]> {
        (0..self.len()).map(|at| self.get(at))
    }

    /// The messages themselves. Pairs of at least [`SHARED_BYTES_MIN`] bytes are not copied; they stay readable for as long as they
    /// are held.
    pub fn to_messages(&self) -> Vec<KeyValue> {
        let message = |at| match self.large(at, SHARED_BYTES_MIN) {
            Some(pair) => shared_message(&pair.into_bytes()),
            None => to_message(self.get(at)),
        };
        (0..self.len()).map(message).collect()
    }

    fn get(&self, at: usize) -> &[u8] {
        match &self.source {
            Source::None => &[],
            Source::One(segment, loc) => segment.stored(loc.offset as usize, loc.len as usize),
            Source::Stored(held, locs) => held.stored(locs[at]),
            Source::Encoded(encoded, locs) => encoded.stored(locs[at]),
        }
    }
}

impl std::fmt::Debug for Kvs {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.to_messages()).finish()
    }
}

fn field_len(loc: Loc) -> usize {
    varint::delimited_len(KVS, loc.len as usize)
}

//! Events as the bytes of `WatchResponse.events`.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};

use super::Kind;
use super::batch::FRAME_BYTES_MAX;
use super::chunks::{Chunks, LARGE_BYTES_MIN};
use super::room::{Room, kept};
use api::varint::{delimited_len, nonzero_len, put_delimited, put_nonzero};

const RESPONSE_EVENTS: u32 = 11;
const EVENT_TYPE: u32 = 1;
const EVENT_KV: u32 = 2;
const EVENT_PREV_KV: u32 = 3;
const KV_MOD_REVISION: u32 = 3;

/// The lengths of an event's parts.
#[derive(Clone, Copy)]
pub(super) struct Lengths {
    pub(super) kind: Kind,
    pub(super) main: i64,
    pub(super) stored: usize,
    pub(super) prev: Option<usize>,
}

impl Lengths {
    #[expect(clippy::arithmetic_side_effects, reason = "a length of what is in memory, and that of a varint")]
    fn kv(&self) -> usize {
        match self.kind {
            Kind::Put => self.stored,
            Kind::Delete => self.stored + nonzero_len(KV_MOD_REVISION, self.main as u64),
        }
    }

    #[expect(clippy::arithmetic_side_effects, reason = "sums of lengths of what is in memory")]
    fn body(&self) -> usize {
        nonzero_len(EVENT_TYPE, self.kind as u64)
            + delimited_len(EVENT_KV, self.kv())
            + self.prev.map_or(0, |prev| delimited_len(EVENT_PREV_KV, prev))
    }

    /// Length with tag and length prefix.
    pub(super) fn encoded(&self) -> usize {
        delimited_len(RESPONSE_EVENTS, self.body())
    }

    /// What of it is copied when it is encoded.
    pub(super) fn copied(&self) -> usize {
        let shared = |len: usize| if len < LARGE_BYTES_MIN { 0 } else { len };
        self.encoded().saturating_sub(shared(self.stored)).saturating_sub(self.prev.map_or(0, shared))
    }
}

/// One event to encode. Stored bytes go out as they are, except that a tombstone, which is stored without it, gets its
/// revision.
pub(super) struct Change<'a> {
    pub(super) kind: Kind,
    pub(super) main: i64,
    pub(super) stored: &'a Bytes,
    pub(super) prev: Option<&'a Bytes>,
}

impl Change<'_> {
    pub(super) fn lengths(&self) -> Lengths {
        Lengths { kind: self.kind, main: self.main, stored: self.stored.len(), prev: self.prev.map(|prev| prev.len()) }
    }
}

/// The events of one response.
#[derive(Clone, Debug)]
pub(super) struct Piece {
    pub(super) events: Chunks,
    pub(super) count: u32,
}

/// Puts encoded events together: one piece, or several of at most `limit` bytes each (an event alone may be larger).
pub(super) struct Pieces {
    limit: usize,
    /// What was claimed for what is copied.
    room: Option<Arc<dyn Room>>,
    /// What comes before `out` in this piece.
    events: Chunks,
    out: BytesMut,
    count: u32,
    done: Vec<Piece>,
}

impl Pieces {
    /// `fragment_bytes` is what a whole response may have; `None` never splits. `copied` bytes will be copied; the pieces keep `room`
    /// for as long as they live.
    pub(super) fn new(fragment_bytes: Option<usize>, copied: usize, room: Option<Arc<dyn Room>>) -> Self {
        let limit = fragment_bytes.map_or(usize::MAX, |bytes| bytes.saturating_sub(FRAME_BYTES_MAX));
        let out = BytesMut::with_capacity(copied);
        Pieces { limit, room, events: Chunks::default(), out, count: 0, done: Vec::new() }
    }

    /// Appends one element of the `events` field.
    pub(super) fn push(&mut self, change: &Change<'_>) {
        let lengths = change.lengths();
        let before = self.events.len().saturating_add(self.out.len());
        if before > 0 && before.saturating_add(lengths.encoded()) > self.limit {
            self.cut();
        }
        self.count = self.count.saturating_add(1);
        put_delimited(&mut self.out, RESPONSE_EVENTS, lengths.body());
        put_nonzero(&mut self.out, EVENT_TYPE, change.kind as u64);
        put_delimited(&mut self.out, EVENT_KV, lengths.kv());
        self.put(change.stored);
        if change.kind == Kind::Delete {
            put_nonzero(&mut self.out, KV_MOD_REVISION, change.main as u64);
        }
        if let Some(prev) = change.prev {
            put_delimited(&mut self.out, EVENT_PREV_KV, prev.len());
            self.put(prev);
        }
    }

    /// Appends stored bytes, by reference if they are many.
    fn put(&mut self, stored: &Bytes) {
        if stored.len() < LARGE_BYTES_MIN {
            return self.out.extend_from_slice(stored);
        }
        let copied = self.out.split();
        self.seal(copied);
        self.events.push(stored.clone());
    }

    /// Puts what was copied behind what comes before it.
    fn seal(&mut self, copied: BytesMut) {
        if !copied.is_empty() {
            self.events.push(kept(copied.freeze(), self.room.as_ref()));
        }
    }

    fn cut(&mut self) {
        let copied = self.out.split();
        self.seal(copied);
        self.done.push(Piece { events: std::mem::take(&mut self.events), count: std::mem::take(&mut self.count) });
    }

    pub(super) fn finish(mut self) -> Vec<Piece> {
        self.cut();
        self.done
    }
}

/// An interest of a stream, and the index of an event that it wants.
pub(super) type Hit = (u32, u32);

/// Splits `hits` into runs of one interest and calls `emit` with each interest and its pieces. Neighbours with
/// the same events in the same shape share their bytes: overlapping ranges cost one encoding. Stops where `build` builds
/// nothing, and returns how many hits are done.
pub(super) fn for_each_interest<S: PartialEq + Copy>(
    hits: &mut [Hit],
    shape: impl Fn(u32) -> Option<S>,
    mut build: impl FnMut(&[Hit], S) -> Option<Vec<Piece>>,
    mut emit: impl FnMut(u32, Vec<Piece>),
) -> usize {
    if hits.len() > 1 {
        hits.sort_unstable();
    }
    let mut last: Option<(&[Hit], S)> = None;
    let mut pieces = Vec::new();
    let mut done = 0usize;
    for run in hits.chunk_by(|a, b| a.0 == b.0) {
        let upto = done.saturating_add(run.len());
        let wanted = run.first().and_then(|hit| Some((hit.0, shape(hit.0)?)));
        let Some((number, shape)) = wanted else {
            done = upto;
            continue;
        };
        let same = |other: &[Hit]| other.len() == run.len() && other.iter().zip(run).all(|(a, b)| a.1 == b.1);
        if !last.is_some_and(|(events, other)| other == shape && same(events)) {
            let Some(built) = build(run, shape) else { return done };
            pieces = built;
        }
        done = upto;
        emit(number, pieces.clone());
        last = Some((run, shape));
    }
    done
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    fn piece(len: usize) -> Vec<Piece> {
        let mut events = Chunks::default();
        events.push(Bytes::from(vec![0; len]));
        vec![Piece { events, count: len as u32 }]
    }

    #[test]
    fn neighbours_with_the_same_events_in_the_same_shape_share_their_bytes() {
        // Interests 1 to 3 want events 0 and 1, interest 4 only one of them; 3 wants them in another shape.
        let mut hits = vec![(2, 0), (2, 1), (1, 1), (1, 0), (3, 0), (3, 1), (4, 0)];
        let builds = Cell::new(0);
        let mut emitted = Vec::new();
        let done = for_each_interest(
            &mut hits,
            |number| Some(number == 3),
            |run, _| {
                builds.set(builds.get() + 1);
                Some(piece(run.len()))
            },
            |number, pieces| {
                let bytes = pieces[0].events.iter().next().expect("a chunk").clone();
                emitted.push((number, bytes));
            },
        );
        assert_eq!(
            emitted.iter().map(|(number, bytes)| (*number, bytes.len())).collect::<Vec<_>>(),
            [(1, 2), (2, 2), (3, 2), (4, 1)]
        );
        assert_eq!(emitted[0].1.as_ptr(), emitted[1].1.as_ptr());
        assert_eq!((builds.get(), done), (3, 7));
        let up_to = |builds: usize| {
            let left = Cell::new(builds);
            let build = |run: &[Hit], _| {
                left.set(left.get().checked_sub(1)?);
                Some(piece(run.len()))
            };
            for_each_interest(&mut hits.clone(), |number| Some(number == 3), build, |_, _| {})
        };
        // What is shared is built once.
        assert_eq!([up_to(0), up_to(1), up_to(2), up_to(3)], [0, 4, 6, 7]);
    }

    #[test]
    fn stored_bytes_are_copied_only_where_they_are_few() {
        let [small, large] = [LARGE_BYTES_MIN - 1, LARGE_BYTES_MIN].map(|len| Bytes::from(vec![7; len]));
        let change = |stored, prev| Change { kind: Kind::Put, main: 5, stored, prev };
        for (change, chunks) in [
            (change(&small, None), 1),
            (change(&small, Some(&small)), 1),
            (change(&large, None), 2),
            (change(&small, Some(&large)), 2),
            (change(&large, Some(&small)), 3),
            (change(&large, Some(&large)), 4),
        ] {
            let mut pieces = Pieces::new(None, change.lengths().copied(), None);
            pieces.push(&change);
            let [Piece { events, count: 1 }] = &pieces.finish()[..] else { panic!("one piece of one event") };
            assert_eq!((events.len(), events.iter().count()), (change.lengths().encoded(), chunks));
            let is_shared = |chunk: &&Bytes| chunk.as_ptr() == large.as_ptr();
            let copied: usize = events.iter().filter(|chunk| !is_shared(chunk)).map(Bytes::len).sum();
            assert_eq!(copied, change.lengths().copied());
        }
    }
}

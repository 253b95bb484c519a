//! Events as the bytes of `WatchResponse.events`.

use bytes::{Bytes, BytesMut};

use super::Kind;
use super::batch::FRAME_BYTES_MAX;
use api::varint::{delimited_len, nonzero_len, put_bytes, put_delimited, put_nonzero};

const RESPONSE_EVENTS: u32 = 11;
const EVENT_TYPE: u32 = 1;
const EVENT_KV: u32 = 2;
const EVENT_PREV_KV: u32 = 3;
const KV_MOD_REVISION: u32 = 3;

/// One event to encode. Stored bytes go out as they are, except that a tombstone, which is stored without it, gets its
/// revision.
pub(super) struct Change<'a> {
    pub(super) kind: Kind,
    pub(super) main: i64,
    pub(super) stored: &'a [u8],
    pub(super) prev: Option<&'a [u8]>,
}

impl Change<'_> {
    #[expect(clippy::arithmetic_side_effects, reason = "a length of what is in memory, and that of a varint")]
    fn kv_len(&self) -> usize {
        match self.kind {
            Kind::Put => self.stored.len(),
            Kind::Delete => self.stored.len() + nonzero_len(KV_MOD_REVISION, self.main as u64),
        }
    }

    #[expect(clippy::arithmetic_side_effects, reason = "sums of lengths of what is in memory")]
    fn body_len(&self) -> usize {
        nonzero_len(EVENT_TYPE, self.kind as u64)
            + delimited_len(EVENT_KV, self.kv_len())
            + self.prev.map_or(0, |prev| delimited_len(EVENT_PREV_KV, prev.len()))
    }

    /// Length with tag and length prefix.
    pub(super) fn encoded_len(&self) -> usize {
        delimited_len(RESPONSE_EVENTS, self.body_len())
    }

    /// Appends one element of the `events` field.
    pub(super) fn encode(&self, out: &mut BytesMut) {
        put_delimited(out, RESPONSE_EVENTS, self.body_len());
        put_nonzero(out, EVENT_TYPE, self.kind as u64);
        put_delimited(out, EVENT_KV, self.kv_len());
        out.extend_from_slice(self.stored);
        if self.kind == Kind::Delete {
            put_nonzero(out, KV_MOD_REVISION, self.main as u64);
        }
        if let Some(prev) = self.prev {
            put_bytes(out, EVENT_PREV_KV, prev);
        }
    }
}

/// The events of one response.
#[derive(Clone, Debug)]
pub(super) struct Piece {
    pub(super) bytes: Bytes,
    pub(super) count: u32,
}

/// Puts encoded events together: one piece, or several of at most `limit` bytes each (an event alone may be larger).
pub(super) struct Pieces {
    limit: usize,
    out: BytesMut,
    count: u32,
    done: Vec<Piece>,
}

impl Pieces {
    /// `fragment_bytes` is what a whole response may have; `None` never splits.
    pub(super) fn new(fragment_bytes: Option<usize>) -> Self {
        let limit = fragment_bytes.map_or(usize::MAX, |bytes| bytes.saturating_sub(FRAME_BYTES_MAX));
        Pieces { limit, out: BytesMut::new(), count: 0, done: Vec::new() }
    }

    /// Room for one more event of `len` bytes.
    fn next(&mut self, len: usize) -> &mut BytesMut {
        if !self.out.is_empty() && self.out.len().saturating_add(len) > self.limit {
            self.cut();
        }
        self.count = self.count.saturating_add(1);
        self.out.reserve(len);
        &mut self.out
    }

    pub(super) fn push(&mut self, change: &Change<'_>) {
        let len = change.encoded_len();
        change.encode(self.next(len));
    }

    pub(super) fn push_encoded(&mut self, event: &[u8]) {
        self.next(event.len()).extend_from_slice(event);
    }

    fn cut(&mut self) {
        let bytes = std::mem::take(&mut self.out).freeze();
        self.done.push(Piece { bytes, count: std::mem::take(&mut self.count) });
    }

    pub(super) fn finish(mut self) -> Vec<Piece> {
        self.cut();
        self.done
    }
}

/// An interest of a stream, and the index of an event that it wants.
pub(super) type Hit = (u32, u32);

/// Splits `hits` into runs of one interest and calls `emit` with each interest and its pieces. Neighbours with
/// the same events in the same shape share their bytes: overlapping ranges cost one encoding. Stops once `bytes_max` bytes
/// were built, and returns how many hits are done.
pub(super) fn for_each_interest<S: PartialEq + Copy>(
    hits: &mut [Hit],
    bytes_max: usize,
    shape: impl Fn(u32) -> Option<S>,
    build: impl Fn(&[Hit], S) -> Vec<Piece>,
    mut emit: impl FnMut(u32, Vec<Piece>),
) -> usize {
    if hits.len() > 1 {
        hits.sort_unstable();
    }
    let mut last: Option<(&[Hit], S)> = None;
    let mut pieces = Vec::new();
    let (mut built, mut done) = (0usize, 0usize);
    for run in hits.chunk_by(|a, b| a.0 == b.0) {
        let upto = done.saturating_add(run.len());
        let wanted = run.first().and_then(|hit| Some((hit.0, shape(hit.0)?)));
        let Some((number, shape)) = wanted else {
            done = upto;
            continue;
        };
        let same = |other: &[Hit]| other.len() == run.len() && other.iter().zip(run).all(|(a, b)| a.1 == b.1);
        if !last.is_some_and(|(events, other)| other == shape && same(events)) {
            if done > 0 && built >= bytes_max {
                return done;
            }
            pieces = build(run, shape);
            built = built.saturating_add(pieces.iter().map(|piece| piece.bytes.len()).sum());
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

    #[test]
    fn neighbours_with_the_same_events_in_the_same_shape_share_their_bytes() {
        // Interests 1 to 3 want events 0 and 1, interest 4 only one of them; 3 wants them in another shape.
        let mut hits = vec![(2, 0), (2, 1), (1, 1), (1, 0), (3, 0), (3, 1), (4, 0)];
        let builds = Cell::new(0);
        let mut emitted = Vec::new();
        let done = for_each_interest(
            &mut hits,
            usize::MAX,
            |number| Some(number == 3),
            |run, _| {
                builds.set(builds.get() + 1);
                vec![Piece { bytes: Bytes::from(vec![0; run.len()]), count: run.len() as u32 }]
            },
            |number, pieces| emitted.push((number, pieces[0].bytes.clone())),
        );
        assert_eq!(
            emitted.iter().map(|(number, bytes)| (*number, bytes.len())).collect::<Vec<_>>(),
            [(1, 2), (2, 2), (3, 2), (4, 1)]
        );
        assert_eq!(emitted[0].1.as_ptr(), emitted[1].1.as_ptr());
        assert_eq!((builds.get(), done), (3, 7));
        let build = |run: &[Hit], _| vec![Piece { bytes: Bytes::from(vec![0; run.len()]), count: 1 }];
        let up_to =
            |bytes_max| for_each_interest(&mut hits.clone(), bytes_max, |number| Some(number == 3), build, |_, _| {});
        // What is shared is built once.
        assert_eq!([up_to(1), up_to(2), up_to(3), up_to(4), up_to(5)], [4, 4, 6, 6, 7]);
    }
}

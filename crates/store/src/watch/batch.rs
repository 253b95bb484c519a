//! Responses as bytes.

#![expect(clippy::arithmetic_side_effects, reason = "sums of lengths of what is in memory")]

use std::borrow::Cow;

use std::sync::Arc;

use api::limits::WATCH_BYTES_FREE;
use bytes::{Bytes, BytesMut};

use super::chunks::Chunks;
use super::room::{Room, Unbounded};
use api::varint::{delimited_len, nonempty_len, nonzero_len, put_delimited, put_nonempty, put_nonzero};

const HEADER: u32 = 1;
const WATCH_ID: u32 = 2;
const CREATED: u32 = 3;
const CANCELED: u32 = 4;
const COMPACT_REVISION: u32 = 5;
const CANCEL_REASON: u32 = 6;
const FRAGMENT: u32 = 7;

/// Most bytes of an event response without its events: header (four integers of up to 10 bytes), watch id, fragment.
pub(super) const FRAME_BYTES_MAX: usize = 2 + 4 * 11 + 11 + 2;

/// The id that refusals and answers to progress requests carry.
pub(super) const NO_WATCH: i64 = -1;

/// Where encoded responses go, and where the memory for them is from.
pub trait Sink {
    /// Begins the next response: exactly `len` bytes are appended to what this gives.
    fn response(&mut self, len: usize) -> &mut BytesMut;

    /// Takes a response of more than [`WATCH_BYTES_FREE`] bytes: `front`, then `events`, which need not be copied.
    fn long_response(&mut self, front: Bytes, events: Chunks) {
        let out = self.response(front.len().saturating_add(events.len()));
        out.extend_from_slice(&front);
        events.iter().for_each(|chunk| out.extend_from_slice(chunk));
    }

    /// Asks for memory for `bytes` of events, more than [`WATCH_BYTES_FREE`], before they are built. `None` if there is none now. If
    /// the stream `waits`, it must be polled again once there is; what it waited for before is needed no more.
    fn room(&mut self, bytes: usize, waits: bool) -> Option<Arc<dyn Room>> {
        let _ = (bytes, waits);
        Some(Arc::new(Unbounded))
    }

    /// Whether the memory for which the stream `waits` was neither granted nor refused yet. Until then what comes next is not measured
    /// again, unless a watch of the stream has ended.
    fn is_waiting(&self) -> bool {
        false
    }

    /// Told what was written last, to be counted.
    fn wrote(&mut self, what: Wrote) {
        let _ = what;
    }
}

/// What responses are for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wrote {
    /// One that answers a request: a watcher begins or ends.
    Control,
    /// One that says how far a watcher is.
    Progress,
    /// Several with events, all their events together.
    Events {
        /// How many.
        responses: u64,
        /// Their events.
        events: u64,
    },
}

/// The member and term in the headers of all responses.
#[derive(Clone, Copy, Debug, Default)]
pub struct Origin {
    /// The cluster.
    pub cluster_id: u64,
    /// The member that answers.
    pub member_id: u64,
    /// Its term.
    pub raft_term: u64,
}

impl Origin {
    fn header_len(&self, revision: i64) -> usize {
        nonzero_len(1, self.cluster_id)
            + nonzero_len(2, self.member_id)
            + nonzero_len(3, revision as u64)
            + nonzero_len(4, self.raft_term)
    }

    fn put_header(&self, revision: i64, out: &mut BytesMut) {
        put_delimited(out, HEADER, self.header_len(revision));
        put_nonzero(out, 1, self.cluster_id);
        put_nonzero(out, 2, self.member_id);
        put_nonzero(out, 3, revision as u64);
        put_nonzero(out, 4, self.raft_term);
    }
}

/// A `WatchResponse` without events.
#[derive(Clone, Debug, Default)]
pub(super) struct Batch {
    pub(super) revision: i64,
    pub(super) watch_id: i64,
    pub(super) created: bool,
    pub(super) canceled: bool,
    pub(super) compact_revision: i64,
    pub(super) cancel_reason: Cow<'static, str>,
}

impl Batch {
    fn encoded_len(&self, origin: &Origin) -> usize {
        delimited_len(HEADER, origin.header_len(self.revision))
            + nonzero_len(WATCH_ID, self.watch_id as u64)
            + nonzero_len(CREATED, u64::from(self.created))
            + nonzero_len(CANCELED, u64::from(self.canceled))
            + nonzero_len(COMPACT_REVISION, self.compact_revision as u64)
            + nonempty_len(CANCEL_REASON, self.cancel_reason.len())
    }

    /// Writes the whole message. Returns its length.
    pub(super) fn encode(&self, origin: &Origin, sink: &mut impl Sink) -> usize {
        let len = self.encoded_len(origin);
        let out = sink.response(len);
        origin.put_header(self.revision, out);
        put_nonzero(out, WATCH_ID, self.watch_id as u64);
        put_nonzero(out, CREATED, u64::from(self.created));
        put_nonzero(out, CANCELED, u64::from(self.canceled));
        put_nonzero(out, COMPACT_REVISION, self.compact_revision as u64);
        put_nonempty(out, CANCEL_REASON, self.cancel_reason.as_bytes());
        len
    }
}

/// Responses with the same header and the same events, for one watcher after the other.
pub(super) struct EventForm {
    /// The header, with space after it for the fields that differ.
    front: BytesMut,
    header_len: usize,
}

impl EventForm {
    pub(super) fn new(origin: &Origin, revision: i64) -> EventForm {
        let mut front = BytesMut::with_capacity(FRAME_BYTES_MAX);
        origin.put_header(revision, &mut front);
        EventForm { header_len: front.len(), front }
    }

    /// Writes the response for one watcher. Returns its length.
    pub(super) fn encode(&mut self, watch_id: i64, fragment: bool, events: &Chunks, sink: &mut impl Sink) -> usize {
        self.front.truncate(self.header_len);
        put_nonzero(&mut self.front, WATCH_ID, watch_id as u64);
        put_nonzero(&mut self.front, FRAGMENT, u64::from(fragment));
        let len = self.front.len() + events.len();
        if len > WATCH_BYTES_FREE {
            sink.long_response(Bytes::copy_from_slice(&self.front), events.clone());
        } else {
            let out = sink.response(len);
            out.extend_from_slice(&self.front);
            events.iter().for_each(|chunk| out.extend_from_slice(chunk));
        }
        len
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use api::Message;
    use api::etcdserverpb::{ResponseHeader, WatchResponse};
    use api::mvccpb::Event;

    const ORIGIN: Origin = Origin { cluster_id: u64::MAX, member_id: 5, raft_term: 2 };

    fn header() -> ResponseHeader {
        ResponseHeader { cluster_id: u64::MAX, member_id: 5, revision: 300, raft_term: 2 }
    }

    /// One response.
    #[derive(Default)]
    struct Sheet {
        announced: usize,
        bytes: BytesMut,
    }

    impl Sink for Sheet {
        fn response(&mut self, len: usize) -> &mut BytesMut {
            self.announced += len;
            &mut self.bytes
        }
    }

    #[test]
    fn encodes_as_prost_does() {
        let batch = Batch {
            revision: 300,
            watch_id: NO_WATCH,
            created: true,
            canceled: true,
            compact_revision: 7,
            cancel_reason: Cow::Borrowed("because"),
        };
        let mut out = Sheet::default();
        let len = batch.encode(&ORIGIN, &mut out);
        assert_eq!((out.bytes.len(), out.announced), (len, len));
        let message = WatchResponse {
            header: Some(header()),
            watch_id: -1,
            created: true,
            canceled: true,
            compact_revision: 7,
            cancel_reason: "because".into(),
            ..WatchResponse::default()
        };
        assert_eq!(out.bytes[..], message.encode_to_vec()[..]);
    }

    #[test]
    fn a_form_is_filled_in_for_each_watcher() {
        let mut form = EventForm::new(&ORIGIN, 300);
        let events =
            WatchResponse { events: vec![Event { r#type: 1, ..Event::default() }], ..WatchResponse::default() };
        for (watch_id, fragment) in [(0, false), (i64::MAX, true), (7, false), (128, true)] {
            let mut out = Sheet::default();
            let mut encoded = Chunks::default();
            encoded.push(events.encode_to_vec().into());
            let len = form.encode(watch_id, fragment, &encoded, &mut out);
            assert_eq!((out.bytes.len(), out.announced), (len, len));
            let message = WatchResponse { header: Some(header()), watch_id, fragment, ..events.clone() };
            assert_eq!(out.bytes[..], message.encode_to_vec()[..]);
        }
    }
}

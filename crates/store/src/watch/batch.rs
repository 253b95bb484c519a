//! One response, ready to be written.

use std::borrow::Cow;

use bytes::{BufMut, Bytes, BytesMut};

use super::wire::{delimited_len, integer_len, put_delimited, put_integer};

const HEADER: u8 = 1;
const WATCH_ID: u8 = 2;
const CREATED: u8 = 3;
const CANCELED: u8 = 4;
const COMPACT_REVISION: u8 = 5;
const CANCEL_REASON: u8 = 6;
const FRAGMENT: u8 = 7;

/// What an event response has at most beside its events: header (four integers of up to 10 bytes), watch id, fragment.
pub(super) const FRAME_BYTES_MAX: usize = 2 + 4 * 11 + 11 + 2;

/// The id that refusals and answers to progress requests carry.
pub(super) const NO_WATCH: i64 = -1;

/// A `WatchResponse`. Events are encoded already and shared with the other watchers that get them.
#[derive(Clone, Debug, Default)]
pub struct Batch {
    pub(super) revision: i64,
    pub(super) watch_id: i64,
    pub(super) created: bool,
    pub(super) canceled: bool,
    pub(super) compact_revision: i64,
    pub(super) cancel_reason: Cow<'static, str>,
    pub(super) fragment: bool,
    pub(super) events: Bytes,
    pub(super) event_count: u32,
}

impl Batch {
    /// The watcher it is for; -1 in refusals and answers to progress requests.
    pub fn watch_id(&self) -> i64 {
        self.watch_id
    }

    /// How many events it carries.
    pub fn event_count(&self) -> u32 {
        self.event_count
    }

    /// Bytes that [`Batch::encode`] appends.
    pub fn encoded_len(&self, cluster_id: u64, member_id: u64, raft_term: u64) -> usize {
        let header = header_len(cluster_id, member_id, self.revision, raft_term);
        let reason = match self.cancel_reason.len() {
            0 => 0,
            len => delimited_len(len),
        };
        delimited_len(header)
            + integer_len(self.watch_id as u64)
            + 2 * (usize::from(self.created) + usize::from(self.canceled) + usize::from(self.fragment))
            + integer_len(self.compact_revision as u64)
            + reason
            + self.events.len()
    }

    /// Appends the whole message.
    pub fn encode(&self, cluster_id: u64, member_id: u64, raft_term: u64, out: &mut BytesMut) {
        out.reserve(self.encoded_len(cluster_id, member_id, raft_term));
        put_delimited(out, HEADER, header_len(cluster_id, member_id, self.revision, raft_term));
        put_integer(out, 1, cluster_id);
        put_integer(out, 2, member_id);
        put_integer(out, 3, self.revision as u64);
        put_integer(out, 4, raft_term);
        put_integer(out, WATCH_ID, self.watch_id as u64);
        put_integer(out, CREATED, u64::from(self.created));
        put_integer(out, CANCELED, u64::from(self.canceled));
        put_integer(out, COMPACT_REVISION, self.compact_revision as u64);
        if !self.cancel_reason.is_empty() {
            put_delimited(out, CANCEL_REASON, self.cancel_reason.len());
            out.put_slice(self.cancel_reason.as_bytes());
        }
        put_integer(out, FRAGMENT, u64::from(self.fragment));
        out.extend_from_slice(&self.events);
    }
}

fn header_len(cluster_id: u64, member_id: u64, revision: i64, raft_term: u64) -> usize {
    integer_len(cluster_id) + integer_len(member_id) + integer_len(revision as u64) + integer_len(raft_term)
}

#[cfg(test)]
mod tests {
    use super::*;
    use api::Message;
    use api::etcdserverpb::{ResponseHeader, WatchResponse};

    #[test]
    fn encodes_as_prost_does() {
        let batch = Batch {
            revision: 300,
            watch_id: NO_WATCH,
            created: true,
            canceled: true,
            compact_revision: 7,
            cancel_reason: Cow::Borrowed("because"),
            fragment: true,
            ..Batch::default()
        };
        let mut out = BytesMut::new();
        batch.encode(u64::MAX, 5, 2, &mut out);
        assert_eq!(out.len(), batch.encoded_len(u64::MAX, 5, 2));
        let message = WatchResponse {
            header: Some(ResponseHeader { cluster_id: u64::MAX, member_id: 5, revision: 300, raft_term: 2 }),
            watch_id: -1,
            created: true,
            canceled: true,
            compact_revision: 7,
            cancel_reason: "because".into(),
            fragment: true,
            events: Vec::new(),
        };
        assert_eq!(out[..], message.encode_to_vec()[..]);
    }
}

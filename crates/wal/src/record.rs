//! What the records hold.
//!
//! Entries and hard states are encoded by hand with every field present, which keeps the kinds apart by their shape (the
//! checksum does not cover the kind) and needs no allocation. etcd reads them as any protobuf.

use crate::frame::Kind;
use api::{Message, raftpb, varint, walpb};

/// One entry, borrowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EntryRef<'a> {
    /// Term in which it was proposed.
    pub term: u64,
    /// Its place in the log, from 1.
    pub index: u64,
    /// `raftpb.EntryType`.
    pub kind: i32,
    /// The request to apply.
    pub data: &'a [u8],
}

/// A record read back.
#[derive(Clone, Debug, PartialEq)]
pub enum Record<'a> {
    /// `etcdserverpb.Metadata`, opaque here.
    Metadata(&'a [u8]),
    /// An entry; it replaces all entries from its index on.
    Entry(EntryRef<'a>),
    /// The newest hard state.
    HardState(raftpb::HardState),
    /// A snapshot was taken or installed.
    Snapshot(walpb::Snapshot),
}

/// Longest encoding of an entry's fields before its data.
pub(crate) const ENTRY_HEAD_BYTES_MAX: usize = 48;

/// Writes the fields of an entry up to its data into `out`, which is cleared.
pub(crate) fn entry_head(entry: &EntryRef<'_>, out: &mut Vec<u8>) {
    let kind = u64::try_from(entry.kind);
    assert!(kind.is_ok(), "entry {} has the negative type {}", entry.index, entry.kind);
    out.clear();
    varint::put_number(out, 1, kind.unwrap_or_default());
    varint::put_number(out, 2, entry.term);
    varint::put_number(out, 3, entry.index);
    varint::put_delimited(out, 4, entry.data.len());
}

/// Writes a hard state into `out`, which is cleared.
pub(crate) fn hard_state(state: &raftpb::HardState, out: &mut Vec<u8>) {
    out.clear();
    varint::put_number(out, 1, state.term.unwrap_or_default());
    varint::put_number(out, 2, state.vote.unwrap_or_default());
    varint::put_number(out, 3, state.commit.unwrap_or_default());
}

/// The snapshot with the fields that etcd insists on.
pub(crate) fn complete(snapshot: &walpb::Snapshot) -> walpb::Snapshot {
    walpb::Snapshot {
        index: Some(snapshot.index.unwrap_or_default()),
        term: Some(snapshot.term.unwrap_or_default()),
        conf_state: snapshot.conf_state.clone(),
    }
}

impl<'a> Record<'a> {
    /// Reads the data of a record; `None` when it is not what writing its kind produces, and for a Crc record.
    pub(crate) fn decode(kind: Kind, data: &'a [u8]) -> Option<Record<'a>> {
        match kind {
            Kind::Crc => None,
            Kind::Metadata => Some(Record::Metadata(data)),
            Kind::Entry => decode_entry(data).map(Record::Entry),
            Kind::HardState => decode_hard_state(data).map(Record::HardState),
            Kind::Snapshot => {
                let snapshot = walpb::Snapshot::decode(data).ok()?;
                let whole = snapshot.index.is_some() && snapshot.term.is_some() && snapshot.encoded_len() == data.len();
                whole.then_some(Record::Snapshot(snapshot))
            }
        }
    }
}

fn decode_entry(data: &[u8]) -> Option<EntryRef<'_>> {
    let (kind, rest) = field(0x08, data)?;
    let (term, rest) = field(0x10, rest)?;
    let (index, rest) = field(0x18, rest)?;
    let (len, data) = field(0x22, rest)?;
    let kind = i32::try_from(kind).ok()?;
    (len == data.len() as u64).then_some(EntryRef { term, index, kind, data })
}

fn decode_hard_state(data: &[u8]) -> Option<raftpb::HardState> {
    let (term, rest) = field(0x08, data)?;
    let (vote, rest) = field(0x10, rest)?;
    let (commit, rest) = field(0x18, rest)?;
    rest.is_empty().then_some(raftpb::HardState { term: Some(term), vote: Some(vote), commit: Some(commit) })
}

fn field(tag: u8, bytes: &[u8]) -> Option<(u64, &[u8])> {
    let mut rest = bytes.strip_prefix(&[tag])?;
    Some((varint::take_shortest(&mut rest)?, rest))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use proptest::prelude::*;

    const KINDS: [Kind; 4] = [Kind::Metadata, Kind::Entry, Kind::HardState, Kind::Snapshot];

    fn encoded(entry: &EntryRef<'_>) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(ENTRY_HEAD_BYTES_MAX);
        entry_head(entry, &mut bytes);
        assert!(bytes.len() <= ENTRY_HEAD_BYTES_MAX, "the head is longer than its room");
        bytes.extend_from_slice(entry.data);
        bytes
    }

    proptest! {
        #[test]
        fn entries_are_raftpb_and_no_other_kind(term: u64, index: u64, kind in 0..3, data: Vec<u8>) {
            let entry = EntryRef { term, index, kind, data: &data };
            let bytes = encoded(&entry);
            prop_assert_eq!(Record::decode(Kind::Entry, &bytes), Some(Record::Entry(entry)));
            let message = raftpb::Entry::decode(&bytes[..]).unwrap();
            prop_assert_eq!((message.term(), message.index(), message.r#type() as i32), (term, index, kind));
            prop_assert_eq!(message.data(), &data[..]);
            prop_assert_eq!(Record::decode(Kind::HardState, &bytes), None);
            prop_assert_eq!(Record::decode(Kind::Snapshot, &bytes), None);
        }

        #[test]
        fn hard_states_and_snapshots_are_no_other_kind(term: u64, vote: u64, commit: u64, voters: Vec<u64>) {
            let state = raftpb::HardState { term: Some(term), vote: Some(vote), commit: Some(commit) };
            let mut bytes = Vec::new();
            hard_state(&state, &mut bytes);
            prop_assert_eq!(raftpb::HardState::decode(&bytes[..]).unwrap(), state);
            prop_assert_eq!(Record::decode(Kind::HardState, &bytes), Some(Record::HardState(state)));
            prop_assert_eq!(Record::decode(Kind::Entry, &bytes), None);
            prop_assert_eq!(Record::decode(Kind::Snapshot, &bytes), None);
            let conf_state = raftpb::ConfState { voters, ..Default::default() };
            for conf_state in [None, Some(conf_state)] {
                let snapshot = walpb::Snapshot { index: Some(commit), term: Some(term), conf_state };
                let bytes = complete(&snapshot).encode_to_vec();
                prop_assert_eq!(Record::decode(Kind::Snapshot, &bytes), Some(Record::Snapshot(snapshot)));
                prop_assert_eq!(Record::decode(Kind::Entry, &bytes), None);
                prop_assert_eq!(Record::decode(Kind::HardState, &bytes), None);
            }
        }

        #[test]
        fn any_bytes_can_be_read(bytes: Vec<u8>) {
            for kind in KINDS {
                let _ = Record::decode(kind, &bytes);
            }
        }
    }

    #[test]
    fn longer_forms_of_a_number_are_refused() {
        let state = [0x08, 1, 0x10, 2, 0x18, 3];
        assert!(Record::decode(Kind::HardState, &state).is_some());
        assert_eq!(Record::decode(Kind::HardState, &[0x08, 0x81, 0, 0x10, 2, 0x18, 3]), None);
        assert_eq!(Record::decode(Kind::Entry, &[0x08, 0, 0x10, 1, 0x18, 1, 0x22, 0x80, 0]), None);
    }
}

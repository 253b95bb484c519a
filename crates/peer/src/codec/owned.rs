//! Messages that do not keep more memory than they count for.
//!
//! What prost decodes shares the bytes that it was decoded from: an entry of fifty bytes would keep a message of megabytes for as long as the
//! log has it, and nobody would count that.

use api::raftpb::{Entry, Message};
use api::unread::{self, Unread};
use api::varint;
use bytes::Bytes;

/// What came in more than this many times its own length is copied. The memory may be twice as long.
const KEPT_TIMES_MAX: usize = 8;

/// What an entry takes in memory beside its data, and how many times as much as the message all of them may: most have data.
const ENTRY_BYTES: usize = 72;
const SWOLLEN_TIMES: usize = 4;
/// A message that takes no more than this is small in any case.
const SWOLLEN_BYTES_MIN: usize = 1 << 20;
/// Metadata of a snapshot: members of a cluster, of which there are a few dozen.
const METADATA_BYTES_MAX: usize = 16 << 10;

/// Number of the field of `raftpb.Message` that has the entries.
const ENTRIES: u64 = 7;
/// That of the snapshot, and in it that of its metadata.
const SNAPSHOT: u64 = 9;
const METADATA: u64 = 2;
/// That of messages within the message, which no member sends to another. Two bytes of it make 430 in memory.
const RESPONSES: u64 = 14;

/// Why a message is not read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Unfit {
    #[error(transparent)]
    Unread(#[from] Unread),
    /// In memory it would be many times as large.
    #[error("a message with more in it than members send")]
    Swollen,
}

/// Decodes a message that came in `received` bytes, if it takes a few times as much in memory at most.
pub(crate) fn decode(bytes: Bytes, received: usize) -> Result<Message, Unfit> {
    if is_swollen(&bytes) {
        return Err(Unfit::Swollen);
    }
    Ok(owned(unread::decode::<Message>(bytes)?, received))
}

/// Whether a message has more parts than an honest one of its length. What is no message is not: decoding it says why.
pub(crate) fn is_swollen(message: &Bytes) -> bool {
    let memory_max = message.len().saturating_mul(SWOLLEN_TIMES).saturating_add(SWOLLEN_BYTES_MIN);
    let (mut rest, mut entries_left) = (&message[..], memory_max / ENTRY_BYTES);
    while let Some((field, content)) = next_field(&mut rest) {
        match field {
            // Also as a group, which prost refuses.
            RESPONSES => return true,
            ENTRIES => match entries_left.checked_sub(1) {
                Some(left) => entries_left = left,
                None => return true,
            },
            SNAPSHOT if has_long_metadata(content) => return true,
            _ => {}
        }
    }
    false
}

/// Whether the metadata of a snapshot is longer than that of any cluster.
fn has_long_metadata(mut snapshot: &[u8]) -> bool {
    let mut fields = std::iter::from_fn(|| next_field(&mut snapshot));
    fields.any(|(field, content)| field == METADATA && content.len() > METADATA_BYTES_MAX)
}

/// The number of the next field, and its content if that has a length. None at the end, and where there is no field.
fn next_field<'a>(rest: &mut &'a [u8]) -> Option<(u64, &'a [u8])> {
    let key = varint::take(rest)?;
    let len = match key & 7 {
        0 => {
            varint::take(rest)?;
            0
        }
        1 => 8,
        2 => usize::try_from(varint::take(rest)?).ok()?,
        5 => 4,
        // Groups: in no message of members.
        _ => 0,
    };
    let (content, behind) = rest.split_at_checked(len)?;
    *rest = behind;
    Some((key >> 3, content))
}

/// `message`, which came in `received` bytes.
fn owned(mut message: Message, received: usize) -> Message {
    message.entries = message.entries.into_iter().map(|entry| owned_entry(entry, received)).collect();
    message.context = message.context.map(|context| copied(context, received));
    if let Some(snapshot) = &mut message.snapshot {
        snapshot.data = snapshot.data.take().map(|data| copied(data, received));
    }
    message
}

/// `entry`, which came in `received` bytes.
pub(crate) fn owned_entry(mut entry: Entry, received: usize) -> Entry {
    entry.data = entry.data.map(|data| copied(data, received));
    entry
}

fn copied(bytes: Bytes, received: usize) -> Bytes {
    if bytes.len() < received / KEPT_TIMES_MAX { Bytes::copy_from_slice(&bytes) } else { bytes }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_keeps_much_more_than_itself_is_copied() {
        let received = Bytes::from(vec![7; 1_000]);
        let entry = |len| Entry { data: Some(received.slice(..len)), ..Entry::default() };
        let entries = vec![entry(10), entry(124), entry(125), entry(900)];
        let message = Message { entries, context: Some(received.slice(..24)), ..Message::default() };
        let owned = owned(message.clone(), received.len());
        assert_eq!(owned, message);
        let shares = |bytes: &Option<Bytes>| bytes.as_ref().is_some_and(|bytes| bytes.as_ptr() == received.as_ptr());
        let shared: Vec<bool> = owned.entries.iter().map(|entry| shares(&entry.data)).collect();
        assert_eq!((shared, shares(&owned.context)), (vec![false, false, true, true], false));
    }

    #[test]
    fn what_would_be_many_times_as_large_is_not_decoded() {
        use api::{Message as _, raftpb};
        let entry = Entry { term: Some(1), index: Some(1), ..Entry::default() };
        let honest = Message { entries: vec![entry; 1_000], ..Message::default() }.encode_to_vec();
        assert_eq!(decode(honest.clone().into(), honest.len()).expect("honest").entries.len(), 1_000);
        // Empty entries, and messages in the message, in two bytes each; one of them behind all else, by a key that is longer than it need be.
        let empty = [7 << 3 | 2, 0].repeat(100_000);
        let nested = [&honest[..], &[14 << 3 | 2, 0]].concat();
        let long = [&honest[..], &[14 << 3 | 2 | 0x80, 0x80, 0, 0]].concat();
        // A snapshot of a configuration of so many voters.
        let voters = raftpb::ConfState { voters: vec![1; 20_000], ..Default::default() };
        let metadata = raftpb::SnapshotMetadata { conf_state: Some(voters), index: Some(1), term: Some(1) };
        let snapshot = raftpb::Snapshot { data: None, metadata: Some(metadata) };
        let voters = Message { snapshot: Some(snapshot), ..Message::default() }.encode_to_vec();
        for swollen in [empty, nested, long, voters] {
            let len = swollen.len();
            assert!(matches!(decode(swollen.into(), len), Err(Unfit::Swollen)));
        }
        for broken in [&[0xff; 20][..], &[7 << 3 | 2, 9]] {
            assert!(matches!(decode(Bytes::from_static(broken), 20), Err(Unfit::Unread(_))), "{broken:?}");
        }
    }
}

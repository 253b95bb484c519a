//! Messages that do not keep more memory than they count for.
//!
//! What prost decodes shares the bytes that it was decoded from: an entry of fifty bytes would keep a message of megabytes for as long as the
//! log has it, and nobody would count that.

use api::raftpb::{Entry, Message};
use bytes::Bytes;

/// What came in more than this many times its own length is copied. The memory may be twice as long.
const KEPT_TIMES_MAX: usize = 8;

/// `message`, which came in `received` bytes.
pub(crate) fn owned(mut message: Message, received: usize) -> Message {
    message.entries = message.entries.into_iter().map(|entry| owned_entry(entry, received)).collect();
    message.context = message.context.map(|context| copied(context, received));
    if let Some(snapshot) = &mut message.snapshot {
        snapshot.data = snapshot.data.take().map(|data| copied(data, received));
    }
    // Nobody reads these.
    message.responses.clear();
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
}

//! Messages to frames.

use super::{Kind, tag};
use api::Message as _;
use api::raftpb::{Entry, Message, MessageType};
use bytes::{BufMut, BytesMut};

/// Writes the frames of one stream. A stream that is dialled again needs a new encoder.
pub(crate) struct Encoder {
    kind: Kind,
    /// Term and index of the last entry on the append stream.
    term: u64,
    index: u64,
}

impl Encoder {
    pub(crate) fn new(kind: Kind) -> Encoder {
        Encoder { kind, term: 0, index: 0 }
    }

    /// Appends the frame of a message.
    pub(crate) fn message(&mut self, message: &Message, to: &mut BytesMut) {
        match self.kind {
            Kind::Message => with_length(to, |to| encode(message, to)),
            Kind::MsgApp if self.continues(message) => {
                to.put_u8(tag::CONTINUATION);
                to.put_u64(message.entries.len() as u64);
                for entry in &message.entries {
                    with_length(to, |to| encode_entry(entry, to));
                }
                to.put_u64(message.commit());
                // `continues` has checked that each entry has the next index.
                self.index = self.index.saturating_add(message.entries.len() as u64);
            }
            Kind::MsgApp => {
                to.put_u8(tag::WHOLE);
                with_length(to, |to| encode(message, to));
                self.term = message.term();
                self.index = message.entries.last().map_or(message.index(), Entry::index);
            }
        }
    }

    /// Appends the frame that keeps an idle stream open.
    pub(crate) fn heartbeat(&self, to: &mut BytesMut) {
        match self.kind {
            Kind::MsgApp => to.put_u8(tag::HEARTBEAT),
            Kind::Message => {
                let heartbeat = Message { r#type: Some(MessageType::MsgHeartbeat as i32), ..Message::default() };
                with_length(to, |to| encode(&heartbeat, to));
            }
        }
    }

    /// The reader derives term and index of every entry itself. A rejection or a context would be lost, and entries
    /// without consecutive indexes would get wrong ones.
    fn continues(&self, message: &Message) -> bool {
        message.r#type() == MessageType::MsgApp
            && message.index() == self.index
            && message.log_term() == self.term
            && message.term() == self.term
            && message
                .entries
                .iter()
                .zip(1..)
                .all(|(entry, place)| self.index.checked_add(place) == Some(entry.index()))
    }
}

/// A length of eight bytes, then what `body` writes.
fn with_length(to: &mut BytesMut, body: impl FnOnce(&mut BytesMut)) {
    let start = to.len();
    to.put_u64(0);
    body(to);
    let (_, written) = to.split_at_mut_checked(start).unwrap_or_default();
    if let Some((place, body)) = written.split_first_chunk_mut() {
        *place = (body.len() as u64).to_be_bytes();
    }
}

fn encode(message: &Message, to: &mut BytesMut) {
    assert!(message.encode(to).is_ok(), "a buffer that grows has room");
}

fn encode_entry(entry: &Entry, to: &mut BytesMut) {
    assert!(entry.encode(to).is_ok(), "a buffer that grows has room");
}

//! Frames to messages. The bytes are not trusted: lengths are bounded before memory is reserved for them.

use super::owned::{decode, owned_entry};
use super::{Kind, tag};
use crate::wire::READ_BYTES;
use api::Message as _;
use api::raftpb::{Entry, Message, MessageType};
use bytes::{Buf, Bytes, BytesMut};

/// Why a stream cannot be read further.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub(crate) enum Error {
    #[error("a frame of {length} bytes; the bound is {bound}")]
    TooLong { length: u64, bound: usize },
    #[error("a frame of the unknown type {0}")]
    UnknownType(u8),
    #[error("a frame that is not a Raft message: {0}")]
    Malformed(String),
    #[error("entries beyond the last possible index")]
    Index,
}

/// The content of a frame.
#[allow(clippy::large_enum_variant, reason = "nearly every frame is a message, and none is kept")]
#[derive(Debug, PartialEq)]
pub(crate) enum Frame {
    /// Only keeps the stream open.
    Heartbeat,
    Message(Message),
}

/// Reads the frames of one stream.
pub(crate) struct Decoder {
    kind: Kind,
    /// The member that writes the stream, and the one that reads it.
    from: u64,
    to: u64,
    bytes_max: usize,
    term: u64,
    index: u64,
    state: State,
}

/// The part that is expected next.
enum State {
    Start,
    /// A message of this length.
    Whole(usize),
    /// The number of entries that follow.
    Count,
    Entries(Entries),
}

/// A frame of entries that is not complete yet.
#[derive(Default)]
struct Entries {
    left: u64,
    /// Length of the next entry, once it is known.
    next: Option<usize>,
    read: Vec<Entry>,
    /// Memory of `read`, in bytes.
    bytes: usize,
}

impl Decoder {
    /// A decoder of a stream from `from` to `to`. A frame may have at most `bytes_max` bytes.
    pub(crate) fn new(kind: Kind, from: u64, to: u64, bytes_max: usize) -> Decoder {
        Decoder { kind, from, to, bytes_max, term: 0, index: 0, state: State::Start }
    }

    /// Takes one frame off `input`; `None` when it is not complete. After an error the stream cannot be used.
    pub(crate) fn next(&mut self, input: &mut BytesMut) -> Result<Option<Frame>, Error> {
        loop {
            match &mut self.state {
                State::Start => match self.kind {
                    Kind::Message => match self.length(input)? {
                        Some(length) => self.state = State::Whole(length),
                        None => return Ok(None),
                    },
                    Kind::MsgApp => match input.first().copied() {
                        None => return Ok(None),
                        Some(tag::HEARTBEAT) => {
                            input.advance(1);
                            return Ok(Some(Frame::Heartbeat));
                        }
                        Some(tag::CONTINUATION) => {
                            input.advance(1);
                            self.state = State::Count;
                        }
                        Some(tag::WHOLE) if input.len() < 9 => return Ok(None),
                        Some(tag::WHOLE) => {
                            input.advance(1);
                            if let Some(length) = self.length(input)? {
                                self.state = State::Whole(length);
                            }
                        }
                        Some(other) => return Err(Error::UnknownType(other)),
                    },
                },
                State::Whole(length) => {
                    let length = *length;
                    if input.len() < length {
                        return Ok(None);
                    }
                    self.state = State::Start;
                    let message = decode(split(input, length), length.max(READ_BYTES)).map_err(malformed)?;
                    return Ok(Some(self.whole(message)));
                }
                State::Count => {
                    if input.len() < 8 {
                        return Ok(None);
                    }
                    let left = input.get_u64();
                    // Each entry takes at least the eight bytes of its length.
                    let length = left.saturating_mul(8);
                    self.bound(length)?;
                    self.state = State::Entries(Entries { left, ..Entries::default() });
                }
                State::Entries(entries) => {
                    if entries.left == 0 {
                        if input.len() < 8 {
                            return Ok(None);
                        }
                        let entries = std::mem::take(&mut entries.read);
                        self.state = State::Start;
                        return self.continuation(entries, input.get_u64()).map(Some);
                    }
                    match entries.next {
                        None if input.len() < 8 => return Ok(None),
                        None => {
                            let length = input.get_u64();
                            let total = length.saturating_add(entries.bytes as u64);
                            if total > self.bytes_max as u64 {
                                return Err(Error::TooLong { length: total, bound: self.bytes_max });
                            }
                            entries.next = Some(length as usize);
                        }
                        Some(length) if input.len() < length => return Ok(None),
                        Some(length) => {
                            let entry = Entry::decode(split(input, length)).map_err(malformed)?;
                            let entry = owned_entry(entry, length.max(READ_BYTES));
                            entries.bytes = entries.bytes.saturating_add(length).saturating_add(size_of::<Entry>());
                            entries.read.push(entry);
                            entries.left = entries.left.saturating_sub(1);
                            entries.next = None;
                        }
                    }
                }
            }
        }
    }

    fn length(&self, input: &mut BytesMut) -> Result<Option<usize>, Error> {
        if input.len() < 8 {
            return Ok(None);
        }
        let length = input.get_u64();
        self.bound(length)?;
        Ok(Some(length as usize))
    }

    fn bound(&self, length: u64) -> Result<(), Error> {
        let bound = self.bytes_max;
        if length > bound as u64 { Err(Error::TooLong { length, bound }) } else { Ok(()) }
    }

    fn whole(&mut self, message: Message) -> Frame {
        match self.kind {
            Kind::Message => {
                let heartbeat = message.r#type() == MessageType::MsgHeartbeat;
                if heartbeat && message.from() == 0 && message.to() == 0 {
                    return Frame::Heartbeat;
                }
            }
            Kind::MsgApp => {
                self.term = message.term();
                self.index = message.entries.last().map_or(message.index(), Entry::index);
            }
        }
        Frame::Message(message)
    }

    fn continuation(&mut self, entries: Vec<Entry>, commit: u64) -> Result<Frame, Error> {
        let index = self.index;
        self.index = index.checked_add(entries.len() as u64).ok_or(Error::Index)?;
        Ok(Frame::Message(Message {
            r#type: Some(MessageType::MsgApp as i32),
            from: Some(self.from),
            to: Some(self.to),
            term: Some(self.term),
            log_term: Some(self.term),
            index: Some(index),
            entries,
            commit: Some(commit),
            ..Message::default()
        }))
    }
}

/// Takes the next `length` bytes out. What comes behind many does not share their memory: it may be kept for longer.
fn split(input: &mut BytesMut, length: usize) -> Bytes {
    let taken = input.split_to(length).freeze();
    if length > READ_BYTES {
        // That is no more than was read at once.
        *input = BytesMut::from(&input[..]);
    }
    taken
}

fn malformed(error: impl std::fmt::Display) -> Error {
    Error::Malformed(error.to_string())
}

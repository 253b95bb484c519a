//! A client's HTTP/2 connection without its socket.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use api::Code;
use bytes::Bytes;
use slab::Slab;

use super::stream::Stream;
use super::{Options, RequestHead};
use crate::Status;
use crate::grpc::payload::{PREFIX_BYTES, prefix};
use crate::http2::frame::{PREFACE, Reason, Settings, WINDOW_BYTES_DEFAULT, WINDOW_BYTES_MAX, setting};
use crate::http2::hpack::{Decoder, TABLE_BYTES_DEFAULT};
use crate::http2::ids::IdHasher;
use crate::http2::output::Output;
use crate::http2::receiver::Block;
use crate::http2::sender::Sender;

/// The largest frame that is taken from the server: with larger frames, long answers cost fewer of them.
pub(super) const FRAME_BYTES_MAX: usize = 64 * 1024;
/// Stream numbers end here; the rest of the calls needs another connection.
const STREAM_MAX: u32 = (1 << 31) - 1;

/// Told of what has come for calls. `tag` is what the call was begun with.
pub trait Calls {
    /// Part of the body of an answer: messages, each after gRPC's prefix, cut anywhere.
    fn data(&mut self, tag: usize, data: &[u8]);

    /// The call has ended. Nothing comes after it.
    fn end(&mut self, tag: usize, status: Status);
}

/// A call in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallKey {
    slot: usize,
    id: u32,
}

/// When what has come for a call makes room for more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Release {
    /// As soon as [`Calls::data`] was told of it.
    AtOnce,
    /// When [`Connection::release`] says so: what is not released bounds what the server can send.
    ByCaller,
}

/// Why a call cannot be begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// The server does not take more calls at once.
    Full,
    /// This connection takes no more calls: the server has said good-bye, or stream numbers are used up.
    Closing,
}

/// An HTTP/2 connection to a gRPC server. Bytes that come go into [`Connection::receive`]; what is to be written is gathered.
pub struct Connection {
    /// Tells connections apart.
    number: u64,
    pub(super) options: Options,
    pub(super) sender: Sender,
    pub(super) decoder: Decoder,
    /// A header block of which more is to come.
    pub(super) block: Option<Block>,
    pub(super) streams: Slab<Stream>,
    pub(super) ids: HashMap<u32, usize, IdHasher>,
    /// The number of the next stream.
    pub(super) next_id: u32,
    /// How many the server takes at once.
    pub(super) streams_max: usize,
    /// The server's settings have come, which must be the first.
    pub(super) greeted: bool,
    /// What the server may still send.
    window: i64,
    /// What is free again and not yet announced.
    due: u32,
    /// Slots of the streams that have something to send, but no room for it.
    pub(super) line: VecDeque<usize>,
    /// The server takes no new calls: why.
    pub(super) farewell: Option<Status>,
    /// Answers to our pings.
    pub(super) pongs: u64,
}

impl Connection {
    /// A connection of which nothing is written yet.
    pub fn new(options: Options) -> Connection {
        static NUMBER: AtomicU64 = AtomicU64::new(1);
        let connection_window = options.connection_window_bytes.clamp(WINDOW_BYTES_DEFAULT, WINDOW_BYTES_MAX);
        let options = Options {
            connection_window_bytes: connection_window,
            stream_window_bytes: options.stream_window_bytes.clamp(1, WINDOW_BYTES_MAX),
            ..options
        };
        let mut sender = Sender::new();
        sender.tail().extend_from_slice(PREFACE);
        let settings = [
            (setting::ENABLE_PUSH, 0),
            (setting::INITIAL_WINDOW_SIZE, options.stream_window_bytes),
            (setting::MAX_FRAME_SIZE, FRAME_BYTES_MAX as u32),
            (setting::MAX_HEADER_LIST_SIZE, options.header_list_bytes_max),
        ];
        Settings::put(&settings, sender.tail());
        if connection_window > WINDOW_BYTES_DEFAULT {
            sender.window_update(0, connection_window.saturating_sub(WINDOW_BYTES_DEFAULT));
        }
        Connection {
            number: NUMBER.fetch_add(1, Ordering::Relaxed),
            sender,
            decoder: Decoder::new(TABLE_BYTES_DEFAULT),
            block: None,
            streams: Slab::new(),
            ids: HashMap::default(),
            next_id: 1,
            // What is assumed until the server says what it takes; it always may say less.
            streams_max: 100,
            greeted: false,
            window: i64::from(connection_window),
            due: 0,
            line: VecDeque::new(),
            farewell: None,
            pongs: 0,
            options,
        }
    }

    /// Begins a call. `tag` is what [`Calls`] is told of it with.
    pub fn open(
        &mut self,
        head: &mut RequestHead,
        timeout: Option<Duration>,
        tag: usize,
        release: Release,
    ) -> Result<CallKey, Refused> {
        if self.is_closing() {
            return Err(Refused::Closing);
        }
        if self.streams.len() >= self.streams_max {
            return Err(Refused::Full);
        }
        let id = self.next_id;
        self.next_id = id.saturating_add(2);
        let number = self.number;
        self.sender.request(id, |encoder, block| head.encode(number, encoder, timeout, block));
        let send_window = self.sender.initial_window();
        let stream = Stream::new(id, tag, release, send_window, self.options.stream_window_bytes);
        let slot = self.streams.insert(stream);
        self.ids.insert(id, slot);
        Ok(CallKey { slot, id })
    }

    /// Begins a call with one message, the only one: all there is to say.
    pub fn unary(
        &mut self,
        head: &mut RequestHead,
        timeout: Option<Duration>,
        tag: usize,
        message: &[u8],
    ) -> Result<CallKey, Refused> {
        let key = self.open(head, timeout, tag, Release::AtOnce)?;
        self.send(key, message, true);
        Ok(key)
    }

    /// Sends a message, and with `end` says that there will be no more. What finds no room waits.
    pub fn send(&mut self, key: CallKey, message: &[u8], end: bool) {
        let Some(stream) = find(&mut self.streams, key) else { return };
        assert!(!stream.ends, "nothing is sent behind the end");
        stream.ends = end;
        let len = PREFIX_BYTES.saturating_add(message.len());
        let fits = !stream.queued && stream.send_window >= len as i64;
        if fits && self.sender.room() >= len && len <= self.sender.frame_bytes_max() {
            stream.send_window = stream.send_window.saturating_sub(len as i64);
            stream.ended = end;
            self.sender.small(key.id, &prefix(message.len()), message, end);
            return;
        }
        let mut whole = Vec::with_capacity(len);
        whole.extend_from_slice(&prefix(message.len()));
        whole.extend_from_slice(message);
        stream.waiting.push_back(Bytes::from(whole));
        self.stand_in_line(key.slot);
        self.pump();
    }

    /// Says that there will be no more messages.
    pub fn finish(&mut self, key: CallKey) {
        let Some(stream) = self.stream(key) else { return };
        if !stream.ends {
            stream.ends = true;
            self.stand_in_line(key.slot);
            self.pump();
        }
    }

    /// Gives a call up. [`Calls`] is told of nothing more.
    pub fn cancel(&mut self, key: CallKey) {
        if self.stream(key).is_some() {
            self.sender.reset(key.id, Reason::CANCEL);
            self.remove(key.slot);
        }
    }

    /// Bytes of [`Calls::data`] are held no longer, of a call with [`Release::ByCaller`].
    pub fn release(&mut self, key: CallKey, bytes: usize) {
        let width = self.options.stream_window_bytes;
        let Some(stream) = self.stream(key) else { return };
        stream.release(bytes);
        if let Some(increment) = stream.window_update(width) {
            self.sender.window_update(key.id, increment);
        }
    }

    /// Bytes of messages that wait to be sent on a call: the server does not read, or not yet.
    pub fn waiting_bytes(&self, key: CallKey) -> usize {
        let stream = self.streams.get(key.slot).filter(|stream| stream.id == key.id);
        stream.map_or(0, |stream| stream.waiting.iter().map(Bytes::len).sum())
    }

    /// Asks the server for a sign of life.
    pub fn ping(&mut self) {
        self.sender.ping(false, *b"alive?  ");
    }

    /// How many pings the server has answered.
    pub fn pongs(&self) -> u64 {
        self.pongs
    }

    /// Calls in flight.
    pub fn open_calls(&self) -> usize {
        self.streams.len()
    }

    /// Calls that the server would take now, beside those in flight.
    pub fn free_calls(&self) -> usize {
        if self.is_closing() { 0 } else { self.streams_max.saturating_sub(self.streams.len()) }
    }

    /// Whether the server has said what it takes.
    pub fn is_greeted(&self) -> bool {
        self.greeted
    }

    /// Whether new calls need another connection.
    pub fn is_closing(&self) -> bool {
        self.farewell.is_some() || self.next_id > STREAM_MAX
    }

    /// The connection is lost: every call ends with `status`.
    pub fn abandon(&mut self, status: &Status, calls: &mut impl Calls) {
        for stream in self.streams.drain() {
            calls.end(stream.tag, status.clone());
        }
        self.ids.clear();
        self.line.clear();
        self.block = None;
        self.farewell.get_or_insert_with(|| status.clone());
    }

    /// What is to be written.
    pub(super) fn output(&mut self) -> &mut Output {
        &mut self.sender.output
    }

    /// Whether the server should first take what there is before more is read from it.
    pub(super) fn is_full(&self) -> bool {
        self.sender.is_full()
    }

    fn stream(&mut self, key: CallKey) -> Option<&mut Stream> {
        find(&mut self.streams, key)
    }

    /// The payload of a DATA frame has come.
    pub(super) fn take(&mut self, bytes: usize) -> bool {
        self.window = self.window.saturating_sub(bytes as i64);
        if self.window < 0 {
            return false;
        }
        // The window of the stream bounds what is held: the connection's is for what is on its way.
        self.due = self.due.saturating_add(bytes as u32);
        if self.due >= self.options.connection_window_bytes / 2 {
            self.sender.window_update(0, self.due);
            self.window = self.window.saturating_add(i64::from(std::mem::take(&mut self.due)));
        }
        true
    }

    pub(super) fn stand_in_line(&mut self, slot: usize) {
        let stream = known(&mut self.streams, slot);
        if !stream.queued {
            stream.queued = true;
            self.line.push_back(slot);
        }
    }

    /// Sends what waits and finds room now, each stream a frame in turn.
    pub(super) fn pump(&mut self) {
        let mut blocked = 0_usize;
        while blocked < self.line.len()
            && let Some(slot) = self.line.pop_front()
        {
            let Some(stream) = self.streams.get_mut(slot).filter(|stream| stream.queued) else { continue };
            let Some(first) = stream.waiting.front_mut() else {
                stream.queued = false;
                if stream.ends && !stream.ended {
                    stream.ended = true;
                    self.sender.data(stream.id, &[], Bytes::new(), true);
                }
                continue;
            };
            let window = usize::try_from(stream.send_window).unwrap_or(0);
            let len = first.len().min(window).min(self.sender.room()).min(self.sender.frame_bytes_max());
            if len == 0 {
                blocked = blocked.saturating_add(1);
                self.line.push_back(slot);
                continue;
            }
            blocked = 0;
            let piece = first.split_to(len);
            if first.is_empty() {
                stream.waiting.pop_front();
            }
            let is_last = stream.waiting.is_empty();
            stream.send_window = stream.send_window.saturating_sub(len as i64);
            stream.ended = is_last && stream.ends;
            stream.queued = !is_last;
            self.sender.data(stream.id, &[], piece, stream.ended);
            if !is_last {
                self.line.push_back(slot);
            }
        }
    }

    /// Forgets a stream.
    pub(super) fn remove(&mut self, slot: usize) -> Stream {
        let stream = self.streams.remove(slot);
        self.ids.remove(&stream.id);
        if stream.queued {
            self.line.retain(|&other| other != slot);
        }
        stream
    }

    /// What calls end with that a lost connection has taken along.
    pub(super) fn lost(why: &str) -> Status {
        Status::new(Code::Unavailable, format!("connection lost: {why}"))
    }
}

/// The stream of a call, if it has not ended.
fn find(streams: &mut Slab<Stream>, key: CallKey) -> Option<&mut Stream> {
    streams.get_mut(key.slot).filter(|stream| stream.id == key.id)
}

/// The stream in a slot that `ids` or a key has just named. [`Connection::remove`] takes streams and their numbers out together.
pub(super) fn known(streams: &mut Slab<Stream>, slot: usize) -> &mut Stream {
    streams.get_mut(slot).unwrap_or_else(|| unreachable!("there is no stream in slot {slot}"))
}

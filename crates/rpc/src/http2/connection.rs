//! One HTTP/2 connection, driven in turns on the thread that owns it.
//!
//! A turn handles what other threads have brought, reads the socket, handles every complete frame, and writes once. It ends when there
//! is nothing left to do or when its time or bytes are used up, so that other connections get their turns.

use std::collections::{HashMap, VecDeque};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use api::limits;
use slab::Slab;
use tokio::io::ReadBuf;

use super::body_time::Mark;
use super::frame::{
    Fault, HEAD_BYTES, PAYLOAD_BYTES_DEFAULT, PREFACE, Reason, Settings, WINDOW_BYTES_DEFAULT, setting,
};
use super::ids::IdHasher;
use super::keepalive::{PeerPulse, PingRule, Pulse};
use super::passed_over::PassedOver;
use super::rates::Rates;
use super::receiver::{Receiver, WINDOW_BYTES};
use super::sender::Sender;
use super::shutdown::Farewell;
use super::stream::{Event, Stream};
use crate::later::later;
use crate::runtime::byte_stream::ByteStream;
use crate::runtime::gathering::Share;
use crate::runtime::held::HeldPart;
use crate::runtime::shared::{ConnectionWaker, Shared};
use crate::runtime::signal::Signal;
use crate::{Limit, Peer, Serves};

/// Time one turn may take before other connections get theirs.
const TURN_TIME_MAX: Duration = Duration::from_micros(200);
/// What of it there is for reading at least.
const READ_TIME_MIN: Duration = Duration::from_micros(50);
/// Replies that wait for the peer to open its window. Beyond it no new request is begun.
const HELD_BYTES_MAX: usize = 8 << 20;
/// The same for the messages of handlers. Beyond it none is asked for more.
const STREAMED_BYTES_MAX: usize = 64 << 20;
/// Entries for which a table of streams always keeps room.
const TABLE_MIN: usize = 256;
/// How long the socket of a connection that ended in an error is kept.
const LINGER_TIME_MAX: Duration = Duration::from_secs(1);
/// What is read at once of input that is discarded.
const LINGER_BYTES: usize = 4096;
/// Size of the input buffer: what one turn reads, after the beginning of a frame that came before.
pub(crate) const INPUT_BYTES: usize = limits::TURN_BYTES_MAX + HEAD_BYTES + PAYLOAD_BYTES_DEFAULT;

/// What is to be done with a connection after a turn.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    /// It is woken when something happens.
    Idle,
    /// There is more to do at once.
    Again,
    /// It is over.
    Closed,
}

/// How the reading of a turn ended.
enum Read {
    /// Nothing more is there.
    Drained,
    /// The turn was over before.
    CutShort,
    /// The peer has closed.
    Ended,
}

/// Why a connection ends.
pub(crate) struct Ending {
    pub(crate) reason: Reason,
    pub(crate) text: &'static str,
}

/// Ends a connection whose buffers do not fit together: a bug here, not the peer's fault.
const SLIPPED: Ending = Ending { reason: Reason::INTERNAL_ERROR, text: "internal error" };

pub(crate) struct Http2 {
    socket: Box<dyn ByteStream>,
    pub(crate) key: usize,
    pub(crate) peer: Peer,
    pub(crate) serves: Serves,
    /// Input that is not handled yet.
    input: Vec<u8>,
    /// There is a complete frame in it.
    behind: bool,
    /// How far the frame was that has begun; none if another one was handled since.
    half: Option<Mark>,
    pub(crate) receiver: Receiver,
    pub(crate) sender: Sender,
    pub(crate) streams: Slab<Stream>,
    /// Keys of the streams that the peer may still refer to.
    pub(crate) ids: HashMap<u32, usize, IdHasher>,
    /// The newest stream.
    pub(crate) last_stream: u32,
    /// Numbers below it that were never used.
    pub(crate) passed_over: PassedOver,
    /// Streams that were reset lately: more may be on its way for them.
    pub(crate) forsaken: VecDeque<u32>,
    /// What has happened to streams since the last turn.
    pub(crate) inbox: VecDeque<(Arc<Signal>, Event)>,
    /// Streams that wait for a share of the connection's output.
    pub(crate) parked: VecDeque<Arc<Signal>>,
    /// Whole requests that wait until fewer bytes are held.
    pub(crate) backlog: VecDeque<Arc<Signal>>,
    /// Streams whose handlers wait until less of their output is held.
    pub(crate) hungry: VecDeque<Arc<Signal>>,
    /// Bytes of replies that wait in streams.
    pub(crate) held_bytes: usize,
    /// Bytes of handlers' messages that do.
    pub(crate) streamed_bytes: usize,
    /// What of both, of its input and of its output is in the sum of all connections.
    pub(crate) held: HeldPart,
    /// Requests that are not complete.
    pub(crate) gathered: Share,
    /// The headers of streams that have a handler.
    pub(crate) heads: Share,
    /// The peer's settings have come, which must be the first.
    pub(crate) greeted: bool,
    /// When the connection began.
    since: Instant,
    pub(crate) rates: Rates,
    pub(crate) ping_rule: PingRule,
    pub(crate) farewell: Farewell,
    pulse: PeerPulse,
    /// Output that was left when it was written last, and what of that which was written the socket has not taken.
    unwritten_bytes: usize,
    unsent_bytes: usize,
    /// Nothing was read when there was an occasion last, because the peer takes nothing.
    was_choked: bool,
    /// Since when the peer takes nothing.
    pub(crate) stuck: Option<Instant>,
    /// When the connection ended in an error. Only its socket is left.
    leaving: Option<Instant>,
}

impl Http2 {
    /// Begins HTTP/2 on `socket`. `ahead` was read from it: the preface, and perhaps more.
    pub(crate) fn new(
        socket: Box<dyn ByteStream>,
        ahead: &[u8],
        key: usize,
        peer: Peer,
        serves: Serves,
        shared: &Shared,
    ) -> Option<Http2> {
        let ahead = ahead.strip_prefix(PREFACE)?;
        let mut sender = Sender::new();
        let settings = [
            (setting::MAX_CONCURRENT_STREAMS, shared.options.concurrent_streams_max),
            (setting::INITIAL_WINDOW_SIZE, WINDOW_BYTES),
            (setting::MAX_HEADER_LIST_SIZE, shared.options.header_list_bytes_max),
        ];
        Settings::put(&settings, sender.tail());
        sender.window_update(0, WINDOW_BYTES - WINDOW_BYTES_DEFAULT);
        let account = shared.gathering.of(&peer.address);
        Some(Http2 {
            socket,
            key,
            peer,
            serves,
            input: ahead.to_vec(),
            behind: true,
            half: None,
            receiver: Receiver::new(),
            sender,
            streams: Slab::new(),
            ids: HashMap::default(),
            last_stream: 0,
            passed_over: PassedOver::default(),
            forsaken: VecDeque::new(),
            inbox: VecDeque::new(),
            parked: VecDeque::new(),
            backlog: VecDeque::new(),
            hungry: VecDeque::new(),
            held_bytes: 0,
            streamed_bytes: 0,
            held: shared.held_bytes.part_of(account.clone()),
            gathered: account.incomplete(),
            heads: account.heads(),
            greeted: false,
            since: shared.now,
            rates: Rates::new(shared.options.rates, shared.now),
            ping_rule: PingRule::new(&shared.options),
            farewell: Farewell::None,
            pulse: PeerPulse::new(&shared.options, shared.now),
            unwritten_bytes: 0,
            unsent_bytes: 0,
            was_choked: false,
            stuck: None,
            leaving: None,
        })
    }

    /// Something has happened to a stream; it is looked at in the next turn.
    pub(crate) fn notify(&mut self, signal: Arc<Signal>, event: Event) {
        self.inbox.push_back((signal, event));
    }

    /// Does one turn's work.
    pub(crate) fn turn(&mut self, shared: &mut Shared, wake: &ConnectionWaker, waker: &Waker) -> Turn {
        wake.arm();
        let mut cx = Context::from_waker(waker);
        if self.leaving.is_some() {
            return self.linger(&mut cx);
        }
        let share = self.held.share();
        self.sender.bound(share);
        let until = later(shared.now, TURN_TIME_MAX);
        self.work(shared, until);
        // However long that took, what the client says is heard: it may be that it wants no more of it.
        let read = match self.read(shared, &mut cx, until.max(later(shared.now, READ_TIME_MIN))) {
            Ok(read) => read,
            Err(ending) => {
                shared.stats.connection_error(ending.reason);
                self.sender.go_away(self.farewell.last_stream(self.last_stream), ending.reason, ending.text);
                return self.leave(shared, &mut cx);
            }
        };
        if self.sender.slipped {
            shared.stats.connection_error(Reason::INTERNAL_ERROR);
            let last = self.farewell.last_stream(self.last_stream);
            self.sender.go_away(last, Reason::INTERNAL_ERROR, "internal error");
            return self.leave(shared, &mut cx);
        }
        if let Some(increment) = self.receiver.window_update() {
            self.sender.window_update(0, increment);
        }
        self.say_farewell();
        let blocked = match self.flush(shared.now, &mut cx) {
            Poll::Ready(Ok(())) => false,
            Poll::Ready(Err(_)) => return Turn::Closed,
            Poll::Pending => true,
        };
        if matches!(read, Read::Ended) {
            return Turn::Closed;
        }
        if self.farewell.is_said() && self.streams.is_empty() && !blocked {
            // What is unread would make the socket reset what was written.
            return self.leave(shared, &mut cx);
        }
        let late = !self.inbox.is_empty()
            || (self.can_begin() && !self.backlog.is_empty())
            || (self.may_stream() && !self.hungry.is_empty());
        let movable = !self.parked.is_empty() && self.sender.is_open();
        self.tell_held();
        let more_input = matches!(read, Read::CutShort) && !self.is_choked();
        if late || movable || more_input { Turn::Again } else { Turn::Idle }
    }

    /// Looks after streams to which something has happened, or that waited for room.
    fn work(&mut self, shared: &mut Shared, until: Instant) {
        while let Some((signal, event)) = self.inbox.pop_front() {
            if !signal.is_ended() {
                self.attend(shared, signal, event);
            }
            shared.now = Instant::now();
            if shared.now > until {
                return;
            }
        }
        for _ in 0..self.parked.len() {
            if !self.sender.is_open() {
                break;
            }
            let Some(signal) = self.parked.pop_front() else { break };
            if !signal.is_ended() {
                self.attend(shared, signal, Event::Share);
            }
            shared.now = Instant::now();
            if shared.now > until {
                return;
            }
        }
        while self.may_stream()
            && shared.now <= until
            && let Some(signal) = self.hungry.pop_front()
        {
            if !signal.is_ended() {
                self.attend(shared, signal, Event::Fed);
            }
            shared.now = Instant::now();
        }
        while self.can_begin()
            && shared.now <= until
            && let Some(signal) = self.backlog.pop_front()
        {
            if !signal.is_ended() {
                self.attend(shared, signal, Event::Begin);
            }
            shared.now = Instant::now();
        }
    }

    /// Whether handlers may make more output.
    pub(crate) fn may_stream(&self) -> bool {
        self.stream_room() > 0
    }

    /// Bytes below which a handler may have more queued: many streams that add a little each are a lot.
    pub(crate) fn stream_room(&self) -> usize {
        if self.streamed_bytes >= STREAMED_BYTES_MAX {
            0
        } else {
            limits::STREAM_SEND_BYTES_MAX.min(self.held.share().saturating_sub(self.streamed_bytes))
        }
    }

    /// Bytes that wait on this side of the socket: input that is not handled, half a header block, output that was not taken.
    pub(crate) fn socket_bytes(&self) -> usize {
        let block = self.receiver.block.as_ref().map_or(0, |block| block.bytes.capacity());
        [block, self.unwritten_bytes, self.unsent_bytes].into_iter().fold(self.input.len(), usize::saturating_add)
    }

    /// Whether new requests may be begun.
    pub(crate) fn can_begin(&self) -> bool {
        let held_bytes = self.held_bytes.saturating_add(self.unwritten_bytes).saturating_add(self.unsent_bytes);
        held_bytes < HELD_BYTES_MAX.min(self.held.share())
    }

    /// Whether nothing more should be read. A peer that takes nothing while it asks for more is not heard until it does; one that
    /// keeps its windows closed must be, or it could never open them.
    pub(crate) fn is_choked(&self) -> bool {
        self.sender.is_full() || (self.stuck.is_some() && !self.can_begin())
    }

    /// Reads the socket and handles the input, within the turn's bounds.
    fn read(&mut self, shared: &mut Shared, cx: &mut Context<'_>, until: Instant) -> Result<Read, Ending> {
        let mut room = std::mem::take(&mut shared.input);
        room.resize(INPUT_BYTES, 0);
        let outcome = self.read_into(&mut room, shared, cx, until);
        shared.input = room;
        outcome
    }

    fn read_into(
        &mut self,
        room: &mut [u8],
        shared: &mut Shared,
        cx: &mut Context<'_>,
        until: Instant,
    ) -> Result<Read, Ending> {
        let mut allowance = limits::TURN_BYTES_MAX.min(self.held.share());
        loop {
            let is_choked = self.is_choked();
            if is_choked && !self.was_choked {
                shared.stats.hit(Limit::UnreadOutput);
            }
            self.was_choked = is_choked;
            if is_choked || shared.now > until {
                return Ok(Read::CutShort);
            }
            // Left over from an earlier read into the same room, so it fits.
            let (kept, free) = room.split_at_mut_checked(self.input.len()).ok_or(SLIPPED)?;
            kept.copy_from_slice(&self.input);
            let mut len = self.input.len();
            if !self.behind {
                if allowance == 0 {
                    return Ok(Read::CutShort);
                }
                let mut buf = ReadBuf::new(free.get_mut(..allowance.min(free.len())).ok_or(SLIPPED)?);
                match Pin::new(&mut *self.socket).poll_read(cx, &mut buf) {
                    Poll::Pending => return Ok(Read::Drained),
                    Poll::Ready(Err(_)) => return Ok(Read::Ended),
                    Poll::Ready(Ok(())) if buf.filled().is_empty() => return Ok(Read::Ended),
                    Poll::Ready(Ok(())) => {}
                }
                let count = buf.filled().len();
                len = len.saturating_add(count);
                allowance = allowance.saturating_sub(count);
                self.pulse.heard(shared.now);
            }
            let input = room.get(..len).ok_or(SLIPPED)?;
            let (handled, behind) = self.handle(shared, input, until)?;
            self.behind = behind;
            if handled > 0 {
                self.half = None;
            }
            self.input.clear();
            self.input.extend_from_slice(input.get(handled..).ok_or(SLIPPED)?);
            if self.input.is_empty() && self.input.capacity() > 0 {
                self.input = Vec::new();
            }
        }
    }

    /// Writes what there is. Pending if the socket does not take all of it.
    fn flush(&mut self, now: Instant, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        let before = self.sender.output.len();
        #[expect(clippy::arithmetic_side_effects, reason = "since the last flush nothing was taken out, only added")]
        let added = before - self.unwritten_bytes;
        self.ping_rule.wrote(added as u64);
        let flushed = self.sender.output.flush(&mut *self.socket, cx);
        self.unwritten_bytes = self.sender.output.len();
        self.unsent_bytes = self.socket.unsent_bytes();
        if flushed.is_ready() {
            self.stuck = None;
        } else if self.unwritten_bytes < before || self.stuck.is_none() {
            self.stuck = Some(now);
        }
        flushed
    }

    /// Ends all streams, but keeps the socket for a while: closed with input unread it would be reset, and the peer might never
    /// see why.
    fn leave(&mut self, shared: &Shared, cx: &mut Context<'_>) -> Turn {
        self.leaving = Some(shared.now);
        self.abandon(shared);
        self.linger(cx)
    }

    /// Gives back the memory of streams that are over. Tables keep that of the most there were.
    fn give_back_tables(&mut self) {
        if self.streams.capacity() > TABLE_MIN && self.streams.capacity() / 4 > self.streams.len() {
            let ids = &mut self.ids;
            self.streams.compact(|stream, _, key| {
                stream.signal.set_stream(key);
                ids.entry(stream.id).and_modify(|of_stream| *of_stream = key);
                true
            });
            self.ids.shrink_to(TABLE_MIN);
        }
        if self.inbox.capacity() > TABLE_MIN && self.inbox.capacity() / 4 > self.inbox.len() {
            self.inbox.shrink_to(TABLE_MIN);
        }
        for list in [&mut self.parked, &mut self.backlog, &mut self.hungry] {
            if list.capacity() > TABLE_MIN && list.capacity() / 4 > list.len() {
                list.shrink_to(TABLE_MIN);
            }
        }
    }

    /// Ends all streams: the connection is lost.
    pub(crate) fn abandon(&mut self, shared: &Shared) {
        for stream in self.streams.drain() {
            stream.count(shared);
        }
        self.gathered.clear();
        self.heads.clear();
        (self.held_bytes, self.streamed_bytes) = (0, 0);
        self.ids.clear();
        self.inbox.clear();
        self.parked.clear();
        self.backlog.clear();
        self.hungry.clear();
        self.input = Vec::new();
        self.receiver.block = None;
        self.tell_held();
    }

    /// Says that nothing more will be written, and reads what the peer still sends without looking at it, until it is done too.
    fn linger(&mut self, cx: &mut Context<'_>) -> Turn {
        if self.sender.output.flush(&mut *self.socket, cx).is_pending() {
            return Turn::Idle;
        }
        // It fails when the peer has gone, which the reading shows.
        if Pin::new(&mut *self.socket).poll_shutdown(cx).is_pending() {
            return Turn::Idle;
        }
        let mut room = [0; LINGER_BYTES];
        for _ in 0..limits::TURN_BYTES_MAX / LINGER_BYTES {
            let mut buf = ReadBuf::new(&mut room);
            match Pin::new(&mut *self.socket).poll_read(cx, &mut buf) {
                Poll::Pending => return Turn::Idle,
                Poll::Ready(Ok(())) if !buf.filled().is_empty() => {}
                Poll::Ready(_) => return Turn::Closed,
            }
        }
        Turn::Again
    }

    /// Checks time limits. False if the connection is to be dropped.
    pub(crate) fn tick(&mut self, shared: &Shared, waker: &Waker) -> bool {
        let is_over = |since: Instant, most: Duration| shared.now.duration_since(since) >= most;
        if self.stuck.is_some_and(|since| is_over(since, shared.options.write_timeout)) {
            shared.stats.hit(Limit::WriteProgress);
            return false;
        }
        if self.hoards(shared) {
            shared.stats.hit(Limit::WriteProgress);
            return false;
        }
        if let Some(since) = self.leaving {
            return !is_over(since, LINGER_TIME_MAX);
        }
        if !self.greeted && is_over(self.since, shared.options.handshake_timeout) {
            shared.stats.hit(Limit::Handshake);
            return false;
        }
        let waits_for_headers = self.receiver.block.as_ref().map(|block| block.since);
        if waits_for_headers.is_some_and(|since| is_over(since, shared.options.header_timeout)) {
            shared.stats.hit(Limit::HeaderTime);
            return false;
        }
        if !self.goes_on(shared) {
            shared.stats.hit(Limit::BodyTime);
            return false;
        }
        self.give_back_tables();
        // Others may have made room since.
        let may_go_on =
            (self.can_begin() && !self.backlog.is_empty()) || (self.may_stream() && !self.hungry.is_empty());
        if self.hurry() | self.give_up_requests(shared) | may_go_on {
            waker.wake_by_ref();
        }
        self.hasten_farewell(shared.now, waker);
        match self.pulse.check(shared.now) {
            Pulse::Wait => true,
            Pulse::Dead => {
                shared.stats.hit(Limit::KeepAlive);
                false
            }
            Pulse::Ping => {
                self.sender.ping(false, [0; 8]);
                waker.wake_by_ref();
                true
            }
        }
    }

    /// Whether a frame that has begun goes on, as a message must.
    fn goes_on(&mut self, shared: &Shared) -> bool {
        if self.input.is_empty() || self.behind || self.is_choked() {
            self.half = None;
            return true;
        }
        self.half = Mark::moved(self.half, shared.now, self.input.len() as u64, shared.options.body_timeout);
        self.half.is_some()
    }

    /// Sends on what has waited for a window to be worth a frame: its peer may be one that opens it only when it is used up. True if
    /// there is something.
    fn hurry(&mut self) -> bool {
        if !std::mem::take(&mut self.sender.withholds) {
            return false;
        }
        for (_, stream) in &mut self.streams {
            if stream.out.hurry() && !std::mem::replace(&mut stream.window_due, true) {
                self.inbox.push_back((stream.signal.clone(), Event::Window));
            }
        }
        self.sender.hurries = true;
        true
    }

    /// Ends the connection with `limit` as the reason, which is counted.
    pub(crate) fn over(shared: &Shared, limit: Limit) -> Ending {
        shared.stats.hit(limit);
        let text = match limit {
            // Go's client doubles its ping interval when it reads this.
            Limit::Pings => "too_many_pings",
            other => other.name(),
        };
        Ending { reason: Reason::ENHANCE_YOUR_CALM, text }
    }
}

impl From<Fault> for Ending {
    fn from(fault: Fault) -> Ending {
        Ending { reason: fault.reason, text: "" }
    }
}

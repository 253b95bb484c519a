//! One HTTP/2 connection, driven in turns on the thread that owns it.
//!
//! A turn reads what is there, lets the engine take the frames apart, handles what became complete, and writes once. It ends when
//! there is nothing left to do or when its time or bytes are used up, so that other connections get theirs.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use api::limits;
use bytes::Bytes;
use h2::server::{Builder, Connection as Engine, SendResponse};
use h2::{Ping, PingPong, RecvStream};
use http::Request;
use slab::Slab;

use crate::call::{Event, Stream};
use crate::keepalive::{PeerPulse, PingRule, Pulse};
use crate::payload::Payload;
use crate::signal::Signal;
use crate::socket::{Socket, Wire};
use crate::thread::{ConnectionWaker, Shared};

/// Time one turn may take before other connections get theirs.
const TURN_TIME_MAX: Duration = Duration::from_micros(200);
/// Output handed to the engine that the socket has not taken yet. Beyond it nothing is read, and streams wait.
const SEND_BYTES_MAX: usize = 256 * 1024;
/// Replies that wait for the peer to open its window. Beyond it no new request is begun.
const HELD_BYTES_MAX: usize = 8 << 20;
/// Receive windows, of each stream and of the connection, in bytes.
const WINDOW_BYTES: u32 = 1 << 20;
/// Streams that a peer opened and reset before they were looked at. All of them came within one turn, whose bytes are bounded, and
/// clients with short deadlines do this in good faith when the server is overloaded; resets per second are bounded elsewhere.
const EARLY_RESETS_MAX: usize = 8_192;
/// How long the socket of a connection that ended in an error is kept.
const LINGER_TIME_MAX: Duration = Duration::from_secs(1);
/// Output the engine buffers per stream.
const ENGINE_BUFFER_BYTES_MAX: usize = 64 * 1024;

/// Reasons of GOAWAY, RFC 9113 section 7.
const ENHANCE_YOUR_CALM: u32 = 11;

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

/// Where the engine stands.
enum Advance {
    Open,
    /// Closed in order.
    Over,
    /// Closed because of an error, which the engine has told the peer if there is one.
    Broken,
}

pub(crate) struct Http2 {
    engine: Engine<Wire, Payload>,
    pings: Option<PingPong>,
    wire: Wire,
    pub(crate) key: usize,
    pub(crate) peer: SocketAddr,
    pub(crate) streams: Slab<Stream>,
    /// Requests that nobody has looked at yet.
    backlog: VecDeque<(Request<RecvStream>, SendResponse<Payload>)>,
    /// Requests in the backlog may have been given up. In an overload many are, and work for them would prolong it.
    wary: bool,
    /// What has happened to streams since the last turn.
    inbox: VecDeque<(Arc<Signal>, Event)>,
    /// Streams that wait for a share of the connection's output.
    pub(crate) parked: VecDeque<Arc<Signal>>,
    /// A signal that no stream needed, for the next one.
    pub(crate) spare: Option<Arc<Signal>>,
    /// Bytes handed to the engine since the socket last took everything.
    pub(crate) sent_bytes: usize,
    /// Bytes of replies that wait in streams.
    pub(crate) held_bytes: usize,
    /// Bytes of requests that are not complete.
    pub(crate) gathered_bytes: usize,
    /// The newest stream.
    last_stream: u32,
    ping_rule: PingRule,
    pulse: PeerPulse,
    /// How much of the socket's counts of bytes has been looked at.
    bytes_read: u64,
    bytes_taken: u64,
    /// Since when the peer takes nothing, and how much it had taken.
    stuck: Option<(Instant, u64)>,
    /// When the connection ended in an error. Only its socket is left.
    leaving: Option<Instant>,
}

impl Http2 {
    /// Begins HTTP/2 on `socket`, whose input begins with the preface. `None` if it is not.
    pub(crate) fn new(
        socket: Socket,
        key: usize,
        peer: SocketAddr,
        shared: &Shared,
        cx: &mut Context<'_>,
    ) -> Option<Http2> {
        let wire = Wire::new(socket);
        let mut builder = Builder::new();
        builder
            .max_concurrent_streams(shared.options.concurrent_streams_max)
            .max_header_list_size(shared.options.header_list_bytes_max)
            .initial_window_size(WINDOW_BYTES)
            .initial_connection_window_size(WINDOW_BYTES)
            .max_send_buffer_size(ENGINE_BUFFER_BYTES_MAX)
            .max_pending_accept_reset_streams(EARLY_RESETS_MAX);
        let handshake = std::pin::pin!(builder.handshake(wire.clone()));
        // The preface is there and writing only gathers: this is done at once.
        let Poll::Ready(Ok(mut engine)) = handshake.poll(cx) else { return None };
        let now = shared.now;
        Some(Http2 {
            pings: engine.ping_pong(),
            engine,
            wire,
            key,
            peer,
            streams: Slab::new(),
            backlog: VecDeque::new(),
            wary: false,
            inbox: VecDeque::new(),
            parked: VecDeque::new(),
            spare: None,
            sent_bytes: 0,
            held_bytes: 0,
            gathered_bytes: 0,
            last_stream: 0,
            ping_rule: PingRule::new(&shared.options, now),
            pulse: PeerPulse::new(&shared.options, now),
            bytes_read: 0,
            bytes_taken: 0,
            stuck: None,
            leaving: None,
        })
    }

    /// Something has happened to a stream; it is looked at in the next turn.
    pub(crate) fn notify(&mut self, signal: Arc<Signal>, event: Event) {
        self.inbox.push_back((signal, event));
    }

    /// Does what there is to do.
    pub(crate) fn turn(&mut self, shared: &mut Shared, wake: &ConnectionWaker, waker: &Waker) -> Turn {
        let mut cx = Context::from_waker(waker);
        if self.leaving.is_some() {
            wake.arm();
            self.wire.socket().begin(limits::TURN_BYTES_MAX);
            return self.linger(&mut cx);
        }
        let began = shared.now;
        let choked = self.sent_bytes >= SEND_BYTES_MAX;
        self.wire.socket().begin(if choked { 0 } else { limits::TURN_BYTES_MAX });
        let mut late = false;
        loop {
            wake.arm();
            match self.advance(&mut cx) {
                Advance::Open => {}
                Advance::Over => return Turn::Closed,
                Advance::Broken => return self.leave(shared, &mut cx),
            }
            if let Err(text) = self.keep_rules(shared.now) {
                return self.send_away(shared, &mut cx, text);
            }
            if late {
                break;
            }
            wake.mute();
            if !self.work(shared) {
                break;
            }
            shared.now = Instant::now();
            late = shared.now.duration_since(began) > TURN_TIME_MAX;
        }
        wake.arm();
        let mut socket = self.wire.socket();
        if let Poll::Ready(Err(_)) = socket.flush(&mut cx) {
            return Turn::Closed;
        }
        let (blocked, cut_short, written) = (socket.is_blocked(), socket.is_cut_short(), socket.bytes_written);
        drop(socket);
        if blocked {
            if self.stuck.is_none_or(|(_, before)| before != written) {
                self.stuck = Some((shared.now, written));
            }
        } else {
            self.stuck = None;
            self.sent_bytes = 0;
        }
        let more_input = cut_short && !(choked && blocked);
        let more_work = !self.inbox.is_empty() || self.can_begin() || (!self.parked.is_empty() && self.share() > 0);
        if more_input || more_work { Turn::Again } else { Turn::Idle }
    }

    /// Lets the engine read and write.
    fn advance(&mut self, cx: &mut Context<'_>) -> Advance {
        loop {
            match self.engine.poll_accept(cx) {
                Poll::Pending => return Advance::Open,
                Poll::Ready(Some(Ok((request, respond)))) => {
                    self.last_stream = self.last_stream.max(respond.stream_id().as_u32());
                    self.backlog.push_back((request, respond));
                }
                Poll::Ready(Some(Err(_))) => return Advance::Broken,
                Poll::Ready(None) => return Advance::Over,
            }
        }
    }

    /// Handles what has happened, within the turn's bounds. False if there was nothing to handle.
    fn work(&mut self, shared: &mut Shared) -> bool {
        let began = shared.now;
        let mut worked = false;
        while let Some((signal, event)) = self.inbox.pop_front() {
            if signal.is_ended() {
                continue;
            }
            worked = true;
            self.attend(shared, &signal, event);
            shared.now = Instant::now();
            if shared.now.duration_since(began) > TURN_TIME_MAX {
                return true;
            }
        }
        for _ in 0..self.parked.len() {
            if self.share() == 0 {
                break;
            }
            let Some(signal) = self.parked.pop_front() else { break };
            if !signal.is_ended() {
                worked = true;
                self.attend(shared, &signal, Event::Share);
            }
        }
        while self.can_begin() {
            let Some((request, mut respond)) = self.backlog.pop_front() else { break };
            worked = true;
            if self.wary && respond.poll_reset(&mut Context::from_waker(Waker::noop())).is_ready() {
                continue;
            }
            self.begin(shared, request, respond);
            shared.now = Instant::now();
            if shared.now.duration_since(began) > TURN_TIME_MAX {
                break;
            }
        }
        self.wary &= !self.backlog.is_empty();
        worked
    }

    fn can_begin(&self) -> bool {
        !self.backlog.is_empty() && self.sent_bytes < SEND_BYTES_MAX && self.held_bytes < HELD_BYTES_MAX
    }

    /// Bytes that streams may hand to the engine now.
    pub(crate) fn share(&self) -> usize {
        SEND_BYTES_MAX.saturating_sub(self.sent_bytes)
    }

    /// Takes note of what the engine has read and then written. The error says which rule the client has broken.
    fn keep_rules(&mut self, now: Instant) -> Result<(), &'static str> {
        let mut socket = self.wire.socket();
        let written = socket.bytes_taken - std::mem::replace(&mut self.bytes_taken, socket.bytes_taken);
        let is_read = socket.bytes_read != std::mem::replace(&mut self.bytes_read, socket.bytes_read);
        let pings = std::mem::take(&mut socket.frames.pings);
        let idle_frames = std::mem::take(&mut socket.frames.idle_frames);
        let resets = std::mem::take(&mut socket.frames.resets);
        drop(socket);
        if is_read {
            self.pulse.heard(now);
        }
        let has_streams = !self.streams.is_empty() || !self.backlog.is_empty();
        if !(0..pings).all(|_| self.ping_rule.allows_ping(now, has_streams)) {
            return Err("too_many_pings");
        }
        self.wary |= resets > 0;
        if idle_frames + resets > 0 && !self.ping_rule.allows_frames(now, idle_frames, resets) {
            return Err("too_many_idle_frames");
        }
        self.ping_rule.wrote(written);
        Ok(())
    }

    /// Ends the connection of a client that breaks the rules. The engine can say no reason in words, and clients look for these
    /// (Go's doubles its ping interval), so the frame is written past it.
    fn send_away(&mut self, shared: &Shared, cx: &mut Context<'_>, text: &str) -> Turn {
        self.wire.socket().append(&go_away(self.last_stream, ENHANCE_YOUR_CALM, text.as_bytes()));
        self.leave(shared, cx)
    }

    /// Ends all streams, but keeps the socket for a while: closed with input unread it would be reset, and the peer might never
    /// see why.
    fn leave(&mut self, shared: &Shared, cx: &mut Context<'_>) -> Turn {
        self.leaving = Some(shared.now);
        self.abandon(shared);
        self.linger(cx)
    }

    /// Ends all streams: the connection is lost.
    pub(crate) fn abandon(&mut self, shared: &Shared) {
        for stream in self.streams.drain() {
            stream.count(shared);
        }
        self.backlog.clear();
        self.inbox.clear();
        self.parked.clear();
    }

    fn linger(&mut self, cx: &mut Context<'_>) -> Turn {
        let mut socket = self.wire.socket();
        match socket.linger(cx) {
            Poll::Ready(()) => Turn::Closed,
            Poll::Pending if socket.is_cut_short() => Turn::Again,
            Poll::Pending => Turn::Idle,
        }
    }

    /// Looks after what takes time. False if the connection is to be dropped.
    pub(crate) fn tick(&mut self, shared: &Shared, waker: &Waker) -> bool {
        if self.stuck.is_some_and(|(since, _)| shared.now.duration_since(since) >= shared.options.write_timeout) {
            return false;
        }
        if let Some(since) = self.leaving {
            return shared.now.duration_since(since) < LINGER_TIME_MAX;
        }
        let mut cx = Context::from_waker(waker);
        if let Some(pings) = &mut self.pings {
            // An answer counts as having been heard when it was read; this only lets the engine send the next ping.
            let _ = pings.poll_pong(&mut cx);
        }
        match self.pulse.check(shared.now) {
            Pulse::Wait => true,
            Pulse::Dead => false,
            Pulse::Ping => {
                if let Some(pings) = &mut self.pings {
                    // An error means that one is on its way already.
                    let _ = pings.send_ping(Ping::opaque());
                }
                waker.wake_by_ref();
                true
            }
        }
    }

    /// Takes no new streams; the connection closes when those that run are done.
    pub(crate) fn drain(&mut self) {
        self.engine.graceful_shutdown();
    }
}

fn go_away(last_stream: u32, reason: u32, text: &[u8]) -> Bytes {
    let len = (8 + text.len()) as u32;
    let mut frame = Vec::with_capacity(9 + 8 + text.len());
    frame.extend_from_slice(&len.to_be_bytes()[1..]);
    frame.extend_from_slice(&[7, 0, 0, 0, 0, 0]);
    frame.extend_from_slice(&last_stream.to_be_bytes());
    frame.extend_from_slice(&reason.to_be_bytes());
    frame.extend_from_slice(text);
    Bytes::from(frame)
}

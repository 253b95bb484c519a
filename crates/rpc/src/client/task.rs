//! The task that owns a connection, and the calls of other tasks on it.

use std::collections::{HashMap, VecDeque};
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use api::Code;
use bytes::Bytes;
use contain::contain;
use slab::Slab;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{mpsc, oneshot};
use tokio::time::Sleep;

use super::channel::Connected;
use super::{CallKey, Calls, Connection, Hold, Link, Options, ReadBuffer, Refused, Release, RequestHead, Room};
use crate::Status;
use crate::grpc::decoder::Decoder;
use crate::grpc::encoding::Encoding;
use crate::http2::keepalive::{PeerPulse, Pulse};
use crate::later::later;

/// What a connection is asked to do. Calls are identified by numbers that their callers have given them.
pub(super) enum Command {
    Open(Box<Opening>),
    /// `sent` is told when the windows have taken the message.
    Send {
        number: u64,
        message: Bytes,
        sent: oneshot::Sender<()>,
    },
    Finish(u64),
    Release {
        number: u64,
        bytes: usize,
    },
    Cancel(u64),
}

/// A call to be begun.
pub(super) struct Opening {
    pub(super) number: u64,
    pub(super) head: RequestHead,
    pub(super) timeout: Option<Duration>,
    /// The only message, or none yet.
    pub(super) message: Option<Bytes>,
    pub(super) reply: Reply,
    /// What it was asked to do before the server took it.
    pub(super) held: Vec<Command>,
}

/// Part of the answer to a streaming call.
pub(super) enum Piece {
    Data(Bytes),
    End(Status),
}

/// Where an answer goes.
pub(super) enum Reply {
    Whole {
        to: Option<oneshot::Sender<Result<Bytes, Status>>>,
        decoder: Decoder,
        message: Option<Bytes>,
        /// Asked before the message is taken in.
        room: Option<Room>,
        hold: Option<Hold>,
    },
    Pieces(mpsc::UnboundedSender<Piece>),
}

impl Reply {
    /// The only message of an answer.
    pub(super) fn whole(to: oneshot::Sender<Result<Bytes, Status>>, room: Option<Room>) -> Reply {
        // The limit is set when the call is begun.
        let decoder = Decoder::new(Encoding::Identity, 0);
        Reply::Whole { to: Some(to), decoder, message: None, room, hold: None }
    }

    fn limit(&mut self, bytes_max: usize) {
        if let Reply::Whole { decoder, .. } = self {
            *decoder = Decoder::new(Encoding::Identity, bytes_max);
        }
    }

    /// False if the call cannot go on.
    fn data(&mut self, data: &[u8]) -> bool {
        match self {
            // A caller that is gone has given the call up, which is a message of its own.
            Reply::Pieces(to) => to.send(Piece::Data(Bytes::copy_from_slice(data))).is_ok(),
            Reply::Whole { to, decoder, message, room, hold } => {
                decoder.push(data);
                loop {
                    let found = match decoder.next_len().filter(|_| message.is_none()) {
                        Some(len) => room.take().map_or(Ok(None), |room| room(len)),
                        None => Ok(None),
                    };
                    let next = found.and_then(|found| {
                        *hold = hold.take().or(found);
                        decoder.next()
                    });
                    let wrong = match next {
                        Ok(None) => return true,
                        Ok(Some(next)) if message.is_none() => {
                            *message = Some(match hold.take() {
                                Some(hold) => hold(next),
                                None => next,
                            });
                            continue;
                        }
                        Ok(Some(_)) => Status::new(Code::Internal, "more than one message came as the answer"),
                        Err(status) => status,
                    };
                    if let Some(to) = to.take() {
                        let _ = to.send(Err(wrong));
                    }
                    return false;
                }
            }
        }
    }

    /// The call has ended. A caller that is gone needs no answer.
    fn end(self, status: Status) {
        match self {
            Reply::Pieces(to) => drop(to.send(Piece::End(status))),
            Reply::Whole { to: Some(to), message, decoder, .. } => {
                let outcome = match message {
                    _ if status != Status::OK => Err(status),
                    Some(message) if decoder.held_bytes() == 0 => Ok(message),
                    _ => Err(Status::new(Code::Internal, "the answer has no whole message")),
                };
                let _ = to.send(outcome);
            }
            Reply::Whole { to: None, .. } => {}
        }
    }
}

/// A call that others have.
struct Entry {
    number: u64,
    key: Option<CallKey>,
    reply: Reply,
    /// Told when everything is taken by the windows.
    sent: Option<oneshot::Sender<()>>,
}

/// The calls of a connection.
#[derive(Default)]
struct Entries {
    each: Slab<Entry>,
    numbers: HashMap<u64, usize>,
    /// Calls that cannot go on.
    broken: Vec<u64>,
}

impl Entries {
    fn remove(&mut self, slot: usize) -> Option<Entry> {
        let entry = self.each.try_remove(slot)?;
        self.numbers.remove(&entry.number);
        Some(entry)
    }
}

impl Calls for Entries {
    fn data(&mut self, tag: usize, data: &[u8]) {
        let Some(entry) = self.each.get_mut(tag) else { unreachable!("an answer to a call that was not begun") };
        if !entry.reply.data(data) {
            self.broken.push(entry.number);
        }
    }

    fn end(&mut self, tag: usize, status: Status) {
        // When a panic has ended the connection, the call that it was beginning may not be here yet.
        if let Some(entry) = self.remove(tag) {
            entry.reply.end(status);
        }
    }
}

struct Task<S> {
    link: Link<S>,
    buffer: ReadBuffer,
    commands: mpsc::UnboundedReceiver<Command>,
    entries: Entries,
    /// Calls that wait until the server takes more.
    waiting: VecDeque<Box<Opening>>,
    closing: Arc<AtomicBool>,
    message_bytes_max: usize,
    pulse: PeerPulse,
    pings_idle: bool,
    /// The server's settings must have come by then. None: whenever.
    greet_by: Option<Instant>,
    /// Told when they have come.
    greeted: Option<oneshot::Sender<Result<(), Status>>>,
    /// When the pulse is looked at.
    timer: Pin<Box<Sleep>>,
    /// No handle is left that could begin a call.
    orphaned: bool,
}

/// How often the pulse is looked at, at most and at least: sums with the present stay representable.
const PULSE_STEP_MIN: Duration = Duration::from_millis(10);
const PULSE_STEP_MAX: Duration = Duration::from_secs(3600);

/// Starts the task that drives `link`, and waits for the server's settings: one that refuses the certificate says so only after the
/// handshake, and no call has left until then.
pub(super) async fn start<S: AsyncRead + AsyncWrite + Unpin + Send + 'static>(
    link: Link<S>,
    options: &Options,
) -> Result<Connected, Status> {
    let (greeted, greeting) = oneshot::channel();
    let connected = spawn(link, options, greeted);
    greeting.await.unwrap_or_else(|_| Err(super::channel::gone()))?;
    Ok(connected)
}

fn spawn<S: AsyncRead + AsyncWrite + Unpin + Send + 'static>(
    link: Link<S>,
    options: &Options,
    greeted: oneshot::Sender<Result<(), Status>>,
) -> Connected {
    let (commands, receiver) = mpsc::unbounded_channel();
    let closing = Arc::new(AtomicBool::new(false));
    let step = pulse_step(options);
    let mut task = Task {
        link,
        buffer: ReadBuffer::default(),
        commands: receiver,
        entries: Entries::default(),
        waiting: VecDeque::new(),
        closing: closing.clone(),
        message_bytes_max: options.message_bytes_max,
        pulse: PeerPulse::of(options.keepalive_interval, options.keepalive_timeout, Instant::now()),
        pings_idle: options.pings_idle,
        greet_by: Instant::now().checked_add(options.connect_timeout),
        greeted: Some(greeted),
        timer: Box::pin(tokio::time::sleep(step.min(options.connect_timeout))),
        orphaned: false,
    };
    tokio::spawn(async move {
        let why = poll_fn(|cx| {
            // Its calls are all that a connection has to do with.
            let turn = contain(|| task.poll(cx, step));
            turn.unwrap_or_else(|panicked| Poll::Ready(Connection::lost(&panicked.to_string())))
        });
        let why = why.await;
        task.end(&why);
    });
    Connected { commands, closing }
}

fn pulse_step(options: &Options) -> Duration {
    let quarter = options.keepalive_interval.min(options.keepalive_timeout).checked_div(4);
    quarter.unwrap_or_default().clamp(PULSE_STEP_MIN, PULSE_STEP_MAX)
}

impl<S: AsyncRead + AsyncWrite + Unpin> Task<S> {
    /// One turn. Ready, with the reason, when the connection is over.
    fn poll(&mut self, cx: &mut Context<'_>, step: Duration) -> Poll<Status> {
        if let Err(broken) = self.link.read(cx, &mut self.buffer, &mut self.entries) {
            return Poll::Ready(Status::from(&broken));
        }
        if self.link.take_heard() {
            self.pulse.heard(Instant::now());
        }
        while !self.orphaned
            && let Poll::Ready(command) = self.commands.poll_recv(cx)
        {
            match command {
                Some(command) => self.obey(command),
                None => self.orphaned = true,
            }
        }
        for number in std::mem::take(&mut self.entries.broken) {
            self.cancel(number);
        }
        self.begin_waiting();
        if self.link.connection.is_closing() {
            self.closing.store(true, Ordering::Release);
        }
        while self.timer.as_mut().poll(cx).is_ready() {
            self.timer.as_mut().reset(later(Instant::now(), step).into());
            let now = Instant::now();
            if self.greet_by.is_some_and(|by| now >= by) && !self.link.connection.is_greeted() {
                return Poll::Ready(Connection::lost("the server has not said what it takes"));
            }
            if !self.pings_idle && self.entries.each.is_empty() {
                // Silence begins with the next call.
                self.pulse.heard(now);
            }
            match self.pulse.check(now) {
                Pulse::Wait => {}
                Pulse::Ping => self.link.connection.ping(),
                Pulse::Dead => return Poll::Ready(Connection::lost("the server does not answer pings")),
            }
        }
        if let Poll::Ready(Err(error)) = self.link.flush(cx) {
            return Poll::Ready(Connection::lost(&error.to_string()));
        }
        self.tell_sent();
        let is_over = self.orphaned || self.link.connection.is_closing();
        if is_over && self.entries.each.is_empty() && self.waiting.is_empty() {
            return Poll::Ready(super::channel::gone());
        }
        Poll::Pending
    }

    fn obey(&mut self, command: Command) {
        match command {
            Command::Open(opening) => {
                self.waiting.push_back(opening);
                self.begin_waiting();
            }
            Command::Cancel(number) => self.cancel(number),
            Command::Send { number, .. } | Command::Finish(number) if self.waiting_mut(number).is_some() => {
                if let Some(opening) = self.waiting_mut(number) {
                    opening.held.push(command);
                }
            }
            Command::Send { number, message, sent } => {
                if let Some((slot, key)) = self.call(number) {
                    self.link.connection.send(key, &message, false);
                    if let Some(entry) = self.entries.each.get_mut(slot) {
                        entry.sent = Some(sent);
                    }
                }
            }
            Command::Finish(number) => {
                if let Some((_, key)) = self.call(number) {
                    self.link.connection.finish(key);
                }
            }
            Command::Release { number, bytes } => {
                if let Some((_, key)) = self.call(number) {
                    self.link.connection.release(key, bytes);
                }
            }
        }
    }

    fn waiting_mut(&mut self, number: u64) -> Option<&mut Box<Opening>> {
        self.waiting.iter_mut().find(|opening| opening.number == number)
    }

    fn call(&self, number: u64) -> Option<(usize, CallKey)> {
        let slot = *self.entries.numbers.get(&number)?;
        Some((slot, self.entries.each.get(slot)?.key?))
    }

    fn cancel(&mut self, number: u64) {
        self.waiting.retain(|opening| opening.number != number);
        if let Some((slot, key)) = self.call(number) {
            self.link.connection.cancel(key);
            self.entries.remove(slot);
        }
    }

    /// Begins the calls that the server takes now.
    fn begin_waiting(&mut self) {
        if !self.link.connection.is_greeted() {
            // How many it takes is not known yet; it would refuse the others.
            return;
        }
        if let Some(greeted) = self.greeted.take() {
            // A caller that is gone has given up.
            let _ = greeted.send(Ok(()));
        }
        while let Some(mut opening) = self.waiting.pop_front() {
            let slot = self.entries.each.vacant_key();
            let release = if opening.message.is_some() { Release::AtOnce } else { Release::ByCaller };
            match self.link.connection.open(&mut opening.head, opening.timeout, slot, release) {
                Ok(key) => {
                    let Opening { number, message, mut reply, held, .. } = *opening;
                    reply.limit(self.message_bytes_max);
                    self.entries.each.insert(Entry { number, key: Some(key), reply, sent: None });
                    self.entries.numbers.insert(number, slot);
                    if let Some(message) = message {
                        self.link.connection.send(key, &message, true);
                    }
                    held.into_iter().for_each(|command| self.obey(command));
                }
                Err(Refused::Full) => return self.waiting.push_front(opening),
                Err(Refused::Closing) => opening.reply.end(super::channel::gone()),
            }
        }
    }

    /// Tells those whose messages have been taken.
    fn tell_sent(&mut self) {
        for (_, entry) in &mut self.entries.each {
            if entry.sent.is_some() && entry.key.is_some_and(|key| self.link.connection.waiting_bytes(key) == 0) {
                entry.sent.take().map(|sent| sent.send(()));
            }
        }
    }

    /// The connection is over: so are its calls, and those that were to come.
    fn end(&mut self, why: &Status) {
        self.closing.store(true, Ordering::Release);
        if let Some(greeted) = self.greeted.take() {
            // As above.
            let _ = greeted.send(Err(why.clone()));
        }
        // These were begun, so they may have taken effect.
        self.link.connection.abandon(&Status::new(why.code, why.message.clone()), &mut self.entries);
        self.commands.close();
        while let Ok(command) = self.commands.try_recv() {
            if let Command::Open(opening) = command {
                self.waiting.push_back(opening);
            }
        }
        // Nothing of these was given to the connection.
        for opening in self.waiting.drain(..) {
            opening.reply.end(Status::unsent(why.message.clone()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_that_a_panic_has_kept_from_being_begun_has_no_end() {
        let mut entries = Entries::default();
        entries.end(0, Status::OK);
        let (to, mut answer) = oneshot::channel();
        let slot = entries.each.insert(Entry { number: 7, key: None, reply: Reply::whole(to, None), sent: None });
        entries.numbers.insert(7, slot);
        entries.end(slot, Status::deadline_exceeded());
        assert_eq!(answer.try_recv(), Ok(Err(Status::deadline_exceeded())));
        assert!(entries.each.is_empty() && entries.numbers.is_empty());
    }
}

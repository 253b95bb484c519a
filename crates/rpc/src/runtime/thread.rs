//! A request thread: connections, the mail for them, and the clock.

use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use contain::{Contained, contain};
use slab::Slab;
use tokio::sync::watch;
use tokio::time::Sleep;

use super::arrival::Arrival;
use super::due::{Due, Pace};
use super::greeting::{Greeting, Protocol};
use super::home::Seat;
use super::mailbox::{Closing, Mail};
use super::shared::{ConnectionWaker, Http1Guard, Shared};
use super::signal::Signal;
use crate::http2::connection::{Http2, Turn};
use crate::http2::stream::Event;
use crate::later::later;
use crate::{Limit, Peer, Serves, http1};

/// How often connections are looked at that do nothing by themselves.
const TICK: Duration = Duration::from_secs(1);
/// The same while the thread waits for its last connections.
const DRAIN_TICK: Duration = Duration::from_millis(20);

/// Everything a request thread does, as one task. Connections are not tasks of their own: their wake-ups and the answers for them
/// arrive by the same mailbox, so that a connection sees all that has gathered for it in one turn.
pub(crate) struct RequestThread {
    shared: Shared,
    connections: Slab<Connection>,
    /// Connections that are due for a turn.
    due: Due,
    mail: Vec<Mail>,
    serial: u64,
    timer: Pin<Box<Sleep>>,
    timer_at: Instant,
    next_tick: Instant,
    /// HTTP/1.1 connections, which are tasks of their own.
    http1: Arc<AtomicUsize>,
    /// Tells those tasks to finish.
    http1_stop: watch::Sender<bool>,
    /// Until when the thread still runs, once it was told to end.
    closing: Option<Closing>,
    /// What makes it known as this thread's home.
    _seat: Seat,
}

struct Connection {
    serial: u64,
    wake: Arc<ConnectionWaker>,
    waker: Waker,
    /// It is in the list of those due.
    due: bool,
    pace: Pace,
    state: State,
}

enum State {
    Greeting(Greeting),
    Http2(Box<Http2>),
}

/// How a turn of a connection ended.
enum Passed {
    Turn(Turn),
    /// It speaks HTTP/1.1.
    Http1(http1::Stream, Peer),
}

impl Connection {
    fn turn(&mut self, key: usize, shared: &mut Shared) -> Passed {
        if let State::Greeting(greeting) = &mut self.state {
            self.wake.arm();
            let mut cx = Context::from_waker(&self.waker);
            let peer = greeting.peer.clone();
            let http2 = match greeting.poll(&mut cx) {
                Poll::Pending => return Passed::Turn(Turn::Idle),
                Poll::Ready(Ok(Protocol::Http2(stream, seen))) => {
                    Http2::new(stream, &seen, key, peer, greeting.serves, shared)
                }
                // There is no gRPC over it.
                Poll::Ready(Ok(Protocol::Http1(..))) if greeting.serves == Serves::Grpc => None,
                Poll::Ready(Ok(Protocol::Http1(stream, seen))) => {
                    return Passed::Http1(http1::Stream::new(stream, seen, shared.options.write_timeout), peer);
                }
                Poll::Ready(Err(_)) => None,
            };
            let Some(http2) = http2 else { return Passed::Turn(Turn::Closed) };
            self.state = State::Http2(Box::new(http2));
        }
        match &mut self.state {
            State::Http2(http2) => Passed::Turn(http2.turn(shared, &self.wake, &self.waker)),
            State::Greeting(_) => Passed::Turn(Turn::Idle),
        }
    }

    /// Checks time limits. False if the connection is to be dropped.
    fn tick(&mut self, shared: &Shared, closing: Option<Closing>) -> bool {
        let now = shared.now;
        match &mut self.state {
            State::Greeting(greeting) => {
                let in_time = now.duration_since(greeting.since) < shared.options.handshake_timeout;
                if !in_time {
                    shared.stats.hit(Limit::Handshake);
                }
                in_time && closing.is_none()
            }
            State::Http2(http2) => {
                let is_idle_over = closing.is_some_and(|closing| now >= closing.idle_at);
                http2.tick(shared, &self.waker) && (!is_idle_over || http2.is_answering(now))
            }
        }
    }
}

impl RequestThread {
    /// To be called within the thread's runtime.
    pub(crate) fn new(shared: Shared) -> RequestThread {
        let now = shared.now;
        let (http1_stop, _) = watch::channel(false);
        let seat = Seat::take(&shared.mailbox);
        RequestThread {
            shared,
            connections: Slab::new(),
            due: Due::default(),
            mail: Vec::new(),
            serial: 0,
            timer: Box::pin(tokio::time::sleep_until(later(now, TICK).into())),
            timer_at: later(now, TICK),
            next_tick: later(now, TICK),
            http1: Arc::new(AtomicUsize::new(0)),
            http1_stop,
            closing: None,
            _seat: seat,
        }
    }

    /// Says when the first of the answers came, and how many there were.
    fn read_mail(&mut self) -> (Option<Instant>, u64) {
        let mut mail = std::mem::take(&mut self.mail);
        let mut answered = self.shared.mailbox.take(&mut mail);
        let (mut answers, has_worked) = self.read(&mut mail);
        if has_worked {
            // What was answered by that goes out in the same turn.
            let since = self.shared.mailbox.take(&mut mail);
            answered = answered.or(since);
            answers = answers.saturating_add(self.read(&mut mail).0);
            // The next turn is not what took this time.
            self.shared.now = Instant::now();
        }
        self.mail = mail;
        (answered, answers)
    }

    /// How many answers there were, and whether there was work.
    fn read(&mut self, mail: &mut Vec<Mail>) -> (u64, bool) {
        let (mut answers, mut has_worked) = (0_u64, false);
        for mail in mail.drain(..) {
            match mail {
                Mail::Connection(arrival) => self.welcome(arrival),
                Mail::Ready { key, serial } => {
                    if self.connections.get(key).is_some_and(|connection| connection.serial == serial) {
                        self.make_due(key);
                    }
                }
                Mail::Wake(signal) => self.notify(signal, Event::Wake),
                Mail::Answer(signal, answer) => {
                    answers = answers.saturating_add(1);
                    self.notify(signal, Event::Answer(answer));
                }
                Mail::Resume(signal, resume) => self.notify(signal, Event::Resume(resume)),
                Mail::Work(work) => {
                    work();
                    has_worked = true;
                }
                Mail::Shutdown(closing) => self.drain(closing),
            }
        }
        (answers, has_worked)
    }

    fn welcome(&mut self, arrival: Arrival) {
        self.shared.stats.arrivals.fetch_sub(1, Ordering::Relaxed);
        let (ahead, peer, serves) = (arrival.ahead, arrival.peer.clone(), arrival.serves);
        let (Ok(stream), None) = (arrival.into_stream(), self.closing) else {
            self.shared.stats.open.fetch_sub(1, Ordering::Relaxed);
            return;
        };
        self.shared.stats.accepted.add(1);
        self.serial = self.serial.wrapping_add(1);
        let entry = self.connections.vacant_entry();
        let key = entry.key();
        let wake = Arc::new(ConnectionWaker::new(self.shared.mailbox.clone(), key, self.serial));
        let waker = Waker::from(wake.clone());
        let state = State::Greeting(Greeting::new(stream, ahead, peer, serves, self.shared.now));
        entry.insert(Connection { serial: self.serial, wake, waker, due: false, pace: Pace::default(), state });
        self.make_due(key);
    }

    fn notify(&mut self, signal: Arc<Signal>, event: Event) {
        if signal.is_ended() {
            return;
        }
        let key = signal.connection();
        if let Some(Connection { state: State::Http2(http2), .. }) = self.connections.get_mut(key) {
            http2.notify(signal, event);
            self.make_due(key);
        }
    }

    fn make_due(&mut self, key: usize) {
        if let Some(connection) = self.connections.get_mut(key)
            && !connection.due
        {
            connection.due = true;
            self.due.add(key, connection.pace);
        }
    }

    /// Gives those their turns that are due, until it is time to look at sockets and mail.
    fn pass(&mut self) {
        let mut pass = self.due.pass(self.shared.now);
        while let Some(key) = self.due.next(&mut pass, self.shared.now) {
            self.turn(key);
        }
    }

    fn turn(&mut self, key: usize) {
        // A connection that is gone gets no turn.
        let Some(connection) = self.connections.get_mut(key) else { return };
        connection.due = false;
        let began = self.shared.now;
        let shared = &mut self.shared;
        // What a panic leaves half done is the connection's: what it counts for elsewhere is taken back by `Http2::abandon`.
        let passed = contain(|| connection.turn(key, shared)).unwrap_or(Passed::Turn(Turn::Closed));
        shared.now = Instant::now();
        connection.pace.note(shared.now.saturating_duration_since(began));
        match passed {
            Passed::Turn(Turn::Idle) => {}
            Passed::Turn(Turn::Again) => self.make_due(key),
            Passed::Turn(Turn::Closed) => self.close(key),
            Passed::Http1(stream, peer) => self.begin_http1(key, stream, peer),
        }
    }

    fn close(&mut self, key: usize) {
        if let State::Http2(mut http2) = self.connections.remove(key).state {
            http2.abandon(&self.shared);
        }
        self.shared.stats.open.fetch_sub(1, Ordering::Relaxed);
    }

    /// Hands a connection to a task of its own. It stays open for the statistics.
    fn begin_http1(&mut self, key: usize, stream: http1::Stream, peer: Peer) {
        self.connections.remove(key);
        let serving = http1::Serving {
            service: self.shared.service.clone(),
            options: self.shared.options.clone(),
            account: self.shared.gathering.of(&peer.address),
            peer,
            guard: Arc::new(Http1Guard::new(self.http1.clone(), self.shared.stats.clone())),
        };
        tokio::spawn(Contained::new(http1::serve(stream, serving, self.http1_stop.subscribe())));
    }

    fn expire(&mut self) {
        while let Some(signal) = self.shared.deadlines.pop(self.shared.now) {
            self.notify(signal, Event::Expired);
        }
    }

    fn tick(&mut self) {
        let now = self.shared.now;
        self.next_tick = later(now, if self.closing.is_some() { DRAIN_TICK } else { TICK });
        let mut lost = Vec::new();
        for (key, connection) in &mut self.connections {
            if !contain(|| connection.tick(&self.shared, self.closing)).unwrap_or(false) {
                lost.push(key);
            }
        }
        for key in lost {
            self.due.remove(key);
            self.close(key);
        }
    }

    fn drain(&mut self, closing: Closing) {
        self.closing = Some(closing);
        self.next_tick = self.shared.now;
        self.http1_stop.send_replace(true);
        let mut keys = Vec::with_capacity(self.connections.len());
        for (key, connection) in &mut self.connections {
            if let State::Http2(http2) = &mut connection.state {
                http2.drain(self.shared.now);
                keys.push(key);
            }
        }
        keys.into_iter().for_each(|key| self.make_due(key));
    }

    fn is_over(&self) -> bool {
        let Some(Closing { idle_at, end_at }) = self.closing else { return false };
        let now = self.shared.now;
        let is_empty = self.connections.is_empty() && (now >= idle_at || self.http1.load(Ordering::Relaxed) == 0);
        is_empty || now >= end_at
    }

    /// Sets the timer for what comes next and reports whether that time has come.
    fn poll_timer(&mut self, cx: &mut Context<'_>) -> bool {
        let mut at = self.next_tick;
        if let Some(deadline) = self.shared.deadlines.next() {
            at = at.min(deadline);
        }
        if at != self.timer_at {
            self.timer_at = at;
            self.timer.as_mut().reset(at.into());
        }
        self.timer.as_mut().poll(cx).is_ready()
    }
}

impl Future for RequestThread {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = &mut *self;
        this.shared.now = Instant::now();
        let (answered, answers) = this.read_mail();
        this.expire();
        if this.shared.now >= this.next_tick {
            this.tick();
        }
        this.pass();
        if let Some(answered) = answered {
            this.shared.service.sent(answers, answered.elapsed());
        }
        if this.is_over() {
            let keys: Vec<usize> = this.connections.iter().map(|(key, _)| key).collect();
            keys.into_iter().for_each(|key| this.close(key));
            this.shared.mailbox.close();
            return Poll::Ready(());
        }
        if this.due.is_empty() && !this.poll_timer(cx) && this.shared.mailbox.sleep(cx.waker()) {
            return Poll::Pending;
        }
        // There is more to do, but the sockets are looked at first.
        let _ = pin!(tokio::task::yield_now()).poll(cx);
        Poll::Pending
    }
}

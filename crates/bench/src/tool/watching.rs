//! Watchers on streams: opens them, and tells of what they hear.

use std::cell::RefCell;
use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Instant;

use rpc::Status;
use rpc::client::{Broken, CallKey, Calls, Link, Release};
use tokio::task::JoinSet;

use super::failure::{Failure, Outcome};
use super::session::Session;
use crate::cutter::Cutter;
use crate::interrupt::interrupt;
use crate::link::SharedRoom;
use crate::meter::told;
use crate::pass::Pass;
use crate::seeker::Seeker;
use crate::socket::Socket;
use crate::wire::{self, Value, put_bytes, put_message, put_number};

/// So many watchers are the most.
const WATCHERS_MAX: i64 = 1 << 22;

/// What is to be watched.
#[derive(Clone, Debug, Default)]
pub(crate) struct Order {
    /// Watchers go round them.
    pub(crate) keys: Vec<Vec<u8>>,
    pub(crate) streams: usize,
    pub(crate) watchers: usize,
    /// Events from this revision on; 0: from now on.
    pub(crate) from_revision: i64,
    pub(crate) prev_kv: bool,
    /// All watchers of a stream are asked for at once, not one behind the other.
    pub(crate) at_once: bool,
}

/// Who is told of watchers, by their numbers.
pub(crate) trait Audience {
    /// A watcher that was asked for at `since` exists.
    fn created(&mut self, since: Instant, now: Instant);

    /// So many events have come for a watcher, by `now`.
    fn events(&mut self, watcher: usize, count: u64, now: Instant);
}

/// A number of streams or watchers that can be.
pub(crate) fn count(flag: &str, number: i64) -> Outcome<usize> {
    if !(0..=WATCHERS_MAX).contains(&number) {
        return Err(Failure::new(format!("expected --{flag} between 0 and {WATCHERS_MAX}, got ({number})")));
    }
    Ok(number as usize)
}

/// Opens the streams of an order: on as many connections as clients have.
pub(crate) async fn open<A: Audience + 'static>(
    session: &Session<'_>,
    order: &Order,
    audience: &Rc<RefCell<A>>,
) -> Outcome<Vec<WatchLane<A>>> {
    let room = SharedRoom::default();
    // Without watchers nobody is to be asked.
    let streams = if order.watchers == 0 { 0 } else { order.streams };
    let connections = session.connections().min(session.clients()).min(streams);
    let pass = Rc::new(Pass::new(&session.metadata(), None));
    let seeker = Seeker::new(session.places(), &room, session.patience(), &pass);
    let mut lanes = Vec::new();
    for number in 0..connections {
        let (mut link, found) = seeker.seek(number % session.places().len()).await;
        let place = &session.places()[found];
        let mut head = place.head("/etcdserverpb.Watch/Watch").with_metadata(session.metadata());
        let mut streams = Vec::new();
        for stream in (number..order.streams).step_by(connections) {
            let opened = link.connection.open(&mut head, None, streams.len(), Release::AtOnce);
            let call =
                opened.map_err(|why| Failure::new(format!("{} takes no more streams: {why:?}", place.address)))?;
            let watchers = (stream..order.watchers).step_by(order.streams).collect();
            streams.push(Stream { call, cutter: Cutter::default(), watchers, asked: 0, since: Instant::now() });
        }
        let hearing =
            Hearing { streams, audience: audience.clone(), to_ask: Vec::new(), ended: None, now: Instant::now() };
        lanes.push(WatchLane { link, hearing, room: room.clone(), order: order.clone(), message: Vec::new() });
    }
    for lane in &mut lanes {
        lane.begin();
    }
    Ok(lanes)
}

/// Runs lanes beside `work` until that is done, or somebody has enough of it by Ctrl-C. A lane that fails ends both.
pub(crate) async fn attend<A: Audience + 'static>(
    lanes: Vec<WatchLane<A>>,
    work: impl Future<Output = Outcome>,
) -> Outcome {
    let mut running = JoinSet::new();
    for mut lane in lanes {
        running.spawn_local(async move { poll_fn(|cx| lane.poll(cx)).await });
    }
    let failing = async {
        match running.join_next().await {
            Some(Ok(failure)) => failure,
            Some(Err(error)) => Failure::new(error.to_string()),
            // There is nobody to fail.
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        outcome = work => outcome,
        failure = failing => Err(failure),
        _ = tokio::signal::ctrl_c() => {
            interrupt();
            Ok(())
        }
    }
}

/// A connection and its watch streams.
pub(crate) struct WatchLane<A: Audience> {
    link: Link<Socket>,
    hearing: Hearing<A>,
    room: SharedRoom,
    order: Order,
    message: Vec<u8>,
}

struct Hearing<A: Audience> {
    streams: Vec<Stream>,
    audience: Rc<RefCell<A>>,
    /// Streams whose next watcher can be asked for.
    to_ask: Vec<usize>,
    ended: Option<Status>,
    /// The beginning of this turn.
    now: Instant,
}

struct Stream {
    call: CallKey,
    cutter: Cutter,
    /// The numbers of its watchers. On the stream they are counted from 1.
    watchers: Vec<usize>,
    /// How many of them were asked for.
    asked: usize,
    /// When the last one was.
    since: Instant,
}

impl<A: Audience> Calls for Hearing<A> {
    fn data(&mut self, tag: usize, data: &[u8]) {
        let Hearing { streams, audience, to_ask, ended, now } = self;
        let Stream { cutter, watchers, since, .. } = &mut streams[tag];
        cutter.push(data, |message| match heard(message) {
            Some(Heard { canceled: Some(reason), .. }) => {
                let text = if reason.is_empty() { "a watch was canceled".into() } else { reason };
                ended.get_or_insert(Status::new(api::Code::Unknown, text));
            }
            Some(Heard { created: true, .. }) => {
                audience.borrow_mut().created(*since, *now);
                to_ask.push(tag);
            }
            Some(Heard { id, events, .. }) => {
                if let Some(&watcher) = watchers.get((id as usize).wrapping_sub(1)) {
                    audience.borrow_mut().events(watcher, events, *now);
                }
            }
            None => {
                ended.get_or_insert(Status::new(api::Code::Internal, "an answer that is no WatchResponse"));
            }
        });
    }

    fn end(&mut self, _: usize, status: Status) {
        let ended = Status::new(api::Code::Unknown, "a watch has ended by itself");
        self.ended.get_or_insert(if status == Status::OK { ended } else { status });
    }
}

impl<A: Audience> WatchLane<A> {
    /// Asks for the first watchers.
    fn begin(&mut self) {
        for stream in 0..self.hearing.streams.len() {
            let all = if self.order.at_once { self.hearing.streams[stream].watchers.len() } else { 1 };
            (0..all).for_each(|_| self.ask(stream));
        }
    }

    /// Asks for the next watcher of a stream, if there is one.
    fn ask(&mut self, number: usize) {
        let stream = &mut self.hearing.streams[number];
        let Some(&watcher) = stream.watchers.get(stream.asked) else { return };
        stream.asked += 1;
        stream.since = Instant::now();
        let mut create = Vec::new();
        put_bytes(&mut create, 1, &self.order.keys[watcher % self.order.keys.len()]);
        put_number(&mut create, 3, self.order.from_revision as u64);
        put_number(&mut create, 6, u64::from(self.order.prev_kv));
        put_number(&mut create, 7, stream.asked as u64);
        self.message.clear();
        put_message(&mut self.message, 1, &create);
        self.link.connection.send(stream.call, &self.message, false);
    }

    /// One turn. Ready when there is no going on.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Failure> {
        let lost = |status: &Status| Poll::Ready(Failure::new(format!("a watch has ended: {}", told(status))));
        self.hearing.now = Instant::now();
        if let Err(broken) = self.link.read(cx, &mut self.room.borrow_mut(), &mut self.hearing) {
            return lost(&Status::from(&broken));
        }
        if !self.order.at_once {
            for stream in std::mem::take(&mut self.hearing.to_ask) {
                self.ask(stream);
            }
        }
        if let Poll::Ready(Err(error)) = self.link.flush(cx) {
            return lost(&Status::from(&Broken::Io(error)));
        }
        match &self.hearing.ended {
            Some(status) => lost(status),
            None => Poll::Pending,
        }
    }
}

/// What a WatchResponse says.
struct Heard {
    id: u64,
    created: bool,
    canceled: Option<String>,
    events: u64,
}

fn heard(message: &[u8]) -> Option<Heard> {
    let mut heard = Heard { id: 0, created: false, canceled: None, events: 0 };
    let mut reason = String::new();
    let mut is_canceled = false;
    let whole = wire::fields(message, |field, value| match (field, value) {
        (2, Value::Number(id)) => heard.id = id,
        (3, Value::Number(flag)) => heard.created = flag != 0,
        (4, Value::Number(flag)) => is_canceled = flag != 0,
        (6, Value::Bytes(text)) => reason = String::from_utf8_lossy(text).into_owned(),
        (11, Value::Bytes(_)) => heard.events += 1,
        _ => {}
    });
    heard.canceled = is_canceled.then_some(reason);
    whole.then_some(heard)
}

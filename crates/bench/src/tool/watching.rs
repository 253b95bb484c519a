//! Watchers on streams: opens them, and tells of what they hear.

use std::cell::RefCell;
use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use rpc::Status;
use rpc::client::{Broken, CallKey, Calls, Link, Release};
use tokio::task::JoinSet;

use super::failure::{Failure, Outcome};
use super::session::Session;
use crate::cutter::Cutter;
use crate::interrupt::{Interruptions, is_interrupted};
use crate::link::SharedBuffer;
use crate::meter::told;
use crate::pass::Pass;
use crate::seeker::{PAUSE, PAUSE_MAX, Seeker, Seeking};
use crate::socket::Socket;
use crate::wire::{self, Value};
use api::varint::{put_bytes, put_nonempty, put_nonzero};

/// Limit of watchers.
const WATCHERS_MAX: i64 = 1 << 22;

/// The watchers to create.
#[derive(Clone, Debug, Default)]
pub(crate) struct Order {
    /// The watched keys, in rotation over the watchers.
    pub(crate) keys: Vec<Vec<u8>>,
    pub(crate) streams: usize,
    pub(crate) watchers: usize,
    /// Events from this revision on; 0: from now on.
    pub(crate) from_revision: i64,
    pub(crate) prev_kv: bool,
    /// Whether all watchers of a stream are requested at once, and not one after the other.
    pub(crate) at_once: bool,
}

/// Receives the news about watchers, by their numbers.
pub(crate) trait Audience {
    /// A watcher that was requested at `since` exists.
    fn created(&mut self, since: Instant, now: Instant);

    /// `count` events have arrived for a watcher by `now`.
    fn events(&mut self, watcher: usize, count: u64, now: Instant);
}

/// Checks a number of streams or watchers.
pub(crate) fn count(flag: &str, number: i64) -> Outcome<usize> {
    if !(0..=WATCHERS_MAX).contains(&number) {
        return Err(Failure::new(format!("expected --{flag} between 0 and {WATCHERS_MAX}, got ({number})")));
    }
    Ok(number as usize)
}

/// Opens the streams of an order, on all connections of the clients.
pub(crate) async fn open<A: Audience + 'static>(
    session: &Session<'_>,
    order: &Order,
    audience: &Rc<RefCell<A>>,
) -> Outcome<Vec<WatchLane<A>>> {
    let buffer = SharedBuffer::default();
    // Without watchers, no stream is opened.
    let streams = if order.watchers == 0 { 0 } else { order.streams };
    let connections = session.connections().min(session.clients()).min(streams);
    let pass = Rc::new(Pass::new(&session.metadata(), session.user()));
    let seeker = Rc::new(Seeker::new(session.places(), &buffer, session.patience(), &pass));
    let mut interruptions = listen()?;
    let mut lanes = Vec::new();
    for number in 0..connections {
        let (link, place) = tokio::select! {
            found = seeker.seek(number % session.places().len()) => found,
            () = interruptions.next() => return Err(Failure::new("interrupted")),
        };
        let stream = |stream: usize| Stream {
            call: None,
            cutter: Cutter::default(),
            watchers: (stream..order.watchers)
                .step_by(order.streams)
                .map(|number| Watcher { number, next: 0 })
                .collect(),
            asked: 0,
            since: Instant::now(),
        };
        let hearing = Hearing {
            streams: (number..order.streams).step_by(connections).map(stream).collect(),
            audience: audience.clone(),
            to_ask: Vec::new(),
            from_revision: order.from_revision as u64,
            ended: None,
            now: Instant::now(),
        };
        lanes.push(WatchLane {
            link,
            seeking: None,
            place,
            since: Instant::now(),
            pause: Duration::ZERO,
            seeker: seeker.clone(),
            pass: pass.clone(),
            hearing,
            buffer: buffer.clone(),
            order: order.clone(),
            message: Vec::new(),
        });
    }
    for lane in &mut lanes {
        lane.open_streams()?;
        lane.begin();
    }
    Ok(lanes)
}

/// Listens for Ctrl-C from now on.
pub(crate) fn listen() -> Outcome<Interruptions> {
    Interruptions::listen().map_err(|error| Failure::new(format!("cannot wait for signals: {error}")))
}

/// Runs lanes together with `work` until `work` is done or the user presses Ctrl-C. A lane that fails ends both.
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
            // Without lanes, none can fail.
            None => std::future::pending().await,
        }
    };
    let mut interruptions = listen()?;
    if is_interrupted() {
        return Ok(());
    }
    tokio::select! {
        outcome = work => outcome,
        failure = failing => Err(failure),
        () = interruptions.next() => Ok(()),
    }
}

/// A connection and its watch streams.
pub(crate) struct WatchLane<A: Audience> {
    link: Link<Socket>,
    /// The new connection, after the old one was lost.
    seeking: Option<Seeking>,
    /// Number of the place to which the connection goes.
    place: usize,
    /// When its watches were opened.
    since: Instant,
    /// The pause before the last attempt to reconnect.
    pause: Duration,
    seeker: Rc<Seeker>,
    pass: Rc<Pass>,
    hearing: Hearing<A>,
    buffer: SharedBuffer,
    order: Order,
    message: Vec<u8>,
}

struct Hearing<A: Audience> {
    streams: Vec<Stream>,
    audience: Rc<RefCell<A>>,
    /// Streams whose next watcher can be requested.
    to_ask: Vec<usize>,
    /// The first revision of watchers that get past events; 0 for others.
    from_revision: u64,
    ended: Option<Ending>,
    /// The time at the beginning of this turn.
    now: Instant,
}

/// Why a connection of watchers has ended.
enum Ending {
    /// The connection is lost: the watchers resume on another one.
    Lost(Status),
    /// The server refuses the watchers.
    Refused(Status),
}

struct Stream {
    /// `None` before the stream is opened for the first time.
    call: Option<CallKey>,
    cutter: Cutter,
    /// The watchers; their watch ids on the stream begin with 1.
    watchers: Vec<Watcher>,
    /// How many of the watchers were requested.
    asked: usize,
    /// When the last watcher was requested.
    since: Instant,
}

struct Watcher {
    number: usize,
    /// The first revision whose events the watcher does not have yet; 0 if the watcher does not exist yet.
    next: u64,
}

impl<A: Audience> Calls for Hearing<A> {
    fn data(&mut self, tag: usize, data: &[u8]) {
        let Hearing { streams, audience, to_ask, from_revision, ended, now } = self;
        let Stream { cutter, watchers, since, .. } = &mut streams[tag];
        cutter.push(data, |message| match heard(message) {
            Some(Heard { canceled: Some(reason), .. }) => {
                let text = if reason.is_empty() { "a watch was canceled".into() } else { reason };
                ended.get_or_insert(Ending::Refused(Status::new(api::Code::Unknown, text)));
            }
            Some(Heard { id, created, revision, events, first, last, .. }) => {
                let Some(watcher) = watchers.get_mut((id as usize).wrapping_sub(1)) else { return };
                if created && watcher.next == 0 {
                    watcher.next = if *from_revision > 0 { *from_revision } else { revision + 1 };
                    audience.borrow_mut().created(*since, *now);
                    to_ask.push(tag);
                }
                if events > 0 {
                    // An event that is counted twice would hide one that is missing.
                    if first < watcher.next {
                        let text =
                            format!("an event of revision {first} came, and nothing before {} was due", watcher.next);
                        ended.get_or_insert(Ending::Refused(Status::new(api::Code::Internal, text)));
                        return;
                    }
                    watcher.next = last + 1;
                    audience.borrow_mut().events(watcher.number, events, *now);
                }
            }
            None => {
                let status = Status::new(api::Code::Internal, "an answer that is no WatchResponse");
                ended.get_or_insert(Ending::Refused(status));
            }
        });
    }

    fn end(&mut self, _: usize, status: Status) {
        self.ended.get_or_insert(match status.code {
            _ if status == Status::OK => Ending::Lost(Status::new(api::Code::Unknown, "a watch has ended by itself")),
            api::Code::Unavailable | api::Code::Internal | api::Code::Unauthenticated => Ending::Lost(status),
            _ => Ending::Refused(status),
        });
    }
}

impl<A: Audience> WatchLane<A> {
    /// Requests the first watchers.
    fn begin(&mut self) {
        for stream in 0..self.hearing.streams.len() {
            let all = if self.order.at_once { self.hearing.streams[stream].watchers.len() } else { 1 };
            (0..all).for_each(|_| self.ask(stream));
        }
    }

    /// Opens the streams on a new connection.
    fn open_streams(&mut self) -> Outcome {
        let place = &self.seeker.places[self.place];
        let mut head = place.head("/etcdserverpb.Watch/Watch").with_metadata(self.pass.metadata());
        for (number, stream) in self.hearing.streams.iter_mut().enumerate() {
            let opened = self.link.connection.open(&mut head, None, number, Release::AtOnce);
            let refused = |why| Failure::new(format!("{} takes no more streams: {why:?}", place.address));
            (stream.call, stream.cutter) = (Some(opened.map_err(refused)?), Cutter::default());
        }
        Ok(())
    }

    /// Requests the next watcher of a stream, if there is one.
    fn ask(&mut self, number: usize) {
        let stream = &mut self.hearing.streams[number];
        if stream.asked < stream.watchers.len() {
            stream.asked += 1;
            stream.since = Instant::now();
            let last = stream.asked - 1;
            self.create(number, last);
        }
    }

    /// Requests a watcher of a stream. A watcher that existed before resumes behind its last event.
    fn create(&mut self, number: usize, index: usize) {
        let stream = &self.hearing.streams[number];
        let (Some(call), Watcher { number, next }) = (stream.call, &stream.watchers[index]) else { return };
        let from = if *next > 0 { *next } else { self.hearing.from_revision };
        let mut create = Vec::new();
        put_nonempty(&mut create, 1, &self.order.keys[number % self.order.keys.len()]);
        put_nonzero(&mut create, 3, from);
        put_nonzero(&mut create, 6, u64::from(self.order.prev_kv));
        put_nonzero(&mut create, 7, index as u64 + 1);
        self.message.clear();
        put_bytes(&mut self.message, 1, &create);
        self.link.connection.send(call, &self.message, false);
    }

    /// Begins to look for another connection.
    fn seek(&mut self, why: &Status, cx: &mut Context<'_>) -> Poll<Failure> {
        self.seeker.tell(&format!("watches are lost, and are resumed: {}", told(why)));
        // A server may end watches each time they are resumed, hence the growing pause.
        let is_steady = self.since.elapsed() > PAUSE_MAX;
        self.pause = if is_steady { PAUSE } else { (2 * self.pause).clamp(PAUSE, PAUSE_MAX) };
        let (seeker, pass, place, pause) = (self.seeker.clone(), self.pass.number(), self.place, self.pause);
        self.seeking = Some(Box::pin(async move {
            tokio::time::sleep(pause).await;
            let (link, place) = seeker.seek(place).await;
            // A restarted server knows no tokens.
            seeker.renew(pass, place).await;
            (link, place)
        }));
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    /// Resumes all watchers on a new connection.
    fn resume(&mut self, link: Link<Socket>, place: usize) -> Outcome {
        (self.link, self.place, self.seeking, self.hearing.ended) = (link, place, None, None);
        self.since = Instant::now();
        self.open_streams()?;
        for stream in 0..self.hearing.streams.len() {
            (0..self.hearing.streams[stream].asked).for_each(|index| self.create(stream, index));
        }
        Ok(())
    }

    /// One turn. Ready when the lane has failed for good.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Failure> {
        if let Some(seeking) = &mut self.seeking {
            let Poll::Ready((link, place)) = seeking.as_mut().poll(cx) else { return Poll::Pending };
            if let Err(failure) = self.resume(link, place) {
                return Poll::Ready(failure);
            }
        }
        self.hearing.now = Instant::now();
        let read = self.link.read(cx, &mut self.buffer.borrow_mut(), &mut self.hearing);
        if let Err(broken) = read {
            return self.seek(&Status::from(&broken), cx);
        }
        for stream in std::mem::take(&mut self.hearing.to_ask) {
            self.ask(stream);
        }
        if let Poll::Ready(Err(error)) = self.link.flush(cx) {
            return self.seek(&Status::from(&Broken::Io(error)), cx);
        }
        match self.hearing.ended.take() {
            Some(Ending::Lost(status)) => self.seek(&status, cx),
            Some(Ending::Refused(status)) => Poll::Ready(Failure::new(format!("a watch has ended: {}", told(&status)))),
            None => Poll::Pending,
        }
    }
}

/// The content of a WatchResponse.
struct Heard {
    id: u64,
    created: bool,
    canceled: Option<String>,
    /// The store's revision when the response was sent.
    revision: u64,
    events: u64,
    /// The revisions of the first event and of the last one.
    first: u64,
    last: u64,
}

fn heard(message: &[u8]) -> Option<Heard> {
    let mut heard = Heard { id: 0, created: false, canceled: None, revision: 0, events: 0, first: 0, last: 0 };
    let (mut header, mut first, mut last) = (None, None, None);
    let mut reason = String::new();
    let mut is_canceled = false;
    let whole = wire::fields(message, |field, value| match (field, value) {
        (1, Value::Bytes(bytes)) => header = Some(bytes),
        (2, Value::Number(id)) => heard.id = id,
        (3, Value::Number(flag)) => heard.created = flag != 0,
        (4, Value::Number(flag)) => is_canceled = flag != 0,
        (6, Value::Bytes(text)) => reason = String::from_utf8_lossy(text).into_owned(),
        (11, Value::Bytes(bytes)) => {
            heard.events += 1;
            first = first.or(Some(bytes));
            last = Some(bytes);
        }
        _ => {}
    });
    heard.canceled = is_canceled.then_some(reason);
    heard.revision = wire::number(header.unwrap_or_default(), 3)?;
    // Events are in order.
    heard.first = changed_at(first.unwrap_or_default())?;
    heard.last = if heard.events > 1 { changed_at(last.unwrap_or_default())? } else { heard.first };
    whole.then_some(heard)
}

/// The revision of an event.
fn changed_at(event: &[u8]) -> Option<u64> {
    let mut kv = None;
    let whole = wire::fields(event, |field, value| {
        if let (2, Value::Bytes(bytes)) = (field, value) {
            kv = Some(bytes);
        }
    });
    wire::number(kv.unwrap_or_default(), 3).filter(|_| whole)
}

#[cfg(test)]
mod tests {
    use super::*;
    use api::Message;
    use api::etcdserverpb::{ResponseHeader, WatchResponse};
    use api::mvccpb::{Event, KeyValue};

    #[test]
    fn watchers_know_where_they_are() {
        let event = |mod_revision| Event {
            kv: Some(KeyValue { key: "k".into(), mod_revision, ..KeyValue::default() }),
            ..Event::default()
        };
        let header = Some(ResponseHeader { revision: 9, ..ResponseHeader::default() });
        let events = vec![event(5), event(7), event(7)];
        let response = WatchResponse { header, watch_id: 3, events, ..WatchResponse::default() };
        let told = heard(&response.encode_to_vec()).expect("a response");
        assert_eq!((told.id, told.revision, told.events, told.first, told.last), (3, 9, 3, 5, 7));
        let told = heard(&WatchResponse { events: Vec::new(), created: true, ..response }.encode_to_vec());
        assert!(told.is_some_and(|told| told.created && told.revision == 9 && told.last == 0));
        assert!(heard(&[1]).is_none());
    }

    /// Counts the news that it gets.
    #[derive(Default)]
    struct Tally {
        created: usize,
        events: Vec<(usize, u64)>,
    }

    impl Audience for Tally {
        fn created(&mut self, _: Instant, _: Instant) {
            self.created += 1;
        }

        fn events(&mut self, watcher: usize, count: u64, _: Instant) {
            self.events.push((watcher, count));
        }
    }

    #[test]
    fn no_event_stands_for_another() {
        let audience = Rc::<RefCell<Tally>>::default();
        let stream = Stream {
            call: None,
            cutter: Cutter::default(),
            watchers: [5, 6].map(|number| Watcher { number, next: 0 }).into(),
            asked: 2,
            since: Instant::now(),
        };
        let mut hearing = Hearing {
            streams: vec![stream],
            audience: audience.clone(),
            to_ask: Vec::new(),
            from_revision: 0,
            ended: None,
            now: Instant::now(),
        };
        let mut hear = |watch_id, created, revision, events: &[i64]| {
            let event = |&mod_revision: &i64| Event {
                kv: Some(KeyValue { mod_revision, ..KeyValue::default() }),
                ..Event::default()
            };
            let header = Some(ResponseHeader { revision, ..ResponseHeader::default() });
            let events = events.iter().map(event).collect();
            let message = WatchResponse { header, watch_id, created, events, ..WatchResponse::default() };
            let message = message.encode_to_vec();
            let mut framed = vec![0];
            framed.extend_from_slice(&(message.len() as u32).to_be_bytes());
            framed.extend_from_slice(&message);
            hearing.data(0, &framed);
            let next = [0, 1].map(|index| hearing.streams[0].watchers[index].next);
            (next, hearing.to_ask.len(), matches!(hearing.ended, Some(Ending::Refused(_))))
        };
        assert_eq!(hear(1, true, 9, &[]), ([10, 0], 1, false));
        assert_eq!(hear(2, true, 10, &[]), ([10, 11], 2, false));
        assert_eq!(hear(1, false, 12, &[10, 12]), ([13, 11], 2, false));
        // The watcher was created again after a loss, and still gets every event.
        assert_eq!(hear(2, true, 20, &[]), ([13, 11], 2, false));
        assert_eq!(hear(2, false, 20, &[12]), ([13, 13], 2, false));
        assert_eq!(hear(1, false, 20, &[12, 13]), ([13, 13], 2, true));
        let tally = audience.borrow();
        assert_eq!((tally.created, &tally.events[..]), (2, &[(5, 2), (6, 1)][..]));
    }
}

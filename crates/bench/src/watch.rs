//! Many watchers of one key: every put is an event for each of them.

use std::cell::{Cell, RefCell};
use std::cmp::Ordering;
use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Instant;

use rpc::client::{Broken, CallKey, Calls, Link, Release};
use rpc::{Metadata, Status};
use tokio::task::JoinSet;

use crate::BenchError;
use crate::cutter::Cutter;
use crate::lane::{Lane, Thread, never};
use crate::link::{Place, SharedBuffer, block_on, connect};
use crate::meter::{Cost, Meter};
use crate::pass::Pass;
use crate::plain::Plain;
use crate::plan::{Load, Plan};
use crate::report::Report;
use crate::socket::Socket;
use crate::usage;
use crate::wire::{self, Value};
use api::varint::{put_bytes, put_nonempty, put_nonzero};

/// Runs the load: creates the watchers, then puts, and ends when every watcher has every event.
pub(crate) fn run(plan: &Plan) -> Result<Report, BenchError> {
    block_on(async {
        let buffer = SharedBuffer::default();
        let mut lanes = open(plan, &buffer).await?;
        for lane in &mut lanes {
            poll_fn(|cx| lane.poll(cx, &buffer, State::Created)).await?;
        }
        let puts = Plan { load: Load::Put, ..plan.clone() };
        let putters = Rc::new(Thread {
            work: RefCell::new(Plain::new(&puts, 0, 1)),
            meters: RefCell::new(vec![Meter::default()]),
            buffer: buffer.clone(),
            left: Cell::new(plan.puts),
            until: Cell::new(never(Instant::now())),
            under_way: vec![Cell::default()],
            request_bytes_max: usize::MAX,
            seeker: None,
            pass: Rc::new(Pass::new(&Metadata::default(), None)),
        });
        let place = plan.endpoints[0].into();
        let link = connect(&place, &buffer).await?;
        let mut lane = Lane::new(link, &place, 0, plan.put_streams, putters.clone());

        let (servers_before, own_before) = (usage::of(&plan.pids)?, usage::own());
        let began = Instant::now();
        let mut running = JoinSet::new();
        for mut watching in lanes {
            let buffer = buffer.clone();
            running.spawn_local(async move {
                let outcome = poll_fn(|cx| watching.poll(cx, &buffer, State::Complete)).await;
                (watching, outcome)
            });
        }
        let work = async {
            poll_fn(|cx| lane.poll(cx)).await;
            let mut ended = Vec::new();
            while let Some(joined) = running.join_next().await {
                let (watching, outcome) = joined.map_err(|error| BenchError::Server(error.to_string()))?;
                outcome?;
                ended.push(watching);
            }
            Ok::<_, BenchError>(ended)
        };
        let late = |_| BenchError::Server(format!("not every event has come within {:?}", plan.timeout));
        let lanes = tokio::time::timeout(plan.timeout, work).await.map_err(late)??;
        let cost = Cost {
            time: began.elapsed(),
            own_cpu: usage::own() - own_before,
            servers_cpu: usage::of(&plan.pids)? - servers_before,
        };
        let mut meter = putters.meters.take().swap_remove(0);
        count(&mut meter, &lanes, plan);
        Ok(Report::new(plan, &meter, cost))
    })
}

/// Replaces the counts of puts by those of events. Only the latencies of the puts are kept.
fn count(meter: &mut Meter, lanes: &[WatchLane], plan: &Plan) {
    let events = lanes.iter().flat_map(|lane| &lane.streams.each).flat_map(|stream| &stream.watchers);
    let came: u64 = events.map(|watcher| watcher.events).sum();
    meter.sent = plan.watchers as u64 * plan.puts;
    meter.succeeded = came;
    meter.items = came;
    meter.data_bytes = lanes.iter().map(|lane| lane.streams.data_bytes).sum();
    for why in lanes.iter().filter_map(|lane| lane.streams.wrong) {
        *meter.wrong.entry(why).or_default() += 1;
    }
}

async fn open(plan: &Plan, buffer: &SharedBuffer) -> Result<Vec<WatchLane>, BenchError> {
    let mut lanes = Vec::new();
    let connections = plan.connections.min(plan.streams);
    for number in 0..connections {
        let place = plan.endpoints[number % plan.endpoints.len()].into();
        let link = connect(&place, buffer).await?;
        let streams = (number..plan.streams).step_by(connections);
        let watchers: Vec<usize> =
            streams.map(|stream| (stream..plan.watchers).step_by(plan.streams).count()).collect();
        lanes.push(WatchLane::new(plan, link, &place, &watchers)?);
    }
    Ok(lanes)
}

/// A state that all watchers of a connection are to reach.
#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Created,
    Complete,
}

/// A connection and its watch streams.
struct WatchLane {
    link: Link<Socket>,
    streams: Streams,
}

struct Streams {
    key: Vec<u8>,
    seen: Seen,
    puts: u64,
    each: Vec<WatchStream>,
    created: usize,
    complete: usize,
    watchers: usize,
    data_bytes: u64,
    wrong: Option<&'static str>,
    ended: Option<Status>,
}

#[derive(Default)]
struct WatchStream {
    cutter: Cutter,
    /// Watcher n has the number n + 1.
    watchers: Vec<Watcher>,
}

#[derive(Clone, Default)]
struct Watcher {
    created: bool,
    events: u64,
    revision: u64,
}

impl WatchLane {
    fn new(plan: &Plan, link: Link<Socket>, place: &Place, watchers: &[usize]) -> Result<WatchLane, BenchError> {
        let mut link = link;
        let mut head = place.head("/etcdserverpb.Watch/Watch");
        let (mut create, mut message) = (Vec::new(), Vec::new());
        let mut each = Vec::new();
        for (tag, &count) in watchers.iter().enumerate() {
            let opened = link.connection.open(&mut head, None, tag, Release::AtOnce);
            let key: CallKey = opened
                .map_err(|why| BenchError::Server(format!("{} takes no more streams: {why:?}", place.address)))?;
            for number in 1..=count {
                create.clear();
                message.clear();
                put_nonempty(&mut create, 1, plan.key.as_bytes());
                put_nonzero(&mut create, 7, number as u64);
                put_bytes(&mut message, 1, &create);
                link.connection.send(key, &message, false);
            }
            each.push(WatchStream { watchers: vec![Watcher::default(); count], ..WatchStream::default() });
        }
        let streams = Streams {
            key: plan.key.clone().into_bytes(),
            seen: Seen::default(),
            puts: plan.puts,
            each,
            created: 0,
            complete: 0,
            watchers: watchers.iter().sum(),
            data_bytes: 0,
            wrong: None,
            ended: None,
        };
        Ok(WatchLane { link, streams })
    }

    /// One turn. Ready when all watchers have reached `state`, or never will.
    fn poll(&mut self, cx: &mut Context<'_>, buffer: &SharedBuffer, state: State) -> Poll<Result<(), BenchError>> {
        let broken = |broken: &Broken| Poll::Ready(Err(BenchError::Server(format!("a watch has ended: {broken}"))));
        if let Err(why) = self.link.read(cx, &mut buffer.borrow_mut(), &mut self.streams) {
            return broken(&why);
        }
        if let Poll::Ready(Err(error)) = self.link.flush(cx) {
            return broken(&Broken::Io(error));
        }
        if let Some(status) = &self.streams.ended {
            let text = format!("a watch has ended: {} ({})", status.message, status.code.name());
            return Poll::Ready(Err(BenchError::Server(text)));
        }
        let done = match state {
            State::Created => self.streams.created,
            State::Complete => self.streams.complete,
        };
        let over = done == self.streams.watchers || self.streams.wrong.is_some();
        if over { Poll::Ready(Ok(())) } else { Poll::Pending }
    }
}

impl Calls for Streams {
    fn data(&mut self, tag: usize, data: &[u8]) {
        self.data_bytes += data.len() as u64;
        let Streams { key, seen, puts, each, created, complete, wrong, .. } = self;
        let WatchStream { cutter, watchers } = &mut each[tag];
        cutter.push(data, |message| match heard(message, watchers, key, seen, *puts) {
            Ok(Heard::Created) => *created += 1,
            Ok(Heard::Complete) => *complete += 1,
            Ok(Heard::Events) => {}
            Err(why) => *wrong = Some(why),
        });
    }

    fn end(&mut self, _tag: usize, status: Status) {
        self.ended = Some(status);
    }
}

enum Heard {
    Created,
    Events,
    Complete,
}

/// Processes a WatchResponse.
fn heard(
    message: &[u8],
    watchers: &mut [Watcher],
    key: &[u8],
    seen: &mut Seen,
    puts: u64,
) -> Result<Heard, &'static str> {
    let (mut number, mut is_created, mut canceled) = (0, false, false);
    let (mut events, mut first) = (0, None);
    let whole = wire::fields(message, |field, value| match (field, value) {
        (2, Value::Number(id)) => number = id,
        (3, Value::Number(created)) => is_created = created != 0,
        (4, Value::Number(flag)) => canceled = flag != 0,
        (11, Value::Bytes(event)) => {
            events += 1;
            first.get_or_insert(event);
        }
        _ => {}
    });
    let watcher = usize::try_from(number.wrapping_sub(1)).ok().and_then(|index| watchers.get_mut(index));
    let (Some(watcher), true) = (watcher, whole) else { return Err("a response for no watcher") };
    if canceled {
        return Err("a watcher that was canceled");
    }
    if is_created {
        let twice = std::mem::replace(&mut watcher.created, true);
        return if twice { Err("a watcher that was created twice") } else { Ok(Heard::Created) };
    }
    match first {
        Some(event) if events == 1 => watcher.event(seen.revision(event, key)?)?,
        _ => {
            let mut verdict = Ok(());
            let _ = wire::fields(message, |field, value| {
                if let (11, Value::Bytes(event), Ok(())) = (field, value, verdict) {
                    verdict = seen.revision(event, key).and_then(|revision| watcher.event(revision));
                }
            });
            verdict?;
        }
    }
    match watcher.events.cmp(&puts) {
        Ordering::Greater => Err("more events than puts"),
        Ordering::Equal => Ok(Heard::Complete),
        Ordering::Less => Ok(Heard::Events),
    }
}

/// The last decoded event. The next watcher nearly always gets the same bytes, which need not be decoded again.
#[derive(Default)]
struct Seen {
    event: Vec<u8>,
    revision: u64,
}

impl Seen {
    /// The revision of an event; an error if it is not a put of `key`.
    fn revision(&mut self, event: &[u8], key: &[u8]) -> Result<u64, &'static str> {
        if self.event != event || event.is_empty() {
            self.revision = put_of(event, key).ok_or("an event that is no put of the key")?;
            self.event.clear();
            self.event.extend_from_slice(event);
        }
        Ok(self.revision)
    }
}

/// The revision of an event that is a put of `key`; `None` otherwise.
fn put_of(event: &[u8], key: &[u8]) -> Option<u64> {
    let (mut is_put, mut is_key, mut revision) = (true, false, 0);
    let whole = wire::fields(event, |field, value| match (field, value) {
        (1, Value::Number(kind)) => is_put = kind == 0,
        (2, Value::Bytes(kv)) => {
            let whole = wire::fields(kv, |field, value| match (field, value) {
                (1, Value::Bytes(bytes)) => is_key = bytes == key,
                (3, Value::Number(number)) => revision = number,
                _ => {}
            });
            is_key &= whole;
        }
        _ => {}
    });
    (whole && is_put && is_key).then_some(revision)
}

impl Watcher {
    /// Counts an event; an error if its revision is not later than the last one.
    fn event(&mut self, revision: u64) -> Result<(), &'static str> {
        if revision <= self.revision {
            return Err("an event out of order");
        }
        self.revision = revision;
        self.events += 1;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use api::Message;
    use api::etcdserverpb::WatchResponse;
    use api::mvccpb::{Event, KeyValue};

    fn put(key: &'static str, mod_revision: i64) -> Event {
        let kv = KeyValue { key: key.into(), mod_revision, value: "v".into(), ..KeyValue::default() };
        Event { kv: Some(kv), ..Event::default() }
    }

    fn hears(responses: &[WatchResponse]) -> Result<Vec<u64>, &'static str> {
        let (mut watchers, mut seen) = (vec![Watcher::default(); 2], Seen::default());
        for response in responses {
            heard(&response.encode_to_vec(), &mut watchers, b"key", &mut seen, 3)?;
        }
        Ok(watchers.iter().map(|watcher| watcher.events).collect())
    }

    fn events(watch_id: i64, events: Vec<Event>) -> WatchResponse {
        WatchResponse { watch_id, events, ..WatchResponse::default() }
    }

    #[test]
    fn every_event_is_looked_at() {
        let both = [
            events(1, vec![put("key", 5)]),
            events(2, vec![put("key", 5)]),
            events(1, vec![put("key", 6), put("key", 7)]),
        ];
        assert_eq!(hears(&both), Ok(vec![3, 1]));
        let wrong = [
            vec![events(1, vec![put("kez", 5)])],
            vec![events(1, vec![put("key", 5)]), events(1, vec![put("key", 5)])],
            vec![events(1, vec![put("key", 5), put("key", 6), put("key", 6)])],
            vec![events(1, vec![put("key", 5)]), events(1, vec![put("key", 4)])],
            vec![events(2, vec![put("key", 5)]), events(2, vec![put("kez", 6)])],
            vec![events(2, vec![Event { r#type: 1, ..put("key", 5) }])],
            vec![events(3, vec![put("key", 5)])],
            vec![events(0, vec![put("key", 5)])],
            vec![events(1, vec![Event::default()])],
            vec![events(1, (1..=4).map(|revision| put("key", revision)).collect())],
            vec![WatchResponse { watch_id: 1, canceled: true, ..WatchResponse::default() }],
        ];
        for responses in wrong {
            assert!(hears(&responses).is_err(), "{responses:?}");
        }
    }
}

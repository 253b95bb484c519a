//! Clients that watch, and what each of their watches is promised: the events of its keys in the order of the log (ordered), each once
//! (unique), those of a revision in one response or in its fragments (atomic), none left out (reliable), also after a broken connection
//! (resumable), and none before a revision that a progress response has named (bookmarkable); with the right previous pair, and nothing that
//! a filter takes out.
//!
//! Every event of every watch is compared with the model. A watching client has one connection, to any member, and reads at its own pace:
//! some so slowly that their queue overflows. Its random choices are separate from all others, so that they change nothing in a run.

use crate::connection::Connection;
use crate::model::{Change, Model};
use crate::schedule::Event;
use crate::trace::trace;
use crate::world::World;
use api::etcdserverpb::watch_create_request::FilterType;
use api::etcdserverpb::{WatchCreateRequest, WatchResponse};
use api::{Message, mvccpb};
use bytes::{Bytes, BytesMut};
use disk::sim::Random;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use store::watch::{Hub, Origin, Sink};

/// Separates the watches' random choices from all others.
const STREAM: u64 = 0x0bad_ca5e_0ff1_ce00;
/// Watches of one client.
const WATCHES_MAX: usize = 6;
/// Responses that are read at the end until nothing may be missing any more.
const LAST_READS_MAX: usize = 20_000;

/// What the watches of a run were sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WatchCounts {
    /// Watches that began, those that were resumed not counted.
    pub begun: u64,
    /// Watches that went on after a broken connection.
    pub resumed: u64,
    /// Events.
    pub events: u64,
    /// Those that came with a previous pair.
    pub with_previous: u64,
    /// Responses that were one fragment of several.
    pub fragments: u64,
    /// Responses that told progress.
    pub progress: u64,
    /// Watches that a compaction has ended.
    pub compacted: u64,
}

impl WatchCounts {
    pub(crate) fn add(&mut self, other: &WatchCounts) {
        self.begun += other.begun;
        self.resumed += other.resumed;
        self.events += other.events;
        self.with_previous += other.with_previous;
        self.fragments += other.fragments;
        self.progress += other.progress;
        self.compacted += other.compacted;
    }
}

/// A watch as its client sees it.
#[derive(Clone, Debug)]
struct Watch {
    /// As it was asked for at first.
    request: WatchCreateRequest,
    /// Events before this revision are not for it. Not known before the first response.
    from: Option<i64>,
    /// The revision of the last event.
    last: i64,
    /// Changes of the model that it has got or that are not for it.
    at: usize,
    is_fragmenting: bool,
}

struct Client {
    random: Random,
    /// Some watches are as one that it has.
    repeats: bool,
    /// The host of its connection and that process.
    place: Option<(usize, u64)>,
    /// Time between two reads.
    pace_us: u64,
    /// Watches that were asked for on this connection, in this order.
    asked: VecDeque<Watch>,
    /// Watches by id.
    active: BTreeMap<i64, Watch>,
    /// Watches to resume.
    broken: Vec<Watch>,
}

/// All clients that watch.
pub(crate) struct Watches {
    clients: Vec<Client>,
    pub(crate) counts: WatchCounts,
}

/// Responses as bytes.
#[derive(Default)]
struct Pages(Vec<BytesMut>);

impl Sink for Pages {
    fn response(&mut self, len: usize) -> &mut BytesMut {
        self.0.push(BytesMut::with_capacity(len));
        let Some(last) = self.0.last_mut() else { unreachable!("it was just added") };
        last
    }
}

impl Watches {
    pub(crate) fn new(seed: u64, repeats: bool) -> Watches {
        let mut random = Random::new(seed ^ STREAM);
        let count = 1 + random.below(3);
        let client = |_| {
            // Of the fastest, which see a batch half applied, a run with many takes twice the time.
            let pace_us = [1_000, 5_000, 5_000, 20_000, 20_000, 400_000, 400_000, 400_000][random.below(8) as usize];
            let random = Random::new(random.next_u64());
            Client {
                random,
                repeats,
                place: None,
                pace_us,
                asked: VecDeque::new(),
                active: BTreeMap::new(),
                broken: Vec::new(),
            }
        };
        Watches { clients: (0..count).map(client).collect(), counts: WatchCounts::default() }
    }
}

impl Client {
    /// A new watch, from now on, from a revision that there was, or from one that there will be.
    fn draw(&mut self, revision: i64, compact_revision: i64) -> WatchCreateRequest {
        let random = &mut self.random;
        if self.repeats && random.chance(40) {
            let known = self.active.values().nth(random.below(WATCHES_MAX as u64) as usize);
            if let Some(known) = known {
                return WatchCreateRequest { start_revision: 0, ..known.request.clone() };
            }
        }
        let (key, range_end): (Bytes, Bytes) = match random.below(4) {
            0 | 1 => (format!("k{}", random.below(8)).into(), Bytes::new()),
            2 => ("k".into(), "l".into()),
            _ => (format!("k{}", random.below(5)).into(), vec![0].into()),
        };
        let start_revision = match random.below(8) {
            0..4 => 0,
            4 => compact_revision.max(1),
            5 => (revision - random.below(40) as i64).max(1),
            6 => revision + 1,
            _ => revision + 1 + random.below(30) as i64,
        };
        let filters = match random.below(6) {
            0 => vec![FilterType::Noput as i32],
            1 => vec![FilterType::Nodelete as i32],
            _ => Vec::new(),
        };
        let (prev_kv, progress_notify) = (random.chance(50), random.chance(50));
        let fragment = random.chance(30);
        WatchCreateRequest { key, range_end, start_revision, filters, prev_kv, progress_notify, fragment, watch_id: 0 }
    }
}

impl Watch {
    fn new(request: WatchCreateRequest) -> Watch {
        let from = Some(request.start_revision).filter(|start| *start > 0);
        Watch { request, from, last: 0, at: 0, is_fragmenting: false }
    }

    fn wants(&self, change: &Change) -> bool {
        let filter = if change.kv.version == 0 { FilterType::Nodelete } else { FilterType::Noput };
        let request = &self.request;
        let (key, end) = (&request.key[..], &request.range_end[..]);
        let found = &change.kv.key[..];
        let is_inside = if end.is_empty() { found == key } else { found >= key && (end == [0] || found < end) };
        self.from.is_none_or(|from| change.kv.mod_revision >= from)
            && is_inside
            && !request.filters.contains(&(filter as i32))
    }

    /// The next change that it must get.
    fn next<'a>(&mut self, model: &'a Model) -> Option<&'a Change> {
        let changes = model.changes();
        while let Some(change) = changes.get(self.at) {
            if self.wants(change) {
                return Some(change);
            }
            self.at += 1;
        }
        None
    }

    fn check_events(&mut self, response: &WatchResponse, model: &Model, counts: &mut WatchCounts) {
        let first = response.events.first().and_then(|event| event.kv.as_ref()).map_or(0, |kv| kv.mod_revision);
        assert!(
            self.is_fragmenting || first > self.last,
            "a watch gets revision {first} in two parts, or again after {}: {response:?}",
            self.last
        );
        for event in &response.events {
            let Some(change) = self.next(model) else {
                panic!("a watch of {:?} gets too much: {event:?}", self.request)
            };
            check_event(event, change, &self.request, model.compact_revision());
            self.last = change.kv.mod_revision;
            self.at += 1;
            counts.events += 1;
            counts.with_previous += u64::from(event.prev_kv.is_some());
        }
        let revision = response.header.as_ref().map_or(0, |header| header.revision);
        assert!(revision >= self.last, "the header names revision {revision}, and the events go up to {}", self.last);
        assert!(self.request.fragment || !response.fragment, "a fragment that nobody asked for: {response:?}");
        counts.fragments += u64::from(response.fragment);
        self.is_fragmenting = response.fragment;
        if !response.fragment {
            let rest = self.next(model).filter(|change| change.kv.mod_revision == self.last);
            assert!(rest.is_none(), "revision {} comes in two responses: {rest:?} is missing", self.last);
        }
    }

    /// Checks a promise that everything up to `revision` was sent.
    fn check_progress(&mut self, revision: i64, model: &Model) {
        let from = self.from.unwrap_or_default();
        assert!(from <= revision + 1, "progress {revision} for a watch that begins at {from}");
        let missing = self.next(model).filter(|change| change.kv.mod_revision <= revision);
        assert!(missing.is_none(), "progress {revision} was told, but {missing:?} is missing");
        self.from = Some(from.max(revision + 1));
    }

    /// Where the watch continues on another connection.
    fn resume_at(&self) -> i64 {
        match self.from {
            // Of a revision in fragments all come again.
            Some(from) if self.is_fragmenting => from.max(self.last),
            Some(from) => from.max(self.last + 1),
            None => 0,
        }
    }
}

fn check_event(event: &mvccpb::Event, change: &Change, request: &WatchCreateRequest, compact_revision: i64) {
    assert!(
        event.kv.as_ref() == Some(&change.kv) && event.r#type == i32::from(change.kv.version == 0),
        "a watch of {request:?} gets {event:?}, where {change:?} is next"
    );
    match &event.prev_kv {
        Some(_) => assert!(
            request.prev_kv && event.prev_kv == change.prev,
            "a watch of {request:?} gets {event:?}, but before it was {:?}",
            change.prev
        ),
        None => assert!(
            !request.prev_kv || change.prev.is_none() || change.kv.mod_revision <= compact_revision,
            "a watch of {request:?} gets {event:?} without {:?}",
            change.prev
        ),
    }
}

impl World {
    pub(crate) fn begin_watches(&mut self) {
        for client in 0..self.watches.clients.len() {
            self.env.after(1_000_000, Event::Watch { client });
        }
    }

    /// A client that watches does something, and reads.
    pub(crate) fn watch(&mut self, number: usize) {
        let client = &mut self.watches.clients[number];
        let delay_us = 1 + client.random.below(2 * client.pace_us);
        let (breaks, acts) = (client.random.chance(2), client.random.below(12));
        self.env.after(delay_us, Event::Watch { client: number });
        if self.connection(number).is_none() || breaks {
            return self.connect(number, None);
        }
        match acts {
            0 | 1 => self.watch_more(number),
            2 => self.watch_less(number),
            3 => self.with_connection(number, |connection, _| connection.stream.progress()),
            4 => self.with_connection(number, |connection, _| connection.stream.periodic_progress()),
            _ => {}
        }
        self.read_watches(number);
    }

    /// The client's connection, unless its process is gone or stands still.
    fn connection(&mut self, number: usize) -> Option<&mut Connection> {
        let (host, boot) = self.watches.clients[number].place?;
        self.hosts[host].process(boot)?.machine.connections.get_mut(&number)
    }

    fn with_connection(&mut self, number: usize, act: impl FnOnce(&mut Connection, &mut Client)) {
        let Some((host, boot)) = self.watches.clients[number].place else { return };
        let Some(process) = self.hosts[host].process(boot) else { return };
        let Some(connection) = process.machine.connections.get_mut(&number) else { return };
        act(connection, &mut self.watches.clients[number]);
    }

    /// Connects to a member, and resumes all watches there.
    fn connect(&mut self, number: usize, wanted: Option<usize>) {
        if let Some((host, boot)) = self.watches.clients[number].place.take()
            && let Some(process) = self.hosts[host].process(boot)
        {
            process.machine.connections.remove(&number);
        }
        let client = &mut self.watches.clients[number];
        client.broken.extend(std::mem::take(&mut client.active).into_values().chain(client.asked.drain(..)));
        let running: Vec<usize> =
            self.hosts.iter().filter(|host| host.serves_watches()).map(|host| host.index).collect();
        if running.is_empty() {
            return;
        }
        let drawn = running[client.random.below(running.len() as u64) as usize];
        let host = wanted.unwrap_or(drawn);
        let Some(process) = &mut self.hosts[host].process else { return };
        trace!(self.env, "watching client {number} connects to {host}");
        let called = Arc::new(AtomicBool::new(false));
        let calls = Arc::clone(&called);
        let mut stream = Hub::stream(&process.machine.store, Arc::new(move || calls.store(true, Ordering::Relaxed)));
        for mut watch in client.broken.drain(..) {
            let start_revision = watch.resume_at();
            (watch.from, watch.is_fragmenting) = (Some(start_revision).filter(|start| *start > 0), false);
            // Of a revision that was cut off in a fragment the beginning comes again.
            (watch.at, watch.last) = (0, start_revision.saturating_sub(1));
            let request = WatchCreateRequest { start_revision, ..watch.request.clone() };
            self.watches.counts.resumed += 1;
            stream.create(request);
            client.asked.push_back(watch);
        }
        process.machine.connections.insert(number, Connection { stream, called });
        client.place = Some((host, process.boot));
    }

    fn watch_more(&mut self, number: usize) {
        let (revision, compacted) = (self.env.history.model().revision(), self.env.history.model().compact_revision());
        let mut begun = 0;
        self.with_connection(number, |connection, client| {
            if client.active.len() + client.asked.len() < WATCHES_MAX {
                let request = client.draw(revision, compacted);
                connection.stream.create(request.clone());
                client.asked.push_back(Watch::new(request));
                begun = 1;
            }
        });
        self.watches.counts.begun += begun;
    }

    /// Ends a watch. The answer may be behind events.
    fn watch_less(&mut self, number: usize) {
        self.with_connection(number, |connection, client| {
            let ids: Vec<i64> = client.active.keys().copied().collect();
            if let Some(id) = ids.get(client.random.below(ids.len().max(1) as u64) as usize) {
                connection.stream.cancel(*id);
            }
        });
    }

    /// Reads what one poll gives. Returns whether there may be more.
    fn read_watches(&mut self, number: usize) -> bool {
        let now_us = self.env.now_us;
        let mut pages = Pages::default();
        let Some((host, boot)) = self.watches.clients[number].place else { return false };
        let Some(process) = self.hosts[host].process(boot) else { return false };
        if process.paused_until_us > now_us {
            return false;
        }
        let Some(connection) = process.machine.connections.get_mut(&number) else { return false };
        let client = &mut self.watches.clients[number];
        let bytes_max = [1, 300, 100_000][client.random.below(3) as usize];
        let written = connection.stream.poll(&Origin::default(), bytes_max, &mut pages);
        let called = connection.called.swap(false, Ordering::Relaxed);
        for page in pages.0 {
            let response = WatchResponse::decode(page.freeze());
            let Ok(response) = response else { panic!("a watch response does not decode") };
            trace!(self.env, "watching client {number}: {} of {} events", response.watch_id, response.events.len());
            self.watches.take(number, &response, self.env.history.model());
        }
        written > 0 || called
    }

    /// At the end: every watch has everything.
    pub(crate) fn check_watches(&mut self, members: &[usize]) {
        for number in 0..self.watches.clients.len() {
            let place = self.watches.clients[number].place;
            let is_there = place.is_some_and(|(host, _)| members.contains(&host)) && self.connection(number).is_some();
            if !is_there {
                self.connect(number, members.first().copied());
            }
            let reads = (0..LAST_READS_MAX).position(|_| !self.read_watches(number));
            assert!(reads.is_some(), "watching client {number} reads on and on");
            let client = &mut self.watches.clients[number];
            assert!(client.asked.is_empty(), "no answer to {:?}", client.asked);
            let model = self.env.history.model();
            for (id, watch) in &mut client.active {
                let missing = watch.next(model);
                assert!(missing.is_none(), "watch {id}, {:?}, misses {missing:?}", watch.request);
                assert!(!watch.is_fragmenting, "watch {id} waits for a fragment");
            }
        }
    }
}

impl Watches {
    /// Takes a response, and checks it.
    fn take(&mut self, number: usize, response: &WatchResponse, model: &Model) {
        let (client, counts) = (&mut self.clients[number], &mut self.counts);
        let revision = response.header.as_ref().map_or(0, |header| header.revision);
        assert!(revision <= model.revision(), "a watch hears of revision {revision}, which no entry has made yet");
        if response.created {
            let Some(mut watch) = client.asked.pop_front() else { panic!("nobody asked for {response:?}") };
            assert!(!response.canceled, "a watch of {:?} is refused: {response:?}", watch.request);
            let from = watch.from.unwrap_or(revision + 1);
            watch.from = Some(from);
            // Looking at each change before that, at every new connection, would take a tenth of a run.
            watch.at = model.changes().partition_point(|change| change.kv.mod_revision < from);
            let replaced = client.active.insert(response.watch_id, watch);
            assert!(replaced.is_none(), "watch id {} is used twice", response.watch_id);
        } else if response.watch_id == -1 {
            counts.progress += 1;
            client.active.values_mut().for_each(|watch| watch.check_progress(revision, model));
        } else if response.canceled {
            let Some(watch) = client.active.remove(&response.watch_id) else { panic!("no such watch: {response:?}") };
            if response.compact_revision != 0 {
                counts.compacted += 1;
                let is_passed = watch.resume_at() < response.compact_revision;
                assert!(
                    is_passed && response.compact_revision <= model.compact_revision(),
                    "{watch:?} is ended by a compaction that does not concern it: {response:?}"
                );
            }
        } else {
            let Some(watch) = client.active.get_mut(&response.watch_id) else { panic!("no such watch: {response:?}") };
            if response.events.is_empty() {
                counts.progress += 1;
                assert!(watch.request.progress_notify, "progress that nobody asked for: {response:?}");
                watch.check_progress(revision, model);
            } else {
                watch.check_events(response, model, counts);
            }
        }
    }
}

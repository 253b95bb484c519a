//! Hubs against a model of members and of what each client must see, under schedules from a seed.

mod another_cluster;
mod crowds;
mod filtered;
mod member;
mod turning;

use super::feed::{Lane, revision};
use super::mistake::Mistake;
use super::*;
use crate::dice::Dice;
use crate::identity::Identity;
use api::etcdserverpb::watch_create_request::FilterType;
use api::etcdserverpb::{ResponseHeader, WatchCreateRequest, WatchResponse};
use api::mvccpb::event::EventType;
use api::mvccpb::{Event, KeyValue};
use member::{History, Stream, permits};
use prost::Message as _;
use rpc::Origin;
use std::collections::{BTreeMap, BTreeSet};
use std::time::{SystemTime, UNIX_EPOCH};

/// Schedules of one run.
const SCHEDULES: u64 = 1_000;
/// Steps of a schedule.
const STEPS: usize = 600;
/// What the tokens may watch: everything, and a part.
const TOKENS: [(&str, &str); 3] = [("\0", "\0"), ("\0", "\0"), ("a", "c")];

/// What a client knows of a watch.
struct Seen {
    request: WatchCreateRequest,
    /// The next revision that it has to see events of; 0 before it is told where the watch begins.
    next: i64,
    is_created: bool,
}

#[derive(Default)]
struct Client {
    token: usize,
    watches: BTreeMap<WatchId, Seen>,
    is_stalled: bool,
    progress: i64,
    answers: u64,
}

struct World {
    circles: Circles,
    dice: Dice,
    history: History,
    /// The streams of a circle, and with which token they were made.
    streams: BTreeMap<CircleId, (usize, [Stream; 2])>,
    clients: BTreeMap<ClientId, Client>,
    last_client: ClientId,
    last_watch: WatchId,
    now_ms: u64,
    /// Some watches want no events.
    has_silent: bool,
    /// Nothing fails any more.
    is_settling: bool,
}

const LANES: [Lane; 2] = [Lane::Main, Lane::Future];

type Outcome = Result<(), String>;

fn ensure(holds: bool, why: impl FnOnce() -> String) -> Outcome {
    if holds { Ok(()) } else { Err(why()) }
}

impl World {
    fn new(seed: u64) -> World {
        let mut world = World {
            circles: Circles::new(3, Live::default()),
            dice: Dice(seed),
            history: History::default(),
            streams: BTreeMap::new(),
            clients: BTreeMap::new(),
            last_client: 0,
            last_watch: 100,
            now_ms: 0,
            has_silent: seed % 4 == 3,
            is_settling: false,
        };
        for _ in 0..world.dice.below(30) {
            world.write();
        }
        world
    }

    fn write(&mut self) {
        self.history.revision += 1;
        for _ in 0..=self.dice.below(2) {
            let kind = if self.dice.one_in(4) { EventType::Delete } else { EventType::Put };
            let key = vec![b'a' + self.dice.below(4) as u8];
            let kv = KeyValue { key: key.into(), mod_revision: self.history.revision, ..KeyValue::default() };
            // Sometimes so large that recent events do not stay.
            let len = if self.dice.one_in(8) { 150 << 10 } else { 10 };
            let kv = KeyValue { value: vec![1; len].into(), ..kv };
            self.history.events.push(Event { r#type: kind as i32, kv: Some(kv), prev_kv: None });
        }
    }

    fn compact(&mut self) {
        let span = self.history.revision - self.history.compacted;
        self.history.compacted += self.dice.below(span.max(1) as u64) as i64;
        for stream in self.streams.values_mut().flat_map(|(_, streams)| streams) {
            stream.view = stream.view.max(self.history.compacted);
        }
    }

    fn some_client(&mut self) -> Option<ClientId> {
        let nth = self.dice.below(self.clients.len() as u64) as usize;
        self.clients.keys().nth(nth).copied()
    }

    fn hub(&mut self, client: ClientId) -> &mut Hub {
        let circle = self.circles.of(client).expect("a circle");
        self.circles.hub_mut(circle).expect("a hub")
    }

    fn open(&mut self) {
        self.last_client += 1;
        let token = self.dice.below(TOKENS.len() as u64) as usize;
        let identity = Identity::of(&[("token", token.to_string())].into_iter().collect());
        let (circle, _) = self.circles.open(self.last_client, Origin::of(None), &identity);
        self.streams.entry(circle).or_insert_with(|| (token, Default::default()));
        self.clients.insert(self.last_client, Client { token, ..Client::default() });
    }

    fn close(&mut self, id: ClientId) {
        self.clients.remove(&id);
        let circle = self.circles.close(id).expect("a circle");
        if self.circles.remove_if_empty(circle) {
            self.streams.remove(&circle);
        }
    }

    fn create(&mut self, id: ClientId) {
        let mut request = WatchCreateRequest::default();
        let key = b'a' + self.dice.below(3) as u8;
        request.key = vec![key].into();
        match self.dice.below(8) {
            0..3 => request.range_end = vec![b'e'].into(),
            3 => request.range_end = vec![key + 1 + self.dice.below(2) as u8].into(),
            4 => (request.key, request.range_end) = (vec![0].into(), vec![0].into()),
            _ => {}
        }
        let revision = self.history.revision;
        request.start_revision = match self.dice.below(5) {
            0 | 1 => 0,
            2 => 1 + self.dice.below(revision.max(1) as u64) as i64,
            3 => revision + 1,
            _ => revision + 1 + self.dice.below(6) as i64,
        };
        request.progress_notify = self.dice.one_in(2);
        if self.dice.one_in(4) {
            let kind = if self.dice.one_in(2) { FilterType::Noput } else { FilterType::Nodelete };
            request.filters.push(kind as i32);
            if self.has_silent && self.dice.one_in(4) {
                request.filters = vec![FilterType::Nodelete as i32, FilterType::Noput as i32];
            }
        }
        self.last_watch += 1;
        request.watch_id = self.last_watch;
        self.hub(id).create(id, request.clone());
        let client = self.clients.get_mut(&id).expect("a client");
        client.watches.insert(request.watch_id, Seen { next: 0, request, is_created: false });
    }

    fn connect(&mut self, circle: CircleId, lane: usize, knows_token: bool) {
        let behind = self.dice.below(5) as i64;
        let view = (self.history.revision - behind).max(self.history.compacted);
        let Some((_, streams)) = self.streams.get_mut(&circle) else { return };
        streams[lane] = Stream { is_up: true, knows_token, view, ..Stream::default() };
        self.circles.hub_mut(circle).expect("a hub").up(LANES[lane]);
    }

    fn step(&mut self) -> Outcome {
        let lane = self.dice.below(2) as usize;
        let circles = self.circles.numbers();
        let circle = circles.get(self.dice.below(circles.len() as u64) as usize).copied().unwrap_or_default();
        let is_up = self.streams.get(&circle).is_some_and(|(_, streams)| streams[lane].is_up);
        if self.dice.one_in(6)
            && let Some(id) = self.some_client()
            && std::mem::take(&mut self.clients.get_mut(&id).expect("a client").is_stalled)
        {
            self.hub(id).resume(id);
            self.look()?;
        }
        match self.dice.below(40) {
            0..6 => self.write(),
            6 if self.dice.one_in(3) => self.compact(),
            7 if self.clients.len() < 6 => self.open(),
            8..11 => {
                if let Some(id) = self.some_client() {
                    self.create(id);
                }
            }
            11 => {
                if let Some(id) = self.some_client() {
                    let client = self.clients.get_mut(&id).expect("a client");
                    let nth = self.dice.below(client.watches.len() as u64) as usize;
                    if let Some(number) = client.watches.keys().nth(nth).copied() {
                        self.hub(id).cancel(id, number);
                    }
                }
            }
            12 | 13 => {
                if let Some(id) = self.some_client() {
                    self.hub(id).progress(id);
                }
            }
            14 => {
                if let Some(id) = self.some_client() {
                    let client = self.clients.get_mut(&id).expect("a client");
                    client.is_stalled = !client.is_stalled;
                    let is_stalled = client.is_stalled;
                    let hub = self.hub(id);
                    if is_stalled {
                        hub.stall(id)
                    } else {
                        hub.resume(id)
                    }
                    if self.dice.one_in(2) {
                        self.hub(id).progress(id);
                    }
                }
            }
            15 if self.dice.one_in(4) => {
                if let Some(id) = self.some_client() {
                    self.close(id);
                }
            }
            16 if is_up && self.dice.one_in(3) => {
                self.streams.get_mut(&circle).expect("streams").1[lane] = Stream::default();
                self.circles.hub_mut(circle).expect("a hub").down(LANES[lane]);
            }
            17 | 18 if !is_up => {
                // Once two of the three members have refused a token in a row, the third one has heard of it.
                let refusals = self.circles.hub_mut(circle).map_or(0, |hub| *hub.refusals.of(LANES[lane]));
                let has_heard = refusals >= 2;
                let knows_token = !self.dice.one_in(8) || has_heard;
                self.connect(circle, lane, knows_token);
            }
            choice => {
                let Some((token, streams)) = self.streams.get_mut(&circle) else { return Ok(()) };
                let stream = &mut streams[lane];
                match choice {
                    19..21 => stream.view = (stream.view + 1).min(self.history.revision),
                    21..27 => stream.handle(&self.history, *token),
                    27..32 => stream.deliver(&self.history, &mut self.dice, false),
                    32 => {
                        self.now_ms += 70;
                        self.circles.hub_mut(circle).expect("a hub").tick(self.now_ms);
                    }
                    _ => {
                        if let Some(response) = stream.responses.pop_front() {
                            self.circles.hub_mut(circle).expect("a hub").receive(LANES[lane], response);
                        }
                    }
                }
            }
        }
        self.look()?;
        if self.dice.one_in(2)
            && let Some(hub) = self.circles.hub_mut(circle)
        {
            hub.work();
            return self.look();
        }
        Ok(())
    }

    /// Carries out what the hubs want, and looks at what clients are told.
    fn look(&mut self) -> Outcome {
        for circle in self.circles.numbers() {
            while let Some(outputs) = self.circles.hub_mut(circle).map(Hub::take).filter(|outputs| !outputs.is_empty())
            {
                outputs.into_iter().try_for_each(|output| self.carry_out(circle, output))?;
            }
        }
        Ok(())
    }

    fn carry_out(&mut self, circle: CircleId, output: Output) -> Outcome {
        match output {
            Output::Ask(lane, request) => {
                let (_, streams) = self.streams.get_mut(&circle).ok_or("no streams")?;
                let stream = &mut streams[usize::from(lane == Lane::Future)];
                ensure(stream.is_up, || "asked on a stream that is down".into())?;
                stream.requests.push_back(request);
            }
            // Members that lag behind have not gone back.
            Output::Confirm(_) => {
                let hub = self.circles.hub_mut(circle).ok_or("no hub")?;
                ensure(hub.confirmed(Some(self.history.revision)).is_none(), || "the data went back".into())?;
            }
            Output::Elsewhere(lane) => {
                let lane = usize::from(lane == Lane::Future);
                self.streams.get_mut(&circle).ok_or("no streams")?.1[lane] = Stream::default();
                // The next member knows it.
                self.connect(circle, lane, true);
            }
            Output::End(client, status) => return Err(format!("client {client} ends with {status:?}")),
            Output::Tell(id, telling) => {
                let has_no_room = !self.is_settling && self.dice.one_in(40);
                if let Some(client) = self.clients.get_mut(&id) {
                    if let Telling::Events { watch, from, .. } = &telling {
                        client.is_stalled |= has_no_room;
                        if client.is_stalled {
                            self.hub(id).untell(id, *watch, *from);
                            return Ok(());
                        }
                    } else if client.is_stalled && telling.is_progress() {
                        return Ok(());
                    }
                }
                for message in encode(telling) {
                    let response = WatchResponse::decode(message).map_err(|error| error.to_string())?;
                    self.told(id, response)?;
                }
            }
        }
        Ok(())
    }

    fn told(&mut self, id: ClientId, response: WatchResponse) -> Outcome {
        let Some(client) = self.clients.get_mut(&id) else { return Err(format!("client {id} is gone")) };
        let header = response.header.ok_or("no header")?;
        let history = &self.history;
        let lacks = |seen: &Seen, upto: i64| history.of(&seen.request, seen.next, upto);
        let number = response.watch_id;
        if number == -1 && response.created {
            let token = client.token;
            let is_refused = |seen: &Seen| !seen.is_created && !permits(token, &seen.request);
            let refused = client.watches.iter().find(|(_, seen)| is_refused(seen)).map(|(number, _)| *number);
            ensure(refused.is_some(), || format!("client {id} is refused what it may watch: {response:?}"))?;
            refused.map(|refused| client.watches.remove(&refused));
            return Ok(());
        }
        if number == -1 {
            for (number, seen) in client.watches.iter().filter(|(_, seen)| seen.is_created) {
                let lacking = lacks(seen, header.revision);
                ensure(lacking.is_empty(), || {
                    let first = lacking.first().map(revision);
                    format!("progress {} of client {id}, whose watch {number} lacks {first:?}", header.revision)
                })?;
            }
            client.progress = client.progress.max(header.revision);
            client.answers += 1;
            return Ok(());
        }
        let Some(seen) = client.watches.get_mut(&number) else {
            return Err(format!("client {id} has no watch {number}: {response:?}"));
        };
        ensure(permits(client.token, &seen.request), || {
            format!("client {id} is told of {number}, which it may not see")
        })?;
        if response.created {
            ensure(!seen.is_created && !response.canceled, || format!("watch {number} is created twice"))?;
            seen.is_created = true;
            let start = seen.request.start_revision;
            seen.next = if start == 0 { header.revision + 1 } else { start };
            return Ok(());
        }
        ensure(seen.is_created, || format!("watch {number} is told of before it is created"))?;
        if response.canceled {
            let compacted = response.compact_revision;
            ensure(compacted == 0 || seen.next < compacted, || {
                format!("watch {number} is at {} and ended by a compaction at {compacted}", seen.next)
            })?;
            client.watches.remove(&number);
        } else if response.events.is_empty() {
            let lacking = lacks(seen, header.revision);
            ensure(seen.request.progress_notify && lacking.is_empty(), || {
                format!("progress {} of watch {number}, which lacks {}", header.revision, lacking.len())
            })?;
        } else {
            let last = response.events.last().map_or(0, revision);
            let wanted = lacks(seen, last);
            ensure(response.events == wanted, || {
                let shown = |events: &[Event]| events.iter().map(revision).collect::<Vec<_>>();
                let (got, wanted) = (shown(&response.events), shown(&wanted));
                format!("watch {number} from {} gets {got:?} and wants {wanted:?}", seen.next)
            })?;
            seen.next = last + 1;
        }
        Ok(())
    }

    /// Nothing fails any more, and everything comes to its end: then every watch has everything.
    fn settle(&mut self) -> Outcome {
        self.is_settling = true;
        for (circle, lane) in self.circles.numbers().into_iter().flat_map(|circle| [(circle, 0), (circle, 1)]) {
            let stream = &mut self.streams.get_mut(&circle).expect("streams").1[lane];
            stream.knows_token = true;
            if !stream.is_up {
                self.connect(circle, lane, true);
            }
        }
        let all: Vec<ClientId> = self.clients.keys().copied().collect();
        for id in &all {
            if std::mem::take(&mut self.clients.get_mut(id).expect("a client").is_stalled) {
                self.hub(*id).resume(*id);
            }
        }
        for round in 0..200 {
            for circle in self.circles.numbers() {
                self.settle_circle(circle)?;
            }
            if round == 50 || round == 100 {
                // Once everything is created and level, all ask how far they are.
                for client in self.clients.values_mut() {
                    (client.progress, client.answers) = (0, 0);
                }
                all.iter().for_each(|id| self.hub(*id).progress(*id));
            }
            self.look()?;
        }
        for (id, client) in &self.clients {
            for (number, seen) in &client.watches {
                ensure(seen.is_created, || format!("watch {number} of client {id} was never created"))?;
                let lacking = self.history.of(&seen.request, seen.next, self.history.revision);
                ensure(lacking.is_empty(), || format!("watch {number} lacks {} in the end", lacking.len()))?;
            }
            let is_now = |seen: &Seen| seen.request.start_revision <= self.history.revision + 1;
            if !client.watches.is_empty() && client.watches.values().all(is_now) {
                let (progress, revision) = (client.progress, self.history.revision);
                ensure(progress == revision, || format!("client {id} is told {progress} of {revision}"))?;
            }
        }
        self.circles.numbers().into_iter().try_for_each(|circle| self.look_at_feeds(circle))
    }

    fn settle_circle(&mut self, circle: CircleId) -> Outcome {
        for (lane, name) in LANES.into_iter().enumerate() {
            let (token, streams) = self.streams.get_mut(&circle).expect("streams");
            streams[lane].view = self.history.revision;
            while !streams[lane].requests.is_empty() {
                streams[lane].handle(&self.history, *token);
            }
            streams[lane].deliver(&self.history, &mut self.dice, true);
            while let Some(response) = self.streams.get_mut(&circle).expect("streams").1[lane].responses.pop_front() {
                self.circles.hub_mut(circle).expect("a hub").receive(name, response);
                self.look()?;
            }
        }
        while self.circles.hub_mut(circle).expect("a hub").work() {
            self.look()?;
        }
        self.now_ms += 60;
        self.circles.hub_mut(circle).expect("a hub").tick(self.now_ms);
        self.look()
    }

    /// Watches of what others have as well are on the feeds of those.
    fn look_at_feeds(&mut self, circle: CircleId) -> Outcome {
        let revision = self.history.revision;
        let (mut now, mut subjects) = (0, BTreeSet::new());
        for (id, client) in &self.clients {
            for seen in client.watches.values().filter(|_| self.circles.of(*id) == Some(circle)) {
                match seen.request.start_revision {
                    start if start <= revision => {
                        let no_events = seen.request.filters.len() == 2;
                        subjects.insert((seen.request.key.clone(), seen.request.range_end.clone(), no_events));
                    }
                    start if start == revision + 1 => now += 1,
                    _ => {}
                }
            }
        }
        let of = |(key, range_end, no_events): &(Bytes, Bytes, bool)| Subject {
            key: key.clone(),
            range_end: range_end.clone(),
            prev_kv: false,
            no_events: *no_events,
        };
        let is_inside =
            |one: &(Bytes, Bytes, bool)| subjects.iter().any(|other| other != one && of(other).contains(&of(one)));
        let outer = subjects.iter().filter(|subject| !is_inside(subject)).count();
        let hub = self.circles.hub_mut(circle).expect("a hub");
        let in_time = hub.feeds.values().filter(|feed| feed.position <= revision).count();
        ensure(in_time <= outer + now, || format!("{in_time} feeds for {outer} subjects and {now} that begin now"))
    }
}

fn run(seed: u64) -> Outcome {
    let mut world = World::new(seed);
    for _ in 0..STEPS {
        world.step()?;
    }
    world.settle()
}

/// The seed of the first schedule: another one in each run, unless `SEED` says which.
fn first_seed() -> u64 {
    let given = std::env::var("SEED").ok().and_then(|text| text.parse().ok());
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(1, |since| since.as_secs());
    given.unwrap_or(now * 1_000_000)
}

#[test]
#[allow(clippy::print_stderr, reason = "a test that fails shows its output")]
fn every_client_sees_each_event_once_and_progress_is_true() {
    let first = first_seed();
    eprintln!("{SCHEDULES} schedules from SEED={first}");
    for seed in first..first + SCHEDULES {
        if let Err(why) = run(seed) {
            panic!("SEED={seed}: {why}");
        }
    }
}

#[test]
fn planted_mistakes_are_noticed() {
    for mistake in Mistake::ALL {
        Mistake::plant(Some(mistake));
        let noticed = (1..=3_000).find(|seed| run(*seed).is_err());
        Mistake::plant(None);
        let seed = noticed.unwrap_or_else(|| panic!("{mistake:?} is not noticed"));
        assert_eq!(run(seed), Ok(()), "schedule {seed} fails without {mistake:?}");
    }
}

/// A hub with a watch that has come to revision 9, and the answers of a member that has `revision` once it is asked again.
fn asked_again(revision: i64) -> (Hub, Vec<Output>) {
    let header = |revision| Some(ResponseHeader { cluster_id: 7, revision, ..ResponseHeader::default() });
    let mut hub = Hub::new(1, Live::default());
    hub.open(1);
    hub.up(Lane::Main);
    for (watch_id, start_revision) in [(1, 0), (2, 50)] {
        let key = vec![b'a' + watch_id as u8].into();
        hub.create(1, WatchCreateRequest { key, watch_id, start_revision, ..WatchCreateRequest::default() });
        hub.receive(Lane::Main, WatchResponse { header: header(5), watch_id, created: true, ..Default::default() });
    }
    let kv = Some(KeyValue { key: "b".into(), mod_revision: 9, ..KeyValue::default() });
    let events = vec![Event { kv, ..Event::default() }];
    hub.receive(Lane::Main, WatchResponse { header: header(9), watch_id: 1, events, ..Default::default() });
    hub.down(Lane::Main);
    hub.up(Lane::Main);
    hub.take();
    hub.receive(
        Lane::Main,
        WatchResponse { header: header(revision), watch_id: 1, created: true, ..Default::default() },
    );
    let outputs = hub.take();
    (hub, outputs)
}

#[test]
fn watches_end_where_the_data_of_members_went_back() {
    let confirms = |outputs: &[Output]| outputs.iter().filter(|output| matches!(output, Output::Confirm(_))).count();
    let (_, level) = asked_again(9);
    assert_eq!(confirms(&level), 0);
    // One member may lag behind the others.
    let (mut hub, behind) = asked_again(8);
    assert_eq!(confirms(&behind), 1);
    assert_eq!((hub.confirmed(Some(9)), hub.watches()), (None, 2));
    let (mut hub, _) = asked_again(8);
    assert_eq!((hub.confirmed(None), hub.watches()), (None, 2));
    // What begins in the future still does.
    let (mut hub, _) = asked_again(3);
    assert_eq!((hub.confirmed(Some(4)), hub.watches()), (Some(9), 1));
    let told: Vec<WatchResponse> = hub
        .take()
        .into_iter()
        .filter_map(|output| match output {
            Output::Tell(1, Telling::Plain(response)) => Some(response),
            _ => None,
        })
        .collect();
    assert!(matches!(&told[..], [one] if one.watch_id == 1 && one.canceled), "{told:?}");
    assert!(told[0].cancel_reason.contains("went back from revision 9 to 4"), "{}", told[0].cancel_reason);
    assert_eq!((told[0].header.as_ref().map(|header| header.revision), told[0].compact_revision), (Some(4), 5));
    // Those of another cluster have nothing to do with it.
    let (mut hub, _) = asked_again(9);
    let other = ResponseHeader { cluster_id: 8, revision: 900, ..ResponseHeader::default() };
    hub.receive(Lane::Main, WatchResponse { header: Some(other), watch_id: 2, created: true, ..Default::default() });
    assert_eq!(hub.watches(), 0);
    let ended = hub
        .take()
        .into_iter()
        .filter(|output| matches!(output, Output::Tell(1, Telling::Plain(told)) if told.canceled));
    assert_eq!(ended.count(), 2);
}

/// Has members answer all that a hub asks, as if their own notices of progress were far away; returns what the first client is told.
fn answered(hub: &mut Hub, history: &History, streams: &mut [Stream; 2], began_ms: u64) -> Vec<WatchResponse> {
    let (mut dice, mut told) = (Dice(1), Vec::new());
    for round in 0..10 {
        hub.tick(began_ms + round * 60);
        while hub.work() {}
        for output in hub.take() {
            match output {
                Output::Ask(lane, request) => streams[usize::from(lane == Lane::Future)].requests.push_back(request),
                Output::Tell(1, telling) => {
                    told.extend(
                        encode(telling).into_iter().map(|message| WatchResponse::decode(message).expect("whole")),
                    );
                }
                Output::Tell(..) => {}
                other => panic!("{other:?}"),
            }
        }
        for (lane, stream) in LANES.into_iter().zip(&mut *streams) {
            stream.view = history.revision;
            while !stream.requests.is_empty() {
                stream.handle(history, 0);
            }
            stream.deliver(history, &mut dice, true);
            stream.responses.drain(..).for_each(|response| hub.receive(lane, response));
        }
    }
    told
}

#[test]
fn a_quiet_watch_that_began_in_the_future_holds_no_progress_back() {
    let (mut hub, mut history) = (Hub::new(1, Live::default()), History { revision: 5, ..History::default() });
    let mut streams = [(); 2].map(|()| Stream { knows_token: true, is_up: true, ..Stream::default() });
    hub.open(1);
    LANES.into_iter().for_each(|lane| hub.up(lane));
    for (key, watch_id, start_revision) in [("a", 1, 0), ("b", 2, 9)] {
        hub.create(
            1,
            WatchCreateRequest { key: key.into(), watch_id, start_revision, ..WatchCreateRequest::default() },
        );
    }
    answered(&mut hub, &history, &mut streams, 0);
    let kv = Some(KeyValue { key: "a".into(), mod_revision: 20, ..KeyValue::default() });
    history.events.push(Event { kv, ..Event::default() });
    history.revision = 20;
    answered(&mut hub, &history, &mut streams, 1000);
    hub.progress(1);
    let told = answered(&mut hub, &history, &mut streams, 2000);
    let told: Vec<i64> = told.iter().filter_map(|response| Some(response.header.as_ref()?.revision)).collect();
    assert_eq!(told, [20]);
}

/// No other watch of the hub says how far the members are.
#[test]
fn a_quiet_watch_that_began_in_the_future_has_progress_on_its_own() {
    let (mut hub, mut history) = (Hub::new(1, Live::default()), History { revision: 5, ..History::default() });
    let mut streams = [(); 2].map(|()| Stream { knows_token: true, is_up: true, ..Stream::default() });
    LANES.into_iter().for_each(|lane| hub.up(lane));
    hub.open(1);
    for (key, start_revision) in [("b", 9), ("c", 30)] {
        hub.create(1, WatchCreateRequest { key: key.into(), start_revision, ..WatchCreateRequest::default() });
    }
    answered(&mut hub, &history, &mut streams, 0);
    hub.progress(1);
    for minute in 1..10 {
        let early = answered(&mut hub, &history, &mut streams, minute * 60_000);
        assert!(early.is_empty(), "a member tells nothing before watches begin: {early:?}");
    }
    let asked = streams[1].watches.keys().max().copied();
    assert!(asked.is_some_and(|asked| asked < 30), "{asked:?} watches were asked for in ten minutes");
    history.revision = 20;
    let told = answered(&mut hub, &history, &mut streams, 600_000);
    let told: Vec<i64> = told.iter().filter_map(|response| Some(response.header.as_ref()?.revision)).collect();
    assert_eq!(told, [20]);
    assert!(streams[1].watches.values().map(|(request, _)| &request.key[..]).eq([b"c"]), "{:?}", streams[1].watches);
    // Of the client that asks, and of one that never does.
    hub.open(2);
    hub.create(2, WatchCreateRequest { key: "d".into(), start_revision: 1 << 40, ..WatchCreateRequest::default() });
    hub.cancel(1, 1);
    hub.progress(1);
    hub.close(1);
    answered(&mut hub, &history, &mut streams, 700_000);
    assert!(!hub.is_waiting(), "members are asked for a client that has gone");
}

/// What comes is not given to a client that has stalled: its watches are behind the members.
#[test]
fn a_client_that_has_stalled_is_told_no_more_progress_than_it_has_events() {
    for (mistake, progress) in [(None, 5), (Some(Mistake::TellsProgressEarly), 6)] {
        Mistake::plant(mistake);
        let (mut hub, mut history) = (Hub::new(1, Live::default()), History { revision: 5, ..History::default() });
        let mut streams = [(); 2].map(|()| Stream { knows_token: true, is_up: true, ..Stream::default() });
        LANES.into_iter().for_each(|lane| hub.up(lane));
        for (client, key) in [(1, "a"), (2, "b")] {
            hub.open(client);
            hub.create(client, WatchCreateRequest { key: key.into(), watch_id: 1, ..WatchCreateRequest::default() });
        }
        answered(&mut hub, &history, &mut streams, 0);
        hub.stall(1);
        let kv = Some(KeyValue { key: "a".into(), mod_revision: 6, ..KeyValue::default() });
        history.events.push(Event { kv, ..Event::default() });
        history.revision = 6;
        hub.progress(1);
        let told = answered(&mut hub, &history, &mut streams, 1_000);
        let told: Vec<i64> = told.iter().filter_map(|response| Some(response.header.as_ref()?.revision)).collect();
        assert_eq!(told, [progress], "{mistake:?}");
    }
    Mistake::plant(None);
}

#[test]
fn a_watch_holds_nothing_of_its_request() {
    let mut hub = Hub::new(1, Live::default());
    hub.open(1);
    hub.up(Lane::Main);
    let message = Bytes::from(vec![b'k'; 1 << 20]);
    let (key, range_end) = (message.slice(10..20), message.slice(20..40));
    hub.create(1, WatchCreateRequest { key, range_end, ..WatchCreateRequest::default() });
    hub.take();
    assert!(hub.feeds() == 1 && message.is_unique(), "the whole message stays with a part of it");
}

#[test]
fn members_are_not_asked_for_progress_again_and_again() {
    let (mut hub, history) = (Hub::new(1, Live::default()), History { revision: 5, ..History::default() });
    let mut streams = [(); 2].map(|()| Stream { knows_token: true, is_up: true, ..Stream::default() });
    hub.open(1);
    LANES.into_iter().for_each(|lane| hub.up(lane));
    // One range more than a feed takes on beside its own.
    let parts = (0..65).map(|number| (format!("a{number:02}"), format!("a{number:02}x")));
    for (key, range_end) in [("a".into(), "b".into())].into_iter().chain(parts) {
        let request = WatchCreateRequest { key: key.into(), range_end: range_end.into(), ..Default::default() };
        hub.create(1, request);
    }
    for round in 0..10 {
        answered(&mut hub, &history, &mut streams, round * 1_000);
    }
    assert_eq!(hub.feeds(), 2, "all but one share");
    while hub.work() {}
    assert!(!hub.is_waiting(), "nothing comes of the next answer either");
}

#[test]
fn a_client_with_many_watches_keeps_no_other_waiting() {
    let (mut hub, history) = (Hub::new(1, Live::default()), History { revision: 5, ..History::default() });
    let mut streams = [(); 2].map(|()| Stream { knows_token: true, is_up: true, ..Stream::default() });
    hub.open(1);
    LANES.into_iter().for_each(|lane| hub.up(lane));
    for watch_id in 1..=300 {
        let key = watch_id.to_string().into();
        hub.create(1, WatchCreateRequest { key, watch_id, ..WatchCreateRequest::default() });
    }
    let asked = hub.out.len();
    assert!(asked < 10, "{asked} requests wait for a member that answers nothing");
    for round in 0..15 {
        answered(&mut hub, &history, &mut streams, round * 1_000);
    }
    assert_eq!(streams[0].watches.len(), 300);
    hub.close(1);
    let (mut turns, mut left) = (0, hub.take().len());
    assert!(left < 10, "{left} at once");
    while hub.has_work() {
        hub.work();
        let more = hub.take().len();
        assert!(more < 10, "{more} at once");
        (turns, left) = (turns + 1, left + more);
    }
    assert!(left == 300 && turns > 50 && hub.feeds() == 0, "{left} in {turns} turns");
}

#[test]
fn a_schedule_is_the_same_for_the_same_seed() {
    let trace = |seed| {
        let mut world = World::new(seed);
        (0..STEPS).for_each(|_| world.step().expect("no mistake"));
        let seen = world.clients.iter().map(|(id, client)| {
            (*id, client.progress, client.watches.iter().map(|(number, seen)| (*number, seen.next)).collect::<Vec<_>>())
        });
        (world.history.revision, seen.collect::<Vec<_>>())
    };
    assert_eq!(trace(5), trace(5));
}

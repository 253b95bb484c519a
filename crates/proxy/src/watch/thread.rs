//! The thread that has all hubs: it takes what clients ask and members send, and carries out what the hubs want.

use api::Error;
use api::Message as _;
use api::etcdserverpb::watch_request::RequestUnion;
use api::etcdserverpb::{WatchRequest, WatchResponse};
use budget::Claim;
use rpc::Origin;
use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use telemetry::logging;
use tokio::sync::Semaphore;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::AbortHandle;

use super::client::Mailbox;
use super::feed::{Lane, PerLane};
use super::lanes::{News, Teller, What, confirm, keep_stream, room_of_all};
use super::turns::Turns;
use super::{CircleId, Circles, ClientId, Output};
use crate::identity::Identity;
use crate::namespace::Namespace;
use crate::reads::{Reads, Written};
use crate::service::Common;
use crate::upstream::Upstream;

mod seat;

use seat::Seat;

/// How often hubs are told the time, and how often they are counted.
const TICK: Duration = Duration::from_millis(50);
const COUNT: Duration = Duration::from_secs(1);
/// How long hubs are worked on before the streams have a turn.
const SLICE: Duration = Duration::from_micros(200);
/// What is taken in at a time of what clients ask, and of what members send.
const TAKEN_IN_MAX: usize = 1_024;
/// How often it is looked whether there is room for clients that have none.
const RETRY: Duration = Duration::from_millis(250);
const LANES: [Lane; 2] = [Lane::Main, Lane::Future];

/// What clients' streams tell the thread.
pub(crate) enum Command {
    /// A stream begins. Those with the same identity share watches. What it takes is claimed; what its watches take will be.
    Open(ClientId, Origin, Identity, Arc<Mailbox>, Claim),
    /// A request, which counts as so many bytes until it is handled.
    Ask(ClientId, RequestUnion, usize),
    /// A client that was stalled takes what it is told again.
    Resume(ClientId),
    /// A stream is over.
    Close(ClientId),
}

impl Command {
    fn client(&self) -> ClientId {
        match self {
            Command::Open(id, ..) | Command::Ask(id, ..) | Command::Resume(id) | Command::Close(id) => *id,
        }
    }
}

/// Watches as the metrics show them.
#[derive(Debug, Default)]
pub(crate) struct Gauges {
    /// Of clients.
    pub(crate) watches: AtomicU64,
    /// At members.
    pub(crate) feeds: AtomicU64,
}

/// The streams of a circle.
#[derive(Default)]
struct Links {
    tasks: PerLane<Option<AbortHandle>>,
    requests: PerLane<Option<UnboundedSender<WatchRequest>>>,
    /// The stream of each lane that counts; 0 for none.
    streams: PerLane<u64>,
    /// Whether [`What::Work`] waits for its turn.
    works: bool,
}

struct Thread {
    upstream: Arc<Upstream>,
    namespace: Namespace,
    circles: Circles,
    links: HashMap<CircleId, Links>,
    clients: HashMap<ClientId, Seat>,
    asked: Turns<Command>,
    told: Turns<News>,
    /// What was spent on `asked` beyond what was spent on `told`, in nanoseconds.
    ahead: i64,
    news: UnboundedSender<News>,
    room_of_all: Arc<Semaphore>,
    reads: Arc<Reads>,
    began: Instant,
    ticked: Instant,
    counted: Instant,
    gauges: Arc<Gauges>,
    /// Clients for which there is no room, although nothing waits for them in their mailboxes.
    starved: Vec<ClientId>,
    retried: Instant,
}

/// Starts the thread.
pub(crate) fn start(common: &Common) -> Result<UnboundedSender<Command>, io::Error> {
    let Common { upstream, namespace, live, gauges, reads, .. } = common.clone();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let (commands, queue) = unbounded_channel();
    let (news, from_members) = unbounded_channel();
    let now = Instant::now();
    let thread = Thread {
        circles: Circles::new(upstream.members(), live),
        upstream,
        namespace,
        links: HashMap::new(),
        clients: HashMap::new(),
        asked: Turns::default(),
        told: Turns::default(),
        ahead: 0,
        news,
        room_of_all: room_of_all(),
        reads,
        began: now,
        ticked: now,
        counted: now,
        gauges,
        starved: Vec::new(),
        retried: now,
    };
    std::thread::Builder::new()
        .name("watches".into())
        .spawn(move || runtime.block_on(thread.run(queue, from_members)))?;
    Ok(commands)
}

impl Thread {
    async fn run(mut self, mut queue: UnboundedReceiver<Command>, mut from_members: UnboundedReceiver<News>) {
        let mut clock = tokio::time::interval(TICK);
        clock.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            for _ in 0..TAKEN_IN_MAX {
                let (command, news) = (queue.try_recv().ok(), from_members.try_recv().ok());
                if command.is_none() && news.is_none() {
                    break;
                }
                command.into_iter().for_each(|command| self.asked.add(command.client(), command));
                news.into_iter().for_each(|news| self.told.add(news.circle, news));
            }
            if self.asked.is_empty() && self.told.is_empty() {
                tokio::select! {
                    Some(news) = from_members.recv() => self.told.add(news.circle, news),
                    Some(command) = queue.recv() => self.asked.add(command.client(), command),
                    _ = clock.tick() => {}
                }
            } else {
                self.work();
                // The streams are tasks of this thread.
                tokio::task::yield_now().await;
            }
            if self.ticked.elapsed() >= TICK {
                self.tick();
            }
        }
    }

    /// Works for a while: as long on what clients ask as on what members send, and as long for each client, and each circle.
    fn work(&mut self) {
        let began = Instant::now();
        let mut since = began;
        while since.duration_since(began) < SLICE {
            let is_for_client = !self.asked.is_empty() && (self.ahead <= 0 || self.told.is_empty());
            let (circle, party) = if is_for_client {
                let Some((client, command)) = self.asked.next() else { return };
                (self.obey(command), client)
            } else {
                let Some((circle, news)) = self.told.next() else { return };
                (self.take_news(news), circle)
            };
            if let Some(circle) = circle {
                self.settle(circle);
            }
            let now = Instant::now();
            let nanos = u64::try_from(now.duration_since(since).as_nanos()).unwrap_or(u64::MAX);
            since = now;
            let signed = i64::try_from(nanos).unwrap_or(i64::MAX);
            if is_for_client {
                self.asked.took(party, nanos);
                self.ahead = self.ahead.saturating_add(signed);
            } else {
                self.told.took(party, nanos);
                self.ahead = self.ahead.saturating_sub(signed);
            }
            if self.asked.is_empty() || self.told.is_empty() {
                // Time that nobody else wanted is no debt.
                self.ahead = 0;
            }
        }
    }

    fn tick(&mut self) {
        self.ticked = Instant::now();
        let now_ms = u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX);
        for circle in self.circles.waiting() {
            if let Some(hub) = self.circles.hub_mut(circle) {
                hub.tick(now_ms);
            }
            self.settle(circle);
        }
        if self.retried.elapsed() >= RETRY {
            self.retried = self.ticked;
            std::mem::take(&mut self.starved).into_iter().for_each(|id| self.retry(id));
        }
        if self.counted.elapsed() >= COUNT {
            self.counted = self.ticked;
            let (watches, feeds) = self.circles.counts();
            self.gauges.watches.store(watches, Ordering::Relaxed);
            self.gauges.feeds.store(feeds, Ordering::Relaxed);
        }
    }

    /// Carries out a command; returns the circle that it was for.
    fn obey(&mut self, command: Command) -> Option<CircleId> {
        match command {
            Command::Open(id, origin, identity, mailbox, claim) => {
                let (circle, lost) = self.circles.open(id, origin, &identity);
                self.clients.insert(id, Seat::new(mailbox, claim));
                if let Some(lost) = lost {
                    self.settle(lost);
                }
                Some(circle)
            }
            Command::Ask(id, request, bytes) => {
                let circle = self.circles.of(id)?;
                let seat = self.clients.get_mut(&id)?;
                seat.mailbox.handled(bytes);
                let hub = self.circles.hub_mut(circle)?;
                match request {
                    RequestUnion::CreateRequest(request) => {
                        if seat.claims(hub.bytes_with(id, &request)) {
                            hub.create(id, request);
                        } else {
                            hub.refuse(id, Error::TooManyRequests.message());
                        }
                    }
                    RequestUnion::CancelRequest(request) => hub.cancel(id, request.watch_id),
                    RequestUnion::ProgressRequest(_) => hub.progress(id),
                }
                Some(circle)
            }
            Command::Resume(id) => {
                let circle = self.circles.of(id)?;
                self.clients.get_mut(&id)?.resume();
                self.circles.hub_mut(circle)?.resume(id);
                Some(circle)
            }
            Command::Close(id) => {
                self.asked.forget(id);
                self.clients.remove(&id);
                self.circles.close(id)
            }
        }
    }

    fn take_news(&mut self, news: News) -> Option<CircleId> {
        let Some(links) = self.links.get_mut(&news.circle) else {
            // The circle is gone.
            self.told.forget(news.circle);
            return None;
        };
        let hub = self.circles.hub_mut(news.circle)?;
        let current = links.streams.of_mut(news.lane);
        match news.what {
            What::Up(sender) => {
                *current = news.stream;
                *links.requests.of_mut(news.lane) = Some(sender);
                hub.up(news.lane);
            }
            What::Work => {
                links.works = false;
                hub.work();
            }
            What::Refused(status) => hub.end_all(&status),
            What::Confirmed(revision) => {
                if let (Some(seen), Some(revision)) = (hub.confirmed(revision), revision) {
                    let fields = [("seen", seen.into()), ("revision", revision.into())];
                    logging::error("the members' data went back; watches of what there was are ended", &fields);
                    self.reads.wrote(&Written::Everything);
                }
            }
            // What is said of a stream that was given up counts no more.
            _ if *current != news.stream => return None,
            What::Down => {
                *current = 0;
                *links.requests.of_mut(news.lane) = None;
                hub.down(news.lane);
            }
            What::Message(message) => match WatchResponse::decode(message) {
                Ok(mut response) => {
                    if hub.is_of_another_cluster(&response) {
                        logging::error("the members belong to another cluster now; watches are ended", &[]);
                        self.reads.wrote(&Written::Everything);
                    }
                    self.namespace.events(&mut response);
                    hub.receive(news.lane, response);
                }
                Err(_) => {
                    *current = 0;
                    *links.requests.of_mut(news.lane) = None;
                    hub.down(news.lane);
                }
            },
        }
        Some(news.circle)
    }

    /// Carries out what a hub wants, until it wants nothing more.
    fn settle(&mut self, number: CircleId) {
        while let Some(outputs) =
            self.circles.hub_mut(number).map(super::Hub::take).filter(|outputs| !outputs.is_empty())
        {
            for output in outputs {
                self.carry_out(number, output);
            }
        }
        if self.circles.remove_if_empty(number) {
            self.told.forget(number);
            if let Some(links) = self.links.remove(&number) {
                LANES.iter().filter_map(|lane| links.tasks.of(*lane).as_ref()).for_each(AbortHandle::abort);
            }
            return;
        }
        self.circles.look_at(number);
        let Some(identity) = self.circles.identity(number).cloned() else { return };
        let links = self.links.entry(number).or_default();
        if self.circles.hub_mut(number).is_some_and(|hub| hub.has_work()) && !std::mem::replace(&mut links.works, true)
        {
            self.told.add(number, News::work(number));
        }
        for lane in LANES {
            let task = links.tasks.of_mut(lane);
            if task.is_none() && self.circles.hub_mut(number).is_some_and(|hub| hub.needs(lane)) {
                let (news, room_of_all) = (self.news.clone(), self.room_of_all.clone());
                let teller = Teller { circle: number, lane, news, room_of_all };
                let stream = keep_stream(self.upstream.clone(), identity.metadata().clone(), teller);
                *task = Some(tokio::spawn(stream).abort_handle());
            }
        }
    }

    fn carry_out(&mut self, circle: CircleId, output: Output) {
        match output {
            Output::Tell(id, telling) => self.tell(circle, id, telling),
            Output::End(id, status) => self.end(id, status),
            Output::Ask(lane, request) => {
                let sender = self.links.get(&circle).and_then(|links| links.requests.of(lane).as_ref());
                // One that has just ended says so itself.
                let _ = sender.map(|sender| sender.send(request));
            }
            Output::Confirm(key) => {
                let Some(identity) = self.circles.identity(circle) else { return };
                let (news, room_of_all) = (self.news.clone(), self.room_of_all.clone());
                let teller = Teller { circle, lane: Lane::Main, news, room_of_all };
                tokio::spawn(confirm(self.upstream.clone(), identity.metadata().clone(), key, teller));
            }
            Output::Elsewhere(lane) => {
                if let Some(links) = self.links.get_mut(&circle) {
                    *links.streams.of_mut(lane) = 0;
                    *links.requests.of_mut(lane) = None;
                }
            }
        }
    }
}

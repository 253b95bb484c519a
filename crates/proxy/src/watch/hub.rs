//! Which watch of a client gets its events from which watch at a member.

use api::etcdserverpb::watch_create_request::FilterType;
use api::etcdserverpb::watch_request::RequestUnion;
use api::etcdserverpb::{ResponseHeader, WatchCreateRequest, WatchRequest, WatchResponse};
use api::mvccpb::Event;
use bytes::Bytes;
use rpc::Status;
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};

use super::audience::Id;
use super::feed::{Feed, Lane, Live, PerLane};
use super::mistake::Mistake;
use super::picked::Wants;
use super::{ClientId, FeedId, NO_WATCH, Subject, Telling, WatchId};

mod feeding;
mod going_back;
mod received;
mod turning;

/// What a watch takes beside its keys, in bytes: its own entry, and that of a feed.
const WATCH_BYTES: usize = 768;
/// Bytes of recent events that all feeds together keep.
const RECENT_BYTES_MAX: usize = 32 << 20;
/// Watches that one client may have.
const CLIENT_WATCHES_MAX: usize = api::limits::CONNECTION_WATCHES_MAX as usize;
/// A member that has not told its progress for so long is asked again: it does not answer while a watch of the stream lags behind.
const PROGRESS_PATIENCE_MS: u64 = 100;
/// How often the time until the next watch is moved for it doubles: up to 3.2 s.
const MOVES_DOUBLED: u32 = 5;

/// What a hub wants done, in this order.
#[derive(Debug)]
pub(crate) enum Output {
    /// A client is told something.
    Tell(ClientId, Telling),
    /// A client's stream ends, and is to be forgotten.
    End(ClientId, Status),
    /// A member is asked something, on the stream of this lane.
    Ask(Lane, WatchRequest),
    /// The stream of this lane is to be one to another member. It counts as lost already.
    Elsewhere(Lane),
    /// A member seems to have less than another one had: [`Hub::confirmed`] wants the revision of a linearizable read of this key.
    Confirm(Bytes),
}

/// A watch of a client.
#[derive(Debug)]
struct Watch {
    subject: Subject,
    /// The first revision that the client has not been sent; 0 as long as a member has to say where the watch begins.
    next: i64,
    /// Where its events come from; none while its client takes nothing. It was given everything up to the position of that.
    feed: Option<FeedId>,
    /// Whether the client knows that it was created.
    is_told: bool,
    /// The client does not want it any more, but has still to be told that it was created.
    is_canceled: bool,
    progress_notify: bool,
    fragment: bool,
    no_put: bool,
    no_delete: bool,
}

impl Watch {
    /// Whether an event is about its keys.
    fn is_about(&self, event: &Event) -> bool {
        event.kv.as_ref().is_some_and(|kv| self.subject.has(&kv.key))
    }

    fn wants(&self) -> Wants {
        Wants { next: self.next, no_put: self.no_put, no_delete: self.no_delete }
    }
}

#[derive(Debug, Default)]
struct Client {
    watches: BTreeMap<WatchId, Watch>,
    next_watch: WatchId,
    /// What its watches take.
    bytes: usize,
    /// It takes nothing.
    is_stalled: bool,
    /// How many of its watches are still looked at since it has stalled or resumed.
    unturned: usize,
    /// The one that was looked at last when it had resumed, and when it had stalled.
    turned: [WatchId; 2],
}

/// What a watch takes, in bytes.
fn bytes_of(key: &[u8], range_end: &[u8]) -> usize {
    key.len().saturating_add(range_end.len()).saturating_mul(2).saturating_add(WATCH_BYTES)
}

impl Client {
    fn remove(&mut self, number: WatchId) -> Option<Watch> {
        let watch = self.watches.remove(&number)?;
        self.bytes = self.bytes.saturating_sub(bytes_of(&watch.subject.key, &watch.subject.range_end));
        Some(watch)
    }
}

/// Requests for progress: those that a member was asked for, and those that came afterwards.
#[derive(Debug, Default)]
struct Progress {
    asked: BTreeSet<ClientId>,
    waiting: BTreeSet<ClientId>,
    /// When the member was asked.
    since_ms: u64,
    is_asked: bool,
    /// How often in a row a watch was moved to the main stream to find out how far the member is, and when the next one may be.
    moves: u32,
    moves_at_ms: u64,
}

/// The watches of all clients that have the same credentials.
#[derive(Debug, Default)]
pub(crate) struct Hub {
    clients: HashMap<ClientId, Client>,
    pub(super) feeds: BTreeMap<FeedId, Feed>,
    /// Feeds by their first key.
    beginnings: BTreeMap<Bytes, BTreeSet<FeedId>>,
    last_feed: FeedId,
    /// Feeds that members were asked for and have not answered, in order.
    creating: PerLane<VecDeque<FeedId>>,
    /// Feeds that members are to be asked for once they have answered some of those.
    unasked: PerLane<BTreeSet<FeedId>>,
    /// Feeds that may be joined with others, or are broken up.
    line: VecDeque<FeedId>,
    /// Clients that have stalled or resumed, and some of whose watches are on feeds or off them as before. Each has its turn for one watch.
    turning: VecDeque<ClientId>,
    /// Watches of clients that have gone, as long as they are on feeds.
    leaving: BTreeMap<ClientId, BTreeMap<WatchId, Watch>>,
    /// Whether it is their turn, and not that of the line.
    is_leaving_next: bool,
    is_up: PerLane<bool>,
    progress: Progress,
    /// What came last from a member.
    header: ResponseHeader,
    /// The newest revision that a member had, while it is asked whether they all have less now.
    confirming: Option<i64>,
    recent_bytes: usize,
    /// Feeds of each lane.
    lanes: PerLane<usize>,
    /// Members that there are to ask.
    members: usize,
    /// Counts the bytes of events that are in memory.
    live: Live,
    /// How many members in a row did not know the token.
    pub(super) refusals: PerLane<usize>,
    /// Whether a member has taken a watch of these clients.
    is_known: bool,
    now_ms: u64,
    pub(super) out: Vec<Output>,
}

impl Hub {
    /// A hub whose streams lead to one of so many members, and whose events count as `live`.
    pub(crate) fn new(members: usize, live: Live) -> Hub {
        Hub { members, live, ..Hub::default() }
    }

    /// What there is to do since this was asked last.
    pub(crate) fn take(&mut self) -> Vec<Output> {
        std::mem::take(&mut self.out)
    }

    /// Whether there is no client.
    pub(crate) fn is_empty(&self) -> bool {
        self.clients.is_empty()
    }

    /// Whether a member has taken a watch of these clients: their identity was not just made up.
    pub(crate) fn is_known(&self) -> bool {
        self.is_known
    }

    /// Watches at members.
    pub(crate) fn feeds(&self) -> usize {
        self.feeds.len()
    }

    /// Watches of clients.
    pub(crate) fn watches(&self) -> usize {
        self.clients.values().map(|client| client.watches.len()).sum()
    }

    /// Bytes of recent events that it keeps.
    pub(crate) fn recent_bytes(&self) -> usize {
        self.recent_bytes
    }

    /// Forgets the recent events of all feeds.
    pub(crate) fn forget_recent(&mut self) {
        self.feeds.values_mut().for_each(Feed::forget_recent);
        self.recent_bytes = 0;
    }

    /// What the watches of a client take, in bytes, with one more for which it asks.
    pub(crate) fn bytes_with(&self, client: ClientId, request: &WatchCreateRequest) -> usize {
        let more = bytes_of(&request.key, &request.range_end);
        self.clients.get(&client).map_or(0, |client| client.bytes).saturating_add(more)
    }

    /// Whether a stream of this lane is needed.
    pub(crate) fn needs(&self, lane: Lane) -> bool {
        *self.lanes.of(lane) > 0 || (lane == Lane::Main && self.progress.is_asked)
    }

    /// A client has begun a stream.
    pub(crate) fn open(&mut self, client: ClientId) {
        self.clients.entry(client).or_default();
    }

    /// A client's stream is over.
    pub(crate) fn close(&mut self, client: ClientId) {
        let Some(gone) = self.clients.remove(&client) else { return };
        self.progress.asked.remove(&client);
        self.progress.waiting.remove(&client);
        if !gone.watches.is_empty() {
            self.leaving.insert(client, gone.watches);
        }
    }

    /// Refuses a client a watch.
    pub(crate) fn refuse(&mut self, client: ClientId, reason: &str) {
        let (created, canceled, cancel_reason) = (true, true, reason.into());
        let answer = WatchResponse { watch_id: NO_WATCH, created, canceled, cancel_reason, ..self.answer() };
        self.tell(client, answer);
    }

    /// A client wants a watch.
    pub(crate) fn create(&mut self, id: ClientId, request: WatchCreateRequest) {
        let Some(client) = self.clients.get_mut(&id) else { return };
        let mut number = request.watch_id;
        if number == 0 {
            while client.watches.contains_key(&client.next_watch) {
                client.next_watch = client.next_watch.saturating_add(1);
            }
            number = client.next_watch;
            client.next_watch = client.next_watch.saturating_add(1);
        }
        let refusal = if client.watches.contains_key(&number) {
            Some(api::Error::WatchDuplicateId.message().to_string())
        } else if client.watches.len() >= CLIENT_WATCHES_MAX {
            Some(format!("the proxy takes {CLIENT_WATCHES_MAX} watches of a client at most"))
        } else {
            None
        };
        if let Some(reason) = refusal {
            return self.refuse(id, &reason);
        }
        let filtered = |kind: FilterType| request.filters.contains(&(kind as i32));
        let (no_put, no_delete) = (filtered(FilterType::Noput), filtered(FilterType::Nodelete));
        // Copies: both are parts of the client's message, and a watch outlives that.
        let (key, range_end) = (Bytes::copy_from_slice(&request.key), Bytes::copy_from_slice(&request.range_end));
        let no_events = no_put && no_delete;
        let subject = Subject { key, range_end, prev_kv: request.prev_kv && !no_events, no_events };
        let watch = Watch {
            subject,
            next: request.start_revision.max(0),
            feed: None,
            is_told: false,
            is_canceled: false,
            progress_notify: request.progress_notify,
            fragment: request.fragment,
            no_put,
            no_delete,
        };
        if client.unturned > 0 {
            // It may come before some that are not looked at yet.
            client.unturned = client.unturned.saturating_add(1);
        }
        client.bytes = client.bytes.saturating_add(bytes_of(&watch.subject.key, &watch.subject.range_end));
        client.watches.insert(number, watch);
        self.feed_anew(id, number);
    }

    /// A client does not want a watch any more. One that there is not is not answered.
    pub(crate) fn cancel(&mut self, id: ClientId, number: WatchId) {
        let Some(client) = self.clients.get_mut(&id) else { return };
        let Some(watch) = client.watches.get_mut(&number) else { return };
        if !watch.is_told {
            watch.is_canceled = true;
            return;
        }
        if let Some(watch) = client.remove(number) {
            self.take_off((id, number), &watch.subject, watch.feed);
        }
        let answer = WatchResponse { watch_id: number, canceled: true, ..self.answer() };
        self.tell(id, answer);
    }

    /// A client asks how far its watches are.
    pub(crate) fn progress(&mut self, client: ClientId) {
        if !self.clients.contains_key(&client) {
            return;
        }
        self.progress.waiting.insert(client);
        if !self.progress.is_asked {
            self.ask_progress();
        }
    }

    /// There is a stream to a member: everything is asked for again, from where it was.
    pub(crate) fn up(&mut self, lane: Lane) {
        *self.is_up.of_mut(lane) = true;
        self.creating.of_mut(lane).clear();
        self.unasked.of_mut(lane).clear();
        let feeds: Vec<FeedId> =
            self.feeds.iter().filter(|(_, feed)| feed.lane == lane).map(|(number, _)| *number).collect();
        for number in feeds {
            if let Some(feed) = self.feeds.get_mut(&number) {
                (feed.is_asked, feed.is_created, feed.is_begun) = (false, false, false);
            }
            if Mistake::RepeatsAfterResumption.is_planted() {
                self.go_back(number);
            }
            self.ask_for(number);
        }
        if lane == Lane::Main && (self.progress.is_asked || !self.progress.waiting.is_empty()) {
            self.ask_progress();
        }
    }

    /// Has a feed and its watches forget the last revision, for a mistake that is planted.
    fn go_back(&mut self, number: FeedId) {
        let Some(feed) = self.feeds.get_mut(&number).filter(|feed| feed.position > 0) else { return };
        feed.position = feed.position.saturating_sub(1);
        let (next, watches) = (feed.position.saturating_add(1), feed.audience.ids());
        for id in watches {
            if let Some(watch) = self.watch_mut(id) {
                watch.next = watch.next.min(next);
            }
        }
    }

    /// The stream is lost.
    pub(crate) fn down(&mut self, lane: Lane) {
        *self.is_up.of_mut(lane) = false;
        self.creating.of_mut(lane).clear();
        self.unasked.of_mut(lane).clear();
        for feed in self.feeds.values_mut().filter(|feed| feed.lane == lane) {
            (feed.is_asked, feed.is_created) = (false, false);
        }
    }

    /// Members refuse all that these clients ask: their streams end.
    pub(crate) fn end_all(&mut self, status: &Status) {
        let mut clients: Vec<ClientId> = self.clients.keys().copied().collect();
        clients.sort_unstable();
        *self =
            Hub { is_up: self.is_up, out: std::mem::take(&mut self.out), ..Hub::new(self.members, self.live.clone()) };
        self.out.extend(clients.into_iter().map(|client| Output::End(client, status.clone())));
    }

    /// So late is it now.
    pub(crate) fn tick(&mut self, now_ms: u64) {
        self.now_ms = now_ms;
        if self.progress.is_asked && now_ms.saturating_sub(self.progress.since_ms) >= PROGRESS_PATIENCE_MS {
            let is_main_empty = *self.lanes.of(Lane::Main) == 0;
            if is_main_empty && self.progress.asked.is_empty() && self.progress.waiting.is_empty() {
                // Those that asked have gone, and there is nothing to join.
                (self.progress.is_asked, self.progress.moves) = (false, 0);
                return;
            }
            // A watch that seemed to begin in the future, to a member that lagged behind, may not any more.
            if *self.lanes.of(Lane::Future) > 0 && *self.is_up.of(Lane::Main) {
                let future = || self.feeds.iter().filter(|(_, feed)| feed.lane == Lane::Future);
                let mut due: Vec<FeedId> =
                    future().filter(|(_, feed)| feed.position <= self.header.revision).map(|(id, _)| *id).collect();
                if due.is_empty() && is_main_empty && now_ms >= self.progress.moves_at_ms {
                    // A stream without a watch is told no progress: the first to begin finds out how far the member is. It may begin in
                    // years, so this is done less and less often.
                    let created = future().filter(|(_, feed)| feed.is_created);
                    if let Some((first, _)) = created.min_by_key(|(_, feed)| feed.position) {
                        due.push(*first);
                        let pause = PROGRESS_PATIENCE_MS << self.progress.moves.min(MOVES_DOUBLED);
                        self.progress.moves = self.progress.moves.saturating_add(1);
                        self.progress.moves_at_ms = now_ms.saturating_add(pause);
                    }
                }
                due.into_iter().for_each(|number| self.change_lane(number, Lane::Main));
            }
            self.ask_progress();
        }
    }

    /// Whether [`Hub::tick`] has something to wait for.
    pub(crate) fn is_waiting(&self) -> bool {
        self.progress.is_asked
    }

    /// A watch of a client that has not gone.
    fn known_mut(&mut self, (client, number): Id) -> Option<&mut Watch> {
        self.clients.get_mut(&client)?.watches.get_mut(&number)
    }

    /// A watch that may be on a feed.
    fn watch_mut(&mut self, (client, number): Id) -> Option<&mut Watch> {
        match self.clients.get_mut(&client) {
            Some(client) => client.watches.get_mut(&number),
            None => self.leaving.get_mut(&client)?.get_mut(&number),
        }
    }

    fn answer(&self) -> WatchResponse {
        self.answer_at(self.header)
    }

    fn answer_at(&self, header: ResponseHeader) -> WatchResponse {
        WatchResponse { header: Some(header), ..WatchResponse::default() }
    }

    fn tell(&mut self, client: ClientId, response: WatchResponse) {
        self.out.push(Output::Tell(client, Telling::Plain(response)));
    }

    fn ask(&mut self, lane: Lane, request: RequestUnion) {
        if *self.is_up.of(lane) {
            self.out.push(Output::Ask(lane, WatchRequest { request_union: Some(request) }));
        }
    }
}

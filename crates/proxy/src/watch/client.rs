//! A client's watch stream.

use api::Code;
use api::Message as _;
use api::etcdserverpb::WatchRequest;
use api::etcdserverpb::watch_create_request::FilterType;
use api::etcdserverpb::watch_request::RequestUnion;
use budget::Claim;
use bytes::Bytes;
use parking_lot::Mutex;
use rpc::{Outbound, Status, StreamHandler};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::sync::mpsc::UnboundedSender;

use super::feed::Live;
use super::thread::Command;
use super::{ClientId, Telling, encode};
use crate::namespace::Namespace;
use crate::on_way::OnWay;

/// Bytes that may wait for a client before its watches are taken off their feeds.
const WAITING_BYTES_MAX: usize = 256 * 1024;
/// Bytes that may wait for it while events take too much memory in all.
const CROWDED_BYTES_MAX: usize = 16 * 1024;
/// Bytes of events in memory that are too much.
const LIVE_BYTES_MAX: usize = 128 << 20;
/// What a request takes at least until it is handled.
const REQUEST_BYTES_MIN: usize = 256;

/// What is claimed for what waits, in steps of so many bytes.
const CLAIM_STEP_BYTES: u64 = 16 * 1024;

/// What a client is to be told.
pub(crate) struct Mailbox {
    state: Mutex<State>,
    wake: Box<dyn Fn() + Send + Sync>,
    /// All events in memory.
    live: Live,
    /// Bytes of its requests that are not handled yet.
    pub(crate) asked_bytes: AtomicUsize,
}

struct State {
    tellings: VecDeque<Telling>,
    bytes: usize,
    /// For `bytes`.
    claim: Claim,
    on_way: OnWay,
    is_stalled: bool,
    end: Option<Status>,
}

/// What became of events for a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pushed {
    Taken,
    /// There is no room for them before the client takes what waits. It says so when it has.
    Full,
    /// There is no room for them before those that the client was sent last have left.
    Sending,
    /// There is no room for them, and nothing of this client is there.
    Starved,
    /// There is no room for progress that nobody has asked for. The next that is told says as much.
    LeftOut,
}

/// What is claimed for so many bytes.
fn claimed(bytes: usize) -> u64 {
    (bytes as u64).next_multiple_of(CLAIM_STEP_BYTES)
}

impl State {
    /// Whether there is room for so many bytes.
    fn has_room(&mut self, bytes: usize) -> bool {
        let claimed = claimed(bytes);
        bytes <= api::limits::BUDGET_FREE_BYTES || claimed <= self.claim.bytes() || self.claim.resize(claimed)
    }

    /// Gives back what is claimed for what waits no more.
    fn release(&mut self) {
        let needed = match self.bytes {
            0..=api::limits::BUDGET_FREE_BYTES => 0,
            bytes => claimed(bytes),
        };
        if needed < self.claim.bytes() {
            // Less is always granted.
            self.claim.resize(needed);
        }
    }
}

impl Mailbox {
    /// `wake` has the client's connection look at it; `claim` is one of nothing yet.
    pub(crate) fn new(wake: impl Fn() + Send + Sync + 'static, live: Live, claim: Claim) -> Mailbox {
        let (tellings, on_way, end) = Default::default();
        let state = State { tellings, bytes: 0, claim, on_way, is_stalled: false, end };
        Mailbox { state: Mutex::new(state), wake: Box::new(wake), live, asked_bytes: AtomicUsize::new(0) }
    }

    /// Leaves something for the client. Events, and progress that it has not asked for, are left only if there is room for them: in its
    /// part, where one telling may be larger if it is alone, and in the budget. Everything else answers a request or ends a watch, and
    /// so comes at most once for each that the client has made; requests wait while there are many answers.
    pub(crate) fn push(&self, telling: Telling) -> Pushed {
        let mut state = self.state.lock();
        let is_first = state.tellings.is_empty();
        let bytes = state.bytes.saturating_add(telling.bytes());
        let is_crowded = self.live.bytes() > LIVE_BYTES_MAX;
        let most = if is_crowded { CROWDED_BYTES_MAX } else { WAITING_BYTES_MAX };
        let is_events = matches!(telling, Telling::Events { .. });
        let needs_room = is_events || telling.is_unasked();
        let has_room = (bytes <= most || is_first || !needs_room) && state.has_room(bytes);
        if needs_room && !has_room {
            if !is_events {
                return Pushed::LeftOut;
            }
            state.is_stalled = true;
            if !is_first {
                return Pushed::Full;
            }
            if state.on_way.has_any() {
                return Pushed::Sending;
            }
            state.claim.refused(claimed(bytes));
            return Pushed::Starved;
        }
        state.bytes = bytes;
        state.tellings.push_back(telling);
        drop(state);
        if is_first {
            (self.wake)();
        }
        Pushed::Taken
    }

    /// The next messages for the client, and whether it has to be resumed. Large ones are claimed until they have left.
    fn take(&self) -> Option<(Vec<Bytes>, bool)> {
        let mut state = self.state.lock();
        let telling = state.tellings.pop_front()?;
        let bytes = telling.bytes();
        state.bytes = state.bytes.saturating_sub(bytes);
        // Something is left, so that a client at its limit does not go to and fro.
        let resumes = state.is_stalled && state.bytes <= CROWDED_BYTES_MAX / 4;
        state.is_stalled &= !resumes;
        let is_large = bytes > api::limits::BUDGET_FREE_BYTES;
        let claim = is_large.then(|| state.claim.split(bytes as u64));
        state.release();
        drop(state);
        let mut messages = encode(telling);
        if let Some(mut claim) = claim {
            let state = self.state.lock();
            for message in &mut messages {
                let held = claim.split(message.len() as u64).hold(std::mem::take(message));
                *message = state.on_way.count(held);
            }
        }
        Some((messages, resumes))
    }

    /// Whether events that it was sent have not left yet.
    pub(crate) fn is_sending(&self) -> bool {
        self.state.lock().on_way.has_any()
    }

    /// Whether so much waits that the client's requests wait, too: each is answered.
    fn is_full(&self) -> bool {
        self.state.lock().bytes > WAITING_BYTES_MAX
    }

    /// Ends the client's stream after what waits.
    pub(crate) fn end(&self, status: Status) {
        self.state.lock().end = Some(status);
        (self.wake)();
    }

    /// A request was handled.
    pub(crate) fn handled(&self, bytes: usize) {
        self.asked_bytes.fetch_sub(bytes, Ordering::Relaxed);
        (self.wake)();
    }
}

/// The client's side of it.
pub(crate) struct Watching {
    pub(crate) id: ClientId,
    pub(crate) mailbox: Arc<Mailbox>,
    pub(crate) commands: UnboundedSender<Command>,
    pub(crate) namespace: Namespace,
    /// For requests that are not handled yet.
    pub(crate) claim: Claim,
    /// Requests that wait until the client takes what it is told, and what each counts as.
    pub(crate) later: VecDeque<(RequestUnion, usize)>,
}

impl Watching {
    fn pump(&self, out: &mut Outbound<'_>) {
        while out.has_room() {
            let Some((messages, resumes)) = self.mailbox.take() else {
                if let Some(status) = self.mailbox.state.lock().end.take() {
                    out.finish(status);
                }
                return;
            };
            messages.into_iter().for_each(|message| out.send(message));
            if resumes {
                self.command(Command::Resume(self.id));
            }
        }
    }

    /// Asks what waits, as long as there is room for answers.
    fn ask(&mut self) {
        while !self.mailbox.is_full()
            && let Some((request, bytes)) = self.later.pop_front()
        {
            self.command(Command::Ask(self.id, request, bytes));
        }
    }

    /// The thread of watches never ends before the process.
    fn command(&self, command: Command) {
        let _ = self.commands.send(command);
    }
}

/// Reads a request, which takes no more than its message does: a filter of one byte is four bytes as a number.
fn read(message: Bytes, namespace: &Namespace) -> Result<Option<RequestUnion>, api::DecodeError> {
    let Some(mut request) = WatchRequest::decode(message)?.request_union else { return Ok(None) };
    if let RequestUnion::CreateRequest(request) = &mut request {
        let filters = [FilterType::Noput as i32, FilterType::Nodelete as i32];
        request.filters = filters.into_iter().filter(|filter| request.filters.contains(filter)).collect();
        namespace.watch(request);
    }
    Ok(Some(request))
}

impl StreamHandler for Watching {
    fn message(&mut self, message: Bytes, out: &mut Outbound<'_>) {
        let bytes = message.len().max(REQUEST_BYTES_MIN);
        let held = self.held_bytes().saturating_add(bytes);
        if held > api::limits::BUDGET_FREE_BYTES && !self.claim.resize(held as u64) {
            return out.finish(api::Error::TooManyRequests.into());
        }
        let request = match read(message, &self.namespace) {
            Ok(Some(request)) => request,
            Ok(None) => return,
            Err(error) => {
                let text = format!("grpc: error unmarshalling request: {error}");
                return out.finish(Status::new(Code::Internal, text));
            }
        };
        self.mailbox.asked_bytes.fetch_add(bytes, Ordering::Relaxed);
        self.later.push_back((request, bytes));
        self.ask();
    }

    /// A client that sends no more requests still gets its events.
    fn half_closed(&mut self, _out: &mut Outbound<'_>) {}

    fn ready(&mut self, out: &mut Outbound<'_>) {
        let held = self.held_bytes() as u64;
        if self.claim.bytes() > held {
            // Less is always granted.
            self.claim.resize(held);
        }
        self.pump(out);
        self.ask();
    }

    fn held_bytes(&self) -> usize {
        self.mailbox.asked_bytes.load(Ordering::Relaxed)
    }
}

impl Drop for Watching {
    fn drop(&mut self) {
        self.command(Command::Close(self.id));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::held::Held;
    use crate::watch::NO_WATCH;
    use crate::watch::feed::Batch;
    use crate::watch::picked::{Selection, Wants};
    use api::etcdserverpb::{ResponseHeader, WatchCreateRequest, WatchResponse};
    use api::mvccpb::{Event, KeyValue};
    use rpc::Address;

    fn mailbox(held: &Held, port: u16) -> Mailbox {
        let client = Address::Tcp(([10, 0, 0, 1], port).into());
        Mailbox::new(|| {}, Live::default(), held.stream(client))
    }

    fn events(bytes: usize) -> Telling {
        let kv = Some(KeyValue { mod_revision: 5, value: vec![7; bytes].into(), ..KeyValue::default() });
        let events = vec![Event { kv, ..Event::default() }];
        let batch = Batch::new(ResponseHeader::default(), events, 4, &Live::default()).expect("events");
        let selection = Selection { batch: Arc::new(batch), about: None, wants: Wants::default() };
        Telling::Events { watch: 1, from: 5, fragment: false, selection }
    }

    fn answer() -> Telling {
        Telling::Plain(WatchResponse { watch_id: 7, created: true, ..WatchResponse::default() })
    }

    fn held_bytes(held: &Held) -> u64 {
        held.usage().map(|pool| pool.held_bytes).sum()
    }

    #[test]
    fn what_waits_for_a_client_is_claimed_and_bounded() {
        let held = Held::start(16 << 20).expect("a thread");
        let silent = mailbox(&held, 1);
        let pushed = (0..100).map(|_| silent.push(events(10_000)));
        assert_eq!(pushed.filter(|pushed| *pushed == Pushed::Taken).count(), 25, "256 KiB");
        assert!((250_000..=270_000).contains(&held_bytes(&held)), "{}", held_bytes(&held));
        // A large one is taken alone.
        let other = mailbox(&held, 2);
        assert_eq!(other.push(events(1 << 20)), Pushed::Taken);
        assert_eq!(other.push(events(1)), Pushed::Full);
        // Two mebibytes are what a connection may have, and four its host.
        let own = Address::Tcp(([10, 0, 0, 1], 9).into());
        assert!(!held.is_short(own), "what waits is its own client's");
        let more: Vec<_> = (3..6).map(|port| mailbox(&held, port)).collect();
        let pushed: Vec<Pushed> = more.iter().map(|mailbox| mailbox.push(events(1_500 << 10))).collect();
        assert_eq!(pushed, [Pushed::Taken, Pushed::Starved, Pushed::Starved]);
        assert!(held.is_short(own) && !held.is_short(Address::Unix), "others of the host have its share");
        // Answers are always left.
        assert_eq!(silent.push(answer()), Pushed::Taken);
        drop((silent, other, more));
        assert_eq!(held_bytes(&held), 0);
    }

    #[test]
    fn what_a_client_is_sent_is_claimed_until_it_has_left() {
        let held = Held::start(64 << 20).expect("a thread");
        let silent = mailbox(&held, 1);
        let sent = |bytes: usize, fragment: bool| {
            let Telling::Events { watch, from, selection, .. } = events(bytes) else { panic!("events") };
            assert_eq!(silent.push(Telling::Events { watch, from, fragment, selection }), Pushed::Taken);
            let (messages, _) = silent.take().expect("events");
            assert!(silent.take().is_none());
            messages
        };
        let small = sent(1_000, false);
        assert_eq!((small.len(), held_bytes(&held)), (1, 0), "as everywhere");
        let large: Vec<Bytes> = [sent(1 << 20, false), sent(2 << 20, true)].concat();
        let bytes: usize = large.iter().map(Bytes::len).sum();
        assert!((3 << 20..=bytes as u64).contains(&held_bytes(&held)), "{} of {bytes}", held_bytes(&held));
        // What waits besides has its own claim; when its connection has no more room, that is its own doing.
        assert_eq!(silent.push(events(1 << 20)), Pushed::Taken);
        assert!(held_bytes(&held) > 4 << 20 && silent.is_sending());
        let (waiting, _) = silent.take().expect("events");
        assert_eq!(silent.push(events(6 << 20)), Pushed::Sending);
        drop(waiting);
        assert_eq!(silent.push(events(1 << 20)), Pushed::Taken);
        drop(large);
        assert!((1 << 20..=2 << 20).contains(&held_bytes(&held)));
        drop(silent);
        assert_eq!(held_bytes(&held), 0);
    }

    #[test]
    fn filters_that_are_repeated_take_no_more_than_their_message() {
        let filters = |count: usize| vec![FilterType::Nodelete as i32; count];
        let request = WatchCreateRequest { key: "a".into(), filters: filters(100_000), ..Default::default() };
        let message = WatchRequest { request_union: Some(RequestUnion::CreateRequest(request)) }.encode_to_vec();
        let bytes = message.len();
        let Ok(Some(RequestUnion::CreateRequest(request))) = read(message.into(), &Namespace::default()) else {
            panic!("a request");
        };
        let held = request.filters.capacity().saturating_mul(size_of::<i32>());
        assert!(request.filters == filters(1) && held <= bytes, "{held} of {bytes}");
    }

    #[test]
    fn progress_that_nobody_asked_for_does_not_pile_up() {
        let held = Held::start(16 << 20).expect("a thread");
        let silent = mailbox(&held, 1);
        let progress = |watch_id| Telling::Plain(WatchResponse { watch_id, ..WatchResponse::default() });
        let taken = (0..10_000).filter(|number| silent.push(progress(1 + number % 100)) == Pushed::Taken).count();
        let bytes = silent.state.lock().bytes;
        assert!(taken > 1_000 && bytes <= WAITING_BYTES_MAX, "{taken} take {bytes}");
        // What the client has asked for comes all the same.
        assert_eq!(silent.push(progress(NO_WATCH)), Pushed::Taken);
        assert_eq!(silent.push(answer()), Pushed::Taken);
        // It is no reason to stop giving it events.
        assert!(!silent.state.lock().is_stalled);
    }

    #[test]
    fn a_client_that_takes_no_answers_is_asked_to_wait_with_requests() {
        let held = Held::start(16 << 20).expect("a thread");
        let silent = mailbox(&held, 1);
        while !silent.is_full() {
            assert_eq!(silent.push(answer()), Pushed::Taken);
        }
        assert!(held_bytes(&held) >= WAITING_BYTES_MAX as u64);
    }
}

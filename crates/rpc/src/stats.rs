//! Counters: what Prometheus shows as `grpc_server_*` and the bytes of client traffic.

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use api::Code;

use crate::http2::frame::Reason;
use crate::{HandshakeCounts, Limit, Options, Status};

/// Codes of errors that are counted: all that the RFC names.
const REASONS: usize = 14;

/// The counters of a server. Every request thread writes its own set, reading adds them up.
#[derive(Debug)]
pub struct Stats {
    shards: Vec<Arc<Shard>>,
    handshakes: Arc<HandshakeCounts>,
    connections_max: u64,
    /// Connections that were not taken. Listeners count them, not request threads.
    turned_away: AtomicU64,
}

/// The counters of one method.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MethodCounts {
    /// Calls begun.
    pub started: u64,
    /// Calls ended, by code (index into [`Code::ALL`]).
    pub handled: [u64; Code::ALL.len()],
    /// Request messages.
    pub messages_received: u64,
    /// Reply messages.
    pub messages_sent: u64,
}

/// Upper bounds of the buckets of [`MethodTimes`], in milliseconds: those that gRPC's own metrics have. What took longer is in one
/// more.
pub const TIME_BOUNDS_MS: [u64; 11] = [5, 10, 25, 50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000];

/// How long the calls of one method took, from their headers to their end.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MethodTimes {
    /// Calls, by bucket.
    pub buckets: [u64; TIME_BOUNDS_MS.len() + 1],
    /// All of them together.
    pub total: Duration,
}

impl Stats {
    pub(crate) fn new(options: &Options, methods: usize) -> Stats {
        let shards = (0..options.threads).map(|_| Arc::new(Shard::new(methods, options.times))).collect();
        Stats {
            shards,
            handshakes: Arc::default(),
            connections_max: options.connections_max,
            turned_away: AtomicU64::new(0),
        }
    }

    /// The counters that each request thread writes.
    pub(crate) fn shards(&self) -> &[Arc<Shard>] {
        &self.shards
    }

    /// The counters of the method at `index` of the method table.
    ///
    /// # Panics
    /// If that table has no such method.
    pub fn method(&self, index: usize) -> MethodCounts {
        let mut sum = MethodCounts::default();
        for row in self.shards.iter().map(|shard| shard.row(index)) {
            row.started.add_to(&mut sum.started);
            row.received.add_to(&mut sum.messages_received);
            row.sent.add_to(&mut sum.messages_sent);
            for (sum, counter) in sum.handled.iter_mut().zip(&row.handled) {
                counter.add_to(sum);
            }
        }
        sum
    }

    /// How long calls of the method at `index` took; none unless that was asked for.
    pub fn times(&self, index: usize) -> Option<MethodTimes> {
        let mut sum: Option<MethodTimes> = None;
        for times in self.shards.iter().filter_map(|shard| shard.times.get(index)) {
            let sum = sum.get_or_insert_default();
            for (sum, counter) in sum.buckets.iter_mut().zip(&times.buckets) {
                counter.add_to(sum);
            }
            sum.total = sum.total.saturating_add(Duration::from_nanos(times.sum_ns.get()));
        }
        sum
    }

    /// Bytes of request messages.
    pub fn bytes_received(&self) -> u64 {
        self.sum(|shard| shard.bytes_received.get())
    }

    /// Bytes of reply messages.
    pub fn bytes_sent(&self) -> u64 {
        self.sum(|shard| shard.bytes_sent.get())
    }

    /// How often clients have run into `limit`.
    pub fn limit_hits(&self, limit: Limit) -> u64 {
        // What request threads do not see.
        let before = match limit {
            Limit::Connections => self.turned_away.load(Ordering::Relaxed),
            Limit::Handshake => self.handshakes.timed_out.load(Ordering::Relaxed),
            _ => 0,
        };
        before.wrapping_add(self.sum(|shard| shard.of_limit(limit).get()))
    }

    /// Connections that the server has ended for this reason.
    pub fn connection_errors(&self, reason: Reason) -> u64 {
        self.sum(|shard| shard.connection_errors.get(reason.0 as usize).map_or(0, Counter::get))
    }

    /// Streams that the server has reset for this reason, because of what the client sent.
    pub fn stream_errors(&self, reason: Reason) -> u64 {
        self.sum(|shard| shard.stream_errors.get(reason.0 as usize).map_or(0, Counter::get))
    }

    /// Connections accepted since the start.
    pub fn connections_accepted(&self) -> u64 {
        self.sum(|shard| shard.accepted.get())
    }

    /// Connections open now.
    pub fn connections_open(&self) -> u64 {
        self.sum(|shard| shard.open.load(Ordering::Relaxed))
    }

    /// How TLS handshakes ended.
    pub fn handshakes(&self) -> &Arc<HandshakeCounts> {
        &self.handshakes
    }

    /// A connection was not taken.
    pub(crate) fn turn_away(&self) {
        self.turned_away.fetch_add(1, Ordering::Relaxed);
    }

    /// Connections that may be open.
    pub fn connections_max(&self) -> u64 {
        self.connections_max
    }

    fn sum(&self, of: impl Fn(&Shard) -> u64) -> u64 {
        self.shards.iter().map(|shard| of(shard)).sum()
    }
}

/// The counters of one request thread.
#[derive(Debug)]
pub(crate) struct Shard {
    methods: Vec<Row>,
    /// Empty if they are not configured.
    times: Vec<Times>,
    pub(crate) bytes_received: Counter,
    pub(crate) bytes_sent: Counter,
    pub(crate) accepted: Counter,
    limits: [Counter; Limit::COUNT],
    connection_errors: [Counter; REASONS],
    stream_errors: [Counter; REASONS],
    /// Open connections, counted up by the listener so that it can spread them.
    pub(crate) open: AtomicU64,
    /// Connections that wait for their first turn; they are open already.
    pub(crate) arrivals: AtomicU64,
}

thread_local! {
    /// The counters of the request thread that this is.
    static CURRENT: RefCell<Option<Arc<Shard>>> = const { RefCell::new(None) };
}

impl Shard {
    /// From here on this thread is the one that writes these counters.
    pub(crate) fn enter(self: Arc<Self>) {
        CURRENT.set(Some(self));
    }

    /// The counters of the request thread that this is, if it is one.
    pub(crate) fn current() -> Option<Arc<Shard>> {
        CURRENT.with_borrow(Option::clone)
    }

    pub(crate) fn new(methods: usize, timed: bool) -> Shard {
        Shard {
            methods: (0..methods).map(|_| Row::default()).collect(),
            times: (0..if timed { methods } else { 0 }).map(|_| Times::default()).collect(),
            bytes_received: Counter::default(),
            bytes_sent: Counter::default(),
            accepted: Counter::default(),
            limits: Default::default(),
            connection_errors: Default::default(),
            stream_errors: Default::default(),
            open: AtomicU64::new(0),
            arrivals: AtomicU64::new(0),
        }
    }

    pub(crate) fn hit(&self, limit: Limit) {
        self.of_limit(limit).add(1);
    }

    #[expect(
        clippy::indexing_slicing,
        reason = "there is a counter for each of `Limit::ALL`, whose order is that of the enum"
    )]
    fn of_limit(&self, limit: Limit) -> &Counter {
        &self.limits[limit as usize]
    }

    #[expect(clippy::indexing_slicing, reason = "there is a row for each method, and callers name one of those")]
    fn row(&self, method: usize) -> &Row {
        &self.methods[method]
    }

    pub(crate) fn connection_error(&self, reason: Reason) {
        if let Some(counter) = self.connection_errors.get(reason.0 as usize) {
            counter.add(1);
        }
    }

    pub(crate) fn stream_error(&self, reason: Reason) {
        if let Some(counter) = self.stream_errors.get(reason.0 as usize) {
            counter.add(1);
        }
    }

    /// A request body is no message, for this reason.
    pub(crate) fn unreadable(&self, status: &Status) {
        if status.code == Code::ResourceExhausted {
            self.hit(Limit::MessageBytes);
        }
    }

    pub(crate) fn started(&self, method: usize) {
        self.row(method).started.add(1);
    }

    pub(crate) fn handled(&self, method: usize, code: Code) {
        self.row(method).of_code(code).add(1);
    }

    /// Counts a call that began at `since`, and the time it took if that is wanted.
    pub(crate) fn ended(&self, method: usize, code: Code, since: Instant) {
        self.handled(method, code);
        if let Some(times) = self.times.get(method) {
            times.count(since.elapsed());
        }
    }

    pub(crate) fn received(&self, method: usize, bytes: usize) {
        self.row(method).received.add(1);
        self.bytes_received.add(bytes as u64);
    }

    pub(crate) fn sent(&self, method: usize, messages: u64, bytes: usize) {
        self.row(method).sent.add(messages);
        self.bytes_sent.add(bytes as u64);
    }
}

#[derive(Debug, Default)]
struct Row {
    started: Counter,
    handled: [Counter; Code::ALL.len()],
    received: Counter,
    sent: Counter,
}

impl Row {
    #[expect(
        clippy::indexing_slicing,
        reason = "there is a counter for each of `Code::ALL`, which are numbered from 0"
    )]
    fn of_code(&self, code: Code) -> &Counter {
        &self.handled[code as usize]
    }
}

#[derive(Debug, Default)]
struct Times {
    buckets: [Counter; TIME_BOUNDS_MS.len() + 1],
    sum_ns: Counter,
}

impl Times {
    fn count(&self, took: Duration) {
        let [within @ .., beyond] = &self.buckets;
        let mut bounded = TIME_BOUNDS_MS.iter().zip(within);
        let bucket = bounded.find(|(bound, _)| took <= Duration::from_millis(**bound));
        bucket.map_or(beyond, |(_, bucket)| bucket).add(1);
        self.sum_ns.add(took.as_nanos() as u64);
    }
}

/// A counter that one thread writes and any thread reads.
#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    /// Not an atomic addition: there is one writer, and a locked instruction per count would be the dearest part of it.
    pub(crate) fn add(&self, count: u64) {
        self.0.store(self.0.load(Ordering::Relaxed).wrapping_add(count), Ordering::Relaxed);
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    fn add_to(&self, sum: &mut u64) {
        *sum = sum.wrapping_add(self.get());
    }
}

//! One thread per peer for single requests: messages while no stream is up, and probes of the round trip.

use crate::client::{Connection, Error};
use crate::fault::Fault;
use crate::peer::Peer;
use crate::probe;
use crate::shared::Shared;
use crate::timeouts::after;
use api::raftpb::MessageType;
use contain::lock;
use http::{HeaderValue, Method, Request, Response, StatusCode, Uri, header};
use std::collections::VecDeque;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};
use telemetry::logging::{self, Value};

/// Limit of waiting messages, as in etcd.
const QUEUE_MAX: usize = 64;
/// Limit of the bytes of waiting messages.
const QUEUE_BYTES_MAX: usize = 16 << 20;
/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(5);
/// Time between two lines about a peer whose probes fail: etcd's monitor looks as often.
const UNHEALTHY_LINES: Duration = Duration::from_secs(30);

#[derive(Default)]
struct State {
    queue: VecDeque<Vec<u8>>,
    bytes: usize,
    stopped: bool,
}

/// The messages that wait for the thread.
#[derive(Default)]
pub(crate) struct Pipeline {
    state: Mutex<State>,
    wake: Condvar,
}

enum Job {
    Post(Vec<u8>),
    Probe,
    Stop,
}

impl Pipeline {
    /// Queues an encoded message; false if the queue is full.
    pub(crate) fn post(&self, message: Vec<u8>) -> bool {
        let mut state = lock(&self.state);
        if state.queue.len() >= QUEUE_MAX
            || state.bytes.saturating_add(message.len()) > QUEUE_BYTES_MAX && !state.queue.is_empty()
        {
            return false;
        }
        state.bytes = state.bytes.saturating_add(message.len());
        state.queue.push_back(message);
        drop(state);
        self.wake.notify_one();
        true
    }

    pub(crate) fn stop(&self) {
        lock(&self.state).stopped = true;
        self.wake.notify_one();
    }

    fn next(&self, probe_at: Instant) -> Job {
        let mut state = lock(&self.state);
        loop {
            if state.stopped {
                return Job::Stop;
            }
            if let Some(message) = state.queue.pop_front() {
                state.bytes = state.bytes.saturating_sub(message.len());
                return Job::Post(message);
            }
            let left = probe_at.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Job::Probe;
            }
            state = self.wake.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Drops the waiting messages: they are too old once the first could not be delivered.
    fn clear(&self) -> usize {
        let mut state = lock(&self.state);
        state.bytes = 0;
        std::mem::take(&mut state.queue).len()
    }
}

/// Starts the thread.
pub(crate) fn start(shared: &Arc<Shared>, peer: &Arc<Peer>) {
    let (shared, sending_peer) = (shared.clone(), peer.clone());
    let run = move || Round { shared, peer: sending_peer, connection: None, unhealthy_at: None }.run();
    if let Err(error) = std::thread::Builder::new().name("peer-post".into()).spawn(run) {
        peer.complain(&format!("cannot start a thread: {error}"));
    }
}

struct Round {
    shared: Arc<Shared>,
    peer: Arc<Peer>,
    /// The open connection, with its URL.
    connection: Option<(String, Connection)>,
    /// When the log last said that a probe failed.
    unhealthy_at: Option<Instant>,
}

impl Round {
    fn run(mut self) {
        let mut probe_at = after(probe::INTERVAL);
        loop {
            match self.peer.pipeline.next(probe_at) {
                Job::Stop => return,
                Job::Post(message) => self.post(message),
                Job::Probe => {
                    probe_at = after(probe::INTERVAL);
                    if self.peer.is_dialled.load(Ordering::SeqCst) {
                        self.probe();
                    }
                }
            }
        }
    }

    fn post(&mut self, message: Vec<u8>) {
        let length = message.len() as u64;
        let mut request = self.request(Method::POST, Uri::from_static("/raft"), message);
        request.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/protobuf"));
        let outcome = self.exchange(&request).map_err(|error| error.to_string());
        let outcome = outcome.and_then(|answer| judge(&self.shared, &self.peer, &answer));
        let counters = &self.peer.counters;
        match outcome {
            Ok(()) => {
                counters.sent_bytes.fetch_add(length, Ordering::Relaxed);
                self.peer.activate();
            }
            Err(reason) if !self.peer.is_stopped() => {
                let lost = self.peer.pipeline.clear().saturating_add(1);
                counters.sent_failures.fetch_add(lost as u64, Ordering::Relaxed);
                self.peer.deactivate("pipeline", "write", &reason);
                self.shared.handler.unreachable(self.peer.id);
            }
            Err(_) => {}
        }
    }

    fn probe(&mut self) {
        let request = self.request(Method::GET, Uri::from_static(probe::PATH), Vec::new());
        let began = Instant::now();
        let now = match self.exchange(&request) {
            Ok(answer) if answer.status() == StatusCode::OK => probe::read(answer.body()),
            Ok(answer) => return self.unhealthy(&format!("a probe was answered with {}", answer.status())),
            Err(error) => return self.unhealthy(&error.to_string()),
        };
        let took = began.elapsed();
        self.peer.counters.round_trip.observe(took);
        if let Some(drift) = now.and_then(|now| probe::drift(now, took)) {
            self.peer.complain(&format!("prober found high clock drift: {drift:?}"));
        }
    }

    /// A probe has failed: the line that etcd writes then, now and then.
    fn unhealthy(&mut self, error: &str) {
        if self.unhealthy_at.is_some_and(|at| at.elapsed() < UNHEALTHY_LINES) {
            return;
        }
        self.unhealthy_at = Some(Instant::now());
        logging::warn(
            "prober detected unhealthy status",
            &[
                ("round-tripper-name", "ROUND_TRIPPER_RAFT_MESSAGE".into()),
                ("remote-peer-id", Value::Shown(&format_args!("{:x}", self.peer.id))),
                ("error", error.into()),
            ],
        );
    }

    fn request(&self, method: Method, uri: Uri, body: Vec<u8>) -> Request<Vec<u8>> {
        let mut request = Request::new(body);
        *request.method_mut() = method;
        *request.uri_mut() = uri;
        *request.headers_mut() = self.shared.headers.clone();
        request
    }

    /// Sends a request on the open connection, or on a new one if there is none or it was closed meanwhile.
    fn exchange(&mut self, request: &Request<Vec<u8>>) -> Result<Response<Vec<u8>>, Error> {
        let url = self.peer.urls.pick();
        if let Some((to, mut connection)) = self.connection.take().filter(|(to, _)| *to == url) {
            match connection.exchange(request, PATIENCE) {
                // The connection was closed while it was idle, most likely before the peer saw the request. Raft
                // tolerates repeated messages except proposals, which would be in the log twice.
                Err(Error::Exchange { fault: Fault::Closed, .. }) if !is_proposal(request.body()) => {}
                other => return self.keep(to, connection, other),
            }
        }
        let opened = Connection::open(&self.shared.connector, &url, self.shared.timeouts.dial);
        let mut connection = opened.inspect_err(|_| self.peer.urls.failed(&url))?;
        let outcome = connection.exchange(request, PATIENCE);
        self.keep(url, connection, outcome)
    }

    fn keep(
        &mut self,
        url: String,
        connection: Connection,
        outcome: Result<Response<Vec<u8>>, Error>,
    ) -> Result<Response<Vec<u8>>, Error> {
        if outcome.as_ref().map_or(true, |answer| !answer.status().is_success()) {
            self.peer.urls.failed(&url);
        } else if connection.is_reusable() {
            self.connection = Some((url, connection));
        }
        outcome
    }
}

/// Whether an encoded message is a proposal: its type is its first field.
fn is_proposal(message: &[u8]) -> bool {
    message.starts_with(&[0x08, MessageType::MsgProp as u8])
}

/// Evaluates the answer to a POST. The texts are those that etcd's members send.
pub(crate) fn judge(shared: &Shared, peer: &Peer, answer: &Response<Vec<u8>>) -> Result<(), String> {
    let begin = answer.body().get(..512).unwrap_or(answer.body());
    let text = String::from_utf8_lossy(begin);
    match answer.status() {
        StatusCode::NO_CONTENT => Ok(()),
        // The same status answers a message for the member's predecessor: only the text distinguishes them.
        StatusCode::FORBIDDEN if text.contains("removed") => {
            shared.tell_removed(peer);
            Err("this member has been permanently removed from the cluster".into())
        }
        status => Err(format!("the peer answered {status}: {}", text.trim_end())),
    }
}

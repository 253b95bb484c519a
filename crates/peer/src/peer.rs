//! One peer: the streams it has dialled, whether it can be reached, and the threads that serve it.

use crate::codec::Kind;
use crate::metrics::Counters;
use crate::outgoing::Outgoing;
use crate::picker::Picker;
use crate::pipeline::Pipeline;
use crate::shared::Shared;
use crate::stream::{Breaker, Stream};
use crate::timeouts::after;
use api::Message as _;
use api::raftpb::{Message, MessageType};
use contain::lock;
use std::borrow::Cow;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};
use telemetry::logging::{self, Value};

/// Limit of bytes that wait for the sockets of one peer.
pub(crate) const WAITING_BYTES_MAX: usize = 64 << 20;
/// The same error is logged again after this time.
const COMPLAINT_INTERVAL: Duration = Duration::from_secs(10);
/// Limit of different errors that are logged within that time.
const COMPLAINTS_MAX: usize = 16;

/// One peer.
pub(crate) struct Peer {
    pub(crate) id: u64,
    pub(crate) urls: Picker,
    pub(crate) counters: Arc<Counters>,
    /// Whether the peer is a member. Otherwise it is known only from its requests, and answered by POST.
    pub(crate) is_dialled: AtomicBool,
    /// The last stream that it has dialled came from a member of Cairn. Until then it may be etcd.
    pub(crate) is_cairn: AtomicBool,
    pub(crate) pipeline: Pipeline,
    links: Mutex<[Option<Outgoing>; 2]>,
    active: Mutex<Option<Instant>>,
    /// The errors logged recently, with their times.
    complaints: Mutex<Vec<(String, Instant)>>,
    readers: Mutex<[Option<Breaker>; 2]>,
    doubts: AtomicU64,
    /// The number of requests in which the peer has named itself, and the time of the last. Only counted while it is no
    /// member.
    requests: Mutex<(u64, Instant)>,
    rest: (Mutex<Rest>, Condvar),
}

/// Ends the pauses of the threads that dial the peer.
#[derive(Default)]
struct Rest {
    is_over: bool,
    /// Number of streams that the peer has dialled so far: a peer that has just dialled can be dialled.
    calls: u64,
}

impl Peer {
    pub(crate) fn new(id: u64, urls: Vec<String>, is_dialled: bool, counters: Arc<Counters>) -> Peer {
        Peer {
            id,
            urls: Picker::new(urls),
            counters,
            is_dialled: AtomicBool::new(is_dialled),
            is_cairn: AtomicBool::new(false),
            pipeline: Pipeline::default(),
            links: Mutex::default(),
            active: Mutex::default(),
            complaints: Mutex::default(),
            readers: Mutex::default(),
            doubts: AtomicU64::new(0),
            requests: Mutex::new((1, Instant::now())),
            rest: Default::default(),
        }
    }

    /// Notes another request in which the peer has named itself.
    pub(crate) fn note_request(&self) {
        if !self.is_dialled.load(Ordering::SeqCst) {
            let mut requests = lock(&self.requests);
            *requests = (requests.0.saturating_add(1), Instant::now());
        }
    }

    #[cfg(test)]
    pub(crate) fn set_requests(&self, count: u64, last: Instant) {
        *lock(&self.requests) = (count, last);
    }

    /// The number of requests in which the peer has named itself, and the time of the last.
    pub(crate) fn requests(&self) -> (u64, Instant) {
        *lock(&self.requests)
    }

    /// Sends those of `messages` that are for this peer.
    pub(crate) fn send(&self, shared: &Shared, messages: &[Message]) {
        let mut links = lock(&self.links);
        let (mut sent_bytes, mut dropped) = (0_usize, 0_u64);
        let is_cairn = self.is_cairn.load(Ordering::SeqCst);
        for message in messages.iter().filter(|message| message.to() == self.id) {
            let message = &*if is_cairn { Cow::Borrowed(message) } else { without_our_own(message) };
            let kind = message.r#type();
            if kind == MessageType::MsgSnap {
                continue;
            }
            let waiting: usize = links.iter().flatten().map(Outgoing::waiting).sum();
            let [appends, others] = &mut *links;
            let link = appends.as_mut().filter(|_| kind == MessageType::MsgApp).or(others.as_mut());
            match link {
                Some(_) if waiting > WAITING_BYTES_MAX => dropped = dropped.saturating_add(1),
                Some(link) => sent_bytes = sent_bytes.saturating_add(link.push(message)),
                None if self.pipeline.post(message.encode_to_vec()) => {}
                None => dropped = dropped.saturating_add(1),
            }
        }
        let broken = flush(&mut links, shared);
        drop(links);
        self.counters.sent_bytes.fetch_add(sent_bytes as u64, Ordering::Relaxed);
        if dropped > 0 {
            self.counters.sent_failures.fetch_add(dropped, Ordering::Relaxed);
            self.complain("dropped Raft messages: too much waits for this peer already");
            shared.handler.unreachable(self.id);
        }
        self.report_broken(shared, broken);
    }

    /// Takes over a connection on which the peer has requested a stream.
    pub(crate) fn attach(&self, shared: &Shared, kind: Kind, stream: Stream) -> io::Result<()> {
        let link = Outgoing::new(stream, kind, shared.next_serial())?;
        let mut links = lock(&self.links);
        // Checked under the lock that `stop` takes later, so that no stream outlives its peer.
        if self.is_stopped() {
            return Ok(());
        }
        let before = kind.of(&mut links).replace(link);
        drop(links);
        self.activate();
        self.called();
        shared.flusher.wake();
        let fields = [("stream-writer-type", kind.title().into()), ("remote-peer-id", Value::Shown(&self.name()))];
        if let Some(before) = before {
            logging::warn("closed TCP streaming connection with remote peer", &fields);
            if before.waiting() > 0 {
                shared.handler.unreachable(self.id);
            }
        }
        logging::info("established TCP streaming connection with remote peer", &fields);
        Ok(())
    }

    /// Calls `look` with each stream of this peer. A stream for which it returns an error is closed.
    pub(crate) fn each_link(&self, shared: &Shared, mut look: impl FnMut(Kind, &mut Outgoing) -> Option<io::Error>) {
        let mut broken = [None, None];
        let mut links = lock(&self.links);
        for kind in Kind::ALL {
            let link = kind.of(&mut links);
            if let Some(error) = link.as_mut().and_then(|link| look(kind, link)) {
                *link = None;
                *kind.of(&mut broken) = Some(error);
            }
        }
        drop(links);
        self.report_broken(shared, broken);
    }

    fn report_broken(&self, shared: &Shared, broken: [Option<io::Error>; 2]) {
        for (kind, error) in Kind::ALL.into_iter().zip(broken) {
            let Some(error) = error else { continue };
            logging::warn(
                "lost TCP streaming connection with remote peer",
                &[
                    ("stream-writer-type", kind.title().into()),
                    ("remote-peer-id", Value::Shown(&self.name())),
                    ("error", Value::Shown(&error)),
                ],
            );
            self.counters.sent_failures.fetch_add(1, Ordering::Relaxed);
            // If a peer that has closed its end is really gone, the reader notices that.
            if error.kind() != io::ErrorKind::UnexpectedEof {
                self.deactivate(kind.title(), "write", &error);
            }
            shared.handler.unreachable(self.id);
        }
    }

    /// Since when the peer can be reached.
    pub(crate) fn active_since(&self) -> Option<Instant> {
        *lock(&self.active)
    }

    /// Notes that data has reached the peer, or came from it.
    pub(crate) fn activate(&self) {
        let mut active = lock(&self.active);
        if active.is_none() {
            *active = Some(Instant::now());
            drop(active);
            lock(&self.complaints).clear();
            logging::info("peer became active", &[("peer-id", Value::Shown(&self.name()))]);
        }
    }

    /// Notes that data has not reached the peer.
    pub(crate) fn deactivate(&self, source: &str, action: &str, error: &dyn std::fmt::Display) {
        let reason = format!("failed to {action} {:x} on {source} ({error})", self.id);
        if lock(&self.active).take().is_some() {
            self.counters.disconnected.fetch_add(1, Ordering::Relaxed);
            logging::warn(
                "peer became inactive (message send to peer failed)",
                &[("peer-id", Value::Shown(&self.name())), ("error", (&reason).into())],
            );
        } else {
            self.complain(&reason);
        }
    }

    /// Logs an error with this peer; the same error only once per [`COMPLAINT_INTERVAL`].
    pub(crate) fn complain(&self, reason: &str) {
        let now = Instant::now();
        let mut recent = lock(&self.complaints);
        recent.retain(|(_, at)| now.duration_since(*at) < COMPLAINT_INTERVAL);
        if recent.len() < COMPLAINTS_MAX && recent.iter().all(|(text, _)| text != reason) {
            recent.push((reason.to_string(), now));
            drop(recent);
            logging::warn(
                "trouble with a peer",
                &[
                    ("remote-peer-id", Value::Shown(&self.name())),
                    ("remote-peer-urls", (&self.urls.list()).into()),
                    ("error", reason.into()),
                ],
            );
        }
    }

    /// Remembers how to end the connection that a reader waits on. Ends it at once if the peer is gone already, or was hung up on since
    /// `doubts` was read, which is before the connection was dialled.
    pub(crate) fn set_reader(&self, kind: Kind, breaker: Breaker, doubts: u64) {
        let mut readers = lock(&self.readers);
        if self.is_stopped() || self.doubts() != doubts {
            breaker.end();
        }
        *kind.of(&mut readers) = Some(breaker);
    }

    /// The reader's connection has ended.
    pub(crate) fn reader_ended(&self, kind: Kind) {
        *kind.of(&mut lock(&self.readers)) = None;
    }

    /// Ends the streams that are read from this peer, and those that are being dialled.
    pub(crate) fn hang_up(&self) {
        // Counted before the readers are looked at: a stream that is not among them yet is ended by `set_reader`.
        self.doubts.fetch_add(1, Ordering::SeqCst);
        for breaker in lock(&self.readers).iter().flatten() {
            breaker.end();
        }
    }

    /// How often the peer was hung up on.
    pub(crate) fn doubts(&self) -> u64 {
        self.doubts.load(Ordering::SeqCst)
    }

    pub(crate) fn is_stopped(&self) -> bool {
        lock(&self.rest.0).is_over
    }

    /// Notes that the peer has dialled a stream.
    fn called(&self) {
        let mut rest = lock(&self.rest.0);
        rest.calls = rest.calls.wrapping_add(1);
        drop(rest);
        self.rest.1.notify_all();
    }

    /// How many streams the peer has dialled: see [`Peer::pause`].
    pub(crate) fn calls(&self) -> u64 {
        lock(&self.rest.0).calls
    }

    /// Sleeps for `time`, or until [`Peer::stop`], or until the number of streams that the peer has dialled is no
    /// longer `calls`.
    pub(crate) fn pause(&self, time: Duration, calls: u64) {
        let deadline = after(time);
        let mut rest = lock(&self.rest.0);
        while !rest.is_over && rest.calls == calls {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            rest = self.rest.1.wait_timeout(rest, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Ends its threads and closes its streams.
    pub(crate) fn stop(&self) {
        lock(&self.rest.0).is_over = true;
        self.rest.1.notify_all();
        self.pipeline.stop();
        *lock(&self.links) = [None, None];
        for breaker in lock(&self.readers).iter().flatten() {
            breaker.end();
        }
    }

    /// The peer's id as in logs and paths.
    pub(crate) fn name(&self) -> String {
        format!("{:x}", self.id)
    }
}

/// Writes the queued bytes, at most once per stream. Returns the errors of the streams that failed.
fn flush(links: &mut [Option<Outgoing>; 2], shared: &Shared) -> [Option<io::Error>; 2] {
    let mut broken = [None, None];
    for (link, broken) in links.iter_mut().zip(&mut broken) {
        let Some(open) = link.as_mut().filter(|link| !link.is_stalled() && link.waiting() > 0) else { continue };
        match open.flush() {
            Ok(false) => {}
            Ok(true) => shared.flusher.wake(),
            Err(error) => {
                *link = None;
                *broken = Some(error);
            }
        }
    }
    broken
}

/// A message as members of etcd write it: what Cairn's add goes to nobody who is not known to be one.
fn without_our_own(message: &Message) -> Cow<'_, Message> {
    if (message.commit_term, message.headroom, message.headroom_index) == (None, None, None) {
        return Cow::Borrowed(message);
    }
    Cow::Owned(Message { commit_term: None, headroom: None, headroom_index: None, ..message.clone() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::Ledger;
    use socket2::Socket;
    use std::io::Read;
    use std::os::fd::OwnedFd;
    use std::os::unix::net::UnixStream;

    /// A connection that a reader is about to read, and the peer's end of it.
    fn connection() -> (Breaker, UnixStream) {
        let (here, there) = UnixStream::pair().expect("sockets");
        there.set_nonblocking(true).expect("a socket");
        (Breaker::of(&Socket::from(OwnedFd::from(here))).expect("a descriptor"), there)
    }

    fn is_ended(mut there: &UnixStream) -> bool {
        matches!(there.read(&mut [0]), Ok(0))
    }

    #[test]
    fn hanging_up_ends_the_streams_that_are_dialled_meanwhile() {
        let peer = Peer::new(2, Vec::new(), true, Ledger::default().of(2));
        let doubts = peer.doubts();
        let ((reads, end_of_reads), (dials, end_of_dials), (later, end_of_later)) =
            (connection(), connection(), connection());
        peer.set_reader(Kind::Message, reads, doubts);
        peer.hang_up();
        assert!(is_ended(&end_of_reads));
        // Dialled before, and read only now.
        peer.set_reader(Kind::MsgApp, dials, doubts);
        assert!(is_ended(&end_of_dials), "the peer goes on sending on a stream that was just dialled");
        peer.set_reader(Kind::Message, later, peer.doubts());
        assert!(!is_ended(&end_of_later), "the next stream stays");
    }

    #[test]
    fn a_pause_ends_when_the_peer_calls() {
        let peer = Arc::new(Peer::new(2, Vec::new(), true, Ledger::default().of(2)));
        let calls = peer.calls();
        let began = Instant::now();
        let dialler = peer.clone();
        let pausing = std::thread::spawn(move || dialler.pause(Duration::from_secs(600), calls));
        peer.called();
        pausing.join().expect("no panic");
        // The pause also ends if the peer has dialled before it begins. The next pause lasts again.
        peer.pause(Duration::from_secs(600), calls);
        assert!(began.elapsed() < Duration::from_secs(300));
        let again = Instant::now();
        peer.pause(Duration::from_millis(50), peer.calls());
        assert!(again.elapsed() >= Duration::from_millis(50));
    }
}

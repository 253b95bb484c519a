//! Members that record what they are given.

use crate::{
    Caller, Connector, Credentials, Export, Feed, Follower, Handler, Image, Intake, Known, Listener, LogUsage, Options,
    Origin, OutgoingImage, Peers, Refused, Timeouts,
};
use api::raftpb::{ConfState, Entry, Message, MessageType, Snapshot, SnapshotMetadata};
use bytes::Bytes;
use contain::lock;
use http::{Request, Response};
use rustls::pki_types::CertificateDer;
use rustls::{ClientConfig, ServerConfig};
use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

pub(super) const CLUSTER: u64 = 0xc1;
pub(super) const MESSAGE_BYTES_MAX: usize = 16 << 20;
pub(super) const PATIENCE: Duration = Duration::from_secs(20);

/// What members of most tests have.
const TIMEOUTS: Timeouts =
    Timeouts { dial: Duration::from_secs(1), read: Duration::from_secs(5), write: Duration::from_secs(5) };

/// Held by tests that measure memory or need much of it: they share one process.
pub(super) fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    lock(&ALONE)
}

/// Everything that a member's handler was given.
#[derive(Default)]
pub(super) struct Seen {
    pub(super) messages: Vec<Message>,
    /// The origin of each message.
    pub(super) origins: Vec<Origin>,
    pub(super) unreachable: Vec<u64>,
    pub(super) snapshots: Vec<(u64, bool)>,
    pub(super) removed: usize,
    /// For each call of `/wait`, whether a member made it; and the number of calls whose caller has gone.
    pub(super) waiting: Vec<bool>,
    pub(super) gone: usize,
    pub(super) installed: Vec<(Message, Vec<u8>)>,
}

/// Makes an intake of a checkpoint.
type Opener = Box<dyn Fn(&[u8]) -> Result<Box<dyn Intake>, String> + Send>;

/// Begins to receive an image.
type ImageOpener = Box<dyn Fn() -> Result<Box<dyn Image>, String> + Send>;

/// Feeds an observer.
type Feeder = Box<dyn Fn(&Follower) -> Result<Box<dyn Feed>, Refused> + Send>;

#[derive(Default)]
pub(super) struct Recorder {
    pub(super) seen: Mutex<Seen>,
    pub(super) changed: Condvar,
    pub(super) known: Mutex<HashMap<u64, Known>>,
    pub(super) opener: Mutex<Option<Opener>>,
    pub(super) image_opener: Mutex<Option<ImageOpener>>,
    pub(super) feeder: Mutex<Option<Feeder>>,
    /// The observers that came.
    pub(super) followers: Mutex<Vec<Follower>>,
}

impl Recorder {
    /// Waits until `wanted` holds.
    pub(super) fn wait(&self, what: &str, wanted: impl Fn(&Seen) -> bool) {
        let deadline = Instant::now() + PATIENCE;
        let mut seen = lock(&self.seen);
        while !wanted(&seen) {
            let left = deadline.saturating_duration_since(Instant::now());
            assert!(!left.is_zero(), "{what} did not happen; {} messages were seen", seen.messages.len());
            seen = self.changed.wait_timeout(seen, left).expect("no panic").0;
        }
    }

    fn note(&self, change: impl FnOnce(&mut Seen)) {
        change(&mut lock(&self.seen));
        self.changed.notify_all();
    }
}

impl Handler for Recorder {
    fn receive(&self, messages: Vec<Message>, origin: Origin) {
        self.note(|seen| {
            seen.origins.extend(messages.iter().map(|_| origin));
            seen.messages.extend(messages);
        });
    }

    fn unreachable(&self, id: u64) {
        self.note(|seen| seen.unreachable.push(id));
    }

    fn snapshot_sent(&self, id: u64, ok: bool) {
        self.note(|seen| seen.snapshots.push((id, ok)));
    }

    fn intake(&self, _: u64, checkpoint: &[u8]) -> Result<Box<dyn Intake>, String> {
        lock(&self.opener).as_ref().map_or_else(|| Err("no room".into()), |open| open(checkpoint))
    }

    fn image(&self, _: u64, _: Vec<String>, _: &SnapshotMetadata) -> Result<Box<dyn Image>, String> {
        lock(&self.image_opener).as_ref().map_or_else(|| Err("no space".into()), |open| open())
    }

    fn follow(&self, follower: &Follower) -> Result<Box<dyn Feed>, Refused> {
        lock(&self.followers).push(follower.clone());
        let nobody = || Err(Refused { status: http::StatusCode::NOT_FOUND, text: "nobody is fed".into() });
        lock(&self.feeder).as_ref().map_or_else(nobody, |feed| feed(follower))
    }

    fn log_usage(&self) -> LogUsage {
        LogUsage { used_bytes: 0, max_bytes: 1 << 30 }
    }

    fn knows(&self, id: u64) -> Known {
        lock(&self.known).get(&id).copied().unwrap_or(Known::Unknown)
    }

    fn estranged(&self, _peer: u64, _theirs: &str) {}

    fn removed(&self) {
        self.note(|seen| seen.removed += 1);
    }

    fn call(&self, request: Request<Vec<u8>>, caller: Caller<'_>) -> Response<Vec<u8>> {
        if request.uri().path() == "/wait" {
            self.note(|seen| seen.waiting.push(caller.is_member));
            while (caller.waits)() {
                std::thread::sleep(Duration::from_millis(5));
            }
            self.note(|seen| seen.gone += 1);
        }
        if request.uri().path() == "/nothing" {
            let mut nothing = Response::new(b"nothing".to_vec());
            *nothing.status_mut() = http::StatusCode::NOT_FOUND;
            return nothing;
        }
        Response::new([request.uri().path().as_bytes(), b" ", request.body()].concat())
    }
}

/// A member.
pub(super) struct Site {
    pub(super) peers: Arc<Peers>,
    pub(super) recorder: Arc<Recorder>,
    pub(super) id: u64,
    pub(super) url: String,
}

impl Drop for Site {
    fn drop(&mut self) {
        self.peers.stop();
    }
}

impl Site {
    /// A member that listens on a free port.
    pub(super) fn new(id: u64) -> Site {
        Site::on(id, TcpListener::bind("127.0.0.1:0").expect("a free port"))
    }

    pub(super) fn on(id: u64, listener: TcpListener) -> Site {
        Site::over(id, listener, TIMEOUTS)
    }

    /// A member that gives up streams, its own and those of others, on which nothing goes through for `limit`.
    pub(super) fn with_limit(id: u64, limit: Duration) -> Site {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        Site::over(id, listener, Timeouts { read: limit, write: limit, ..TIMEOUTS })
    }

    fn over(id: u64, listener: TcpListener, timeouts: Timeouts) -> Site {
        let url = format!("http://{}", listener.local_addr().expect("bound"));
        Site::start(id, Listener::over(listener).expect("a thread"), url, timeouts)
    }

    pub(super) fn with(id: u64, listener: Listener, url: String) -> Site {
        Site::start(id, listener, url, TIMEOUTS)
    }

    fn start(id: u64, listener: Listener, url: String, timeouts: Timeouts) -> Site {
        let recorder = Arc::new(Recorder::default());
        let options = Options {
            member_id: id,
            cluster_id: CLUSTER,
            urls: vec![url.clone()],
            connector: connector(),
            listeners: vec![listener],
            timeouts,
            message_bytes_max: MESSAGE_BYTES_MAX,
            yield_cpu: || {},
        };
        let peers = Peers::start(options, recorder.clone()).expect("started");
        Site { peers, recorder, id, url }
    }

    pub(super) fn address(&self) -> &str {
        self.url.strip_prefix("http://").expect("TCP")
    }

    /// A raw connection.
    pub(super) fn dial(&self) -> TcpStream {
        let stream = TcpStream::connect(self.address()).expect("listening");
        stream.set_read_timeout(Some(PATIENCE)).expect("a socket");
        stream
    }

    /// Sends raw bytes and returns everything that is answered until the connection is closed.
    pub(super) fn raw(&self, bytes: &[u8]) -> String {
        let mut stream = self.dial();
        // A request that is refused early is not read to its end.
        let _ = stream.write_all(bytes);
        answer(&mut stream)
    }

    /// Waits until both streams of both members are up.
    pub(super) fn meet(&self, other: &Site) {
        self.peers.set(other.id, vec![other.url.clone()]);
        other.peers.set(self.id, vec![self.url.clone()]);
        self.await_streams(other.id);
        other.await_streams(self.id);
    }

    /// Waits until the peer has dialled both streams.
    pub(super) fn await_streams(&self, id: u64) {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let mut links = 0;
            if let Some(peer) = self.peers.shared.peer(id) {
                peer.each_link(&self.peers.shared, |_, _| {
                    links += 1;
                    None
                });
            }
            if links == 2 {
                return;
            }
            assert!(Instant::now() < deadline, "only {links} streams of {id:x} are up");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

/// Connections without certificates.
pub(super) fn connector() -> Connector {
    Connector::new(Arc::new(NoCertificates), None)
}

#[derive(Debug)]
struct NoCertificates;

impl Credentials for NoCertificates {
    fn server(&self) -> Option<Arc<ServerConfig>> {
        None
    }

    fn client(&self) -> Result<Arc<ClientConfig>, String> {
        Err("there are no certificates".into())
    }

    fn check_revoked(&self, _: &[CertificateDer<'_>]) -> Result<(), String> {
        Ok(())
    }

    fn skips_addresses(&self) -> bool {
        false
    }
}

/// Reads everything until the connection is closed.
pub(super) fn answer(stream: &mut TcpStream) -> String {
    let mut bytes = Vec::new();
    // A connection that is reset has sent its answer before.
    let _ = stream.read_to_end(&mut bytes);
    String::from_utf8_lossy(&bytes).into_owned()
}

/// The head of a request of member 2, with all headers that a member sends.
pub(super) fn request(line: &str, more: &str) -> String {
    format!(
        "{line} HTTP/1.1\r\nHost: x\r\nX-Server-From: 2\r\nX-Server-Version: 3.7.3\r\nX-Min-Cluster-Version: 3.0.0\r\n\
         X-Etcd-Cluster-ID: {CLUSTER:x}\r\nConnection: close\r\n{more}\r\n"
    )
}

pub(super) fn message(kind: MessageType, from: u64, to: u64, index: u64) -> Message {
    let (from, to, index) = (Some(from), Some(to), Some(index));
    Message { r#type: Some(kind as i32), from, to, index, term: Some(3), log_term: Some(3), ..Message::default() }
}

pub(super) fn append(from: u64, to: u64, index: u64, bytes: usize) -> Message {
    let data = Some(vec![7; bytes].into());
    let entry = Entry { term: Some(3), index: Some(index + 1), r#type: Some(0), data };
    Message { entries: vec![entry], commit: Some(index), ..message(MessageType::MsgApp, from, to, index) }
}

/// Resident memory of this process that no file backs.
pub(super) fn resident_bytes() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux");
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).expect("a line");
    line.trim().trim_end_matches(" kB").trim().parse::<usize>().expect("a number") << 10
}

/// A snapshot in memory.
pub(super) struct Memory(pub(super) Vec<Vec<u8>>);

impl Export for Memory {
    fn identity(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }

    fn checkpoint(&self) -> Result<bytes::Bytes, String> {
        Ok(self.0.iter().flat_map(|segment| (segment.len() as u64).to_be_bytes()).collect::<Vec<_>>().into())
    }

    fn read(&self, segment: u32, offset: u64, length: usize) -> Result<bytes::Bytes, String> {
        let segment = self.0.get(segment as usize).ok_or("no such segment")?;
        let rest = segment.get(offset as usize..).ok_or("beyond the end")?;
        Ok(rest[..rest.len().min(length)].to_vec().into())
    }

    /// The checkpoint is the message's data, and the segments are the image.
    fn image(&self) -> Result<OutgoingImage, String> {
        let conf_state = Some(ConfState { voters: vec![1, 2], ..ConfState::default() });
        let metadata = SnapshotMetadata { index: Some(9), term: Some(3), conf_state };
        let snapshot = Snapshot { metadata: Some(metadata), data: Some(self.checkpoint()?) };
        let mut image = Bytes::from(self.0.concat());
        let length = image.len() as u64;
        let next = move |max: usize| {
            let piece = image.split_to(image.len().min(max));
            (!piece.is_empty()).then_some(piece)
        };
        Ok(OutgoingImage { snapshot, length, next: Box::new(next) })
    }
}

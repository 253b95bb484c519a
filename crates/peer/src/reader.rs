//! The receiving half of the streams: dials a peer and passes its messages on, for as long as the peer is known.

use crate::body::Body;
use crate::client::Connection;
use crate::codec::{self, Decoder, Frame, Kind};
use crate::fault::Fault;
use crate::handler::Origin;
use crate::head::ResponseHead;
use crate::identity::{Mismatch, RAFT_TO, hex};
use crate::peer::Peer;
use crate::shared::Shared;
use crate::timeouts::after;
use crate::wire::Wire;
use api::raftpb::{Message, MessageType};
use bytes::BytesMut;
use contain::contain;
use http::{Method, Request, StatusCode, Uri};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use telemetry::logging::{self, Value};

/// How long a peer may take to answer the request for its stream.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);
/// Pauses between attempts: short if no process listens, longer if a peer refuses.
const RETRY: Duration = Duration::from_millis(100);
const RETRY_MAX: Duration = Duration::from_secs(1);
/// A stream that was up for this long is dialled again without a pause.
const SETTLED: Duration = Duration::from_secs(1);
/// Bytes that are read of an answer that refuses a stream.
const REFUSAL_BYTES_MAX: usize = 4 * 1024;

/// Why there is no stream, or why it has ended.
#[derive(Debug, thiserror::Error)]
enum End {
    #[error(transparent)]
    Fault(#[from] Fault),
    #[error(transparent)]
    Codec(#[from] codec::Error),
    #[error(transparent)]
    Call(#[from] crate::client::Error),
    #[error("a message from {0:x} to {1:x} that does not belong on this stream")]
    Misdirected(u64, u64),
    #[error("{0}")]
    Refused(String),
    #[error("the member has been permanently removed from the cluster")]
    Removed,
}

/// Starts both readers of a peer.
pub(crate) fn start(shared: &Arc<Shared>, peer: &Arc<Peer>) {
    for kind in Kind::ALL {
        let reader = Reader { shared: shared.clone(), peer: peer.clone(), kind };
        let name = format!("peer-{}", kind.name());
        if let Err(error) = std::thread::Builder::new().name(name).spawn(move || reader.run()) {
            peer.complain(&format!("cannot start a thread: {error}"));
        }
    }
}

struct Reader {
    shared: Arc<Shared>,
    peer: Arc<Peer>,
    kind: Kind,
}

impl Reader {
    fn run(&self) {
        let mut pause = RETRY;
        while !self.peer.is_stopped() {
            // A peer that has started since the attempt began is dialled without a pause: until it has our stream, it
            // must post.
            let (calls, doubts) = (self.peer.calls(), self.peer.doubts());
            match self.dial() {
                Ok((wire, body)) => {
                    pause = RETRY;
                    let began = Instant::now();
                    self.follow(wire, body, doubts);
                    if self.peer.doubts() != doubts {
                        // The peer would most likely give the same answer again.
                        self.peer.pause(RETRY_MAX, self.peer.calls());
                        continue;
                    }
                    // The loss of a peer must be known at once, because the check of configuration changes uses it.
                    if began.elapsed() > SETTLED {
                        continue;
                    }
                }
                Err(end) => {
                    if !self.peer.is_stopped() {
                        self.peer.deactivate(self.kind.title(), "dial", &end);
                    }
                    let refused = matches!(end, End::Refused(_) | End::Removed);
                    pause = if refused { pause.saturating_mul(2).min(RETRY_MAX) } else { RETRY };
                }
            }
            self.peer.pause(pause, calls);
        }
    }

    /// Requests the peer's stream.
    fn dial(&self) -> Result<(Wire, Body), End> {
        let url = self.peer.urls.pick();
        let outcome = self.dial_url(&url);
        if outcome.is_err() {
            self.peer.urls.failed(&url);
        }
        outcome
    }

    fn dial_url(&self, url: &str) -> Result<(Wire, Body), End> {
        let mut connection = Connection::open(&self.shared.connector, url, self.shared.timeouts.dial)?;
        let mut request = Request::new([]);
        *request.method_mut() = Method::GET;
        let path = format!("/raft/stream/{}/{:x}", self.kind.name(), self.shared.identity.member_id);
        *request.uri_mut() = path.parse::<Uri>().map_err(Fault::not_http)?;
        *request.headers_mut() = self.shared.headers.clone();
        request.headers_mut().insert(RAFT_TO, hex(self.peer.id));
        let head = connection.send(&request, ANSWER_TIMEOUT)?;
        let mut wire = connection.into_wire();
        match head.response.status() {
            StatusCode::OK => {
                wire.stream().set_read_timeout(Some(self.shared.timeouts.read)).map_err(Fault::from)?;
                Ok((wire, Body::new(head.framing)))
            }
            StatusCode::GONE => {
                self.shared.tell_removed(&self.peer);
                Err(End::Removed)
            }
            _ => Err(self.refusal(&head, &mut wire)),
        }
    }

    /// The reason that a status other than 200 stands for. The texts are those etcd's members send.
    fn refusal(&self, head: &ResponseHead, wire: &mut Wire) -> End {
        let status = head.response.status();
        let body = wire.body(head.framing, REFUSAL_BYTES_MAX, after(ANSWER_TIMEOUT)).unwrap_or_default();
        let text = String::from_utf8_lossy(&body);
        let text = text.trim_end();
        End::Refused(match status {
            StatusCode::NOT_FOUND => {
                format!("the peer does not know member {:x} (yet)", self.shared.identity.member_id)
            }
            StatusCode::PRECONDITION_FAILED if text == Mismatch::Version.to_string() => {
                "the peer's version and this one's are incompatible".into()
            }
            StatusCode::PRECONDITION_FAILED if text == Mismatch::Cluster.to_string() => {
                let theirs = crate::identity::text(head.response.headers(), &crate::identity::CLUSTER_ID);
                let theirs = theirs.unwrap_or("unknown");
                self.shared.handler.estranged(self.peer.id, theirs);
                format!("cluster ID mismatch: the peer belongs to cluster {theirs}")
            }
            _ => format!("the peer answered {status}: {text}"),
        })
    }

    /// Reads the stream to its end. `doubts` is from before it was dialled.
    fn follow(&self, wire: Wire, body: Body, doubts: u64) {
        self.peer.activate();
        let fields =
            [("stream-reader-type", self.kind.title().into()), ("remote-peer-id", Value::Shown(&self.peer.name()))];
        logging::info("established TCP streaming connection with remote peer", &fields);
        let end = match wire.stream().breaker() {
            Ok(breaker) => {
                self.peer.set_reader(self.kind, breaker, doubts);
                let end = self.read(wire, body);
                self.peer.reader_ended(self.kind);
                end
            }
            Err(error) => Fault::from(error).into(),
        };
        if self.peer.is_stopped() {
            return;
        }
        let [reader, remote] = fields;
        logging::warn(
            "lost TCP streaming connection with remote peer",
            &[reader, remote, ("error", Value::Shown(&end))],
        );
        // A peer that closed its stream may have restarted or replaced it: the next dial shows that.
        if !matches!(end, End::Fault(Fault::Closed)) {
            self.peer.deactivate(self.kind.title(), "read", &end);
        }
    }

    fn read(&self, mut wire: Wire, mut body: Body) -> End {
        let own = self.shared.identity.member_id;
        let mut decoder = Decoder::new(self.kind, self.peer.id, own, self.shared.message_bytes_max);
        let mut input = BytesMut::new();
        loop {
            let before = input.len();
            match wire.receive(&mut body, &mut input, None) {
                Ok(true) => {}
                Ok(false) => return Fault::Closed.into(),
                Err(fault) => return fault.into(),
            }
            self.peer.counters.received_bytes.fetch_add(input.len().saturating_sub(before) as u64, Ordering::Relaxed);
            let mut messages = Vec::new();
            let end = loop {
                let next = contain(|| {
                    contain::planted::panic_over(&input);
                    decoder.next(&mut input)
                });
                match next.unwrap_or_else(|panicked| Err(codec::Error::Malformed(panicked.to_string()))) {
                    Ok(Some(Frame::Message(message))) if self.is_meant(&message) => messages.push(message),
                    Ok(Some(Frame::Message(message))) => break Some(End::Misdirected(message.from(), message.to())),
                    Ok(Some(Frame::Heartbeat)) => {}
                    Ok(None) => break None,
                    Err(error) => break Some(error.into()),
                }
            };
            if !messages.is_empty() {
                self.shared.handler.receive(messages, Origin::Stream);
            }
            if let Some(error) = end {
                self.peer.counters.received_failures.fetch_add(1, Ordering::Relaxed);
                return error;
            }
        }
    }

    /// Whether a message is from this peer, for this member, and of a kind that streams carry. A member that no longer
    /// leads forwards proposals and read indexes of others in their names.
    fn is_meant(&self, message: &Message) -> bool {
        let passed_on = matches!(message.r#type(), MessageType::MsgProp | MessageType::MsgReadIndex);
        (message.from() == self.peer.id || passed_on)
            && message.to() == self.shared.identity.member_id
            && message.r#type() != MessageType::MsgSnap
    }
}

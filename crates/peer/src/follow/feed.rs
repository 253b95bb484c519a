//! The side that is followed: one thread and one batch of entries for each observer.

use super::followers::Seat;
use super::{CLIENT_URLS, Fed, Feed, Follower, NAME, Refused, TAIL_MAX, WAY, WAY_MAX};
use crate::answers::{Next, Refusal, answer, refusal, require};
use crate::codec::{Encoder, Kind};
use crate::fault::Fault;
use crate::handler::Known;
use crate::head::{self, RequestHead};
use crate::identity::{self, CLUSTER_ID, SERVER_FROM, hex};
use crate::sender::check;
use crate::shared::Shared;
use crate::snapshot::Export;
use crate::stream::is_closed;
use crate::wire::Wire;
use api::raftpb::Message;
use bytes::{Bytes, BytesMut};
use http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long an observer may take to fetch a snapshot; longer than any that makes progress.
const FETCH_MAX: Duration = Duration::from_secs(3600);
/// How often it is told meanwhile that the snapshot is still there.
const FETCH_LOOK: Duration = Duration::from_secs(1);
/// Texts that an observer may name itself with.
const NAME_BYTES_MAX: usize = 1024;

/// `GET /cairn/follow/<id>?after=<index>&term=<term>&tail=<digest>,...`.
pub(crate) fn serve(shared: &Arc<Shared>, wire: &mut Wire, head: &RequestHead, id: &str) -> Result<Next, Fault> {
    let follower = match asked(shared, head, id) {
        Ok(follower) => follower,
        Err(refusal) => return answer(shared, wire, head, *refusal),
    };
    let feed = match shared.handler.follow(&follower) {
        Ok(feed) => feed,
        Err(Refused { status, text }) => return answer(shared, wire, head, refusal(status, text)),
    };
    let way = feed.way();
    if way.contains(&follower.id) || way.len() >= WAY_MAX {
        let text = format!("entries come to this observer by way of {}", shown(&way));
        return answer(shared, wire, head, refusal(StatusCode::CONFLICT, text));
    }
    let Some(seat) = shared.followers.take(follower.id, wire.stream().breaker()?) else {
        return answer(
            shared,
            wire,
            head,
            refusal(StatusCode::SERVICE_UNAVAILABLE, "too many observers follow already"),
        );
    };
    let mut headers = HeaderMap::new();
    headers.insert(CLUSTER_ID, hex(shared.identity.cluster_id));
    headers.insert(SERVER_FROM, hex(shared.identity.member_id));
    headers.insert(WAY, HeaderValue::from_str(&shown(&way)).unwrap_or(HeaderValue::from_static("")));
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/octet-stream"));
    headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
    wire.set_write_timeout(shared.timeouts.write)?;
    wire.write_all(&head::write_response(StatusCode::OK, &headers))?;
    Ok(Next::Feed(Feeding { feed, _seat: seat }))
}

/// A stream that has begun.
pub(crate) struct Feeding {
    feed: Box<dyn Feed>,
    _seat: Seat,
}

impl Feeding {
    /// Sends until one of the two ends it.
    pub(crate) fn run(mut self, shared: &Arc<Shared>, mut wire: Wire) {
        let mut sending =
            Sending { shared, wire: &mut wire, encoder: Encoder::new(Kind::Message), buffer: BytesMut::new() };
        // A broken connection is no news: the observer comes again.
        let _ = sending.run(&mut *self.feed);
    }
}

fn asked(shared: &Shared, head: &RequestHead, id: &str) -> Result<Follower, Refusal> {
    require(Method::GET, "GET", &head.request)?;
    let headers = head.request.headers();
    check(shared, headers)?;
    let bad = |text: &str| Refusal::from(refusal(StatusCode::BAD_REQUEST, text));
    let id = identity::parse_id(id).filter(|id| *id != 0 && *id != shared.identity.member_id);
    let id = id.ok_or_else(|| bad("invalid id of an observer"))?;
    if shared.handler.knows(id) != Known::Unknown {
        return Err(refusal(StatusCode::FORBIDDEN, "this id is a member's: members do not observe").into());
    }
    let query = head.request.uri().query().unwrap_or_default();
    let text_of = |name: &str| {
        let pair = query.split('&').find_map(|pair| pair.split_once('=').filter(|pair| pair.0 == name));
        pair.map(|(_, value)| value)
    };
    let value = |name: &str| text_of(name).and_then(|value| value.parse::<u64>().ok());
    let last = value("after").zip(value("term")).ok_or_else(|| bad("the last entry of the observer is not named"))?;
    let digests = text_of("tail").unwrap_or_default().split(',').take(TAIL_MAX);
    // Observers of earlier releases send none.
    let tail = digests.map_while(|digest| u64::from_str_radix(digest, 16).ok()).collect();
    let text = |name| identity::text(headers, name).unwrap_or_default();
    let (name, urls) = (text(&NAME), text(&CLIENT_URLS));
    if name.len() > NAME_BYTES_MAX || urls.len() > NAME_BYTES_MAX {
        return Err(bad("an observer with too long a name"));
    }
    let client_urls = urls.split(',').filter(|url| !url.is_empty()).map(str::to_string).collect();
    Ok(Follower { id, name: name.to_string(), client_urls, last, tail })
}

/// Ids as the header has them.
fn shown(way: &[u64]) -> String {
    way.iter().map(|id| format!("{id:x}")).collect::<Vec<_>>().join(",")
}

struct Sending<'a> {
    shared: &'a Arc<Shared>,
    wire: &'a mut Wire,
    encoder: Encoder,
    buffer: BytesMut,
}

impl Sending<'_> {
    fn run(&mut self, feed: &mut dyn Feed) -> Result<(), Fault> {
        while self.goes_on() {
            match feed.next() {
                Ok(Fed::Message(message)) => self.send(&message)?,
                Ok(Fed::Snapshot(message, export)) => return self.snapshot(feed, message, &export),
                Err(_) => return Ok(()),
            }
        }
        Ok(())
    }

    fn goes_on(&self) -> bool {
        !self.shared.is_stopping() && !is_closed(self.wire.stream().descriptor())
    }

    fn send(&mut self, message: &Message) -> Result<(), Fault> {
        self.buffer.clear();
        self.encoder.message(message, &mut self.buffer);
        self.wire.write_all(&self.buffer)
    }

    /// Sends the checkpoint, and keeps the segments until the observer has gone, which it does when it has them.
    fn snapshot(&mut self, feed: &mut dyn Feed, mut message: Message, export: &Arc<dyn Export>) -> Result<(), Fault> {
        (self.shared.yield_cpu)();
        let checkpoint = export.checkpoint().map_err(|error| Fault::Io(std::io::Error::other(error)))?;
        let id = self.shared.exports.begin(export);
        if let Some(snapshot) = &mut message.snapshot {
            snapshot.data = Some(checkpoint);
        }
        message.context = Some(Bytes::copy_from_slice(&id.to_be_bytes()));
        let mut outcome = self.send(&message);
        drop(message);
        self.buffer = BytesMut::new();
        let began = Instant::now();
        let mut looked = Instant::now();
        while outcome.is_ok() && self.goes_on() && began.elapsed() < FETCH_MAX {
            self.shared.pause(Duration::from_millis(20));
            if looked.elapsed() >= FETCH_LOOK {
                looked = Instant::now();
                if feed.goes_on().is_err() {
                    break;
                }
                let mut beat = BytesMut::new();
                self.encoder.heartbeat(&mut beat);
                outcome = self.wire.write_all(&beat);
            }
        }
        self.shared.exports.end(id, false);
        self.shared.exports.forget_old();
        outcome
    }
}

//! The side that follows: dials, and passes on what comes.

use super::{CLIENT_URLS, MESSAGE_BYTES_MAX, NAME, PATH, WAY, WAY_MAX};
use crate::body::Body;
use crate::client::{self, Connection};
use crate::codec::{self, Decoder, Frame, Kind};
use crate::fault::Fault;
use crate::identity::{self, CLUSTER_ID};
use crate::peers::Peers;
use crate::snapshot;
use crate::timeouts::after;
use api::raftpb::{Message, MessageType};
use bytes::BytesMut;
use contain::contain;
use http::{HeaderValue, Request, StatusCode, Uri};
use std::time::Duration;

/// How long the answer to the request may take.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);
/// Bytes that are read of a refusal.
const REFUSAL_BYTES_MAX: usize = 4 * 1024;

/// What takes the entries that come.
pub trait Follow {
    /// Index and term of the last entry that is here.
    fn last(&self) -> (u64, u64);
    /// Digests of the entry `last` and those before it, as far as they are known.
    fn tail(&self, last: u64) -> Vec<u64>;
    /// The stream is there. `way` are the ids of those that the entries come through, the last of them the sender's.
    fn begin(&mut self, way: &[u64]) -> Result<(), String>;
    /// Takes a message that is no snapshot. Waits while there is no room for it. An error ends the stream.
    fn take(&mut self, message: Message) -> Result<(), String>;
}

/// Why a source is not followed, or not any more.
#[derive(Debug, thiserror::Error)]
pub enum Unfollowed {
    /// It cannot be reached.
    #[error(transparent)]
    Call(#[from] client::Error),
    /// The connection broke, or is silent.
    #[error(transparent)]
    Fault(#[from] Fault),
    /// It belongs to another cluster.
    #[error("cluster ID mismatch: it belongs to cluster {0}")]
    OtherCluster(String),
    /// It has another entry where this observer's log ends.
    #[error("its history is another one: {0}")]
    Differs(String),
    /// It refuses.
    #[error("it answered {0}: {1}")]
    Refused(StatusCode, String),
    /// It sent what nobody sends.
    #[error("it sent what cannot be read: {0}")]
    Malformed(String),
    /// What it sent was not taken.
    #[error("{0}")]
    NotTaken(String),
    /// A snapshot was installed: it is followed again from there.
    #[error("a snapshot was installed")]
    Installed,
}

impl From<codec::Error> for Unfollowed {
    fn from(error: codec::Error) -> Unfollowed {
        Unfollowed::Malformed(error.to_string())
    }
}

impl Peers {
    /// Follows the member or observer at `url` until that ends, and returns why. `silence` is how long it may send nothing.
    pub fn follow(
        &self,
        url: &str,
        (name, client_urls): (&str, &[String]),
        silence: Duration,
        follow: &mut dyn Follow,
    ) -> Unfollowed {
        match self.try_follow(url, (name, client_urls), silence, follow) {
            Ok(never) => match never {},
            Err(why) => why,
        }
    }

    fn try_follow(
        &self,
        url: &str,
        (name, client_urls): (&str, &[String]),
        silence: Duration,
        follow: &mut dyn Follow,
    ) -> Result<std::convert::Infallible, Unfollowed> {
        let shared = &self.shared;
        let mut connection = Connection::open(&shared.connector, url, shared.timeouts.dial)?;
        let (index, term) = follow.last();
        let mut request = Request::new([]);
        let tail = follow.tail(index).iter().map(|digest| format!("{digest:x}")).collect::<Vec<_>>().join(",");
        let path = format!("{PATH}{:x}?after={index}&term={term}&tail={tail}", shared.identity.member_id);
        *request.uri_mut() = path.parse::<Uri>().map_err(Fault::not_http)?;
        *request.headers_mut() = shared.headers.clone();
        for (header, text) in [(NAME, name.to_string()), (CLIENT_URLS, client_urls.join(","))] {
            if let Ok(text) = HeaderValue::from_str(&text) {
                request.headers_mut().insert(header, text);
            }
        }
        let head = connection.send(&request, ANSWER_TIMEOUT)?;
        let mut wire = connection.into_wire();
        let headers = head.response.headers();
        let status = head.response.status();
        if status != StatusCode::OK {
            let theirs = identity::text(headers, &CLUSTER_ID).unwrap_or("unknown").to_string();
            let body = wire.body(head.framing, REFUSAL_BYTES_MAX, after(ANSWER_TIMEOUT)).unwrap_or_default();
            let text = String::from_utf8_lossy(&body).trim_end().to_string();
            return Err(match status {
                StatusCode::PRECONDITION_FAILED if text == identity::Mismatch::Cluster.to_string() => {
                    Unfollowed::OtherCluster(theirs)
                }
                StatusCode::UNPROCESSABLE_ENTITY => Unfollowed::Differs(text),
                _ => Unfollowed::Refused(status, text),
            });
        }
        let way = identity::text(headers, &WAY).unwrap_or_default();
        let way: Option<Vec<u64>> = way.split(',').take(WAY_MAX.saturating_add(1)).map(identity::parse_id).collect();
        let way = way.filter(|way| way.len() <= WAY_MAX);
        let way = way.ok_or_else(|| Unfollowed::Malformed("where its entries come from is not said".into()))?;
        let Some(&from) = way.last() else { return Err(Unfollowed::Malformed("nobody sends it".into())) };
        if way.contains(&shared.identity.member_id) {
            return Err(Unfollowed::NotTaken("its entries come by way of this observer".into()));
        }
        follow.begin(&way).map_err(Unfollowed::NotTaken)?;
        let mut body = Body::new(head.framing);
        let mut decoder = Decoder::new(Kind::Message, from, shared.identity.member_id, MESSAGE_BYTES_MAX);
        let mut input = BytesMut::new();
        loop {
            while let Some(frame) = contain(|| decoder.next(&mut input))
                .map_err(|panicked| Unfollowed::Malformed(panicked.to_string()))??
            {
                match frame {
                    Frame::Heartbeat => {}
                    Frame::Message(message) if message.r#type() == MessageType::MsgSnap => {
                        let taken = snapshot::take(shared, from, url, message);
                        return Err(taken.map_or_else(Unfollowed::NotTaken, |()| Unfollowed::Installed));
                    }
                    Frame::Message(message) => follow.take(message).map_err(Unfollowed::NotTaken)?,
                }
            }
            if shared.is_stopping() {
                return Err(Fault::Closed.into());
            }
            if !wire.receive(&mut body, &mut input, Some(after(silence)))? {
                return Err(Fault::Closed.into());
            }
        }
    }

    /// Ends the streams of the observers that follow this process.
    pub fn end_followers(&self) {
        self.shared.followers.end_all();
    }
}

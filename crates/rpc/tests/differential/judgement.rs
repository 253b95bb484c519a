//! Where two servers may differ, and where they must not.

use crate::headers::{Headers, is_malformed_request, is_malformed_trailers};
use crate::observation::{Observation, Stream};
use crate::script::{flag, kind};

const PROTOCOL_ERROR: u32 = 1;
const STREAM_CLOSED: u32 = 5;
const FRAME_SIZE_ERROR: u32 = 6;
const COMPRESSION_ERROR: u32 = 9;

const PIECE_BY_PIECE: &str = "`h2` decodes header blocks piece by piece";

/// What a stream has come to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome<'a> {
    /// The message came back.
    Echoed(&'a [u8]),
    /// Any other response.
    Answered,
    Reset(u32),
    /// It waits for the client.
    Waiting,
}

fn outcome(stream: Option<&Stream>) -> Outcome<'_> {
    let Some(stream) = stream else { return Outcome::Waiting };
    match stream {
        Stream { has_ended: true, .. } if stream.field("grpc-status") == Some("0") => Outcome::Echoed(&stream.body),
        Stream { has_ended: true, .. } => Outcome::Answered,
        Stream { reset: Some(code), .. } => Outcome::Reset(*code),
        _ => Outcome::Waiting,
    }
}

/// What is to be thought of both after a frame.
#[derive(Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The same.
    Agree,
    /// A difference that may be, and after which nothing can be compared any more.
    MayDiffer(&'static str),
    /// A difference that must not be.
    Differ(String),
}

/// Follows a script on both servers.
pub struct Judge {
    headers: Headers,
    is_first: bool,
}

impl Judge {
    pub fn new() -> Judge {
        Judge { headers: Headers::new(), is_first: true }
    }

    /// Judges what both have said up to `frame`, which came last.
    pub fn judge(&mut self, frame: &[u8], ours: &Observation, theirs: &Observation) -> Verdict {
        let frame = Facts {
            kind: frame[3],
            flags: frame[4],
            stream: u32::from_be_bytes([frame[5], frame[6], frame[7], frame[8]]) & !(1 << 31),
            list: self.headers.read(frame),
            is_first: std::mem::take(&mut self.is_first),
            payload: &frame[9..],
        };
        if let Some(verdict) = frame.connection(ours, theirs) {
            return verdict;
        }
        for id in ours.streams.keys().chain(theirs.streams.keys()) {
            let (ours, theirs) = (ours.streams.get(id), theirs.streams.get(id));
            if outcome(ours) != outcome(theirs) {
                return frame.stream(*id, ours, theirs);
            }
        }
        if ours.settings_acks != theirs.settings_acks || ours.pongs != theirs.pongs {
            return Verdict::Differ("acknowledgements".to_owned());
        }
        if frame.is_part_of_block() && frame.was_reset(theirs) {
            return Verdict::MayDiffer(PIECE_BY_PIECE);
        }
        if frame.kind == kind::GO_AWAY {
            return Verdict::MayDiffer("`h2` takes nothing more from a client that has said GOAWAY with an error");
        }
        Verdict::Agree
    }
}

/// The frame that came last.
struct Facts<'a> {
    kind: u8,
    flags: u8,
    stream: u32,
    /// The header list that ends with it.
    list: Option<Vec<(Vec<u8>, Vec<u8>)>>,
    is_first: bool,
    payload: &'a [u8],
}

impl Facts<'_> {
    fn connection(&self, ours: &Observation, theirs: &Observation) -> Option<Verdict> {
        let (ours_error, theirs_error) = (ours.connection_error, theirs.connection_error);
        let why = match (ours_error, theirs_error) {
            (None, None) => return None,
            (Some(ours), Some(theirs)) if ours == theirs => return Some(Verdict::MayDiffer("both are over")),
            (Some(_), Some(PROTOCOL_ERROR)) => "`h2` says PROTOCOL_ERROR whatever is wrong",
            (Some(PROTOCOL_ERROR), _)
                if self.is_first && (self.kind != kind::SETTINGS || self.flags & flag::ACK != 0) =>
            {
                "`h2` does not mind if a client does not begin with its settings"
            }
            (Some(PROTOCOL_ERROR), _) if self.depends_on_itself() => "`h2` resets a stream that depends on itself",
            (Some(PROTOCOL_ERROR), _) if self.kind == kind::PUSH_PROMISE => {
                "`h2` lets clients push to streams that are gone"
            }
            (Some(PROTOCOL_ERROR | STREAM_CLOSED), None) if self.was_reset(theirs) && self.is_malformed() => {
                "`h2` looks at headers before it looks whether their stream may have any"
            }
            (Some(COMPRESSION_ERROR), None)
                if self.kind == kind::CONTINUATION && matches!(self.payload, [0x20..0x40, ..]) =>
            {
                "`h2` takes a change of the table size at the beginning of each piece of a header block"
            }
            (None, Some(PROTOCOL_ERROR)) if self.has_bad_target(ours.streams.get(&self.stream)) => {
                "a method or target that is none is answered, not an end of the connection"
            }
            (None, Some(PROTOCOL_ERROR)) if self.is_part_of_block() => PIECE_BY_PIECE,
            (None, Some(PROTOCOL_ERROR)) if self.kind == kind::SETTINGS && self.flags & flag::ACK != 0 => {
                "`h2` minds if its settings are acknowledged twice"
            }
            (None, Some(PROTOCOL_ERROR)) if self.was_reset(ours) && self.is_malformed() => {
                "`h2` ends the connection for names that are none"
            }
            (None, Some(PROTOCOL_ERROR)) if self.is_stream_error(ours) => {
                "`h2` ends the connection where the RFC wants the stream to end"
            }
            (ours, theirs) => return Some(Verdict::Differ(format!("connection: {ours:?}, {theirs:?}"))),
        };
        Some(Verdict::MayDiffer(why))
    }

    fn stream(&self, id: u32, ours: Option<&Stream>, theirs: Option<&Stream>) -> Verdict {
        let status = ours.and_then(|ours| ours.field("grpc-status"));
        Verdict::MayDiffer(match (outcome(ours), outcome(theirs)) {
            (Outcome::Reset(PROTOCOL_ERROR), _) if id == self.stream && self.is_malformed() => {
                "`h2` takes requests without path and trailers with one"
            }
            (_, Outcome::Reset(_)) if id == self.stream && self.is_part_of_block() => PIECE_BY_PIECE,
            (_, Outcome::Reset(PROTOCOL_ERROR)) if id == self.stream && self.has_bad_target(ours) => {
                "a target that is no URI is answered, not reset"
            }
            (Outcome::Answered, Outcome::Waiting)
                if id == self.stream && status.is_some_and(|status| status != "0") =>
            {
                "what is wrong with a call is said before its end"
            }
            (ours, theirs) => return Verdict::Differ(format!("stream {id}: {ours:?}, {theirs:?}")),
        })
    }

    /// Whether the header list that has just come is against the rules, as the beginning of a request or as its end.
    fn is_malformed(&self) -> bool {
        self.list.as_ref().is_some_and(|list| is_malformed_request(list) || is_malformed_trailers(list))
    }

    /// Whether the request's method or target is none, by what the HTTP library says or by what we have answered.
    fn has_bad_target(&self, ours: Option<&Stream>) -> bool {
        let Some(list) = &self.list else { return false };
        let value = |wanted: &[u8]| list.iter().find(|(name, _)| name == wanted).map(|(_, value)| &value[..]);
        let is_scheme = value(b":scheme").is_some_and(|scheme| matches!(scheme, b"http" | b"https"));
        let is_path = value(b":path")
            .is_some_and(|path| path.starts_with(b"/") && http::uri::PathAndQuery::try_from(path).is_ok());
        !is_scheme || !is_path || ours.and_then(|ours| ours.field(":status")) == Some("400")
    }

    fn depends_on_itself(&self) -> bool {
        let at = usize::from(self.flags & flag::PADDED != 0 && self.kind == kind::HEADERS);
        let has_priority =
            self.kind == kind::PRIORITY || (self.kind == kind::HEADERS && self.flags & flag::PRIORITY != 0);
        let Some(&[a, b, c, d]) = self.payload.get(at..at + 4) else { return false };
        has_priority && u32::from_be_bytes([a & 0x7f, b, c, d]) == self.stream
    }

    /// Whether the stream was reset for a window update of nothing (RFC 9113 section 6.9), for a priority of another length (6.3), or
    /// for a body that continues after its end (5.1).
    fn is_stream_error(&self, seen: &Observation) -> bool {
        let is_nothing = matches!(self.payload, [a, 0, 0, 0] if a & 0x7f == 0);
        match seen.streams.get(&self.stream).and_then(|stream| stream.reset) {
            Some(PROTOCOL_ERROR) => self.kind == kind::WINDOW_UPDATE && is_nothing,
            Some(FRAME_SIZE_ERROR) => self.kind == kind::PRIORITY && self.payload.len() != 5,
            Some(STREAM_CLOSED) => matches!(self.kind, kind::DATA | kind::HEADERS),
            _ => false,
        }
    }

    fn is_part_of_block(&self) -> bool {
        matches!(self.kind, kind::HEADERS | kind::CONTINUATION) && self.flags & flag::END_HEADERS == 0
    }

    fn was_reset(&self, seen: &Observation) -> bool {
        seen.streams.get(&self.stream).is_some_and(|stream| stream.reset.is_some())
    }
}

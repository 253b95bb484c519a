//! The sending side of one stream: what is queued, and how it leaves as the peer's window opens.

use std::collections::VecDeque;
use std::fmt;
use std::task::{Context, Poll};

use api::{Code, limits};
use bytes::{BufMut, Bytes, BytesMut};
use h2::server::SendResponse;
use h2::{Reason, SendStream};
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderValue, Response};

use crate::payload::{PREFIX_BYTES, Payload, prefix};
use crate::{Reply, Source, Status};

/// What one DATA submission carries at most.
const PIECE_BYTES_MAX: usize = 64 * 1024;
/// Messages below this size are copied together into shared submissions.
const SMALL_BYTES_MAX: usize = 2 * 1024;
/// Size of such a submission.
const SHARED_BYTES_MAX: usize = 16 * 1024;

/// Where a stream stands after [`Outflow::pump`].
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    /// Everything is handed over, the end included.
    Done,
    /// Everything so far is handed over.
    Idle,
    /// The peer's window is full; the waker is registered.
    Window,
    /// The connection's share is used up.
    Share,
    /// The stream is reset or the connection lost.
    Broken,
}

/// Everything that waits to be sent on one stream.
pub(crate) struct Outflow {
    head: Head,
    queue: VecDeque<Item>,
    current: Option<Current>,
    queued_bytes: usize,
    end: Option<End>,
}

enum Head {
    Unsent(SendResponse<Payload>, Opening),
    Sent(SendStream<Payload>),
}

/// How a response begins.
pub(crate) enum Opening {
    /// As gRPC, with this content type.
    Grpc(HeaderValue),
    /// As the service says.
    Http(Box<Response<()>>),
}

enum Item {
    Message(Bytes),
    Parts { len: usize, source: Box<dyn Source> },
    Raw(Bytes),
}

/// The message that is on its way.
struct Current {
    prefix: [u8; PREFIX_BYTES],
    /// Bytes of the prefix that have left; all of them when there is none.
    prefix_at: usize,
    body: Body,
    /// Bytes of the body still to leave.
    left: usize,
}

enum Body {
    Bytes(Bytes),
    Source(Box<dyn Source>),
}

/// How a response ends.
enum End {
    /// With gRPC trailers.
    Trailers(Status),
    /// With its last byte.
    Plain,
}

impl Outflow {
    pub(crate) fn new(respond: SendResponse<Payload>, opening: Opening) -> Outflow {
        Outflow::with(Head::Unsent(respond, opening))
    }

    /// A stream whose response headers have left.
    pub(crate) fn begun(stream: SendStream<Payload>) -> Outflow {
        Outflow::with(Head::Sent(stream))
    }

    fn with(head: Head) -> Outflow {
        Outflow { head, queue: VecDeque::new(), current: None, queued_bytes: 0, end: None }
    }

    /// Queues a reply and the end behind it.
    pub(crate) fn reply(&mut self, reply: Reply) {
        self.queued_bytes += reply.len();
        self.queue.push_back(match reply {
            Reply::Whole(message) => Item::Message(message),
            Reply::Parts { len, source } => Item::Parts { len, source },
        });
        self.end = Some(End::Trailers(Status::OK));
    }

    /// Queues a whole HTTP response.
    pub(crate) fn respond(&mut self, response: Response<Bytes>) {
        let (parts, body) = response.into_parts();
        if let Head::Unsent(_, opening) = &mut self.head {
            *opening = Opening::Http(Box::new(Response::from_parts(parts, ())));
        }
        if !body.is_empty() {
            self.queued_bytes += body.len();
            self.queue.push_back(Item::Raw(body));
        }
        self.end = Some(End::Plain);
    }

    /// Ends the stream behind what is queued. The first end counts.
    pub(crate) fn finish(&mut self, status: Status) {
        self.end.get_or_insert(End::Trailers(status));
    }

    /// The code of the end, if that is known.
    pub(crate) fn end_code(&self) -> Option<Code> {
        match &self.end {
            Some(End::Trailers(status)) => Some(status.code),
            Some(End::Plain) | None => None,
        }
    }

    /// Ends the stream at once, what is queued is lost. False if it ended in the middle of a message and had to be reset.
    pub(crate) fn abort(&mut self, status: Status) -> bool {
        if self.current.is_some() || matches!(self.end, Some(End::Plain)) {
            self.reset(Reason::CANCEL);
            return false;
        }
        self.queue.clear();
        self.queued_bytes = 0;
        self.end = Some(End::Trailers(status));
        true
    }

    /// Resets the stream.
    pub(crate) fn reset(&mut self, reason: Reason) {
        match &mut self.head {
            Head::Unsent(respond, _) => respond.send_reset(reason),
            Head::Sent(stream) => stream.send_reset(reason),
        }
    }

    /// Bytes queued, message prefixes aside.
    pub(crate) fn queued_bytes(&self) -> usize {
        self.queued_bytes
    }

    /// Ready if the peer has reset the stream or is gone; else the waker is registered.
    pub(crate) fn poll_reset(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        match &mut self.head {
            Head::Unsent(respond, _) => respond.poll_reset(cx).map(drop),
            Head::Sent(stream) => stream.poll_reset(cx).map(drop),
        }
    }

    /// Hands over what the peer's window and `share`, in bytes, allow.
    pub(crate) fn pump(&mut self, cx: &mut Context<'_>, share: &mut usize) -> Progress {
        loop {
            if self.current.is_none() && !self.load() {
                return match self.end.take() {
                    None => Progress::Idle,
                    Some(end) => self.close(end),
                };
            }
            let Ok(stream) = self.head.open(false) else { return Progress::Broken };
            let Some(current) = &mut self.current else { continue };
            if *share == 0 {
                return Progress::Share;
            }
            let wanted = current.len().min(PIECE_BYTES_MAX).min(*share);
            stream.reserve_capacity(wanted);
            let mut room = stream.capacity();
            if room == 0 {
                room = match stream.poll_capacity(cx) {
                    Poll::Pending => return Progress::Window,
                    Poll::Ready(Some(Ok(room))) => room,
                    Poll::Ready(_) => return Progress::Broken,
                };
            }
            let Some(payload) = current.take(room.min(wanted)) else {
                // The source ended before its length: only a reset tells the client that the message is broken.
                stream.send_reset(Reason::INTERNAL_ERROR);
                return Progress::Broken;
            };
            let len = payload.len();
            *share -= len.min(*share);
            if current.len() == 0 {
                self.current = None;
            }
            self.queued_bytes -= payload.body_len.min(self.queued_bytes);
            if stream.send_data(payload.payload, false).is_err() {
                return Progress::Broken;
            }
        }
    }

    /// Makes the next thing in the queue the current one. False if there is none.
    fn load(&mut self) -> bool {
        let Some(item) = self.queue.pop_front() else { return false };
        self.current = Some(match item {
            Item::Message(message) => match self.queue.front() {
                Some(Item::Message(next)) if message.len().max(next.len()) < SMALL_BYTES_MAX => self.share(message),
                _ => Current {
                    prefix: prefix(message.len()),
                    prefix_at: 0,
                    left: message.len(),
                    body: Body::Bytes(message),
                },
            },
            Item::Parts { len, source } => {
                Current { prefix: prefix(len), prefix_at: 0, left: len, body: Body::Source(source) }
            }
            Item::Raw(body) => Current::raw(body),
        });
        true
    }

    /// Copies `first` and the small messages behind it together: frames cost more than bytes.
    fn share(&mut self, first: Bytes) -> Current {
        let mut together = BytesMut::with_capacity(SHARED_BYTES_MAX);
        let mut next = Some(first);
        while let Some(message) = next.take() {
            together.put_slice(&prefix(message.len()));
            together.put_slice(&message);
            // The prefixes were not counted as queued, but will be as handed over.
            self.queued_bytes += PREFIX_BYTES;
            if let Some(Item::Message(message)) = self.queue.front_mut()
                && message.len() < SMALL_BYTES_MAX
                && together.len() + PREFIX_BYTES + message.len() <= SHARED_BYTES_MAX
            {
                next = Some(std::mem::take(message));
                self.queue.pop_front();
            }
        }
        Current::raw(together.freeze())
    }

    fn close(&mut self, end: End) -> Progress {
        let sent = match (end, &mut self.head) {
            (End::Plain, Head::Unsent(..)) => self.head.open(true).map(drop),
            (End::Plain, Head::Sent(stream)) => stream.send_data(Payload::raw(Bytes::new()), true),
            (End::Trailers(status), Head::Unsent(respond, Opening::Grpc(content_type))) => {
                respond.send_response(trailers_only(content_type.clone(), &status), true).map(drop)
            }
            (End::Trailers(_), Head::Unsent(respond, Opening::Http(_))) => {
                respond.send_reset(Reason::INTERNAL_ERROR);
                return Progress::Broken;
            }
            (End::Trailers(status), Head::Sent(stream)) => stream.send_trailers(trailers(&status)),
        };
        if sent.is_ok() { Progress::Done } else { Progress::Broken }
    }
}

impl Head {
    /// The stream, its response headers sent. Only a response without a body passes `end`.
    fn open(&mut self, end: bool) -> Result<&mut SendStream<Payload>, h2::Error> {
        if let Head::Unsent(respond, opening) = self {
            let response = match opening {
                Opening::Grpc(content_type) => grpc_head(content_type.clone()),
                Opening::Http(response) => std::mem::take(&mut **response),
            };
            *self = Head::Sent(respond.send_response(response, end)?);
        }
        match self {
            Head::Sent(stream) => Ok(stream),
            Head::Unsent(..) => unreachable!("the headers were just sent"),
        }
    }
}

/// A piece of a message and how much of it was body.
struct Piece {
    payload: Payload,
    prefix_len: usize,
    body_len: usize,
}

impl Piece {
    fn len(&self) -> usize {
        self.prefix_len + self.body_len
    }
}

impl Current {
    fn raw(body: Bytes) -> Current {
        Current { prefix: [0; PREFIX_BYTES], prefix_at: PREFIX_BYTES, left: body.len(), body: Body::Bytes(body) }
    }

    fn len(&self) -> usize {
        PREFIX_BYTES - self.prefix_at + self.left
    }

    /// Cuts off at most `bytes_max` bytes. `None` if the source has less than it promised.
    fn take(&mut self, bytes_max: usize) -> Option<Piece> {
        let begin = self.prefix_at;
        let prefix_len = (PREFIX_BYTES - begin).min(bytes_max);
        self.prefix_at += prefix_len;
        let body_max = self.left.min(bytes_max - prefix_len);
        let body = match &mut self.body {
            _ if body_max == 0 => Bytes::new(),
            Body::Bytes(bytes) => bytes.split_to(body_max),
            Body::Source(source) => {
                let piece = source.next(body_max)?;
                assert!(piece.len() <= body_max, "a source gave {} of at most {body_max} bytes", piece.len());
                if piece.is_empty() {
                    return None;
                }
                piece
            }
        };
        let body_len = body.len();
        self.left -= body_len;
        Some(Piece { payload: Payload::part(self.prefix, begin, self.prefix_at, body), prefix_len, body_len })
    }
}

/// The sending side of a stream as its handler sees it.
pub struct Outbound<'a> {
    flow: &'a mut Outflow,
    messages: u64,
    bytes: usize,
}

impl<'a> Outbound<'a> {
    pub(crate) fn new(flow: &'a mut Outflow) -> Outbound<'a> {
        Outbound { flow, messages: 0, bytes: 0 }
    }

    /// Messages and bytes sent through this.
    pub(crate) fn counts(&self) -> (u64, usize) {
        (self.messages, self.bytes)
    }

    /// Whether less than [`limits::STREAM_SEND_BYTES_MAX`] is queued. After it was false,
    /// [`StreamHandler::ready`](crate::StreamHandler::ready) is called when there is room again.
    pub fn has_room(&self) -> bool {
        self.flow.queued_bytes < limits::STREAM_SEND_BYTES_MAX
    }

    /// Queues a message. Without regard to [`Outbound::has_room`]: a handler that ignores it is not bounded.
    pub fn send(&mut self, message: Bytes) {
        if self.flow.end.is_some() {
            return;
        }
        self.messages += 1;
        self.bytes += message.len();
        self.flow.queued_bytes += message.len();
        self.flow.queue.push_back(Item::Message(message));
    }

    /// Ends the stream behind what is queued; the handler is dropped afterwards. The first status counts.
    pub fn finish(&mut self, status: Status) {
        self.flow.finish(status);
    }
}

impl fmt::Debug for Outbound<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Outbound").field("queued_bytes", &self.flow.queued_bytes).finish_non_exhaustive()
    }
}

/// Headers of a gRPC response that has a body.
pub(crate) fn grpc_head(content_type: HeaderValue) -> Response<()> {
    let mut headers = HeaderMap::with_capacity(1);
    headers.insert(CONTENT_TYPE, content_type);
    let mut response = Response::new(());
    *response.headers_mut() = headers;
    response
}

/// A gRPC response that is only a status.
pub(crate) fn trailers_only(content_type: HeaderValue, status: &Status) -> Response<()> {
    let mut headers = trailers(status);
    headers.insert(CONTENT_TYPE, content_type);
    let mut response = Response::new(());
    *response.headers_mut() = headers;
    response
}

/// The trailers that say `status`.
pub(crate) fn trailers(status: &Status) -> HeaderMap {
    let mut headers = HeaderMap::with_capacity(3);
    headers.insert("grpc-status", code_value(status.code));
    if !status.message.is_empty() {
        headers.insert("grpc-message", status.encoded_message());
    }
    headers
}

fn code_value(code: Code) -> HeaderValue {
    const DIGITS: [&str; Code::ALL.len()] =
        ["0", "1", "2", "3", "4", "5", "6", "7", "8", "9", "10", "11", "12", "13", "14", "15", "16"];
    HeaderValue::from_static(DIGITS[code as usize])
}

//! The sending side of one stream: what is queued, and how it leaves as the peer's window opens.

use std::collections::VecDeque;
use std::fmt;

use api::{Code, limits};
use bytes::{Buf, Bytes, BytesMut};
use contain::Outside;
use http::{HeaderMap, Response, StatusCode};

use super::frame::{PAYLOAD_BYTES_DEFAULT, Reason};
use super::sender::{ContentType, SLIVER_BYTES_MAX, Sender, widen, worth};
use crate::grpc::payload::{PREFIX_BYTES, prefix};
use crate::{Reply, Source, Status};

/// What is asked of a source at once.
const PIECE_BYTES_MAX: usize = 64 * 1024;
/// Messages below this size are copied into blocks.
const SMALL_BYTES_MAX: usize = 2 * 1024;
/// Size of such a block: what every peer takes in one frame.
const BLOCK_BYTES: usize = PAYLOAD_BYTES_DEFAULT;
/// What a stream takes that waits for something, roughly.
pub(crate) const STREAM_BYTES: usize = 1024;
/// What a stream with a handler counts beside its headers. So little that a connection may have as many as it has numbers for.
pub(crate) const HANDLER_BYTES: usize = 384;
/// What a reply that is made while it is sent counts for among those that wait: the memory that it may take, not its length.
const PARTS_BYTES: usize = PIECE_BYTES_MAX;

/// The state of a stream after [`Outflow::pump`].
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    /// Everything is handed over, the end included.
    Done,
    /// Everything so far is handed over.
    Idle,
    /// The stream's window is full.
    Window,
    /// The connection's window, or its room for output, is used up.
    Share,
    /// The stream must be reset.
    Broken(Reason),
}

/// Everything that waits to be sent on one stream.
#[derive(Debug)]
pub(crate) struct Outflow {
    opening: Opening,
    queue: VecDeque<Item>,
    current: Option<Current>,
    queued_bytes: usize,
    /// Below how many queued bytes a handler may add more.
    room_bytes: usize,
    end: Option<End>,
    /// What a handler sends is no message, but part of a body.
    is_raw: bool,
    /// How much has left so far.
    sent_bytes: u64,
    /// What the peer still takes on this stream.
    window: i64,
    /// Less of it than this is not worth a frame that does not end a message.
    worth: i64,
    /// A message waits for the window to be worth it.
    withholds: bool,
    /// It has waited for long: the next frame may be as small as it likes.
    hurries: bool,
    /// The end is sent.
    is_done: bool,
}

/// How a response begins.
#[derive(Debug)]
pub(crate) enum Opening {
    /// It has begun.
    Sent,
    /// As gRPC, with this content type.
    Grpc(ContentType),
    /// As the service says.
    Http(StatusCode, Box<HeaderMap>),
}

impl Opening {
    /// Of a response that is not gRPC and not known yet.
    pub(crate) fn http() -> Opening {
        Opening::Http(StatusCode::OK, Box::default())
    }
}

enum Item {
    Message(Bytes),
    /// Messages, each after its prefix: frames cost more than bytes. The last block of a queue may still grow.
    Block(BytesMut),
    Parts {
        len: usize,
        source: Outside<Box<dyn Source>>,
    },
    Raw(Bytes),
}

/// The message that is on its way.
struct Current {
    prefix: [u8; PREFIX_BYTES],
    /// Bytes of the prefix that have left; all of them when there is none.
    prefix_at: usize,
    body: Body,
    /// Bytes of the body, and of them those still to leave.
    len: usize,
    left: usize,
}

enum Body {
    Bytes(Bytes),
    Source {
        source: Outside<Box<dyn Source>>,
        /// What it counts among the queued bytes until its end.
        queued: usize,
    },
}

/// How a response ends.
#[derive(Debug)]
enum End {
    /// With gRPC trailers.
    Trailers(Status),
    /// With its last byte.
    Plain,
    /// Before that.
    Broken,
}

impl Outflow {
    pub(crate) fn new(opening: Opening, window: i64) -> Outflow {
        Outflow {
            opening,
            queue: VecDeque::new(),
            current: None,
            queued_bytes: 0,
            room_bytes: limits::STREAM_SEND_BYTES_MAX,
            end: None,
            is_raw: false,
            sent_bytes: 0,
            window,
            worth: worth(window),
            withholds: false,
            hurries: false,
            is_done: false,
        }
    }

    /// Queues a reply and the end after it.
    pub(crate) fn reply(&mut self, reply: Reply) {
        let item = match reply {
            Reply::Whole(message) => Item::Message(message),
            Reply::Parts { len, source } => Item::Parts { len, source: Outside::new(source) },
        };
        self.queued_bytes = self.queued_bytes.saturating_add(item.queued_bytes());
        self.queue.push_back(item);
        self.end = Some(End::Trailers(Status::OK));
    }

    /// Sends a whole reply at once, if nothing was sent before it and the windows have room for it. Otherwise gives it back.
    pub(crate) fn reply_at_once(&mut self, stream: u32, sender: &mut Sender, message: Bytes) -> Option<Bytes> {
        let Opening::Grpc(content_type) = self.opening else { return Some(message) };
        let len = PREFIX_BYTES.saturating_add(message.len());
        if !sender.room_for(len) || len as i64 > self.window || !self.queue.is_empty() {
            return Some(message);
        }
        sender.grpc_head(stream, content_type);
        sender.message(stream, message);
        sender.ok_trailers(stream);
        self.opening = Opening::Sent;
        self.is_done = true;
        None
    }

    /// Queues a whole HTTP response.
    pub(crate) fn respond(&mut self, response: Response<Bytes>) {
        let (parts, body) = response.into_parts();
        self.opening = Opening::Http(parts.status, Box::new(parts.headers));
        if !body.is_empty() {
            self.queued_bytes = self.queued_bytes.saturating_add(body.len());
            self.queue.push_back(Item::Raw(body));
        }
        self.end = Some(End::Plain);
    }

    /// Ends the stream after what is queued. The first end counts.
    pub(crate) fn finish(&mut self, status: Status) {
        self.end.get_or_insert(match self.is_raw {
            false => End::Trailers(status),
            true if status == Status::OK => End::Plain,
            true => End::Broken,
        });
    }

    /// Whether it ends after what is queued.
    pub(crate) fn has_end(&self) -> bool {
        self.end.is_some()
    }

    /// The code of the end, if that is known.
    pub(crate) fn end_code(&self) -> Option<Code> {
        match &self.end {
            Some(End::Trailers(status)) => Some(status.code),
            Some(End::Plain | End::Broken) | None => None,
        }
    }

    /// Begins an HTTP response whose body a handler sends in pieces.
    pub(crate) fn begin(&mut self, status: StatusCode, headers: HeaderMap) {
        self.opening = Opening::Http(status, Box::new(headers));
        self.is_raw = true;
    }

    /// Ends the stream with `status`, what is queued is lost. False if it is in the middle of something and must be reset instead.
    pub(crate) fn abort(&mut self, status: Status) -> bool {
        if self.current.is_some() || matches!(self.end, Some(End::Plain | End::Broken)) {
            return false;
        }
        self.queue.clear();
        self.queued_bytes = 0;
        self.end = Some(End::Trailers(status));
        true
    }

    /// Bytes of memory that what waits here takes, its stream included.
    pub(crate) fn held_bytes(&self) -> usize {
        let waits = self.current.is_some() || !self.queue.is_empty();
        let kept = self.current.as_ref().map_or(0, Current::kept_bytes);
        self.queued_bytes.saturating_add(kept).saturating_add(if waits { STREAM_BYTES } else { 0 })
    }

    /// What has left so far of what was queued, without what was taken out by [`Outflow::pop`].
    pub(crate) fn sent_bytes(&self) -> u64 {
        self.sent_bytes
    }

    /// What is left to be sent of what is queued.
    pub(crate) fn left(&self) -> usize {
        self.queued_bytes.saturating_add(self.current.as_ref().map_or(0, Current::len))
    }

    /// Says below how many queued bytes a handler may add more.
    pub(crate) fn allow(&mut self, room_bytes: usize) {
        self.room_bytes = room_bytes;
    }

    /// Changes what the peer takes on this stream. Fails if that is more than HTTP/2 allows.
    pub(crate) fn widen(&mut self, by: i64) -> Result<(), ()> {
        let widened = widen(&mut self.window, by);
        self.worth = self.worth.max(worth(self.window));
        self.withholds |= self.window > 0 && !self.can_move();
        widened
    }

    /// Whether there is something to send, and room for it.
    pub(crate) fn can_move(&self) -> bool {
        match &self.current {
            _ if self.window >= self.worth => true,
            Some(current) => self.window >= current.len() as i64,
            None => self.queue.is_empty(),
        }
    }

    /// Whether the window is so narrow that more of it should be waited for, be it for a moment.
    pub(crate) fn is_narrow(&self) -> bool {
        self.window < SLIVER_BYTES_MAX
    }

    /// Whether a message waits for the window to be worth a frame.
    pub(crate) fn withholds(&self) -> bool {
        self.withholds
    }

    /// Waits no longer for the window to be worth a frame. False if that was not waited for.
    pub(crate) fn hurry(&mut self) -> bool {
        self.hurries = std::mem::take(&mut self.withholds);
        self.hurries
    }

    /// Takes the next message out, for a caller within the process.
    pub(crate) fn pop(&mut self) -> Option<Reply> {
        if let Item::Block(block) = self.queue.front_mut()?
            && let [_, a, b, c, d, ..] = block[..]
        {
            let len = u32::from_be_bytes([a, b, c, d]) as usize;
            block.advance(PREFIX_BYTES);
            let message = block.split_to(len).freeze();
            if block.is_empty() {
                self.queue.pop_front();
            }
            self.unqueue(PREFIX_BYTES.saturating_add(len));
            return Some(Reply::Whole(message));
        }
        let item = self.queue.pop_front()?;
        self.unqueue(item.queued_bytes());
        match item {
            Item::Message(message) => Some(Reply::Whole(message)),
            Item::Parts { len, source } => Some(Reply::Parts { len, source: Box::new(source) }),
            Item::Block(_) | Item::Raw(_) => None,
        }
    }

    /// Subtracts `bytes` that were taken out of the queue.
    #[expect(clippy::arithmetic_side_effects, reason = "what is taken out was counted when it was queued")]
    fn unqueue(&mut self, bytes: usize) {
        self.queued_bytes -= bytes;
    }

    /// The status of the end, if there is one; then there is none any more. For a caller within the process.
    pub(crate) fn take_status(&mut self) -> Option<Status> {
        match self.end.take()? {
            End::Trailers(status) => Some(status),
            End::Plain | End::Broken => Some(Status::OK),
        }
    }

    /// Hands over what the windows and the room for output allow.
    pub(crate) fn pump(&mut self, stream: u32, sender: &mut Sender) -> Progress {
        if self.is_done {
            return Progress::Done;
        }
        loop {
            if self.current.is_none() && !self.load() {
                return match self.end.take() {
                    None => Progress::Idle,
                    Some(end) => self.close(stream, sender, end),
                };
            }
            self.open(stream, sender, false);
            let Some(current) = &mut self.current else { continue };
            let (window, room) = (usize::try_from(self.window).unwrap_or(0), sender.room());
            if window == 0 {
                return Progress::Window;
            }
            if room == 0 {
                return Progress::Share;
            }
            let wanted = current.len().min(PIECE_BYTES_MAX).min(window).min(room);
            if wanted < current.len() && (wanted as i64) < SLIVER_BYTES_MAX {
                if wanted == window && self.window < self.worth && !std::mem::take(&mut self.hurries) {
                    self.withholds = true;
                    sender.withholds = true;
                    return Progress::Window;
                }
                if sender.withholds(wanted) {
                    return Progress::Share;
                }
            }
            let Some(piece) = current.take(wanted) else {
                // The source ended before its length: only a reset tells the client that the message is broken. Sources do that only when
                // they slip.
                sender.slipped = true;
                return Progress::Broken(Reason::INTERNAL_ERROR);
            };
            let is_over = current.len() == 0;
            self.window = self.window.saturating_sub(piece.len() as i64);
            self.sent_bytes = self.sent_bytes.saturating_add(piece.len() as u64);
            self.queued_bytes = self.queued_bytes.saturating_sub(match current.body {
                Body::Bytes(_) => piece.body.len(),
                Body::Source { queued, .. } if is_over => queued,
                Body::Source { .. } => 0,
            });
            let front = current.front(&piece);
            // A body that is no message ends with its last byte.
            let end = is_over && self.queue.is_empty() && matches!(self.end, Some(End::Plain));
            sender.data(stream, front, piece.body, end);
            if end {
                return Progress::Done;
            }
            if is_over {
                self.current = None;
            }
        }
    }

    /// Makes the next thing in the queue the current one. False if there is none.
    fn load(&mut self) -> bool {
        let Some(item) = self.queue.pop_front() else { return false };
        self.current = Some(match item {
            Item::Message(message) => {
                let len = message.len();
                Current { prefix: prefix(len), prefix_at: 0, len, left: len, body: Body::Bytes(message) }
            }
            Item::Block(messages) => Current::raw(messages.freeze()),
            Item::Parts { len, source } => {
                let body = Body::Source { source, queued: PARTS_BYTES.min(len) };
                Current { prefix: prefix(len), prefix_at: 0, len, left: len, body }
            }
            Item::Raw(body) => Current::raw(body),
        });
        true
    }

    /// Whether a handler may add more: what the peer takes now, and a little to follow. A thousand watchers that do not read would each
    /// have a copy of what they share as long as it is not made.
    pub(crate) fn has_room(&self) -> bool {
        let window = usize::try_from(self.window).unwrap_or(0);
        self.queued_bytes < self.room_bytes.min(window.saturating_add(limits::STREAM_AHEAD_BYTES_MAX))
    }

    /// Whether a message of `len` bytes may be queued. One that is larger than gRPC sends ends the stream.
    fn takes(&mut self, len: usize) -> bool {
        if len > limits::SEND_BYTES_MAX && !self.is_raw {
            self.finish(Status::too_large_to_send(len));
        }
        self.end.is_none()
    }

    /// Queues a message. False after the end, and if it is too large.
    pub(crate) fn push(&mut self, message: Bytes) -> bool {
        if message.len() < SMALL_BYTES_MAX {
            return self.message(message.len()).map(|block| block.extend_from_slice(&message)).is_some();
        }
        if !self.takes(message.len()) {
            return false;
        }
        self.queued_bytes = self.queued_bytes.saturating_add(message.len());
        self.queue.push_back(if self.is_raw { Item::Raw(message) } else { Item::Message(message) });
        true
    }

    /// Queues a message that `source` makes. False after the end, and if it is too large.
    pub(crate) fn push_parts(&mut self, len: usize, source: Box<dyn Source>) -> bool {
        if !self.takes(len) {
            return false;
        }
        let item = Item::Parts { len, source: Outside::new(source) };
        self.queued_bytes = self.queued_bytes.saturating_add(item.queued_bytes());
        self.queue.push_back(item);
        true
    }

    /// Queues a message of `len` bytes, which are to be appended to what this returns. None after the end, and if it is too large.
    pub(crate) fn message(&mut self, len: usize) -> Option<&mut BytesMut> {
        if !self.takes(len) {
            return None;
        }
        if self.is_raw {
            return Some(self.block(len));
        }
        let block = self.block(PREFIX_BYTES.saturating_add(len));
        block.extend_from_slice(&prefix(len));
        Some(block)
    }

    /// The block to which `len` bytes are to be appended, counted as queued.
    fn block(&mut self, len: usize) -> &mut BytesMut {
        self.queued_bytes = self.queued_bytes.saturating_add(len);
        let room = match self.queue.back() {
            Some(Item::Block(block)) if block.len().saturating_add(len) <= BLOCK_BYTES => {
                Some(block.capacity().saturating_sub(block.len()))
            }
            _ => None,
        };
        if room.is_none() {
            // One message is often all there is; after others there are many.
            let is_one_of_many = len <= BLOCK_BYTES / 2 && matches!(self.queue.back(), Some(Item::Block(_)));
            let capacity = if is_one_of_many { BLOCK_BYTES } else { len };
            self.queue.push_back(Item::Block(BytesMut::with_capacity(capacity)));
        }
        let Some(Item::Block(block)) = self.queue.back_mut() else { unreachable!("it is there, or was just added") };
        if room.is_some_and(|room| room < len) {
            // To twice its length, not to a whole block: what waits counts by its length, and a hundred thousand streams may wait.
            block.reserve(len);
        }
        block
    }

    /// Sends the beginning of the response if it has not left yet.
    fn open(&mut self, stream: u32, sender: &mut Sender, end: bool) {
        match std::mem::replace(&mut self.opening, Opening::Sent) {
            Opening::Sent => {}
            Opening::Grpc(content_type) => sender.grpc_head(stream, content_type),
            Opening::Http(status, headers) => sender.http_head(stream, status.as_u16(), &headers, end),
        }
    }

    fn close(&mut self, stream: u32, sender: &mut Sender, end: End) -> Progress {
        match (end, &self.opening) {
            (End::Plain, Opening::Sent) => sender.data(stream, &[], Bytes::new(), true),
            (End::Plain, _) => self.open(stream, sender, true),
            (End::Broken, _) => return Progress::Broken(Reason::INTERNAL_ERROR),
            (End::Trailers(status), Opening::Grpc(content_type)) => {
                sender.trailers_only(stream, StatusCode::OK.as_u16(), *content_type, &status);
            }
            (End::Trailers(_), Opening::Http(..)) => return Progress::Broken(Reason::INTERNAL_ERROR),
            (End::Trailers(status), Opening::Sent) if status == Status::OK => sender.ok_trailers(stream),
            (End::Trailers(status), Opening::Sent) => sender.trailers(stream, &status),
        }
        Progress::Done
    }
}

impl Item {
    fn queued_bytes(&self) -> usize {
        match self {
            Item::Message(bytes) | Item::Raw(bytes) => bytes.len(),
            Item::Block(messages) => messages.len(),
            Item::Parts { len, .. } => PARTS_BYTES.min(*len),
        }
    }
}

impl fmt::Debug for Item {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes", self.queued_bytes())
    }
}

impl fmt::Debug for Current {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes left", self.len())
    }
}

/// A piece of a message: the prefix from `prefix_at` to where it has now left, and some of the body.
struct Piece {
    prefix_at: usize,
    prefix_len: usize,
    body: Bytes,
}

impl Piece {
    fn len(&self) -> usize {
        self.prefix_len.saturating_add(self.body.len())
    }
}

impl Current {
    fn raw(body: Bytes) -> Current {
        let len = body.len();
        Current { prefix: [0; PREFIX_BYTES], prefix_at: PREFIX_BYTES, len, left: len, body: Body::Bytes(body) }
    }

    fn len(&self) -> usize {
        self.prefix_left().saturating_add(self.left)
    }

    /// Bytes that have left and whose memory is kept until all have. Bodies much longer than a piece lie where they are stored, or are
    /// claimed.
    fn kept_bytes(&self) -> usize {
        match &self.body {
            Body::Bytes(_) if self.len <= 2 * PIECE_BYTES_MAX => self.len.saturating_sub(self.left),
            _ => 0,
        }
    }

    /// Bytes of the prefix still to leave.
    fn prefix_left(&self) -> usize {
        PREFIX_BYTES.saturating_sub(self.prefix_at)
    }

    /// The part of the prefix that leaves with `piece`, the last one taken.
    #[expect(
        clippy::indexing_slicing,
        reason = "`take` moves `prefix_at` on from there, and no further than the prefix goes"
    )]
    fn front(&self, piece: &Piece) -> &[u8] {
        &self.prefix[piece.prefix_at..self.prefix_at]
    }

    /// Cuts off at most `bytes_max` bytes. `None` if the source has less than it promised.
    fn take(&mut self, bytes_max: usize) -> Option<Piece> {
        let prefix_at = self.prefix_at;
        let prefix_len = self.prefix_left().min(bytes_max);
        self.prefix_at = prefix_at.saturating_add(prefix_len);
        let body_max = self.left.min(bytes_max.saturating_sub(prefix_len));
        let body = match &mut self.body {
            _ if body_max == 0 => Bytes::new(),
            Body::Bytes(bytes) => bytes.split_to(body_max),
            Body::Source { source, .. } => {
                let piece = source.call(|source| source.next(body_max))?;
                assert!(piece.len() <= body_max, "a source gave {} of at most {body_max} bytes", piece.len());
                if piece.is_empty() {
                    return None;
                }
                piece
            }
        };
        // No more than `body_max`.
        self.left = self.left.saturating_sub(body.len());
        Some(Piece { prefix_at, prefix_len, body })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_waits_takes_little_more_than_twice_its_length() {
        for len in [1, 40, 300, 1_000, 5_000, 9_000] {
            let mut flow = Outflow::new(Opening::Sent, 0);
            for count in 1..100 {
                let block = flow.message(len).expect("no end");
                block.resize(block.len() + len, 7);
                let room = |item: &Item| match item {
                    Item::Block(block) => block.capacity(),
                    _ => 0,
                };
                let (held, room) = (flow.held_bytes(), flow.queue.iter().map(room).sum::<usize>());
                assert!(
                    room <= 2 * held + held / 4,
                    "{room} bytes for {count} messages of {len} bytes, which count as {held}"
                );
            }
        }
    }

    #[test]
    fn a_message_counts_as_a_whole_until_its_last_byte_has_left() {
        for len in [60_000, 65_000] {
            let mut flow = Outflow::new(Opening::Sent, (PREFIX_BYTES + len - 1) as i64);
            assert!(flow.push(vec![7; len].into()));
            let mut sender = Sender::new();
            assert_eq!(flow.pump(1, &mut sender), Progress::Window);
            assert!(flow.held_bytes() >= len, "{}", flow.held_bytes());
            assert!(flow.has_room());
            flow.widen(1).expect("a narrow window");
            assert_eq!(flow.pump(1, &mut sender), Progress::Idle);
            assert_eq!(flow.held_bytes(), 0);
        }
    }
}

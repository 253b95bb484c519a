//! The sending half of a connection: frames, header compression, the peer's settings and the connection's window.

use api::Code;
use bytes::{BufMut, Bytes, BytesMut};
use http::HeaderMap;
use http::header::CONNECTION;

use super::frame::{Fault, Head, PAYLOAD_BYTES_DEFAULT, Reason, Settings, WINDOW_BYTES_DEFAULT, flag, kind, setting};
use super::hpack::{Encoder, Indexing};
use super::output::Output;
use crate::Status;
use crate::grpc::payload::{PREFIX_BYTES, prefix};

/// Output that the socket has not taken yet, as long as there is memory for everybody's. Beyond it nothing is read, and streams wait.
const SEND_BYTES_MAX: usize = 256 * 1024;
/// Payload of the frames that replies are cut into, if the peer takes as much: after each frame another stream may send.
const PIECE_BYTES_MAX: usize = 64 * 1024;
/// Memory for header blocks that is kept between them.
const BLOCK_BYTES_KEPT: usize = 4 * 1024;

/// The smallest frame in the middle of a message, to a peer whose windows are wide.
pub(crate) const SLIVER_BYTES_MAX: i64 = 1024;

/// How the body of a gRPC reply is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ContentType {
    Grpc,
    GrpcProto,
}

impl ContentType {
    fn name(self) -> &'static [u8] {
        match self {
            ContentType::Grpc => b"application/grpc",
            ContentType::GrpcProto => b"application/grpc+proto",
        }
    }
}

/// A header block that stays the same as long as the encoder's table does.
#[derive(Default)]
struct Usual {
    /// The table's generation; none if there is no block yet.
    generation: Option<u64>,
    block: Vec<u8>,
}

/// What goes out on one connection.
pub(crate) struct Sender {
    pub(crate) output: Output,
    /// Bytes of bodies for which there is room in it.
    output_bytes_max: usize,
    encoder: Encoder,
    /// What the peer still takes on all streams together.
    window: i64,
    /// A smaller window than this is not worth a frame that does not end a message.
    worth: i64,
    /// Something waits for a window to be worth it.
    pub(crate) withholds: bool,
    /// It has waited for long: the next frame may be as small as it likes.
    pub(crate) hurries: bool,
    /// What it takes on a new stream.
    initial_window: i64,
    frame_bytes_max: usize,
    /// Where header blocks are made.
    block: Vec<u8>,
    /// The blocks that nearly every reply has: its head, and the trailers that say OK.
    usual_head: Usual,
    usual_trailers: Usual,
    /// The table's size was changed, and no block has come since.
    changed: bool,
    /// The code that answered a call has panicked: the connection ends.
    pub(crate) slipped: bool,
}

impl Sender {
    pub(crate) fn new() -> Sender {
        Sender {
            output: Output::default(),
            output_bytes_max: SEND_BYTES_MAX,
            encoder: Encoder::new(),
            window: i64::from(WINDOW_BYTES_DEFAULT),
            worth: worth(i64::from(WINDOW_BYTES_DEFAULT)),
            withholds: false,
            hurries: false,
            initial_window: i64::from(WINDOW_BYTES_DEFAULT),
            frame_bytes_max: PAYLOAD_BYTES_DEFAULT,
            block: Vec::new(),
            usual_head: Usual::default(),
            usual_trailers: Usual::default(),
            changed: false,
            slipped: false,
        }
    }

    /// Bounds the output to `share` bytes, what may go in beyond bodies included.
    pub(crate) fn bound(&mut self, share: usize) {
        self.output_bytes_max = SEND_BYTES_MAX.min(share / 2);
    }

    /// What the peer takes on a new stream, in bytes.
    pub(crate) fn initial_window(&self) -> i64 {
        self.initial_window
    }

    /// Bytes of bodies that may be appended now, on any stream: the connection's window and the room for output.
    pub(crate) fn room(&self) -> usize {
        let window = usize::try_from(self.window).unwrap_or(0);
        window.min(self.output_bytes_max.saturating_sub(self.output.len()))
    }

    /// Whether streams that wait for room may continue.
    pub(crate) fn is_open(&self) -> bool {
        self.room() > 0 && (self.window >= self.worth || self.hurries)
    }

    /// Whether a frame of `bytes` that does not end a message should wait for the connection's window to be worth it.
    pub(crate) fn withholds(&mut self, bytes: usize) -> bool {
        // Else it is something other than the window that makes it small.
        let withholds = bytes as i64 == self.window && self.window < self.worth && !std::mem::take(&mut self.hurries);
        self.withholds |= withholds;
        withholds
    }

    /// The same for a whole reply. A short one may go in where long ones have to wait, until so much waits that nothing is read.
    pub(crate) fn room_for(&self, reply_bytes: usize) -> bool {
        let (window, bytes) = (usize::try_from(self.window).unwrap_or(0), self.output.len());
        let most = if reply_bytes <= PAYLOAD_BYTES_DEFAULT { self.full_bytes() } else { self.output_bytes_max };
        reply_bytes <= window && bytes.saturating_add(reply_bytes) <= most
    }

    /// Whether so much waits for the socket that nothing should be read. More than bodies may fill: what is read may be about them.
    pub(crate) fn is_full(&self) -> bool {
        self.output.len() >= self.full_bytes()
    }

    fn full_bytes(&self) -> usize {
        self.output_bytes_max.saturating_mul(2)
    }

    /// Takes over the peer's settings. Returns by how much the windows of its streams change.
    pub(crate) fn apply(&mut self, settings: Settings<'_>) -> Result<i64, Fault> {
        let before = self.initial_window;
        for entry in settings.iter() {
            let (id, value) = entry?;
            match id {
                setting::HEADER_TABLE_SIZE => {
                    self.encoder.set_table_bytes_max(value as usize);
                    // The next block says so, which is not to be repeated.
                    self.changed = true;
                }
                setting::INITIAL_WINDOW_SIZE => self.initial_window = i64::from(value),
                setting::MAX_FRAME_SIZE => self.frame_bytes_max = (value as usize).min(PIECE_BYTES_MAX),
                _ => {}
            }
        }
        self.head(0, kind::SETTINGS, flag::ACK, 0);
        Ok(self.initial_window.saturating_sub(before))
    }

    /// Opens the connection's window.
    pub(crate) fn widen(&mut self, increment: u32) -> Result<(), Fault> {
        let widened = widen(&mut self.window, i64::from(increment));
        self.worth = self.worth.max(worth(self.window));
        self.withholds |= self.window > 0 && self.window < self.worth;
        widened.map_err(|()| Fault::connection(Reason::FLOW_CONTROL_ERROR))
    }

    /// The beginning of a gRPC reply that has a body.
    pub(crate) fn grpc_head(&mut self, stream: u32, content_type: ContentType) {
        let generation = self.encoder.generation();
        if content_type == ContentType::Grpc && self.usual_head.generation == Some(generation) && !self.changed {
            return put_block(self.output.tail(), &self.usual_head.block, stream, 0);
        }
        let changed = self.changed;
        self.begin_reply(content_type);
        self.headers(stream, false);
        if content_type == ContentType::Grpc && !changed {
            self.usual_head.keep(&self.block, generation, &self.encoder);
        }
    }

    /// The trailers that say OK.
    pub(crate) fn ok_trailers(&mut self, stream: u32) {
        let generation = self.encoder.generation();
        if self.usual_trailers.generation == Some(generation) && !self.changed {
            return put_block(self.output.tail(), &self.usual_trailers.block, stream, flag::END_STREAM);
        }
        let changed = self.changed;
        self.trailers(stream, &Status::OK);
        if !changed {
            self.usual_trailers.keep(&self.block, generation, &self.encoder);
        }
    }

    /// A gRPC reply that is only a status.
    pub(crate) fn trailers_only(&mut self, stream: u32, http_status: u16, content_type: ContentType, status: &Status) {
        if http_status == 200 {
            self.begin_reply(content_type);
        } else {
            self.begin_block(http_status);
            self.encoder.encode(&mut self.block, b"content-type", content_type.name(), Indexing::Index);
        }
        self.status(status);
        if status.code == Code::Unimplemented {
            self.encoder.encode(&mut self.block, b"grpc-accept-encoding", b"identity,gzip", Indexing::Without);
        }
        self.headers(stream, true);
    }

    /// The trailers that say `status`.
    pub(crate) fn trailers(&mut self, stream: u32, status: &Status) {
        self.block.clear();
        self.status(status);
        self.headers(stream, true);
    }

    /// The beginning of a response that is not gRPC, or all of it.
    pub(crate) fn http_head(&mut self, stream: u32, status: u16, headers: &HeaderMap, end: bool) {
        self.begin_block(status);
        for (name, value) in headers {
            if name == CONNECTION {
                // HTTP/2 has no such header (RFC 9113 section 8.2.2).
                self.slipped |= value == "close";
                continue;
            }
            self.encoder.encode(&mut self.block, name.as_str().as_bytes(), value.as_bytes(), Indexing::Without);
        }
        self.headers(stream, end);
    }

    fn begin_reply(&mut self, content_type: ContentType) {
        self.begin_block(200);
        self.encoder.encode(&mut self.block, b"content-type", content_type.name(), Indexing::Index);
    }

    fn begin_block(&mut self, status: u16) {
        self.block.clear();
        let digits = [status / 100, status / 10, status].map(|rest| b'0' | (rest % 10) as u8);
        self.encoder.encode(&mut self.block, b":status", &digits, Indexing::Without);
    }

    fn status(&mut self, status: &Status) {
        self.slipped |= status.ends_connection();
        self.encoder.encode(&mut self.block, b"grpc-status", code_text(status.code), Indexing::Index);
        if !status.message.is_empty() {
            let message = status.encoded_message();
            self.encoder.encode(&mut self.block, b"grpc-message", message.as_bytes(), Indexing::Without);
        }
    }

    /// The beginning of a request, whose header block `make` makes.
    pub(crate) fn request(&mut self, stream: u32, make: impl FnOnce(&mut Encoder, &mut Vec<u8>)) {
        make(&mut self.encoder, &mut self.block);
        self.headers(stream, false);
    }

    /// Sends the block that was made, in as many frames as it takes.
    fn headers(&mut self, stream: u32, end: bool) {
        self.changed = false;
        let mut kind = kind::HEADERS;
        let mut flags = if end { flag::END_STREAM } else { 0 };
        let mut rest = &self.block[..];
        loop {
            let (now, later) = rest.split_at(rest.len().min(self.frame_bytes_max));
            if later.is_empty() {
                flags |= flag::END_HEADERS;
            }
            let tail = self.output.tail();
            Head { len: now.len(), kind, flags, stream }.put(tail);
            tail.put_slice(now);
            if later.is_empty() {
                break;
            }
            (rest, kind, flags) = (later, kind::CONTINUATION, 0);
        }
        if self.block.capacity() > BLOCK_BYTES_KEPT {
            self.block = Vec::new();
        }
    }

    /// A message that the windows have room for, whole.
    pub(crate) fn message(&mut self, stream: u32, message: Bytes) {
        let len = PREFIX_BYTES.saturating_add(message.len());
        if len <= self.frame_bytes_max {
            self.spend(len);
            self.head(len, kind::DATA, 0, stream);
            self.output.tail().put_slice(&prefix(message.len()));
            self.output.append(message);
        } else {
            self.data(stream, &prefix(message.len()), message, false);
        }
    }

    /// The largest payload of a frame.
    pub(crate) fn frame_bytes_max(&self) -> usize {
        self.frame_bytes_max
    }

    /// One frame, which the windows have room for and the peer takes: `front`, then `body`, both copied.
    pub(crate) fn small(&mut self, stream: u32, front: &[u8], body: &[u8], end: bool) {
        let len = front.len().saturating_add(body.len());
        self.spend(len);
        self.head(len, kind::DATA, if end { flag::END_STREAM } else { 0 }, stream);
        let tail = self.output.tail();
        tail.put_slice(front);
        tail.put_slice(body);
    }

    /// Part of a body, which the windows have room for: `front`, then `body`.
    pub(crate) fn data(&mut self, stream: u32, front: &[u8], mut body: Bytes, end: bool) {
        let mut front = front;
        loop {
            let room = self.frame_bytes_max.saturating_sub(front.len());
            let piece = body.split_to(body.len().min(room));
            let len = front.len().saturating_add(piece.len());
            self.spend(len);
            self.head(len, kind::DATA, if end && body.is_empty() { flag::END_STREAM } else { 0 }, stream);
            self.output.tail().put_slice(front);
            self.output.append(piece);
            front = &[];
            if body.is_empty() {
                return;
            }
        }
    }

    /// Ends a stream at once.
    pub(crate) fn reset(&mut self, stream: u32, reason: Reason) {
        self.head(4, kind::RST_STREAM, 0, stream);
        self.output.tail().put_u32(reason.0);
    }

    /// Gives the peer more room, on a stream or (0) on the connection.
    pub(crate) fn window_update(&mut self, stream: u32, increment: u32) {
        self.head(4, kind::WINDOW_UPDATE, 0, stream);
        self.output.tail().put_u32(increment);
    }

    pub(crate) fn ping(&mut self, ack: bool, data: [u8; 8]) {
        self.head(data.len(), kind::PING, if ack { flag::ACK } else { 0 }, 0);
        self.output.tail().put_slice(&data);
    }

    /// Ends the connection, or announces that. Clients look for some of these texts.
    pub(crate) fn go_away(&mut self, last_stream: u32, reason: Reason, text: &str) {
        self.head(text.len().saturating_add(8), kind::GO_AWAY, 0, 0);
        let tail = self.output.tail();
        tail.put_u32(last_stream);
        tail.put_u32(reason.0);
        tail.put_slice(text.as_bytes());
    }

    /// Takes what is sent off the connection's window, which has room for it.
    fn spend(&mut self, bytes: usize) {
        self.window = self.window.saturating_sub(bytes as i64);
    }

    fn head(&mut self, len: usize, kind: u8, flags: u8, stream: u32) {
        Head { len, kind, flags, stream }.put(self.output.tail());
    }

    /// Where to write frames that need nothing of this.
    pub(crate) fn tail(&mut self) -> &mut BytesMut {
        self.output.tail()
    }
}

impl Usual {
    /// Keeps `block` if it can be sent again: making it has not changed the table since its generation was `before`.
    fn keep(&mut self, block: &[u8], before: u64, encoder: &Encoder) {
        if encoder.generation() == before {
            self.generation = Some(before);
            self.block.clear();
            self.block.extend_from_slice(block);
        }
    }
}

/// Sends a short block in one frame.
fn put_block(tail: &mut BytesMut, block: &[u8], stream: u32, flags: u8) {
    Head { len: block.len(), kind: kind::HEADERS, flags: flags | flag::END_HEADERS, stream }.put(tail);
    tail.put_slice(block);
}

/// Adds to a window of the peer's, which must not go beyond what a number of its can say.
pub(crate) fn widen(window: &mut i64, by: i64) -> Result<(), ()> {
    *window = window.saturating_add(by);
    if *window > i64::from(super::frame::WINDOW_BYTES_MAX) { Err(()) } else { Ok(()) }
}

/// How much of a window is worth a frame that does not end a message: a kilobyte, but of windows that were never wide a quarter. A
/// peer that opens its window byte by byte would be sent ten bytes for each otherwise (RFC 1122 section 4.2.3.4 says the same of TCP).
pub(crate) fn worth(window: i64) -> i64 {
    (window / 4).clamp(1, SLIVER_BYTES_MAX)
}

fn code_text(code: Code) -> &'static [u8] {
    match code {
        Code::Ok => b"0",
        Code::Canceled => b"1",
        Code::Unknown => b"2",
        Code::InvalidArgument => b"3",
        Code::DeadlineExceeded => b"4",
        Code::NotFound => b"5",
        Code::AlreadyExists => b"6",
        Code::PermissionDenied => b"7",
        Code::ResourceExhausted => b"8",
        Code::FailedPrecondition => b"9",
        Code::Aborted => b"10",
        Code::OutOfRange => b"11",
        Code::Unimplemented => b"12",
        Code::Internal => b"13",
        Code::Unavailable => b"14",
        Code::DataLoss => b"15",
        Code::Unauthenticated => b"16",
    }
}

//! What a client might send on a connection, made from a string of choices: good calls, malformed ones, and frames that no client
//! sends. Every string of choices gives a script, so that a fuzzer can make them.

use rpc::hpack::{Encoder, Indexing};

use crate::echo::ECHO;

pub mod kind {
    pub const DATA: u8 = 0;
    pub const HEADERS: u8 = 1;
    pub const PRIORITY: u8 = 2;
    pub const RST_STREAM: u8 = 3;
    pub const SETTINGS: u8 = 4;
    pub const PUSH_PROMISE: u8 = 5;
    pub const PING: u8 = 6;
    pub const GO_AWAY: u8 = 7;
    pub const WINDOW_UPDATE: u8 = 8;
    pub const CONTINUATION: u8 = 9;
}

pub mod flag {
    pub const ACK: u8 = 1;
    pub const END_STREAM: u8 = 1;
    pub const END_HEADERS: u8 = 4;
    pub const PADDED: u8 = 8;
    pub const PRIORITY: u8 = 0x20;
}

/// Frames of one script: far fewer than any limit on frames counts.
const STEPS_MAX: usize = 40;

/// Where decisions come from. Nothing but zeros when they are used up.
struct Choices<'a>(&'a [u8]);

impl Choices<'_> {
    fn byte(&mut self) -> u8 {
        let Some((first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        *first
    }

    fn below(&mut self, end: usize) -> usize {
        usize::from(self.byte()) % end
    }

    fn one_in(&mut self, count: usize) -> bool {
        self.below(count) == 1
    }

    fn number(&mut self) -> u32 {
        let small = u32::from(self.byte());
        match self.byte() % 8 {
            0 => 0,
            1 => 65_535,
            2 => (1 << 31) - 1 - small,
            3 => u32::MAX - small,
            4 => 16_384 + small,
            5 => small << 8,
            _ => small,
        }
    }

    fn bytes(&mut self, count: usize) -> Vec<u8> {
        (0..count).map(|_| self.byte()).collect()
    }
}

struct Frame {
    kind: u8,
    flags: u8,
    stream: u32,
    payload: Vec<u8>,
}

/// What comes after the preface. Readable with [`describe`].
/// Some calls go to one of `paths`, all others to the echo.
pub fn script(choices: &[u8], paths: &'static [&'static str]) -> Vec<u8> {
    let mut writer = Writer {
        choices: Choices(choices),
        paths,
        encoder: Encoder::new(),
        next_stream: 1,
        out: Vec::new(),
        is_polite: false,
        is_bent: false,
    };
    let manners = writer.choices.below(4);
    (writer.is_polite, writer.is_bent) = (manners < 2, manners == 3);
    if writer.is_polite || !writer.choices.one_in(32) {
        writer.frame(kind::SETTINGS, 0, 0, vec![]);
    }
    for _ in 0..STEPS_MAX {
        if writer.choices.0.is_empty() {
            break;
        }
        writer.step();
    }
    writer.out
}

struct Writer<'a> {
    choices: Choices<'a>,
    paths: &'static [&'static str],
    encoder: Encoder,
    next_stream: u32,
    out: Vec<u8>,
    /// Nothing that ends the connection.
    is_polite: bool,
    /// Frames may be changed after they are made.
    is_bent: bool,
}

impl Writer<'_> {
    fn step(&mut self) {
        match self.choices.below(if self.is_polite { 23 } else { 32 }) {
            0..=7 => self.call(),
            8 => self.call_in_continuations(),
            9 => self.call_with_trailers(),
            10 => self.call_in_pieces(),
            11 | 12 => self.bent_call(),
            13 => self.get(),
            14 => {
                let stream = self.begin(false);
                self.next_stream = stream + 2;
            }
            15 => self.settings(),
            16 => {
                let (flags, data) = (self.choices.byte() & flag::ACK, self.choices.bytes(8));
                self.frame(kind::PING, flags, 0, data);
            }
            31 => self.frame(kind::SETTINGS, flag::ACK, 0, vec![]),
            17 if !self.is_polite => self.raw(),
            17 => self.call_in_pieces(),
            18 | 19 => {
                let (stream, increment) = (self.any_stream(), self.number());
                self.frame(kind::WINDOW_UPDATE, 0, stream, increment.to_be_bytes().to_vec());
            }
            20 | 21 if self.next_stream > 1 => {
                let (stream, code) = (self.any_stream(), self.number());
                self.frame(kind::RST_STREAM, 0, stream, code.to_be_bytes().to_vec());
            }
            22 => {
                let priority = self.priority();
                let stream = if self.is_polite { self.next_stream } else { self.any_stream() };
                self.frame(kind::PRIORITY, 0, stream, priority);
            }
            23 => {
                let stream = self.any_stream();
                let length = if self.choices.one_in(4) { self.choices.below(20) } else { 8 };
                let payload = self.choices.bytes(length);
                self.frame(kind::GO_AWAY, 0, stream, payload);
            }
            24 => {
                let stream = self.any_stream();
                self.frame(kind::PUSH_PROMISE, flag::END_HEADERS, stream, vec![0, 0, 0, 2, 0x82]);
            }
            25 => {
                let (kind, flags) = (10 + self.choices.byte() % 100, self.choices.byte());
                let (stream, payload) = (self.any_stream(), self.some_bytes());
                self.frame(kind, flags, stream, payload);
            }
            26 => {
                let (stream, flags) = (self.any_stream(), self.choices.byte() & flag::END_HEADERS);
                let block = self.block(&[("x", "y")]);
                self.frame(kind::CONTINUATION, flags, stream, block);
            }
            27 | 28 => {
                let (stream, flags) = (self.any_stream(), self.choices.byte());
                let payload = self.some_bytes();
                self.frame(kind::DATA, flags & (flag::END_STREAM | flag::PADDED), stream, payload);
            }
            29 => {
                let (stream, flags) = (self.any_stream(), self.choices.byte() & flag::END_STREAM);
                let block = self.call_block(ECHO);
                self.frame(kind::HEADERS, flags | flag::END_HEADERS, stream, block);
            }
            _ => {
                if self.is_bent {
                    let garbage = self.some_bytes();
                    self.out.extend(garbage);
                }
            }
        }
    }

    fn raw(&mut self) {
        let (kind, flags) = (self.choices.byte() % 12, self.choices.byte());
        let (stream, payload) = (self.any_stream(), self.some_bytes());
        self.frame(kind, flags, stream, payload);
    }

    /// A good call of one message.
    fn call(&mut self) {
        let stream = self.begin(false);
        self.next_stream = stream + 2;
        let (message, is_padded) = (self.message(), self.choices.one_in(8));
        let (mut payload, mut flags) = (framed(&message), flag::END_STREAM);
        if is_padded {
            payload.insert(0, 3);
            payload.extend([0; 3]);
            flags |= flag::PADDED;
        }
        self.frame(kind::DATA, flags, stream, payload);
    }

    fn call_in_continuations(&mut self) {
        let stream = self.next_stream;
        self.next_stream += 2;
        let block = self.call_block(ECHO);
        let pieces = 1 + self.choices.below(3);
        let size = block.len().div_ceil(pieces);
        let count = block.chunks(size).count();
        for (number, piece) in block.chunks(size).enumerate() {
            let kind = if number == 0 { kind::HEADERS } else { kind::CONTINUATION };
            let flags = if number + 1 == count { flag::END_HEADERS } else { 0 };
            self.frame(kind, flags, stream, piece.to_vec());
            if self.choices.one_in(32) && !self.is_polite {
                self.frame(kind::PING, 0, 0, vec![1; 8]);
            }
        }
        let message = self.message();
        self.frame(kind::DATA, flag::END_STREAM, stream, framed(&message));
    }

    fn call_with_trailers(&mut self) {
        let stream = self.begin(false);
        self.next_stream = stream + 2;
        let message = self.message();
        self.frame(kind::DATA, 0, stream, framed(&message));
        let fields: &[(&str, &str)] = match self.choices.below(6) {
            0 => &[(":path", "/")],
            1 => &[("Upper", "x")],
            2 => &[],
            _ => &[("x-trailer", "value")],
        };
        let flags = if self.choices.one_in(8) { 0 } else { flag::END_STREAM };
        let block = self.block(fields);
        self.frame(kind::HEADERS, flags | flag::END_HEADERS, stream, block);
    }

    fn call_in_pieces(&mut self) {
        let stream = self.begin(false);
        self.next_stream = stream + 2;
        let message = framed(&self.message());
        let size = 1 + self.choices.below(8);
        for piece in message.chunks(size).take(6) {
            self.frame(kind::DATA, 0, stream, piece.to_vec());
        }
        let rest = message.chunks(size).skip(6).flatten().copied().collect();
        self.frame(kind::DATA, flag::END_STREAM, stream, rest);
    }

    /// A call whose header list breaks a rule, or is unusual.
    fn bent_call(&mut self) {
        const BENDS: &[&[(&str, &str)]] = &[
            &[("connection", "close")],
            &[("te", "gzip")],
            &[("te", "trailers")],
            &[("keep-alive", "1")],
            &[("proxy-connection", "x")],
            &[("transfer-encoding", "chunked")],
            &[("upgrade", "h2c")],
            &[("Upper", "case")],
            &[("bad name", "x")],
            &[("", "no name")],
            &[("x", "line\nend")],
            &[("x", "zero\0")],
            &[("x", "")],
            &[(":path", "/again")],
            &[(":method", "POST")],
            &[(":scheme", "http")],
            &[(":status", "200")],
            &[(":unknown", "x")],
            &[(":authority", "another")],
            &[("content-length", "3")],
            &[("content-length", "10")],
            &[("content-length", "x")],
            &[("content-length", "-1")],
            &[("content-length", "10"), ("content-length", "10")],
            &[("content-length", "10"), ("content-length", "11")],
            &[("host", "other")],
            &[("cookie", "a=b"), ("cookie", "c=d")],
            &[("x-bin", "AAAA")],
        ];
        let stream = self.next_stream;
        self.next_stream += 2;
        let mut fields = fields(ECHO);
        let mut drop_field = None;
        if self.choices.one_in(3) {
            drop_field = Some(fields.remove(self.choices.below(4)));
        }
        if drop_field.is_none() || self.choices.one_in(4) {
            let bend = BENDS[self.choices.below(BENDS.len())];
            let at = if self.choices.one_in(2) { fields.len() } else { self.choices.below(fields.len() + 1) };
            fields.splice(at..at, bend.iter().copied());
        }
        let block = self.block(&fields);
        if self.choices.one_in(4) {
            return self.frame(kind::HEADERS, flag::END_STREAM | flag::END_HEADERS, stream, block);
        }
        self.frame(kind::HEADERS, flag::END_HEADERS, stream, block);
        self.frame(kind::DATA, flag::END_STREAM, stream, framed(b"hello"));
    }

    fn get(&mut self) {
        let stream = self.next_stream;
        self.next_stream += 2;
        let method = ["GET", "HEAD", "OPTIONS", "CONNECT", "PUT", "get"][self.choices.below(6)];
        let path = ["/health", "/", "*", "/a?b=c", "no-slash", ""][self.choices.below(6)];
        let block = self.block(&[(":method", method), (":scheme", "http"), (":path", path), (":authority", "host")]);
        self.frame(kind::HEADERS, flag::END_STREAM | flag::END_HEADERS, stream, block);
    }

    fn settings(&mut self) {
        // Not 8, of an extension that we do not offer and `h2` looks at; 2 and 5 take few values.
        let ids: &[u8] = if self.is_polite { &[1, 3, 4, 6, 99] } else { &[1, 2, 3, 4, 4, 4, 5, 6, 7, 99] };
        let count = self.choices.below(4);
        let mut payload = Vec::new();
        for _ in 0..count {
            let (id, value) = (ids[self.choices.below(ids.len())], self.number());
            payload.extend([0, id]);
            payload.extend(value.to_be_bytes());
        }
        self.frame(kind::SETTINGS, 0, 0, payload);
    }

    /// HEADERS of a good call on the next stream.
    fn begin(&mut self, end: bool) -> u32 {
        let stream = self.next_stream + 2 * u32::from(self.choices.one_in(16));
        let path = if self.choices.one_in(6) { self.paths[self.choices.below(self.paths.len())] } else { ECHO };
        let mut block = self.call_block(path);
        let mut flags = flag::END_HEADERS | if end { flag::END_STREAM } else { 0 };
        if self.choices.one_in(8) {
            flags |= flag::PRIORITY;
            let priority = self.priority();
            block.splice(0..0, priority);
        }
        self.frame(kind::HEADERS, flags, stream, block);
        stream
    }

    fn call_block(&mut self, path: &str) -> Vec<u8> {
        self.block(&fields(path))
    }

    fn block(&mut self, fields: &[(&str, &str)]) -> Vec<u8> {
        let mut block = Vec::new();
        let indexing = [Indexing::Index, Indexing::Index, Indexing::Without, Indexing::Never][self.choices.below(4)];
        for (name, value) in fields {
            self.encoder.encode(&mut block, name.as_bytes(), value.as_bytes(), indexing);
        }
        block
    }

    fn priority(&mut self) -> Vec<u8> {
        let depends_on = self.any_stream();
        [&depends_on.to_be_bytes()[..], &[15]].concat()
    }

    fn number(&mut self) -> u32 {
        if self.is_polite { 16_384 + 40 * u32::from(self.choices.byte()) } else { self.choices.number() }
    }

    /// The connection, a stream that there has been, or one that there has not been yet.
    fn any_stream(&mut self) -> u32 {
        match self.choices.byte() % 16 {
            _ if self.next_stream == 1 => 0,
            _ if self.is_polite => 2 * (u32::from(self.choices.byte()) % (self.next_stream / 2).max(1)) + 1,
            0 | 1 => 0,
            2 => self.next_stream,
            3 => self.next_stream + 2,
            4 => 2,
            5 => (1 << 31) - 1,
            _ => {
                let count = (self.next_stream / 2).max(1);
                2 * (u32::from(self.choices.byte()) % count) + 1
            }
        }
    }

    fn message(&mut self) -> Vec<u8> {
        let size = [0, 1, 5, 40, 200][self.choices.below(5)];
        (0..size).map(|at| b'a' + at % 26).collect()
    }

    fn some_bytes(&mut self) -> Vec<u8> {
        let count = self.choices.below(24);
        self.choices.bytes(count)
    }

    fn frame(&mut self, kind: u8, flags: u8, stream: u32, payload: Vec<u8>) {
        let mut frame = Frame { kind, flags, stream, payload };
        let mut length_off = 0;
        if self.is_bent && self.choices.one_in(12) {
            length_off = self.bend(&mut frame);
        }
        let length = (frame.payload.len() as i32 + length_off).clamp(0, (1 << 24) - 1) as u32;
        self.out.extend(&length.to_be_bytes()[1..]);
        self.out.extend([frame.kind, frame.flags]);
        self.out.extend(frame.stream.to_be_bytes());
        self.out.extend(frame.payload);
    }

    /// Changes something about a frame. The result is by how much its length is told wrong.
    fn bend(&mut self, frame: &mut Frame) -> i32 {
        match self.choices.below(10) {
            0 => frame.kind = self.choices.byte() % 11,
            1 => frame.flags ^= 1 << self.choices.below(8),
            2 => frame.stream = self.any_stream(),
            3 => frame.stream |= 1 << 31,
            4 => frame.payload.truncate(self.choices.below(16)),
            5 => frame.payload.push(self.choices.byte()),
            6 if !frame.payload.is_empty() => {
                let at = self.choices.below(frame.payload.len().min(256));
                frame.payload[at] = self.choices.byte();
            }
            7 => frame.payload.clear(),
            8 => return [-1, 1, 2, 9, 16_384, 16_385, 1 << 20][self.choices.below(7)],
            _ => frame.flags = self.choices.byte(),
        }
        0
    }
}

fn fields(path: &str) -> Vec<(&'static str, &str)> {
    vec![
        (":method", "POST"),
        (":scheme", "http"),
        (":path", path),
        ("content-type", "application/grpc"),
        ("te", "trailers"),
    ]
}

fn framed(message: &[u8]) -> Vec<u8> {
    let mut out = vec![0];
    out.extend((message.len() as u32).to_be_bytes());
    out.extend(message);
    out
}

/// Where the frames of a script are. The last one may be cut off.
pub fn frames(script: &[u8]) -> Vec<&[u8]> {
    let mut frames = Vec::new();
    let mut rest = script;
    while let [a, b, c, ..] = rest {
        let length = 9 + u32::from_be_bytes([0, *a, *b, *c]) as usize;
        let (frame, tail) = rest.split_at(length.min(rest.len()));
        frames.push(frame);
        rest = tail;
    }
    frames.retain(|frame| frame.len() >= 9);
    frames
}

/// A frame in words.
pub fn describe(frame: &[u8]) -> String {
    let names = ["DATA", "HEADERS", "PRIORITY", "RST_STREAM", "SETTINGS", "PUSH_PROMISE", "PING", "GOAWAY"];
    let more_names = ["WINDOW_UPDATE", "CONTINUATION"];
    let (kind, flags) = (frame[3], frame[4]);
    let length = u32::from_be_bytes([0, frame[0], frame[1], frame[2]]);
    let stream = u32::from_be_bytes([frame[5], frame[6], frame[7], frame[8]]);
    let name = names.iter().chain(&more_names).nth(usize::from(kind)).unwrap_or(&"unknown");
    format!("{name} ({kind}) flags {flags:#x} stream {stream} length {length}: {}\n", frame[9..].escape_ascii())
}

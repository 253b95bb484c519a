//! Turns an input into connections and steps against the member.

use crate::choices::Choices;
use crate::http2;
use crate::link::{self, Link};
use crate::world::{NAMES, WEAK_PASSWORD, World};
use crate::{Target, json, message, raft, websocket};
use api::Message as _;
use flate2::Compression;
use flate2::write::GzEncoder;
use rpc::Kind;
use rustls::ClientConfig;
use server::harness::{Member, Method};
use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;

const STEPS_MAX: usize = 64;
const LINKS_MAX: usize = 8;
/// How long a step that wants an answer waits for it. None may come, so this is no judgement.
const ANSWER_WAIT_MS: i32 = 50;
/// How long the end of a script waits for what is under way.
const END_WAIT_MS: i32 = 2;
/// Time that passes at once.
const ADVANCES_MS: [u64; 6] = [1, 1_000, 10_000, 60_000, 301_000, 3_600_000];

/// Paths beside those of the gateway.
const PAGES: [&str; 14] = [
    "/metrics",
    "/health",
    "/version",
    "/debug/vars",
    "/livez",
    "/readyz",
    "/readyz?verbose",
    "/health?exclude=NOSPACE",
    "/",
    "/v3/nothing",
    "/v3beta/kv/range",
    "/debug/pprof/profile?seconds=0",
    "/livez/serializable_read",
    "/members",
];
/// Paths of the peer port.
const PEER_PAGES: [&str; 15] = [
    "/members",
    "/version",
    "/raft/probing",
    "/leases",
    "/leases/internal",
    "/members/hashkv",
    "/downgrade/enabled",
    "/members/promote/1",
    "/members/promote/x",
    "/raft/stream/message/",
    "/raft/stream/msgapp/",
    "/raft/snapshot",
    "/cairn/snapshot",
    "/cairn/snapshot/1/segment/0?from=0&length=4096&left=1",
    "/cairn/snapshot/0",
];

/// How scripts begin TLS.
pub(crate) struct Tls {
    pub(crate) http2: Arc<ClientConfig>,
    pub(crate) plain: Arc<ClientConfig>,
}

/// What a script plays on.
pub(crate) struct Stage<'a> {
    pub(crate) target: Target,
    pub(crate) member: &'a Member,
    pub(crate) methods: &'a [Method],
    pub(crate) tls: &'a Tls,
    pub(crate) world: World,
    /// Where the member dials the learner that exists only here, and who has dialled.
    pub(crate) learner: Option<&'a TcpListener>,
    pub(crate) dialled: &'a mut Vec<TcpStream>,
    /// What hostile clients may never be told.
    pub(crate) secrets: &'a [Vec<u8>],
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Speaks {
    Http2,
    Http1,
    WebSocket,
    Peer,
    Bytes,
}

struct Spoken {
    link: Link,
    speaks: Speaks,
    next_stream: u32,
    streams: Vec<(u32, usize)>,
    /// The end of what has come, for secrets that come in two pieces.
    tail: Vec<u8>,
}

struct Play<'a, 'b> {
    stage: Stage<'b>,
    choices: Choices<'a>,
    links: Vec<Spoken>,
    current: usize,
    leaked: bool,
}

/// Plays a script. The error says what hostile clients were told that they may not know.
pub(crate) fn play(stage: Stage<'_>, input: &[u8]) -> Result<(), String> {
    let mut play = Play { stage, choices: Choices::new(input), links: Vec::new(), current: 0, leaked: false };
    for _ in 0..STEPS_MAX {
        if play.choices.is_empty() {
            break;
        }
        play.step();
    }
    for place in 0..play.links.len() {
        play.current = place;
        play.read(END_WAIT_MS);
    }
    if play.leaked { Err("a hostile client was sent what the good client wrote".into()) } else { Ok(()) }
}

impl Play<'_, '_> {
    fn step(&mut self) {
        let may_peer = self.stage.target == Target::FrontDoor;
        match self.choices.byte() % 32 {
            0 => self.open(Speaks::Http2),
            1 => self.open(Speaks::Bytes),
            2..=10 => self.call(),
            11 | 12 => self.more(),
            13 => self.steer(),
            14 => {
                let stream = self.stream();
                let bytes = http2::any(stream, &mut self.choices);
                self.on(Speaks::Http2).link.send(&bytes);
            }
            15 => {
                let count = self.choices.byte();
                let bytes = self.choices.take(count.into()).to_vec();
                if let Some(spoken) = self.links.get_mut(self.current) {
                    spoken.link.send(&bytes);
                }
            }
            16..=18 => self.json(),
            19 | 20 => self.upgrade(),
            21 => self.web_socket_frame(),
            22 | 23 if may_peer => self.ask_peer_port(),
            24 if may_peer => self.post_message(),
            25 if may_peer => self.answer_dial(),
            22..=25 => self.log_in(),
            26 => drop(self.read(ANSWER_WAIT_MS)),
            27 => self.close(),
            28 => {
                let ms = self.choices.pick(&ADVANCES_MS);
                self.stage.member.advance_clock(ms);
            }
            29 => {
                let path = self.choices.pick(&PAGES);
                self.request(Speaks::Http1, "GET", path, b"");
            }
            30 => self.hello(),
            _ => self.current = self.choices.below(self.links.len().max(1)),
        }
    }

    /// Makes a connection and sends what each begins with.
    fn open(&mut self, speaks: Speaks) {
        let secure = self.choices.chance(40);
        let addresses = if speaks == Speaks::Peer { self.stage.member.peers() } else { self.stage.member.clients() };
        let Some(address) = addresses.get(usize::from(secure)) else { return };
        let config = if speaks == Speaks::Http2 { &self.stage.tls.http2 } else { &self.stage.tls.plain };
        // It may be full; that is an answer too.
        let Ok(mut link) = Link::dial(*address, secure.then_some(config)) else { return };
        if speaks == Speaks::Http2 {
            let mut settings = Vec::new();
            for _ in 0..self.choices.below(4) {
                settings.extend([0, self.choices.byte() % 9]);
                settings.extend((self.choices.number() as u32).to_be_bytes());
            }
            link.send(&[http2::PREFACE, &http2::frame(http2::SETTINGS, 0, 0, &settings)].concat());
        }
        self.add(link, speaks);
    }

    fn add(&mut self, link: Link, speaks: Speaks) {
        let spoken = Spoken { link, speaks, next_stream: 1, streams: Vec::new(), tail: Vec::new() };
        if self.links.len() < LINKS_MAX {
            self.current = self.links.len();
            self.links.push(spoken);
        } else {
            self.current = self.choices.below(LINKS_MAX);
            self.links[self.current] = spoken;
        }
    }

    /// A connection that speaks this: the present one, another, or a new one.
    fn on(&mut self, speaks: Speaks) -> &mut Spoken {
        let fits = |spoken: &Spoken| spoken.speaks == speaks && !spoken.link.is_over;
        if !self.links.get(self.current).is_some_and(fits) {
            match self.links.iter().position(fits) {
                Some(place) => self.current = place,
                None => self.open(speaks),
            }
        }
        if self.links.is_empty() {
            // Without TLS, whose handshake may have been refused.
            let link = Link::dial(self.stage.member.clients()[0], None);
            self.add(link.unwrap_or_else(|error| panic!("the member takes no connection: {error}")), Speaks::Bytes);
        }
        let place = self.current.min(self.links.len() - 1);
        &mut self.links[place]
    }

    fn stream(&mut self) -> u32 {
        let place = self.choices.byte();
        let spoken = self.on(Speaks::Http2);
        match spoken.streams.len() {
            0 => 1,
            count => spoken.streams[usize::from(place) % count].0,
        }
    }

    /// A message for a method, bent or not.
    fn message(&mut self, method: usize) -> Vec<u8> {
        let (world, choices) = (&self.stage.world, &mut self.choices);
        let bytes = match self.stage.methods[method].request {
            Some(request) => message::build(request, world, choices),
            None => message::unknown(world, choices),
        };
        let bytes = match self.stage.methods[method].path.ends_with("/Txn") && choices.chance(24) {
            true => message::nested_transaction(1 << (choices.byte() % 13), &bytes),
            false => bytes,
        };
        message::bend(bytes, choices)
    }

    /// A message as gRPC frames it.
    fn framed(&mut self, bytes: Vec<u8>) -> Vec<u8> {
        let (mut flag, mut bytes) = (0, bytes);
        if self.choices.chance(16) {
            let mut packed = GzEncoder::new(Vec::new(), Compression::fast());
            let zeros = vec![0; 1 << (self.choices.byte() % 24)];
            let again = if self.choices.chance(64) { &zeros[..] } else { &bytes[..] };
            if packed.write_all(again).is_ok() {
                bytes = packed.finish().unwrap_or_default();
            }
            flag = 1;
        }
        let length = if self.choices.chance(8) { self.choices.number() as u32 } else { bytes.len() as u32 };
        [&[flag], &length.to_be_bytes()[..], &bytes].concat()
    }

    fn token(&mut self) -> Option<Vec<u8>> {
        match self.choices.byte() % 8 {
            0 | 1 => None,
            2 => Some([b"Bearer ", &self.stage.world.token[..]].concat()),
            3 => Some(self.stage.world.bytes("", &mut self.choices)),
            _ => Some(self.stage.world.token.clone()).filter(|token| !token.is_empty()),
        }
    }

    /// Begins a call of any method.
    fn call(&mut self) {
        let method = self.choices.below(self.stage.methods.len());
        let (path, kind) = (self.stage.methods[method].path, self.stage.methods[method].kind);
        let body = self.message(method);
        let body = self.framed(body);
        let token = self.token();
        let mut fields: Vec<(&[u8], &[u8])> = vec![
            (b":method", b"POST"),
            (b":scheme", b"http"),
            (b":path", path.as_bytes()),
            (b":authority", b"x"),
            (b"content-type", b"application/grpc"),
            (b"te", b"trailers"),
        ];
        if let Some(token) = &token {
            fields.push((b"token", token));
        }
        match self.choices.byte() % 16 {
            0 => fields.push((b"hasleader", b"true")),
            1 => fields.push((b"grpc-encoding", b"gzip")),
            2 => fields
                .push((b"grpc-timeout", self.choices.pick(&[&b"1m"[..], b"1n", b"99999999H", b"0S", b"-1S", b""]))),
            3 => fields.push((b"client-api-version", self.choices.pick(&[&b"3.7"[..], b"\xff\xff", b""]))),
            4 => {
                fields[4].1 = self.choices.pick(&[
                    &b"application/grpc+proto"[..],
                    b"application/grpc-web",
                    b"application/json",
                    b"",
                ])
            }
            5 => fields[0].1 = self.choices.pick(&[&b"GET"[..], b"CONNECT", b""]),
            6 => fields.push((b"x-bin", self.choices.pick(&[&b"AAAA"[..], b"=", b"\x00"]))),
            7 => {
                let place = self.choices.below(fields.len());
                fields.remove(place);
            }
            _ => {}
        }
        let block = http2::block(fields, &mut self.choices);
        let ends = if kind == Kind::Bidi { self.choices.chance(64) } else { !self.choices.chance(24) };
        self.on(Speaks::Http2);
        let place = self.current.min(self.links.len() - 1);
        let stream = self.links[place].next_stream;
        let mut bytes = http2::headers(stream, &block, false, &mut self.choices);
        bytes.extend(http2::data(stream, &body, ends));
        let spoken = &mut self.links[place];
        spoken.next_stream = spoken.next_stream.wrapping_add(2);
        spoken.streams.push((stream, method));
        spoken.link.send(&bytes);
        if self.choices.chance(64) {
            self.read(ANSWER_WAIT_MS);
        }
    }

    /// One more message on a stream.
    fn more(&mut self) {
        let place = self.choices.byte();
        let spoken = self.on(Speaks::Http2);
        let Some(&(stream, method)) = (match spoken.streams.len() {
            0 => None,
            count => spoken.streams.get(usize::from(place) % count),
        }) else {
            return;
        };
        let body = self.message(method);
        let body = self.framed(body);
        let ends = self.choices.chance(24);
        let bytes = http2::data(stream, &body, ends);
        self.on(Speaks::Http2).link.send(&bytes);
    }

    /// Half-closes, resets, opens windows.
    fn steer(&mut self) {
        let stream = self.stream();
        let bytes = match self.choices.byte() % 4 {
            0 => http2::frame(http2::DATA, http2::END_STREAM, stream, b""),
            1 => http2::frame(http2::RESET, 0, stream, &u32::from(self.choices.byte() % 16).to_be_bytes()),
            2 => http2::frame(http2::PING, 0, 0, b"12345678"),
            _ => {
                let more = http2::frame(http2::WINDOW_UPDATE, 0, stream, &(1_u32 << 20).to_be_bytes());
                [more, http2::frame(http2::WINDOW_UPDATE, 0, 0, &(1_u32 << 20).to_be_bytes())].concat()
            }
        };
        self.on(Speaks::Http2).link.send(&bytes);
    }

    /// A path of the gateway, and an object for it.
    fn object(&mut self) -> (&'static str, Vec<u8>) {
        let method = &self.stage.methods[self.choices.below(self.stage.methods.len())];
        let path = match method.http.len() {
            0 => "/v3/watch",
            count => method.http[self.choices.below(count)],
        };
        let text = match method.request {
            Some(request) => json::build(request, &self.stage.world, &mut self.choices),
            None => b"{}".to_vec(),
        };
        (path, json::bend(text, &mut self.choices))
    }

    fn json(&mut self) {
        let (path, mut body) = self.object();
        // What takes many messages takes them one behind the other.
        for _ in 0..self.choices.below(4).saturating_sub(1) {
            body.extend(self.object().1);
        }
        let method =
            if self.choices.chance(16) { self.choices.pick(&["GET", "PUT", "OPTIONS", "HEAD"]) } else { "POST" };
        self.request(Speaks::Http1, method, path, &body);
    }

    /// A request of HTTP/1.1, whole or in chunks, with some lies.
    fn request(&mut self, speaks: Speaks, method: &str, path: &str, body: &[u8]) {
        let mut head = format!("{method} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n").into_bytes();
        if let Some(token) = self.token() {
            head.extend(b"Authorization: ");
            head.extend(token.iter().filter(|byte| byte.is_ascii_graphic() || **byte == b' '));
            head.extend(b"\r\n");
        }
        if speaks == Speaks::Peer {
            head.extend(self.peer_headers().into_bytes());
        }
        let extra = [
            "Content-Type: application/json\r\n",
            "Expect: 100-continue\r\n",
            "Connection: close\r\n",
            "Origin: http://evil\r\n",
            "Content-Encoding: gzip\r\n",
            "Accept-Encoding: gzip\r\n",
            "Upgrade: h2c\r\nConnection: Upgrade\r\n",
            "Grpc-Timeout: 1n\r\n",
            "Transfer-Encoding: chunked\r\nContent-Length: 3\r\n",
            "Content-Length: -1\r\n",
        ];
        if self.choices.chance(96) {
            head.extend(self.choices.pick(&extra).bytes());
        }
        match self.choices.byte() % 8 {
            0 => {
                head.extend(b"Transfer-Encoding: chunked\r\n\r\n");
                for piece in body.chunks(usize::from(self.choices.byte()) + 1) {
                    head.extend(format!("{:x}\r\n", piece.len()).bytes());
                    head.extend(piece);
                    head.extend(b"\r\n");
                }
                head.extend(if self.choices.chance(224) { &b"0\r\n\r\n"[..] } else { b"fffffffffffffffff\r\n" });
            }
            1 => {
                head.extend(format!("Content-Length: {}\r\n\r\n", self.choices.number()).bytes());
                head.extend(body);
            }
            _ => {
                head.extend(format!("Content-Length: {}\r\n\r\n", body.len()).bytes());
                head.extend(body);
            }
        }
        self.on(speaks).link.send(&head);
        if self.choices.chance(128) {
            self.read(ANSWER_WAIT_MS);
        }
    }

    /// Becomes a WebSocket, and sends messages.
    fn upgrade(&mut self) {
        let (path, first) = self.object();
        let mut head = format!(
            "GET {path} HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
             Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
        )
        .into_bytes();
        if let Some(token) = self.token() {
            head.extend(b"Sec-WebSocket-Protocol: Bearer, ");
            head.extend(token.iter().filter(|byte| byte.is_ascii_graphic()));
            head.extend(b"\r\n");
        }
        head.extend(b"\r\n");
        self.open(Speaks::WebSocket);
        let frame = websocket::frame(&first, &mut self.choices);
        self.on(Speaks::WebSocket).link.send(&head);
        self.read(ANSWER_WAIT_MS);
        self.on(Speaks::WebSocket).link.send(&frame);
    }

    fn web_socket_frame(&mut self) {
        if !self.links.iter().any(|spoken| spoken.speaks == Speaks::WebSocket && !spoken.link.is_over) {
            return self.upgrade();
        }
        let (_, text) = self.object();
        let frame = websocket::frame(&text, &mut self.choices);
        self.on(Speaks::WebSocket).link.send(&frame);
    }

    fn peer_headers(&mut self) -> String {
        let World { member, cluster, learner, .. } = self.stage.world;
        let bent = |right: u64, choices: &mut Choices<'_>| if choices.chance(12) { choices.number() } else { right };
        let (from, of, to) =
            (bent(learner, &mut self.choices), bent(cluster, &mut self.choices), bent(member, &mut self.choices));
        let version =
            if self.choices.chance(12) { self.choices.pick(&["3.0.0", "9.9.9", "x", "3", ""]) } else { "3.7.3" };
        let urls = match self.choices.byte() % 8 {
            0 => "X-PeerURLs: http://127.0.0.1:1,unix://nowhere\r\n",
            1 => "X-PeerURLs: ,,,\r\n",
            2 => "X-Cairn-Snapshot: 1\r\n",
            _ => "",
        };
        format!(
            "X-Server-From: {from:x}\r\nX-Server-Version: {version}\r\nX-Min-Cluster-Version: 3.0.0\r\nX-Raft-To: {to:x}\r\n\
             X-Etcd-Cluster-ID: {of:x}\r\n{urls}"
        )
    }

    fn ask_peer_port(&mut self) {
        let mut path = self.choices.pick(&PEER_PAGES).to_string();
        if path.starts_with("/raft/stream/") && path.ends_with('/') {
            let id = if self.choices.chance(32) { self.choices.number() } else { self.stage.world.learner };
            path = format!("{path}{id:x}");
        }
        let posts = path.starts_with("/leases") || path.starts_with("/members/promote") || path.ends_with("/snapshot");
        let body = match posts {
            false => Vec::new(),
            true if path.ends_with("/snapshot") => {
                let mut announced = raft::frame(false, &self.stage.world, &mut self.choices);
                announced.extend(self.stage.world.bytes("data", &mut self.choices));
                announced
            }
            true => {
                let name =
                    self.choices.pick(&["etcdserverpb.LeaseKeepAliveRequest", "etcdserverpb.LeaseTimeToLiveRequest"]);
                let request = api::schema::Message::find(name);
                let built = request.map(|request| message::build(request, &self.stage.world, &mut self.choices));
                message::bend(built.unwrap_or_default(), &mut self.choices)
            }
        };
        self.request(Speaks::Peer, if posts { "POST" } else { "GET" }, &path, &body);
    }

    /// Messages as they come while there is no stream.
    fn post_message(&mut self) {
        for _ in 0..=self.choices.below(4) {
            let bytes = raft::message(&self.stage.world, &mut self.choices).encode_to_vec();
            let bytes = message::bend(bytes, &mut self.choices);
            self.request(Speaks::Peer, "POST", "/raft", &bytes);
        }
    }

    /// Answers a connection that the member has made to the learner, and goes on as a stream.
    fn answer_dial(&mut self) {
        let Some(listener) = self.stage.learner else { return };
        while let Ok((socket, _)) = listener.accept() {
            self.stage.dialled.push(socket);
        }
        if self.stage.dialled.is_empty() {
            return;
        }
        let place = self.choices.below(self.stage.dialled.len());
        let Ok(mut link) = Link::over(self.stage.dialled.swap_remove(place), None) else { return };
        let asked = String::from_utf8_lossy(&link.read(ANSWER_WAIT_MS)).into_owned();
        let cluster = self.stage.world.cluster;
        let ok = format!(
            "HTTP/1.1 200 OK\r\nX-Server-Version: 3.7.3\r\nX-Etcd-Cluster-ID: {cluster:x}\r\nTransfer-Encoding: chunked\r\n\r\n"
        );
        let other = [
            "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n",
            "HTTP/1.1 102 Processing\r\n\r\n",
            "HTTP/1.1 200 OK\r\n\r\n",
            "HTTP/1.1 412 x\r\nContent-Length: 9\r\n\r\ncluster I",
        ];
        let head = if self.choices.chance(32) { self.choices.pick(&other) } else { &ok };
        link.send(head.as_bytes());
        let is_append = asked.contains("/msgapp/");
        for _ in 0..self.choices.below(12) {
            let frame = raft::frame(is_append, &self.stage.world, &mut self.choices);
            link.send(&[format!("{:x}\r\n", frame.len()).as_bytes(), &frame, b"\r\n"].concat());
        }
        self.add(link, Speaks::Bytes);
    }

    fn log_in(&mut self) {
        let (name, password) = match self.choices.byte() % 4 {
            0 => (self.choices.pick(&NAMES), self.choices.pick(&NAMES)),
            _ => ("weak", WEAK_PASSWORD),
        };
        let body = format!("{{\"name\":\"{name}\",\"password\":\"{password}\"}}");
        self.open(Speaks::Http1);
        let head =
            format!("POST /v3/auth/authenticate HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n\r\n{body}", body.len());
        self.on(Speaks::Http1).link.send(head.as_bytes());
        let answer = self.read(ANSWER_WAIT_MS);
        if let Some(token) = token_in(&answer) {
            self.stage.world.token = token.to_vec();
        }
    }

    /// A handshake that is bent, or the first bytes of one.
    fn hello(&mut self) {
        let ports = if self.choices.chance(64) { self.stage.member.peers() } else { self.stage.member.clients() };
        let Some(address) = ports.get(1) else { return };
        let Ok(mut link) = Link::dial(*address, None) else { return };
        let hello = link::hello(&self.stage.tls.http2);
        let bytes = message::bend(hello, &mut self.choices);
        link.send(&bytes);
        if self.choices.chance(64) {
            link.read(ANSWER_WAIT_MS);
            let count = self.choices.below(64);
            link.send(self.choices.take(count));
        }
        self.add(link, Speaks::Bytes);
    }

    fn close(&mut self) {
        if self.current >= self.links.len() {
            return;
        }
        match self.choices.byte() % 3 {
            0 => self.links[self.current].link.close_half(),
            1 => self.links.swap_remove(self.current).link.abort(),
            _ => drop(self.links.swap_remove(self.current)),
        }
    }

    /// Reads from the present connection, and looks for what must not be there.
    fn read(&mut self, wait_ms: i32) -> Vec<u8> {
        let Some(spoken) = self.links.get_mut(self.current) else { return Vec::new() };
        let bytes = spoken.link.read(wait_ms);
        if spoken.speaks != Speaks::Peer && !bytes.is_empty() {
            let mut seen = std::mem::take(&mut spoken.tail);
            seen.extend_from_slice(&bytes);
            for secret in self.stage.secrets {
                self.leaked |= seen.windows(secret.len()).any(|part| part == secret);
            }
            spoken.tail = seen.split_off(seen.len().saturating_sub(128));
        }
        bytes
    }
}

/// The token in the answer to a login.
pub(crate) fn token_in(answer: &[u8]) -> Option<&[u8]> {
    let name = b"\"token\":\"";
    let at = answer.windows(name.len()).position(|part| part == name)? + name.len();
    let length = answer[at..].iter().position(|byte| *byte == b'"')?;
    Some(&answer[at..at + length])
}

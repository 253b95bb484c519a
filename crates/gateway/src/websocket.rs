//! Calls over a websocket: a text or binary frame for each message and each line of the answer.

use crate::dialogue::{Requests, error_line};
use crate::limits::Limits;
use crate::status::error_json;
use crate::table::Target;
use crate::unary::CHUNK_BYTES;
use crate::unary::Json;
use api::Code;
use api::limits::BUDGET_FREE_BYTES;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use budget::Claim;
use bytes::Bytes;
use futures_util::{SinkExt, StreamExt};
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Response, StatusCode, header};
use rpc::{Address, HttpResponder, Kind, LocalCall, Pace, Reply, Service, Status, Upgrade};
use sha1::{Digest, Sha1};
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::protocol::frame::Frame;
use tokio_tungstenite::tungstenite::protocol::frame::coding::{CloseCode, Data, OpCode};
use tokio_tungstenite::tungstenite::protocol::{CloseFrame, Message, Role, WebSocketConfig};

/// What RFC 6455 section 1.3 has after a client's key.
const ACCEPT_SUFFIX: &str = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";
/// The longest answer that is sent as one frame, if there is room for all of its text. Others go in several: the library keeps the memory
/// of the longest frame for as long as the connection is open.
const FRAME_BYTES_MAX: usize = 2 * CHUNK_BYTES;
/// What is read at once beyond the message that has begun.
const READ_BUFFER_BYTES: usize = 4 * 1024;
/// What a control frame of a client has before its payload: two bytes, and the mask.
const CONTROL_HEAD_BYTES: usize = 6;
/// What a message that is not whole is claimed by.
const CLAIM_STEP_BYTES: usize = 64 * 1024;
/// How long the one message of a call may take to come.
const REQUEST_TIME_MAX: Duration = Duration::from_secs(60);
/// How long a client may take to say goodbye.
const GOODBYE_TIME_MAX: Duration = Duration::from_secs(5);

/// Whether a request wants to become a websocket.
pub(crate) fn is_wanted(head: &Parts) -> bool {
    head.extensions.get::<Upgrade>().is_some() && names(&head.headers, header::UPGRADE, "websocket")
}

/// Whether the list in a header has `word`.
fn names(headers: &HeaderMap, header: header::HeaderName, word: &str) -> bool {
    let lists = headers.get_all(header).into_iter().filter_map(|value| value.to_str().ok());
    lists.flat_map(|list| list.split(',')).any(|entry| entry.trim().eq_ignore_ascii_case(word))
}

/// The token of a browser, which can give it as a subprotocol only: `Bearer, TOKEN`.
pub(crate) fn token(headers: &HeaderMap) -> Option<String> {
    let list = headers.get(header::SEC_WEBSOCKET_PROTOCOL)?.to_str().ok()?;
    let (_, token) = list.split_once("Bearer,")?;
    Some(format!("Bearer {}", token.trim()))
}

/// The response that agrees to a websocket, or says why there is none.
fn agreement(headers: &HeaderMap) -> Response<Bytes> {
    let is_version = headers.get(header::SEC_WEBSOCKET_VERSION).is_some_and(|version| version == "13");
    let key = headers.get(header::SEC_WEBSOCKET_KEY).and_then(|key| key.to_str().ok());
    let (Some(key), true, true) = (key, is_version, names(headers, header::CONNECTION, "upgrade")) else {
        let mut refusal = Response::new(Bytes::from_static(b"not a websocket handshake of version 13\n"));
        *refusal.status_mut() = StatusCode::BAD_REQUEST;
        refusal.headers_mut().insert(header::SEC_WEBSOCKET_VERSION, HeaderValue::from_static("13"));
        return refusal;
    };
    let accept = STANDARD.encode(Sha1::digest(format!("{key}{ACCEPT_SUFFIX}")));
    let mut response = Response::new(Bytes::new());
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    let to = response.headers_mut();
    to.insert(header::UPGRADE, HeaderValue::from_static("websocket"));
    to.insert(header::CONNECTION, HeaderValue::from_static("Upgrade"));
    if let Ok(accept) = HeaderValue::from_str(&accept) {
        to.insert(header::SEC_WEBSOCKET_ACCEPT, accept);
    }
    if token(headers).is_some() {
        to.insert(header::SEC_WEBSOCKET_PROTOCOL, HeaderValue::from_static("Bearer"));
    }
    response
}

/// Agrees to the websocket and makes the call.
pub(crate) async fn answer(
    service: &dyn Service,
    target: Target,
    call: LocalCall,
    limits: &Limits,
    head: &Parts,
    upgrade: Upgrade,
    responder: HttpResponder,
) {
    let response = agreement(&head.headers);
    let is_agreed = response.status() == StatusCode::SWITCHING_PROTOCOLS;
    responder.send(response);
    if !is_agreed {
        return;
    }
    let Ok(stream) = upgrade.take().await else { return };
    let mut socket = Socket::new(stream, limits, call.peer.address).await;
    let ended = match target.kind {
        Kind::Unary => socket.ask(service, target, call, limits).await,
        _ => socket.converse(service, target, call, limits).await,
    };
    if ended.is_ok() {
        socket.say_goodbye().await;
    }
}

/// The client has gone, or has broken the protocol.
struct Lost;

/// A connection that claims what is read of a message until that is whole: the library holds it.
struct Metered<S> {
    stream: S,
    gathered_bytes: usize,
    /// The most that a message took. The library keeps a buffer for the longest frame for as long as the connection is open.
    most_bytes: usize,
    claim: Claim,
    /// A frame, or a value in several frames, has begun and must continue.
    pace: Pace,
    /// More of a value is to come.
    is_owed: bool,
}

/// What is claimed for so many gathered bytes.
fn claimed(gathered_bytes: usize) -> u64 {
    if gathered_bytes <= BUDGET_FREE_BYTES {
        return 0;
    }
    (gathered_bytes.div_ceil(CLAIM_STEP_BYTES) as u64).saturating_mul(CLAIM_STEP_BYTES as u64)
}

impl<S> Metered<S> {
    /// A message is complete; the code that takes it counts it. The library keeps the buffer that it was gathered in.
    fn deliver(&mut self) {
        self.most_bytes = self.most_bytes.max(self.gathered_bytes);
        self.gathered_bytes = 0;
        self.claim.resize(claimed(self.most_bytes));
    }

    /// A control frame was read, perhaps between the frames of a message, of which everything is still held.
    fn pass(&mut self, payload: &[u8]) {
        let bytes = payload.len().saturating_add(CONTROL_HEAD_BYTES);
        self.gathered_bytes = self.gathered_bytes.saturating_sub(bytes);
        self.pace.went_by(bytes);
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Metered<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, to: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = &mut *self;
        let before = to.filled().len();
        let Poll::Ready(read) = Pin::new(&mut this.stream).poll_read(cx, to) else {
            this.pace.owes(this.is_owed || this.gathered_bytes > 0);
            return this.pace.poll_late(cx).map(|()| Err(io::ErrorKind::TimedOut.into()));
        };
        read?;
        let more = to.filled().len().saturating_sub(before);
        self.pace.came(more);
        self.gathered_bytes = self.gathered_bytes.saturating_add(more);
        let bytes = claimed(self.gathered_bytes);
        if bytes > self.claim.bytes() && !self.claim.resize(bytes) {
            return Poll::Ready(Err(io::Error::other("unfinished messages of all clients take too much memory")));
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Metered<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

struct Socket<S>(WebSocketStream<Metered<S>>);

impl<S: AsyncRead + AsyncWrite + Unpin> Socket<S> {
    /// Speaks the protocol over `stream`, which has agreed to it.
    async fn new(stream: S, limits: &Limits, client: Address) -> Socket<S> {
        let mut config = WebSocketConfig::default();
        config.max_message_size = Some(limits.json_bytes_max());
        config.max_frame_size = Some(limits.json_bytes_max());
        // Each frame is written before the next one is made.
        config.write_buffer_size = 0;
        config.read_buffer_size = READ_BUFFER_BYTES;
        let (claim, pace) = (limits.budget.request(client), Pace::new(limits.body_timeout));
        let stream = Metered { stream, gathered_bytes: 0, most_bytes: 0, claim, pace, is_owed: false };
        Socket(WebSocketStream::from_raw_socket(stream, Role::Server, Some(config)).await)
    }

    /// The text of the next message; none when the client is done.
    async fn text(&mut self) -> Result<Option<Bytes>, Lost> {
        loop {
            let next = self.0.next().await;
            let metered = self.0.get_mut();
            let text = match next {
                // Answered by itself, or not asked for.
                Some(Ok(Message::Ping(payload) | Message::Pong(payload))) => {
                    metered.pass(&payload);
                    continue;
                }
                Some(Ok(Message::Frame(_))) => continue,
                None | Some(Ok(Message::Close(_))) => Ok(None),
                Some(Ok(Message::Text(text))) => Ok(Some(text.into())),
                Some(Ok(Message::Binary(bytes))) => Ok(Some(bytes)),
                Some(Err(_)) => Err(Lost),
            };
            metered.deliver();
            return text;
        }
    }

    /// Waits until the client has gone. Its further messages are ignored.
    async fn left(&mut self) -> Result<(), Lost> {
        while self.text().await?.is_some() {}
        Ok(())
    }

    async fn send(&mut self, line: Vec<u8>) -> Result<(), Lost> {
        let text = String::from_utf8(line).map_err(|_| Lost)?;
        self.write(Message::text(text)).await
    }

    async fn write(&mut self, message: Message) -> Result<(), Lost> {
        let began = Instant::now();
        let written = self.0.send(message).await;
        // Nothing was read meanwhile.
        self.0.get_mut().pace.pass(began.elapsed());
        written.map_err(|_| Lost)
    }

    /// Sends the text of a reply between `front` and `behind`. It is claimed for as long as it is gathered for one frame; where there is no
    /// room for that, or it is very long, it goes in several.
    async fn send_reply(
        &mut self,
        front: &[u8],
        reply: Reply,
        behind: &[u8],
        (target, limits, client): (&Target, &Limits, Address),
        failed: fn(&Status) -> Vec<u8>,
    ) -> Result<(), Lost> {
        let mut claim = limits.budget.long_answer(client);
        let mut json = Json::new(reply, target);
        let mut text = Vec::from(front);
        let mut kind = Data::Text;
        loop {
            let chunk = match json.next() {
                Ok(Some(chunk)) => chunk,
                Ok(None) => break,
                Err(_) if kind == Data::Text => {
                    return self.send(failed(&Status::new(Code::Internal, "the answer is not what it says"))).await;
                }
                Err(_) => return Err(Lost),
            };
            // Text that grows is copied to where there is room for it, and once more into a frame.
            let after = text.len().saturating_add(chunk.len());
            let has_room = after <= FRAME_BYTES_MAX
                && (after <= BUDGET_FREE_BYTES || claim.resize((after as u64).saturating_mul(2)));
            if !has_room && !text.is_empty() {
                self.fragment(std::mem::replace(&mut kind, Data::Continue), std::mem::take(&mut text), false).await?;
                claim.resize(0);
                // Others want to use the thread.
                tokio::task::yield_now().await;
            }
            text.extend_from_slice(&chunk);
        }
        text.extend_from_slice(behind);
        self.fragment(kind, text, true).await
    }

    async fn fragment(&mut self, kind: Data, text: Vec<u8>, is_last: bool) -> Result<(), Lost> {
        self.write(Message::Frame(Frame::message(text, OpCode::Data(kind), is_last))).await
    }

    async fn say_goodbye(&mut self) {
        let frame = CloseFrame { code: CloseCode::Normal, reason: "".into() };
        let _ = tokio::time::timeout(GOODBYE_TIME_MAX, self.0.close(Some(frame))).await;
    }

    /// One message, one answer.
    async fn ask(
        &mut self,
        service: &dyn Service,
        target: Target,
        call: LocalCall,
        limits: &Limits,
    ) -> Result<(), Lost> {
        let client = call.peer.address;
        let mut requests = Requests::new(limits, client);
        let until = request_deadline();
        let asked = loop {
            self.0.get_mut().is_owed = requests.has_begun();
            let text = tokio::time::timeout_at(until, self.text()).await.unwrap_or(Err(Lost))?;
            let Some(text) = text else { return Ok(()) };
            requests.push_frame(&text);
            if let Some(asked) = requests.only(&target, limits).transpose() {
                break asked;
            }
        };
        self.0.get_mut().is_owed = false;
        let answered = match asked {
            Ok(message) => tokio::select! {
                answered = call.unary(service, message) => answered,
                left = self.left() => return left,
            },
            Err(status) => Err(status),
        };
        match answered {
            Ok(reply) => self.send_reply(b"", reply, b"", (&target, limits, client), error_json).await,
            Err(status) => self.send(error_json(&status)).await,
        }
    }

    /// Many of both.
    async fn converse(
        &mut self,
        service: &dyn Service,
        target: Target,
        call: LocalCall,
        limits: &Limits,
    ) -> Result<(), Lost> {
        let client = call.peer.address;
        let mut stream = match call.stream(service) {
            Ok(stream) => stream,
            Err(status) => return self.send(trimmed_line(&status)).await,
        };
        let mut requests = Requests::new(limits, client);
        let mut is_asked = false;
        let until = request_deadline();
        loop {
            let mut goes_on = false;
            if target.kind == Kind::Bidi {
                goes_on = requests.hand_on(&mut stream, &target, limits);
                if goes_on {
                    tokio::task::yield_now().await;
                }
            } else if !is_asked {
                match requests.only(&target, limits) {
                    Ok(None) => {}
                    Ok(Some(message)) => {
                        is_asked = true;
                        stream.send(message);
                        stream.half_close();
                    }
                    Err(status) => return self.send(error_json(&status)).await,
                }
            }
            let takes_more = !goes_on && (stream.has_room() || !requests.takes_more() || is_asked);
            let metered = self.0.get_mut();
            metered.is_owed = requests.has_begun() && !is_asked;
            if !takes_more {
                // A client that is not read cannot continue.
                metered.pace.owes(false);
            }
            let next = tokio::select! {
                text = self.text(), if takes_more => {
                    let Some(text) = text? else { return Ok(()) };
                    requests.push_frame(&text);
                    continue;
                }
                next = stream.next() => next,
                () = std::future::ready(()), if goes_on => continue,
                () = tokio::time::sleep_until(until), if target.kind != Kind::Bidi && !is_asked => return Err(Lost),
            };
            match next {
                Ok(reply) => {
                    let with = (&target, limits, client);
                    self.send_reply(b"{\"result\":", reply, b"}", with, trimmed_line).await?;
                }
                Err(status) if status == Status::OK => return Ok(()),
                Err(status) => return self.send(trimmed_line(&status)).await,
            }
        }
    }
}

/// Until when a request that begins now must have come.
fn request_deadline() -> tokio::time::Instant {
    let now = tokio::time::Instant::now();
    now.checked_add(REQUEST_TIME_MAX).unwrap_or(now)
}

/// The frame that says how a call has ended.
fn trimmed_line(status: &Status) -> Vec<u8> {
    let mut line = error_line(status);
    line.truncate(line.trim_ascii_end().len());
    line
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::Table;
    use crate::test_support::{Counted, EMPTY_MESSAGES_OF_A_TURN, WATCH};
    use api::Message as _;
    use api::etcdserverpb::RangeResponse;
    use api::mvccpb::KeyValue;
    use budget::{Budget, Pool};
    use rpc::{Call, Metadata, Method, Outbound, Peer, Responder, StreamCall, StreamHandler};
    use std::sync::Arc;
    use tokio::io::AsyncWriteExt;

    fn headers(fields: &[(&'static str, &'static str)]) -> HeaderMap {
        fields
            .iter()
            .map(|(name, value)| (header::HeaderName::from_static(name), HeaderValue::from_static(value)))
            .collect()
    }

    #[test]
    fn handshakes_are_those_of_the_rfc() {
        let asked = [
            ("upgrade", "WebSocket"),
            ("connection", "keep-alive, Upgrade"),
            ("sec-websocket-version", "13"),
            ("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ=="),
        ];
        let response = agreement(&headers(&asked));
        assert_eq!(response.status(), StatusCode::SWITCHING_PROTOCOLS);
        assert_eq!(response.headers()["sec-websocket-accept"], "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
        for missing in 1..asked.len() {
            let mut some = asked.to_vec();
            some.remove(missing);
            assert_eq!(agreement(&headers(&some)).status(), StatusCode::BAD_REQUEST, "without {:?}", asked[missing]);
        }
    }

    /// A masked frame of a client, with at most 65,535 bytes; the mask is of zeros.
    fn frame(opcode: u8, is_last: bool, payload: &[u8]) -> Vec<u8> {
        let mut frame = vec![opcode | if is_last { 0x80 } else { 0 }];
        match payload.len() {
            len @ ..=125 => frame.push(0x80 | len as u8),
            len => frame.extend_from_slice(&[&[0x80 | 126][..], &(len as u16).to_be_bytes()].concat()),
        }
        frame.extend_from_slice(&[0; 4]);
        frame.extend_from_slice(payload);
        frame
    }

    const TEXT: u8 = 1;
    const CONTINUATION: u8 = 0;
    const PONG: u8 = 10;

    const CLIENT: Address = Address::Unix;

    fn run(test: impl Future<Output = ()>) {
        tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime").block_on(test);
    }

    #[test]
    fn control_frames_do_not_free_what_a_message_holds() {
        run(async {
            let limits = Limits::for_tests(Duration::MAX);
            let (mut client, server) = tokio::io::duplex(1 << 10);
            let mut socket = Socket::new(server, &limits, CLIENT).await;
            let piece = [b' '; 4_000];
            let sending = async {
                for index in 0..64 {
                    let opcode = if index == 0 { TEXT } else { CONTINUATION };
                    client.write_all(&frame(opcode, false, &piece)).await.expect("read");
                    client.write_all(&frame(PONG, true, b"")).await.expect("read");
                }
            };
            // All is read when the client could write all.
            tokio::select! {
                _ = socket.text() => panic!("no message is whole"),
                () = sending => {}
            }
            let held = limits.budget.held(Pool::Requests);
            assert!((63 * 4_000..65 * 4_000 + CLAIM_STEP_BYTES as u64).contains(&held), "{held}");
            client.write_all(&frame(CONTINUATION, true, b"")).await.expect("read");
            let text = socket.text().await.unwrap_or_else(|Lost| panic!("a whole message"));
            assert_eq!(text.map(|text| text.len()), Some(64 * 4_000));
            let kept = limits.budget.held(Pool::Requests);
            assert!((held..=held + CLAIM_STEP_BYTES as u64).contains(&kept), "one frame may have been so long: {kept}");
            drop(socket);
            assert_eq!(limits.budget.held(Pool::Requests), 0);
        });
    }

    #[test]
    fn control_frames_alone_claim_nothing() {
        run(async {
            let limits = Limits::for_tests(Duration::MAX);
            let (mut client, server) = tokio::io::duplex(1 << 10);
            let mut socket = Socket::new(server, &limits, CLIENT).await;
            let sending = async {
                for _ in 0..10_000 {
                    client.write_all(&frame(PONG, true, &[7; 125])).await.expect("read");
                }
            };
            tokio::select! {
                _ = socket.text() => panic!("there is no message"),
                () = sending => {}
            }
            assert_eq!(limits.budget.held(Pool::Requests), 0);
        });
    }

    #[test]
    fn a_message_that_has_begun_must_go_on() {
        run(async {
            let limits = Limits::for_tests(Duration::from_millis(20));
            for begun in [&frame(TEXT, false, b"{")[..], &frame(TEXT, true, b"{}")[..1]] {
                let (mut client, server) = tokio::io::duplex(1 << 10);
                let mut socket = Socket::new(server, &limits, CLIENT).await;
                client.write_all(begun).await.expect("read");
                assert!(socket.text().await.is_err());
            }
            // So must a value of several messages, but nothing else.
            let (mut client, server) = tokio::io::duplex(1 << 10);
            let mut socket = Socket::new(server, &limits, CLIENT).await;
            client.write_all(&frame(TEXT, true, b"{")).await.expect("read");
            assert!(socket.text().await.is_ok_and(|text| text.is_some()));
            let silent = tokio::time::timeout(Duration::from_millis(60), socket.text()).await;
            assert!(silent.is_err(), "it may be silent between messages");
            socket.0.get_mut().is_owed = true;
            assert!(socket.text().await.is_err());
        });
    }

    #[test]
    fn text_without_room_goes_in_fragments() {
        run(async {
            let limits = Limits::for_tests(Duration::MAX);
            let target = Table::of("/etcdserverpb.KV/Range", Kind::Unary).find("/v3/kv/range").expect("a method");
            let kvs = vec![KeyValue { key: b"a"[..].into(), value: vec![7; 1 << 20].into(), ..Default::default() }; 9];
            let reply = Bytes::from(RangeResponse { kvs, ..Default::default() }.encode_to_vec());
            // The others of the host have all that it may have.
            let other = |port| Address::Tcp(std::net::SocketAddr::from(([10, 0, 0, 1], port)));
            for is_full in [false, true] {
                let mut held = limits.budget.long_answer(other(1));
                assert!(!is_full || held.resize(16 << 20));
                let (client, server) = tokio::io::duplex(1 << 16);
                let mut socket = Socket::new(server, &limits, other(2)).await;
                let mut client = WebSocketStream::from_raw_socket(client, Role::Client, None).await;
                let with = (&target, &limits, other(2));
                let sending = socket.send_reply(b"[", Reply::Whole(reply.clone()), b"]", with, error_json);
                let hearing = async {
                    let heard = client.next().await.expect("a message").expect("a whole one");
                    heard.into_text().expect("text").len()
                };
                let most = std::cell::Cell::new(0);
                let sending = async {
                    let mut sending = std::pin::pin!(sending);
                    std::future::poll_fn(|cx| {
                        let polled = sending.as_mut().poll(cx);
                        most.set(most.get().max(limits.budget.held(Pool::Long)));
                        polled
                    })
                    .await
                };
                let (sent, heard) = tokio::join!(sending, hearing);
                assert!(sent.is_ok() && heard > 12 << 20, "{heard}");
                let others = held.bytes();
                drop(held);
                assert_eq!(limits.budget.held(Pool::Long), 0);
                let most = most.get() - others;
                assert!(most <= 2 * FRAME_BYTES_MAX as u64 && (most == 0) == is_full, "{most}");
            }
        });
    }

    /// The messages that come in `sends` frames of `each` are handed on while other tasks of the thread run.
    fn let_others_run(sends: usize, each: usize) {
        let all = sends * each;
        run(async {
            let limits = Limits::for_tests(Duration::MAX);
            let service = Counted::default();
            let other = tokio::spawn(service.most_between_turns(all));
            let target = Table::new(WATCH).find("/v3/watch").expect("a method");
            let (client, server) = tokio::io::duplex(4 << 20);
            let mut socket = Socket::new(server, &limits, CLIENT).await;
            let mut client = WebSocketStream::from_raw_socket(client, Role::Client, None).await;
            for _ in 0..sends {
                client.send(Message::text("{}".repeat(each))).await.expect("taken");
            }
            let call = LocalCall {
                method: 0,
                metadata: Metadata::from_iter([("", "")]),
                deadline: None,
                peer: Peer::unknown(CLIENT),
            };
            let most = tokio::select! {
                _ = socket.converse(&service, target, call, &limits) => panic!("the client stays"),
                most = other => most.expect("no panic"),
            };
            assert!(most <= EMPTY_MESSAGES_OF_A_TURN, "{most} of {all} messages at once");
        });
    }

    #[test]
    fn others_run_while_the_messages_of_a_frame_are_handed_on() {
        let_others_run(1, 500_000);
    }

    #[test]
    fn others_run_while_many_frames_are_handed_on() {
        let_others_run(20_000, 1);
    }

    /// Answers a message with events that are claimed until they are sent.
    struct Events {
        budget: Arc<Budget>,
        wire: Bytes,
    }

    impl Service for Events {
        fn methods(&self) -> &'static [Method] {
            WATCH
        }

        fn unary(&self, _: usize, _: Call, _: Responder) {}

        fn stream(&self, _: usize, _: StreamCall) -> Result<Box<dyn StreamHandler>, Status> {
            Ok(Box::new(Events { budget: self.budget.clone(), wire: self.wire.clone() }))
        }

        fn http(&self, _: http::Request<Bytes>, _: HttpResponder) {}
    }

    impl StreamHandler for Events {
        fn message(&mut self, _: Bytes, out: &mut Outbound<'_>) {
            let claim = self.budget.try_claim(Pool::Long, self.wire.len() as u64, Some(CLIENT)).expect("room");
            out.send_reply(rpc::Chunks::from_iter([claim.hold(self.wire.clone())]).into_reply());
        }

        fn half_closed(&mut self, _: &mut Outbound<'_>) {}

        fn ready(&mut self, _: &mut Outbound<'_>) {}
    }

    /// A connection may have 8 MiB, so twice these events are more.
    #[test]
    fn events_that_hold_memory_wait_for_no_more_of_it() {
        let kv = KeyValue { key: b"k"[..].into(), value: vec![7; 100].into(), ..Default::default() };
        let events = vec![api::mvccpb::Event { kv: Some(kv), ..Default::default() }; 50_000];
        let wire = Bytes::from(api::etcdserverpb::WatchResponse { events, ..Default::default() }.encode_to_vec());
        assert!((4 << 20..8 << 20).contains(&wire.len()));
        run(async {
            let limits = Limits::for_tests(Duration::MAX);
            let budget = limits.budget.clone();
            let granting = std::thread::spawn(move || budget.run());
            let service = Events { budget: limits.budget.clone(), wire };
            let target = Table::new(WATCH).find("/v3/watch").expect("a method");
            for reads in [true, false] {
                let (client, server) = tokio::io::duplex(1 << 10);
                let mut socket = Socket::new(server, &limits, CLIENT).await;
                let mut client = WebSocketStream::from_raw_socket(client, Role::Client, None).await;
                let call = LocalCall {
                    method: 0,
                    metadata: Metadata::from_iter([("", "")]),
                    deadline: None,
                    peer: Peer::unknown(CLIENT),
                };
                let talking = async {
                    client.send(Message::text("{}")).await.expect("taken");
                    if reads {
                        let heard = client.next().await.expect("a message").expect("a whole one").into_text();
                        let heard = heard.expect("text");
                        assert!(
                            heard.starts_with("{\"result\":{\"events\":[{\"kv\":{\"key\":\"aw==\","),
                            "{:.99}",
                            heard
                        );
                        assert_eq!(heard.matches("\"kv\"").count(), 50_000);
                    }
                    // One that goes without reading lets go of what it was sent.
                    drop(client);
                };
                let both = async { tokio::join!(socket.converse(&service, target, call, &limits), talking) };
                assert!(tokio::time::timeout(Duration::from_secs(60), both).await.is_ok(), "a claim waits for itself");
                assert_eq!(limits.budget.held(Pool::Long), 0);
            }
            limits.budget.stop();
            granting.join().expect("no panic");
        });
    }

    #[test]
    fn a_token_may_come_as_a_subprotocol() {
        assert_eq!(token(&headers(&[("sec-websocket-protocol", "Bearer, abc.1 ")])).as_deref(), Some("Bearer abc.1"));
        assert_eq!(token(&headers(&[("sec-websocket-protocol", "chat")])), None);
    }
}

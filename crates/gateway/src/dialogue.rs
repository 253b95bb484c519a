//! Calls of many messages. The answer is a line of JSON for each of them: `{"result":...}`, or `{"error":...}` at the end.

use crate::limits::Limits;
use crate::status::{error_json, failure_as, http_status};
use crate::table::Target;
use crate::unary::{Json, decoded, head};
use crate::values::Values;
use api::limits::{BUDGET_FREE_BYTES, TURN_BYTES_MAX};
use api::{Code, Error};
use budget::Claim;
use bytes::Bytes;
use http::Response;
use rpc::{
    Address, BodySender, Gone, HttpResponder, LocalCall, LocalStream, Pace, Reply, RequestBody, Service, Status,
};
use std::time::{Duration, Instant};

/// How long messages of one client are handed on before others use the thread: as long as a turn of a connection with gRPC.
const TURN_TIME_MAX: Duration = Duration::from_micros(200);
/// What a message counts beside its length towards the bytes of a turn: it takes time, however short it is.
pub(crate) const MESSAGE_BYTES: usize = 128;

/// Makes a call of one message and many answers.
pub(crate) async fn answer(
    service: &dyn Service,
    target: Target,
    call: LocalCall,
    message: Bytes,
    responder: HttpResponder,
) {
    let mut lines = Lines::new(responder);
    let mut stream = match call.stream(service) {
        Ok(stream) => stream,
        Err(status) => return lines.end(status).await,
    };
    stream.send(message);
    stream.half_close();
    loop {
        let next = tokio::select! {
            next = stream.next() => next,
            () = lines.gone() => return,
        };
        match next {
            Ok(reply) => {
                if lines.send(reply, &target).await.is_err() {
                    return;
                }
            }
            Err(status) => return lines.end(status).await,
        }
    }
}

/// Makes a call of many messages, which come in `body`. The call outlives the body.
pub(crate) async fn converse(
    service: &dyn Service,
    target: Target,
    call: LocalCall,
    limits: &Limits,
    mut body: RequestBody,
    responder: HttpResponder,
) {
    let mut lines = Lines::new(responder);
    let client = call.peer.address;
    let mut stream = match call.stream(service) {
        Ok(stream) => stream,
        Err(status) => return lines.end(status).await,
    };
    let mut requests = Requests::new(limits, client);
    let mut pace = Pace::new(limits.body_timeout);
    loop {
        let goes_on = requests.hand_on(&mut stream, &target, limits);
        if goes_on {
            tokio::task::yield_now().await;
        }
        let takes_more = !goes_on && requests.takes_more() && stream.has_room();
        pace.owes(takes_more && requests.has_begun());
        let next = tokio::select! {
            piece = body.next(), if takes_more => {
                match piece {
                    Some(Ok(piece)) => {
                        pace.came(piece.len());
                        requests.push(&piece);
                    }
                    Some(Err(_)) => return,
                    None => requests.end(),
                }
                continue;
            }
            next = stream.next() => next,
            () = std::future::ready(()), if goes_on => continue,
            () = lines.gone() => return,
            () = pace.late() => return lines.end(Status::new(Code::Unavailable, TOO_LATE)).await,
        };
        match next {
            Ok(reply) => {
                let began = Instant::now();
                if lines.send(reply, &target).await.is_err() {
                    return;
                }
                pace.pass(began.elapsed());
            }
            Err(status) => return lines.end(status).await,
        }
    }
}

/// What a call ends with of which a value does not come.
const TOO_LATE: &str = "the rest of the request does not come";

/// The messages of a client, one JSON value after the other.
pub(crate) struct Requests {
    values: Values,
    /// What the values take.
    claim: Claim,
    /// There was no room for more of them.
    refused: bool,
    ended: bool,
    /// The call knows that.
    told: bool,
    /// What was handed on in this turn.
    turn_bytes: usize,
}

impl Requests {
    pub(crate) fn new(limits: &Limits, client: Address) -> Requests {
        let (values, claim) = (Values::new(limits.json_bytes_max()), limits.budget.request(client));
        Requests { values, claim, refused: false, ended: false, told: false, turn_bytes: 0 }
    }

    /// Adds what has come, if all clients together do not hold too much. Behind the client's part nothing is of interest.
    pub(crate) fn push(&mut self, text: &[u8]) {
        if self.ended || self.refused {
            return;
        }
        let after = self.values.held_bytes().saturating_add(self.values.growth_bytes(text.len()));
        if self.claims(after) {
            self.values.push(text);
        } else {
            self.refused = true;
        }
    }

    /// Claims what the values take, unless that is little.
    fn claims(&mut self, bytes: usize) -> bool {
        self.claim.resize(if bytes <= BUDGET_FREE_BYTES { 0 } else { bytes as u64 })
    }

    /// Whether more of a value is to come: all that is whole is handed on as long as the call takes it.
    pub(crate) fn has_begun(&self) -> bool {
        !self.ended && self.values.held_bytes() > 0
    }

    /// Adds a frame of a websocket. As with etcd, a line ends after it.
    pub(crate) fn push_frame(&mut self, text: &[u8]) {
        self.push(text);
        self.push(b"\n");
    }

    pub(crate) fn end(&mut self) {
        self.ended = true;
    }

    /// Whether more is to be read from the client.
    pub(crate) fn takes_more(&self) -> bool {
        !self.ended
    }

    /// Hands on what is whole, as far as the call takes it. With what is no message the client's part is over, as it is with etcd;
    /// what was begun goes on.
    ///
    /// True if there may be more, for another turn: the caller yields first. Two million messages fit into one frame of a websocket.
    #[must_use]
    pub(crate) fn hand_on(&mut self, stream: &mut LocalStream, target: &Target, limits: &Limits) -> bool {
        let began = Instant::now();
        while !self.told && stream.has_room() {
            match self.values.next(self.ended) {
                Ok(Some(value)) => {
                    match decoded(&value, target, limits) {
                        Ok(message) => stream.send(message),
                        Err(_) => self.give_up(stream),
                    }
                    // Each of many small frames is handed on by itself, so that these bytes count over several calls.
                    self.turn_bytes = self.turn_bytes.saturating_add(value.text().len()).saturating_add(MESSAGE_BYTES);
                    if self.turn_bytes >= TURN_BYTES_MAX || began.elapsed() >= TURN_TIME_MAX {
                        self.turn_bytes = 0;
                        return true;
                    }
                }
                Ok(None) if !self.ended && !self.refused => {
                    // What was handed on is free.
                    self.claims(self.values.held_bytes());
                    return false;
                }
                Ok(None) | Err(_) => self.give_up(stream),
            }
        }
        false
    }

    /// The one message of a call that takes no more, once it is whole. What comes after it is passed over.
    pub(crate) fn only(&mut self, target: &Target, limits: &Limits) -> Result<Option<Bytes>, Status> {
        let invalid = |text| Status::new(Code::InvalidArgument, text);
        let Some(value) = self.values.next(self.ended).map_err(invalid)? else {
            if self.refused {
                return Err(Error::TooManyRequests.into());
            }
            self.claims(self.values.held_bytes());
            return Ok(None);
        };
        self.drain();
        decoded(&value, target, limits).map(Some)
    }

    fn give_up(&mut self, stream: &mut LocalStream) {
        self.drain();
        self.told = true;
        stream.half_close();
    }

    /// Passes over what has come, and what will come.
    fn drain(&mut self) {
        self.values = Values::new(0);
        self.claim.resize(0);
        self.ended = true;
    }
}

/// The lines of an answer. It begins with the first.
struct Lines {
    responder: Option<HttpResponder>,
    body: Option<BodySender>,
}

impl Lines {
    fn new(responder: HttpResponder) -> Lines {
        Lines { responder: Some(responder), body: None }
    }

    /// Waits until the client no longer reads.
    async fn gone(&mut self) {
        match (&mut self.body, &mut self.responder) {
            (Some(body), _) => body.gone().await,
            (None, Some(responder)) => responder.gone().await,
            (None, None) => {}
        }
    }

    async fn send(&mut self, reply: Reply, target: &Target) -> Result<(), Gone> {
        if let Some(responder) = self.responder.take() {
            self.body = Some(responder.begin(head()));
        }
        let Some(body) = &mut self.body else { return Err(Gone) };
        let mut json = Json::new(reply, target);
        let mut line = Vec::from(&b"{\"result\":"[..]);
        while let Some(chunk) = json.next().map_err(|_| Gone)? {
            line.extend_from_slice(&chunk);
            if line.len() >= crate::unary::CHUNK_BYTES {
                body.send(std::mem::take(&mut line).into()).await?;
                tokio::task::yield_now().await;
            }
        }
        line.extend_from_slice(b"}\n");
        body.send(line.into()).await
    }

    async fn end(mut self, status: Status) {
        match (self.responder.take(), self.body.take()) {
            (Some(responder), _) if status == Status::OK => responder.send(Response::new(Bytes::new())),
            (Some(responder), _) => {
                let response = failure_as(http_status(status.code), &status);
                responder.send(response.map(|_| Bytes::from(error_line(&status))));
            }
            (None, Some(mut body)) => {
                let is_said = status == Status::OK || body.send(error_line(&status).into()).await.is_ok();
                // A body without its end ends the connection.
                if is_said && !status.ends_connection() {
                    body.finish();
                }
            }
            (None, None) => {}
        }
    }
}

/// The line that says how a call has ended.
pub(crate) fn error_line(status: &Status) -> Vec<u8> {
    let mut line = Vec::from(&b"{\"error\":"[..]);
    line.extend_from_slice(&error_json(status));
    line.extend_from_slice(b"}\n");
    line
}

#[cfg(test)]
#[allow(clippy::expect_used, reason = "tests")]
mod tests {
    use super::*;
    use crate::Gateway;
    use crate::test_support::{Counted, EMPTY_MESSAGES_OF_A_TURN, WATCH};
    use budget::{Budget, Pool};
    use http::Request;
    use rpc::{Call, Method, Options, Responder, Server, StreamCall, StreamHandler};
    use std::io::Write;
    use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
    use std::sync::Arc;
    use std::sync::mpsc::{Sender, channel};
    use std::time::Duration;

    const MESSAGES: usize = 200_000;

    /// Hands requests to the gateway, and says how many of their messages came at once.
    struct Front {
        gateway: Gateway,
        counted: Counted,
        most: Sender<usize>,
    }

    impl Service for Front {
        fn methods(&self) -> &'static [Method] {
            WATCH
        }

        fn unary(&self, _: usize, _: Call, _: Responder) {}

        fn stream(&self, _: usize, _: StreamCall) -> Result<Box<dyn StreamHandler>, Status> {
            Err(Status::new(Code::Unimplemented, "not of this test"))
        }

        fn http(&self, _: Request<Bytes>, _: HttpResponder) {}

        fn takes_pieces(&self, head: &http::request::Parts) -> bool {
            self.gateway.takes_pieces(head)
        }

        fn http_in_pieces(&self, request: Request<RequestBody>, responder: HttpResponder) {
            let (counting, most) = (self.counted.most_between_turns(MESSAGES), self.most.clone());
            tokio::spawn(async move { most.send(counting.await) });
            self.gateway.answer_pieces(Arc::new(self.counted.clone()), request, responder);
        }
    }

    #[test]
    fn others_run_while_the_messages_of_a_body_are_handed_on() {
        let budget = Budget::new(64 << 20, Duration::MAX);
        let gateway = Gateway::new(WATCH, 1 << 20, budget, Duration::from_secs(60));
        let (most, mosts) = channel();
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("bound");
        let options = Options { threads: 1, ..Options::default() };
        let front = Arc::new(Front { gateway, counted: Counted::default(), most });
        let _server = Server::start(vec![listener], front, options).expect("starts");
        let mut client = TcpStream::connect(address).expect("connected");
        let body = "{}".repeat(MESSAGES);
        let head = format!("POST /v3/watch HTTP/1.1\r\nhost: x\r\ncontent-length: {}\r\n\r\n", body.len());
        client.write_all(&[head, body].concat().into_bytes()).expect("read");
        let most = mosts.recv_timeout(Duration::from_secs(60)).expect("all messages");
        // More of the body may wake the task before the other one, which has yielded: tokio lets that wait for 61 polls at most.
        assert!(most <= 61 * EMPTY_MESSAGES_OF_A_TURN, "{most} of {MESSAGES} messages at once");
    }

    fn client(host: u8, port: u16) -> Address {
        SocketAddr::from((Ipv4Addr::new(10, 0, 0, host), port)).into()
    }

    #[test]
    fn values_without_an_end_take_no_other_clients_room() {
        let limits = Limits::for_tests(Duration::MAX);
        let piece = [b'A'; 65_536];
        let mut greedy: Vec<Requests> = (0..32).map(|port| Requests::new(&limits, client(1, port))).collect();
        for requests in &mut greedy {
            requests.push(b"{\"create_request\":{\"key\":\"");
            while !requests.refused && requests.values.held_bytes() < 2 << 20 {
                requests.push(&piece);
            }
        }
        assert!(greedy.iter().any(|requests| requests.refused));
        assert!(limits.budget.held(Pool::Requests) > 8 << 20);
        let mut other = Requests::new(&limits, client(2, 0));
        for _ in 0..16 {
            other.push(&piece);
        }
        assert!(!other.refused, "another host has room for a megabyte");
        // What is little needs none.
        let mut little = Requests::new(&limits, client(1, 99));
        little.push(&[b' '; BUDGET_FREE_BYTES]);
        assert!(!little.refused && little.claim.bytes() == 0);
    }
}

//! Calls of many messages. The answer is a line of JSON for each of them: `{"result":...}`, or `{"error":...}` at the end.

use super::Limits;
use super::status::{error_json, failure_as, http_status};
use super::table::Target;
use super::unary::{Json, decoded, head};
use super::values::Values;
use crate::budget::Claim;
use api::{Code, Error};
use bytes::Bytes;
use http::Response;
use rpc::{BodySender, Gone, HttpResponder, LocalCall, LocalStream, Reply, RequestBody, Service, Status};

/// Makes a call of one message and many answers.
pub(super) async fn answer(
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

/// Makes a call of many messages, which come in `body`. It goes on when that has ended.
pub(super) async fn converse(
    service: &dyn Service,
    target: Target,
    call: LocalCall,
    limits: &Limits,
    mut body: RequestBody,
    responder: HttpResponder,
) {
    let mut lines = Lines::new(responder);
    let mut stream = match call.stream(service) {
        Ok(stream) => stream,
        Err(status) => return lines.end(status).await,
    };
    let mut requests = Requests::new(limits);
    loop {
        requests.hand_on(&mut stream, &target, limits);
        let takes_more = requests.takes_more() && stream.has_room();
        let next = tokio::select! {
            piece = body.next(), if takes_more => {
                match piece {
                    Some(Ok(piece)) => requests.push(&piece),
                    Some(Err(_)) => return,
                    None => requests.end(),
                }
                continue;
            }
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

/// The messages of a client, one JSON value after the other.
pub(super) struct Requests {
    values: Values,
    /// What the values take.
    claim: Claim,
    /// There was no room for more of them.
    refused: bool,
    ended: bool,
    /// The call knows that.
    told: bool,
}

impl Requests {
    pub(super) fn new(limits: &Limits) -> Requests {
        let (values, claim) = (Values::new(limits.json_bytes_max()), limits.budget.request());
        Requests { values, claim, refused: false, ended: false, told: false }
    }

    /// Adds what has come, if all clients together do not hold too much. Behind the client's part nothing is of interest.
    pub(super) fn push(&mut self, text: &[u8]) {
        if self.ended || self.refused {
            return;
        }
        let after = self.values.held_bytes().saturating_add(self.values.growth_bytes(text.len()));
        if self.claim.resize(after as u64) {
            self.values.push(text);
        } else {
            self.refused = true;
        }
    }

    /// Adds a frame of a websocket. As with etcd, a line ends behind it.
    pub(super) fn push_frame(&mut self, text: &[u8]) {
        self.push(text);
        self.push(b"\n");
    }

    pub(super) fn end(&mut self) {
        self.ended = true;
    }

    /// Whether more is to be read from the client.
    pub(super) fn takes_more(&self) -> bool {
        !self.ended
    }

    /// Hands on what is whole, as far as the call takes it. With what is no message the client's part is over, as it is with etcd;
    /// what was begun goes on.
    pub(super) fn hand_on(&mut self, stream: &mut LocalStream, target: &Target, limits: &Limits) {
        while !self.told && stream.has_room() {
            match self.values.next(self.ended) {
                Ok(Some(value)) => match decoded(&value, target, limits) {
                    Ok(message) => stream.send(message),
                    Err(_) => return self.give_up(stream),
                },
                Ok(None) if self.ended => return self.give_up(stream),
                Ok(None) if !self.refused => {
                    // What was handed on is free.
                    self.claim.resize(self.values.held_bytes() as u64);
                    return;
                }
                Ok(None) | Err(_) => return self.give_up(stream),
            }
        }
    }

    /// The one message of a call that takes no more, once it is whole. What comes behind it is passed over.
    pub(super) fn only(&mut self, target: &Target, limits: &Limits) -> Result<Option<Bytes>, Status> {
        let invalid = |text| Status::new(Code::InvalidArgument, text);
        let Some(value) = self.values.next(self.ended).map_err(invalid)? else {
            if self.refused {
                return Err(Error::TooManyRequests.into());
            }
            self.claim.resize(self.values.held_bytes() as u64);
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

    /// Waits until nobody reads any more.
    async fn gone(&mut self) {
        match (&mut self.body, &mut self.responder) {
            (Some(body), _) => body.gone().await,
            (None, Some(responder)) => responder.gone().await,
            (None, None) => {}
        }
    }

    async fn send(&mut self, message: Bytes, target: &Target) -> Result<(), Gone> {
        if let Some(responder) = self.responder.take() {
            self.body = Some(responder.begin(head()));
        }
        let Some(body) = &mut self.body else { return Err(Gone) };
        let mut json = Json::new(Reply::Whole(message), target);
        let mut line = Vec::from(&b"{\"result\":"[..]);
        while let Some(chunk) = json.next().map_err(|_| Gone)? {
            line.extend_from_slice(&chunk);
            if line.len() >= super::unary::CHUNK_BYTES {
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
pub(super) fn error_line(status: &Status) -> Vec<u8> {
    let mut line = Vec::from(&b"{\"error\":"[..]);
    line.extend_from_slice(&error_json(status));
    line.extend_from_slice(b"}\n");
    line
}

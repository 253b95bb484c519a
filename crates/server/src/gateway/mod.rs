//! The JSON gateway: every method of the API as a POST of JSON, under the paths of [`table`].
//!
//! `unary` answers calls of one message, `dialogue` those of many, whose messages come and go one JSON value after the other, and
//! `websocket` the same over a websocket. `scanner`, `values` and `decode` make protobuf of JSON, `encode` JSON of protobuf, `status` HTTP of
//! failures. The methods are called in the process, as a client would call them.

#![deny(clippy::indexing_slicing, clippy::string_slice, clippy::arithmetic_side_effects, clippy::expect_used)]
#![cfg_attr(
    test,
    allow(clippy::indexing_slicing, clippy::string_slice, clippy::arithmetic_side_effects, clippy::expect_used)
)]

mod decode;
mod dialogue;
mod encode;
mod scanner;
mod status;
mod table;
mod unary;
mod values;
mod websocket;

use crate::budget::{Budget, Claim, Pool};
use api::Code;
use bytes::Bytes;
use contain::{Contained, contain};
use http::request::Parts;
use http::{HeaderMap, Method, Request, StatusCode, header};
use rpc::{Address, HttpResponder, Kind, LocalCall, Metadata, Reply, RequestBody, Service, Status, Upgrade};
use std::borrow::Cow;
use std::sync::Arc;
use std::time::{Duration, Instant};
use table::{Table, Target};

#[cfg(feature = "test-support")]
pub(crate) use table::rows_of;

/// The gateway of one server.
#[derive(Debug)]
pub(crate) struct Gateway {
    table: Table,
    limits: Limits,
}

/// What requests are held to.
#[derive(Clone, Debug)]
struct Limits {
    /// A message, in bytes.
    message_bytes_max: usize,
    /// What all clients together may have held.
    budget: Arc<Budget>,
    /// How long the next kilobyte of a value that has begun may take.
    body_timeout: Duration,
}

impl Limits {
    /// Length of one JSON value: base64 makes bytes a third longer.
    fn json_bytes_max(&self) -> usize {
        self.message_bytes_max.saturating_mul(2)
    }

    /// Claims what of an answer is held while it is made JSON.
    async fn claim_element(&self, bytes: u64, client: Address) -> Result<Option<Claim>, Status> {
        if bytes == 0 {
            return Ok(None);
        }
        self.budget.claim(Pool::of_answer(bytes), bytes, client).await.map(Some).map_err(Status::from)
    }
}

/// What of a reply is held while it is made JSON: of a transaction's a whole element, which may be nearly all of it.
fn element_bytes(reply: &Reply, target: &Target) -> u64 {
    match reply {
        Reply::Parts { len, .. } if target.response.name == TXN_RESPONSE => *len as u64,
        _ => 0,
    }
}

/// The answer that is one list of long elements.
const TXN_RESPONSE: &str = "etcdserverpb.TxnResponse";

impl Gateway {
    /// The gateway to `methods`, whose messages have at most `message_bytes_max`.
    pub(crate) fn new(
        methods: &'static [rpc::Method],
        message_bytes_max: usize,
        budget: Arc<Budget>,
        body_timeout: Duration,
    ) -> Gateway {
        Gateway { table: Table::new(methods), limits: Limits { message_bytes_max, budget, body_timeout } }
    }

    /// Whether requests to `path` are the gateway's.
    pub(crate) fn owns(path: &str) -> bool {
        current(path).starts_with("/v3/")
    }

    /// Whether the body of such a request is taken in pieces.
    pub(crate) fn takes_pieces(&self, head: &Parts) -> bool {
        let target = self.table.find(&current(head.uri.path()));
        let is_dialogue = head.method == Method::POST && target.is_some_and(|target| target.kind == Kind::Bidi);
        is_dialogue || websocket::is_wanted(head)
    }

    /// Answers a request whose body is whole.
    pub(crate) fn answer(&self, service: Arc<dyn Service>, request: Request<Bytes>, responder: HttpResponder) {
        let (head, body) = request.into_parts();
        let (target, call) = match self.call(&head, false) {
            Ok(call) => call,
            Err(refusal) => return responder.send(*refusal),
        };
        let message = contain(|| unary::message(&body, &target, &self.limits));
        let message = match message.unwrap_or_else(|panicked| Err(panicked.into())) {
            Ok(message) => message,
            Err(status) => return responder.send(status::failure(&status)),
        };
        let limits = self.limits.clone();
        // A panic drops the responder, which says so and ends the connection.
        tokio::spawn(Contained::new(async move {
            if target.kind == Kind::Unary {
                unary::answer(&*service, target, call, &limits, message, responder).await;
            } else {
                dialogue::answer(&*service, target, call, message, responder).await;
            }
        }));
    }

    /// Answers a request whose body comes in pieces, or that wants to become a websocket.
    pub(crate) fn answer_pieces(
        &self,
        service: Arc<dyn Service>,
        request: Request<RequestBody>,
        responder: HttpResponder,
    ) {
        let (head, body) = request.into_parts();
        let upgrade = head.extensions.get::<Upgrade>().filter(|_| websocket::is_wanted(&head)).cloned();
        let (target, call) = match self.call(&head, upgrade.is_some()) {
            Ok(call) => call,
            Err(refusal) => return responder.send(*refusal),
        };
        let limits = self.limits.clone();
        tokio::spawn(Contained::new(async move {
            match upgrade {
                Some(upgrade) => {
                    websocket::answer(&*service, target, call, &limits, &head, upgrade, responder).await;
                }
                None => dialogue::converse(&*service, target, call, &limits, body, responder).await,
            }
        }));
    }

    /// Who is called, or why nobody is.
    fn call(&self, head: &Parts, is_websocket: bool) -> Result<(Target, LocalCall), Box<http::Response<Bytes>>> {
        let refuse = |http_status, code, text| Err(Box::new(status::failure_as(http_status, &Status::new(code, text))));
        let Some(target) = self.table.find(&current(head.uri.path())) else {
            return refuse(StatusCode::NOT_FOUND, Code::NotFound, "Not Found");
        };
        if head.method != Method::POST && !is_websocket {
            return refuse(StatusCode::NOT_IMPLEMENTED, Code::Unimplemented, "Method Not Allowed");
        }
        let Some(peer) = head.extensions.get::<rpc::Peer>() else {
            return refuse(StatusCode::INTERNAL_SERVER_ERROR, Code::Internal, "a request from nobody");
        };
        let deadline = match head.headers.get("grpc-timeout").map(|value| rpc::parse_timeout(value.as_bytes())) {
            None => None,
            // One that no clock can show is none.
            Some(Ok(timeout)) => Instant::now().checked_add(timeout),
            Some(Err(text)) => {
                let status = Status::new(Code::InvalidArgument, format!("invalid grpc-timeout: {text}"));
                return Err(Box::new(status::failure(&status)));
            }
        };
        let mut metadata = metadata(&head.headers);
        if let Some(token) = websocket::token(&head.headers).filter(|_| is_websocket) {
            metadata.push(("authorization".into(), token.into_bytes()));
        }
        // Without the common name of its certificate: who comes through the gateway says who it is with a token.
        let peer = rpc::Peer::unknown(peer.address);
        Ok((target, LocalCall { method: target.method, metadata: Metadata::from_iter(metadata), deadline, peer }))
    }
}

/// The path as it is called now.
fn current(path: &str) -> Cow<'_, str> {
    match path.strip_prefix("/v3beta/") {
        Some(rest) => format!("/v3/{rest}").into(),
        None => path.into(),
    }
}

/// What of the headers a method sees: who the client is, and whatever it has marked for it.
fn metadata(headers: &HeaderMap) -> Vec<(String, Vec<u8>)> {
    let of_header = |(name, value): (&header::HeaderName, &header::HeaderValue)| {
        let name = match name.as_str().strip_prefix("grpc-metadata-") {
            Some(rest) => rest.to_string(),
            None if name == header::AUTHORIZATION => name.as_str().to_string(),
            None => return None,
        };
        Some((name, value.as_bytes().to_vec()))
    };
    headers.iter().filter_map(of_header).collect()
}

#[cfg(test)]
pub(in crate::gateway) mod tests {
    use super::*;

    /// Of messages of 1 MiB, and a budget of 64 MiB.
    pub(super) fn limits(body_timeout: Duration) -> Limits {
        Limits { message_bytes_max: 1 << 20, budget: Budget::new(64 << 20, Duration::MAX), body_timeout }
    }

    #[test]
    fn old_paths_are_those_of_today() {
        assert!(Gateway::owns("/v3/kv/range") && Gateway::owns("/v3beta/kv/range") && Gateway::owns("/v3/"));
        assert!(!Gateway::owns("/v3") && !Gateway::owns("/v3alpha/kv/range") && !Gateway::owns("/health"));
        assert_eq!(current("/v3beta/kv/range"), "/v3/kv/range");
    }

    #[test]
    fn marked_headers_are_metadata() {
        let mut headers = HeaderMap::new();
        for (name, value) in [("authorization", "x.1"), ("grpc-metadata-hasleader", "true"), ("cookie", "c")] {
            headers.append(name, header::HeaderValue::from_static(value));
        }
        let mut found = metadata(&headers);
        found.sort();
        assert_eq!(
            found,
            [("authorization".to_string(), b"x.1".to_vec()), ("hasleader".to_string(), b"true".to_vec())]
        );
    }

    /// Through the scanner, and on a stack of 2 MiB: what request threads have.
    #[test]
    fn the_deepest_values_fit_the_stack() {
        let target = |path| Table::new(crate::services::METHODS).find(path).expect("a method");
        let limits = limits(Duration::MAX);
        let work = move || {
            let txn = target("/v3/kv/txn");
            let transactions = |levels: usize| {
                let (begin, end) = (r#"{"success":[{"request_txn":"#.repeat(levels), "}]}".repeat(levels));
                unary::message(format!("{begin}{{}}{end}").as_bytes(), &txn, &limits)
            };
            assert!(transactions(scanner::DEPTH_MAX / 3).is_ok());
            assert!(transactions(scanner::DEPTH_MAX / 3 + 1).is_err());
            let unknown = |levels: usize| {
                let text = format!("{{\"x\":{}{}}}", "[".repeat(levels), "]".repeat(levels));
                unary::message(text.as_bytes(), &txn, &limits)
            };
            assert_eq!(unknown(scanner::DEPTH_MAX - 1), Ok(Bytes::new()));
            assert!(unknown(scanner::DEPTH_MAX).is_err());
        };
        std::thread::Builder::new().stack_size(2 << 20).spawn(work).expect("a thread").join().expect("done");
    }
}

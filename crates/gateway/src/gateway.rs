//! The gateway: finds the method of a request and the way to answer it.

use crate::limits::Limits;
use crate::table::{Table, Target};
use crate::{dialogue, status, unary, websocket};
use api::Code;
use budget::Budget;
use bytes::Bytes;
use contain::{Contained, contain};
use http::request::Parts;
use http::{HeaderMap, Method, Request, StatusCode, header};
use rpc::{HttpResponder, Kind, LocalCall, Metadata, RequestBody, Service, Status, Upgrade};
use std::borrow::Cow;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The gateway of one server.
#[derive(Debug)]
pub struct Gateway {
    table: Table,
    limits: Limits,
}

impl Gateway {
    /// The gateway to `methods`, which a service knows by their place in this table. Their messages have at most `message_bytes_max`, and
    /// the next kilobyte of a value that has begun may take `body_timeout`.
    ///
    /// # Panics
    /// If a method with a path has messages that are not in the schema.
    pub fn new(
        methods: &[rpc::Method],
        message_bytes_max: usize,
        budget: Arc<Budget>,
        body_timeout: Duration,
    ) -> Gateway {
        Gateway { table: Table::new(methods), limits: Limits { message_bytes_max, budget, body_timeout } }
    }

    /// Whether requests to `path` are the gateway's.
    pub fn owns(path: &str) -> bool {
        current(path).starts_with("/v3/")
    }

    /// Whether the body of such a request is taken in pieces.
    pub fn takes_pieces(&self, head: &Parts) -> bool {
        let target = self.table.find(&current(head.uri.path()));
        let is_dialogue = head.method == Method::POST && target.is_some_and(|target| target.kind == Kind::Bidi);
        is_dialogue || websocket::is_wanted(head)
    }

    /// Answers a request whose body is whole.
    pub fn answer(&self, service: Arc<dyn Service>, request: Request<Bytes>, responder: HttpResponder) {
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
        // A panic drops the responder, which says so and ends the connection.
        tokio::spawn(Contained::new(async move {
            if target.kind == Kind::Unary {
                unary::answer(&*service, target, call, message, responder).await;
            } else {
                dialogue::answer(&*service, target, call, message, responder).await;
            }
        }));
    }

    /// Answers a request whose body comes in pieces, or that wants to become a websocket.
    pub fn answer_pieces(&self, service: Arc<dyn Service>, request: Request<RequestBody>, responder: HttpResponder) {
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

    /// The method that is called, or why there is none.
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
        // Without the common name of its certificate: clients of the gateway identify themselves with a token.
        let peer = peer.unidentified();
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

/// The headers that a method sees: the client's token, and those marked for gRPC.
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
mod tests {
    use super::*;
    use crate::scanner;

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
        let limits = Limits::for_tests(Duration::MAX);
        let work = move || {
            let txn = Table::of("/etcdserverpb.KV/Txn", Kind::Unary).find("/v3/kv/txn").expect("a method");
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

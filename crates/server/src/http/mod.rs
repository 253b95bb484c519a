//! HTTP beside gRPC: health checks, metrics, debug pages, and the JSON gateway.
//!
//! `access` checks hosts and origins, `health` and `checks` are the probes, `vars` and `profile` are under `/debug/`.

#![deny(clippy::indexing_slicing, clippy::string_slice, clippy::arithmetic_side_effects, clippy::expect_used)]
#![cfg_attr(
    test,
    allow(clippy::indexing_slicing, clippy::string_slice, clippy::arithmetic_side_effects, clippy::expect_used)
)]

mod access;
mod checks;
mod health;
mod metrics;
mod vars;

use crate::config::Config;
use crate::node::Node;
use crate::services::METHODS;
use bytes::Bytes;
use contain::{Panicked, contain};
use gateway::Gateway;
use http::request::Parts;
use http::{HeaderValue, Method, Request, Response, StatusCode, header};
use rpc::{HttpResponder, RequestBody, Service};
use std::sync::Arc;

/// Everything that is answered over HTTP.
pub(crate) struct Http {
    node: Arc<Node>,
    access: access::Access,
    /// None if JSON is not answered.
    gateway: Option<Gateway>,
    pages: metrics::Pages,
    has_profiles: bool,
    has_traces: bool,
}

impl Http {
    pub(crate) fn new(node: Arc<Node>) -> Http {
        let config: &Config = &node.config;
        let message_bytes_max = config.max_request_bytes.saturating_add(api::limits::GRPC_OVERHEAD_BYTES);
        let is_debugged = config.logs.level == telemetry::logging::Level::Debug;
        Http {
            access: access::Access::new(&config.http),
            gateway: config
                .http
                .gateway
                .then(|| Gateway::new(METHODS, message_bytes_max, node.budget.clone(), config.transport.body_timeout)),
            pages: metrics::Pages::default(),
            has_profiles: config.http.pprof || is_debugged,
            has_traces: is_debugged,
            node,
        }
    }

    /// Whether the body of a request is taken in pieces.
    pub(crate) fn takes_pieces(&self, head: &Parts) -> bool {
        self.gateway_for(head).is_some_and(|gateway| gateway.takes_pieces(head)) && self.access.refusal(head).is_none()
    }

    /// Answers a request whose body comes in pieces.
    pub(crate) fn handle_pieces(
        &self,
        service: Arc<dyn Service>,
        request: Request<RequestBody>,
        mut responder: HttpResponder,
    ) {
        let (head, body) = request.into_parts();
        let judged = contain(|| {
            self.access.mark(&head, &mut responder);
            self.refusal(&head)
        });
        if let Some(refusal) = judged.unwrap_or_else(|panicked| Some(slipped(panicked))) {
            return responder.send(refusal);
        }
        if let Some(gateway) = self.gateway_for(&head) {
            gateway.answer_pieces(service, Request::from_parts(head, body), responder);
        }
    }

    /// Answers any other request.
    pub(crate) fn handle(
        &self,
        service: Arc<dyn Service>,
        stats: Option<&Arc<rpc::Stats>>,
        request: Request<Bytes>,
        mut responder: HttpResponder,
    ) {
        let (head, body) = request.into_parts();
        let judged = contain(|| {
            self.access.mark(&head, &mut responder);
            self.refusal(&head)
        });
        if let Some(refusal) = judged.unwrap_or_else(|panicked| Some(slipped(panicked))) {
            return responder.send(refusal);
        }
        if let Some(gateway) = self.gateway_for(&head) {
            return gateway.answer(service, Request::from_parts(head, body), responder);
        }
        let path = head.uri.path();
        match path {
            "/metrics" => {
                let page = contain(|| self.pages.page(&self.node, stats.map(Arc::as_ref), &head.headers));
                return responder.send(page.unwrap_or_else(slipped));
            }
            _ if path.starts_with("/debug/pprof/") && self.has_profiles => {
                return pprof::answer(&head.uri, crate::system::command_line, responder);
            }
            _ => {}
        }
        let is_known = matches!(path, "/health" | "/version" | "/debug/vars")
            || (self.has_traces && matches!(path, "/debug/requests" | "/debug/events"))
            || checks::find(path).is_some();
        if !is_known {
            return responder.send(not_found());
        }
        if head.method != Method::GET {
            let mut refusal = plain(StatusCode::METHOD_NOT_ALLOWED, "Method Not Allowed\n");
            refusal.headers_mut().insert(header::ALLOW, HeaderValue::from_static("GET"));
            return responder.send(refusal);
        }
        let query = head.uri.query().unwrap_or_default();
        match path {
            "/health" => health::answer(&self.node, query, responder),
            "/version" => responder.send(page(StatusCode::OK, "application/json", version(&self.node))),
            "/debug/vars" => responder.send(vars::page(&self.node)),
            "/debug/requests" | "/debug/events" => responder.send(vars::traces(stats.map(Arc::as_ref))),
            _ => match checks::find(path) {
                Some(asked) => checks::answer(&self.node, asked, query, responder),
                None => responder.send(not_found()),
            },
        }
    }

    fn gateway_for(&self, head: &Parts) -> Option<&Gateway> {
        self.gateway.as_ref().filter(|_| Gateway::owns(head.uri.path()))
    }

    /// Whether a client would have JSON answered as the user that its certificate names. The gateway knows users by their tokens
    /// only, and whoever thinks otherwise is told.
    fn would_be_nobody(&self, head: &Parts) -> bool {
        let peer = head.extensions.get::<rpc::Peer>();
        let has_name = peer.and_then(|peer| peer.common_name.as_deref()).is_some_and(|name| !name.is_empty());
        has_name
            && self.gateway_for(head).is_some()
            && self.node.config.tls_client.client_cert_auth
            && self.node.store.auth().is_enabled()
    }

    /// The answer to a request that is refused before its path is looked at.
    fn refusal(&self, head: &Parts) -> Option<Response<Bytes>> {
        if let Some(refusal) = self.access.refusal(head) {
            return Some(refusal);
        }
        if self.would_be_nobody(head) {
            let text =
                "CommonName of client sending a request against gateway will be ignored and not used as expected\n";
            return Some(plain(StatusCode::BAD_REQUEST, text));
        }
        if head.method == Method::OPTIONS {
            return Some(Response::new(Bytes::new()));
        }
        let path = head.uri.path();
        let clean = clean(path);
        let clean = match &*clean {
            "/v3" if self.gateway.is_some() => "/v3/",
            "/debug/pprof" if self.has_profiles => "/debug/pprof/",
            clean => clean,
        };
        if head.method == Method::CONNECT || clean == path {
            return None;
        }
        let mut redirect = Response::new(Bytes::new());
        *redirect.status_mut() = StatusCode::TEMPORARY_REDIRECT;
        let query = head.uri.query().map(|query| format!("?{query}")).unwrap_or_default();
        let location = HeaderValue::from_str(&format!("{clean}{query}")).ok()?;
        redirect.headers_mut().insert(header::LOCATION, location);
        Some(redirect)
    }
}

/// The path without empty, `.` and `..` elements, as Go's servers have it.
fn clean(path: &str) -> String {
    let mut elements: Vec<&str> = Vec::new();
    for element in path.split('/') {
        match element {
            "" | "." => {}
            ".." => {
                elements.pop();
            }
            element => elements.push(element),
        }
    }
    let is_folder = path.ends_with('/') && !elements.is_empty();
    format!("/{}{}", elements.join("/"), if is_folder { "/" } else { "" })
}

/// A response with a body of `content_type`.
fn page(status: StatusCode, content_type: &'static str, body: impl Into<Bytes>) -> Response<Bytes> {
    let mut response = Response::new(body.into());
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}

/// A plain-text response, marked so that no browser guesses another type.
fn plain(status: StatusCode, body: impl Into<Bytes>) -> Response<Bytes> {
    let mut response = page(status, "text/plain; charset=utf-8", body);
    response.headers_mut().insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}

/// The end of a connection over whose request the code has slipped.
fn slipped(panicked: Panicked) -> Response<Bytes> {
    let mut response = plain(StatusCode::INTERNAL_SERVER_ERROR, format!("{panicked}\n"));
    response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    response
}

fn not_found() -> Response<Bytes> {
    plain(StatusCode::NOT_FOUND, "404 page not found\n")
}

/// Every value of `name` in a query, without its escapes.
fn values<'a>(query: &'a str, name: &'a str) -> impl Iterator<Item = String> + 'a {
    query.split('&').filter_map(move |part| {
        let (key, value) = part.split_once('=').unwrap_or((part, ""));
        (unescape(key) == name).then(|| unescape(value))
    })
}

fn unescape(text: &str) -> String {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, behind)) = rest.split_first() {
        let escaped = behind.split_at_checked(2).filter(|_| *first == b'%');
        let byte = escaped.and_then(|(digits, _)| u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok());
        let (byte, behind) = match (byte, escaped) {
            (Some(byte), Some((_, behind))) => (byte, behind),
            _ => (if *first == b'+' { b' ' } else { *first }, behind),
        };
        out.push(byte);
        rest = behind;
    }
    String::from_utf8_lossy(&out).into_owned()
}

/// The answer to `/version`, on the client and on the peer port.
pub(crate) fn version(node: &Node) -> String {
    let cluster = match node.store.cluster_version() {
        version if version.is_empty() => "not_decided".to_string(),
        version => version,
    };
    let (etcd, storage) = (api::version::ETCD, node.storage_version());
    format!("{{\"etcdserver\":\"{etcd}\",\"etcdcluster\":\"{cluster}\",\"storage\":\"{storage}\"}}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_cleaned() {
        for (path, wanted) in [
            ("/v3/kv/range", "/v3/kv/range"),
            ("//v3///kv/./range/", "/v3/kv/range/"),
            ("/a/../../health", "/health"),
            ("/", "/"),
            ("", "/"),
            ("//", "/"),
        ] {
            assert_eq!(clean(path), wanted, "{path}");
        }
    }

    #[test]
    fn queries_are_taken_apart() {
        let query = "exclude=NOSPACE&verbose&exclude=a%20b+c%zz";
        assert_eq!(values(query, "exclude").collect::<Vec<_>>(), ["NOSPACE", "a b c%zz"]);
        assert_eq!(values(query, "verbose").count(), 1);
        assert_eq!(values(query, "serializable").count(), 0);
    }

    #[test]
    fn every_method_of_etcd_has_a_path_in_the_gateway() {
        let without = ["/etcdserverpb.KV/RangeStream", "/cairnpb.Archive/", "/grpc.health.v1.Health/"];
        for method in METHODS.iter().filter(|method| !without.iter().any(|path| method.path.starts_with(path))) {
            assert!(gateway::rows_of(method.path).next().is_some(), "{} has no path", method.path);
        }
    }
}

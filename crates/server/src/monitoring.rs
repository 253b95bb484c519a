//! The service at `--listen-metrics-urls`: health and metrics, nothing else.

use crate::services::Services;
use bytes::Bytes;
use rpc::{Call, HttpResponder, Method, Responder, Service, Status, StreamCall, StreamHandler};
use std::sync::Arc;

/// The paths; what is below them counts too.
const PATHS: &[&str] = &["/metrics", "/health", "/livez", "/readyz"];

/// The service of those listeners: a part of what clients can have.
pub(crate) struct Monitoring(pub(crate) Arc<Services>);

impl Service for Monitoring {
    fn methods(&self) -> &'static [Method] {
        &[]
    }

    fn unary(&self, _method: usize, _call: Call, responder: Responder) {
        responder.send(Err(nothing()));
    }

    fn stream(&self, _method: usize, _call: StreamCall) -> Result<Box<dyn StreamHandler>, Status> {
        Err(nothing())
    }

    fn http(&self, request: http::Request<Bytes>, responder: HttpResponder) {
        let path = request.uri().path();
        let is_served =
            |known: &&str| path.strip_prefix(*known).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
        if PATHS.iter().any(is_served) {
            return self.0.http(request, responder);
        }
        let mut response = http::Response::new(Bytes::from_static(b"404 page not found\n"));
        *response.status_mut() = http::StatusCode::NOT_FOUND;
        responder.send(response);
    }
}

/// Without methods there is no call.
fn nothing() -> Status {
    Status::new(api::Code::Unimplemented, "there is no gRPC at this address")
}

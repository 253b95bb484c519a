//! `grpc.health.v1.Health`: the server as a whole, named `""`.

use super::reply::refuse;
use crate::node::Node;
use api::Code;
use bytes::Bytes;
use rpc::{Call, Outbound, Reply, Responder, Status, StreamCall, StreamHandler};
use std::sync::Arc;

/// `HealthCheckResponse { status: SERVING }`.
const SERVING: &[u8] = &[0x08, 0x01];
/// `HealthCheckResponse { status: SERVICE_UNKNOWN }`.
const SERVICE_UNKNOWN: &[u8] = &[0x08, 0x03];

/// `HealthCheckResponse { status: NOT_SERVING }`: the member is not published yet.
const NOT_SERVING: &[u8] = &[0x08, 0x02];

/// `HealthListResponse { statuses: { "": SERVING } }`.
const ALL_SERVING: &[u8] = &[0x0a, 0x06, 0x0a, 0x00, 0x12, 0x02, 0x08, 0x01];
/// `HealthListResponse { statuses: { "": NOT_SERVING } }`.
const NONE_SERVING: &[u8] = &[0x0a, 0x06, 0x0a, 0x00, 0x12, 0x02, 0x08, 0x02];

pub(super) fn list(node: &Arc<Node>, _call: Call, responder: Responder) {
    let statuses = if node.opening.is_published() { ALL_SERVING } else { NONE_SERVING };
    responder.send(Ok(Reply::Whole(Bytes::from_static(statuses))));
}

/// Whether a `HealthCheckRequest` (one string field) names the whole server.
fn names_server(message: &[u8]) -> bool {
    message.is_empty() || message == [0x0a, 0x00]
}

pub(super) fn check(node: &Arc<Node>, call: Call, responder: Responder) {
    if names_server(&call.message) {
        let status = if node.opening.is_published() { SERVING } else { NOT_SERVING };
        responder.send(Ok(Reply::Whole(Bytes::from_static(status))));
    } else {
        refuse(responder, Status::new(Code::NotFound, "unknown service"));
    }
}

/// A health watch. It sends one answer, which holds until the server stops.
pub(super) struct Watch;

impl Watch {
    pub(super) fn new(_: &Arc<Node>, _call: StreamCall) -> Watch {
        Watch
    }
}

impl StreamHandler for Watch {
    fn message(&mut self, message: Bytes, out: &mut Outbound<'_>) {
        let state = if names_server(&message) { SERVING } else { SERVICE_UNKNOWN };
        out.send(Bytes::from_static(state));
    }

    fn half_closed(&mut self, _out: &mut Outbound<'_>) {}

    fn ready(&mut self, _out: &mut Outbound<'_>) {}
}

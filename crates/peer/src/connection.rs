//! One connection that a peer has dialled: request after request, until it becomes a stream or ends.

use crate::answers::Next;
use crate::fault::Fault;
use crate::places::Place;
use crate::rejection::rejected;
use crate::shared::Shared;
use crate::stream::Stream;
use crate::timeouts::after;
use crate::wire::Wire;
use crate::{routes, sender};
use http::{Response, StatusCode};
use std::sync::Arc;
use std::time::Duration;

/// How long the first request may take to arrive, and a TLS handshake before it.
pub(crate) const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(5);
/// How long a connection may be idle between requests: longer than the time between two probes.
const IDLE_TIMEOUT: Duration = Duration::from_secs(6);

/// Serves a connection to its end.
pub(crate) fn serve(shared: &Arc<Shared>, stream: Stream, address: &str, mut place: Place) {
    let mut wire = match Wire::new(stream) {
        Ok(wire) => wire,
        Err(error) => return rejected(address, &error),
    };
    let mut patience = HANDSHAKE_TIMEOUT;
    while !shared.is_stopping() {
        let head = match wire.request(after(patience)) {
            Ok(Some(head)) => head,
            Ok(None) => return,
            // Silence between requests is normal.
            Err(Fault::TimedOut) if wire.is_idle() && patience == IDLE_TIMEOUT => return,
            Err(fault) => return refuse(wire, address, &fault),
        };
        patience = IDLE_TIMEOUT;
        if let Some(member) = sender::member(shared, head.request.headers()) {
            place.show(member);
        }
        place.set_idle(false);
        match routes::handle(shared, &mut wire, &head, address, &mut place) {
            Ok(Next::Request) => place.set_idle(true),
            Ok(Next::End) => return wire.linger(),
            Ok(Next::Stream(peer, kind)) => {
                // From here on the peer owns the connection, and no new connection may take its place.
                drop(place);
                if let Err(error) = peer.attach(shared, kind, wire.into_stream()) {
                    rejected(address, &error);
                }
                return;
            }
            Ok(Next::Feed(feeding)) => {
                drop(place);
                return feeding.run(shared, wire);
            }
            Err(fault) => return refuse(wire, address, &fault),
        }
    }
}

/// Logs the reason and sends it to the other side.
fn refuse(mut wire: Wire, address: &str, fault: &Fault) {
    rejected(address, fault);
    let status = match fault {
        Fault::NotHttp(_) => StatusCode::BAD_REQUEST,
        Fault::TooLong { .. } => StatusCode::PAYLOAD_TOO_LARGE,
        Fault::TimedOut => StatusCode::REQUEST_TIMEOUT,
        Fault::Busy => StatusCode::SERVICE_UNAVAILABLE,
        Fault::Closed | Fault::Io(_) => return,
    };
    let mut response = Response::new(format!("{fault}\n"));
    *response.status_mut() = status;
    if wire.respond(response, false).is_ok() {
        wire.linger();
    }
}

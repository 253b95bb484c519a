//! Answers to requests on the peer port.

use crate::codec::Kind;
use crate::fault::Fault;
use crate::follow::Feeding;
use crate::head::{Framing, RequestHead};
use crate::identity::{CLUSTER_ID, hex};
use crate::peer::Peer;
use crate::shared::Shared;
use crate::wire::Wire;
use http::{HeaderValue, Method, Request, Response, StatusCode, header};
use std::sync::Arc;

/// What happens next on the connection.
pub(crate) enum Next {
    /// It may carry another request.
    Request,
    End,
    /// It is a stream from now on.
    Stream(Arc<Peer>, Kind),
    /// It feeds an observer from now on.
    Feed(Feeding),
}

/// Sends an answer. The body of the request must have been read, or the connection ends.
pub(crate) fn answer(
    shared: &Shared,
    wire: &mut Wire,
    head: &RequestHead,
    response: Response<Vec<u8>>,
) -> Result<Next, Fault> {
    let keep = head.keep_alive && (response.status().is_success() || head.framing == Framing::Length(0));
    answer_and(keep, shared, wire, response)
}

/// Sends an answer. After it the connection may carry another request, or ends.
pub(crate) fn answer_and(
    keep: bool,
    shared: &Shared,
    wire: &mut Wire,
    mut response: Response<Vec<u8>>,
) -> Result<Next, Fault> {
    response.headers_mut().entry(CLUSTER_ID).or_insert_with(|| hex(shared.identity.cluster_id));
    wire.respond(response, keep)?;
    Ok(if keep { Next::Request } else { Next::End })
}

/// A refusal in the form that etcd's members expect.
pub(crate) fn refusal(status: StatusCode, text: impl std::fmt::Display) -> Response<Vec<u8>> {
    let mut response = Response::new(format!("{text}\n").into_bytes());
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    response
}

/// A refusal as an error.
pub(crate) type Refusal = Box<Response<Vec<u8>>>;

/// Refuses a request whose method is not `method`.
pub(crate) fn require(method: Method, allowed: &'static str, request: &Request<()>) -> Result<(), Refusal> {
    if *request.method() == method {
        return Ok(());
    }
    let mut response = refusal(StatusCode::METHOD_NOT_ALLOWED, "Method Not Allowed");
    response.headers_mut().insert(header::ALLOW, HeaderValue::from_static(allowed));
    Err(response.into())
}

/// 403 with the JSON body that etcd's members send.
pub(crate) fn forbidden(text: &str) -> Response<Vec<u8>> {
    let mut response = Response::new(format!("{{\"message\":\"{text}\"}}").into_bytes());
    *response.status_mut() = StatusCode::FORBIDDEN;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

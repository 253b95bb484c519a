//! HTTP statuses of failures.

use crate::encode::put_string;
use api::Code;
use bytes::Bytes;
use http::{HeaderValue, Response, StatusCode, header};
use rpc::Status;
use std::io::Write;

/// The HTTP status of a gRPC code, as `google.rpc.Code` documents it.
pub(crate) fn http_status(code: Code) -> StatusCode {
    match code {
        Code::Ok => StatusCode::OK,
        // No name in the registry: the client has closed the request.
        Code::Canceled => StatusCode::from_u16(499).unwrap_or(StatusCode::BAD_REQUEST),
        Code::InvalidArgument | Code::FailedPrecondition | Code::OutOfRange => StatusCode::BAD_REQUEST,
        Code::DeadlineExceeded => StatusCode::GATEWAY_TIMEOUT,
        Code::NotFound => StatusCode::NOT_FOUND,
        Code::AlreadyExists | Code::Aborted => StatusCode::CONFLICT,
        Code::PermissionDenied => StatusCode::FORBIDDEN,
        Code::Unauthenticated => StatusCode::UNAUTHORIZED,
        Code::ResourceExhausted => StatusCode::TOO_MANY_REQUESTS,
        Code::Unimplemented => StatusCode::NOT_IMPLEMENTED,
        Code::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
        Code::Unknown | Code::Internal | Code::DataLoss => StatusCode::INTERNAL_SERVER_ERROR,
    }
}

/// `{"code":5,"message":"Not Found"}`.
pub(crate) fn error_json(status: &Status) -> Vec<u8> {
    let mut json = Vec::with_capacity(status.message.len().saturating_add(32));
    // Writing to memory cannot fail.
    let _ = write!(json, "{{\"code\":{},\"message\":", status.code as u8);
    put_string(&mut json, &status.message);
    json.push(b'}');
    json
}

/// The response to a call that ended before there was anything to send.
pub(crate) fn failure(status: &Status) -> Response<Bytes> {
    let mut response = failure_as(http_status(status.code), status);
    if status.code == Code::Unauthenticated
        && let Ok(text) = HeaderValue::from_str(&status.message)
    {
        response.headers_mut().insert(header::WWW_AUTHENTICATE, text);
    }
    response
}

/// The same under another HTTP status.
pub(crate) fn failure_as(http_status: StatusCode, status: &Status) -> Response<Bytes> {
    let mut response = Response::new(Bytes::from(error_json(status)));
    *response.status_mut() = http_status;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    if status.ends_connection() {
        response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_say_what_etcd_says() {
        let response = failure(&api::Error::EmptyKey.into());
        assert_eq!(response.status(), StatusCode::BAD_REQUEST);
        assert_eq!(&response.body()[..], br#"{"code":3,"message":"etcdserver: key is not provided"}"#);
        let response = failure(&Status::new(Code::Unauthenticated, "a \"token\""));
        assert_eq!(response.status(), StatusCode::UNAUTHORIZED);
        assert_eq!(response.headers()[header::WWW_AUTHENTICATE], "a \"token\"");
    }
}

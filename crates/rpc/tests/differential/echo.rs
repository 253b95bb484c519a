//! The service under the scripts: calls of every shape, and nothing that takes time by itself.

use std::sync::{Mutex, PoisonError};

use bytes::Bytes;
use rpc::{
    Call, HttpResponder, Kind, Method, Outbound, Reply, Responder, Service, Source, Status, StreamCall, StreamHandler,
};

pub const ECHO: &str = "/test.Echo/Now";
pub const LATER: &str = "/test.Echo/Later";
pub const LARGE: &str = "/test.Echo/Large";
pub const CHAT: &str = "/test.Echo/Chat";
pub const UNKNOWN: &str = "/test.Echo/Unknown";

const METHODS: &[Method] = &[
    Method { path: ECHO, kind: Kind::Unary },
    Method { path: LATER, kind: Kind::Unary },
    Method { path: LARGE, kind: Kind::Unary },
    Method { path: CHAT, kind: Kind::Bidi },
];

/// Length of a large reply: more than the windows are at first.
const LARGE_BYTES: usize = 100_000;

/// Sends messages back.
#[derive(Default)]
pub struct Echo {
    later: Mutex<Vec<(Responder, Bytes)>>,
}

impl Echo {
    /// Answers the calls that wait for it.
    pub fn answer_later(&self) {
        let waiting = std::mem::take(&mut *self.later.lock().unwrap_or_else(PoisonError::into_inner));
        for (responder, message) in waiting {
            responder.send(Ok(Reply::Whole(message)));
        }
    }
}

impl Service for Echo {
    fn methods(&self) -> &'static [Method] {
        METHODS
    }

    fn unary(&self, method: usize, call: Call, responder: Responder) {
        match METHODS[method].path {
            LATER => self.later.lock().unwrap_or_else(PoisonError::into_inner).push((responder, call.message)),
            LARGE => responder.send(Ok(Reply::Parts { len: LARGE_BYTES, source: Box::new(Zeros(LARGE_BYTES)) })),
            _ => responder.send(Ok(Reply::Whole(call.message))),
        }
    }

    fn stream(&self, _: usize, _: StreamCall) -> Result<Box<dyn StreamHandler>, Status> {
        Ok(Box::new(Chat))
    }

    fn http(&self, request: http::Request<Bytes>, responder: HttpResponder) {
        let mut response = http::Response::new(request.into_body());
        *response.status_mut() = http::StatusCode::IM_A_TEAPOT;
        responder.send(response);
    }
}

struct Zeros(usize);

impl Source for Zeros {
    fn next(&mut self, bytes_max: usize) -> Option<Bytes> {
        let count = self.0.min(bytes_max).min(9000);
        self.0 -= count;
        (count > 0).then(|| Bytes::from(vec![0; count]))
    }
}

struct Chat;

impl StreamHandler for Chat {
    fn message(&mut self, message: Bytes, out: &mut Outbound<'_>) {
        out.send(message);
    }

    fn half_closed(&mut self, out: &mut Outbound<'_>) {
        out.finish(Status::OK);
    }

    fn ready(&mut self, _: &mut Outbound<'_>) {}
}

//! `--experimental-enable-grpc-logging`: a line for each call when it has ended. It has no keys, no values and no token.

use api::Code;
use bytes::Bytes;
use rpc::{Address, Outbound, Responder, StreamHandler};
use std::time::Instant;
use telemetry::logging;

/// A call that is under way.
struct Line {
    path: &'static str,
    client: Address,
    began: Instant,
}

impl Line {
    fn write(&self, code: Code) {
        let (service, method) = self.path.trim_start_matches('/').split_once('/').unwrap_or((self.path, ""));
        let (client, took) = (self.client.to_string(), format!("{:?}", self.began.elapsed()));
        let code = format!("{code:?}");
        let fields = [
            ("grpc.service", service.into()),
            ("grpc.method", method.into()),
            ("grpc.code", (&code).into()),
            ("peer.address", (&client).into()),
            ("took", (&took).into()),
        ];
        logging::info("finished call", &fields);
    }
}

/// Has a line written when a single call is answered.
pub(crate) fn unary(responder: Responder, path: &'static str, client: Address) -> Responder {
    let line = Line { path, client, began: Instant::now() };
    responder.notify(move |answer| line.write(answer.err().unwrap_or(Code::Ok)))
}

/// Has a line written when a stream has ended.
pub(crate) fn stream(inner: Box<dyn StreamHandler>, path: &'static str, client: Address) -> Box<dyn StreamHandler> {
    let line = Line { path, client, began: Instant::now() };
    // What a stream ends with that its client gives up.
    Box::new(Stream { inner, line, code: Code::Canceled })
}

struct Stream {
    inner: Box<dyn StreamHandler>,
    line: Line,
    code: Code,
}

impl Stream {
    fn look(&mut self, out: &Outbound<'_>) {
        self.code = out.end_code().unwrap_or(self.code);
    }
}

impl StreamHandler for Stream {
    fn message(&mut self, message: Bytes, out: &mut Outbound<'_>) {
        self.inner.message(message, out);
        self.look(out);
    }

    fn half_closed(&mut self, out: &mut Outbound<'_>) {
        self.inner.half_closed(out);
        self.look(out);
    }

    fn ready(&mut self, out: &mut Outbound<'_>) {
        self.inner.ready(out);
        self.look(out);
    }

    fn answers_in_a_crowd(&self) -> bool {
        self.inner.answers_in_a_crowd()
    }

    fn held_bytes(&self) -> usize {
        self.inner.held_bytes()
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.line.write(self.code);
    }
}

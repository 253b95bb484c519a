//! The end of a stream: answered, driven by its handler, or given up.

use api::Code;
use bytes::Bytes;
use http::StatusCode;

use super::exchange::Exchange;
use super::stream::{Handler, Look, Role, Stream};
use crate::grpc::body::Body;
use crate::grpc::decoder::Decoder;
use crate::grpc::encoding::Encoding;
use crate::grpc::responder::{Answer, plain_response};
use crate::{Outbound, Reply, Status, StreamHandler, StreamWaker};
/// What a call ends with whose message does not come.
const TOO_LATE: &str = "grpc: the rest of the request does not come";

impl Stream {
    /// Takes the service's answer, if one is waited for.
    pub(crate) fn answer(&mut self, look: &mut Look<'_>, answer: Answer) {
        if !matches!(self.role, Role::Answer) {
            return;
        }
        match answer {
            Answer::Grpc(Ok(reply)) => {
                self.code = Some(Code::Ok);
                if let Some(method) = self.method {
                    look.shared.stats.sent(method, 1, reply.len());
                }
                let left = match reply {
                    Reply::Whole(message) => self.out.reply_at_once(self.id, look.sender, message).map(Reply::Whole),
                    parts @ Reply::Parts { .. } => Some(parts),
                };
                if let Some(reply) = left {
                    self.out.reply(reply);
                }
                self.settle();
            }
            Answer::Grpc(Err(status)) => self.fail(status),
            Answer::Http(response) => {
                let (head, body) = response.into_parts();
                match body {
                    Body::Whole(body) => self.respond(http::Response::from_parts(head, body)),
                    Body::Piped(_) if self.is_head => self.respond(http::Response::from_parts(head, Bytes::new())),
                    Body::Piped(body) => {
                        self.out.begin(head.status, head.headers);
                        self.streams = true;
                        let handler = Box::new(Exchange::answering(body, StreamWaker::new(self.signal.clone())));
                        self.role = Role::Handler(Handler::new(handler, false));
                        self.drive(look, |handler, out| handler.ready(out));
                    }
                }
            }
        }
    }

    /// Calls the handler, if it is still there.
    pub(crate) fn drive(&mut self, look: &mut Look<'_>, call: impl FnOnce(&mut dyn StreamHandler, &mut Outbound<'_>)) {
        let Role::Handler(handler) = &mut self.role else { return };
        let mut out = Outbound::new(&mut self.out);
        handler.handler.call(|handler| call(&mut **handler, &mut out));
        handler.starved |= !out.has_room();
        let (messages, bytes) = out.counts();
        if let Some(method) = self.method
            && messages > 0
        {
            look.shared.stats.sent(method, messages, bytes);
        }
        if self.out.has_end() {
            self.code = self.out.end_code().or(self.code);
            self.settle();
        }
    }

    /// Gives up a request that does not come, unless it just has.
    pub(crate) fn late(&mut self) {
        match self.role {
            _ if self.input.ended => {}
            Role::Http { .. } => self.respond(plain_response(StatusCode::REQUEST_TIMEOUT)),
            Role::Unary { .. } | Role::Handler(_) => self.fail(Status::new(Code::Unavailable, TOO_LATE)),
            Role::Answer | Role::Output => {}
        }
    }

    pub(crate) fn fail(&mut self, status: Status) {
        self.code = Some(status.code);
        self.out.finish(status);
        self.settle();
    }

    pub(crate) fn respond(&mut self, response: http::Response<Bytes>) {
        self.out.respond(if self.is_head { response.map(|_| Bytes::new()) } else { response });
        self.settle();
    }

    /// Only output is left. The rest of the input is of no interest, its memory least of all.
    pub(crate) fn settle(&mut self) {
        self.role = Role::Output;
        self.input.told = true;
        self.head_bytes = 0;
        self.input.decoder = Decoder::new(Encoding::Identity, 0);
    }
}

//! Calls of a server's methods from within the process, by tasks on its request threads. They are counted like calls of clients.

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Instant;

use api::Code;
use bytes::Bytes;
use contain::{Outside, outside};

use crate::Outbound;
use crate::http2::outflow::{Opening, Outflow};
use crate::runtime::held::{HeldBytes, HeldPart};
use crate::runtime::signal::Bell;
use crate::stats::Shard;
use crate::{
    Call, Kind, Metadata, Method, Peer, Reply, Responder, Service, Status, StreamCall, StreamHandler, StreamWaker,
};

/// What a call from within is made of.
#[derive(Clone, Debug)]
pub struct LocalCall {
    /// Index of the method in the service's table.
    pub method: usize,
    /// What would be the request headers.
    pub metadata: Metadata,
    /// When the caller stops waiting. The call ends by itself then.
    pub deadline: Option<Instant>,
    /// Whose request it is.
    pub peer: Peer,
}

impl LocalCall {
    /// Makes a unary call. Dropping the future cancels it.
    pub async fn unary(self, service: &dyn Service, message: Bytes) -> Result<Reply, Status> {
        let mut count = Count::begin(self.method);
        count.received(message.len());
        let (responder, reply) = Responder::local();
        let call = Call { message, metadata: self.metadata, deadline: self.deadline, peer: self.peer, is_alone: false };
        outside(|| service.unary(self.method, call, responder));
        let answer = match self.deadline {
            None => reply.answer().await,
            Some(at) => {
                tokio::time::timeout_at(at.into(), reply.answer()).await.unwrap_or(Err(Status::deadline_exceeded()))
            }
        };
        match &answer {
            Ok(reply) => {
                count.sent(1, reply.len());
                count.ended(Code::Ok);
            }
            Err(status) => count.ended(status.code),
        }
        answer
    }

    /// Begins a call of any other kind.
    pub fn stream(self, service: &dyn Service) -> Result<LocalStream, Status> {
        let Some(Method { kind, .. }) = service.methods().get(self.method) else {
            return Err(Status::new(Code::Internal, "there is no such method"));
        };
        let mut count = Count::begin(self.method);
        let bell = Arc::new(Bell::default());
        let waker = StreamWaker::local(bell.clone());
        let call = StreamCall { metadata: self.metadata, deadline: self.deadline, peer: self.peer, waker };
        let handler = outside(|| service.stream(self.method, call)).inspect_err(|status| count.ended(status.code))?;
        Ok(LocalStream {
            handler: Some(Outside::new(handler)),
            // There are no windows within the process.
            flow: Outflow::new(Opening::Sent, i64::MAX),
            held: HeldBytes::current().part(),
            taken_bytes: 0,
            bell,
            starved: false,
            is_single: *kind == Kind::ServerStream,
            has_message: false,
            half_closed: false,
            deadline: self.deadline.map(|at| Box::pin(tokio::time::sleep_until(at.into()))),
            count,
        })
    }
}

/// A streaming call from within. It makes progress only in these methods, so that a caller that takes no replies holds it back.
/// Dropping it cancels the call.
pub struct LocalStream {
    /// None once the call has ended.
    handler: Option<Outside<Box<dyn StreamHandler>>>,
    flow: Outflow,
    /// What of it is in the sum of all connections.
    held: HeldPart,
    /// What counts of the reply that was taken last: the caller still has it when it asks for the next one.
    taken_bytes: usize,
    bell: Arc<Bell>,
    /// The handler has found no room.
    starved: bool,
    /// The method takes exactly one message.
    is_single: bool,
    has_message: bool,
    half_closed: bool,
    deadline: Option<std::pin::Pin<Box<tokio::time::Sleep>>>,
    count: Count,
}

impl LocalStream {
    /// Whether the call takes another message now. If not, it does once replies were taken out, or never: it has ended.
    pub fn has_room(&mut self) -> bool {
        self.flow.allow(self.held.sum().stream_room());
        self.handler.is_some() && !self.half_closed && Outbound::new(&mut self.flow).has_room()
    }

    /// Sends a message, also without room: the caller bounds what it sends. A call that has ended takes it and does nothing.
    pub fn send(&mut self, message: Bytes) {
        if self.handler.is_none() || self.half_closed {
            return;
        }
        self.count.received(message.len());
        if self.is_single && std::mem::replace(&mut self.has_message, true) {
            return self.end(super::decoder::too_many_messages());
        }
        self.drive(|handler, out| handler.message(message, out));
    }

    /// Says that no more messages will come.
    pub fn half_close(&mut self) {
        if self.half_closed {
            return;
        }
        self.half_closed = true;
        if self.is_single && !self.has_message {
            return self.end(super::decoder::no_message());
        }
        self.drive(|handler, out| handler.half_closed(out));
    }

    /// The next reply; or the status that the call has ended with, OK included.
    pub fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Result<Reply, Status>> {
        self.taken_bytes = 0;
        let next = self.poll_reply(cx);
        self.tell_held();
        next
    }

    fn poll_reply(&mut self, cx: &mut Context<'_>) -> Poll<Result<Reply, Status>> {
        loop {
            if self.handler.is_some() && self.bell.poll(cx) {
                self.drive(|handler, out| handler.ready(out));
            }
            let before = self.flow.left();
            if let Some(reply) = self.flow.pop() {
                self.taken_bytes = before.saturating_sub(self.flow.left());
                return Poll::Ready(Ok(reply));
            }
            if let Some(status) = self.flow.take_status() {
                self.handler = None;
                self.bell.mute();
                self.count.ended(status.code);
                return Poll::Ready(Err(status));
            }
            if self.handler.is_none() {
                return Poll::Ready(Err(Status::OK));
            }
            // Everything was taken out, so there is room.
            if std::mem::take(&mut self.starved) {
                self.drive(|handler, out| handler.ready(out));
                continue;
            }
            let is_late = self.deadline.as_mut().is_some_and(|deadline| deadline.as_mut().poll(cx).is_ready());
            if !is_late {
                return Poll::Pending;
            }
            self.end(Status::deadline_exceeded());
        }
    }

    /// The same as a future, which may be dropped without losing a reply.
    pub async fn next(&mut self) -> Result<Reply, Status> {
        std::future::poll_fn(|cx| self.poll_next(cx)).await
    }

    fn end(&mut self, status: Status) {
        self.flow.finish(status);
    }

    fn tell_held(&mut self) {
        self.held.tell(self.flow.held_bytes().saturating_add(self.taken_bytes));
    }

    fn drive(&mut self, call: impl FnOnce(&mut dyn StreamHandler, &mut Outbound<'_>)) {
        self.flow.allow(self.held.sum().stream_room());
        let Some(handler) = &mut self.handler else { return };
        let mut out = Outbound::new(&mut self.flow);
        handler.call(|handler| call(&mut **handler, &mut out));
        self.starved |= !out.has_room();
        let (messages, bytes) = out.counts();
        if messages > 0 {
            self.count.sent(messages, bytes);
        }
        self.tell_held();
    }
}

impl Drop for LocalStream {
    fn drop(&mut self) {
        self.bell.mute();
    }
}

impl fmt::Debug for LocalStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LocalStream").field("flow", &self.flow).finish_non_exhaustive()
    }
}

/// Counts one call in the counters of the thread that makes it. A call that was dropped before its end counts as canceled.
struct Count {
    method: usize,
    shard: Option<Arc<Shard>>,
    began: Instant,
    is_over: bool,
}

impl Count {
    fn begin(method: usize) -> Count {
        let shard = Shard::current();
        if let Some(shard) = &shard {
            shard.started(method);
        }
        Count { method, shard, began: Instant::now(), is_over: false }
    }

    fn received(&self, bytes: usize) {
        if let Some(shard) = &self.shard {
            shard.received(self.method, bytes);
        }
    }

    fn sent(&self, messages: u64, bytes: usize) {
        if let Some(shard) = &self.shard {
            shard.sent(self.method, messages, bytes);
        }
    }

    fn ended(&mut self, code: Code) {
        if let Some(shard) = &self.shard
            && !std::mem::replace(&mut self.is_over, true)
        {
            shard.ended(self.method, code, self.began);
        }
    }
}

impl Drop for Count {
    fn drop(&mut self) {
        self.ended(Code::Canceled);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{HttpResponder, Method};
    use api::limits::STREAM_SEND_BYTES_MAX;

    /// Sends more than anybody takes.
    struct Flood;

    const MESSAGE_BYTES: usize = 100_000;

    impl Service for Flood {
        fn methods(&self) -> &'static [Method] {
            &[Method { path: "/test.Flood/Flood", kind: Kind::ServerStream }]
        }

        fn unary(&self, _method: usize, _call: Call, _responder: Responder) {}

        fn stream(&self, _method: usize, _call: StreamCall) -> Result<Box<dyn StreamHandler>, Status> {
            Ok(Box::new(Flood))
        }

        fn http(&self, _request: http::Request<Bytes>, _responder: HttpResponder) {}
    }

    impl StreamHandler for Flood {
        fn message(&mut self, _message: Bytes, out: &mut Outbound<'_>) {
            self.ready(out);
        }

        fn half_closed(&mut self, _out: &mut Outbound<'_>) {}

        fn ready(&mut self, out: &mut Outbound<'_>) {
            while out.has_room() {
                out.send(vec![7; MESSAGE_BYTES].into());
            }
        }
    }

    #[test]
    fn what_nobody_takes_counts_among_what_waits_for_clients() {
        let held = HeldBytes::new(2 * STREAM_SEND_BYTES_MAX);
        held.enter();
        let call = || {
            let metadata = Metadata::from_iter([("", "")]);
            let call = LocalCall { method: 0, metadata, deadline: None, peer: Peer::unknown(crate::Address::Unix) };
            let mut stream = call.stream(&Flood).expect("a stream");
            stream.send("x".into());
            stream
        };
        let mut streams = vec![call(), call()];
        assert!(held.is_crowded());
        // One message more, which is more than a share.
        let before = held.bytes();
        streams.push(call());
        assert!((MESSAGE_BYTES..2 * MESSAGE_BYTES).contains(&(held.bytes() - before)), "{}", held.bytes() - before);
        // It continues as it is taken, and what was taken counts until the next is asked for.
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        for stream in &mut streams {
            for _ in 0..100 {
                assert_eq!(runtime.block_on(stream.next()).map(|reply| reply.len()), Ok(MESSAGE_BYTES));
                assert!(stream.held.sum().bytes() >= MESSAGE_BYTES);
            }
        }
        drop(streams);
        assert_eq!(held.bytes(), 0);
    }
}

//! The responder of a call: takes its answer, from any thread.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::ptr;
use std::sync::Arc;
use std::time::Duration;

use api::Code;
use bytes::Bytes;
use contain::outside;
use tokio::sync::oneshot;

use super::body::Body;
use super::pipe::{BodySender, pipe_out};
use crate::http2::exchange::Slot;
use crate::runtime::held::HeldBytes;
use crate::runtime::mailbox::Mail;
use crate::runtime::signal::Signal;
use crate::{Reply, Status, StreamWaker};

/// An answer on its way to the connection.
pub(crate) enum Answer {
    Grpc(Result<Reply, Status>),
    Http(Box<http::Response<Body>>),
}

thread_local! {
    /// The call that this thread is handing to the service right now.
    static CURRENT: Cell<*const Signal> = const { Cell::new(ptr::null()) };
    /// Its answer, if the service gave it at once.
    static ANSWER: RefCell<Option<Answer>> = const { RefCell::new(None) };
}

/// Runs `call`, which hands `signal` to the service, and returns the answer if there was one before it returned. Such an answer
/// never touches the mailbox.
pub(crate) fn inline(signal: &Arc<Signal>, call: impl FnOnce(Arc<Signal>)) -> Option<Answer> {
    CURRENT.set(Arc::as_ptr(signal));
    outside(|| call(signal.clone()));
    CURRENT.set(ptr::null());
    ANSWER.take()
}

fn deliver(signal: Arc<Signal>, answer: Answer) {
    if ptr::eq(CURRENT.get(), Arc::as_ptr(&signal)) {
        ANSWER.set(Some(answer));
    } else if !signal.is_ended() {
        let mailbox = signal.clone();
        mailbox.mailbox().post(Mail::Answer(signal, answer));
    }
}

/// Answers one unary call, once. Dropped without an answer it says that the server has stopped.
pub struct Responder {
    to: Option<To>,
    /// Told how the call ends.
    told: Option<Told>,
    /// Looks at the reply first.
    reviewer: Option<Reviewer>,
}

type Told = Box<dyn FnOnce(Result<&Reply, Code>) + Send>;
type Reviewer = Box<dyn FnOnce(Responder, Result<Reply, Status>) + Send>;

enum To {
    /// A stream of a connection.
    Stream(Arc<Signal>),
    /// A caller within the process.
    Caller(oneshot::Sender<ToCaller>),
}

/// What a caller within the process gets.
enum ToCaller {
    Answer(Result<Reply, Status>),
    /// The call is to be resumed by the caller's task.
    Resume(Box<dyn FnOnce(To) + Send>),
}

/// The answer to a call from within the process. Dropping it cancels the call.
pub struct LocalReply(oneshot::Receiver<ToCaller>);

impl LocalReply {
    /// Waits for it, and carries the call on where it waited for something ([`Responder::resume`]).
    pub async fn answer(self) -> Result<Reply, Status> {
        let mut receiver = self.0;
        loop {
            match receiver.await {
                Ok(ToCaller::Answer(answer)) => return answer,
                Ok(ToCaller::Resume(resume)) => {
                    let (sender, next) = oneshot::channel();
                    outside(|| resume(To::Caller(sender)));
                    receiver = next;
                }
                Err(_) => return Err(api::Error::Stopped.into()),
            }
        }
    }
}

impl Responder {
    pub(crate) fn new(signal: Arc<Signal>) -> Responder {
        Responder { to: Some(To::Stream(signal)), told: None, reviewer: None }
    }

    /// For a call from within the process: what is sent comes out of the receiver. Dropping that cancels the call.
    pub fn local() -> (Responder, LocalReply) {
        let (sender, receiver) = oneshot::channel();
        (Responder { to: Some(To::Caller(sender)), told: None, reviewer: None }, LocalReply(receiver))
    }

    /// Has `told` called with the reply or the code of the error when the answer is given, on the thread that gives it, after what an
    /// earlier call of this asked for.
    #[must_use]
    pub fn notify(mut self, told: impl FnOnce(Result<&Reply, Code>) + Send + 'static) -> Responder {
        self.told = Some(match self.told.take() {
            None => Box::new(told),
            Some(before) => Box::new(move |answer| {
                before(answer);
                told(answer);
            }),
        });
        self
    }

    /// Has `reviewer` called with the reply before the client has it, on the thread that gives it: it sends that on, or another one
    /// later.
    #[must_use]
    pub fn review(mut self, reviewer: impl FnOnce(Responder, Result<Reply, Status>) + Send + 'static) -> Responder {
        self.reviewer = Some(Box::new(reviewer));
        self
    }

    /// Sends the reply, or the status that the call ends with. A status that says OK is an empty message.
    pub fn send(mut self, reply: Result<Reply, Status>) {
        self.deliver(reply);
    }

    fn deliver(&mut self, reply: Result<Reply, Status>) {
        if let Some(reviewer) = self.reviewer.take() {
            let inner = Responder { to: self.to.take(), told: self.told.take(), reviewer: None };
            return reviewer(inner, reply);
        }
        if let Some(told) = self.told.take() {
            told(reply.as_ref().map_err(|status| status.code));
        }
        match self.to.take() {
            Some(To::Stream(signal)) => deliver(signal, Answer::Grpc(reply)),
            // A caller that has gone needs no reply.
            Some(To::Caller(sender)) => drop(sender.send(ToCaller::Answer(reply))),
            None => {}
        }
    }

    /// Has the call carried on by its connection's thread, between that thread's other calls, and a call from within the process by its
    /// caller's task: `then` sends the reply, or keeps the responder. For calls that waited for something, when the thread that has it is
    /// needed elsewhere. Dropped where nobody waits for the reply any more. Called at once where the call is being handed to the service
    /// right now.
    pub fn resume(mut self, then: impl FnOnce(Responder) + Send + 'static) {
        if let Some(To::Caller(sender)) = self.to.take_if(|to| matches!(to, To::Caller(_))) {
            // A caller that has gone drops it.
            let resume = move |to| {
                self.to = Some(to);
                then(self);
            };
            return drop(sender.send(ToCaller::Resume(Box::new(resume))));
        }
        match &self.to {
            Some(To::Stream(signal)) if ptr::eq(CURRENT.get(), Arc::as_ptr(signal)) => then(self),
            // No client waits for the reply any more.
            Some(To::Stream(signal)) if signal.is_ended() => {}
            Some(To::Stream(signal)) => {
                let signal = signal.clone();
                let mailbox = signal.clone();
                mailbox.mailbox().post(Mail::Resume(signal, Box::new(move || then(self))));
            }
            Some(To::Caller(_)) | None => {}
        }
    }

    /// Whether no client waits for the reply any more: the stream was reset, the client has gone, or the deadline has passed.
    pub fn is_canceled(&self) -> bool {
        match &self.to {
            Some(To::Stream(signal)) => signal.is_ended(),
            Some(To::Caller(sender)) => sender.is_closed(),
            None => true,
        }
    }
}

impl Drop for Responder {
    fn drop(&mut self) {
        // Without a way to the client, it is on its way to a caller that has gone: whoever is told how calls end still hears it.
        if self.to.is_some() || self.told.is_some() {
            self.deliver(Err(api::Error::Stopped.into()));
        }
    }
}

impl fmt::Debug for Responder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Responder").field("is_canceled", &self.is_canceled()).finish_non_exhaustive()
    }
}

/// How often a wait for the end of an HTTP/2 client looks whether it is still there.
const GONE_LOOK: Duration = Duration::from_millis(200);

/// Answers one HTTP request, once. Dropped without an answer it says 503. A response with the header `connection: close` ends the
/// connection, whatever version of HTTP it speaks.
pub struct HttpResponder {
    to: Option<HttpTo>,
    /// Headers of every response.
    headers: http::HeaderMap,
}

enum HttpTo {
    /// A stream of an HTTP/2 connection.
    Stream(Arc<Signal>),
    /// The same, for a request whose body comes in pieces.
    Exchange(Arc<Slot>, StreamWaker),
    /// A task that serves an HTTP/1.1 connection.
    Task(oneshot::Sender<http::Response<Body>>),
}

impl HttpResponder {
    fn new(to: HttpTo) -> HttpResponder {
        HttpResponder { to: Some(to), headers: http::HeaderMap::new() }
    }

    pub(crate) fn stream(signal: Arc<Signal>) -> HttpResponder {
        HttpResponder::new(HttpTo::Stream(signal))
    }

    pub(crate) fn exchange(slot: Arc<Slot>, waker: StreamWaker) -> HttpResponder {
        HttpResponder::new(HttpTo::Exchange(slot, waker))
    }

    pub(crate) fn task(sender: oneshot::Sender<http::Response<Body>>) -> HttpResponder {
        HttpResponder::new(HttpTo::Task(sender))
    }

    /// Adds a header to any later response.
    pub fn add_header(&mut self, name: http::HeaderName, value: http::HeaderValue) {
        self.headers.append(name, value);
    }

    /// Sends the response.
    pub fn send(mut self, response: http::Response<Bytes>) {
        self.deliver(response.map(Body::Whole));
    }

    /// Sends the beginning of the response; its body goes through what is returned.
    pub fn begin(mut self, head: http::Response<()>) -> BodySender {
        let (sender, receiver) = pipe_out(&HeldBytes::current());
        self.deliver(head.map(|()| Body::Piped(receiver)));
        sender
    }

    /// Waits until the client no longer waits for the response.
    pub async fn gone(&mut self) {
        let is_gone = |to: &HttpTo| match to {
            HttpTo::Stream(signal) => signal.is_ended(),
            // The other one is the stream's.
            HttpTo::Exchange(slot, _) => Arc::strong_count(slot) == 1,
            HttpTo::Task(sender) => sender.is_closed(),
        };
        match &mut self.to {
            None => {}
            Some(HttpTo::Task(sender)) => sender.closed().await,
            Some(to) => {
                while !is_gone(to) {
                    tokio::time::sleep(GONE_LOOK).await;
                }
            }
        }
    }

    fn deliver(&mut self, mut response: http::Response<Body>) {
        let mut last = None;
        for (name, value) in self.headers.drain() {
            last = name.or(last);
            if let Some(name) = &last {
                response.headers_mut().append(name, value);
            }
        }
        match self.to.take() {
            Some(HttpTo::Stream(signal)) => deliver(signal, Answer::Http(Box::new(response))),
            Some(HttpTo::Exchange(slot, waker)) => {
                slot.put(response);
                waker.wake();
            }
            // A client that has gone needs no response.
            Some(HttpTo::Task(sender)) => drop(sender.send(response)),
            None => {}
        }
    }
}

impl Drop for HttpResponder {
    fn drop(&mut self) {
        if self.to.is_some() {
            let mut response = plain_response(http::StatusCode::SERVICE_UNAVAILABLE);
            if matches!(self.to, Some(HttpTo::Task(_))) {
                // The code that should have answered has stopped, or has panicked.
                response.headers_mut().insert(http::header::CONNECTION, http::HeaderValue::from_static("close"));
            }
            self.deliver(response.map(Body::Whole));
        }
    }
}

impl fmt::Debug for HttpResponder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpResponder").finish_non_exhaustive()
    }
}

/// A response with the name of its status for a body.
pub(crate) fn plain_response(status: http::StatusCode) -> http::Response<Bytes> {
    let text = status.canonical_reason().unwrap_or("");
    let mut response = http::Response::new(Bytes::from(format!("{text}\n")));
    *response.status_mut() = status;
    let content_type = http::HeaderValue::from_static("text/plain; charset=utf-8");
    response.headers_mut().insert(http::header::CONTENT_TYPE, content_type);
    response
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[test]
    fn the_end_of_a_call_is_told_once_also_if_its_caller_goes_while_it_is_resumed() {
        let told = Arc::new(AtomicUsize::new(0));
        let count = || {
            let told = told.clone();
            move |_: Result<&Reply, Code>| {
                told.fetch_add(1, Ordering::Relaxed);
            }
        };
        let (responder, reply) = Responder::local();
        responder.notify(count()).resume(|_| panic!("its caller has gone"));
        drop(reply);
        assert_eq!(told.load(Ordering::Relaxed), 1);
        let (responder, reply) = Responder::local();
        responder.notify(count()).send(Err(api::Error::Stopped.into()));
        drop(reply);
        assert_eq!(told.load(Ordering::Relaxed), 2);
    }
}

//! A client's stream of keep-alives.

use api::etcdserverpb::LeaseKeepAliveRequest;
use api::{Code, Error, Message};
use budget::Claim;
use bytes::Bytes;
use parking_lot::Mutex;
use rpc::{Outbound, Status, StreamHandler};
use std::collections::VecDeque;
use std::sync::Arc;
use tokio::sync::mpsc::UnboundedSender;

use super::{ClientId, Command};

/// What a request takes until its answer is sent.
const REQUEST_BYTES: usize = 256;

/// What a client is to be sent, and how many of its requests are not answered yet.
pub(super) struct Mailbox {
    state: Mutex<State>,
    wake: Box<dyn Fn() + Send + Sync>,
}

impl std::fmt::Debug for Mailbox {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Mailbox").field("state", &self.state).finish_non_exhaustive()
    }
}

#[derive(Debug, Default)]
struct State {
    answers: VecDeque<Bytes>,
    asked: usize,
    end: Option<Status>,
}

impl Mailbox {
    /// `wake` has the client's connection look at it.
    pub(super) fn new(wake: impl Fn() + Send + Sync + 'static) -> Mailbox {
        Mailbox { state: Mutex::default(), wake: Box::new(wake) }
    }

    /// What waits for the client.
    #[cfg(test)]
    pub(super) fn take(&self) -> (Vec<Bytes>, Option<Status>) {
        let mut state = self.state.lock();
        (std::mem::take(&mut state.answers).into(), state.end.take())
    }

    /// An answer has come.
    pub(super) fn push(&self, answer: Bytes) {
        self.state.lock().answers.push_back(answer);
        (self.wake)();
    }

    /// The stream ends behind what was pushed.
    pub(super) fn end(&self, status: Status) {
        self.state.lock().end = Some(status);
        (self.wake)();
    }
}

/// The client's side.
pub(crate) struct KeepingAlive {
    id: ClientId,
    mailbox: Arc<Mailbox>,
    commands: UnboundedSender<Command>,
    /// For the stream itself.
    _own: Claim,
    /// For its requests.
    claim: Claim,
}

impl KeepingAlive {
    pub(super) fn new(
        id: ClientId,
        mailbox: Arc<Mailbox>,
        commands: UnboundedSender<Command>,
        (own, claim): (Claim, Claim),
    ) -> KeepingAlive {
        KeepingAlive { id, mailbox, commands, _own: own, claim }
    }

    /// The circle lives as long as it has a client.
    fn command(&self, command: Command) {
        let _ = self.commands.send(command);
    }
}

impl StreamHandler for KeepingAlive {
    fn message(&mut self, message: Bytes, out: &mut Outbound<'_>) {
        let request = match LeaseKeepAliveRequest::decode(message) {
            Ok(request) => request,
            Err(error) => {
                let text = format!("grpc: error unmarshalling request: {error}");
                return out.finish(Status::new(Code::Internal, text));
            }
        };
        let held = self.held_bytes().saturating_add(REQUEST_BYTES);
        if held > api::limits::BUDGET_FREE_BYTES && !self.claim.resize(held as u64) {
            return out.finish(Error::TooManyRequests.into());
        }
        let mut state = self.mailbox.state.lock();
        state.asked = state.asked.saturating_add(1);
        drop(state);
        self.command(Command::Ask(self.id, request.id));
    }

    fn half_closed(&mut self, _out: &mut Outbound<'_>) {
        self.command(Command::HalfClose(self.id));
    }

    fn ready(&mut self, out: &mut Outbound<'_>) {
        let mut state = self.mailbox.state.lock();
        // However little room there is: nothing more is asked for where there is none, and leases would end.
        while let Some(answer) = state.answers.pop_front() {
            state.asked = state.asked.saturating_sub(1);
            out.send(answer);
        }
        if let Some(status) = state.end.take() {
            out.finish(status);
        }
        drop(state);
        let held = self.held_bytes() as u64;
        if self.claim.bytes() > held {
            // Less is always granted.
            self.claim.resize(held);
        }
    }

    fn answers_in_a_crowd(&self) -> bool {
        self.mailbox.state.lock().asked == 0
    }

    fn held_bytes(&self) -> usize {
        self.mailbox.state.lock().asked.saturating_mul(REQUEST_BYTES)
    }
}

impl Drop for KeepingAlive {
    fn drop(&mut self) {
        self.command(Command::Close(self.id));
    }
}

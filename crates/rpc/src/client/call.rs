//! The caller's side of a call with any number of messages both ways.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use api::Code;
use bytes::Bytes;
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, timeout_at};

use super::channel::Guard;
use super::task::{Command, Piece};
use crate::Status;
use crate::grpc::decoder::Decoder;
use crate::grpc::encoding::Encoding;
use crate::grpc::payload::PREFIX_BYTES;

/// Done when the server's windows have taken a message, or the call has ended.
#[derive(Debug)]
pub struct Taken(oneshot::Receiver<()>);

impl Future for Taken {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        Pin::new(&mut self.0).poll(cx).map(drop)
    }
}

/// What is released while more is held, at least: small messages do not each release their own.
const RELEASE_BYTES_MIN: usize = 4 * 1024;

/// What is read but not yet asked for is held to the stream's window. Dropping it gives the call up.
pub struct StreamingCall {
    guard: Guard,
    incoming: mpsc::UnboundedReceiver<Piece>,
    decoder: Decoder,
    /// Bytes that came and are not released.
    held_bytes: usize,
    deadline: Option<Instant>,
    ended: Option<Status>,
}

impl StreamingCall {
    pub(super) fn new(
        guard: Guard,
        incoming: mpsc::UnboundedReceiver<Piece>,
        message_bytes_max: usize,
        deadline: Option<Instant>,
    ) -> StreamingCall {
        let decoder = Decoder::new(Encoding::Identity, message_bytes_max);
        StreamingCall { guard, incoming, decoder, held_bytes: 0, deadline, ended: None }
    }

    /// Sends a message; ready when the server's windows have taken it. An error says that the call has ended: [`StreamingCall::next`]
    /// tells how.
    pub async fn send(&mut self, message: Bytes) -> Result<(), Status> {
        let (sent, taken) = oneshot::channel();
        let number = self.guard.number;
        let ended = || Status::new(Code::Unavailable, "the call has ended");
        self.guard.commands.send(Command::Send { number, message, sent }).map_err(|_| ended())?;
        let taken = async { taken.await.map_err(|_| ended()) };
        match self.deadline {
            None => taken.await,
            Some(deadline) => timeout_at(deadline, taken).await.unwrap_or_else(|_| Err(Status::deadline_exceeded())),
        }
    }

    /// Sends a message, and leaves it to the caller to wait until it is taken before there is another one: answers can be read meanwhile,
    /// without which a server may take no more.
    pub fn post(&mut self, message: Bytes) -> Taken {
        let (sent, taken) = oneshot::channel();
        // Of a call that has ended `taken` is done at once.
        let _ = self.guard.commands.send(Command::Send { number: self.guard.number, message, sent });
        Taken(taken)
    }

    /// Says that no more messages will be sent.
    pub fn finish(&mut self) {
        // A call that has ended needs no end.
        let _ = self.guard.commands.send(Command::Finish(self.guard.number));
    }

    /// The next message. `None` when the server has ended the call with OK.
    pub async fn next(&mut self) -> Result<Option<Bytes>, Status> {
        loop {
            if let Some(status) = &self.ended {
                return if *status == Status::OK { Ok(None) } else { Err(status.clone()) };
            }
            match self.decoder.next() {
                Ok(Some(message)) => {
                    self.release(self.decoder.held_bytes());
                    return Ok(Some(message));
                }
                Ok(None) => self.release(0),
                Err(status) => {
                    self.end(status);
                    continue;
                }
            }
            self.receive().await;
        }
    }

    /// The length of the next message, as soon as that has come; `None` when the server has ended the call with OK. The server sends no
    /// more than the stream's window before [`StreamingCall::next`] is called: time to find room for the message.
    pub async fn next_len(&mut self) -> Result<Option<usize>, Status> {
        loop {
            if let Some(status) = &self.ended {
                return if *status == Status::OK { Ok(None) } else { Err(status.clone()) };
            }
            if self.decoder.held_bytes() >= PREFIX_BYTES {
                // What is wrong with it `next` tells.
                return Ok(Some(self.decoder.next_len().unwrap_or(0)));
            }
            self.release(0);
            self.receive().await;
        }
    }

    /// Takes in what comes next.
    async fn receive(&mut self) {
        let piece = self.incoming.recv();
        let piece = match self.deadline {
            None => piece.await,
            Some(deadline) => match timeout_at(deadline, piece).await {
                Ok(piece) => piece,
                Err(_) => Some(Piece::End(Status::deadline_exceeded())),
            },
        };
        match piece {
            Some(Piece::Data(data)) => {
                self.decoder.push(&data);
                self.held_bytes = self.held_bytes.saturating_add(data.len());
            }
            Some(Piece::End(status)) if status == Status::OK && self.decoder.held_bytes() > 0 => {
                self.end(Status::new(Code::Internal, "the answer ended inside a message"));
            }
            Some(Piece::End(status)) => self.end(status),
            None => self.end(Status::new(Code::Unavailable, "connection lost: nobody reads it any more")),
        }
    }

    /// Lets the server send more, for all but `kept` bytes that are still held. A message that is not complete is not held back by that:
    /// its length is bounded.
    fn release(&mut self, kept: usize) {
        let bytes = self.held_bytes.saturating_sub(kept);
        if bytes >= RELEASE_BYTES_MIN || (kept == 0 && bytes > 0) {
            self.held_bytes = self.held_bytes.saturating_sub(bytes);
            let _ = self.guard.commands.send(Command::Release { number: self.guard.number, bytes });
        }
    }

    fn end(&mut self, status: Status) {
        self.ended = Some(status);
        let _ = self.guard.commands.send(Command::Cancel(self.guard.number));
    }
}

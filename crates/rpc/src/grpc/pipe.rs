//! A bounded pipe of bytes between two tasks or threads: the body of an HTTP message in pieces.

use std::collections::VecDeque;
use std::fmt;
use std::future::poll_fn;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use bytes::{Bytes, BytesMut};

use crate::runtime::held::{HeldBytes, HeldPart, STREAM_BYTES_SHARE};

/// Bytes in a pipe beyond which the writer waits.
pub(crate) const ROOM_BYTES: usize = 256 * 1024;

/// Chunks of fewer bytes are gathered where the reader does not take them at once.
const SMALL_BYTES: usize = 1024;

/// The other end is gone, or the body broke off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gone;

impl fmt::Display for Gone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the other end of the body is gone")
    }
}

impl std::error::Error for Gone {}

#[derive(Default)]
struct State {
    chunks: VecDeque<Bytes>,
    /// Small chunks that came after those: each by itself would take several times its length.
    small: BytesMut,
    bytes: usize,
    /// Nothing more will be written.
    ended: bool,
    /// And what was written is not all there was to be.
    broken: bool,
    /// Nothing more will be read.
    unread: bool,
    reader: Option<Waker>,
    writer: Option<Waker>,
    /// Its part of the sum of output that waits for clients, if a client reads it.
    held: Option<HeldPart>,
}

impl State {
    /// Adds a chunk behind what is there.
    fn push(&mut self, chunk: Bytes) {
        self.bytes = self.bytes.saturating_add(chunk.len());
        let is_small = chunk.len() < SMALL_BYTES;
        if is_small && !(self.chunks.is_empty() && self.small.is_empty()) {
            self.small.extend_from_slice(&chunk);
            if self.small.len() >= SMALL_BYTES {
                self.gather();
            }
            return;
        }
        self.gather();
        self.chunks.push_back(chunk);
    }

    /// Makes one chunk of the small ones.
    fn gather(&mut self) {
        if !self.small.is_empty() {
            self.chunks.push_back(std::mem::take(&mut self.small).freeze());
        }
    }

    /// Takes the first chunk.
    fn pop(&mut self) -> Option<Bytes> {
        if self.chunks.is_empty() {
            self.gather();
        }
        let chunk = self.chunks.pop_front()?;
        // It was added for the same chunks.
        self.bytes = self.bytes.saturating_sub(chunk.len());
        Some(chunk)
    }

    fn weigh(&mut self) {
        if let Some(held) = &mut self.held {
            held.tell(self.bytes);
        }
    }

    /// Bytes beyond which the writer waits. What it waits for is always that some of them are read.
    fn room_bytes(&self) -> usize {
        let is_crowded = self.held.as_ref().is_some_and(|held| held.sum().is_crowded());
        if is_crowded { STREAM_BYTES_SHARE } else { ROOM_BYTES }
    }
}

#[derive(Clone)]
struct Shared(Arc<Mutex<State>>);

impl Shared {
    /// Nothing that holds it can panic half way.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A pipe from a client.
pub(crate) fn pipe() -> (BodySender, BodyReceiver) {
    ends(None)
}

/// A pipe to a client. What is in it counts among what waits for clients.
pub(crate) fn pipe_out(held: &HeldBytes) -> (BodySender, BodyReceiver) {
    ends(Some(held.part()))
}

fn ends(held: Option<HeldPart>) -> (BodySender, BodyReceiver) {
    let shared = Shared(Arc::new(Mutex::new(State { held, ..State::default() })));
    (BodySender { shared: shared.clone(), ended: false }, BodyReceiver { shared })
}

/// Writes a body. Dropped without [`BodySender::finish`] the body is broken, which its reader learns.
pub struct BodySender {
    shared: Shared,
    ended: bool,
}

impl BodySender {
    /// Adds `chunk` once there is room.
    pub async fn send(&mut self, chunk: Bytes) -> Result<(), Gone> {
        poll_fn(|cx| self.poll_room(cx)).await?;
        self.put(chunk);
        Ok(())
    }

    /// Whether there is room; an error if the reader is gone.
    fn poll_room(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Gone>> {
        let mut state = self.shared.lock();
        if state.unread {
            return Poll::Ready(Err(Gone));
        }
        if state.bytes < state.room_bytes() {
            return Poll::Ready(Ok(()));
        }
        state.writer = Some(cx.waker().clone());
        Poll::Pending
    }

    /// Waits until the reader is gone.
    pub async fn gone(&mut self) {
        poll_fn(|cx| {
            let mut state = self.shared.lock();
            if state.unread {
                return Poll::Ready(());
            }
            state.writer = Some(cx.waker().clone());
            Poll::Pending
        })
        .await;
    }

    /// Adds `chunk` without regard to the bound: the caller bounds it in another way.
    pub(crate) fn put(&mut self, chunk: Bytes) {
        let mut state = self.shared.lock();
        if chunk.is_empty() || state.unread {
            return;
        }
        state.push(chunk);
        state.weigh();
        wake(state, |state| &mut state.reader);
    }

    /// Ends the body after what was written.
    pub fn finish(mut self) {
        self.end(false);
    }

    /// The same, for a caller that cannot give it away.
    pub(crate) fn end(&mut self, broken: bool) {
        if std::mem::replace(&mut self.ended, true) {
            return;
        }
        let mut state = self.shared.lock();
        state.ended = true;
        state.broken = broken;
        wake(state, |state| &mut state.reader);
    }

    /// Bytes that are not read yet. `waker` is for when some are.
    pub(crate) fn held_bytes(&self, waker: &Waker) -> usize {
        let mut state = self.shared.lock();
        if state.bytes > 0 && state.writer.as_ref().is_none_or(|other| !other.will_wake(waker)) {
            state.writer = Some(waker.clone());
        }
        state.bytes
    }
}

impl Drop for BodySender {
    fn drop(&mut self) {
        self.end(true);
    }
}

/// Reads a body. Dropped before its end, its writer learns that.
pub(crate) struct BodyReceiver {
    shared: Shared,
}

impl BodyReceiver {
    /// The next chunk; none at the end of the body, an error if it broke off.
    pub(crate) fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, Gone>>> {
        let mut state = self.shared.lock();
        if let Some(chunk) = state.pop() {
            state.weigh();
            wake(state, |state| &mut state.writer);
            return Poll::Ready(Some(Ok(chunk)));
        }
        if state.ended {
            return Poll::Ready(state.broken.then_some(Err(Gone)));
        }
        state.reader = Some(cx.waker().clone());
        Poll::Pending
    }
}

impl Drop for BodyReceiver {
    fn drop(&mut self) {
        let mut state = self.shared.lock();
        state.unread = true;
        state.chunks = VecDeque::new();
        state.small = BytesMut::new();
        state.bytes = 0;
        state.weigh();
        wake(state, |state| &mut state.writer);
    }
}

/// Wakes the waiter at one end, outside the lock.
fn wake(mut state: MutexGuard<'_, State>, end: impl FnOnce(&mut State) -> &mut Option<Waker>) {
    let waiting = end(&mut state).take();
    drop(state);
    if let Some(waker) = waiting {
        waker.wake();
    }
}

impl fmt::Debug for BodySender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BodySender").field("bytes", &self.shared.lock().bytes).finish_non_exhaustive()
    }
}

impl fmt::Debug for BodyReceiver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BodyReceiver").field("bytes", &self.shared.lock().bytes).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn runtime() -> tokio::runtime::Runtime {
        tokio::runtime::Builder::new_current_thread().build().expect("a runtime")
    }

    async fn next(receiver: &mut BodyReceiver) -> Option<Result<Bytes, Gone>> {
        poll_fn(|cx| receiver.poll_next(cx)).await
    }

    #[test]
    fn a_writer_waits_for_its_reader() {
        let (mut sender, mut receiver) = pipe();
        runtime().block_on(async {
            let writing = tokio::spawn(async move {
                for _ in 0..16 {
                    sender.send(vec![1; ROOM_BYTES / 4].into()).await?;
                }
                sender.finish();
                Ok::<(), Gone>(())
            });
            let mut read = 0;
            while let Some(chunk) = next(&mut receiver).await {
                assert!(receiver.shared.lock().bytes <= ROOM_BYTES);
                read += chunk.expect("a whole body").len();
            }
            assert_eq!(read, 4 * ROOM_BYTES);
            assert!(writing.await.is_ok_and(|sent| sent.is_ok()));
        });
    }

    #[test]
    fn a_pipe_to_a_client_counts_among_what_waits() {
        let held = HeldBytes::new(2 * ROOM_BYTES);
        runtime().block_on(async {
            let chunk = || Bytes::from(vec![1; 64 << 10]);
            let mut full = Vec::new();
            for _ in 0..2 {
                let (mut sender, receiver) = pipe_out(&held);
                assert!(!held.is_crowded());
                for _ in 0..ROOM_BYTES / chunk().len() {
                    sender.send(chunk()).await.expect("room");
                }
                full.push((sender, receiver));
            }
            // Everybody has a little; then it waits for its own reader.
            assert!(held.is_crowded());
            let (mut sender, mut receiver) = pipe_out(&held);
            sender.send(chunk()).await.expect("room");
            let waits = poll_fn(|cx| Poll::Ready(sender.poll_room(cx).is_pending())).await;
            assert!(waits);
            assert!(next(&mut receiver).await.is_some());
            sender.send(chunk()).await.expect("room");
            drop((full, sender, receiver));
            assert_eq!(held.bytes(), 0);
        });
    }

    #[test]
    fn small_chunks_are_gathered_where_nobody_reads() {
        let (mut sender, mut receiver) = pipe();
        let mut written = Vec::new();
        for number in 0..20_000_usize {
            let len = if number.is_multiple_of(1_000) { 3_000 } else { 1 };
            let chunk = vec![number as u8; len];
            written.extend_from_slice(&chunk);
            sender.put(chunk.into());
        }
        let state = receiver.shared.lock();
        assert_eq!(state.bytes, written.len());
        assert!(state.chunks.len() < 100, "{} chunks", state.chunks.len());
        drop(state);
        sender.end(false);
        runtime().block_on(async {
            let mut read = Vec::new();
            while let Some(chunk) = next(&mut receiver).await {
                read.extend_from_slice(&chunk.expect("a whole body"));
            }
            assert!(read == written);
        });
        assert_eq!(receiver.shared.lock().bytes, 0);
    }

    #[test]
    fn both_ends_learn_of_the_other() {
        let (mut sender, mut receiver) = pipe();
        runtime().block_on(async {
            sender.send("x".into()).await.expect("room");
            drop(sender);
            assert_eq!(next(&mut receiver).await, Some(Ok("x".into())));
            assert_eq!(next(&mut receiver).await, Some(Err(Gone)));
        });
        let (mut sender, receiver) = pipe();
        runtime().block_on(async {
            drop(receiver);
            sender.gone().await;
            assert_eq!(sender.send("x".into()).await, Err(Gone));
        });
    }
}

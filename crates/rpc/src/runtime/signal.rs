//! The part of a stream that other threads can hold.

use std::fmt;
use std::sync::{Arc, PoisonError};
use std::task::{Context, Wake, Waker};

use super::mailbox::{Mail, Mailbox};
use crate::mistake::Mistake;
use crate::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use crate::sync::{Mutex, MutexGuard};

/// Names one stream to everything outside its connection: responders and wakers hold it, the connection ends it. While it is not
/// ended, `connection` and `stream` are valid keys on the thread of its mailbox.
pub(crate) struct Signal {
    mailbox: Arc<Mailbox>,
    connection: usize,
    stream: AtomicUsize,
    /// Mail that names this signal is on its way.
    posted: AtomicBool,
    /// The handler asked to be called, rather than the transport.
    ready: AtomicBool,
    ended: AtomicBool,
}

impl Signal {
    pub(crate) fn new(mailbox: Arc<Mailbox>, connection: usize) -> Signal {
        Signal {
            mailbox,
            connection,
            stream: AtomicUsize::new(usize::MAX),
            posted: AtomicBool::new(false),
            ready: AtomicBool::new(false),
            ended: AtomicBool::new(false),
        }
    }

    /// As new, for another stream of the same thread.
    pub(crate) fn reset(&mut self, connection: usize) {
        self.connection = connection;
        self.stream = AtomicUsize::new(usize::MAX);
        self.posted = AtomicBool::new(false);
        self.ready = AtomicBool::new(false);
        self.ended = AtomicBool::new(false);
    }

    pub(crate) fn mailbox(&self) -> &Mailbox {
        &self.mailbox
    }

    /// Key of the connection on its thread.
    pub(crate) fn connection(&self) -> usize {
        self.connection
    }

    /// Key of the stream in its connection.
    pub(crate) fn stream(&self) -> usize {
        self.stream.load(Ordering::Relaxed)
    }

    /// Set once the stream has a key. Only the connection's thread reads it.
    pub(crate) fn set_stream(&self, stream: usize) {
        self.stream.store(stream, Ordering::Relaxed);
    }

    /// The stream is gone: answers to it are dropped, mail about it is ignored.
    pub(crate) fn end(&self) {
        self.ended.store(true, Ordering::Release);
    }

    pub(crate) fn is_ended(&self) -> bool {
        self.ended.load(Ordering::Acquire)
    }

    /// Clears the posted mark, before the stream is looked at. True if the handler asked to be called.
    pub(crate) fn take(&self) -> bool {
        if Mistake::ClearsReadyFirst.is_planted() {
            let ready = self.ready.swap(false, Ordering::SeqCst);
            self.posted.store(false, Ordering::SeqCst);
            return ready;
        }
        self.posted.store(false, Ordering::SeqCst);
        self.ready.swap(false, Ordering::SeqCst)
    }

    fn post(self: Arc<Self>) {
        if !self.posted.swap(true, Ordering::SeqCst) && !self.is_ended() {
            let mailbox = self.mailbox.clone();
            mailbox.post(Mail::Wake(self));
        }
    }
}

/// Has [`StreamHandler::ready`](crate::StreamHandler::ready) called on the stream's thread. May be used from any thread and as often
/// as one likes: uses before the call collapse into one, and uses after the stream has ended do nothing.
#[derive(Clone)]
pub struct StreamWaker {
    to: To,
}

#[derive(Clone)]
enum To {
    /// A stream of a connection.
    Stream(Arc<Signal>),
    /// A stream within the process.
    Caller(Arc<Bell>),
}

impl StreamWaker {
    pub(crate) fn new(signal: Arc<Signal>) -> StreamWaker {
        StreamWaker { to: To::Stream(signal) }
    }

    pub(crate) fn local(bell: Arc<Bell>) -> StreamWaker {
        StreamWaker { to: To::Caller(bell) }
    }

    /// Asks for the call.
    pub fn wake(&self) {
        match &self.to {
            To::Stream(signal) => {
                if !signal.ready.swap(true, Ordering::SeqCst) {
                    signal.clone().post();
                }
            }
            To::Caller(bell) => bell.ring(),
        }
    }

    /// Whether the stream has ended, so that no client waits for its answer: it was reset, its client is gone, or its deadline has
    /// passed.
    pub fn is_canceled(&self) -> bool {
        match &self.to {
            To::Stream(signal) => signal.is_ended(),
            To::Caller(bell) => bell.is_muted(),
        }
    }
}

impl Wake for StreamWaker {
    fn wake(self: Arc<Self>) {
        StreamWaker::wake(&self);
    }
}

/// Wakes the task that drives a stream within the process.
#[derive(Default)]
pub(crate) struct Bell {
    rung: AtomicBool,
    /// The stream has ended.
    muted: AtomicBool,
    task: Mutex<Option<Waker>>,
}

impl Bell {
    fn ring(&self) {
        if !self.rung.swap(true, Ordering::SeqCst)
            && let Some(task) = self.task().take()
        {
            task.wake();
        }
    }

    /// The stream has ended: answers to it are dropped.
    pub(crate) fn mute(&self) {
        self.muted.store(true, Ordering::Release);
    }

    fn is_muted(&self) -> bool {
        self.muted.load(Ordering::Acquire)
    }

    /// Whether it was rung since the last time. If not, the task of `cx` is woken when it is.
    pub(crate) fn poll(&self, cx: &Context<'_>) -> bool {
        if Mistake::LooksBeforeWaker.is_planted() {
            let rung = self.rung.swap(false, Ordering::SeqCst);
            *self.task() = Some(cx.waker().clone());
            return rung;
        }
        // The waker first: a ring between the two would be lost otherwise.
        *self.task() = Some(cx.waker().clone());
        self.rung.swap(false, Ordering::SeqCst)
    }

    /// A thread that panicked with it has left a waker or none, and both are valid.
    fn task(&self) -> MutexGuard<'_, Option<Waker>> {
        self.task.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for StreamWaker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StreamWaker").finish_non_exhaustive()
    }
}

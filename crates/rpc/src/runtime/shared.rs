//! State that a request thread shares with its connections.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Wake;
use std::time::Instant;

use super::deadline::Deadlines;
use super::gathering::Gathering;
use super::held::HeldBytes;
use super::mailbox::{Mail, Mailbox};
use super::signal::Signal;
use crate::grpc::routes::Routes;
use crate::stats::Shard;
use crate::sync::atomic::AtomicBool;
use crate::{Options, Service};

/// What the connections of one thread have in common.
pub(crate) struct Shared {
    pub(crate) service: Arc<dyn Service>,
    pub(crate) routes: Arc<Routes>,
    pub(crate) options: Arc<Options>,
    pub(crate) stats: Arc<Shard>,
    pub(crate) mailbox: Arc<Mailbox>,
    pub(crate) deadlines: Deadlines,
    /// What all connections of the server hold of requests.
    pub(crate) gathering: Arc<Gathering>,
    /// Bytes of replies and messages that wait in all connections of the server.
    pub(crate) held_bytes: HeldBytes,
    /// Room for the input of the connection that has its turn.
    pub(crate) input: Vec<u8>,
    /// Signals of streams that have ended, for others.
    pub(crate) signals: Vec<Arc<Signal>>,
    /// The time as of the last look at the clock.
    pub(crate) now: Instant,
}

/// Signals that are kept for other streams.
const SIGNALS_MAX: usize = 1024;

impl Shared {
    /// A signal for a stream of the connection under `key`.
    pub(crate) fn signal(&mut self, key: usize) -> Arc<Signal> {
        if let Some(mut signal) = self.signals.pop()
            && let Some(unused) = Arc::get_mut(&mut signal)
        {
            unused.reset(key);
            return signal;
        }
        Arc::new(Signal::new(self.mailbox.clone(), key))
    }

    /// Keeps `signal` for another stream if there is no other reference to it.
    pub(crate) fn recycle(&mut self, mut signal: Arc<Signal>) {
        if self.signals.len() < SIGNALS_MAX && Arc::get_mut(&mut signal).is_some() {
            self.signals.push(signal);
        }
    }
}

/// Wakes a connection: by mail, so that wake-ups collapse.
pub(crate) struct ConnectionWaker {
    mailbox: Arc<Mailbox>,
    key: usize,
    serial: u64,
    /// Mail is on its way, or would be for nothing.
    posted: AtomicBool,
}

impl ConnectionWaker {
    /// Not armed: the first turn comes by itself.
    pub(crate) fn new(mailbox: Arc<Mailbox>, key: usize, serial: u64) -> ConnectionWaker {
        ConnectionWaker { mailbox, key, serial, posted: AtomicBool::new(true) }
    }

    /// Wake-ups count from here.
    pub(crate) fn arm(&self) {
        self.posted.store(false, Ordering::SeqCst);
    }
}

impl Wake for ConnectionWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if !self.posted.swap(true, Ordering::SeqCst) {
            self.mailbox.post(Mail::Ready { key: self.key, serial: self.serial });
        }
    }
}

/// Counts one HTTP/1.1 connection while it lives.
pub(crate) struct Http1Guard {
    count: Arc<AtomicUsize>,
    pub(crate) stats: Arc<Shard>,
}

impl Http1Guard {
    pub(crate) fn new(count: Arc<AtomicUsize>, stats: Arc<Shard>) -> Http1Guard {
        count.fetch_add(1, Ordering::Relaxed);
        Http1Guard { count, stats }
    }
}

impl Drop for Http1Guard {
    fn drop(&mut self) {
        self.count.fetch_sub(1, Ordering::Relaxed);
        self.stats.open.fetch_sub(1, Ordering::Relaxed);
    }
}

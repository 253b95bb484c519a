//! `--client-share`: how much of the request threads' time one client may take while others want something too.
//!
//! What a call took is known when it is answered. A client that has taken more than its share waits with its next calls until it is even
//! again, so that nobody has to guess what a call will cost, and the calls of others find the threads free. A client that is alone waits
//! for nothing.

mod book;
#[cfg(test)]
mod tests;

pub(crate) use book::{Client, Entry, Turn};

use crate::system::thread_time;
use book::Book;
use contain::lock;
use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Condvar, Mutex};
use std::time::{Duration, Instant};

/// What a call costs beside what is measured: taking it from its socket, the log, applying a put.
const CALL_US: u64 = 2;
/// Copying and sending so many bytes takes about a microsecond.
const BYTES_PER_US: usize = 2048;
/// Calls that wait are let go on at most so often.
const PACE: Duration = Duration::from_millis(1);
/// Calls that wait are looked after at least so often: all other clients may have gone.
const LOOK: Duration = Duration::from_millis(100);

/// A call that may have to wait.
pub(crate) trait Held: Send {
    /// Whether nobody waits for its answer any more.
    fn is_gone(&self) -> bool;
    /// Has it go on.
    fn go_on(self: Box<Self>, turn: Turn);
    /// Too many wait.
    fn refuse(self: Box<Self>);
    /// The member stops.
    fn stop(self: Box<Self>);
}

/// The shares of all clients.
pub(crate) struct ClientShares {
    began: Instant,
    book: Mutex<Book<Box<dyn Held>>>,
    woken: Condvar,
    is_stopped: AtomicBool,
    /// Calls that had to wait.
    waited: AtomicU64,
}

thread_local! {
    /// What this thread has worked for the answer that it gives next, in microseconds.
    static WORKED_US: Cell<u64> = const { Cell::new(0) };
}

/// Works for an answer that is given right afterwards, on this thread.
pub(crate) fn measured<T>(work: impl FnOnce() -> T) -> T {
    let since = thread_time::now();
    let done = work();
    WORKED_US.set(micros(thread_time::now().saturating_sub(since)));
    done
}

/// Something else has worked so much for the answer that this thread gives next.
pub(crate) fn worked(time: Duration) {
    WORKED_US.set(micros(time));
}

/// That answer has been given, or is not given after all: what was worked for it counts for no other.
pub(crate) fn unmeasured() {
    WORKED_US.set(0);
}

impl ClientShares {
    /// Each client may take this many hundredths of the time of so many threads.
    pub(crate) fn new(percent: u64, threads: usize, waiting_max: usize) -> ClientShares {
        let rate_us = (threads as u64).saturating_mul(percent).saturating_mul(10_000);
        ClientShares {
            began: Instant::now(),
            book: Mutex::new(Book::new(rate_us, waiting_max)),
            woken: Condvar::new(),
            is_stopped: AtomicBool::new(false),
            waited: AtomicU64::new(0),
        }
    }

    /// A call has come.
    pub(crate) fn enter(&self, client: Client) -> Entry {
        lock(&self.book).enter(client, self.now_us())
    }

    /// A call waits until its client is even, or is refused if too many do.
    pub(crate) fn wait(&self, client: &Client, call: Box<dyn Held>) {
        let mut book = lock(&self.book);
        if self.is_stopped.load(Ordering::Relaxed) {
            drop(book);
            return call.stop();
        }
        let waits = book.wait(client, call, self.now_us());
        drop(book);
        match waits {
            Ok(is_first) => {
                self.waited.fetch_add(1, Ordering::Relaxed);
                // The others of this client do not go on before it does.
                if is_first {
                    self.woken.notify_one();
                }
            }
            Err(call) => call.refuse(),
        }
    }

    /// A call is over, for which so many bytes were read or sent. Called by the thread that gives the answer.
    pub(crate) fn settle(&self, turn: Turn, bytes: usize) {
        let carried_us = CALL_US.saturating_add((bytes / BYTES_PER_US) as u64);
        let took_us = WORKED_US.take().saturating_add(carried_us);
        if lock(&self.book).settle(turn, took_us, self.now_us()) {
            self.woken.notify_one();
        }
    }

    /// A call that was let through was not made.
    pub(crate) fn cancel(&self, turn: Turn) {
        lock(&self.book).cancel(turn, self.now_us());
    }

    /// How many calls wait.
    pub(crate) fn waiting(&self) -> usize {
        lock(&self.book).waiting()
    }

    /// How many calls have had to wait.
    pub(crate) fn waited(&self) -> u64 {
        self.waited.load(Ordering::Relaxed)
    }

    /// Ends [`ClientShares::run`], and all that waits, now and later. Before the transport waits for its calls.
    pub(crate) fn stop(&self) {
        // Under the lock, or the thread could miss it between its look and its sleep.
        let _book = lock(&self.book);
        self.is_stopped.store(true, Ordering::Relaxed);
        self.woken.notify_one();
    }

    /// Lets calls go on, on a thread of its own.
    pub(crate) fn run(&self) {
        loop {
            let mut book = lock(&self.book);
            if self.is_stopped.load(Ordering::Relaxed) {
                let unanswered = book.take_all();
                drop(book);
                return unanswered.into_iter().for_each(|call| call.stop());
            }
            let now_us = self.now_us();
            let (ready, next_us) = book.due(now_us, |call| call.is_gone());
            if ready.is_empty() {
                let pause = next_us.map_or(LOOK, |next_us| Duration::from_micros(next_us.saturating_sub(now_us)));
                let waited = self.woken.wait_timeout(book, pause.clamp(PACE, LOOK));
                drop(waited.unwrap_or_else(|poisoned| poisoned.into_inner()));
                continue;
            }
            drop(book);
            for (call, turn) in ready {
                // What nobody waits for is dropped here, where the book is not locked.
                if let Some(turn) = turn {
                    call.go_on(turn);
                }
            }
        }
    }

    fn now_us(&self) -> u64 {
        micros(self.began.elapsed())
    }
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

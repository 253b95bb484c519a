//! The time that a request may take to arrive. A client may be silent for as long as it likes between the messages of a stream, but a
//! message that it has begun must continue.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use tokio::time::Sleep;

use super::connection::Http2;
use super::stream::{Event, Role, Stream};
use crate::Limit;
use crate::runtime::shared::Shared;
use crate::stats::Shard;

/// What must come of a message that has begun within each [`Options::body_timeout`](crate::Options::body_timeout), or the rest of it.
const PROGRESS_BYTES_MIN: u64 = 1024;

/// How far an unfinished message was at some time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mark {
    at: Instant,
    received_bytes: u64,
}

impl Mark {
    /// The progress now that `received_bytes` of the body have come; none if too little came in `timeout`.
    pub(crate) fn moved(before: Option<Mark>, now: Instant, received_bytes: u64, timeout: Duration) -> Option<Mark> {
        match before {
            Some(mark) if received_bytes.saturating_sub(mark.received_bytes) < PROGRESS_BYTES_MIN => {
                (now.duration_since(mark.at) < timeout).then_some(mark)
            }
            _ => Some(Mark { at: now, received_bytes }),
        }
    }
}

/// The same for input that a task reads by itself, such as JSON that ends nowhere in particular.
#[derive(Debug)]
pub struct Pace {
    timeout: Duration,
    received_bytes: u64,
    /// How far it was; none while nothing is owed.
    mark: Option<Mark>,
    sleep: Option<Pin<Box<Sleep>>>,
}

impl Pace {
    /// Nothing is owed yet. With a `timeout` of [`Options::body_timeout`](crate::Options::body_timeout) it is as for messages.
    pub fn new(timeout: Duration) -> Pace {
        Pace { timeout, received_bytes: 0, mark: None, sleep: None }
    }

    /// So much has come.
    pub fn came(&mut self, bytes: usize) {
        self.received_bytes = self.received_bytes.saturating_add(bytes as u64);
    }

    /// Notes whether the client has begun something that it must continue, and could.
    pub fn owes(&mut self, is_owed: bool) {
        if !is_owed {
            self.mark = None;
        } else if self.mark.is_none() {
            self.mark = Some(Mark { at: Instant::now(), received_bytes: self.received_bytes });
        }
    }

    /// So much of it was something else than what is owed.
    pub fn went_by(&mut self, bytes: usize) {
        self.received_bytes = self.received_bytes.saturating_sub(bytes as u64);
    }

    /// The client was kept from continuing for this long.
    pub fn pass(&mut self, time: Duration) {
        self.mark = self.mark.and_then(|mark| Some(Mark { at: mark.at.checked_add(time)?, ..mark }));
    }

    /// Ready, and counted, once too little has come for too long. Not while nothing is owed.
    pub fn poll_late(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        while let Some(mark) = self.mark {
            let moved = Mark::moved(Some(mark), Instant::now(), self.received_bytes, self.timeout);
            let until = moved.and_then(|mark| mark.at.checked_add(self.timeout));
            self.mark = moved;
            let Some(until) = until.map(tokio::time::Instant::from_std) else {
                if moved.is_some() {
                    // Later than any clock can show.
                    return Poll::Pending;
                }
                if let Some(shard) = Shard::current() {
                    shard.hit(Limit::BodyTime);
                }
                return Poll::Ready(());
            };
            let sleep = self.sleep.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(until)));
            if sleep.deadline() != until {
                sleep.as_mut().reset(until);
            }
            ready!(sleep.as_mut().poll(cx));
        }
        Poll::Pending
    }

    /// The same as a future.
    pub async fn late(&mut self) {
        std::future::poll_fn(|cx| self.poll_late(cx)).await
    }
}

impl Stream {
    /// Whether the client has begun something that it must continue.
    fn is_owed_input(&self) -> bool {
        !self.input.ended
            && match &self.role {
                Role::Unary { .. } | Role::Http { .. } => true,
                // One that has no room does not read on; what is held then may be whole. A call of one message is begun with its headers.
                Role::Handler(handler) => !handler.starved && (handler.single || self.input.decoder.held_bytes() > 0),
                Role::Answer | Role::Output => false,
            }
    }

    /// Notes how far the message is that has begun. False if it takes too long.
    fn keeps_coming(&mut self, now: Instant, timeout: Duration) -> bool {
        if !self.is_owed_input() {
            self.input.mark = None;
            return true;
        }
        let moved = Mark::moved(self.input.mark, now, self.input.received_bytes, timeout);
        self.input.mark = moved;
        moved.is_some()
    }
}

impl Http2 {
    /// Gives up requests that have stopped coming. True if there were any.
    pub(crate) fn give_up_requests(&mut self, shared: &Shared) -> bool {
        // Incomplete messages are counted there, or their headers are. A client that is not read cannot continue.
        if (self.gathered.bytes() == 0 && self.heads.bytes() == 0) || self.is_choked() {
            return false;
        }
        let timeout = shared.options.body_timeout;
        let mut any = false;
        for (_, stream) in &mut self.streams {
            if !stream.keeps_coming(shared.now, timeout) {
                shared.stats.hit(Limit::BodyTime);
                self.inbox.push_back((stream.signal.clone(), Event::Late));
                any = true;
            }
        }
        any
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_owed_has_its_time() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
        runtime.block_on(async {
            let mut pace = Pace::new(Duration::from_millis(1));
            let poll = |pace: &mut Pace| pace.poll_late(&mut Context::from_waker(std::task::Waker::noop()));
            tokio::time::sleep(Duration::from_millis(2)).await;
            assert!(poll(&mut pace).is_pending(), "nothing is owed");
            pace.owes(true);
            pace.late().await;
            pace.owes(true);
            pace.came(PROGRESS_BYTES_MIN as usize);
            tokio::time::sleep(Duration::from_millis(2)).await;
            assert!(poll(&mut pace).is_pending(), "enough has come");
            pace.came(PROGRESS_BYTES_MIN as usize);
            pace.went_by(1);
            pace.late().await;
            pace.owes(true);
            pace.pass(Duration::from_secs(3_600));
            tokio::time::sleep(Duration::from_millis(2)).await;
            assert!(poll(&mut pace).is_pending(), "it could not go on");
            pace.owes(false);
            tokio::time::sleep(Duration::from_millis(2)).await;
            assert!(poll(&mut pace).is_pending());
        });
    }

    #[test]
    fn enough_in_each_interval_is_wanted() {
        let (now, second) = (Instant::now(), Duration::from_secs(1));
        let timeout = 20 * second;
        let at = |before, seconds: u32, bytes| Mark::moved(before, now + seconds * second, bytes, timeout);
        let begun = at(None, 0, 0);
        assert!(begun.is_some());
        // A trickle is the same as nothing.
        let trickled = at(begun, 19, 1_000);
        assert_eq!(trickled.map(|mark| mark.at), Some(now));
        assert!(at(trickled, 20, 1_023).is_none());
        // Enough begins a new interval.
        let moved = at(trickled, 20, 1_024);
        assert_eq!(moved.map(|mark| mark.at), Some(now + 20 * second));
        assert!(at(moved, 39, 1_024).is_some() && at(moved, 40, 2_000).is_none());
    }
}

//! A small pool of threads for work that would block a request thread: large sorted lists, hashes, snapshots.
//!
//! Clients take turns by their address, and those at one address have at most half of the places.

use crate::turns::{Turns, whose};
use contain::lock;
use rpc::Address;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};

type Job = Box<dyn FnOnce() + Send>;

/// Threads that take jobs from a bounded queue.
pub(crate) struct SlowPool {
    queue: Arc<Queue>,
    waiting_max: usize,
    refused: AtomicU64,
    canceled: Arc<AtomicU64>,
}

#[derive(Default)]
struct Queue {
    state: Mutex<State>,
    arrived: Condvar,
}

#[derive(Default)]
struct State {
    jobs: Turns<Job>,
    is_closed: bool,
}

impl Queue {
    /// Waits for the next job; `None` once the pool is closed.
    fn take(&self) -> Option<Job> {
        let mut state = lock(&self.state);
        while !state.is_closed {
            if let Some(job) = state.jobs.next() {
                return Some(job);
            }
            state = self.arrived.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        None
    }
}

impl SlowPool {
    /// Starts `threads` threads with room for `waiting_max` waiting jobs.
    pub(crate) fn start(name: &str, threads: usize, waiting_max: usize) -> std::io::Result<SlowPool> {
        let queue = Arc::<Queue>::default();
        for number in 0..threads {
            let queue = queue.clone();
            let work = move || {
                while let Some(job) = queue.take() {
                    job();
                }
            };
            std::thread::Builder::new().name(format!("{name}-{number}")).spawn(work)?;
        }
        Ok(SlowPool { queue, waiting_max, refused: AtomicU64::new(0), canceled: Arc::default() })
    }

    /// Queues a job of `client`, or of this member; false when there is no place.
    pub(crate) fn try_run(&self, client: Option<Address>, job: impl FnOnce() + Send + 'static) -> bool {
        // The job of a full queue is dropped without the lock, because it may own the member.
        let added = lock(&self.queue.state).jobs.try_add(whose(client), Box::new(job), self.waiting_max);
        match added {
            Ok(()) => self.queue.arrived.notify_one(),
            Err(_) => drop(self.refused.fetch_add(1, Ordering::Relaxed)),
        }
        added.is_ok()
    }

    /// Queues a job. The thread that takes it up skips it if `wanted` returns false by then: the client may have gone.
    pub(crate) fn try_run_while(
        &self,
        client: Option<Address>,
        wanted: impl Fn() -> bool + Send + 'static,
        job: impl FnOnce() + Send + 'static,
    ) -> bool {
        let canceled = self.canceled.clone();
        self.try_run(client, move || match wanted() {
            true => job(),
            false => drop(canceled.fetch_add(1, Ordering::Relaxed)),
        })
    }

    /// Queues a job together with its `owner`. Returns the `owner` when the queue is full.
    pub(crate) fn try_give<T: Send + 'static>(
        &self,
        client: Option<Address>,
        owner: T,
        job: impl FnOnce(T) + Send + 'static,
    ) -> Result<(), T> {
        let slot = Arc::new(Mutex::new(Some(owner)));
        let taken = slot.clone();
        let take = |slot: &Mutex<Option<T>>| lock(slot).take();
        let queued = self.try_run(client, move || {
            if let Some(owner) = take(&taken) {
                job(owner);
            }
        });
        match if queued { None } else { take(&slot) } {
            Some(owner) => Err(owner),
            None => Ok(()),
        }
    }

    /// Counts a job that was given up in the middle because nobody waited for it any more.
    pub(crate) fn count_canceled(&self) {
        self.canceled.fetch_add(1, Ordering::Relaxed);
    }

    /// Jobs that were given up, begun or not, because nobody waited for them any more.
    pub(crate) fn canceled(&self) -> u64 {
        self.canceled.load(Ordering::Relaxed)
    }

    /// Jobs that no thread has taken up yet.
    pub(super) fn depth(&self) -> usize {
        lock(&self.queue.state).jobs.len()
    }

    /// Jobs that found no place.
    pub(super) fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }
}

impl Drop for SlowPool {
    fn drop(&mut self) {
        let mut state = lock(&self.queue.state);
        state.is_closed = true;
        let jobs = std::mem::take(&mut state.jobs);
        drop(state);
        self.queue.arrived.notify_all();
        drop(jobs);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicBool;
    use std::sync::mpsc::channel;

    #[test]
    fn what_nobody_waits_for_any_more_is_left_undone() {
        let pool = SlowPool::start("test", 1, 16).expect("a thread");
        let (begin, begun) = channel::<()>();
        let (done, ended) = channel();
        // Both wait behind it. The client of one goes meanwhile.
        assert!(pool.try_run(None, move || begun.recv().expect("a word")));
        let is_gone = Arc::new(AtomicBool::new(false));
        for (name, goes) in [("gone", true), ("stays", false)] {
            let (is_gone, done) = (is_gone.clone(), done.clone());
            let wanted = move || !(goes && is_gone.load(Ordering::Relaxed));
            assert!(pool.try_run_while(None, wanted, move || done.send(name).expect("somebody listens")));
        }
        is_gone.store(true, Ordering::Relaxed);
        begin.send(()).expect("it waits");
        assert_eq!((ended.recv(), ended.try_recv().is_err()), (Ok("stays"), true));
        assert_eq!((pool.canceled(), pool.refused()), (1, 0));
    }

    #[test]
    fn clients_take_turns_and_leave_places_to_others() {
        let pool = SlowPool::start("test", 1, 16).expect("a thread");
        let (begin, begun) = channel::<()>();
        let (taken, is_taken) = channel();
        let (done, ended) = channel();
        // Returns when the sender is dropped.
        let held = move || {
            taken.send(()).expect("the test runs");
            let _ = begun.recv();
        };
        assert!(pool.try_run(None, held));
        is_taken.recv().expect("the thread");
        let run = |name: &'static str, host: u8| {
            let (client, done) = (Address::Tcp(std::net::SocketAddr::from(([10, 0, 0, host], 1))), done.clone());
            pool.try_run(Some(client), move || done.send(name).expect("the test runs"))
        };
        let greedy = (0..100).filter(|_| run("greedy", 1)).count();
        assert_eq!((greedy, pool.refused(), pool.depth()), (8, 92, 8));
        assert!(run("other", 2));
        drop(begin);
        let order: Vec<_> = (0..9).map(|_| ended.recv().expect("a job")).collect();
        assert_eq!(order[..3], ["greedy", "other", "greedy"]);
    }
}

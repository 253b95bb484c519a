//! Threads for calls to other members, which block.
//!
//! Each origin has a queue of its own, and the origins take turns: a client with many calls delays only itself. Long work is queued again
//! after each piece, behind all others.

use crate::turns::{Turns, whose};
use contain::lock;
use peer::client::Kept;
use rpc::Address;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};

/// Threads that wait for answers of the leader.
const THREADS: usize = 8;

/// A call. It gets the connection to the leader that its thread keeps open.
pub(super) type Job = Box<dyn FnOnce(&mut Kept) + Send>;

/// The threads and the queue of their jobs.
pub(crate) struct ForwardPool {
    queue: Arc<Queue>,
    waiting_max: usize,
    refused: AtomicU64,
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
    /// Waits for the next job; `None` once the pool is closed. Closes a connection that stays unused for too long.
    fn take(&self, kept: &mut Kept) -> Option<Job> {
        let mut state = lock(&self.state);
        loop {
            if state.is_closed {
                return None;
            }
            if let Some(job) = state.jobs.next() {
                return Some(job);
            }
            state = match kept.time_left() {
                None => self.arrived.wait(state).unwrap_or_else(PoisonError::into_inner),
                Some(left) if left.is_zero() => {
                    drop(state);
                    kept.close();
                    lock(&self.state)
                }
                Some(left) => self.arrived.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0,
            };
        }
    }
}

impl ForwardPool {
    /// Starts the threads. At most `waiting_max` jobs may wait, and at most half as many of one origin.
    pub(crate) fn start(waiting_max: usize) -> io::Result<ForwardPool> {
        let queue = Arc::<Queue>::default();
        for number in 0..THREADS {
            let queue = queue.clone();
            let work = move || {
                let mut kept = Kept::default();
                while let Some(job) = queue.take(&mut kept) {
                    job(&mut kept);
                }
            };
            std::thread::Builder::new().name(format!("forward-{number}")).spawn(work)?;
        }
        Ok(ForwardPool { queue, waiting_max, refused: AtomicU64::new(0) })
    }

    /// Queues a job of `client`; false when too many wait.
    pub(super) fn try_run(&self, client: Option<Address>, job: Job) -> bool {
        let added = lock(&self.queue.state).jobs.try_add(whose(client), job, self.waiting_max);
        match added {
            Ok(()) => self.queue.arrived.notify_one(),
            Err(_) => drop(self.refused.fetch_add(1, Ordering::Relaxed)),
        }
        added.is_ok()
    }

    /// Queues the rest of a job that had a thread. It is never refused: there are at most as many such jobs as threads.
    pub(super) fn run_on(&self, client: Option<Address>, job: Job) {
        lock(&self.queue.state).jobs.add(whose(client), job);
        self.queue.arrived.notify_one();
    }

    /// Jobs that no thread has taken up yet.
    pub(crate) fn depth(&self) -> usize {
        lock(&self.queue.state).jobs.len()
    }

    /// Jobs that were refused because too many waited.
    pub(crate) fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }
}

impl Drop for ForwardPool {
    fn drop(&mut self) {
        let mut state = lock(&self.queue.state);
        state.is_closed = true;
        // The jobs are dropped without the lock, because they may own the member.
        let jobs = std::mem::take(&mut state.jobs);
        drop(state);
        self.queue.arrived.notify_all();
        drop(jobs);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::SocketAddr;
    use std::sync::mpsc::{Receiver, Sender, channel};

    fn client(host: u8) -> Option<Address> {
        Some(Address::Tcp(SocketAddr::from(([10, 0, 0, host], 1))))
    }

    /// Holds all threads until the sender is dropped.
    fn hold(forwards: &ForwardPool) -> Sender<()> {
        let (hold, held) = channel::<()>();
        let held = Arc::new(Mutex::new(held));
        let (begin, begun) = channel();
        for _ in 0..THREADS {
            let (held, begin) = (held.clone(), begin.clone());
            let wait = move |_: &mut Kept| {
                begin.send(()).expect("the test runs");
                // Returns when the sender is dropped.
                let _ = lock(&held).recv();
            };
            assert!(forwards.try_run(None, Box::new(wait)));
        }
        (0..THREADS).for_each(|_| begun.recv().expect("a thread"));
        hold
    }

    fn names(told: &Receiver<&'static str>, count: usize) -> Vec<&'static str> {
        (0..count).map(|_| told.recv().expect("a job")).collect()
    }

    #[test]
    fn origins_take_turns_and_leave_places_to_others() {
        let forwards = ForwardPool::start(16).expect("threads");
        let held = hold(&forwards);
        let (tell, told) = channel();
        let run = |name: &'static str, host: u8| {
            let tell = tell.clone();
            // The jobs run one after the other, so the order in which they start is known.
            forwards.try_run(client(host), Box::new(move |_| tell.send(name).expect("the test runs")))
        };
        let greedy = (0..100).filter(|_| run("greedy", 1)).count();
        assert_eq!((greedy, forwards.refused()), (8, 92));
        assert!(run("other", 2) && run("third", 3));
        assert_eq!(forwards.depth(), 10);
        let order: Vec<_> = {
            let mut state = lock(&forwards.queue.state);
            std::iter::from_fn(|| state.jobs.next()).collect()
        };
        order.into_iter().for_each(|job| job(&mut Kept::default()));
        assert_eq!(names(&told, 4), ["greedy", "other", "third", "greedy"]);
        drop(held);
    }

    #[test]
    fn what_comes_back_is_behind_all_others() {
        let forwards = Arc::new(ForwardPool::start(16).expect("threads"));
        let held = hold(&forwards);
        let (tell, told) = channel();
        let (own, again) = (forwards.clone(), tell.clone());
        let first = move |_: &mut Kept| {
            again.send("begins").expect("the test runs");
            own.run_on(client(1), Box::new(move |_| again.send("ends").expect("the test runs")));
        };
        assert!(forwards.try_run(client(1), Box::new(first)));
        assert!(forwards.try_run(client(1), Box::new(move |_| tell.send("next").expect("the test runs"))));
        let mut kept = Kept::default();
        loop {
            let job = lock(&forwards.queue.state).jobs.next();
            let Some(job) = job else { break };
            job(&mut kept);
        }
        assert_eq!(names(&told, 3), ["begins", "next", "ends"]);
        drop(held);
    }
}

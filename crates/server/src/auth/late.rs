//! Finishes jobs that the threads of bcrypt do not get to.
//!
//! Those threads run only while no other thread of the machine wants a processor. If all processors are busy for seconds, by this
//! member or by other programs, nobody could log in meanwhile. So a job that is not finished in time is computed once more, by a thread
//! of ordinary priority that takes at most a fifth of one processor.

use crate::system::thread_time;
use std::collections::VecDeque;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

/// Jobs that may wait. With more, the last one would wait for seconds.
pub(super) const WAITING_MAX: usize = 64;
/// A job is late when it is not finished this long after it was queued. etcd's tools wait two seconds for a login.
const LATE: Duration = Duration::from_millis(200);
/// The thread rests this many times the processor time that it took.
const REST_FACTOR: u32 = 4;

/// A job that two threads may compute at the same time. Its result counts once.
pub(super) struct Job {
    compute: Box<dyn Fn() + Send + Sync>,
    is_begun: AtomicBool,
    is_done: AtomicBool,
}

impl Job {
    /// `compute` keeps the first result.
    pub(super) fn new(compute: impl Fn() + Send + Sync + 'static) -> Arc<Job> {
        Arc::new(Job { compute: Box::new(compute), is_begun: AtomicBool::new(false), is_done: AtomicBool::new(false) })
    }

    /// Computes it, unless that is done.
    pub(super) fn run(&self) {
        if !self.is_done() {
            self.is_begun.store(true, Ordering::Relaxed);
            (self.compute)();
            self.is_done.store(true, Ordering::Release);
        }
    }

    fn is_done(&self) -> bool {
        self.is_done.load(Ordering::Acquire)
    }
}

/// The thread, and all jobs that are not finished. The threads of bcrypt hold a job only while they compute it: one that is
/// finished before they get to it leaves no password in their queue. Dropping it ends the thread.
pub(super) struct Late(Arc<Shared>);

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// In the order in which they were queued.
    jobs: VecDeque<(Instant, Arc<Job>)>,
    is_over: bool,
}

impl Late {
    pub(super) fn start() -> io::Result<Late> {
        let shared = Arc::new(Shared::default());
        let own = shared.clone();
        std::thread::Builder::new().name("bcrypt-late".into()).spawn(move || {
            while let Some(job) = own.next() {
                let begun = thread_time::now();
                job.run();
                std::thread::sleep(thread_time::now().saturating_sub(begun).saturating_mul(REST_FACTOR));
            }
        })?;
        Ok(Late(shared))
    }

    /// Keeps a job until it is finished, for a thread that takes it up; `None` if too many wait.
    pub(super) fn watch(&self, job: Arc<Job>) -> Option<Weak<Job>> {
        let weak = Arc::downgrade(&job);
        let mut state = contain::lock(&self.0.state);
        // Finished ones are let go at once: they hold passwords.
        state.jobs.retain(|(_, job)| !job.is_done());
        let waiting = state.jobs.iter().filter(|(_, job)| !job.is_begun.load(Ordering::Relaxed)).count();
        if waiting >= WAITING_MAX {
            return None;
        }
        state.jobs.push_back((Instant::now(), job));
        self.0.changed.notify_one();
        Some(weak)
    }
}

impl Drop for Late {
    fn drop(&mut self) {
        contain::lock(&self.0.state).is_over = true;
        self.0.changed.notify_one();
    }
}

impl Shared {
    /// Waits for a job that is late; `None` when it is over.
    fn next(&self) -> Option<Arc<Job>> {
        let mut state = contain::lock(&self.state);
        while !state.is_over {
            state.jobs.retain(|(_, job)| !job.is_done());
            let age = state.jobs.front().map(|(queued, _)| queued.elapsed());
            state = match age {
                Some(age) if age >= LATE => return state.jobs.pop_front().map(|(_, job)| job),
                Some(age) => {
                    self.changed.wait_timeout(state, LATE.saturating_sub(age)).unwrap_or_else(PoisonError::into_inner).0
                }
                None => self.changed.wait(state).unwrap_or_else(PoisonError::into_inner),
            };
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;

    #[test]
    fn a_job_that_nobody_gets_to_is_computed() {
        let (done, computed) = channel();
        let late = Late::start().expect("a thread");
        for number in [1, 2] {
            let done = Mutex::new(done.clone());
            let job = Job::new(move || contain::lock(&done).send(number).expect("somebody listens"));
            late.watch(job).expect("few wait");
        }
        assert_eq!((computed.recv(), computed.recv()), (Ok(1), Ok(2)));
    }

    #[test]
    fn what_is_finished_is_let_go() {
        let late = Late::start().expect("a thread");
        let job = Job::new(|| ());
        late.watch(job.clone()).expect("few wait");
        job.run();
        let (done, computed) = channel();
        let done = Mutex::new(done);
        late.watch(Job::new(move || contain::lock(&done).send(()).expect("somebody listens"))).expect("few wait");
        assert_eq!(Arc::strong_count(&job), 1);
        assert_eq!(computed.recv(), Ok(()));
    }

    #[test]
    fn it_ends() {
        let late = Late::start().expect("a thread");
        let shared = Arc::downgrade(&late.0);
        drop(late);
        while shared.upgrade().is_some() {
            std::thread::yield_now();
        }
    }
}

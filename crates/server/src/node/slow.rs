//! A small pool of threads for work that would block a request thread: large sorted lists, hashes, snapshots.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, PoisonError};

type Job = Box<dyn FnOnce() + Send>;

/// Threads that take jobs from a bounded queue.
pub(crate) struct SlowPool {
    jobs: SyncSender<Job>,
    waiting: Arc<AtomicUsize>,
    refused: AtomicU64,
    canceled: Arc<AtomicU64>,
}

impl SlowPool {
    /// Starts `threads` threads with room for `queue_max` waiting jobs.
    pub(crate) fn start(name: &str, threads: usize, queue_max: usize) -> std::io::Result<SlowPool> {
        let (jobs, queue) = sync_channel::<Job>(queue_max);
        let queue = Arc::new(Mutex::new(queue));
        for number in 0..threads {
            let queue = queue.clone();
            std::thread::Builder::new().name(format!("{name}-{number}")).spawn(move || work(&queue))?;
        }
        Ok(SlowPool { jobs, waiting: Arc::default(), refused: AtomicU64::new(0), canceled: Arc::default() })
    }

    /// Queues a job; false when the queue is full.
    pub(crate) fn try_run(&self, job: impl FnOnce() + Send + 'static) -> bool {
        let waiting = self.waiting.clone();
        waiting.fetch_add(1, Ordering::Relaxed);
        let job = move || {
            waiting.fetch_sub(1, Ordering::Relaxed);
            job();
        };
        match self.jobs.try_send(Box::new(job)) {
            Ok(()) => true,
            Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) => {
                self.waiting.fetch_sub(1, Ordering::Relaxed);
                self.refused.fetch_add(1, Ordering::Relaxed);
                false
            }
        }
    }

    /// Queues a job. The thread that takes it up skips it if `wanted` returns false by then: the client may have gone.
    pub(crate) fn try_run_while(
        &self,
        wanted: impl Fn() -> bool + Send + 'static,
        job: impl FnOnce() + Send + 'static,
    ) -> bool {
        let canceled = self.canceled.clone();
        self.try_run(move || match wanted() {
            true => job(),
            false => drop(canceled.fetch_add(1, Ordering::Relaxed)),
        })
    }

    /// Queues a job together with its `owner`. Returns the `owner` when the queue is full.
    pub(crate) fn try_give<T: Send + 'static>(&self, owner: T, job: impl FnOnce(T) + Send + 'static) -> Result<(), T> {
        let slot = Arc::new(Mutex::new(Some(owner)));
        let taken = slot.clone();
        let take = |slot: &Mutex<Option<T>>| slot.lock().unwrap_or_else(PoisonError::into_inner).take();
        let queued = self.try_run(move || {
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
        self.waiting.load(Ordering::Relaxed)
    }

    /// Jobs that found the queue full.
    pub(super) fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }
}

fn work(queue: &Mutex<Receiver<Job>>) {
    loop {
        let job = queue.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok(job) = job else { return };
        job();
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
        assert!(pool.try_run(move || begun.recv().expect("a word")));
        let is_gone = Arc::new(AtomicBool::new(false));
        for (name, goes) in [("gone", true), ("stays", false)] {
            let (is_gone, done) = (is_gone.clone(), done.clone());
            let wanted = move || !(goes && is_gone.load(Ordering::Relaxed));
            assert!(pool.try_run_while(wanted, move || done.send(name).expect("somebody listens")));
        }
        is_gone.store(true, Ordering::Relaxed);
        begin.send(()).expect("it waits");
        assert_eq!((ended.recv(), ended.try_recv().is_err()), (Ok("stays"), true));
        assert_eq!((pool.canceled(), pool.refused()), (1, 0));
    }
}

//! A small pool for work that would hold a request thread up: large sorted lists, hashes, snapshots, checkpoints.

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
}

impl SlowPool {
    /// `threads` threads, and room for `queue_max` waiting jobs.
    pub(crate) fn start(name: &str, threads: usize, queue_max: usize) -> std::io::Result<SlowPool> {
        let (jobs, queue) = sync_channel::<Job>(queue_max);
        let queue = Arc::new(Mutex::new(queue));
        for number in 0..threads {
            let queue = queue.clone();
            std::thread::Builder::new().name(format!("{name}-{number}")).spawn(move || work(&queue))?;
        }
        Ok(SlowPool { jobs, waiting: Arc::default(), refused: AtomicU64::new(0) })
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

//! How many threads rebuild an index, and how they share the work.

use std::sync::{Mutex, OnceLock, PoisonError};

/// Records for which a further thread is worth its start.
const RECORDS_PER_THREAD: usize = 100_000;

/// The threads of a rebuild, the calling one included.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Crew {
    threads_max: usize,
    records_per_thread: usize,
    /// Called every now and then.
    pub(crate) rest: fn(),
}

impl Crew {
    /// As many threads as the machine has cores: nothing else is to be done yet.
    pub(crate) fn of_a_start() -> Crew {
        // Read once: the simulator starts thousands of stores, and the answer is in files of the system.
        static CORES: OnceLock<usize> = OnceLock::new();
        let threads_max = *CORES.get_or_init(|| std::thread::available_parallelism().map_or(1, usize::from));
        Crew { threads_max, records_per_thread: RECORDS_PER_THREAD, rest: || {} }
    }

    /// This thread alone, which calls `rest`: others have work to do.
    pub(crate) fn of_one(rest: fn()) -> Crew {
        Crew { threads_max: 1, records_per_thread: RECORDS_PER_THREAD, rest }
    }

    /// So many threads, however little there is to do.
    #[cfg(test)]
    pub(crate) fn of(threads: usize) -> Crew {
        Crew { threads_max: threads, records_per_thread: 1, rest: || {} }
    }

    /// Threads for so many records.
    pub(crate) fn threads(&self, records: usize) -> usize {
        self.threads_max.min(records / self.records_per_thread).max(1)
    }
}

/// Does `act` for each of the works, on so many threads; the results are in the works' order.
pub(crate) fn share<W: Send, R: Send>(threads: usize, works: Vec<W>, act: impl Fn(W) -> R + Sync) -> Vec<R> {
    if threads <= 1 || works.len() <= 1 {
        return works.into_iter().map(act).collect();
    }
    let queue = Mutex::new(works.into_iter().enumerate());
    let work = || {
        let mut done = Vec::new();
        loop {
            let next = queue.lock().unwrap_or_else(PoisonError::into_inner).next();
            let Some((number, work)) = next else { return done };
            done.push((number, act(work)));
        }
    };
    let mut done = std::thread::scope(|scope| {
        // What a thread that the system refuses would have done the others do.
        let start = |_| std::thread::Builder::new().spawn_scoped(scope, work).ok();
        let others: Vec<_> = (1..threads).filter_map(start).collect();
        let mut done = work();
        for other in others {
            // A panic of another thread is one of this.
            done.extend(other.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        }
        done
    });
    done.sort_unstable_by_key(|(number, _)| *number);
    done.into_iter().map(|(_, result)| result).collect()
}

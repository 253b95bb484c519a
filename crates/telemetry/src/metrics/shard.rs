//! Numbers for the threads of the process, so that each can write to counters of its own.

use contain::lock;
use std::cell::Cell;
use std::sync::Mutex;

/// Sets of counters that histograms have. Threads beyond that share the last one.
pub(super) const SHARDS: usize = 32;

/// What threads that have ended left, and how many were given out.
static FREE: Mutex<(Vec<usize>, usize)> = Mutex::new((Vec::new(), 0));

/// A thread's number, given back when it ends.
struct Own(usize);

impl Drop for Own {
    fn drop(&mut self) {
        NUMBER.set(usize::MAX);
        if self.0 < SHARDS - 1 {
            lock(&FREE).0.push(self.0);
        }
    }
}

thread_local! {
    static NUMBER: Cell<usize> = const { Cell::new(usize::MAX) };
    static OWN: Own = {
        let mut free = lock(&FREE);
        let number = free.0.pop().unwrap_or_else(|| {
            let next = free.1.min(SHARDS - 1);
            free.1 = next + 1;
            next
        });
        Own(number)
    };
}

/// The calling thread's number, below [`SHARDS`], and whether it has it to itself.
pub(super) fn own() -> (usize, bool) {
    let mut number = NUMBER.get();
    if number == usize::MAX {
        // A thread that is ending has no number of its own any more.
        number = OWN.try_with(|own| own.0).unwrap_or(SHARDS - 1);
        NUMBER.set(number);
    }
    (number, number < SHARDS - 1)
}

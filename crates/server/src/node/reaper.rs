//! Small steps at the disk: files that are not needed any more shrink, and the store's segments are sent to the disk while they grow. No sync
//! of the Raft log then waits behind the removal of a large file, or behind the sync of one.

use super::Node;
use disk::{REAP_STEP_BYTES, ReapError, Reaped, Reaper};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use store::Store;
use telemetry::logging::{self, Value};

/// Pause when nothing waits to be given back. A segment grows by a few MiB meanwhile, at most.
const LOOK: Duration = Duration::from_millis(20);
/// The disk is left alone after a step for so many times as long as the step took: while little waits, and while much does.
const REST_SHARE: u32 = 4;
const REST_SHARE_BEHIND: u32 = 1;
/// Bytes that are much.
const BEHIND_BYTES: u64 = 1 << 30;
/// Bounds of that.
const REST_MIN: Duration = Duration::from_millis(1);
const REST_MAX: Duration = Duration::from_millis(100);
/// Time until a file that could not be given back is tried again.
const RETRY: Duration = Duration::from_secs(1);

/// Runs until the member stops. What is left then is given back after the next start.
pub(super) fn run(node: &Node, log: &Reaper) {
    let mut has_failed = false;
    while !node.stopping.load(Ordering::Relaxed) {
        if let Err(error) = node.store.segments().write_back() {
            logging::fatal(
                "cannot write the store's segments to the disk; this member stops",
                &[("error", Value::Shown(&error))],
            );
        }
        let began = Instant::now();
        let reaped = step(node, log);
        let took = began.elapsed();
        let is_urgent = node.store.disk_is_low() || reapers(node, log).into_iter().any(Reaper::is_urgent);
        let waiting_bytes = node.metrics.disk.retired_bytes.load(Ordering::Relaxed);
        std::thread::sleep(rest(&reaped, took, waiting_bytes, is_urgent));
        match reaped {
            Ok(_) => has_failed = false,
            Err(error) => {
                node.metrics.disk.reap_failures.fetch_add(1, Ordering::Relaxed);
                if !std::mem::replace(&mut has_failed, true) {
                    logging::warn("cannot give back a file; trying again", &[("error", Value::Shown(&error))]);
                }
            }
        }
    }
}

/// Gives back at once what an earlier process left, if it is much of what is free: nobody waits yet, and the disk must not seem full.
pub(super) fn begin(store: &Store, log: &Reaper) {
    for reaper in [log, store.segments().reaper()] {
        if reaper.is_urgent()
            && let Err(error) = reaper.finish()
        {
            logging::warn("cannot give back a file; trying again", &[("error", Value::Shown(&error))]);
        }
    }
}

fn reapers<'a>(node: &'a Node, log: &'a Reaper) -> [&'a Reaper; 2] {
    [log, node.store.segments().reaper()]
}

/// One step for each of the two directories.
fn step(node: &Node, log: &Reaper) -> Result<Reaped, ReapError> {
    let [log, store] = reapers(node, log);
    let done = [log, store].map(|reaper| reaper.step(REAP_STEP_BYTES));
    let disk = &node.metrics.disk;
    disk.retired_bytes.store(log.waiting().bytes.saturating_add(store.waiting().bytes), Ordering::Relaxed);
    disk.reaped_bytes.store(log.freed_bytes().saturating_add(store.freed_bytes()), Ordering::Relaxed);
    let [log, store] = done;
    match (log?, store?) {
        (Reaped::Freed(log), Reaped::Freed(store)) => Ok(Reaped::Freed(log.saturating_add(store))),
        (Reaped::Freed(bytes), _) | (_, Reaped::Freed(bytes)) => Ok(Reaped::Freed(bytes)),
        (other, _) => Ok(other),
    }
}

/// How long to leave the disk alone. Not at all when it is full, or would soon be.
fn rest(reaped: &Result<Reaped, ReapError>, took: Duration, waiting_bytes: u64, is_urgent: bool) -> Duration {
    match reaped {
        Err(_) => RETRY,
        Ok(Reaped::Idle | Reaped::Waiting) => LOOK,
        Ok(Reaped::Freed(_)) if is_urgent => Duration::ZERO,
        Ok(Reaped::Freed(_)) => {
            let share = if waiting_bytes > BEHIND_BYTES { REST_SHARE_BEHIND } else { REST_SHARE };
            (took * share).clamp(REST_MIN, REST_MAX)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_disk_rests_unless_it_is_full() {
        let freed = Ok(Reaped::Freed(1));
        let took = Duration::from_millis(3);
        assert_eq!(rest(&freed, took, 1 << 20, false), Duration::from_millis(12));
        assert_eq!(rest(&freed, took, 2 << 30, false), took);
        assert_eq!(rest(&freed, Duration::ZERO, 1 << 20, false), REST_MIN);
        assert_eq!(rest(&freed, Duration::from_secs(9), 1 << 20, false), REST_MAX);
        assert_eq!(rest(&freed, took, 1 << 20, true), Duration::ZERO);
        assert_eq!(rest(&Ok(Reaped::Waiting), Duration::ZERO, 1 << 20, true), LOOK);
    }
}

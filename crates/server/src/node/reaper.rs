//! Small steps at the disk: files that are not needed any more shrink, and the store's segments are sent to the disk while they grow. No sync
//! of the Raft log then waits behind the removal of a large file, or behind the sync of one.

use super::Node;
use disk::{REAP_STEP_BYTES, ReapError, Reaped, Reaper};
use std::collections::HashSet;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
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
/// Time until files that could not be given back are tried again.
const RETRY: Duration = Duration::from_secs(30);

/// Runs until the member stops. What is left then is given back after the next start.
pub(super) fn run(node: &Node, log: &Reaper) {
    let reapers = [log, node.store.segments().reaper()];
    let mut told = HashSet::new();
    let mut retried = Instant::now();
    while !node.stopping.load(Ordering::Relaxed) {
        if let Err(error) = node.store.segments().write_back() {
            logging::fatal(
                "cannot write the store's segments to the disk; this member stops",
                &[("error", Value::Shown(&error))],
            );
        }
        if retried.elapsed() >= RETRY {
            retried = Instant::now();
            reapers.iter().for_each(|reaper| reaper.retry());
        }
        let began = Instant::now();
        // A file that cannot be given back costs a step, and holds up no other.
        let mut is_busy = false;
        for reaper in reapers {
            is_busy |= match reaper.step(REAP_STEP_BYTES) {
                Ok(reaped) => matches!(reaped, Reaped::Freed(_)),
                Err(error) => {
                    note(node, &error, &mut told);
                    true
                }
            };
        }
        let took = began.elapsed();
        let disk = &node.metrics.disk;
        let waiting_bytes = reapers.iter().map(|reaper| reaper.waiting().bytes).fold(0, u64::saturating_add);
        disk.retired_bytes.store(waiting_bytes, Ordering::Relaxed);
        let reaped_bytes = reapers.iter().map(|reaper| reaper.freed_bytes()).fold(0, u64::saturating_add);
        disk.reaped_bytes.store(reaped_bytes, Ordering::Relaxed);
        let is_urgent = node.store.disk_is_low() || reapers.into_iter().any(Reaper::is_urgent);
        std::thread::sleep(rest(is_busy, took, waiting_bytes, is_urgent));
    }
}

/// Counts a failure, and logs the first of its kind. A lost name ends the member.
fn note(node: &Node, error: &ReapError, told: &mut HashSet<(&'static str, Option<i32>)>) {
    if error.is_fatal {
        logging::fatal("cannot make the names of files durable; this member stops", &[("error", Value::Shown(error))]);
    }
    node.metrics.disk.reap_failures.fetch_add(1, Ordering::Relaxed);
    if told.insert((error.operation, error.source.raw_os_error())) {
        logging::warn("cannot give back a file; trying again", &[("error", Value::Shown(error))]);
    }
}

/// How long to leave the disk alone. Not at all when it is full, or would soon be.
fn rest(is_busy: bool, took: Duration, waiting_bytes: u64, is_urgent: bool) -> Duration {
    match is_busy {
        false => LOOK,
        true if is_urgent => Duration::ZERO,
        true => {
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
        let took = Duration::from_millis(3);
        assert_eq!(rest(true, took, 1 << 20, false), Duration::from_millis(12));
        assert_eq!(rest(true, took, 2 << 30, false), took);
        assert_eq!(rest(true, Duration::ZERO, 1 << 20, false), REST_MIN);
        assert_eq!(rest(true, Duration::from_secs(9), 1 << 20, false), REST_MAX);
        assert_eq!(rest(true, took, 1 << 20, true), Duration::ZERO);
        assert_eq!(rest(false, Duration::ZERO, 1 << 20, true), LOOK);
    }
}

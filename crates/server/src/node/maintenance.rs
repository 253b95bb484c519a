//! Background work: pruning after compactions, rewriting segments, watching the free space of the disk.

use super::Node;
use contain::lock;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use store::Work;
use telemetry::logging::{self, Value};

/// Bytes read or moved in one slice.
const SLICE_BYTES: u64 = 1 << 20;
/// Least and longest pause after a slice. In between it is as long as the slice took, so that background work takes at most half of a core, and
/// less of a disk that is slow. A full disk waits for it: then the pause is the least one.
const PAUSE: Duration = Duration::from_millis(1);
const PAUSE_MAX: Duration = Duration::from_millis(20);
/// Pause after a slice of checking what the start has not read: a few hundredths of a core, and of most disks.
const CHECKING_PAUSE: Duration = Duration::from_millis(20);
/// Key files wait so long for a checkpoint that is written for something else.
const KEY_FILES_WAIT: Duration = Duration::from_secs(60);
/// Time between rounds without work.
const LOOK: Duration = Duration::from_millis(200);

/// Since when key files wait for a checkpoint, without which a start does not use them.
#[derive(Default)]
struct Waiting(Option<Instant>);

impl Waiting {
    /// Notes whether some do. True once they have waited for long, and then from the beginning.
    fn is_long(&mut self, do_wait: bool, now: Instant) -> bool {
        let since = self.0.filter(|_| do_wait).unwrap_or(now);
        let is_long = now - since >= KEY_FILES_WAIT;
        self.0 = Some(since).filter(|_| do_wait && !is_long);
        is_long
    }
}

/// Runs until the member stops.
pub(super) fn run(node: &Arc<Node>) {
    let disk = &node.metrics.disk;
    // When a compaction was first seen to be unfinished.
    let mut compacting = None;
    // When work on the compaction began whose end is told next.
    let mut compaction_began: Option<Instant> = None;
    let mut key_files = Waiting::default();
    let mut dropped = node.store.dropped_versions();
    let mut compacted = node.store.compacted();
    if compacted < node.store.compact_revision() {
        let revision = node.store.compact_revision();
        logging::info("resume scheduled compaction", &[("scheduled-compact-revision", revision.into())]);
    }
    while !node.stopping.load(Ordering::Relaxed) {
        let is_compacting = node.store.compacted() < node.store.compact_revision();
        if is_compacting && !rest(node, node.config.compaction_pause) {
            break;
        }
        let began = Instant::now();
        if is_compacting {
            compacting.get_or_insert(began);
            compaction_began.get_or_insert(began);
        }
        let progress = match node.store.maintain(SLICE_BYTES) {
            Ok(progress) => progress,
            Err(error) => {
                logging::fatal("background work on the store failed", &[("error", logging::Value::Shown(&error))])
            }
        };
        if is_compacting {
            disk.prune_pause.observe(began.elapsed());
        }
        if progress.compacted >= node.store.compact_revision()
            && let Some(since) = compacting.take()
        {
            disk.compaction.observe(since.elapsed());
            let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
            disk.compacted_at.store(now.as_secs(), Ordering::Relaxed);
        }
        if key_files.is_long(progress.key_files_wait, began) || progress.checkpoint_is_due {
            node.checkpoint_wanted.store(true, Ordering::Relaxed);
        }
        if node.store.disk_is_low() {
            node.raise_no_space(0);
        }
        if std::mem::replace(&mut compacted, progress.compacted) < progress.compacted {
            let took = compaction_began.take().unwrap_or(began).elapsed();
            let keys = node
                .store
                .dropped_versions()
                .saturating_sub(std::mem::replace(&mut dropped, node.store.dropped_versions()));
            tell_compacted(node, progress.compacted, took, keys);
        }
        answer_compactions(node, progress.compacted);
        match progress.work {
            Work::Busy if node.store.disk_is_low() => std::thread::sleep(PAUSE),
            Work::Busy => std::thread::sleep(began.elapsed().clamp(PAUSE, PAUSE_MAX)),
            Work::Checking => std::thread::sleep(CHECKING_PAUSE),
            Work::Idle | Work::Waiting => wait(node),
        }
    }
    // A compaction that is not finished is in the log and continues at the next start, so its waiters get their answer
    // now.
    answer_compactions(node, i64::MAX);
}

/// What etcd says of a compaction. The sizes are those that the quota compares: files shrink later.
fn tell_compacted(node: &Node, revision: i64, took: Duration, keys: u64) {
    let usage = node.store.usage();
    let (live, file) = (logging::size(usage.live_bytes), logging::size(usage.file_bytes));
    let (took, hash) = (format!("{took:?}"), node.store.compaction_hash(revision));
    let mut fields: Vec<(&str, Value<'_>)> = vec![
        ("compact-revision", revision.into()),
        ("took", (&took).into()),
        ("number-of-keys-compacted", keys.into()),
    ];
    // A compaction that a restart has cut off has none.
    fields.extend(hash.map(|hash| ("hash", u64::from(hash).into())));
    fields.extend([
        ("current-db-size-bytes", usage.live_bytes.into()),
        ("current-db-size", (&live).into()),
        ("current-db-size-in-use-bytes", usage.live_bytes.into()),
        ("current-db-size-in-use", (&live).into()),
        ("file-bytes", usage.file_bytes.into()),
        ("file-size", (&file).into()),
    ]);
    logging::info("finished scheduled compaction", &fields);
}

/// Sleeps for `pause`. Returns early with false when the member stops.
fn rest(node: &Node, pause: Duration) -> bool {
    let began = Instant::now();
    loop {
        let left = pause.saturating_sub(began.elapsed());
        if left.is_zero() || node.stopping.load(Ordering::Relaxed) {
            return left.is_zero();
        }
        std::thread::sleep(left.min(LOOK));
    }
}

fn wait(node: &Node) {
    let mut woken = lock(&node.maintenance.0);
    if !*woken {
        woken = node.maintenance.1.wait_timeout(woken, LOOK).unwrap_or_else(|poisoned| poisoned.into_inner()).0;
    }
    *woken = false;
}

fn answer_compactions(node: &Node, finished: i64) {
    let mut waiting = lock(&node.compactions);
    let (done, rest): (Vec<_>, Vec<_>) =
        std::mem::take(&mut *waiting).into_iter().partition(|(revision, _)| *revision <= finished);
    *waiting = rest;
    drop(waiting);
    for (_, answer) in done {
        answer.end(Ok(()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn key_files_wait_a_minute_for_a_checkpoint() {
        let (mut waiting, began) = (Waiting::default(), Instant::now());
        let mut at = |seconds, do_wait| waiting.is_long(do_wait, began + Duration::from_secs(seconds));
        assert_eq!(
            [(0, true), (59, true), (60, true)].map(|(seconds, waits)| at(seconds, waits)),
            [false, false, true]
        );
        // While that one is written.
        assert_eq!([61, 120, 121].map(|seconds| at(seconds, true)), [false, false, true]);
        // Another one came first.
        assert_eq!([(122, true), (170, false), (190, true)].map(|(seconds, waits)| at(seconds, waits)), [false; 3]);
    }
}

//! The disk, and work on what is on it.

use super::load;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use telemetry::metrics::{Histogram, Page};

/// What is counted about it.
#[derive(Default)]
pub(crate) struct Disk {
    /// fdatasync of the Raft log, the write before it included.
    pub(crate) wal_fsync: Histogram,
    /// Encoding a batch for the Raft log.
    pub(crate) wal_write: Histogram,
    pub(crate) wal_bytes: AtomicU64,
    /// Writing a checkpoint, its syncs included: what etcd calls a backend commit.
    pub(crate) checkpoint: Histogram,
    /// Defragment calls: they wait for a compaction, if for anything.
    pub(crate) defrag: Histogram<13, 100_000_000>,
    pub(crate) defrags: AtomicI64,
    /// Planning a client's snapshot and sending it.
    pub(crate) snapshot: Histogram<17, 10_000_000>,
    /// Compactions applied: the pause of the one thread that applies.
    pub(crate) compaction_pause: Histogram<14, 500_000, 1_000_000>,
    /// Slices of pruning after compactions.
    pub(crate) prune_pause: Histogram<13, 1_000_000, 1_000_000>,
    /// From a compaction to the last slice.
    pub(crate) compaction: Histogram<14, 100_000_000, 1_000_000>,
    /// When the last compaction was finished, in seconds since the epoch.
    pub(crate) compacted_at: AtomicU64,
    /// Bytes of files that are not needed any more and still take space.
    pub(crate) retired_bytes: AtomicU64,
    /// Bytes of such files that were given back.
    pub(crate) reaped_bytes: AtomicU64,
    /// Attempts at it that failed.
    pub(crate) reap_failures: AtomicU64,
}

/// Appends the families; `dropped_versions` by compactions.
pub(super) fn write(page: &mut Page, disk: &Disk, dropped_versions: u64) {
    disk.wal_fsync.write(page, "etcd_disk_wal_fsync_duration_seconds", "Writing to the Raft log and syncing it.");
    disk.wal_write.write(page, "etcd_disk_wal_write_duration_seconds", "Encoding what goes to the Raft log.");
    page.gauge("etcd_disk_wal_write_bytes_total", "Bytes of entries for the Raft log.", load(&disk.wal_bytes));
    let commits = &disk.checkpoint;
    commits.write(page, "etcd_disk_backend_commit_duration_seconds", "Writing checkpoints.");
    commits.write(page, "etcd_debugging_snap_save_total_duration_seconds", "Writing checkpoints.");
    disk.defrag.write(page, "etcd_disk_backend_defrag_duration_seconds", "Defragment calls.");
    page.gauge("etcd_disk_defrag_inflight", "Defragment calls under way.", disk.defrags.load(Ordering::Relaxed));
    disk.snapshot.write(page, "etcd_disk_backend_snapshot_duration_seconds", "Snapshots for clients.");
    disk.compaction_pause.write(
        page,
        "etcd_debugging_mvcc_index_compaction_pause_duration_milliseconds",
        "Applying compactions.",
    );
    disk.prune_pause.write(
        page,
        "etcd_debugging_mvcc_db_compaction_pause_duration_milliseconds",
        "Slices of dropping what a compaction let go of.",
    );
    disk.compaction.write(
        page,
        "etcd_debugging_mvcc_db_compaction_total_duration_milliseconds",
        "From a compaction to its last slice.",
    );
    page.gauge(
        "cairn_disk_retired_bytes",
        "Bytes of files that are not needed any more and wait to be given back to the disk.",
        load(&disk.retired_bytes),
    );
    page.counter(
        "cairn_disk_given_back_bytes_total",
        "Bytes of files that were not needed any more and were given back to the disk, those with a second name included.",
        load(&disk.reaped_bytes),
    );
    page.counter(
        "cairn_disk_give_back_failures_total",
        "Attempts to give back a part of a file that failed.",
        load(&disk.reap_failures),
    );
    let last = load(&disk.compacted_at);
    page.gauge("etcd_debugging_mvcc_db_compaction_last", "When the last compaction was finished.", last);
    page.counter(
        "etcd_debugging_mvcc_db_compaction_keys_total",
        "Versions that compactions have dropped.",
        dropped_versions,
    );
}

//! Options of a store.

use api::limits;
use std::time::Duration;

/// Settings of a store. Those that decide what an entry does must be equal on all members.
#[derive(Clone, Debug)]
pub struct Options {
    /// Layout of the revision log.
    pub log: crate::log::Options,
    /// Bounds of the watch machinery.
    pub watch: crate::watch::Options,
    /// `--quota-backend-bytes`: 0 is the default, a negative number is no quota.
    pub quota_bytes: i64,
    /// The shortest lease, in seconds; shorter ones are granted this long, unless their proposer has seen to that.
    pub lease_ttl_seconds_min: i64,
    /// `--max-learners`. Equal on all members.
    pub learners_max: usize,
    /// Bytes of pairs at which a chunk of a range stream ends, with the pair that reaches them.
    pub stream_chunk_bytes: usize,
    /// Free disk space below which writes are refused, beyond what the revision log reserves for itself: for the Raft log and a
    /// checkpoint.
    pub reserve_bytes: u64,
    /// `--compaction-batch-limit`: versions that one call of [`Store::maintain`](crate::Store::maintain) looks at for a compaction; 0 is
    /// as many as its budget has.
    pub compaction_batch_versions: usize,
    /// A start reads key files instead of the records of their segments. Not for a program that reads a store once and is to say whether it is
    /// damaged.
    pub uses_key_files: bool,
    /// Called between the small parts of long work (housekeeping, and a snapshot that is sent or received), by the thread that does it: a shell
    /// may let others go first. The thread holds no lock that a request waits for.
    pub rest: fn(),
    /// Called by a read between two strides of keys, while it holds no lock: a shell may let others have the processor.
    pub pause: fn(),
    /// The processor's time of the calling thread. With it [`Sink::worked`](crate::Sink::worked) tells what the deletions and transactions
    /// took.
    pub thread_time: Option<fn() -> Duration>,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            log: crate::log::Options::default(),
            watch: crate::watch::Options::default(),
            quota_bytes: limits::QUOTA_BYTES_DEFAULT,
            lease_ttl_seconds_min: 2,
            learners_max: 1,
            stream_chunk_bytes: limits::REQUEST_BYTES_MAX,
            reserve_bytes: 0,
            compaction_batch_versions: 0,
            uses_key_files: true,
            rest: || {},
            pause: || {},
            thread_time: None,
        }
    }
}

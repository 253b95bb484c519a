//! The bounds of the watch machinery.

use api::limits;

/// Bounds; [`Options::default`] takes them from [`api::limits`]. Tests make them small.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Events one stream may have queued before its watchers read the log instead.
    pub queue_events_max: usize,
    /// Matching revisions that one catch-up response covers at most.
    pub catch_up_revisions_max: i64,
    /// A catch-up read ends with the revision that passes this many bytes of events, counted once per distinct request.
    pub catch_up_bytes_max: usize,
    /// Log records looked at in one call of `poll`, give or take one revision.
    pub poll_records_max: usize,
    /// A cursor this close to the present registers with the hub and reads the rest while live events queue behind it.
    pub join_gap_revisions: i64,
    /// Responses beyond this are split for watchers that asked for fragments: `--max-request-bytes` + 512 KiB.
    pub fragment_bytes: usize,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            queue_events_max: limits::WATCH_QUEUE_EVENTS_MAX,
            catch_up_revisions_max: limits::WATCH_CATCH_UP_REVISIONS_MAX,
            catch_up_bytes_max: 512 * 1024,
            poll_records_max: 4_096,
            join_gap_revisions: 256,
            fragment_bytes: limits::REQUEST_BYTES_MAX + limits::GRPC_OVERHEAD_BYTES,
        }
    }
}

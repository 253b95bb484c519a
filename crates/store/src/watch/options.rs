//! The bounds of the watch machinery.

use api::limits;

/// Bounds; [`Options::default`] takes them from [`api::limits`]. Tests make them small.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Events one stream may have queued before its watchers read the log instead.
    pub queue_events_max: usize,
    /// Events all streams together may have queued, and what short queues hold on top, before long queues are given up, the one that has
    /// been long for the longest time first.
    pub all_queues_events_max: usize,
    /// A queue with more events than this is a long one.
    pub long_queue_events: usize,
    /// Events of all short queues together. With more streams than this has room for, a queue is long with fewer events than
    /// `long_queue_events`, but not with one.
    pub short_queues_events_max: usize,
    /// Matching revisions that one catch-up response covers at most.
    pub catch_up_revisions_max: i64,
    /// A catch-up read ends with the revision that passes this many bytes of events, counted once per distinct request.
    pub catch_up_bytes_max: usize,
    /// Bytes of events that one stream has built and not yet sent, with those of one watcher more. Of what belongs to many watchers they are
    /// counted once per distinct request, in a catch-up read even where these share them.
    pub delivery_bytes_max: usize,
    /// Matches of events and watchers that the applier looks at for one revision; of a revision with more, all streams read the log.
    pub route_hits_max: usize,
    /// Log records looked at in one call of `poll`, give or take as many for the revision that it ends with. A revision with more is
    /// read in several calls.
    pub poll_records_max: usize,
    /// A cursor this close to the present registers with the hub and reads the rest while live events queue after it.
    pub join_gap_revisions: i64,
    /// Responses beyond this are split for watchers that asked for fragments: `--max-request-bytes` + 512 KiB.
    pub fragment_bytes: usize,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            queue_events_max: limits::WATCH_QUEUE_EVENTS_MAX,
            all_queues_events_max: limits::WATCH_ALL_QUEUES_EVENTS_MAX,
            long_queue_events: limits::WATCH_LONG_QUEUE_EVENTS,
            short_queues_events_max: limits::WATCH_SHORT_QUEUES_EVENTS_MAX,
            catch_up_revisions_max: limits::WATCH_CATCH_UP_REVISIONS_MAX,
            catch_up_bytes_max: 512 * 1024,
            delivery_bytes_max: limits::WATCH_DELIVERY_BYTES_MAX,
            route_hits_max: limits::WATCH_ROUTE_HITS_MAX,
            poll_records_max: 4_096,
            join_gap_revisions: 256,
            fragment_bytes: limits::REQUEST_BYTES_MAX + limits::GRPC_OVERHEAD_BYTES,
        }
    }
}

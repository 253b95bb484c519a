//! The bounds of the members' watch machinery, small ones.

use disk::sim::Random;

/// Separates these choices from all others.
const STREAM: u64 = 0x0bad_ca5e_0ff1_ce01;

/// The bounds of the members' watch machinery: small, so that queues overflow and reads of the log come in parts.
pub(crate) fn draw(seed: u64) -> store::watch::Options {
    let mut random = Random::new(seed ^ STREAM);
    let mut one_of = |sizes: [usize; 3]| sizes[random.below(3) as usize];
    store::watch::Options {
        queue_events_max: one_of([2, 10, 1_000]),
        catch_up_revisions_max: one_of([1, 5, 1_000]) as i64,
        catch_up_bytes_max: one_of([100, 2_000, 100_000]),
        delivery_bytes_max: one_of([100, 4_000, 100_000]),
        route_hits_max: one_of([2, 10, 1_000]),
        poll_records_max: one_of([3, 40, 1_000]),
        join_gap_revisions: one_of([1, 8, 256]) as i64,
        fragment_bytes: one_of([100, 600, 10_000]),
        all_queues_events_max: one_of([20, 1 << 20, 1 << 20]),
        long_queue_events: 2,
        short_queues_events_max: 6,
    }
}

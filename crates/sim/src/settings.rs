//! Settings of members, which may differ from one to the next.

use crate::plan::Plan;
use disk::sim::Random;

/// Separates these choices from all others.
const STREAM: u64 = 0x5e77_1265_0fa1_1000;

/// Settings of one member where members differ.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Settings {
    pub(crate) catchup_entries: u64,
    pub(crate) checkpoint_entries: u64,
    pub(crate) wal_segment_bytes: u64,
    pub(crate) store_segment_bytes: u64,
    pub(crate) pre_vote: bool,
    /// As the flag: below zero there is none.
    pub(crate) quota_bytes: i64,
}

impl Settings {
    /// The settings of a host.
    pub(crate) fn of(plan: &Plan, host: usize) -> Settings {
        let Plan { catchup_entries, checkpoint_entries, wal_segment_bytes, store_segment_bytes, pre_vote, .. } = *plan;
        // An observer raises no alarm, so nobody would make room for what it alone refuses.
        let observes = (plan.founders..plan.founders + plan.extras.observers).contains(&host);
        let quota_bytes = plan.quota_bytes.unwrap_or(-1) * if observes { 3 } else { 1 };
        if !plan.extras.settings_differ {
            return Settings {
                catchup_entries,
                checkpoint_entries,
                wal_segment_bytes,
                store_segment_bytes,
                pre_vote,
                quota_bytes,
            };
        }
        let mut random = Random::new(STREAM ^ plan.seed.rotate_left(17) ^ host as u64);
        Settings {
            catchup_entries: [0, 5, 20, 100][random.below(4) as usize],
            checkpoint_entries: 10 + random.below(90),
            wal_segment_bytes: [4, 16, 64][random.below(3) as usize] * 1024,
            store_segment_bytes,
            pre_vote: random.chance(50),
            quota_bytes: quota_bytes * (1 + random.below(3) as i64),
        }
    }
}

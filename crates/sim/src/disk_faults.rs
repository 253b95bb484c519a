//! Disks that fail: a write or a sync says EIO, and what it should have made durable may never be. The process ends, and starts again on what
//! the page cache has: the power stays on.

use crate::fault_kind::Kind;
use crate::schedule::Event;
use crate::trace::trace;
use crate::world::World;
use disk::sim::Random;

/// Separates these random choices from all others.
const STREAM: u64 = 0x00d1_5c0f_fa11_ed00;

impl World {
    pub(crate) fn begin_disk_faults(&mut self) {
        if self.env.plan.extras.disks_fail {
            let random = Random::new(self.env.plan.seed ^ STREAM);
            self.env.after(1_500_000, Event::DiskFault { random });
        }
    }

    /// Has one of the next operations of a disk fail.
    pub(crate) fn fail_disk(&mut self, mut random: Random) {
        if self.finale.has_begun() {
            return;
        }
        let host = &self.hosts[random.below(self.hosts.len() as u64) as usize];
        let operations = random.below(12);
        if host.process.is_some() && !host.disk.is_cut() {
            if self.env.plan.extras.is_varied && random.chance(40) {
                host.disk.fill_at_write_after(operations);
            } else if random.chance(60) {
                host.disk.fail_file_sync_after(operations);
            } else {
                host.disk.fail_write_after(operations);
            }
            trace!(self.env, "the disk of {} fails after {operations} more writes or syncs", host.index);
            *self.faults.counts.entry(Kind::DiskError).or_default() += 1;
        }
        let delay_us = 100_000 + random.below(2_000_000);
        self.env.after(delay_us, Event::DiskFault { random });
    }
}

//! Clocks that jump ahead, as that of a virtual machine does that was suspended. No monotonic clock goes back.

use crate::fault_kind::Kind;
use crate::schedule::Event;
use crate::trace::trace;
use crate::world::World;
use disk::sim::Random;

/// Separates these random choices from all others.
const STREAM: u64 = 0x00c1_0c45_d21f_7001;
/// The longest jump: several election timeouts, and longer than any lease of the clients.
const JUMP_US_MAX: u64 = 6_000_000;

impl World {
    pub(crate) fn begin_clock_jumps(&mut self) {
        if self.env.plan.extras.clocks_drift {
            let random = Random::new(self.env.plan.seed ^ STREAM);
            self.env.after(2_000_000, Event::ClockJump { random });
        }
    }

    /// One clock jumps. No promise of a lease from before holds any more: the leader believes that the time has passed.
    pub(crate) fn jump(&mut self, mut random: Random) {
        if self.finale.has_begun() {
            return;
        }
        let host = random.below(self.hosts.len() as u64) as usize;
        let jump_us = 50_000 + random.below(JUMP_US_MAX);
        if let Some(process) = &mut self.hosts[host].process {
            process.machine.clock.ahead_us += jump_us;
            trace!(self.env, "the clock of {host} jumps by {jump_us} us");
            self.env.history.void_promises(self.env.now_us);
            *self.faults.counts.entry(Kind::ClockJump).or_default() += 1;
        }
        let delay_us = 500_000 + random.below(5_000_000);
        self.env.after(delay_us, Event::ClockJump { random });
    }
}

//! The clock of a member, which may run a little fast or slow.

use crate::env::Env;
use disk::sim::Random;

/// Separates these random choices from all others.
const STREAM: u64 = 0x00c1_0c45_d21f_7000;
/// How much a clock may be off, in thousandths.
pub(crate) const DRIFT_PER_MILLE_MAX: u64 = 50;

/// A member's clock against that of the world.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    per_mille: u64,
    pub(crate) ahead_us: u64,
}

impl Clock {
    /// The clock of a process.
    pub(crate) fn new(env: &Env, host: usize, boot: u64) -> Clock {
        if !env.plan.extras.clocks_drift {
            return Clock { per_mille: 1000, ahead_us: 0 };
        }
        let mut random = Random::new(STREAM ^ env.plan.seed ^ (host as u64) << 32 ^ boot);
        let per_mille = 1000 - DRIFT_PER_MILLE_MAX + random.below(2 * DRIFT_PER_MILLE_MAX + 1);
        Clock { per_mille, ahead_us: 0 }
    }

    pub(crate) fn now_us(&self, env: &Env) -> u64 {
        env.now_us * self.per_mille / 1000 + self.ahead_us
    }

    /// How long so much time of this clock takes. A timer that the world's clock ended would mostly be a little early for a slow clock, and every
    /// second tick of its member would be missed.
    pub(crate) fn lasts_us(&self, own_us: u64) -> u64 {
        (own_us * 1000).div_ceil(self.per_mille)
    }

    pub(crate) fn now_ms(&self, env: &Env) -> u64 {
        self.now_us(env) / 1000
    }
}

//! What a run may have beside the plan. Drawn apart from it, so that a run that has none of it stays as it was before there were any.

use disk::sim::Random;

/// Separates these choices from all others.
const STREAM: u64 = 0x00e7_74a5_0f5e_ed00;

/// What a run has.
#[derive(Clone, Debug, Default)]
pub(crate) struct Extras {
    /// Users, roles and permissions change under load.
    pub(crate) has_users: bool,
    /// Transactions read at old revisions, compacted ones among them.
    pub(crate) reads_old: bool,
    /// Leaders write the remaining time of leases to the log.
    pub(crate) checkpoints_leases: bool,
    /// Writes and syncs fail.
    pub(crate) disks_fail: bool,
    /// Clocks run fast or slow, and jump.
    pub(crate) clocks_drift: bool,
    /// Members have other settings than their neighbours.
    pub(crate) settings_differ: bool,
    /// Room for five voters and two learners.
    pub(crate) has_two_learners: bool,
    /// The space quota, as a number of the largest puts of the run. An operator makes room when it is used up.
    pub(crate) quota_puts: Option<u64>,
    /// Clients log in, and write with their tokens. Only with users.
    pub(crate) has_tokens: bool,
    /// Tokens end while clients use them.
    pub(crate) tokens_expire: bool,
    /// Puts that keep a value or a lease or want the previous pair, equal watches, roles that are deleted, disks that are full for a moment.
    pub(crate) is_varied: bool,
    /// Observers beside the members.
    pub(crate) observers: usize,
    /// The apply thread takes time between the strides of a batch: others read what it has applied, and clients get answers. Only with
    /// observers, to which a member tells what it has applied.
    pub(crate) applies_in_strides: bool,
}

impl Extras {
    pub(crate) fn draw(seed: u64) -> Extras {
        let mut random = Random::new(seed ^ STREAM);
        let mut extras = Extras {
            has_users: random.chance(20),
            reads_old: random.chance(60),
            checkpoints_leases: random.chance(30),
            disks_fail: random.chance(25),
            clocks_drift: random.chance(20),
            settings_differ: random.chance(30),
            has_two_learners: random.chance(30),
            quota_puts: None,
            has_tokens: false,
            tokens_expire: false,
            is_varied: false,
            observers: 0,
            applies_in_strides: false,
        };
        if random.chance(20) {
            extras.quota_puts = Some(8 + random.below(40));
        }
        extras.has_tokens = extras.has_users && random.chance(60);
        extras.tokens_expire = random.chance(30);
        extras.is_varied = random.chance(50);
        if random.chance(25) {
            extras.observers = 1 + random.below(2) as usize;
        }
        extras.applies_in_strides = random.chance(50);
        extras
    }
}

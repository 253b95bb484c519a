//! The kinds of faults, and which of them a run has.

use disk::sim::Random;

/// A kind of fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// One member is cut off from all others.
    Isolation,
    /// The members are split into two groups that cannot communicate.
    Split,
    /// A link works in one direction only.
    OneWay,
    /// Messages are lost.
    Loss,
    /// Some messages take very long, and later ones overtake them.
    Delay,
    /// Messages arrive twice.
    Duplication,
    /// A process is killed; its machine keeps running.
    Kill,
    /// A machine loses power.
    PowerCut,
    /// A machine loses power in the middle of one of its next operations on the disk.
    PowerCutInWrite,
    /// All machines lose power.
    Blackout,
    /// A process is paused.
    Pause,
    /// Syncs take very long.
    SlowDisk,
    /// The leader transfers leadership.
    Transfer,
    /// Members are added, promoted and removed.
    Membership,
    /// Two members are removed at once. Not drawn with the others: see `removals`.
    Removals,
    /// A member is set back to an older copy of its directory. Not drawn with the others: see `set_back`.
    SetBack,
    /// A write or a sync fails with EIO. Not drawn with the others: see `disk_faults`.
    DiskError,
    /// A member's clock jumps ahead. Not drawn with the others: see `clocks`.
    ClockJump,
}

/// All kinds that are drawn.
pub const KINDS: [Kind; 14] = [
    Kind::Isolation,
    Kind::Split,
    Kind::OneWay,
    Kind::Loss,
    Kind::Delay,
    Kind::Duplication,
    Kind::Kill,
    Kind::PowerCut,
    Kind::PowerCutInWrite,
    Kind::Blackout,
    Kind::Pause,
    Kind::SlowDisk,
    Kind::Transfer,
    Kind::Membership,
];

/// Kinds that are possible in a cluster of one member.
const ALONE: [Kind; 6] =
    [Kind::Kill, Kind::PowerCut, Kind::PowerCutInWrite, Kind::Pause, Kind::SlowDisk, Kind::Membership];

/// Chooses the kinds of a run: at least two, but few, so that they often coincide.
pub(crate) fn draw(random: &mut Random, founders: usize) -> Vec<usize> {
    let mut possible: Vec<usize> =
        (0..KINDS.len()).filter(|kind| founders > 1 || ALONE.contains(&KINDS[*kind])).collect();
    let count = (3 + random.below(6) as usize).min(possible.len());
    (0..count).map(|_| possible.swap_remove(random.below(possible.len() as u64) as usize)).collect()
}

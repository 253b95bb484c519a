//! Mistakes that the simulator plants, to prove that it would notice them (`make planted`, feature `mistakes`). No other build has any of them.

/// A mistake that somebody could make in this crate.
#[cfg_attr(not(feature = "mistakes"), expect(unreachable_pub, reason = "exported only for the simulator"))]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mistake {
    /// A batch counts as durable once it is written.
    CommitsWithoutSync,
    /// A segment gets its name before its first batch is durable.
    NamesSegmentBeforeSync,
    /// A segment counts before its name is durable.
    SegmentNameNotSynced,
    /// A new segment does not repeat the term and the vote.
    SegmentForgetsHardState,
    /// The segment with the first entry that is needed is freed, too.
    FreesOneTooMany,
    /// An entry that replaces others leaves those behind it.
    KeepsReplacedEntries,
    /// The end of a torn batch stays where the next one is written.
    LeavesTornBatch,
    /// The last batch is not written again at a start.
    TrustsLastBatch,
    /// A batch that a full disk cut short is not written again once there is room, and counts.
    CountsBatchOnFullDisk,
    /// A batch whose sync failed counts once another sync succeeds.
    SyncsAgainAfterError,
}

/// Whether this build can be told to make mistakes. A server that could would not compile.
pub const CAN_BE_MISTAKEN: bool = cfg!(feature = "mistakes");

#[cfg(feature = "mistakes")]
thread_local! {
    static PLANTED: std::cell::Cell<Option<Mistake>> = const { std::cell::Cell::new(None) };
}

impl Mistake {
    /// Whether a test has planted it; never outside of tests.
    #[inline(always)]
    pub(crate) fn is_planted(self) -> bool {
        #[cfg(feature = "mistakes")]
        return PLANTED.get() == Some(self);
        #[cfg(not(feature = "mistakes"))]
        false
    }

    /// Plants one, or none, on this thread.
    #[cfg(feature = "mistakes")]
    pub fn plant(mistake: Option<Mistake>) {
        PLANTED.set(mistake);
    }

    /// All of them.
    #[cfg(feature = "mistakes")]
    pub const ALL: &[Mistake] = &[
        Mistake::CommitsWithoutSync,
        Mistake::NamesSegmentBeforeSync,
        Mistake::SegmentNameNotSynced,
        Mistake::SegmentForgetsHardState,
        Mistake::FreesOneTooMany,
        Mistake::KeepsReplacedEntries,
        Mistake::LeavesTornBatch,
        Mistake::TrustsLastBatch,
        Mistake::CountsBatchOnFullDisk,
        Mistake::SyncsAgainAfterError,
    ];
}

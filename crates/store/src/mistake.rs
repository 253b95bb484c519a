//! Mistakes that tests plant, to prove that they would notice them: races for `make schedules`, and all others for the simulator
//! (`make planted`, feature `mistakes`). No build without a test's feature has any of them.

/// A mistake that somebody could make in this crate.
#[cfg_attr(not(feature = "mistakes"), expect(unreachable_pub, reason = "exported only for the simulator"))]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mistake {
    /// The level that a watcher begins behind is read before the hub knows the watcher.
    LevelBeforeRegistration,
    /// A stream looks for entries, and notes that it found none, in two steps.
    SleepsAfterLook,
    /// A checkpoint says that the entry behind its state was applied too.
    CheckpointNamesNextEntry,
    /// A checkpoint says that its last entry was not applied yet.
    CheckpointNamesEarlierEntry,
    /// A checkpoint has no users.
    CheckpointForgetsUsers,
    /// A checkpoint has all leases but one.
    CheckpointForgetsALease,
    /// A checkpoint has leases without the time that was left of them.
    CheckpointForgetsRemainingTime,
    /// A checkpoint has no alarms.
    CheckpointForgetsAlarms,
    /// A checkpoint gets its name before its segments are durable.
    CheckpointBeforeSegments,
    /// A checkpoint counts before its name is durable.
    CheckpointNameNotSynced,
    /// A rewritten segment is removed although a checkpoint lists it.
    RemovesListedSegments,
    /// A rewrite drops every tombstone that the index does not have.
    RewriteDropsGraves,
    /// The index forgets a tombstone at the revision of a compaction.
    CompactsDeletes,
    /// A compaction drops what was current at its revision.
    CompactsOneTooFar,
    /// A start takes the revision from the keys that are there.
    RevisionFromKeys,
    /// A start does not attach keys to their leases.
    StartDetachesKeys,
    /// A snapshot from another member leaves the leases as they were.
    InstallKeepsLeases,
    /// A snapshot from another member leaves users and roles as they were.
    InstallKeepsUsers,
    /// A snapshot from another member leaves the alarms as they were.
    InstallKeepsAlarms,
    /// A start does not look whether an alarm refuses writes.
    StartIgnoresAlarms,
    /// An entry that passes a member's quota is not applied there.
    OverQuotaIsNotApplied,
    /// A member that has raised the NOSPACE alarm never does again.
    RaisesAlarmOnce,
    /// A transaction reads at a revision that was compacted.
    ReadsCompactedInTxn,
    /// A condition on the mod revision looks at the create revision.
    ComparesOtherRevision,
    /// What a user may do is kept when a role changes.
    KeepsOldPermissions,
    /// An entry is not asked for the auth revision under which it was permitted.
    IgnoresAuthRevision,
    /// The tokens of a user that was deleted stay valid.
    DeletedUserKeepsTokens,
    /// A lease that is revoked leaves its keys.
    RevokeLeavesKeys,
    /// A lease may be revoked by somebody who may not write its keys.
    RevokeAsksNobody,
    /// A watch begins a revision late.
    WatchBeginsLate,
    /// A watch that asked for a later revision gets events from before it.
    FutureWatchGetsOldEvents,
    /// Progress is told to watches whose start is still to come.
    FutureWatchGetsProgress,
    /// Progress overtakes events that are queued.
    ProgressBeforeEvents,
    /// A stream that takes too little goes on behind what was queued for it.
    ForgetsStarvedEvents,
    /// A stream that takes too little goes on with what it had already.
    StarvedStreamGoesBack,
    /// Events of a transaction are told twice.
    TellsTransactionsTwice,
    /// A watch that begins at the revision of a compaction does not get its deletions.
    WatchMissesDeleteAtCompaction,
    /// A watch whose events were compacted goes on without them.
    SwallowsCompaction,
    /// A read of the log for watches ends within a revision.
    SplitsRevisions,
    /// The previous pair is looked up at the event's own revision.
    PreviousIsItself,
    /// Filters take the other kind of events out.
    FiltersOtherKind,
    /// Watchers are not told that a snapshot has replaced everything.
    InstallTellsNobody,
    /// When the last but one of equal watches on a stream ends, the last one gets nothing any more.
    LastButOneEndsInterest,
    /// A put that leaves the lease as it is detaches its key from it.
    IgnoredLeaseDetaches,
    /// A role that is deleted stays granted to its users.
    DeletedRoleStaysGranted,
    /// A rewritten segment counts as durable once it is written.
    RewriteNotSynced,
    /// A checkpoint names the last compaction that is finished, and not one that is still at work.
    CheckpointNamesFinishedCompaction,
    /// After a snapshot from another member entries are applied with the compaction from before it.
    InstallKeepsCompaction,
    /// A range of an entry has the keys that were deleted by entries applied together with it.
    SeesKeysDeletedInStride,
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
        #[cfg(all(test, feature = "schedules"))]
        return schedules::is_planted(self as u8);
        #[cfg(all(feature = "mistakes", not(all(test, feature = "schedules"))))]
        return PLANTED.get() == Some(self);
        #[cfg(not(any(feature = "mistakes", all(test, feature = "schedules"))))]
        false
    }

    /// Plants one, or none, on this thread.
    #[cfg(feature = "mistakes")]
    pub fn plant(mistake: Option<Mistake>) {
        PLANTED.set(mistake);
    }

    /// All that a simulated cluster shows in little time. [`Mistake::RewriteDropsGraves`] is planted by a unit test of rewriting.
    #[cfg(feature = "mistakes")]
    pub const ALL: &[Mistake] = &[
        Mistake::CheckpointNamesNextEntry,
        Mistake::CheckpointNamesEarlierEntry,
        Mistake::CheckpointForgetsUsers,
        Mistake::CheckpointForgetsALease,
        Mistake::CheckpointForgetsRemainingTime,
        Mistake::CheckpointForgetsAlarms,
        Mistake::CheckpointBeforeSegments,
        Mistake::CheckpointNameNotSynced,
        Mistake::RemovesListedSegments,
        Mistake::CompactsDeletes,
        Mistake::CompactsOneTooFar,
        Mistake::RevisionFromKeys,
        Mistake::StartDetachesKeys,
        Mistake::InstallKeepsLeases,
        Mistake::InstallKeepsUsers,
        Mistake::InstallKeepsAlarms,
        Mistake::StartIgnoresAlarms,
        Mistake::OverQuotaIsNotApplied,
        Mistake::RaisesAlarmOnce,
        Mistake::ReadsCompactedInTxn,
        Mistake::ComparesOtherRevision,
        Mistake::KeepsOldPermissions,
        Mistake::IgnoresAuthRevision,
        Mistake::DeletedUserKeepsTokens,
        Mistake::RevokeLeavesKeys,
        Mistake::RevokeAsksNobody,
        Mistake::WatchBeginsLate,
        Mistake::FutureWatchGetsOldEvents,
        Mistake::FutureWatchGetsProgress,
        Mistake::ProgressBeforeEvents,
        Mistake::ForgetsStarvedEvents,
        Mistake::StarvedStreamGoesBack,
        Mistake::TellsTransactionsTwice,
        Mistake::WatchMissesDeleteAtCompaction,
        Mistake::SwallowsCompaction,
        Mistake::SplitsRevisions,
        Mistake::PreviousIsItself,
        Mistake::FiltersOtherKind,
        Mistake::InstallTellsNobody,
        Mistake::LastButOneEndsInterest,
        Mistake::IgnoredLeaseDetaches,
        Mistake::DeletedRoleStaysGranted,
        Mistake::RewriteNotSynced,
        Mistake::CheckpointNamesFinishedCompaction,
        Mistake::InstallKeepsCompaction,
        Mistake::SeesKeysDeletedInStride,
    ];
}

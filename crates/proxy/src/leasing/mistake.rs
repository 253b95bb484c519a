//! Mistakes that tests plant, to prove that they would notice them.

/// A mistake that somebody could make about leased keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mistake {
    /// A key is served while a write of it is under way.
    ServesDuringWrites,
    /// What an older write has left replaces what a newer one has.
    TakesOlderStates,
    /// A key is kept after a write whose outcome is unknown.
    KeepsAfterUnknownWrites,
    /// A lease key is deleted while its key is still served.
    ServesWhatIsGivenBack,
    /// A lease key that was revoked before the proxy learned that it has it counts.
    ForgetsEarlyRevocations,
    /// A key is served after the lease may have ended.
    ServesWithoutLease,
    /// A key that hangs on a lease is kept.
    KeepsKeysWithLeases,
    /// A write of an own key takes place also without its lease key.
    WritesWithoutLeaseKey,
    /// A lease key of this proxy that it does not know of counts as acquired.
    AdoptsLeaseKeys,
    /// A range is deleted whatever its lease keys are.
    DeletesRangesUnguarded,
}

#[cfg(test)]
thread_local! {
    static PLANTED: std::cell::Cell<Option<Mistake>> = const { std::cell::Cell::new(None) };
}

impl Mistake {
    #[cfg(test)]
    pub(crate) const ALL: [Mistake; 10] = [
        Mistake::ServesDuringWrites,
        Mistake::TakesOlderStates,
        Mistake::KeepsAfterUnknownWrites,
        Mistake::ServesWhatIsGivenBack,
        Mistake::ForgetsEarlyRevocations,
        Mistake::ServesWithoutLease,
        Mistake::KeepsKeysWithLeases,
        Mistake::WritesWithoutLeaseKey,
        Mistake::AdoptsLeaseKeys,
        Mistake::DeletesRangesUnguarded,
    ];

    /// Whether a test has planted it; never outside of tests.
    pub(crate) fn is_planted(self) -> bool {
        #[cfg(test)]
        return PLANTED.get() == Some(self);
        #[cfg(not(test))]
        false
    }

    /// Plants it on this thread, or none.
    #[cfg(test)]
    pub(crate) fn plant(mistake: Option<Mistake>) {
        PLANTED.set(mistake);
    }
}

//! Mistakes that tests plant, to prove that they would notice them.

/// A mistake that somebody could make in a hub.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mistake {
    /// A watch that joins is not given the recent events that it lacks.
    LosesEventsAtJoin,
    /// Progress is told as it comes, whatever a client has been sent.
    TellsProgressEarly,
    /// A watch whose events were compacted is not ended.
    SwallowsCompaction,
    /// A feed that goes on at another member begins with an event that it has given already.
    RepeatsAfterResumption,
    /// A feed ends although not all of its watches have joined another one yet.
    EndsHalfJoined,
    /// Events for which a client has no room are not given to it again.
    LosesWhatFindsNoRoom,
    /// Events that come for a client that has stalled, before a watch of it is taken off its feed, count as given.
    SkipsWhatComesStalled,
    /// A client shares the hub of clients with another token.
    MixesIdentities,
}

#[cfg(test)]
thread_local! {
    static PLANTED: std::cell::Cell<Option<Mistake>> = const { std::cell::Cell::new(None) };
}

impl Mistake {
    #[cfg(test)]
    pub(crate) const ALL: [Mistake; 8] = [
        Mistake::LosesEventsAtJoin,
        Mistake::TellsProgressEarly,
        Mistake::SwallowsCompaction,
        Mistake::RepeatsAfterResumption,
        Mistake::EndsHalfJoined,
        Mistake::LosesWhatFindsNoRoom,
        Mistake::SkipsWhatComesStalled,
        Mistake::MixesIdentities,
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

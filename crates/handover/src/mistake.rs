//! Mistakes that the tests of `make schedules` plant, to prove that they would notice them.

/// A race that somebody could make in this crate.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Mistake {
    /// The reader of the inbox looks into it, and notes that it sleeps, in two steps.
    ReaderSleepsAfterLook,
    /// Whoever takes from the inbox notes that its reader is awake.
    TakerWakesReader,
    /// A request thread lets others take turns before its own is in the log.
    LeavesTurnBeforeLog,
    /// A turn ends with the first write, and leaves what the timer has brought meanwhile.
    ForgetsStandIn,
    /// The apply thread looks for a batch, and begins to wait, in two steps.
    ApplierSleepsAfterLook,
    /// A batch counts as applied when it is taken.
    DoneBeforeApplied,
    /// Consensus looks how far the store is before it says what it waits for.
    LooksBeforeAwaiting,
    /// A member takes it for confirmed that it leads as soon as it asks.
    ConfirmsWhenAsked,
}

impl Mistake {
    /// Whether a test has planted it; never outside of tests.
    pub(crate) fn is_planted(self) -> bool {
        #[cfg(all(test, feature = "schedules"))]
        return schedules::is_planted(self as u8);
        #[cfg(not(all(test, feature = "schedules")))]
        false
    }
}

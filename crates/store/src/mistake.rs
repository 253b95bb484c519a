//! Mistakes that the tests of `make schedules` plant, to prove that they would notice them.

/// A race that somebody could make in this crate.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Mistake {
    /// The level that a watcher begins behind is read before the hub knows the watcher.
    LevelBeforeRegistration,
    /// A stream looks for entries, and notes that it found none, in two steps.
    SleepsAfterLook,
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

//! Mistakes that the tests of `make schedules` plant, to prove that they would notice them.

/// A race that somebody could make in this crate.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Mistake {
    /// A thread looks for mail, and notes that it sleeps, in two steps.
    SleepsAfterLook,
    /// A stream's mark that it was called is cleared before the mark that mail is on its way.
    ClearsReadyFirst,
    /// A task looks whether it was called before it says whom to wake.
    LooksBeforeWaker,
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

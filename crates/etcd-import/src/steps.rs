//! Steps between which a kill is tried out.

use crate::Error;

/// Where tests interrupt an adoption or an export.
pub(crate) struct Steps {
    #[cfg(test)]
    pub(crate) left: std::cell::Cell<usize>,
}

impl Steps {
    /// All of them.
    pub(crate) fn all() -> Steps {
        Steps {
            #[cfg(test)]
            left: std::cell::Cell::new(usize::MAX),
        }
    }

    #[cfg(not(test))]
    #[expect(clippy::unused_self, clippy::unnecessary_wraps, reason = "tests interrupt here")]
    pub(crate) fn next(&self) -> Result<(), Error> {
        Ok(())
    }

    #[cfg(test)]
    pub(crate) fn next(&self) -> Result<(), Error> {
        let left = self.left.get().checked_sub(1).ok_or_else(|| Error::Refused("killed".into()))?;
        self.left.set(left);
        Ok(())
    }
}

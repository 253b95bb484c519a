//! Values that belong to code outside of a scope.

use std::fmt;
use std::mem::ManuallyDrop;

use crate::outside;

/// A value of code that is not the scope's, held by code that is: it is called, and dropped, [`outside`].
pub struct Outside<T>(ManuallyDrop<T>);

impl<T> Outside<T> {
    /// Holds `value`.
    pub fn new(value: T) -> Outside<T> {
        Outside(ManuallyDrop::new(value))
    }

    /// Calls it.
    pub fn call<R>(&mut self, work: impl FnOnce(&mut T) -> R) -> R {
        outside(|| work(&mut self.0))
    }

    /// The same for what only looks.
    pub fn look<R>(&self, work: impl FnOnce(&T) -> R) -> R {
        outside(|| work(&self.0))
    }
}

impl<T> Drop for Outside<T> {
    fn drop(&mut self) {
        // SAFETY: it is not used again: this is its holder's end.
        outside(|| unsafe { ManuallyDrop::drop(&mut self.0) });
    }
}

impl<T> fmt::Debug for Outside<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Outside")
    }
}

//! Which panics end a connection, and which the process.
//!
//! A panic is a slip of the code. Where the code has only touched what belongs to one connection, dropping that connection undoes all of
//! it: [`contain`] marks such code, and a panic in it comes out as [`Panicked`]. Everywhere else a panic may have left half a change in
//! state that others go on using: there the hook of [`install`] ends the process before anything is unwound, so that no lock is let go
//! and no other thread sees the half. `docs/adr/0008-panics.md` says why.
//!
//! Code in a scope may call out to code that is not contained, such as the service behind a connection: [`outside`] marks that, and
//! [`Outside`] holds what must be dropped so.
//!
//! Without the hook, as in tests, panics unwind as usual: out of the scopes as well, if they came from outside of them.

mod future;
mod outside;
pub mod planted;
mod scope;

pub use future::Contained;
pub use outside::Outside;
pub use scope::{Fate, Panicked, contain, contained_total, outside};

use std::panic::PanicHookInfo;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Decides about panics from now on: those in a scope unwind to its end, all others abort the process. `report` is told of each before
/// that, on the thread that panics; it must not wait for locks that such a thread may hold.
pub fn install(report: impl Fn(&PanicHookInfo<'_>, Fate) + Send + Sync + 'static) {
    std::panic::set_hook(Box::new(move |panic| {
        let fate = scope::unwind();
        report(panic, fate);
        if fate == Fate::Process {
            std::process::abort();
        }
    }));
}

/// The [`install`] of programs without a log: what the standard library says stays as it is.
pub fn install_plain() {
    let usual = std::panic::take_hook();
    install(move |panic, _| usual(panic));
}

/// A lock whose holder never panics half-way: a panic that is not contained aborts the process.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

//! Which panics end a connection, and which the process.
//!
//! A panic is a fault of the code. If the code has touched only what belongs to one connection, dropping that connection undoes all of
//! it: [`contain`] marks such code, and returns [`Panicked`] for a panic in it. Everywhere else a panic may have left half a change in
//! state that other threads use. There the hook of [`install`] ends the process before anything is unwound, so that no lock is released
//! and no other thread sees the half. `docs/adr/0008-panics.md` says why.
//!
//! Code in a scope may call code that is not contained, such as the service of a connection: [`outside`] marks that, and [`Outside`]
//! holds values whose destructors are such code.
//!
//! Without the hook, as in tests, panics unwind as usual: out of scopes too, if they come from outside of them.

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

//! Where a call came from: the request thread that serves its connection.
//!
//! A thread that has answers for many calls gives each request thread its own in one piece. What an answer touches is in the caches of
//! the core on which its call came, and each piece costs one lock and at most one wake-up.

use std::cell::Cell;
use std::num::NonZeroU32;
use std::sync::{Arc, Mutex};

use contain::lock;
use slab::Slab;

use super::mailbox::{Mail, Mailbox};

/// The mailboxes of all request threads of the process.
static MAILBOXES: Mutex<Slab<Arc<Mailbox>>> = Mutex::new(Slab::new());

thread_local! {
    static HERE: Cell<Option<Home>> = const { Cell::new(None) };
}

/// A request thread of this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Home(NonZeroU32);

impl Home {
    /// The one at this place in the list, if there are not billions.
    fn at(place: usize) -> Option<Home> {
        u32::try_from(place).ok()?.checked_add(1).and_then(NonZeroU32::new).map(Home)
    }

    fn place(self) -> usize {
        (self.0.get() as usize).saturating_sub(1)
    }

    /// The request thread that this is called on.
    pub fn here() -> Option<Home> {
        HERE.get()
    }

    /// Has `work` done by that thread before its connections' next turns, or here if it has ended. A request thread that has come since may
    /// do it instead.
    pub fn give(self, work: impl FnOnce() + Send + 'static) {
        let mailbox = lock(&MAILBOXES).get(self.place()).cloned();
        match mailbox {
            Some(mailbox) => mailbox.post(Mail::Work(Box::new(work))),
            None => work(),
        }
    }
}

/// The place of a request thread among the others, as long as it runs.
pub(super) struct Seat(usize);

impl Seat {
    /// For the thread that this is called on.
    pub(super) fn take(mailbox: &Arc<Mailbox>) -> Seat {
        let place = lock(&MAILBOXES).insert(mailbox.clone());
        HERE.set(Home::at(place));
        Seat(place)
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        HERE.set(None);
        let mailbox = lock(&MAILBOXES).try_remove(self.0);
        // What it drops may post to others, and look for them here.
        drop(mailbox);
    }
}

#[cfg(all(test, not(feature = "schedules")))]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[test]
    fn work_comes_to_its_thread_as_long_as_that_runs() {
        assert_eq!(Home::here(), None);
        let mailbox = Arc::new(Mailbox::new());
        let seat = Seat::take(&mailbox);
        let home = Home::here().unwrap();
        let done = Arc::new(AtomicUsize::new(0));
        let give = || {
            let done = done.clone();
            let work = move || {
                done.fetch_add(1, Ordering::Relaxed);
            };
            std::thread::spawn(move || {
                assert_eq!(Home::here(), None, "of another thread");
                home.give(work);
            })
            .join()
            .unwrap();
        };
        give();
        let mut mail = Vec::new();
        assert!(mailbox.take(&mut mail).is_some(), "work is an answer");
        assert!(matches!(mail[..], [Mail::Work(_)]) && done.load(Ordering::Relaxed) == 0);
        give();
        mailbox.close();
        assert_eq!(done.load(Ordering::Relaxed), 1, "what a thread has not done when it ends");
        give();
        assert_eq!(done.load(Ordering::Relaxed), 2, "what comes later");
        drop(seat);
        assert_eq!(Home::here(), None);
        // Another test may have the place of this one by now.
        let own = done.clone();
        Home(NonZeroU32::MAX).give(move || {
            own.fetch_add(1, Ordering::Relaxed);
        });
        assert_eq!(done.load(Ordering::Relaxed), 3, "what comes for a thread that is forgotten");
    }
}

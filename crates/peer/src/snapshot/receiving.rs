//! The one snapshot that may be on its way in.

use crate::timeouts::after;
use contain::lock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// How long a newer offer waits for the older one's transfer to end.
const REPLACE_TIMEOUT: Duration = Duration::from_secs(5);

/// The transfer under way: there is at most one. A new offer of a member ends it. An offer of a sender that this member
/// does not know as a member waits for its end.
#[derive(Default)]
pub(crate) struct Receiving(Mutex<Option<Arc<AtomicBool>>>);

/// The right to be the only transfer; given up when dropped.
pub(super) struct Turn<'a> {
    receiving: &'a Receiving,
    /// Set when a newer offer replaces this transfer.
    pub(super) cancelled: Arc<AtomicBool>,
}

impl Receiving {
    /// Waits for the transfer under way and takes its place. A member's offer ends that transfer.
    pub(super) fn begin(&self, is_members: bool) -> Option<Turn<'_>> {
        let deadline = after(REPLACE_TIMEOUT);
        loop {
            let mut current = lock(&self.0);
            match &*current {
                Some(before) => _ = before.fetch_or(is_members, Ordering::SeqCst),
                None => {
                    let cancelled = Arc::new(AtomicBool::new(false));
                    *current = Some(cancelled.clone());
                    return Some(Turn { receiving: self, cancelled });
                }
            }
            drop(current);
            if Instant::now() > deadline {
                return None;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        *lock(&self.receiving.0) = None;
    }
}

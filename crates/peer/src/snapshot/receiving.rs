//! The one snapshot that may be on its way in.

use crate::timeouts::after;
use contain::lock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// How long a newer offer waits for the older one's transfer to end.
const REPLACE_TIMEOUT: Duration = Duration::from_secs(5);

/// The transfer under way: there is at most one. A new offer of a member ends it; one of a sender that is no member, as far as this
/// member knows, waits for its end.
#[derive(Default)]
pub(crate) struct Receiving(Mutex<Option<Arc<AtomicBool>>>);

/// A claim to be the one transfer; gives it up when dropped.
pub(super) struct Turn<'a> {
    receiving: &'a Receiving,
    /// Set for a newer offer.
    pub(super) cancelled: Arc<AtomicBool>,
}

impl Receiving {
    /// Takes the place of the transfer under way, which a member's offer ends.
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

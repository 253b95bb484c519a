//! The snapshots that receivers may fetch, and for how long.

use super::Export;
use super::pace::Pace;
use crate::handler::LogUsage;
use contain::lock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// How long an export is kept after its transfer broke off, so that the receiver can continue.
const KEPT: Duration = Duration::from_secs(60);

struct Kept {
    id: u64,
    export: Arc<dyn Export>,
    /// Transfers under way.
    users: usize,
    /// When the last of them ended.
    ended: Instant,
}

/// The exports that receivers can fetch.
#[derive(Default)]
pub(crate) struct Exports {
    kept: Mutex<Vec<Kept>>,
    pace: Mutex<Pace>,
    last: AtomicU64,
}

impl Exports {
    /// Makes an export available under an id. The same export always gets the same id.
    pub(crate) fn begin(&self, export: &Arc<dyn Export>) -> u64 {
        self.forget_old();
        let mut kept = lock(&self.kept);
        if let Some(kept) = kept.iter_mut().find(|kept| kept.export.identity() == export.identity()) {
            kept.users = kept.users.saturating_add(1);
            return kept.id;
        }
        // Ids are not repeated after a restart, so that no receiver fetches the rest of another snapshot.
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos() as u64;
        let id = self.last.fetch_max(now, Ordering::SeqCst).max(now).saturating_add(1);
        self.last.store(id, Ordering::SeqCst);
        kept.push(Kept { id, export: export.clone(), users: 1, ended: Instant::now() });
        id
    }

    /// Notes that a transfer has ended.
    pub(crate) fn end(&self, id: u64, ok: bool) {
        let mut kept = lock(&self.kept);
        kept.retain_mut(|kept| {
            if kept.id != id {
                return true;
            }
            kept.users = kept.users.saturating_sub(1);
            kept.ended = Instant::now();
            !ok || kept.users > 0
        });
    }

    /// Drops exports whose receivers have not come back. An export keeps files that would otherwise be removed.
    pub(crate) fn forget_old(&self) {
        lock(&self.kept).retain(|kept| kept.users > 0 || kept.ended.elapsed() < KEPT);
    }

    /// The export with this id.
    pub(super) fn get(&self, id: u64) -> Option<Arc<dyn Export>> {
        lock(&self.kept).iter().find(|kept| kept.id == id).map(|kept| kept.export.clone())
    }

    /// How long to wait before `bytes` of the `left` ones that a receiver still needs are sent.
    pub(super) fn wait(&self, bytes: u64, left: u64, log: LogUsage, now: Instant) -> Duration {
        lock(&self.pace).wait(bytes, left, log, now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Named(usize);

    impl Export for Named {
        fn identity(&self) -> usize {
            self.0
        }

        fn checkpoint(&self) -> Result<bytes::Bytes, String> {
            Ok(bytes::Bytes::new())
        }

        fn read(&self, _: u32, _: u64, _: usize) -> Result<bytes::Bytes, String> {
            Ok(bytes::Bytes::new())
        }

        fn image(&self) -> Result<super::super::OutgoingImage, String> {
            Err("there is none".into())
        }
    }

    #[test]
    fn a_snapshot_that_is_offered_again_keeps_its_id_until_somebody_has_all_of_it() {
        let exports = Exports::default();
        let offer = |identity| exports.begin(&(Arc::new(Named(identity)) as Arc<dyn Export>));
        let first = offer(1);
        exports.end(first, false);
        assert_eq!(offer(1), first);
        assert_ne!(offer(2), first);
        exports.end(first, true);
        assert!(exports.get(first).is_none());
        assert_ne!(offer(1), first);
    }
}

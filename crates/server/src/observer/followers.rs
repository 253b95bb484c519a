//! The observers that follow this process, and what is kept for them.

use super::caught_up::CaughtUp;
use contain::lock;
use peer::Follower;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};
use store::Export;

/// How long a process without other followers goes on keeping entries for an observer that has gone: it may only be restarting.
const KEPT_MS: u64 = 60_000;
/// A snapshot is sent to further observers for this long.
const SHARED_FOR: Duration = Duration::from_secs(60);
/// How long the entries behind a snapshot stay after an observer was last known to fetch it.
const BEHIND_MS: u64 = 30_000;
/// How long they stay at most.
const BEHIND_MAX_MS: u64 = 600_000;

/// How long entries stay for an archive that was not heard of: its writer may only be restarting.
const ARCHIVE_KEPT_MS: u64 = 60_000;
/// Writers of archives for which entries stay.
const ARCHIVES_MAX: usize = 16;

/// An observer that follows this process, for those who ask.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Seen {
    /// Its id.
    pub(crate) id: u64,
    /// Its name.
    pub(crate) name: String,
    /// Where clients reach it.
    pub(crate) client_urls: Vec<String>,
    /// The last entry that was sent to it.
    pub(crate) sent: u64,
}

/// The observers that follow this process.
#[derive(Default)]
pub(crate) struct Followers {
    table: Mutex<BTreeMap<u64, (Follower, Arc<AtomicU64>)>>,
    /// Threads that wait for [`Followers::applied`].
    waiting: AtomicUsize,
    gate: Mutex<()>,
    changed: Condvar,
    /// Until when there are followers, by the node's clock; 0 if there never was one.
    followed_until_ms: AtomicU64,
    /// The snapshot that was sent last.
    offer: Mutex<Option<Offer>>,
    /// Its last entry, while entries behind it are kept; else 0.
    behind: AtomicU64,
    behind_until_ms: AtomicU64,
    /// Up to which entry each writer of an archive has everything, and until when that counts.
    archives: Mutex<BTreeMap<u64, (u64, u64)>>,
    /// Until when one of them counts; 0 if there never was one.
    archives_until_ms: AtomicU64,
    /// What they are told to be complete.
    pub(crate) caught_up: CaughtUp,
}

struct Offer {
    export: Weak<Export>,
    at: Instant,
    at_ms: u64,
}

/// One observer's place in the table; given up when dropped.
pub(super) struct Place {
    followers: Arc<Followers>,
    id: u64,
    sent: Arc<AtomicU64>,
}

impl Followers {
    pub(super) fn add(self: &Arc<Followers>, follower: &Follower, now_ms: u64) -> Place {
        let sent = Arc::new(AtomicU64::new(follower.last.0));
        lock(&self.table).insert(follower.id, (follower.clone(), sent.clone()));
        self.note(now_ms);
        Place { followers: self.clone(), id: follower.id, sent }
    }

    /// Notes that there is a follower now.
    pub(super) fn note(&self, now_ms: u64) {
        self.followed_until_ms.fetch_max(now_ms.saturating_add(KEPT_MS), Ordering::Relaxed);
    }

    /// Who follows now.
    pub(crate) fn list(&self) -> Vec<Seen> {
        let table = lock(&self.table);
        let seen = |(follower, sent): &(Follower, Arc<AtomicU64>)| Seen {
            id: follower.id,
            name: follower.name.clone(),
            client_urls: follower.client_urls.clone(),
            sent: sent.load(Ordering::Relaxed),
        };
        table.values().map(seen).collect()
    }

    /// What the log in memory is needed for.
    pub(crate) fn observed(&self, now_ms: impl FnOnce() -> u64) -> replica::Observed {
        let until_ms = self.followed_until_ms.load(Ordering::Relaxed);
        let archives_until_ms = self.archives_until_ms.load(Ordering::Relaxed);
        if until_ms == 0 && archives_until_ms == 0 {
            return replica::Observed::default();
        }
        let now_ms = now_ms();
        let archived = if now_ms < archives_until_ms { self.archived(now_ms) } else { None };
        let behind = Some(self.behind.load(Ordering::Relaxed)).filter(|index| *index > 0);
        let is_sent = now_ms < self.behind_until_ms.load(Ordering::Relaxed);
        let sent = behind.filter(|_| is_sent).into_iter().chain(archived).min();
        replica::Observed { has_followers: now_ms < until_ms || archived.is_some(), sent }
    }

    /// Keeps the entries behind `index` for the writer of an archive, for a while; without an index those behind the one that was told
    /// before, or behind `applied`.
    pub(crate) fn keep_for_archive(&self, asker: u64, index: Option<u64>, applied: u64, now_ms: u64) {
        let until_ms = now_ms.saturating_add(ARCHIVE_KEPT_MS);
        let mut archives = lock(&self.archives);
        archives.retain(|_, (_, until_ms)| now_ms < *until_ms);
        let known = archives.get(&asker).map(|(known, _)| *known);
        if archives.len() < ARCHIVES_MAX || known.is_some() {
            archives.insert(asker, (index.or(known).unwrap_or(applied), until_ms));
            self.archives_until_ms.fetch_max(until_ms, Ordering::Relaxed);
        }
    }

    /// The last entry that all archives have, of those that count.
    fn archived(&self, now_ms: u64) -> Option<u64> {
        let archives = lock(&self.archives);
        archives.values().filter(|(_, until_ms)| now_ms < *until_ms).map(|(index, _)| *index).min()
    }

    /// Wakes those that wait for entries. Called after the applied index has changed.
    pub(crate) fn applied(&self) {
        if self.waiting.load(Ordering::SeqCst) > 0 {
            drop(lock(&self.gate));
            self.changed.notify_all();
        }
    }

    /// Waits until `is_so`, which depends on the applied index, or until `patience` is over.
    pub(super) fn wait(&self, patience: Duration, is_so: impl Fn() -> bool) {
        let deadline = Instant::now() + patience;
        self.waiting.fetch_add(1, Ordering::SeqCst);
        let mut gate = lock(&self.gate);
        while !is_so() {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            gate = self.changed.wait_timeout(gate, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        drop(gate);
        self.waiting.fetch_sub(1, Ordering::SeqCst);
    }

    /// The snapshot for an observer that lacks entries: the one that others are sent, if it is new enough and `continues`, or a new one.
    pub(super) fn export(
        &self,
        now_ms: u64,
        continues: impl Fn(&Export) -> bool,
        capture: impl FnOnce() -> Option<Export>,
    ) -> Option<Arc<Export>> {
        let mut offer = lock(&self.offer);
        let shared = offer.as_ref().filter(|offer| offer.at.elapsed() < SHARED_FOR);
        if let Some(export) = shared.and_then(|offer| offer.export.upgrade()).filter(|export| continues(export)) {
            return Some(export);
        }
        let export = Arc::new(capture()?);
        *offer = Some(Offer { export: Arc::downgrade(&export), at: Instant::now(), at_ms: now_ms });
        self.behind_until_ms.store(now_ms.saturating_add(BEHIND_MS), Ordering::Relaxed);
        self.behind.store(export.index(), Ordering::Relaxed);
        Some(export)
    }

    /// An observer is still fetching a snapshot: the entries behind the last one stay.
    pub(super) fn is_fetched(&self, now_ms: u64) {
        self.note(now_ms);
        if let Some(offer) = &*lock(&self.offer) {
            let until_ms = now_ms.saturating_add(BEHIND_MS).min(offer.at_ms.saturating_add(BEHIND_MAX_MS));
            self.behind_until_ms.fetch_max(until_ms, Ordering::Relaxed);
        }
    }
}

impl Place {
    pub(super) fn sent(&self, index: u64) {
        self.sent.store(index, Ordering::Relaxed);
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut table = lock(&self.followers.table);
        // Another stream of the same observer may have taken the place meanwhile.
        if table.get(&self.id).is_some_and(|(_, sent)| Arc::ptr_eq(sent, &self.sent)) {
            table.remove(&self.id);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_stay_for_a_while_after_the_last_follower() {
        let followers = Arc::<Followers>::default();
        assert_eq!(followers.observed(|| 5), replica::Observed::default());
        let follower = |id| Follower { id, name: "o".into(), client_urls: Vec::new(), last: (7, 1), tail: Vec::new() };
        let place = followers.add(&follower(1), 1_000);
        let again = followers.add(&follower(1), 1_000);
        drop(place);
        assert_eq!(followers.list().iter().map(|seen| (seen.id, seen.sent)).collect::<Vec<_>>(), [(1, 7)]);
        again.sent(9);
        assert_eq!(followers.list().first().map(|seen| seen.sent), Some(9));
        drop(again);
        assert!(followers.list().is_empty());
        let kept = |now_ms| followers.observed(|| now_ms).has_followers;
        assert!(kept(1_000) && kept(1_000 + KEPT_MS - 1) && !kept(1_000 + KEPT_MS));
    }

    #[test]
    fn entries_stay_for_the_slowest_archive() {
        let followers = Followers::default();
        let sent = |now_ms| followers.observed(|| now_ms).sent;
        followers.keep_for_archive(1, None, 90, 1_000);
        followers.keep_for_archive(1, None, 95, 1_000);
        followers.keep_for_archive(2, Some(70), 96, 2_000);
        assert_eq!((sent(3_000), followers.observed(|| 3_000).has_followers), (Some(70), true));
        followers.keep_for_archive(2, Some(95), 99, 3_000);
        assert_eq!(sent(3_000), Some(90));
        assert_eq!((sent(1_000 + ARCHIVE_KEPT_MS), sent(3_000 + ARCHIVE_KEPT_MS)), (Some(95), None));
        for asker in 0..100 {
            followers.keep_for_archive(asker, None, 100, 100_000);
        }
        assert_eq!(lock(&followers.archives).len(), ARCHIVES_MAX);
    }

    #[test]
    fn who_waits_is_woken() {
        let followers = Arc::<Followers>::default();
        let applied = Arc::new(AtomicU64::new(0));
        let (own, index) = (followers.clone(), applied.clone());
        let waits = std::thread::spawn(move || own.wait(Duration::from_secs(60), || index.load(Ordering::SeqCst) > 0));
        applied.store(1, Ordering::SeqCst);
        followers.applied();
        waits.join().expect("it was woken, or saw it at once");
    }
}

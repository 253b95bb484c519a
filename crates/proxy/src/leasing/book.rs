//! The keys that this proxy keeps, and whether it may serve them.
//!
//! Times are milliseconds since the proxy began, revisions those of members.

use api::etcdserverpb::ResponseHeader;
use api::mvccpb::KeyValue;
use bytes::Bytes;
use std::collections::{BTreeMap, HashMap};
use std::ops::Bound;

use super::mistake::Mistake;

/// Keys that are kept, and the bytes of all of them.
pub(crate) const KEYS_MAX: usize = 65_536;
pub(crate) const BYTES_MAX: usize = 64 << 20;
/// The largest value that is kept, in bytes.
const VALUE_BYTES_MAX: usize = 1 << 20;
/// The longest key that is acquired, in bytes: acquiring names it several times.
const KEY_BYTES_MAX: usize = 4 << 10;
/// What a key takes beside itself and its value, in bytes.
const ENTRY_BYTES: usize = 512;
/// A key that was given back, or is somebody else's, is not acquired for so long, as in etcd.
const REST_MS: u64 = 2_000;
/// Keys that rest. Those that find no room are acquired again sooner.
const RESTING_MAX: usize = 65_536;
/// Keys that one look gives back to make room.
const SWEPT_MAX: usize = 1_024;

/// A range of keys: from the first on, and before the second; to the end if that is none.
pub(crate) type Range = (Bytes, Option<Bytes>);

/// A key that this proxy keeps.
#[derive(Debug)]
struct Entry {
    /// The revision that created the lease key.
    created: i64,
    kv: KeyValue,
    /// Of the answer that told `kv`.
    header: ResponseHeader,
    /// Writes of this proxy that are under way.
    writes: u32,
    /// It was read since the last look.
    is_used: bool,
}

#[derive(Clone, Copy, Debug)]
struct Session {
    lease: i64,
    /// The lease has not ended before.
    until_ms: u64,
}

/// Permission to acquire the lease key of a key. It has to be [settled](Book::acquired).
#[derive(Debug)]
pub(crate) struct Acquisition {
    pub(crate) key: Bytes,
    /// The lease on which the lease key is to hang.
    pub(crate) lease: i64,
    session: u64,
}

/// What became of it.
#[derive(Debug)]
pub(crate) enum Acquired {
    /// The lease key exists since the revision of this header, and the key is so.
    Yes(KeyValue, ResponseHeader),
    /// It is somebody's: the lease key as it is, if there is one.
    No(Option<KeyValue>),
    /// There was no answer.
    Unknown,
}

/// What became of a write of a key.
#[derive(Debug)]
pub(crate) enum Wrote {
    /// The key is so at the revision of this header; without a pair it is not there.
    State(Option<KeyValue>, ResponseHeader),
    /// Nothing was written.
    Nothing,
    /// The lease key was not there any more, and nothing was written.
    Refused,
    /// Nobody knows.
    Unknown,
}

/// A lease key that is to be deleted if this revision has created it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Release {
    pub(crate) key: Bytes,
    pub(crate) created: i64,
}

/// Something that happened to a lease key.
#[derive(Clone, Copy, Debug)]
pub(crate) enum News {
    Put { lease: i64, created: i64, revision: i64, is_revoked: bool },
    Deleted { revision: i64 },
}

/// Everything that this proxy knows of leased keys.
#[derive(Debug, Default)]
pub(crate) struct Book {
    entries: BTreeMap<Bytes, Entry>,
    bytes: usize,
    /// Keys that are being acquired, with the last revision at which their lease key was revoked or deleted meanwhile.
    acquiring: HashMap<Bytes, i64>,
    /// Keys that are not acquired before a time.
    resting: HashMap<Bytes, u64>,
    /// Ranges that writes wait for.
    barred: Vec<(u64, Range)>,
    last_bar: u64,
    session: Option<Session>,
    /// Tells sessions apart.
    sessions: u64,
    /// Until when members are known to let everybody read.
    proved_until_ms: u64,
    /// When that was last in doubt.
    doubted_ms: u64,
    /// The newest revision that any answer had.
    newest: i64,
    releases: Vec<Release>,
}

impl Book {
    /// The pair of a key, with the header of an answer that has it, if it is kept and may be served.
    pub(crate) fn get(&mut self, key: &[u8], now_ms: u64) -> Option<(KeyValue, ResponseHeader)> {
        if !self.is_serving(now_ms) {
            return None;
        }
        let entry = self.entries.get_mut(key)?;
        if entry.writes > 0 && !Mistake::ServesDuringWrites.is_planted() {
            return None;
        }
        entry.is_used = true;
        // What is kept has not changed since: it is so at every revision that there was.
        let revision = entry.header.revision.max(self.newest);
        Some((entry.kv.clone(), ResponseHeader { revision, ..entry.header }))
    }

    fn is_serving(&self, now_ms: u64) -> bool {
        let has_lease = self.session.is_some_and(|session| now_ms < session.until_ms);
        (has_lease || Mistake::ServesWithoutLease.is_planted()) && self.is_proved(now_ms)
    }

    /// Permission to acquire a key, unless there is a reason against it.
    pub(crate) fn acquire(&mut self, key: &Bytes, now_ms: u64) -> Option<Acquisition> {
        let session = self.session.filter(|_| self.is_serving(now_ms))?;
        let is_barred = || self.barred.iter().any(|(_, range)| has(range, key));
        let rests = || self.resting.get(key).is_some_and(|until_ms| now_ms < *until_ms);
        let is_known = self.entries.contains_key(key) || self.acquiring.contains_key(key);
        if key.len() > KEY_BYTES_MAX || is_known || self.is_full() || rests() || is_barred() {
            return None;
        }
        // A copy: the key may be a part of a much larger request.
        let key = Bytes::copy_from_slice(key);
        self.acquiring.insert(key.clone(), 0);
        Some(Acquisition { key, lease: session.lease, session: self.sessions })
    }

    fn is_full(&self) -> bool {
        self.entries.len().saturating_add(self.acquiring.len()) >= KEYS_MAX || self.bytes >= BYTES_MAX
    }

    /// An acquisition is over.
    pub(crate) fn acquired(&mut self, acquisition: Acquisition, how: Acquired, now_ms: u64) {
        let Acquisition { key, lease, session } = acquisition;
        let revoked = self.acquiring.remove(&key).unwrap_or_default();
        if session != self.sessions || self.session.is_none() {
            // The lease key has ended with its lease.
            return;
        }
        match how {
            Acquired::Yes(kv, header) => {
                let created = header.revision;
                if revoked > created && !Mistake::ForgetsEarlyRevocations.is_planted() {
                    return self.rest(key, now_ms);
                }
                if !is_kept(&kv) || self.bytes >= BYTES_MAX {
                    self.release(&key, created);
                    return self.rest(key, now_ms);
                }
                self.saw(created);
                self.bytes = self.bytes.saturating_add(cost(&kv));
                self.entries.insert(key, Entry { created, kv, header, writes: 0, is_used: true });
            }
            Acquired::No(lease_key) => {
                // One of this proxy that it does not know of may be meant by a write that is still on its way: it is never adopted.
                if let Some(unknown) = lease_key.filter(|lease_key| lease_key.lease == lease) {
                    self.release(&key, unknown.create_revision);
                }
                self.rest(key, now_ms);
            }
            // A lease key that came to be all the same is deleted when it is found or revoked.
            Acquired::Unknown => self.rest(key, now_ms),
        }
    }

    /// A write of a key begins: it is not served until that is over. The revision that created its lease key, if this proxy has it.
    pub(crate) fn write(&mut self, key: &[u8]) -> Option<i64> {
        let entry = self.entries.get_mut(key)?;
        entry.writes = entry.writes.saturating_add(1);
        Some(entry.created)
    }

    /// A write of a key of this proxy is over. `created` is what [`Book::write`] said.
    pub(crate) fn wrote(&mut self, key: &Bytes, created: i64, how: Wrote, now_ms: u64) {
        let Some(entry) = self.entries.get_mut(key).filter(|entry| entry.created == created) else { return };
        entry.writes = entry.writes.saturating_sub(1);
        match how {
            Wrote::State(kv, header) => {
                if header.revision <= entry.header.revision && !Mistake::TakesOlderStates.is_planted() {
                    return;
                }
                match kv.filter(is_kept) {
                    Some(kv) => {
                        let bytes = self.bytes.saturating_add(cost(&kv)).saturating_sub(cost(&entry.kv));
                        if bytes > self.bytes && bytes > BYTES_MAX {
                            return self.give_back(key, now_ms);
                        }
                        self.bytes = bytes;
                        (entry.kv, entry.header) = (kv, header);
                    }
                    None => self.give_back(key, now_ms),
                }
            }
            Wrote::Nothing => {}
            Wrote::Refused => self.forget(key, now_ms),
            Wrote::Unknown if Mistake::KeepsAfterUnknownWrites.is_planted() => {}
            Wrote::Unknown => self.give_back(key, now_ms),
        }
    }

    /// Forgets a key, and has its lease key deleted.
    fn give_back(&mut self, key: &Bytes, now_ms: u64) {
        let Some(created) = self.entries.get(key).map(|entry| entry.created) else { return };
        self.forget(key, now_ms);
        self.release(key, created);
    }

    /// Has a lease key deleted. The acquisition that has created it, if its answer is still to come, counts for nothing.
    fn release(&mut self, key: &Bytes, created: i64) {
        self.note_while_acquiring(key, created.saturating_add(1));
        self.releases.push(Release { key: Bytes::copy_from_slice(key), created });
    }

    /// Forgets a key.
    fn forget(&mut self, key: &Bytes, now_ms: u64) {
        // The key of the entry is a copy of its own, whatever this one is a part of.
        if let Some((key, entry)) = self.entries.remove_entry(key) {
            self.bytes = self.bytes.saturating_sub(cost(&entry.kv));
            self.rest(key, now_ms);
        }
    }

    fn rest(&mut self, key: Bytes, now_ms: u64) {
        if self.resting.len() < RESTING_MAX {
            self.resting.insert(key, now_ms.saturating_add(REST_MS));
        }
    }

    /// Gives the keys of a range back.
    pub(crate) fn give_back_range(&mut self, range: &Range, now_ms: u64) {
        for key in keys_of(&self.entries, range) {
            self.give_back(&key, now_ms);
        }
    }

    /// Whether a key is kept since a revision has created its lease key.
    pub(crate) fn keeps(&self, key: &Bytes, created: i64) -> bool {
        self.entries.get(key).is_some_and(|entry| entry.created == created)
    }

    /// A writer has found this lease key of the proxy in its way.
    pub(crate) fn is_in_the_way(&mut self, key: &Bytes, created: i64, now_ms: u64) {
        if self.keeps(key, created) {
            self.forget(key, now_ms);
        }
        self.release(key, created);
    }

    /// Has nothing of a range acquired until [`Book::unbar`] is called with the number that this returns.
    pub(crate) fn bar(&mut self, range: Range) -> u64 {
        self.last_bar = self.last_bar.saturating_add(1);
        self.barred.push((self.last_bar, range));
        self.last_bar
    }

    /// Ends what [`Book::bar`] began.
    pub(crate) fn unbar(&mut self, number: u64) {
        self.barred.retain(|(bar, _)| *bar != number);
    }

    /// Something happened to the lease key of a key.
    pub(crate) fn learn(&mut self, key: &Bytes, news: News, now_ms: u64) {
        let own = self.session.map(|session| session.lease);
        match news {
            News::Put { lease, created, revision, is_revoked } => {
                let is_own = own == Some(lease);
                if is_own && created == revision && !is_revoked {
                    // This proxy has acquired it.
                    return;
                }
                self.note_while_acquiring(key, revision);
                // News of an older lease key of the same key may come late.
                let kept = self.entries.get(key).map(|entry| entry.created);
                if kept.is_some_and(|kept| kept > created) {
                    return;
                }
                if !Mistake::ServesWhatIsGivenBack.is_planted() {
                    self.forget(key, now_ms);
                }
                // It is revoked, or somebody else has changed it.
                if is_own || kept == Some(created) {
                    self.release(key, created);
                }
            }
            News::Deleted { revision } => {
                self.note_while_acquiring(key, revision);
                if self.entries.get(key).is_some_and(|entry| entry.created < revision)
                    && !Mistake::ServesWhatIsGivenBack.is_planted()
                {
                    self.forget(key, now_ms);
                }
            }
        }
    }

    fn note_while_acquiring(&mut self, key: &Bytes, revision: i64) {
        if let Some(revoked) = self.acquiring.get_mut(key) {
            *revoked = (*revoked).max(revision);
        }
    }

    /// These lease keys of the lease of this proxy were there at a revision, and no others: news of earlier revisions may not have come.
    pub(crate) fn compare(&mut self, lease_keys: &BTreeMap<Bytes, (i64, bool)>, revision: i64, now_ms: u64) {
        let is_there = |key: &Bytes, entry: &Entry| {
            lease_keys.get(key).is_some_and(|(created, is_revoked)| *created == entry.created && !is_revoked)
        };
        let gone: Vec<Bytes> = self
            .entries
            .iter()
            .filter(|(key, entry)| entry.created <= revision && !is_there(key, entry))
            .map(|(key, _)| key.clone())
            .collect();
        gone.iter().for_each(|key| self.forget(key, now_ms));
        // A lease key that is being acquired, and was created before, is revoked or gone.
        let is_there = |key: &Bytes| lease_keys.get(key).is_some_and(|(_, is_revoked)| !is_revoked);
        for (_, revoked) in self.acquiring.iter_mut().filter(|(key, _)| !is_there(key)) {
            *revoked = (*revoked).max(revision);
        }
        for (key, (created, is_revoked)) in lease_keys {
            let is_known = self.entries.get(key).is_some_and(|entry| entry.created == *created);
            // What is being acquired may be this one.
            if *is_revoked || !(is_known || self.acquiring.contains_key(key)) {
                self.release(key, *created);
            }
        }
    }

    /// There is a lease for lease keys, which does not end before a time.
    pub(crate) fn begin_session(&mut self, lease: i64, until_ms: u64) {
        self.end_session();
        self.sessions = self.sessions.saturating_add(1);
        self.session = Some(Session { lease, until_ms });
    }

    /// The lease does not end before a later time.
    pub(crate) fn prolong_session(&mut self, until_ms: u64) {
        if let Some(session) = &mut self.session {
            session.until_ms = session.until_ms.max(until_ms);
        }
    }

    /// The lease has ended, or is given up.
    pub(crate) fn end_session(&mut self) {
        self.session = None;
        self.entries.clear();
        self.bytes = 0;
        self.releases.clear();
    }

    /// The lease, if there is one.
    pub(crate) fn lease(&self) -> Option<i64> {
        self.session.map(|session| session.lease)
    }

    /// Which session there is, if there is one: a number that no other has.
    pub(crate) fn session(&self) -> Option<u64> {
        self.session.map(|_| self.sessions)
    }

    /// Members let everybody read when they were asked, which counts until a time.
    pub(crate) fn prove(&mut self, asked_ms: u64, until_ms: u64) {
        if asked_ms > self.doubted_ms {
            self.proved_until_ms = self.proved_until_ms.max(until_ms);
        }
    }

    /// Whether that is so now.
    pub(crate) fn is_proved(&self, now_ms: u64) -> bool {
        now_ms < self.proved_until_ms
    }

    /// Nothing is proved any more, nor by what was asked before.
    pub(crate) fn doubt(&mut self, now_ms: u64) {
        (self.proved_until_ms, self.doubted_ms) = (0, now_ms);
    }

    /// An answer had this revision.
    pub(crate) fn saw(&mut self, revision: i64) {
        self.newest = self.newest.max(revision);
    }

    /// The newest revision that an answer had.
    pub(crate) fn newest(&self) -> i64 {
        self.newest
    }

    /// Revisions count from here: the data of members went back.
    pub(crate) fn go_back(&mut self, revision: i64) {
        self.newest = revision;
    }

    /// Lease keys that are to be deleted.
    pub(crate) fn take_releases(&mut self) -> Vec<Release> {
        std::mem::take(&mut self.releases)
    }

    /// Whether there are any.
    pub(crate) fn has_releases(&self) -> bool {
        !self.releases.is_empty()
    }

    /// Forgets who rests no more. Close to a bound, gives keys back that were not read since the last time.
    pub(crate) fn look(&mut self, now_ms: u64) {
        self.resting.retain(|_, until_ms| now_ms < *until_ms);
        let is_close = self.entries.len() >= KEYS_MAX / 8 * 7 || self.bytes >= BYTES_MAX / 8 * 7;
        if !is_close {
            return;
        }
        let mut idle = Vec::new();
        for (key, entry) in &mut self.entries {
            if !entry.is_used && entry.writes == 0 && idle.len() < SWEPT_MAX {
                idle.push(key.clone());
            }
            entry.is_used = false;
        }
        idle.iter().for_each(|key| self.give_back(key, now_ms));
    }

    /// Keys that are kept, and their bytes.
    pub(crate) fn size(&self) -> (usize, usize) {
        (self.entries.len(), self.bytes)
    }
}

/// Whether a pair is kept. One with a lease may end without a write.
fn is_kept(kv: &KeyValue) -> bool {
    (kv.lease == 0 || Mistake::KeepsKeysWithLeases.is_planted()) && kv.value.len() <= VALUE_BYTES_MAX
}

fn cost(kv: &KeyValue) -> usize {
    kv.key.len().saturating_mul(2).saturating_add(kv.value.len()).saturating_add(ENTRY_BYTES)
}

fn has((start, end): &Range, key: &Bytes) -> bool {
    start <= key && end.as_ref().is_none_or(|end| key < end)
}

fn keys_of(entries: &BTreeMap<Bytes, Entry>, (start, end): &Range) -> Vec<Bytes> {
    if end.as_ref().is_some_and(|end| end <= start) {
        return Vec::new();
    }
    let end = end.clone().map_or(Bound::Unbounded, Bound::Excluded);
    entries.range((Bound::Included(start.clone()), end)).map(|(key, _)| key.clone()).collect()
}

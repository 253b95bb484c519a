//! A member that is played: a log, and what the store of a member makes of it.

use crate::piece::At;
use crate::source::{Answer, Found, Source, SourceError};
use api::Message;
use api::etcdserverpb::{
    CompactionRequest, DeleteRangeRequest, InternalRaftRequest, LeaseGrantRequest, LeaseRevokeRequest, PutRequest,
};
use api::raftpb::{Entry, EntryType};
use disk::OsDisk;
use etcd_import::{Database, Replay};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

pub(crate) const CLUSTER: u64 = 0xc1;

/// What is true after an entry.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Fact {
    pub(crate) at: At,
    pub(crate) time_ms: u64,
    pub(crate) revision: i64,
    pub(crate) keys: BTreeMap<Vec<u8>, Vec<u8>>,
}

/// Numbers that follow from a seed (splitmix64).
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Random {
        Random(seed)
    }

    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % bound
    }
}

/// A log that grows, and a model of what it says.
pub(crate) struct Played {
    pub(crate) entries: Vec<Entry>,
    pub(crate) facts: Vec<Fact>,
    leases: BTreeMap<i64, Vec<Vec<u8>>>,
    random: Random,
    /// Entries up to this index are no longer there for those that ask.
    pub(crate) trimmed: u64,
    /// Entries up to this index are applied.
    pub(crate) applied: u64,
    /// It hears of a leader.
    pub(crate) has_leader: bool,
    /// By how much its clock is ahead.
    pub(crate) ahead_ms: u64,
}

#[derive(Clone)]
pub(crate) struct Member {
    pub(crate) played: Arc<Mutex<Played>>,
    pub(crate) dir: Arc<Dir>,
}

/// A directory that goes again.
pub(crate) struct Dir(pub(crate) PathBuf);

impl Dir {
    pub(crate) fn new(name: &str) -> Dir {
        let dir = std::env::temp_dir().join(format!("cairn-backup-test-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&dir);
        std::fs::create_dir_all(&dir).expect("room");
        Dir(dir)
    }

    /// A new name in it.
    pub(crate) fn file(&self, name: &str) -> PathBuf {
        static NEXT: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);
        self.0.join(format!("{name}-{}", NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed)))
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

impl Played {
    fn add(&mut self, request: Option<InternalRaftRequest>) {
        let index = self.entries.len() as u64 + 1;
        let term = 1 + index / 100;
        let data = request.map(|request| request.encode_to_vec().into());
        let kind = Some(EntryType::EntryNormal as i32);
        self.entries.push(Entry { index: Some(index), term: Some(term), r#type: kind, data });
    }

    /// One more entry, and what it does to the model.
    pub(crate) fn grow(&mut self) {
        let last = self.facts.last().cloned();
        let (mut keys, mut revision) = last.map_or((BTreeMap::new(), 1), |fact| (fact.keys, fact.revision));
        let key = format!("k{}", self.random.below(40)).into_bytes();
        let mut request = InternalRaftRequest::default();
        match self.random.below(20) {
            0 => {
                let to = revision - self.random.below(4) as i64;
                request.compaction = Some(CompactionRequest { revision: to, physical: false });
            }
            1 => {
                let id = 1 + self.random.below(5) as i64;
                self.leases.entry(id).or_default();
                request.lease_grant = Some(LeaseGrantRequest { ttl: 1_000, id });
            }
            2 => {
                if let Some((id, held)) = self.leases.pop_first() {
                    let before = keys.len();
                    held.iter().for_each(|key| drop(keys.remove(key)));
                    revision += i64::from(keys.len() < before);
                    request.lease_revoke = Some(LeaseRevokeRequest { id });
                }
            }
            3 => return self.empty(keys, revision),
            4..7 => {
                revision += i64::from(keys.remove(&key).is_some());
                self.leases.values_mut().for_each(|held| held.retain(|other| *other != key));
                request.delete_range = Some(DeleteRangeRequest { key: key.into(), ..DeleteRangeRequest::default() });
            }
            kind => {
                let value = vec![kind as u8; self.random.below(300) as usize];
                let lease = self.leases.keys().next().copied().filter(|_| kind > 15);
                self.leases.values_mut().for_each(|held| held.retain(|other| *other != key));
                if let Some(held) = lease.and_then(|lease| self.leases.get_mut(&lease)) {
                    held.push(key.clone());
                }
                keys.insert(key.clone(), value.clone());
                revision += 1;
                let lease = lease.unwrap_or_default();
                request.put = Some(PutRequest { key: key.into(), value: value.into(), lease, ..PutRequest::default() });
            }
        }
        self.add(Some(request));
        self.note(keys, revision);
    }

    fn empty(&mut self, keys: BTreeMap<Vec<u8>, Vec<u8>>, revision: i64) {
        self.add(None);
        self.note(keys, revision);
    }

    fn note(&mut self, keys: BTreeMap<Vec<u8>, Vec<u8>>, revision: i64) {
        let last = self.entries.last().expect("an entry");
        let at = At { index: last.index(), term: last.term() };
        self.facts.push(Fact { at, time_ms: time_of(at.index), revision, keys });
    }
}

/// When an entry was applied: the clock stands still for ten of them at a time.
pub(crate) fn time_of(index: u64) -> u64 {
    1_000_000 + index / 10 * 1_000
}

impl Member {
    pub(crate) fn new(seed: u64, dir: Arc<Dir>) -> Member {
        let played = Played {
            entries: Vec::new(),
            facts: Vec::new(),
            leases: BTreeMap::new(),
            random: Random::new(seed),
            trimmed: 0,
            applied: 0,
            has_leader: true,
            ahead_ms: 0,
        };
        let member = Member { played: Arc::new(Mutex::new(played)), dir };
        member.grow(1);
        member
    }

    pub(crate) fn grow(&self, count: u64) {
        let mut played = self.played.lock().expect("no panic");
        (0..count).for_each(|_| played.grow());
        played.applied = played.entries.len() as u64;
    }

    pub(crate) fn fact(&self, index: u64) -> Fact {
        self.played.lock().expect("no panic").facts[index as usize - 1].clone()
    }

    pub(crate) fn facts(&self) -> Vec<Fact> {
        self.played.lock().expect("no panic").facts.clone()
    }

    /// The state after an entry, made from the beginning.
    pub(crate) fn replay(&self, index: u64) -> Replay {
        let entries = self.played.lock().expect("no panic").entries[..index as usize].to_vec();
        let mut replay = Replay::begin(&empty(&self.dir), &self.dir.file("replay")).expect("an empty store");
        replay.apply(&entries).expect("entries");
        assert_eq!(replay.revision(), self.fact(index).revision, "the model at entry {index}");
        replay
    }
}

/// The database of a store that is new.
fn empty(dir: &Dir) -> Database {
    let path = dir.file("empty");
    let disk = Arc::new(OsDisk { unsafe_no_sync: true });
    let mut opened = store::open(disk, &dir.file("store"), store::Options::default()).expect("a store");
    let mut image = opened.applier.snapshot().image().expect("an image");
    let mut file = std::fs::File::create(&path).expect("room");
    while let Some(piece) = image.next(1 << 20) {
        file.write_all(&piece).expect("room");
    }
    Database::open(&path).expect("a database")
}

/// Writes the database of a state as a member sends it.
pub(crate) fn save(replay: Replay, path: &Path) {
    let mut file = std::fs::File::create_new(path).expect("room");
    let mut hash = Sha256::new();
    let write = &mut |piece: &[u8]| {
        hash.update(piece);
        file.write_all(piece).expect("room");
        Ok(())
    };
    replay.save(write).expect("an image");
    file.write_all(&hash.finalize()).expect("room");
}

impl Source for Member {
    fn members(&self) -> usize {
        1
    }

    fn name(&self, _: usize) -> String {
        "played".into()
    }

    async fn entries(&self, _: usize, after: Option<At>, _: u64) -> Result<Answer, SourceError> {
        let mut played = self.played.lock().expect("no panic");
        let applied = played.applied;
        let at = |index: u64| {
            let term = index.checked_sub(1).map_or(0, |place| played.entries[place as usize].term());
            At { index, term }
        };
        let now = at(applied);
        let ahead_ms = played.ahead_ms;
        let complete = |has_leader: bool, time_ms: u64| if has_leader { time_ms } else { 0 };
        let mut time_ms = time_of(applied) + ahead_ms;
        let found = match after {
            None => Found::Next(now, Vec::new()),
            Some(after) if after.index > applied => Found::Behind,
            Some(after) if after.index < played.trimmed => Found::Trimmed,
            Some(after) if at(after.index).term != after.term => Found::Differs(at(after.index).term),
            Some(after) => {
                // Some of those that were applied at one time.
                let count = 1 + played.random.below(7);
                let end = (after.index + count).min(applied);
                time_ms = time_of(end) + ahead_ms;
                let entries = played.entries[after.index as usize..end as usize].to_vec();
                let found = Found::Next(after, entries);
                return Ok(Answer {
                    cluster_id: CLUSTER,
                    found,
                    applied,
                    time_ms,
                    complete_ms: complete(played.has_leader, time_ms),
                });
            }
        };
        Ok(Answer { cluster_id: CLUSTER, found, applied, time_ms, complete_ms: complete(played.has_leader, time_ms) })
    }

    async fn snapshot(&self, _: usize, file: PathBuf) -> Result<(), SourceError> {
        let applied = self.played.lock().expect("no panic").applied;
        save(self.replay(applied), &file);
        Ok(())
    }
}

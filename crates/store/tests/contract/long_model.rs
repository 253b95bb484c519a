//! One long history of many keys against a model that is quick enough for it: every answer, reads at any revision, hashes, compactions,
//! checkpoints and restarts. `model.rs` has more kinds of requests, in short histories. `make model` has 10 million operations.
#![allow(clippy::unwrap_used)]
#![allow(clippy::disallowed_methods, reason = "how long a test is comes from the environment")]

use crate::support::requests::*;
use crate::support::{DIR, Told};
use api::etcdserverpb::compare::{CompareResult, CompareTarget, TargetUnion};
use api::etcdserverpb::request_op::Request;
use api::etcdserverpb::response_op::Response as OpResponse;
use api::etcdserverpb::*;
use api::mvccpb::KeyValue;
use api::{Error, Message, raftpb};
use bytes::Bytes;
use disk::sim::{Random, SimDisk};
use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::path::Path;
use std::sync::Arc;
use store::{Applier, Opened, Options, Response, Store, Work};

/// Main and sub revision.
type At = (i64, i64);

/// Every version that is left, by its revision, and the revisions of each key.
#[derive(Default)]
struct Model {
    versions: BTreeMap<At, (Bytes, Option<KeyValue>)>,
    keys: BTreeMap<Bytes, Vec<At>>,
    revision: i64,
    compacted: i64,
    sub: i64,
}

fn header(revision: i64) -> Option<ResponseHeader> {
    Some(ResponseHeader { revision, ..Default::default() })
}

impl Model {
    fn newest(&self, revisions: &[At], revision: i64) -> Option<(At, Option<&KeyValue>)> {
        let at = revisions.iter().rev().find(|at| at.0 <= revision)?;
        Some((*at, self.versions[at].1.as_ref()))
    }

    fn live(&self, keys: RangeInclusive<Bytes>, revision: i64) -> Vec<KeyValue> {
        let found = self.keys.range(keys).filter_map(|(_, revisions)| self.newest(revisions, revision)?.1);
        found.cloned().collect()
    }

    fn get(&self, key: &Bytes) -> Option<KeyValue> {
        self.live(key.clone()..=key.clone(), i64::MAX).pop()
    }

    fn current(&self) -> i64 {
        self.revision + i64::from(self.sub > 0)
    }

    fn write(&mut self, key: &Bytes, kv: Option<KeyValue>) {
        let at = (self.revision + 1, self.sub);
        self.sub += 1;
        self.keys.entry(key.clone()).or_default().push(at);
        self.versions.insert(at, (key.clone(), kv));
    }

    fn put(&mut self, request: &PutRequest) -> PutResponse {
        let (old, main) = (self.get(&request.key), self.revision + 1);
        let create_revision = old.as_ref().map_or(main, |old| old.create_revision);
        let version = old.as_ref().map_or(1, |old| old.version + 1);
        let (key, value) = (request.key.clone(), request.value.clone());
        self.write(&request.key, Some(KeyValue { key, value, version, create_revision, mod_revision: main, lease: 0 }));
        PutResponse { header: header(main), prev_kv: old.filter(|_| request.prev_kv) }
    }

    /// Deletes a key, or those up to the end, which is one of them in these histories.
    fn delete(&mut self, request: &DeleteRangeRequest) -> DeleteRangeResponse {
        let last = if request.range_end.is_empty() { request.key.clone() } else { request.range_end.clone() };
        let mut live = self.live(request.key.clone()..=last, i64::MAX);
        live.retain(|kv| kv.key < request.range_end || kv.key == request.key);
        live.iter().for_each(|kv| self.write(&kv.key, None));
        let deleted = live.len() as i64;
        let prev_kvs = if request.prev_kv { live } else { Vec::new() };
        DeleteRangeResponse { header: header(self.current()), deleted, prev_kvs }
    }

    /// A transaction with one comparison, of the revision of a key's last change, of puts and deletions.
    fn txn(&mut self, request: &TxnRequest) -> TxnResponse {
        let compare = &request.compare[0];
        let found = self.get(&compare.key).map_or(0, |kv| kv.mod_revision);
        let succeeded = compare.target_union == Some(TargetUnion::ModRevision(found));
        let ops = if succeeded { &request.success } else { &request.failure };
        let mut responses = Vec::new();
        for op in ops {
            let response = match op.request.as_ref().unwrap() {
                Request::RequestPut(put) => OpResponse::ResponsePut(self.put(put)),
                Request::RequestDeleteRange(delete) => OpResponse::ResponseDeleteRange(self.delete(delete)),
                other => panic!("{other:?}"),
            };
            responses.push(ResponseOp { response: Some(response) });
        }
        TxnResponse { header: header(self.current()), succeeded, responses }
    }

    fn compact(&mut self, revision: i64) -> Result<CompactionResponse, Error> {
        if revision <= self.compacted {
            return Err(Error::Compacted);
        }
        let versions = &mut self.versions;
        self.keys.retain(|_, revisions| {
            let newest = revisions.iter().rposition(|at| at.0 <= revision);
            let mut place = 0;
            revisions.retain(|at| {
                let is_newest = newest == Some(place);
                place += 1;
                let is_kept = at.0 > revision || (is_newest && (versions[at].1.is_some() || at.0 == revision));
                if !is_kept {
                    versions.remove(at);
                }
                is_kept
            });
            !revisions.is_empty()
        });
        self.compacted = revision;
        Ok(CompactionResponse { header: header(self.revision) })
    }

    fn apply(&mut self, request: &InternalRaftRequest) -> Result<Response, Error> {
        let result = match request {
            InternalRaftRequest { put: Some(put), .. } => Ok(Response::Put(self.put(put))),
            InternalRaftRequest { delete_range: Some(delete), .. } => Ok(Response::DeleteRange(self.delete(delete))),
            InternalRaftRequest { txn: Some(txn), .. } => Ok(Response::Txn(self.txn(txn))),
            InternalRaftRequest { compaction: Some(compaction), .. } => {
                self.compact(compaction.revision).map(Response::Compaction)
            }
            other => panic!("{other:?}"),
        };
        self.revision = self.current();
        self.sub = 0;
        result
    }

    fn hash(&self) -> u32 {
        let mut hash = crc32c::crc32c(b"key");
        for ((main, sub), (key, kv)) in &self.versions {
            // Of what lies behind the compaction, what is live now counts.
            let is_newest = || self.keys[key].last() == Some(&(*main, *sub));
            if *main <= self.compacted && (kv.is_none() || !is_newest()) {
                continue;
            }
            let mark = if kv.is_none() { "t" } else { "" };
            let tombstone = || KeyValue { key: key.clone(), ..Default::default() }.encode_to_vec();
            let name = [&main.to_be_bytes()[..], b"_", &sub.to_be_bytes()[..], mark.as_bytes()].concat();
            hash = crc32c::crc32c_append(hash, &name);
            hash = crc32c::crc32c_append(hash, &kv.as_ref().map_or_else(tombstone, KeyValue::encode_to_vec));
        }
        hash
    }
}

/// What happened, to be shown.
#[derive(Debug, Default)]
struct Counts {
    operations: u64,
    reads: u64,
    compactions: u64,
    checkpoints: u64,
    restarts: u64,
    replayed: u64,
    hashes: u64,
}

struct World {
    random: Random,
    model: Model,
    disk: SimDisk,
    store: Arc<Store>,
    applier: Applier,
    /// Those since the last checkpoint.
    entries: Vec<raftpb::Entry>,
    checkpoint_index: u64,
    last_index: u64,
    keys: u64,
    counts: Counts,
}

fn open(disk: &SimDisk) -> Opened {
    let options = Options { log: store::log::Options { segment_bytes: 1 << 20 }, ..Options::default() };
    store::open(Arc::new(disk.clone()), Path::new(DIR), options).unwrap()
}

impl World {
    fn new(seed: u64, keys: u64) -> World {
        let disk = SimDisk::new();
        let Opened { store, applier, .. } = open(&disk);
        let model = Model { revision: 1, ..Model::default() };
        let (entries, counts) = (Vec::new(), Counts::default());
        let (random, checkpoint_index, last_index) = (Random::new(seed), 0, 0);
        World { random, model, disk, store, applier, entries, checkpoint_index, last_index, keys, counts }
    }

    /// Half of the time one of few keys. They are of many lengths, and many begin alike.
    fn key(&mut self) -> Bytes {
        let among = if self.random.chance(50) { self.keys / 50 } else { self.keys };
        let number = self.random.below(among);
        format!("/registry/{}/{number}{}", number % 7, "-name".repeat((number % 13) as usize)).into()
    }

    fn put(&mut self) -> PutRequest {
        let value = vec![b'a' + self.random.below(26) as u8; self.random.below(100) as usize];
        let prev_kv = self.random.chance(10);
        PutRequest { key: self.key(), value: value.into(), prev_kv, ..Default::default() }
    }

    fn delete(&mut self) -> DeleteRangeRequest {
        let (one, two, prev_kv) = (self.key(), self.key(), self.random.chance(20));
        // A range of many keys is rare, so that there are many.
        let is_range = one < two && self.model.keys.range(one.clone()..two.clone()).nth(50).is_none();
        DeleteRangeRequest { key: one, range_end: if is_range { two } else { Bytes::new() }, prev_kv }
    }

    fn write(&mut self) -> Request {
        if self.random.chance(25) {
            Request::RequestDeleteRange(self.delete())
        } else {
            Request::RequestPut(self.put())
        }
    }

    /// No key is put twice in a transaction, which is refused before a store hears of it.
    fn txn(&mut self) -> TxnRequest {
        let key = self.key();
        let found = self.model.get(&key).map_or(0, |kv| kv.mod_revision);
        let found = if self.random.chance(70) { found } else { self.random.below(100) as i64 };
        let target_union = Some(TargetUnion::ModRevision(found));
        let (result, target) = (CompareResult::Equal as i32, CompareTarget::Mod as i32);
        let compare = vec![Compare { result, target, key, target_union, ..Default::default() }];
        let mut ops = || {
            let mut requests: Vec<RequestOp> = Vec::new();
            let mut puts = std::collections::BTreeSet::new();
            for _ in 0..self.random.below(4) {
                let request = self.write();
                if !matches!(&request, Request::RequestPut(put) if !puts.insert(put.key.clone())) {
                    requests.push(op(request));
                }
            }
            // Deletions come first: of what they delete, nothing is put before.
            requests.sort_by_key(|one| !matches!(one.request, Some(Request::RequestDeleteRange(_))));
            requests
        };
        TxnRequest { compare, success: ops(), failure: ops() }
    }

    fn request(&mut self) -> InternalRaftRequest {
        match self.random.below(10) {
            0 => self.txn().raft(),
            _ => match self.write() {
                Request::RequestPut(put) => put.raft(),
                Request::RequestDeleteRange(delete) => delete.raft(),
                other => panic!("{other:?}"),
            },
        }
    }

    /// Requests of one batch do not know of each other's answers: each is made for the state before all.
    fn apply(&mut self, requests: Vec<InternalRaftRequest>) {
        let first = self.last_index + 1;
        let mut entries = Vec::with_capacity(requests.len());
        for request in &requests {
            self.last_index += 1;
            let data = InternalRaftRequest { id: self.last_index, ..request.clone() }.encode_to_vec();
            let index = Some(self.last_index);
            entries.push(raftpb::Entry { term: Some(1), index, r#type: None, data: Some(data.into()) });
        }
        let mut told = Told::default();
        self.applier.apply(&entries, &mut told).unwrap();
        assert_eq!(told.results.len(), requests.len());
        for (at, (request, (id, result))) in requests.iter().zip(told.results).enumerate() {
            assert_eq!(id, first + at as u64);
            assert_eq!(result, self.model.apply(request), "{request:?}");
        }
        self.entries.append(&mut entries);
        self.counts.operations += requests.len() as u64;
        assert_eq!(self.store.revision(), self.model.revision);
    }

    fn read(&mut self) {
        let (one, two) = (self.key(), self.key());
        let oldest = self.model.compacted.max(1);
        let revision = oldest + self.random.below((self.model.revision - oldest + 1) as u64) as i64;
        let revision = if self.random.chance(30) { 0 } else { revision };
        let limit = if self.random.chance(50) { self.random.below(20) as i64 } else { 0 };
        let is_range = one < two && self.model.keys.range(one.clone()..two.clone()).nth(500).is_none();
        let range_end = if is_range { two.clone() } else { Bytes::new() };
        let count_only = self.random.chance(20);
        let request = RangeRequest { key: one.clone(), range_end, revision, limit, count_only, ..Default::default() };
        self.compare(&request, one.clone()..=if is_range { two } else { one });
    }

    fn compare(&mut self, request: &RangeRequest, keys: RangeInclusive<Bytes>) {
        let at = if request.revision == 0 { i64::MAX } else { request.revision };
        let mut kvs = self.model.live(keys, at);
        // The end is not a part of it.
        kvs.retain(|kv| kv.key != request.range_end || kv.key == request.key);
        let count = kvs.len() as i64;
        let limit = if request.limit == 0 { usize::MAX } else { request.limit as usize };
        let more = !request.count_only && kvs.len() > limit;
        kvs.truncate(if request.count_only { 0 } else { limit });
        let found = self.store.range(request).unwrap().into_message();
        assert_eq!(found, RangeResponse { header: header(self.model.revision), kvs, more, count }, "{request:?}");
        self.counts.reads += 1;
    }

    fn read_all(&mut self) {
        let (oldest, newest) = (self.model.compacted.max(1), self.model.revision);
        let revision = oldest + self.random.below((newest - oldest + 1) as u64) as i64;
        let keys = Bytes::new()..=Bytes::from_static(&[0xff; 8]);
        for revision in [0, revision] {
            self.compare(&RangeRequest { revision, ..all() }, keys.clone());
        }
    }

    fn compact(&mut self) {
        let (from, to) = (self.model.compacted, self.model.revision);
        let revision = from + self.random.below((to - from + 1) as u64) as i64;
        self.apply(vec![compact(revision)]);
        self.counts.compactions += 1;
    }

    fn checkpoint(&mut self) {
        let job = self.applier.checkpoint();
        let index = job.applied_index();
        job.write().unwrap();
        self.checkpoint_index = index;
        self.entries.retain(|entry| entry.index() > index);
        self.counts.checkpoints += 1;
    }

    /// Opens what is on the disk, and replays the entries behind it. Some power cuts are behind the last write: what was not synced is gone.
    fn restart(&mut self) {
        if self.random.chance(50) {
            self.disk = self.disk.after_cut(self.random.below(u64::MAX));
        }
        let Opened { store, applier, applied, .. } = open(&self.disk);
        (self.store, self.applier) = (store, applier);
        assert!((self.checkpoint_index..=self.last_index).contains(&applied.index), "it opens at {}", applied.index);
        let behind = self.entries.iter().position(|entry| entry.index() > applied.index).unwrap_or(self.entries.len());
        for part in self.entries[behind..].chunks(500) {
            self.applier.apply(part, &mut Told::default()).unwrap();
        }
        self.counts.replayed += (self.entries.len() - behind) as u64;
        self.counts.restarts += 1;
        self.read_all();
    }

    fn hash(&mut self) {
        while self.store.maintain(1 << 20).unwrap().work != Work::Idle {}
        let found = self.store.hash_kv(0).unwrap();
        assert_eq!((found.hash, found.hash_revision), (self.model.hash(), self.model.revision));
        self.counts.hashes += 1;
    }
}

/// The number that the environment names.
fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().unwrap())
}

#[test]
#[allow(clippy::print_stderr, reason = "a test that fails shows its output")]
fn a_long_history_is_that_of_its_model() {
    let operations = number("OPERATIONS").unwrap_or(40_000);
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs();
    let seed = number("SEED").unwrap_or(now);
    eprintln!("{operations} operations from SEED={seed}");
    let mut world = World::new(seed, (operations / 200).max(400));
    // Operations between two compactions, on average, and between two of the rest: some 500 of each in a history.
    let rare = (operations / 500).clamp(1, 50_000);
    while world.counts.operations < operations {
        let len = 1 + if world.random.chance(20) { world.random.below(400) } else { world.random.below(8) };
        let requests = (0..len).map(|_| world.request()).collect();
        world.apply(requests);
        world.read();
        let due = |random: &mut Random, every: u64| random.below(every) < len;
        if due(&mut world.random, 1_000) {
            world.store.maintain(1 + world.random.below(1 << 20)).unwrap();
        }
        if due(&mut world.random, rare) {
            world.compact();
        }
        if due(&mut world.random, rare) {
            world.checkpoint();
        }
        if due(&mut world.random, rare) {
            world.restart();
        }
        if due(&mut world.random, rare) {
            world.hash();
            world.store.segments().reaper().finish().unwrap();
        }
    }
    world.restart();
    world.hash();
    eprintln!("{:?}, {} keys, revision {}", world.counts, world.model.keys.len(), world.model.revision);
}

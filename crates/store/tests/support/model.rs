//! The store as a list of records: slow, and simple enough to be right.

use api::etcdserverpb::compare::{CompareResult, CompareTarget, TargetUnion};
use api::etcdserverpb::range_request::{SortOrder, SortTarget};
use api::etcdserverpb::request_op::Request;
use api::etcdserverpb::response_op::Response as OpResponse;
use api::etcdserverpb::*;
use api::mvccpb::KeyValue;
use api::{Error, KeyRange, Message};
use bytes::Bytes;
use std::cmp::Ordering;
use std::collections::BTreeMap;
use store::Response;

#[derive(Clone, Debug)]
struct Record {
    main: i64,
    sub: i64,
    key: Bytes,
    /// `None` deletes.
    kv: Option<KeyValue>,
}

#[derive(Clone, Debug)]
pub struct Model {
    records: Vec<Record>,
    pub revision: i64,
    pub compact_revision: i64,
    sub: i64,
    pub leases: BTreeMap<i64, (i64, i64)>,
    /// Hash over a compaction: the entry that asked for it, its revision, the one before, the hash.
    compactions: Vec<(u64, i64, i64, u32)>,
}

fn header(revision: i64) -> Option<ResponseHeader> {
    Some(ResponseHeader { revision, ..Default::default() })
}

impl Default for Model {
    fn default() -> Self {
        Model {
            records: vec![],
            revision: 1,
            compact_revision: -1,
            sub: 0,
            leases: BTreeMap::new(),
            compactions: vec![],
        }
    }
}

impl Model {
    fn current(&self) -> i64 {
        self.revision + i64::from(self.sub > 0)
    }

    /// The newest record of each key at or before a revision.
    fn newest(&self, at: i64) -> BTreeMap<Bytes, &Record> {
        let mut newest = BTreeMap::new();
        for record in self.records.iter().filter(|record| record.main <= at) {
            newest.insert(record.key.clone(), record);
        }
        newest
    }

    fn live(&self, key: &[u8], range_end: &[u8], at: i64) -> Vec<KeyValue> {
        let range = KeyRange::new(key, range_end);
        let newest = self.newest(at).into_iter().filter(|(key, _)| range.contains(key));
        newest.filter_map(|(_, record)| record.kv.clone()).collect()
    }

    fn get(&self, key: &[u8]) -> Option<KeyValue> {
        self.live(key, b"", i64::MAX).pop()
    }

    pub fn keys_of_lease(&self, id: i64) -> Vec<Bytes> {
        let live = self.live(b"\0", b"\0", i64::MAX);
        live.into_iter().filter(|kv| kv.lease == id).map(|kv| kv.key).collect()
    }

    pub fn range(&self, request: &RangeRequest) -> Result<RangeResponse, Error> {
        if request.revision > self.current() {
            return Err(Error::FutureRev);
        }
        if request.revision > 0 && request.revision < self.compact_revision {
            return Err(Error::Compacted);
        }
        let at = if request.revision <= 0 { i64::MAX } else { request.revision };
        let mut kvs = self.live(&request.key, &request.range_end, at);
        let count = kvs.len() as i64;
        let mut response = RangeResponse { header: header(self.current()), kvs: vec![], more: false, count };
        if request.count_only {
            return Ok(response);
        }
        let filters = [
            request.max_mod_revision,
            request.min_mod_revision,
            request.max_create_revision,
            request.min_create_revision,
        ];
        let order = request.sort_order();
        let pushed = order == SortOrder::None && filters == [0; 4];
        if pushed && request.limit > 0 {
            kvs.truncate((request.limit as usize).saturating_add(1));
        }
        kvs.retain(|kv| {
            (filters[0] == 0 || kv.mod_revision <= filters[0])
                && (filters[1] == 0 || kv.mod_revision >= filters[1])
                && (filters[2] == 0 || kv.create_revision <= filters[2])
                && (filters[3] == 0 || kv.create_revision >= filters[3])
        });
        let target = request.sort_target();
        kvs.sort_by(|a, b| {
            let order_by = match target {
                SortTarget::Key => a.key.cmp(&b.key),
                SortTarget::Version => a.version.cmp(&b.version),
                SortTarget::Create => a.create_revision.cmp(&b.create_revision),
                SortTarget::Mod => a.mod_revision.cmp(&b.mod_revision),
                SortTarget::Value => a.value.cmp(&b.value),
            };
            if order == SortOrder::Descend { order_by.reverse() } else { order_by }
        });
        if request.limit > 0 && kvs.len() > request.limit as usize {
            kvs.truncate(request.limit as usize);
            response.more = true;
        }
        if request.keys_only {
            for kv in &mut kvs {
                kv.value = Bytes::new();
                if target != SortTarget::Value {
                    kv.lease = 0;
                }
            }
        }
        response.kvs = kvs;
        Ok(response)
    }

    fn write(&mut self, key: Bytes, kv: Option<KeyValue>) {
        let main = self.revision + 1;
        self.records.push(Record { main, sub: self.sub, key, kv });
        self.sub += 1;
    }

    fn check_put(&self, request: &PutRequest) -> Result<(), Error> {
        if request.lease != 0 && !self.leases.contains_key(&request.lease) {
            return Err(Error::LeaseNotFound);
        }
        if (request.ignore_lease || request.ignore_value) && self.get(&request.key).is_none() {
            return Err(Error::KeyNotFound);
        }
        Ok(())
    }

    fn put(&mut self, request: &PutRequest) -> PutResponse {
        let old = self.get(&request.key);
        let main = self.revision + 1;
        let before = old.clone().unwrap_or_default();
        let kv = KeyValue {
            key: request.key.clone(),
            value: if request.ignore_value { before.value } else { request.value.clone() },
            lease: if request.ignore_lease { before.lease } else { request.lease },
            version: before.version + 1,
            create_revision: if old.is_some() { before.create_revision } else { main },
            mod_revision: main,
        };
        self.write(request.key.clone(), Some(kv));
        PutResponse { header: header(main), prev_kv: old.filter(|_| request.prev_kv) }
    }

    fn delete(&mut self, request: &DeleteRangeRequest) -> DeleteRangeResponse {
        let live = self.live(&request.key, &request.range_end, i64::MAX);
        for kv in &live {
            self.write(kv.key.clone(), None);
        }
        DeleteRangeResponse {
            header: header(self.current()),
            deleted: live.len() as i64,
            prev_kvs: if request.prev_kv { live } else { vec![] },
        }
    }

    fn holds(&self, compare: &Compare) -> bool {
        let number = |number: i64, wanted: Option<i64>| number.cmp(&wanted.unwrap_or(0));
        let holds = |kv: &KeyValue| {
            let union = &compare.target_union;
            let order = match compare.target() {
                CompareTarget::Version => {
                    number(kv.version, if let Some(TargetUnion::Version(n)) = union { Some(*n) } else { None })
                }
                CompareTarget::Create => number(
                    kv.create_revision,
                    if let Some(TargetUnion::CreateRevision(n)) = union { Some(*n) } else { None },
                ),
                CompareTarget::Mod => {
                    number(kv.mod_revision, if let Some(TargetUnion::ModRevision(n)) = union { Some(*n) } else { None })
                }
                CompareTarget::Lease => {
                    number(kv.lease, if let Some(TargetUnion::Lease(n)) = union { Some(*n) } else { None })
                }
                CompareTarget::Value => {
                    kv.value.as_ref().cmp(if let Some(TargetUnion::Value(value)) = union { value } else { b"" })
                }
            };
            match compare.result() {
                CompareResult::Equal => order == Ordering::Equal,
                CompareResult::NotEqual => order != Ordering::Equal,
                CompareResult::Greater => order == Ordering::Greater,
                CompareResult::Less => order == Ordering::Less,
            }
        };
        let live = self.live(&compare.key, &compare.range_end, i64::MAX);
        if live.is_empty() {
            return compare.target() != CompareTarget::Value && holds(&KeyValue::default());
        }
        live.iter().all(holds)
    }

    /// Decides all conditions, in the order in which the transactions run.
    fn decide(&self, request: &TxnRequest, path: &mut Vec<bool>) {
        let succeeded = request.compare.iter().all(|compare| self.holds(compare));
        path.push(succeeded);
        for op in if succeeded { &request.success } else { &request.failure } {
            if let Some(Request::RequestTxn(nested)) = &op.request {
                self.decide(nested, path);
            }
        }
    }

    fn check(&self, request: &TxnRequest, path: &mut impl Iterator<Item = bool>) -> Result<(), Error> {
        for op in if path.next().unwrap() { &request.success } else { &request.failure } {
            match op.request.as_ref().unwrap() {
                Request::RequestRange(range) if range.revision > self.revision => return Err(Error::FutureRev),
                Request::RequestRange(range) if range.revision != 0 && range.revision < self.compact_revision => {
                    return Err(Error::Compacted);
                }
                Request::RequestPut(put) => self.check_put(put)?,
                Request::RequestTxn(nested) => self.check(nested, path)?,
                _ => {}
            }
        }
        Ok(())
    }

    fn execute(&mut self, request: &TxnRequest, path: &mut impl Iterator<Item = bool>) -> TxnResponse {
        let succeeded = path.next().unwrap();
        let ops = if succeeded { &request.success } else { &request.failure };
        let mut responses = vec![];
        for op in ops {
            let response = match op.request.as_ref().unwrap() {
                Request::RequestRange(range) => OpResponse::ResponseRange(self.range(range).unwrap()),
                Request::RequestPut(put) => OpResponse::ResponsePut(self.put(put)),
                Request::RequestDeleteRange(delete) => OpResponse::ResponseDeleteRange(self.delete(delete)),
                Request::RequestTxn(nested) => OpResponse::ResponseTxn(self.execute(nested, path)),
            };
            responses.push(ResponseOp { response: Some(response) });
        }
        TxnResponse { header: header(0), succeeded, responses }
    }

    pub fn txn(&mut self, request: &TxnRequest) -> Result<TxnResponse, Error> {
        let mut path = vec![];
        self.decide(request, &mut path);
        self.check(request, &mut path.iter().copied())?;
        let mut response = self.execute(request, &mut path.into_iter());
        response.header = header(self.current());
        Ok(response)
    }

    fn grant(&mut self, request: &LeaseGrantRequest) -> Result<LeaseGrantResponse, Error> {
        if request.id == 0 {
            return Err(Error::LeaseNotFound);
        }
        if request.ttl > 9_000_000_000 {
            return Err(Error::LeaseTtlTooLarge);
        }
        if self.leases.contains_key(&request.id) {
            return Err(Error::LeaseExist);
        }
        let ttl = request.ttl.max(2);
        self.leases.insert(request.id, (ttl, 0));
        Ok(LeaseGrantResponse { header: header(self.revision), id: request.id, ttl, error: String::new() })
    }

    fn compact(&mut self, index: u64, revision: i64) -> Result<(), Error> {
        if revision <= self.compact_revision {
            return Err(Error::Compacted);
        }
        if revision > self.revision {
            return Err(Error::FutureRev);
        }
        let newest = self.newest(revision);
        let kept = |record: &Record| {
            record.main > revision
                || newest.get(&record.key).is_some_and(|newest| {
                    (newest.main, newest.sub) == (record.main, record.sub)
                        && (record.kv.is_some() || record.main == revision)
                })
        };
        let before = self.compact_revision;
        let available: Vec<(i64, i64)> = self
            .records
            .iter()
            .filter(|record| record.main <= revision && kept(record))
            .map(|record| (record.main, record.sub))
            .collect();
        let hash = self.hash_with(before, revision, &available);
        let records = self.records.iter().filter(|record| kept(record)).cloned().collect();
        self.records = records;
        self.compact_revision = revision;
        self.compactions.push((index, revision, before, hash));
        Ok(())
    }

    /// A restart forgets the hashes of compactions that are not replayed, but for the last if it `resumes` that.
    pub fn restart(&mut self, applied: u64, resumes: bool) {
        let resumed = self.compactions.iter().map(|compaction| compaction.0).filter(|&index| index <= applied).max();
        let resumed = resumed.filter(|_| resumes);
        self.compactions.retain(|compaction| compaction.0 > applied || Some(compaction.0) == resumed);
    }

    fn hash_with(&self, compact: i64, revision: i64, keep: &[(i64, i64)]) -> u32 {
        let mut bytes = b"key".to_vec();
        for record in &self.records {
            let rev = (record.main, record.sub);
            if record.main > revision
                || (record.main <= compact && !keep.is_empty() && !keep.contains(&rev))
                || (record.main == compact && record.kv.is_none())
            {
                continue;
            }
            bytes.extend(record.main.to_be_bytes());
            bytes.push(b'_');
            bytes.extend(record.sub.to_be_bytes());
            match &record.kv {
                Some(kv) => bytes.extend(kv.encode_to_vec()),
                None => {
                    bytes.push(b't');
                    bytes.extend(KeyValue { key: record.key.clone(), ..Default::default() }.encode_to_vec());
                }
            }
        }
        crc32c::crc32c(&bytes)
    }

    /// Hash, compact revision and revision, as `HashKV` answers.
    pub fn hash_kv(&self, revision: i64) -> Result<(u32, i64, i64), Error> {
        let cached = self.compactions.iter().rev().take(10);
        if let Some(hash) = cached.into_iter().find(|hash| hash.1 == revision) {
            return Ok((hash.3, hash.2, revision));
        }
        if revision > self.revision {
            return Err(Error::FutureRev);
        }
        if revision > 0 && revision < self.compact_revision {
            return Err(Error::Compacted);
        }
        let revision = if revision == 0 { self.revision } else { revision };
        let newest = self.newest(revision);
        let keep: Vec<(i64, i64)> =
            newest.values().filter(|record| record.kv.is_some()).map(|record| (record.main, record.sub)).collect();
        Ok((self.hash_with(self.compact_revision, revision, &keep), self.compact_revision, revision))
    }

    /// Applies the entry at `index`.
    pub fn apply(&mut self, index: u64, request: &InternalRaftRequest) -> Result<Response, Error> {
        let result = self.command(index, request);
        if self.sub > 0 {
            self.revision += 1;
            self.sub = 0;
        }
        result
    }

    fn command(&mut self, index: u64, request: &InternalRaftRequest) -> Result<Response, Error> {
        if let Some(put) = &request.put {
            self.check_put(put)?;
            return Ok(Response::Put(self.put(put)));
        }
        if let Some(delete) = &request.delete_range {
            return Ok(Response::DeleteRange(self.delete(delete)));
        }
        if let Some(txn) = &request.txn {
            return self.txn(txn).map(Response::Txn);
        }
        if let Some(range) = &request.range {
            return self.range(range).map(Response::Range);
        }
        if let Some(grant) = &request.lease_grant {
            return self.grant(grant).map(Response::LeaseGrant);
        }
        if let Some(revoke) = &request.lease_revoke {
            if !self.leases.contains_key(&revoke.id) {
                return Err(Error::LeaseNotFound);
            }
            for key in self.keys_of_lease(revoke.id) {
                self.write(key, None);
            }
            self.leases.remove(&revoke.id);
            return Ok(Response::LeaseRevoke(revoke.id, LeaseRevokeResponse { header: header(self.current()) }));
        }
        if let Some(checkpoint) = &request.lease_checkpoint {
            for lease in &checkpoint.checkpoints {
                if let Some(granted) = self.leases.get_mut(&lease.id) {
                    granted.1 = lease.remaining_ttl;
                }
            }
            return Ok(Response::LeaseCheckpoint(LeaseCheckpointResponse { header: header(self.revision) }));
        }
        if let Some(compaction) = &request.compaction {
            self.compact(index, compaction.revision)?;
            return Ok(Response::Compaction(CompactionResponse { header: header(self.revision) }));
        }
        Ok(Response::None)
    }
}

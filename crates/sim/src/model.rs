//! A simple second implementation of the state machine: a map per key of all versions that it ever had.

use api::Message;
use api::etcdserverpb::compare::{CompareResult, CompareTarget, TargetUnion};
use api::etcdserverpb::request_op::Request;
use api::etcdserverpb::response_op;
use api::etcdserverpb::{Compare, InternalRaftRequest, PutRequest, RequestOp, TxnRequest};
use api::mvccpb::KeyValue;
use bytes::Bytes;
use std::collections::BTreeMap;
use store::Response;

/// Revisions begin here.
const FIRST_REVISION: i64 = 1;

/// The state after every entry so far, and before each of them.
pub(crate) struct Model {
    /// The versions of each key, with the revisions from which they hold.
    keys: BTreeMap<Bytes, Vec<(i64, Option<KeyValue>)>>,
    /// The revision after each entry, from index 0 on.
    revisions: Vec<i64>,
    leases: BTreeMap<i64, i64>,
    compact_revision: i64,
    revision: i64,
    /// Whether the current entry has written something.
    wrote: bool,
}

impl Model {
    pub(crate) fn new() -> Model {
        Model {
            keys: BTreeMap::new(),
            revisions: vec![FIRST_REVISION],
            leases: BTreeMap::new(),
            compact_revision: -1,
            revision: FIRST_REVISION,
            wrote: false,
        }
    }

    /// Index of the last entry in the model.
    pub(crate) fn index(&self) -> u64 {
        self.revisions.len() as u64 - 1
    }

    /// The revision after the entry at `index`.
    pub(crate) fn revision_after(&self, index: u64) -> i64 {
        self.revisions[index as usize]
    }

    /// The entry that made `revision`.
    pub(crate) fn index_of(&self, revision: i64) -> u64 {
        self.revisions.partition_point(|after| *after < revision) as u64
    }

    pub(crate) fn revision(&self) -> i64 {
        self.revision
    }

    pub(crate) fn compact_revision(&self) -> i64 {
        self.compact_revision
    }

    pub(crate) fn leases(&self) -> impl Iterator<Item = (i64, i64)> {
        self.leases.iter().map(|(id, ttl)| (*id, *ttl))
    }

    /// Skips an entry that is no request: a leader's first one, or a configuration change.
    pub(crate) fn skip(&mut self) {
        self.revisions.push(self.revision);
    }

    /// Applies the next entry and checks what a member answered.
    pub(crate) fn apply(&mut self, data: &[u8], answered: &Result<Response, api::Error>) {
        let index = self.index() + 1;
        let decoded = InternalRaftRequest::decode(data);
        let Ok(request) = decoded else { panic!("entry {index} is no request") };
        self.wrote = false;
        let expected = self.request(&request);
        if self.wrote {
            self.revision += 1;
        }
        self.revisions.push(self.revision);
        let matches = match (&expected, answered) {
            (Err(expected), Err(answered)) => expected == answered,
            (Ok(expected), Ok(answered)) => self.same(expected, answered),
            _ => false,
        };
        assert!(
            matches,
            "entry {index} ({request:?}) was answered {answered:?}, not {expected:?} at revision {}",
            self.revision
        );
    }

    /// Every pair of `keys` as of `revision`, in order.
    pub(crate) fn read(&self, from: &[u8], end: &[u8], revision: i64) -> Vec<KeyValue> {
        let inside = |key: &[u8]| if end.is_empty() { key == from } else { key >= from && (end == [0] || key < end) };
        let held = |versions: &Vec<(i64, Option<KeyValue>)>| {
            let at = versions.partition_point(|(since, _)| *since <= revision);
            at.checked_sub(1).and_then(|at| versions[at].1.clone())
        };
        self.keys.iter().filter(|(key, _)| inside(key)).filter_map(|(_, versions)| held(versions)).collect()
    }

    fn same(&self, expected: &Expected, answered: &Response) -> bool {
        let header = match answered {
            Response::Put(answer) => answer.header,
            Response::DeleteRange(answer) => answer.header,
            Response::Txn(answer) => answer.header,
            Response::Range(answer) => answer.header,
            Response::Compaction(answer) => answer.header,
            Response::LeaseGrant(answer) => answer.header,
            Response::LeaseRevoke(_, answer) => answer.header,
            Response::LeaseCheckpoint(_) | Response::Alarm(_) | Response::Auth(..) | Response::None => {
                return *expected == Expected::Done;
            }
        };
        if header.map_or(0, |header| header.revision) != self.revision {
            return false;
        }
        match (expected, answered) {
            (Expected::Deleted(deleted), Response::DeleteRange(answer)) => *deleted == answer.deleted,
            (Expected::Txn(succeeded, parts), Response::Txn(answer)) => {
                let same = |(part, answer): (&Expected, &api::etcdserverpb::ResponseOp)| match (part, &answer.response)
                {
                    (Expected::Done, Some(response_op::Response::ResponsePut(_))) => true,
                    (Expected::Deleted(deleted), Some(response_op::Response::ResponseDeleteRange(answer))) => {
                        *deleted == answer.deleted
                    }
                    (Expected::Read(kvs), Some(response_op::Response::ResponseRange(answer))) => *kvs == answer.kvs,
                    _ => false,
                };
                answer.succeeded == *succeeded
                    && answer.responses.len() == parts.len()
                    && parts.iter().zip(&answer.responses).all(same)
            }
            (Expected::Granted(ttl), Response::LeaseGrant(answer)) => *ttl == answer.ttl,
            (Expected::Done, Response::Put(_) | Response::LeaseRevoke(..) | Response::Compaction(_)) => true,
            _ => false,
        }
    }

    fn request(&mut self, request: &InternalRaftRequest) -> Result<Expected, api::Error> {
        if let Some(put) = &request.put {
            self.check_put(put)?;
            self.put(put);
        } else if let Some(delete) = &request.delete_range {
            return Ok(Expected::Deleted(self.delete(&delete.key, &delete.range_end)));
        } else if let Some(txn) = &request.txn {
            return self.txn(txn);
        } else if let Some(grant) = &request.lease_grant {
            if self.leases.contains_key(&grant.id) {
                return Err(api::Error::LeaseExist);
            }
            self.leases.insert(grant.id, grant.ttl);
            return Ok(Expected::Granted(grant.ttl));
        } else if let Some(revoke) = &request.lease_revoke {
            self.leases.remove(&revoke.id).ok_or(api::Error::LeaseNotFound)?;
            let now = self.revision + i64::from(self.wrote);
            let attached = self.read(&[0], &[0], now).into_iter().filter(|kv| kv.lease == revoke.id);
            for key in attached.map(|kv| kv.key).collect::<Vec<_>>() {
                self.delete(&key, &[]);
            }
        } else if let Some(compaction) = &request.compaction {
            if compaction.revision <= self.compact_revision {
                return Err(api::Error::Compacted);
            }
            if compaction.revision > self.revision {
                return Err(api::Error::FutureRev);
            }
            self.compact_revision = compaction.revision;
        } else {
            panic!("the simulator proposes no such request: {request:?}");
        }
        Ok(Expected::Done)
    }

    fn check_put(&self, put: &PutRequest) -> Result<(), api::Error> {
        let known = put.lease == 0 || self.leases.contains_key(&put.lease);
        if known { Ok(()) } else { Err(api::Error::LeaseNotFound) }
    }

    fn put(&mut self, put: &PutRequest) {
        self.wrote = true;
        let revision = self.revision + 1;
        let versions = self.keys.entry(put.key.clone()).or_default();
        let before = versions.last().and_then(|(_, kv)| kv.as_ref());
        let kv = KeyValue {
            key: put.key.clone(),
            value: put.value.clone(),
            create_revision: before.map_or(revision, |before| before.create_revision),
            mod_revision: revision,
            version: before.map_or(0, |before| before.version) + 1,
            lease: put.lease,
        };
        versions.push((revision, Some(kv)));
    }

    fn delete(&mut self, from: &Bytes, end: &[u8]) -> i64 {
        let revision = self.revision + 1;
        // The range includes writes of the same entry.
        let found = self.read(from, end, revision);
        for kv in &found {
            self.wrote = true;
            self.keys.entry(kv.key.clone()).or_default().push((revision, None));
        }
        found.len() as i64
    }

    fn txn(&mut self, txn: &TxnRequest) -> Result<Expected, api::Error> {
        let succeeded = txn.compare.iter().all(|compare| self.holds(compare));
        let branch = if succeeded { &txn.success } else { &txn.failure };
        let put = |op: &RequestOp| match &op.request {
            Some(Request::RequestPut(put)) => Some(put.clone()),
            _ => None,
        };
        branch.iter().filter_map(put).try_for_each(|put| self.check_put(&put))?;
        let part = |op: &RequestOp| match &op.request {
            Some(Request::RequestPut(put)) => {
                self.put(put);
                Expected::Done
            }
            Some(Request::RequestDeleteRange(delete)) => Expected::Deleted(self.delete(&delete.key, &delete.range_end)),
            Some(Request::RequestRange(range)) => {
                let now = self.revision + i64::from(self.wrote);
                Expected::Read(self.read(&range.key, &range.range_end, now))
            }
            _ => panic!("the simulator proposes no such operation: {op:?}"),
        };
        Ok(Expected::Txn(succeeded, branch.iter().map(part).collect()))
    }

    fn holds(&self, compare: &Compare) -> bool {
        let found = self.read(&compare.key, &[], self.revision).pop();
        let ordering = match (compare.target(), &compare.target_union) {
            (CompareTarget::Mod, Some(TargetUnion::ModRevision(revision))) => {
                found.map_or(0, |kv| kv.mod_revision).cmp(revision)
            }
            (CompareTarget::Value, Some(TargetUnion::Value(value))) => match found {
                Some(kv) => kv.value.cmp(value),
                None => return false,
            },
            _ => panic!("the simulator proposes no such condition: {compare:?}"),
        };
        match compare.result() {
            CompareResult::Equal => ordering.is_eq(),
            CompareResult::NotEqual => ordering.is_ne(),
            CompareResult::Greater => ordering.is_gt(),
            CompareResult::Less => ordering.is_lt(),
        }
    }
}

/// The expected answer to an entry, without the revision.
#[derive(Clone, Debug, PartialEq)]
enum Expected {
    Done,
    Deleted(i64),
    Read(Vec<KeyValue>),
    Txn(bool, Vec<Expected>),
    Granted(i64),
}

//! A simple second implementation of the state machine: a map per key of all versions that it ever had.

use api::Message;
use api::etcdserverpb::alarm_request::AlarmAction;
use api::etcdserverpb::compare::{CompareResult, CompareTarget, TargetUnion};
use api::etcdserverpb::request_op::Request;
use api::etcdserverpb::response_op;
use api::etcdserverpb::{Compare, InternalRaftRequest, PutRequest, RequestOp, TxnRequest};
use api::mvccpb::KeyValue;
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet};
use store::Response;

use crate::permissions::{Access, Wish};

/// Revisions begin here.
const FIRST_REVISION: i64 = 1;

/// A change of a key, as a watch tells it.
#[derive(Clone, Debug)]
pub(crate) struct Change {
    /// The new pair; of a deletion only the key and the revision.
    pub(crate) kv: KeyValue,
    /// The pair as the revision before this one left it, unless this one creates the key.
    pub(crate) prev: Option<KeyValue>,
}

/// A lease as the log has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Lease {
    ttl: i64,
    remaining_ttl: i64,
}

/// The state after every entry so far, and before each of them.
pub(crate) struct Model {
    /// The versions of each key, with the revisions from which they hold.
    keys: BTreeMap<Bytes, Vec<(i64, Option<KeyValue>)>>,
    /// The revision after each entry, from index 0 on.
    revisions: Vec<i64>,
    /// All changes, in the order of the log.
    changes: Vec<Change>,
    leases: BTreeMap<i64, Lease>,
    access: Access,
    user_changes: u64,
    denied: u64,
    /// Members that have no space, and say so.
    alarms: BTreeSet<u64>,
    no_space: u64,
    compactions: u64,
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
            changes: Vec::new(),
            leases: BTreeMap::new(),
            access: Access::default(),
            user_changes: 0,
            denied: 0,
            alarms: BTreeSet::new(),
            no_space: 0,
            compactions: 0,
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

    /// Each lease with its time to live and what was left of it at the last lease checkpoint.
    pub(crate) fn leases(&self) -> impl Iterator<Item = (i64, i64, i64)> {
        self.leases.iter().map(|(id, lease)| (*id, lease.ttl, lease.remaining_ttl))
    }

    /// Every change of a key so far, compacted or not.
    pub(crate) fn changes(&self) -> &[Change] {
        &self.changes
    }

    /// The revision of the deletion that is the last change up to `revision` but for a few, if there is one: compactions meet deletions there.
    pub(crate) fn deletion_before(&self, revision: i64) -> Option<i64> {
        let changes = self.changes.iter().rev().skip_while(|change| change.kv.mod_revision > revision);
        let found = changes.take(4).find(|change| change.kv.version == 0).map(|change| change.kv.mod_revision);
        found.filter(|found| *found > self.compact_revision)
    }

    /// Entries about users and roles so far.
    pub(crate) fn user_changes(&self) -> u64 {
        self.user_changes
    }

    /// Entries so far that permissions have refused.
    pub(crate) fn denied(&self) -> u64 {
        self.denied
    }

    /// Whether only users may write.
    pub(crate) fn has_enabled_users(&self) -> bool {
        self.access.enabled
    }

    /// The entry that gave a token out, 0 if none did, and whose it is after the entry `applied`.
    pub(crate) fn holder(&self, token: &str, applied: u64) -> (u64, Option<&str>) {
        self.access.holder(token, applied)
    }

    /// Members that have raised the NOSPACE alarm.
    pub(crate) fn alarms(&self) -> &BTreeSet<u64> {
        &self.alarms
    }

    /// Entries so far that such an alarm has refused.
    pub(crate) fn no_space(&self) -> u64 {
        self.no_space
    }

    /// Compactions so far that took effect.
    pub(crate) fn compactions(&self) -> u64 {
        self.compactions
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
            (Expected::Put(old), Response::Put(answer)) => *old == answer.prev_kv,
            (Expected::Done, Response::LeaseRevoke(..) | Response::Compaction(_)) => true,
            _ => false,
        }
    }

    /// The keys on a lease, in order.
    fn keys_of(&self, lease: i64) -> Vec<Bytes> {
        let now = self.revision + i64::from(self.wrote);
        let all = self.read(&[0], &[0], now).into_iter();
        all.filter(|kv| kv.lease == lease && lease != 0).map(|kv| kv.key).collect()
    }

    fn permit(&self, request: &InternalRaftRequest) -> Result<(), api::Error> {
        let wish = if let Some(put) = &request.put {
            Wish::Put(put)
        } else if let Some(delete) = &request.delete_range {
            Wish::Delete(&delete.key, &delete.range_end)
        } else if let Some(txn) = &request.txn {
            Wish::Txn(txn)
        } else if let Some(revoke) = &request.lease_revoke {
            Wish::Lease(self.keys_of(revoke.id))
        } else if request.lease_grant.is_some()
            || request.lease_checkpoint.is_some()
            || request.compaction.is_some()
            || request.alarm.is_some()
        {
            Wish::Nothing
        } else if request.authenticate.is_some() {
            Wish::Token
        } else {
            Wish::Root
        };
        let header = request.header.clone().unwrap_or_default();
        self.access.permits(&header, &wish, |lease| self.keys_of(lease))
    }

    fn request(&mut self, request: &InternalRaftRequest) -> Result<Expected, api::Error> {
        if !self.alarms.is_empty() && store::cost(request) > 0 {
            self.no_space += 1;
            return Err(api::Error::NoSpace);
        }
        self.permit(request).inspect_err(|_| self.denied += 1)?;
        if let Some(result) = self.access.apply(self.index() + 1, request) {
            self.user_changes += 1;
            return result.map(|()| Expected::Done);
        }
        if let Some(put) = &request.put {
            self.check_put(put)?;
            return Ok(Expected::Put(self.put(put).filter(|_| put.prev_kv)));
        } else if let Some(delete) = &request.delete_range {
            return Ok(Expected::Deleted(self.delete(&delete.key, &delete.range_end)));
        } else if let Some(txn) = &request.txn {
            return self.txn(txn);
        } else if let Some(grant) = &request.lease_grant {
            if self.leases.contains_key(&grant.id) {
                return Err(api::Error::LeaseExist);
            }
            self.leases.insert(grant.id, Lease { ttl: grant.ttl, remaining_ttl: 0 });
            return Ok(Expected::Granted(grant.ttl));
        } else if let Some(revoke) = &request.lease_revoke {
            self.leases.remove(&revoke.id).ok_or(api::Error::LeaseNotFound)?;
            for key in self.keys_of(revoke.id) {
                self.delete(&key, &[]);
            }
        } else if let Some(checkpoint) = &request.lease_checkpoint {
            for left in &checkpoint.checkpoints {
                if let Some(lease) = self.leases.get_mut(&left.id) {
                    lease.remaining_ttl = left.remaining_ttl;
                }
            }
        } else if let Some(alarm) = &request.alarm {
            match alarm.action() {
                AlarmAction::Activate => self.alarms.insert(alarm.member_id),
                AlarmAction::Deactivate => self.alarms.remove(&alarm.member_id),
                AlarmAction::Get => panic!("the simulator proposes no such request: {alarm:?}"),
            };
        } else if let Some(compaction) = &request.compaction {
            if compaction.revision <= self.compact_revision {
                return Err(api::Error::Compacted);
            }
            if compaction.revision > self.revision {
                return Err(api::Error::FutureRev);
            }
            self.compact_revision = compaction.revision;
            self.compactions += 1;
        } else {
            panic!("the simulator proposes no such request: {request:?}");
        }
        Ok(Expected::Done)
    }

    fn check_put(&self, put: &PutRequest) -> Result<(), api::Error> {
        if put.lease != 0 && !self.leases.contains_key(&put.lease) {
            return Err(api::Error::LeaseNotFound);
        }
        let keeps = put.ignore_value || put.ignore_lease;
        if keeps && self.read(&put.key, &[], self.revision).is_empty() {
            return Err(api::Error::KeyNotFound);
        }
        Ok(())
    }

    /// Returns what the key held before.
    fn put(&mut self, put: &PutRequest) -> Option<KeyValue> {
        self.wrote = true;
        let revision = self.revision + 1;
        let versions = self.keys.entry(put.key.clone()).or_default();
        let before = versions.last().and_then(|(_, kv)| kv.as_ref());
        let kv = KeyValue {
            key: put.key.clone(),
            value: before.filter(|_| put.ignore_value).map_or_else(|| put.value.clone(), |before| before.value.clone()),
            create_revision: before.map_or(revision, |before| before.create_revision),
            mod_revision: revision,
            version: before.map_or(0, |before| before.version) + 1,
            lease: before.filter(|_| put.ignore_lease).map_or(put.lease, |before| before.lease),
        };
        let old = before.cloned();
        let prev = if kv.version == 1 { None } else { held_before(versions, revision) };
        versions.push((revision, Some(kv.clone())));
        self.changes.push(Change { kv, prev });
        old
    }

    fn delete(&mut self, from: &Bytes, end: &[u8]) -> i64 {
        let revision = self.revision + 1;
        // The range includes writes of the same entry.
        let found = self.read(from, end, revision);
        for kv in &found {
            self.wrote = true;
            let versions = self.keys.entry(kv.key.clone()).or_default();
            let prev = held_before(versions, revision);
            versions.push((revision, None));
            let kv = KeyValue { key: kv.key.clone(), mod_revision: revision, ..KeyValue::default() };
            self.changes.push(Change { kv, prev });
        }
        found.len() as i64
    }

    fn txn(&mut self, txn: &TxnRequest) -> Result<Expected, api::Error> {
        let succeeded = txn.compare.iter().all(|compare| self.holds(compare));
        let branch = if succeeded { &txn.success } else { &txn.failure };
        for op in branch {
            match &op.request {
                Some(Request::RequestPut(put)) => self.check_put(put)?,
                Some(Request::RequestRange(range)) if range.revision > self.revision => {
                    return Err(api::Error::FutureRev);
                }
                Some(Request::RequestRange(range)) if range.revision != 0 && range.revision < self.compact_revision => {
                    return Err(api::Error::Compacted);
                }
                _ => {}
            }
        }
        let part = |op: &RequestOp| match &op.request {
            Some(Request::RequestPut(put)) => {
                self.put(put);
                Expected::Done
            }
            Some(Request::RequestDeleteRange(delete)) => Expected::Deleted(self.delete(&delete.key, &delete.range_end)),
            Some(Request::RequestRange(range)) => {
                let now = self.revision + i64::from(self.wrote);
                let at = if range.revision > 0 { range.revision } else { now };
                Expected::Read(self.read(&range.key, &range.range_end, at))
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

/// What a key held before `revision`.
fn held_before(versions: &[(i64, Option<KeyValue>)], revision: i64) -> Option<KeyValue> {
    versions.iter().rev().find(|(since, _)| *since < revision).and_then(|(_, kv)| kv.clone())
}

/// The expected answer to an entry, without the revision.
#[derive(Clone, Debug, PartialEq)]
enum Expected {
    Done,
    Put(Option<KeyValue>),
    Deleted(i64),
    Read(Vec<KeyValue>),
    Txn(bool, Vec<Expected>),
    Granted(i64),
}

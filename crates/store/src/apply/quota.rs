//! The space quota: what a request would add, estimated as etcd does.
//!
//! An entry that exceeds the quota is applied all the same, and answered with an error, as etcd does: members differ in what they have
//! left. To make this rare, requests claim what they add before they are proposed while the quota is near.

use crate::log::read;
use crate::state::is_known_alarm;
use crate::store::Store;
use api::Error;
use api::etcdserverpb::alarm_request::AlarmAction;
use api::etcdserverpb::{AlarmRequest, InternalRaftRequest, PutRequest, TxnRequest, request_op::Request};
use api::limits::{NON_MEMBER_ALARMS_MAX, QUOTA_BYTES_DEFAULT, QUOTA_NEAR_BYTES, USERS_BYTES_MAX};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// What a key costs beyond its key and value.
const PUT_OVERHEAD_BYTES: u64 = 256;
/// What a lease counts for: its share of every checkpoint, as etcd estimates it.
pub const LEASE_BYTES: u64 = 64;
/// What an alarm counts for. It is never refused for it: alarms are how a member says that it is full.
pub(crate) const ALARM_BYTES: u64 = 64;

/// The quota in bytes, or `None` when there is none.
pub(crate) fn limit(quota_bytes: i64) -> Option<u64> {
    match quota_bytes {
        0 => Some(QUOTA_BYTES_DEFAULT.unsigned_abs()),
        bytes => u64::try_from(bytes).ok(),
    }
}

/// What a request would add. Requests that cost nothing are never refused.
pub fn cost(request: &InternalRaftRequest) -> u64 {
    let put = request.put.as_ref().map_or(0, put);
    let txn = request.txn.as_ref().map_or(0, txn);
    let lease = if request.lease_grant.is_some() { LEASE_BYTES } else { 0 };
    put + txn + lease
}

/// What a put would add.
pub fn put(request: &PutRequest) -> u64 {
    PUT_OVERHEAD_BYTES + request.key.len() as u64 + request.value.len() as u64
}

pub(crate) fn lease_grant() -> u64 {
    LEASE_BYTES
}

/// The dearer branch of a transaction. Recurses by nesting, at most `TXN_NESTING_MAX` deep, as all that looks into transactions.
pub fn txn(request: &TxnRequest) -> u64 {
    let branch = |ops: &[api::etcdserverpb::RequestOp]| -> u64 {
        let ops = ops.iter().filter_map(|op| op.request.as_ref());
        ops.map(|op| match op {
            Request::RequestPut(request) => put(request),
            Request::RequestTxn(request) => txn(request),
            Request::RequestRange(_) | Request::RequestDeleteRange(_) => 0,
        })
        .sum()
    };
    branch(&request.success).max(branch(&request.failure))
}

impl Store {
    /// Claims `cost` bytes of the quota for a request; they count until the claim is dropped. With [`Error::NoSpace`] the request alone
    /// does not fit into what is left, or the disk is nearly full. With [`Error::TooManyRequests`] it only fits without the others that
    /// are under way: those may turn out to add less, or be refused, so that is no reason for an alarm.
    pub fn claim_quota(self: &Arc<Self>, cost: u64) -> Result<Space, Error> {
        if self.over_quota(cost) {
            return Err(Error::NoSpace);
        }
        // Far from the quota what is under way does not pass it, and requests need not meet at one counter.
        let is_near = limit(self.options.quota_bytes)
            .is_some_and(|limit| self.live_bytes().saturating_add(QUOTA_NEAR_BYTES) >= limit);
        if cost == 0 || !is_near {
            return Ok(Space(None));
        }
        let (space, claimed) = self.claim(cost, |store| &store.claimed_bytes);
        if self.over_quota(claimed) { Err(Error::TooManyRequests) } else { Ok(space) }
    }

    /// Claims `cost` bytes for a change of users and roles, which are in every checkpoint and are sent in one piece. As etcd, members apply
    /// what was proposed.
    pub fn claim_users(self: &Arc<Self>, cost: u64) -> Result<Space, Error> {
        if cost == 0 {
            return Ok(Space(None));
        }
        let (space, claimed) = self.claim(cost, |store| &store.claimed_users_bytes);
        if self.auth().bytes().saturating_add(claimed) > USERS_BYTES_MAX { Err(Error::NoSpace) } else { Ok(space) }
    }

    /// Claims a place for an alarm that is to be raised, if that is of an invented member or kind: there are few, because they would stay for
    /// good, and are in every checkpoint. As etcd, members apply what was proposed.
    pub fn claim_alarm(self: &Arc<Self>, request: &AlarmRequest) -> Result<Space, Error> {
        if request.action != AlarmAction::Activate as i32 {
            return Ok(Space(None));
        }
        let members = read(&self.members);
        let is_real = |id: u64, kind: i32| members.members.contains_key(&id) && is_known_alarm(kind);
        if is_real(request.member_id, request.alarm) {
            return Ok(Space(None));
        }
        // Claimed before it is looked which are on: one that is applied meanwhile counts twice rather than not at all.
        let (space, claimed) = self.claim(1, |store| &store.claimed_alarms);
        let invented = self.alarms().iter().filter(|alarm| !is_real(alarm.member_id, alarm.alarm)).count() as u64;
        if invented.saturating_add(claimed) > NON_MEMBER_ALARMS_MAX { Err(Error::TooManyAlarms) } else { Ok(space) }
    }

    /// Adds to a counter until the claim is dropped; also returns what it counts then.
    fn claim(self: &Arc<Self>, cost: u64, counter: Counter) -> (Space, u64) {
        let claimed = counter(self).fetch_add(cost, Ordering::Relaxed).saturating_add(cost);
        (Space(Some((Arc::clone(self), cost, counter))), claimed)
    }
}

/// What of a store counts claims.
type Counter = fn(&Store) -> &AtomicU64;

/// What a request under way may add.
#[derive(Default)]
pub struct Space(Option<(Arc<Store>, u64, Counter)>);

impl Drop for Space {
    fn drop(&mut self) {
        if let Some((store, bytes, counter)) = self.0.take() {
            counter(&store).fetch_sub(bytes, Ordering::Relaxed);
        }
    }
}

impl std::fmt::Debug for Space {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Space({})", self.0.as_ref().map_or(0, |(_, bytes, _)| *bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Options;
    use api::etcdserverpb::{DeleteRangeRequest, LeaseGrantRequest, RequestOp};
    use disk::sim::SimDisk;
    use std::path::Path;

    #[test]
    fn costs() {
        let put = PutRequest { key: "abc".into(), value: "12345".into(), ..Default::default() };
        let op = |request| RequestOp { request: Some(request) };
        let inner = TxnRequest {
            success: vec![op(Request::RequestPut(put.clone())), op(Request::RequestPut(put.clone()))],
            failure: vec![op(Request::RequestPut(put.clone()))],
            ..Default::default()
        };
        let delete = op(Request::RequestDeleteRange(DeleteRangeRequest::default()));
        let outer = TxnRequest {
            success: vec![delete.clone()],
            failure: vec![op(Request::RequestTxn(inner))],
            ..Default::default()
        };
        let free = TxnRequest { success: vec![delete], ..Default::default() };
        assert_eq!(cost(&InternalRaftRequest { put: Some(put), ..Default::default() }), 264);
        assert_eq!(cost(&InternalRaftRequest { txn: Some(outer), ..Default::default() }), 528);
        assert_eq!(cost(&InternalRaftRequest { txn: Some(free), ..Default::default() }), 0);
        let grant = Some(LeaseGrantRequest { ttl: i64::MAX, id: i64::MIN });
        assert_eq!(cost(&InternalRaftRequest { lease_grant: grant, ..Default::default() }), 64);
    }

    #[test]
    fn limits() {
        assert_eq!(limit(0), Some(2 << 30));
        assert_eq!((limit(-1), limit(i64::MIN), limit(5)), (None, None, Some(5)));
    }
    /// A store that has this quota, and these bytes in its segments.
    fn store(quota_bytes: i64, live_bytes: u64) -> Arc<Store> {
        let options = Options { quota_bytes, ..Options::default() };
        let store = crate::open(Arc::new(SimDisk::new()), Path::new("store"), options).unwrap().store;
        store.segments.install(Vec::new(), live_bytes - store.live_bytes());
        assert_eq!(store.live_bytes(), live_bytes);
        store
    }

    #[test]
    fn every_bit_of_a_large_store_counts() {
        const LARGE: [u64; 8] =
            [(1 << 32) - 1, 1 << 32, (1 << 32) + 1, 30_000_000_000, (1 << 40) - 1, 1 << 40, (1 << 40) + 1, 1 << 62];
        for quota in LARGE {
            let store = store(i64::try_from(quota).unwrap(), quota - 1000);
            assert_eq!(store.quota_bytes(), Some(quota));
            assert!(!store.over_quota(0) && !store.over_quota(999), "{quota}");
            // As etcd: what fills the quota to the last byte is refused. In 32 bits some of these costs would be 0.
            for cost in [1000, 1001, 1 << 31, 1 << 32, 1 << 40, u64::MAX] {
                assert!(store.over_quota(cost), "{quota} {cost}");
                assert_eq!(store.claim_quota(cost).err(), Some(Error::NoSpace), "{quota} {cost}");
            }
            // What is under way counts, too.
            let claims = [store.claim_quota(400).unwrap(), store.claim_quota(400).unwrap()];
            assert_eq!(store.claim_quota(400).err(), Some(Error::TooManyRequests), "{quota}");
            drop(claims);
            assert!(store.claim_quota(999).is_ok(), "{quota}");
        }
    }

    #[test]
    fn a_store_of_four_gibibytes_is_not_an_empty_one() {
        // The lower half of these numbers is small, or that of the quota larger than that of the store.
        for (quota, live) in
            [(1 << 32, 1 << 32), ((1 << 32) - 1, 1 << 32), ((1 << 32) - 1, 1 << 40), (1 << 40, (1 << 40) + 5)]
        {
            let store = store(quota, live);
            assert!(!store.over_quota(0) && store.over_quota(1), "{quota} {live}");
            assert_eq!(store.claim_quota(1).err(), Some(Error::NoSpace), "{quota} {live}");
        }
        for (quota, live) in [(1 << 40, 1 << 32), ((1 << 40) + 5, (1 << 40) - (1 << 32)), (1 << 33, 1 << 32)] {
            let store = store(quota, live);
            let left = u64::try_from(quota).unwrap() - live;
            assert!(!store.over_quota(left - 1) && store.over_quota(left), "{quota} {live}");
        }
        assert!(!store(-1, 1 << 62).over_quota(1 << 62));
    }
}

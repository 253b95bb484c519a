//! Requests in few words.

use api::etcdserverpb::request_op::Request;
use api::etcdserverpb::*;

pub fn put(key: &str, value: &str) -> PutRequest {
    PutRequest { key: key.to_owned().into(), value: value.to_owned().into(), ..Default::default() }
}

pub fn delete(key: &str, range_end: &str) -> DeleteRangeRequest {
    DeleteRangeRequest { key: key.to_owned().into(), range_end: range_end.to_owned().into(), prev_kv: false }
}

pub fn range(key: &str, range_end: &str) -> RangeRequest {
    RangeRequest { key: key.to_owned().into(), range_end: range_end.to_owned().into(), ..Default::default() }
}

pub fn op(request: Request) -> RequestOp {
    RequestOp { request: Some(request) }
}

pub fn all() -> RangeRequest {
    range("\0", "\0")
}

/// Wraps requests into what the Raft log holds.
pub trait Raft {
    fn raft(self) -> InternalRaftRequest;
}

macro_rules! raft {
    ($($request:ty => $field:ident),*) => {
        $(impl Raft for $request {
            fn raft(self) -> InternalRaftRequest {
                InternalRaftRequest { $field: Some(self), ..Default::default() }
            }
        })*
    };
}

raft! {
    PutRequest => put, DeleteRangeRequest => delete_range, TxnRequest => txn, RangeRequest => range,
    CompactionRequest => compaction, LeaseGrantRequest => lease_grant, LeaseRevokeRequest => lease_revoke,
    LeaseCheckpointRequest => lease_checkpoint, AlarmRequest => alarm,
    api::membershippb::ClusterVersionSetRequest => cluster_version_set,
    api::membershippb::ClusterMemberAttrSetRequest => cluster_member_attr_set,
    api::membershippb::DowngradeInfoSetRequest => downgrade_info_set
}

pub fn compact(revision: i64) -> InternalRaftRequest {
    CompactionRequest { revision, physical: false }.raft()
}

pub fn grant(id: i64, ttl: i64) -> InternalRaftRequest {
    LeaseGrantRequest { id, ttl }.raft()
}

pub fn revoke(id: i64) -> InternalRaftRequest {
    LeaseRevokeRequest { id }.raft()
}

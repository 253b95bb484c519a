//! The content of a checkpoint.

use crate::log::SegmentEntry;
use crate::state::auth::AuthState;
use api::etcdserverpb::{AlarmMember, DowngradeInfo, Member};
use api::leasepb::Lease;
use api::raftpb::ConfState;
use bytes::Bytes;

/// Larger revisions, entries and terms are refused, so that adding to one never overflows.
const NUMBER_MAX: u64 = 1 << 62;

/// The state of the store after the entry `applied_index`, apart from the keys, which are in the segments. Persisted as
/// protobuf: numbers are never reused, and a missing field is its zero.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Checkpoint {
    /// Index of the last entry applied.
    #[prost(uint64, tag = "1")]
    pub applied_index: u64,
    /// Its term.
    #[prost(uint64, tag = "2")]
    pub applied_term: u64,
    /// Main revision of the last change; 1 before the first.
    #[prost(int64, tag = "3")]
    pub revision: i64,
    /// Revision of the last compaction; -1 before the first.
    #[prost(int64, tag = "4")]
    pub compact_revision: i64,
    /// Raft's membership.
    #[prost(message, required, tag = "5")]
    pub conf_state: ConfState,
    /// The segments of the revision log, oldest first, with the bytes of each that belong to this state.
    #[prost(message, repeated, tag = "6")]
    pub segments: Vec<SegmentEntry>,
    /// Leases granted and not revoked.
    #[prost(message, repeated, tag = "7")]
    pub leases: Vec<Lease>,
    /// Alarms raised.
    #[prost(message, repeated, tag = "8")]
    pub alarms: Vec<AlarmMember>,
    /// The cluster's members.
    #[prost(message, repeated, tag = "9")]
    pub members: Vec<Member>,
    /// Ids of removed members, which may not come back.
    #[prost(uint64, repeated, tag = "10")]
    pub removed: Vec<u64>,
    /// The version the cluster agreed on; empty before it did.
    #[prost(string, tag = "11")]
    pub cluster_version: String,
    /// The downgrade under way.
    #[prost(message, optional, tag = "12")]
    pub downgrade: Option<DowngradeInfo>,
    /// Users, roles and the auth revision, in auth's own encoding. Empty if there never was one.
    #[prost(bytes = "bytes", tag = "13")]
    pub auth: Bytes,
    /// This is a snapshot from another member: earlier checkpoints beside it belong to what it replaced.
    #[prost(bool, tag = "14")]
    pub installed: bool,
    /// Compactions up to this revision are finished, and the one at `compact_revision` is not. Missing when there is none that is
    /// unfinished, and in checkpoints of versions that did not know better.
    #[prost(int64, optional, tag = "15")]
    pub compacted: Option<i64>,
    /// Only between members: the leases are a table of their own, and not in `leases`.
    #[prost(message, optional, tag = "16")]
    pub lease_table: Option<LeaseTable>,
}

/// Describes the leases of a snapshot that are sent beside its checkpoint.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct LeaseTable {
    /// How many there are.
    #[prost(uint64, tag = "1")]
    pub leases: u64,
    /// CRC-32C of the table's bytes.
    #[prost(fixed32, tag = "2")]
    pub crc: u32,
}

impl Checkpoint {
    /// The state of a store to which nothing was applied.
    pub fn initial() -> Checkpoint {
        Checkpoint { revision: 1, compact_revision: -1, ..Checkpoint::default() }
    }

    /// Compactions up to this revision are finished: the segments hold everything that it has left.
    pub(crate) fn finished_compaction(&self) -> i64 {
        self.compacted.unwrap_or(self.compact_revision)
    }

    /// Says what makes this content impossible, if anything does.
    pub(crate) fn contradiction(&self) -> Option<&'static str> {
        if self.revision < 1
            || self.compact_revision > self.revision
            || self.finished_compaction() > self.compact_revision
        {
            return Some("revisions of a checkpoint that contradict each other");
        }
        if self.lease_table.is_some() && !self.leases.is_empty() {
            return Some("leases of a checkpoint in two places");
        }
        if AuthState::load(&self.auth).is_err() {
            return Some("users of a checkpoint that do not parse, or whose revision no state can have");
        }
        let numbers = [self.applied_index, self.applied_term, self.revision.cast_unsigned()];
        if numbers.iter().any(|&number| number > NUMBER_MAX) {
            return Some("a checkpoint of a state that no member can be in");
        }
        let mut last = Default::default();
        let mut ids = std::collections::HashSet::new();
        for entry in &self.segments {
            if entry.records == 0 || entry.first() <= last || entry.last() < entry.first() || !ids.insert(entry.id) {
                return Some("segments of a checkpoint that contradict each other");
            }
            if !entry.is_possible() {
                return Some("a segment of a checkpoint that cannot have its length or so many records");
            }
            last = entry.last();
        }
        (last.main > self.revision).then_some("a checkpoint whose segments go beyond its revision")
    }
}

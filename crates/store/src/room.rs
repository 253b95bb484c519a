//! Room on the disk for deletions.
//!
//! They cost nothing against the quota and are never refused for it: they are the way out. But a deletion writes a record for every key,
//! and what is kept in reserve on the disk does not hold millions of them.

use crate::log::read;
use crate::store::Store;
use api::etcdserverpb::request_op::Request;
use api::etcdserverpb::{DeleteRangeRequest, RequestOp, TxnRequest};
use api::limits::DELETE_BYTES_FREE;
use api::{Error, KeyRange};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// What the record of a deletion takes beside its key, rounded up.
const TOMBSTONE_BYTES: u64 = 48;
/// Keys whose lengths stand for those of the whole range.
const SAMPLE_KEYS: usize = 64;

impl Store {
    /// About what deleting the keys of a range writes.
    pub fn delete_cost_bytes(&self, range: KeyRange<'_>) -> u64 {
        if range.is_empty() {
            return 0;
        }
        let (mut sampled, mut bytes) = (0, 0);
        let index = read(&self.index);
        let keys = index.count_live(range);
        let mut sample = |key: &[u8], _: &_| {
            sampled += 1;
            bytes += key.len() as u64;
            if sampled == SAMPLE_KEYS as u64 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        };
        // Keys that were deleted are looked at too: it may take all of the allowance to find none.
        index.scan(range, i64::MAX, None, 4 * SAMPLE_KEYS, &mut sample);
        drop(index);
        keys.saturating_mul(TOMBSTONE_BYTES + bytes.checked_div(sampled).unwrap_or_default())
    }

    /// The same for the dearer branch of a transaction.
    pub fn txn_delete_cost_bytes(&self, request: &TxnRequest) -> u64 {
        let branch = |ops: &[RequestOp]| {
            let costs = ops.iter().map(|op| match &op.request {
                Some(Request::RequestDeleteRange(DeleteRangeRequest { key, range_end, .. })) => {
                    self.delete_cost_bytes(KeyRange::new(key, range_end))
                }
                Some(Request::RequestTxn(nested)) => self.txn_delete_cost_bytes(nested),
                Some(Request::RequestPut(_) | Request::RequestRange(_)) | None => 0,
            });
            costs.fold(0, u64::saturating_add)
        };
        branch(&request.success).max(branch(&request.failure))
    }

    /// Refuses deletions that write `cost` bytes when the disk has no room for them beyond what the Raft log, a checkpoint and a
    /// rewrite need: what was deleted so far must be compacted first, and its space must have come back. They may fill the segment that
    /// is reserved as the next one, so that there is a way to begin. The room is held until the answer is dropped.
    pub fn delete_check(self: &Arc<Self>, cost: u64) -> Result<Room, Error> {
        let is_small = cost <= DELETE_BYTES_FREE && !self.disk_is_low();
        if is_small || cost == 0 {
            return Ok(Room::default());
        }
        // A disk that does not say how much is free is found full by a write, if it is.
        let Ok(free) = self.disk.free_bytes(&self.dir) else { return Ok(Room::default()) };
        // Once the reserved segment is in use, another one is taken from what is free.
        let there = free.saturating_add(self.segments.spare_bytes());
        let room = there.saturating_sub(self.disk_floor.load(Ordering::Relaxed));
        let promise = |promised: u64| promised.checked_add(cost).filter(|sum| *sum <= room);
        match self.promised_bytes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, promise) {
            Ok(_) => Ok(Room { claim: Some((Arc::clone(self), cost)) }),
            Err(_) => Err(Error::NoSpace),
        }
    }
}

/// Room on the disk that a deletion under way was promised: others do not get the same.
#[derive(Default)]
pub struct Room {
    claim: Option<(Arc<Store>, u64)>,
}

impl Drop for Room {
    fn drop(&mut self) {
        if let Some((store, bytes)) = self.claim.take() {
            store.promised_bytes.fetch_sub(bytes, Ordering::Relaxed);
        }
    }
}

impl std::fmt::Debug for Room {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Room({} bytes)", self.claim.as_ref().map_or(0, |(_, bytes)| *bytes))
    }
}

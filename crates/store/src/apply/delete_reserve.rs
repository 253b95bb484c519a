//! The delete headroom: disk space that deletions may fill, ends of leases among them.
//!
//! Deletions cost nothing against the quota and are never refused for it: they are the way out of a full store. But a deletion writes
//! a record for every key, and the reserve on the disk does not hold millions of them. A committed entry that did not fit would end
//! every member, at each start again. So the space is reserved before a deletion is proposed.

use crate::index::{NEWEST, Scan};
use crate::log::read;
use crate::read::Looks;
use crate::store::Store;
use crate::types::Version;
use api::etcdserverpb::request_op::Request;
use api::etcdserverpb::{DeleteRangeRequest, RequestOp, TxnRequest};
use api::limits::{
    DELETE_BYTES_FREE, DELETES_BYTES_FREE, INLINE_SORT_KEYS_MAX, READ_STRIDE_KEYS, TXN_ANSWER_BYTES_MAX,
};
use api::{Error, KeyRange};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Bytes of a tombstone's record beside its key, rounded up.
const TOMBSTONE_BYTES: u64 = 48;
/// Up to so many keys are looked at one by one, however large the headroom is.
const COUNTED_KEYS: u64 = 65_536;
/// A bound that takes no more than this part of the headroom need not be exact.
const ROUGH_PART: u64 = 64;

/// What a branch of a transaction deletes.
struct Deletions<'a> {
    /// In order. None overlaps another: a key that several operations delete is deleted, and looked at, once.
    ranges: Vec<KeyRange<'a>>,
    puts: Vec<&'a [u8]>,
}

impl<'a> Deletions<'a> {
    fn of(ops: &'a [RequestOp]) -> Deletions<'a> {
        let (mut ranges, mut puts) = (Vec::new(), Vec::new());
        gather(ops, &mut ranges, &mut puts);
        Deletions { ranges: merged(ranges), puts }
    }

    /// What is written for keys that the branch itself puts. Only a deletion of all keys from one on may take in such a key.
    fn puts_bytes(&self) -> u64 {
        let Some(KeyRange::From(start)) = self.ranges.last() else { return 0 };
        let deleted = self.puts.iter().filter(|key| *key >= start);
        deleted.map(|key| TOMBSTONE_BYTES + key.len() as u64).fold(0, u64::saturating_add)
    }
}

/// Recurses by nesting, at most `TXN_NESTING_MAX` deep.
fn gather<'a>(ops: &'a [RequestOp], ranges: &mut Vec<KeyRange<'a>>, puts: &mut Vec<&'a [u8]>) {
    for op in ops {
        match &op.request {
            Some(Request::RequestDeleteRange(delete)) => ranges.push(KeyRange::new(&delete.key, &delete.range_end)),
            Some(Request::RequestPut(put)) => puts.push(&put.key),
            Some(Request::RequestTxn(nested)) => {
                gather(&nested.success, ranges, puts);
                gather(&nested.failure, ranges, puts);
            }
            Some(Request::RequestRange(_)) | None => {}
        }
    }
}

/// The ranges in order, with those that overlap made one.
pub(super) fn merged(mut ranges: Vec<KeyRange<'_>>) -> Vec<KeyRange<'_>> {
    ranges.retain(|range| !range.is_empty());
    ranges.sort_unstable_by_key(KeyRange::start);
    let mut all: Vec<KeyRange<'_>> = Vec::with_capacity(ranges.len());
    for range in ranges {
        match all.last_mut() {
            // None begins before this one, so that their union begins with it too.
            Some(last) if last.contains(range.start()) => *last = union(*last, range),
            _ => all.push(range),
        }
    }
    all
}

/// Two ranges as one; the second one begins within the first.
fn union<'a>(first: KeyRange<'a>, second: KeyRange<'a>) -> KeyRange<'a> {
    let start = first.start();
    match (first, second) {
        (KeyRange::From(_), _) | (_, KeyRange::From(_)) => KeyRange::From(start),
        (KeyRange::Span(_, end), KeyRange::Span(_, other)) => KeyRange::Span(start, end.max(other)),
        (KeyRange::Span(..), KeyRange::One(_)) => first,
        // Both begin with the same key.
        (KeyRange::One(_), _) => second,
    }
}

impl Store {
    /// Bytes that deleting the keys of a range writes. Where the headroom is large, an upper bound.
    pub fn delete_cost_bytes(&self, range: KeyRange<'_>) -> u64 {
        self.ranges_cost_bytes(&merged(vec![range]))
    }

    /// The same for ranges that do not overlap.
    fn ranges_cost_bytes(&self, ranges: &[KeyRange<'_>]) -> u64 {
        let keys = self.live_keys(ranges);
        if keys == 0 {
            return 0;
        }
        let costs = || ranges.iter().map(|range| self.counted_cost_bytes(*range)).fold(0, u64::saturating_add);
        self.rough_cost_bytes(keys).unwrap_or_else(costs)
    }

    /// Live keys of ranges that do not overlap.
    pub(super) fn live_keys(&self, ranges: &[KeyRange<'_>]) -> u64 {
        ranges.iter().map(|range| read(&self.index).count_live(*range)).fold(0, u64::saturating_add)
    }

    /// A bound of what deleting so many keys writes, if that need not be exact.
    fn rough_cost_bytes(&self, keys: u64) -> Option<u64> {
        if keys <= COUNTED_KEYS {
            return None;
        }
        // Every live key is part of the live bytes.
        let at_most = keys.saturating_mul(TOMBSTONE_BYTES).saturating_add(self.segments.live_bytes());
        (at_most.saturating_mul(ROUGH_PART) <= self.headroom_bytes()).then_some(at_most)
    }

    /// What deleting the keys of a range writes, each looked at.
    fn counted_cost_bytes(&self, range: KeyRange<'_>) -> u64 {
        let (mut bytes, mut after) = (0, None::<Box<[u8]>>);
        loop {
            let mut add = |key: &[u8], _: &_| {
                bytes += TOMBSTONE_BYTES + key.len() as u64;
                ControlFlow::Continue(())
            };
            let index = read(&self.index);
            let scan = index.scan(range, NEWEST, after.as_deref(), READ_STRIDE_KEYS, &mut add);
            drop(index);
            match scan {
                Scan::More(last) => after = Some(last),
                Scan::Done | Scan::Stopped => return bytes,
            }
            (self.options.pause)();
        }
    }

    /// What the end of a lease writes.
    pub fn revoke_cost_bytes(&self, lease: i64) -> u64 {
        let (keys, bytes) = self.leases.attached(lease);
        keys.saturating_mul(TOMBSTONE_BYTES).saturating_add(bytes)
    }

    /// The same for the dearer branch of a transaction. Both branches of a transaction nested in it count.
    pub fn txn_delete_cost_bytes(&self, request: &TxnRequest) -> u64 {
        let cost = |ops: &[RequestOp]| {
            let deletions = Deletions::of(ops);
            self.ranges_cost_bytes(&deletions.ranges).saturating_add(deletions.puts_bytes())
        };
        cost(&request.success).max(cost(&request.failure))
    }

    /// Whether it takes a look at so many keys to find out what a deletion writes, or answers, that it should not be done on a request
    /// thread.
    pub fn is_heavy_delete(&self, request: &DeleteRangeRequest) -> bool {
        let range = KeyRange::new(&request.key, &request.range_end);
        let index = read(&self.index);
        // What it shows is measured at one revision.
        if request.prev_kv && Looks::now(self, &index, range).are_many() {
            return true;
        }
        let keys = index.count_live(range);
        drop(index);
        keys > INLINE_SORT_KEYS_MAX as u64 && self.rough_cost_bytes(keys).is_none()
    }

    /// The same for what the deletions of a transaction write.
    pub fn is_heavy_write_txn(&self, request: &TxnRequest) -> bool {
        let is_heavy = |ops: &[RequestOp]| {
            let keys = self.live_keys(&Deletions::of(ops).ranges);
            keys > INLINE_SORT_KEYS_MAX as u64 && self.rough_cost_bytes(keys).is_none()
        };
        is_heavy(&request.success) || is_heavy(&request.failure)
    }

    /// Whether what a deletion would answer now is too large. It is applied all the same, so it is better not proposed.
    pub fn delete_answer_is_too_large(&self, request: &DeleteRangeRequest) -> bool {
        let bytes_max = TXN_ANSWER_BYTES_MAX as u64;
        // Every live pair is part of the live bytes.
        if !request.prev_kv || self.segments.live_bytes() <= bytes_max {
            return false;
        }
        let range = KeyRange::new(&request.key, &request.range_end);
        let (mut bytes, mut after) = (0_u64, None::<Box<[u8]>>);
        loop {
            let mut add = |_: &[u8], version: &Version| {
                bytes = bytes.saturating_add(u64::from(version.loc.len));
                if bytes > bytes_max { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            };
            let index = read(&self.index);
            let scan = index.scan(range, NEWEST, after.as_deref(), READ_STRIDE_KEYS, &mut add);
            drop(index);
            match scan {
                Scan::More(last) => after = Some(last),
                Scan::Done => return false,
                Scan::Stopped => return true,
            }
            (self.options.pause)();
        }
    }

    /// The delete headroom of this disk, as of the last [`Store::look_at_disk`].
    pub fn headroom_bytes(&self) -> u64 {
        self.headroom_bytes.load(Ordering::Relaxed)
    }

    /// The same as of now; `None` when the disk does not say how much is free: then a write finds out.
    fn headroom_now(&self) -> Option<u64> {
        Some(self.headroom_of(self.disk.free_bytes(&self.dir).ok()?))
    }

    /// The same for so many free bytes.
    pub(crate) fn headroom_of(&self, free: u64) -> u64 {
        // Once the reserved segment is in use, another one is taken from what is free.
        let there = free.saturating_add(self.segments.spare_bytes());
        there.saturating_sub(self.disk_floor.load(Ordering::Relaxed))
    }

    /// As [`Store::reserve_delete`] for a member alone.
    pub fn delete_check(self: &Arc<Self>, cost: u64) -> Result<Reservation, Error> {
        self.reserve_delete(cost, Share::default())
    }

    /// Reserves `cost` bytes for deletions. Refused when the disk has less beyond what the Raft log, a checkpoint and a rewrite need:
    /// then earlier deletions must be compacted first, and their space must have come back. Deletions may fill the segment that is
    /// reserved as the next one, so that there is a way to begin. The bytes stay reserved until the answer is dropped. A refused
    /// reservation has kept nobody else from one.
    pub fn reserve_delete(self: &Arc<Self>, cost: u64, share: Share) -> Result<Reservation, Error> {
        self.reserve_of(cost, share, || self.headroom_now().unwrap_or(u64::MAX))
    }

    /// As [`Store::reserve_delete`], by the headroom that the last [`Store::look_at_disk`] found: without a call of the file system.
    pub fn reserve_known(self: &Arc<Self>, cost: u64, share: Share) -> Result<Reservation, Error> {
        self.reserve_of(cost, share, || {
            let released = self.released_bytes.load(Ordering::Acquire);
            self.headroom_bytes().saturating_sub(released)
        })
    }

    /// The same of the `headroom` of this disk.
    fn reserve_of(self: &Arc<Self>, cost: u64, share: Share, headroom: impl Fn() -> u64) -> Result<Reservation, Error> {
        if cost == 0 {
            return Ok(Reservation::default());
        }
        let own = || headroom() / share.members.max(1);
        let others = share.others_bytes / share.members.max(1);
        if self.is_small(cost)
            && let Some((reservation, _)) = self.try_reserve(cost, others.min(DELETES_BYTES_FREE))
        {
            return Ok(reservation);
        }
        let most = others.min(own());
        let Some((reservation, reserved)) = self.try_reserve(cost, most) else { return Err(Error::NoSpace) };
        // What was applied since then is no longer reserved, and gone from the disk.
        if reserved <= own() { Ok(reservation) } else { Err(Error::NoSpace) }
    }

    /// Whether [`Store::reserve_known`] would grant it if nothing were reserved, and nothing had been lately.
    pub fn has_headroom(&self, cost: u64, share: Share) -> bool {
        let members = share.members.max(1);
        cost <= share.others_bytes / members && (self.is_small(cost) || cost <= self.headroom_bytes() / members)
    }

    /// Whether it is free while there are few like it.
    fn is_small(&self, cost: u64) -> bool {
        cost <= DELETE_BYTES_FREE && !self.disk_is_low()
    }

    /// Reserves so many bytes, unless more than `most` were reserved then; answers how many are.
    fn try_reserve(self: &Arc<Self>, cost: u64, most: u64) -> Option<(Reservation, u64)> {
        let more = |reserved: u64| reserved.checked_add(cost).filter(|reserved| *reserved <= most);
        // A thread that no longer sees a reservation sees that it was released.
        let before = self.reserved_bytes.fetch_update(Ordering::AcqRel, Ordering::Acquire, more).ok()?;
        Some((Reservation { held: Some((Arc::clone(self), cost)) }, before.saturating_add(cost)))
    }
}

/// What a member may reserve of the headroom in a cluster. Each may reserve an equal part of every disk: together they reserve no
/// more than there is.
#[derive(Clone, Copy, Debug)]
pub struct Share {
    /// Members that reserve.
    pub members: u64,
    /// The headroom of the fullest of the other members' disks.
    pub others_bytes: u64,
}

impl Default for Share {
    /// Of a member alone.
    fn default() -> Share {
        Share { members: 1, others_bytes: u64::MAX }
    }
}

/// Disk space reserved for a deletion under way. Dropping it releases the space.
#[derive(Default)]
pub struct Reservation {
    held: Option<(Arc<Store>, u64)>,
}

impl Reservation {
    /// Bytes that are reserved.
    pub fn bytes(&self) -> u64 {
        self.held.as_ref().map_or(0, |(_, bytes)| *bytes)
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        if let Some((store, bytes)) = self.held.take() {
            store.released_bytes.fetch_add(bytes, Ordering::AcqRel);
            store.reserved_bytes.fetch_sub(bytes, Ordering::AcqRel);
        }
    }
}

impl std::fmt::Debug for Reservation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Reservation({} bytes)", self.bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn merged_ranges_hold_each_key_once() {
        let keys: [&[u8]; 5] = [b"a", b"b", b"b\0", b"c", b"d"];
        let mut ranges = Vec::new();
        for key in keys {
            ranges.extend([KeyRange::One(key), KeyRange::From(key)]);
            ranges.extend(keys.map(|end| KeyRange::Span(key, end)));
        }
        for first in &ranges {
            for second in &ranges {
                for third in &ranges {
                    let given = [*first, *second, *third];
                    let merged = merged(given.to_vec());
                    for key in keys.into_iter().chain([&b"bb"[..], b"e"]) {
                        let holds = merged.iter().filter(|range| range.contains(key)).count();
                        let is_given = given.iter().any(|range| range.contains(key));
                        assert_eq!(holds, usize::from(is_given), "{key:?} of {given:?} in {merged:?}");
                    }
                }
            }
        }
    }
}

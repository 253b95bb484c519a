//! Applying deletions.

use super::answer::header;
use super::applier::Applier;
use crate::log::to_message;
use crate::read::View;
use crate::types::Version;
use api::KeyRange;
use api::etcdserverpb::{DeleteRangeRequest, DeleteRangeResponse};
use bytes::{Bytes, BytesMut};
use std::ops::ControlFlow;

/// Keys that are found are kept in pieces of this size.
const NAMES_BYTES: usize = 64 * 1024;

impl Applier {
    /// Deletes a range of keys, of its own or in a transaction.
    pub(crate) fn delete_range(&mut self, request: &DeleteRangeRequest) -> DeleteRangeResponse {
        self.counts.delete();
        if request.prev_kv {
            self.counts.range();
        }
        let found = self.find(KeyRange::new(&request.key, &request.range_end));
        let mut prev_kvs = Vec::new();
        let bytes = || found.iter().map(|(_, live)| live.loc.len as usize).sum();
        if request.prev_kv && self.is_awaited && self.fits_answer(bytes()) {
            prev_kvs = found.iter().map(|(_, live)| self.stored(live.loc, to_message)).collect();
        }
        let deleted = found.len() as i64;
        for (key, live) in found {
            self.write_tombstone(key, &live);
        }
        DeleteRangeResponse { header: header(self.current()), deleted, prev_kvs }
    }

    /// The live keys of a range, in order.
    fn find(&self, range: KeyRange<'_>) -> Vec<(Bytes, Version)> {
        // Few allocations for many keys, and none that has to grow: of millions of keys that would be a second copy.
        let mut names = BytesMut::new();
        let mut found = Vec::new();
        self.staging().scan(range, self.current(), &mut |key, version| {
            if names.capacity() < key.len() {
                // A single key, which is what most deletions find, takes what it needs.
                let next = if found.is_empty() { key.len() } else { NAMES_BYTES.max(key.len()) };
                names = BytesMut::with_capacity(next);
            }
            names.extend_from_slice(key);
            found.push((names.split().freeze(), *version));
            ControlFlow::Continue(())
        });
        found
    }

    /// Deletes one key if it exists.
    pub(crate) fn delete(&mut self, key: Bytes) {
        self.counts.delete();
        if let Some(live) = self.staging().latest(&key).filter(|latest| !latest.is_tombstone()) {
            self.write_tombstone(key, &live);
        }
    }

    fn write_tombstone(&mut self, key: Bytes, live: &Version) {
        let rev = self.next_revision();
        let loc = self.log.append_tombstone(rev, &key);
        self.store.leases.attach(&key, 0);
        self.stage(key, Version { rev, create: 0, version: 0, loc }, Some(live));
    }
}

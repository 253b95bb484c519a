//! Applying deletions.

use super::answer::header;
use super::applier::Applier;
use crate::log::to_message;
use crate::read::View;
use crate::types::Version;
use api::KeyRange;
use api::etcdserverpb::{DeleteRangeRequest, DeleteRangeResponse};
use bytes::Bytes;
use std::ops::ControlFlow;

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
        if request.prev_kv && self.fits_answer(bytes()) {
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
        let mut names = Vec::new();
        let mut found = Vec::new();
        self.staging().scan(range, self.current(), &mut |key, version| {
            names.extend_from_slice(key);
            found.push((names.len(), *version));
            ControlFlow::Continue(())
        });
        // One allocation for all keys.
        let names = Bytes::from(names);
        let mut start = 0;
        let split =
            found.into_iter().map(|(end, version)| (names.slice(std::mem::replace(&mut start, end)..end), version));
        split.collect()
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

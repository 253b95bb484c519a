//! Applying a put.

use super::answer::header;
use super::applier::Applier;
use super::publish::Change;
use crate::log::{KvParts, to_message};
use crate::mistake::Mistake;
use crate::types::{Revision, Version};
use api::Error;
use api::etcdserverpb::{PutRequest, PutResponse};
use bytes::Bytes;

impl Applier {
    /// A put of its own.
    pub(crate) fn put(&mut self, request: PutRequest) -> Result<PutResponse, Error> {
        if request.key.is_empty() {
            return Err(Error::EmptyKey);
        }
        if request.lease != 0 && !self.store.leases.exists(request.lease) {
            return Err(Error::LeaseNotFound);
        }
        let previous = self.staging().latest_on(self.path, &request.key);
        let exists = previous.is_some_and(|previous| !previous.is_tombstone());
        if (request.ignore_value || request.ignore_lease) && !exists {
            return Err(Error::KeyNotFound);
        }
        Ok(self.write_put(request, previous))
    }

    /// Writes a put that was found to be possible. `previous` is the newest version of the key.
    pub(crate) fn write_put(&mut self, request: PutRequest, previous: Option<Version>) -> PutResponse {
        let live = previous.filter(|previous| !previous.is_tombstone());
        let reads = request.prev_kv || request.ignore_value || request.ignore_lease;
        let shows = request.prev_kv && self.is_awaited;
        let needs = shows || request.ignore_value || request.ignore_lease;
        let old = live.filter(|_| needs).map(|live| self.stored(live.loc, to_message));

        let old_value = || old.as_ref().map(|old| old.value.clone()).unwrap_or_default();
        let value = if request.ignore_value { old_value() } else { request.value };
        let lease = if request.ignore_lease { old.as_ref().map_or(0, |old| old.lease) } else { request.lease };

        self.counts.put(&request.key, &value);
        if reads {
            self.counts.range();
        }
        let rev = self.next_revision();
        let create = live.map_or(rev.main, |live| live.create);
        let version = live.map_or(0, |live| live.version) + 1;
        let parts = KvParts { key: &request.key, create, version, value: &value, lease };
        let loc = self.log.append_put(rev, parts);
        let detaches = request.ignore_lease && Mistake::IgnoredLeaseDetaches.is_planted();
        self.store.leases.attach(&request.key, if detaches { request.lease } else { lease });
        self.stage(request.key, Version { rev, create, version, loc }, previous.as_ref());
        let shown = shows && live.is_some_and(|live| self.fits_answer(live.loc.len as usize));
        PutResponse { header: header(rev.main), prev_kv: old.filter(|_| shown) }
    }

    /// The revision of the next change of the present entry.
    pub(crate) fn next_revision(&mut self) -> Revision {
        let rev = Revision { main: self.revision + 1, sub: self.sub };
        self.sub += 1;
        rev
    }

    /// Notes a version that was appended to the log.
    pub(crate) fn stage(&mut self, key: Bytes, version: Version, previous: Option<&Version>) {
        let before = self.overlay.insert(key.clone(), version, previous);
        // For watchers: none where a put begins a key.
        let prev = before.filter(|_| version.version != 1);
        self.paths.extend(self.path.map(|path| (self.changes.len(), path)));
        self.changes.push(Change { key, version, prev });
    }
}

//! The sending side: the snapshot of one entry, which stays readable until the export is dropped.

use super::{ExportError, lease_table};
use crate::apply::Applier;
use crate::log::{Listing, SegmentEntry};
use crate::state::LeaseCapture;
use crate::state::auth::AuthState;
use crate::store::Store;
use crate::upkeep::checkpoint::{Checkpoint, LeaseTable, encode_checkpoint};
use crate::upkeep::saved;
use api::limits::{SNAPSHOT_LISTED_LEASES, SNAPSHOT_READ_BYTES_MAX};
use api::raftpb::ConfState;
use bytes::Bytes;
use std::sync::{Arc, OnceLock};

/// A snapshot that is being sent. While it lives, no file that it lists is removed, whatever is compacted and rewritten meanwhile.
pub struct Export {
    store: Arc<Store>,
    content: Checkpoint,
    leases: LeaseCapture,
    auth: Arc<AuthState>,
    listing: Listing,
    encoded: OnceLock<Bytes>,
}

impl Applier {
    /// Captures the state as it is now, in microseconds. Only while [`Applier::can_capture`].
    pub fn export(&mut self) -> Export {
        assert!(self.can_capture(), "an export waits for what Raft makes of a configuration change");
        Export {
            content: self.content(),
            leases: self.store.leases.capture(),
            auth: self.store.auth.capture(),
            listing: self.log.listing(),
            store: Arc::clone(&self.store),
            encoded: OnceLock::new(),
        }
    }
}

impl Export {
    /// Index of the last entry it covers.
    pub fn index(&self) -> u64 {
        self.content.applied_index
    }

    /// Term of that entry.
    pub fn term(&self) -> u64 {
        self.content.applied_term
    }

    /// Raft's membership after it.
    pub fn conf_state(&self) -> &ConfState {
        &self.content.conf_state
    }

    /// Bytes of its segments: about what is to be sent.
    pub fn segment_bytes(&self) -> u64 {
        self.listing.entries().iter().map(|entry| entry.length).sum()
    }

    /// The leases are sent beside the checkpoint. With few of them an earlier version can take it.
    fn has_lease_table(&self) -> bool {
        self.leases.count() > SNAPSHOT_LISTED_LEASES
    }

    /// The checkpoint, which lists the segments with a checksum of each. The first call reads all of them: for a thread that may
    /// take its time.
    pub fn checkpoint(&self) -> Result<Bytes, ExportError> {
        if let Some(encoded) = self.encoded.get() {
            return Ok(encoded.clone());
        }
        let mut content = self.content.clone();
        if self.has_lease_table() {
            content.lease_table = Some(lease_table::describe(&self.leases, self.store.options.rest));
        } else {
            content.leases = self.leases.iter().map(saved).collect();
        }
        content.auth = self.auth.save();
        for (entry, segment) in self.listing.entries().iter().zip(self.listing.segments()) {
            // Key files are not sent: the receiver checks every record, and makes its own.
            let mut entry = SegmentEntry { keys_crc: None, ..*entry };
            entry.body_crc = Some(segment.body_crc(entry.length, self.store.options.rest)?);
            content.segments.push(entry);
        }
        if let Some(contradiction) = content.contradiction() {
            panic!("this member's own state cannot be sent: {contradiction}");
        }
        Ok(self.encoded.get_or_init(|| encode_checkpoint(&content).into()).clone())
    }

    /// Up to `len` bytes of a segment, fewer at its end and never more than [`SNAPSHOT_READ_BYTES_MAX`].
    pub fn read(&self, segment: u32, offset: u64, len: usize) -> Result<Bytes, ExportError> {
        if segment == lease_table::NUMBER && self.has_lease_table() {
            let leases = self.leases.count() as u64;
            let length = lease_table::length(&LeaseTable { leases, crc: 0 });
            if offset >= length {
                return Err(ExportError::Behind { segment, length, offset });
            }
            return Ok(lease_table::read(&self.leases, offset, len.min(SNAPSHOT_READ_BYTES_MAX)).into());
        }
        let found = self.listing.entries().iter().zip(self.listing.segments()).find(|(entry, _)| entry.id == segment);
        let Some((entry, file)) = found else { return Err(ExportError::NoSegment(segment)) };
        if offset >= entry.length {
            return Err(ExportError::Behind { segment, length: entry.length, offset });
        }
        let len = (entry.length - offset).min(len.min(SNAPSHOT_READ_BYTES_MAX) as u64);
        Ok(file.read_at(offset, len as usize)?.into())
    }
}

impl Drop for Export {
    fn drop(&mut self) {
        // Segments that a rewrite replaced meanwhile may go once the listing is dropped.
        self.store.maintenance.sweep_soon();
    }
}

impl std::fmt::Debug for Export {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Export({}, {} bytes)", self.index(), self.segment_bytes())
    }
}

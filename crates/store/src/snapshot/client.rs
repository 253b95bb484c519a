//! A client snapshot: captured between two strides, written out by a slow thread as the file that etcd's tools restore from.

use super::image::{self, Bucket, Compactions, Image, RevisionKey};
use crate::apply::Applier;
use crate::index::Scan;
use crate::log::{Kind, RECORD_HEADER_BYTES, SEGMENT_HEADER_BYTES, Segment, read};
use crate::read::Unread;
use crate::state::auth::AuthState;
use crate::state::{LeaseCapture, Members};
use crate::store::Store;
use crate::types::{Revision, Version};
use crate::upkeep::{OwnedPin, saved};
use api::etcdserverpb::{AlarmMember, Member};
use api::limits::READ_STRIDE_KEYS;
use api::{KeyRange, Message, raftpb};
use std::ops::ControlFlow;
use std::sync::Arc;

/// The state after one entry, to be written out.
#[must_use = "a captured snapshot is to be written out"]
pub struct SnapshotJob {
    store: Arc<Store>,
    index: u64,
    term: u64,
    conf_state: raftpb::ConfState,
    revision: i64,
    compact_revision: i64,
    leases: LeaseCapture,
    alarms: Vec<AlarmMember>,
    auth: Arc<AuthState>,
    members: Members,
    segments: Vec<Arc<Segment>>,
    generation: u64,
    /// Until the job knows which old records count.
    pin: OwnedPin,
}

impl Applier {
    /// Captures the state as it is now, in microseconds. Only while [`Applier::can_capture`].
    pub fn snapshot(&mut self) -> SnapshotJob {
        assert!(self.can_capture(), "a snapshot waits for what Raft makes of a configuration change");
        let store = Arc::clone(&self.store);
        SnapshotJob {
            index: self.index,
            term: self.term,
            conf_state: self.conf_state.clone(),
            revision: self.revision,
            compact_revision: self.compact_revision,
            leases: store.leases.capture(),
            alarms: store.alarms(),
            auth: store.auth.capture(),
            members: store.members(),
            pin: OwnedPin::new(&store, self.compact_revision),
            segments: store.segments.order(),
            generation: store.generation(),
            store,
        }
    }
}

impl SnapshotJob {
    /// The revision of the snapshot.
    pub fn revision(&self) -> i64 {
        self.revision
    }

    /// What Raft is told of it, by a leader that sends the file to a member of etcd.
    pub fn raft_snapshot(&self) -> raftpb::Snapshot {
        let metadata = raftpb::SnapshotMetadata {
            conf_state: Some(self.conf_state.clone()),
            index: Some(self.index),
            term: Some(self.term),
        };
        let members: Vec<Member> = self.members.members.values().cloned().map(Member::from).collect();
        let removed: Vec<u64> = self.members.removed.iter().copied().collect();
        let data = image::membership_v2(&members, &removed, &self.members.cluster_version);
        raftpb::Snapshot { metadata: Some(metadata), data: Some(data.into()) }
    }

    /// Plans the file. Reads the whole index and every record's header: for the slow pool. The image holds the segments it
    /// needs, and nothing else: compaction and rewriting continue while it is sent, however slowly. `None` when the whole state was
    /// replaced by another member's meanwhile: then another one is to be captured.
    pub fn image(self) -> Option<Image> {
        self.image_while(&|| true).unwrap_or_default()
    }

    /// The same, given up once it is not `wanted`.
    pub fn image_while(self, wanted: &dyn Fn() -> bool) -> Result<Option<Image>, Unread> {
        let records = Records::new(&self, wanted).ok_or(Unread::Unwanted)?;
        if self.store.generation() != self.generation {
            return Ok(None);
        }
        let Members { members, removed, cluster_version, downgrade } = self.members;
        let downgrade = downgrade
            .enabled
            .then_some(image::Downgrade { target_version: &downgrade.target_version, enabled: downgrade.enabled });
        let members: Vec<Member> = members.into_values().map(Member::from).collect();
        let removed: Vec<u64> = removed.into_iter().collect();
        let compacted = Some(self.compact_revision).filter(|&revision| revision >= 0);
        let compactions = Compactions { scheduled: compacted, finished: compacted };
        drop(self.pin);
        let buckets: Vec<Box<dyn Bucket>> = vec![
            Box::new(records),
            Box::new(image::meta(
                self.index,
                self.term,
                &self.conf_state,
                image::storage_version(&cluster_version),
                compactions,
            )),
            Box::new(image::leases(self.leases.iter().map(saved))),
            Box::new(image::alarms(&self.alarms)),
            Box::new(image::cluster(&cluster_version, downgrade)),
            Box::new(image::members(&members)),
            Box::new(image::members_removed(&removed)),
            Box::new(image::auth(self.auth.enabled, self.auth.revision)),
            Box::new(image::auth_users(self.auth.users.iter().map(|(name, user)| encoded(name, &**user)).collect())),
            Box::new(image::auth_roles(self.auth.roles.iter().map(|(name, role)| encoded(name, &**role)).collect())),
        ];
        Image::new_while(buckets, wanted).map(Some).ok_or(Unread::Unwanted)
    }

    /// Revisions of the records from before the compact revision that it has left; `None` once they are not `wanted` any more.
    fn kept(&self, wanted: &dyn Fn() -> bool) -> Option<Vec<Revision>> {
        let mut kept = Vec::new();
        // Revisions begin at 2.
        if self.compact_revision <= 2 {
            return Some(kept);
        }
        let mut after: Option<Box<[u8]>> = None;
        loop {
            if !wanted() {
                return None;
            }
            let mut keep = |_: &[u8], version: &Version| {
                if version.rev.main < self.compact_revision {
                    kept.push(version.rev);
                }
                ControlFlow::Continue(())
            };
            let index = read(&self.store.index);
            let everything = KeyRange::From(&[]);
            let walked = index.scan(everything, self.compact_revision, after.as_deref(), READ_STRIDE_KEYS, &mut keep);
            drop(index);
            let Scan::More(last) = walked else { break };
            after = Some(last);
        }
        kept.sort_unstable();
        Some(kept)
    }
}

fn encoded(name: &str, message: &impl Message) -> (Vec<u8>, Vec<u8>) {
    (name.as_bytes().to_vec(), message.encode_to_vec())
}

/// Bucket `key`: all records from the compact revision on, and of those before it what the compaction has left.
struct Records {
    segments: Vec<Arc<Segment>>,
    revision: i64,
    compact_revision: i64,
    kept: Vec<Revision>,
    next_kept: usize,
    /// Segment and offset of the next record.
    at: (usize, usize),
    key: RevisionKey,
}

impl Records {
    fn new(job: &SnapshotJob, wanted: &dyn Fn() -> bool) -> Option<Records> {
        Some(Records {
            segments: job.segments.clone(),
            revision: job.revision,
            compact_revision: job.compact_revision,
            kept: job.kept(wanted)?,
            next_kept: 0,
            at: (0, SEGMENT_HEADER_BYTES),
            key: RevisionKey::new(Revision::default(), false),
        })
    }

    fn counts(&mut self, rev: Revision) -> bool {
        if rev.main >= self.compact_revision {
            return true;
        }
        while self.kept.get(self.next_kept).is_some_and(|kept| *kept < rev) {
            self.next_kept += 1;
        }
        self.kept.get(self.next_kept) == Some(&rev)
    }
}

impl Bucket for Records {
    fn name(&self) -> &str {
        RevisionKey::BUCKET
    }

    fn rewind(&mut self) {
        self.at = (0, SEGMENT_HEADER_BYTES);
        self.next_kept = 0;
    }

    fn next(&mut self) -> Option<(&[u8], &[u8])> {
        loop {
            let (number, offset) = self.at;
            let segment = self.segments.get(number)?;
            // The last segment may have grown since: what is new is after the revision.
            if offset as u64 >= segment.len() {
                self.at = (number + 1, SEGMENT_HEADER_BYTES);
                continue;
            }
            let (record, end) = segment.record_at(offset);
            if record.rev.main > self.revision {
                return None;
            }
            self.at.1 = end;
            if self.counts(record.rev) {
                self.key = RevisionKey::new(record.rev, record.kind == Kind::Tombstone);
                let stored = self.segments[number].bytes(offset + RECORD_HEADER_BYTES, record.len as usize);
                return Some((&self.key, stored));
            }
        }
    }
}

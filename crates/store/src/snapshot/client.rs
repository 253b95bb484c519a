//! A client snapshot: captured between two strides, written out by a slow thread as the file that etcd's tools restore from.

use super::image::{self, Bucket, Compactions, Image, RevisionKey};
use super::increment::{self, Digest, Head, Since};
use crate::apply::Applier;
use crate::index::Scan;
use crate::log::{Kind, RECORD_HEADER_BYTES, RecordHeader, SEGMENT_HEADER_BYTES, Segment, read};
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
    pin: Option<OwnedPin>,
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
            pin: Some(OwnedPin::new(&store, self.compact_revision)),
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
    pub fn image_while(mut self, wanted: &dyn Fn() -> bool) -> Result<Option<Image>, Unread> {
        let Some(records) = self.records(wanted)? else { return Ok(None) };
        self.planned(vec![Box::new(records)], wanted).map(Some)
    }

    /// Refuses a state that this one cannot follow.
    ///
    /// # Errors
    /// Why, in words for people.
    pub fn check_since(&self, since: &Since) -> Result<(), String> {
        if !since.is_sound() {
            return Err("there is no such state: the request for an increment makes no sense".into());
        }
        if self.revision < since.revision {
            return Err(format!(
                "this member is at revision {}, before revision {} of the file: it lags behind, or has another history",
                self.revision, since.revision
            ));
        }
        if self.compact_revision < since.compact_revision {
            return Err(format!(
                "the history is compacted to revision {} here, and to {} in the file: this member lags behind, or has another history",
                self.compact_revision, since.compact_revision
            ));
        }
        Ok(())
    }

    /// What this state has more than `since`, which [`SnapshotJob::check_since`] has to permit: an increment. Reads the headers of all
    /// records, as for a whole image; the values only of those after `since`.
    ///
    /// # Errors
    /// Once it is not `wanted`.
    pub fn increment_while(
        mut self,
        since: &Since,
        cluster_id: u64,
        wanted: &dyn Fn() -> bool,
    ) -> Result<Option<Image>, Unread> {
        let Some(mut records) = self.records(wanted)? else { return Ok(None) };
        let (mut digest, mut kept) = (Digest::new(since.start), Vec::new());
        records.skip_to(since.revision, &mut digest, &mut kept, wanted).ok_or(Unread::Unwanted)?;
        let (hash, own_hash) = digest.end();
        let head = Head {
            cluster_id,
            since: *since,
            revision: self.revision,
            compact_revision: self.compact_revision,
            index: self.index,
            term: self.term,
            hash,
            own_hash,
        };
        let mut buckets: Vec<Box<dyn Bucket>> = vec![Box::new(records)];
        if head.lists_kept() {
            buckets.push(Box::new(increment::table(&kept)));
        }
        drop(kept);
        Ok(Some(self.planned(buckets, wanted)?.led_by(&head.encode())))
    }

    /// The records that count, after which compaction may go on; `None` if the whole state was replaced meanwhile.
    fn records(&mut self, wanted: &dyn Fn() -> bool) -> Result<Option<Records>, Unread> {
        let records = Records::new(self, wanted).ok_or(Unread::Unwanted)?;
        if self.store.generation() != self.generation {
            return Ok(None);
        }
        self.pin = None;
        Ok(Some(records))
    }

    /// The file of these buckets, and of everything else beside the keys.
    fn planned(self, mut buckets: Vec<Box<dyn Bucket>>, wanted: &dyn Fn() -> bool) -> Result<Image, Unread> {
        let Members { members, removed, cluster_version, downgrade } = self.members;
        let downgrade = downgrade
            .enabled
            .then_some(image::Downgrade { target_version: &downgrade.target_version, enabled: downgrade.enabled });
        let members: Vec<Member> = members.into_values().map(Member::from).collect();
        let removed: Vec<u64> = removed.into_iter().collect();
        let compacted = Some(self.compact_revision).filter(|&revision| revision >= 0);
        let compactions = Compactions { scheduled: compacted, finished: compacted };
        let tables = [
            image::meta(self.index, self.term, &self.conf_state, image::storage_version(&cluster_version), compactions),
            image::leases(self.leases.iter().map(saved)),
            image::alarms(&self.alarms),
            image::cluster(&cluster_version, downgrade),
            image::members(&members),
            image::members_removed(&removed),
            image::auth(self.auth.enabled, self.auth.revision),
            image::auth_users(self.auth.users.iter().map(|(name, user)| encoded(name, &**user)).collect()),
            image::auth_roles(self.auth.roles.iter().map(|(name, role)| encoded(name, &**role)).collect()),
        ];
        buckets.extend(tables.map(|table| Box::new(table) as Box<dyn Bucket>));
        Image::new_while(buckets, wanted).ok_or(Unread::Unwanted)
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
    /// Segment and offset of the first record that is wanted, and of the next one.
    begin: (usize, usize),
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
            begin: (0, SEGMENT_HEADER_BYTES),
            at: (0, SEGMENT_HEADER_BYTES),
            key: RevisionKey::new(Revision::default(), false),
        })
    }

    /// The next record that is not later than `revision`, and its segment and offset.
    fn step(&mut self, revision: i64) -> Option<(RecordHeader, (usize, usize))> {
        loop {
            let (number, offset) = self.at;
            let segment = self.segments.get(number)?;
            // The last segment may have grown since: what is new is after the snapshot's revision.
            if offset as u64 >= segment.len() {
                self.at = (number + 1, SEGMENT_HEADER_BYTES);
                continue;
            }
            let (record, end) = segment.record_at(offset);
            if record.rev.main > revision {
                return None;
            }
            self.at.1 = end;
            return Some((record, (number, offset)));
        }
    }

    /// Leaves out what is not later than `revision`: tells `digest` of the records among it that count, and moves the revisions of those from
    /// before the compact revision to `kept`. `None` once it is not `wanted` any more.
    fn skip_to(
        &mut self,
        revision: i64,
        digest: &mut Digest,
        kept: &mut Vec<Revision>,
        wanted: &dyn Fn() -> bool,
    ) -> Option<()> {
        let mut steps = 0_usize;
        while let Some((record, (number, offset))) = self.step(revision) {
            steps = steps.wrapping_add(1);
            if steps.is_multiple_of(READ_STRIDE_KEYS) && !wanted() {
                return None;
            }
            if self.counts(record.rev) {
                digest.add_header(record.rev, self.segments[number].bytes(offset, RECORD_HEADER_BYTES));
            }
        }
        self.begin = self.at;
        let later = self.kept.split_off(self.kept.partition_point(|rev| rev.main <= revision));
        *kept = std::mem::replace(&mut self.kept, later);
        self.rewind();
        Some(())
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
        self.at = self.begin;
        self.next_kept = 0;
    }

    fn next(&mut self) -> Option<(&[u8], &[u8])> {
        loop {
            let (record, (number, offset)) = self.step(self.revision)?;
            if self.counts(record.rev) {
                self.key = RevisionKey::new(record.rev, record.kind == Kind::Tombstone);
                let stored = self.segments[number].bytes(offset + RECORD_HEADER_BYTES, record.len as usize);
                return Some((&self.key, stored));
            }
        }
    }
}

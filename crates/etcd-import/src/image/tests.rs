//! Whole images and damaged ones.

#![allow(clippy::unwrap_used)]

use super::*;
use api::Message;
use api::etcdserverpb::{AlarmMember, AlarmType, Member};
use api::leasepb::Lease;
use api::mvccpb::KeyValue;
use api::raftpb::ConfState;
use disk::{Disk, OsDisk};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use store::image::{self, Bucket, Compactions, RevisionKey, Table};
use store::types::Revision;
use store::{Image, Store};

/// A directory that goes away with the test.
struct Scratch(PathBuf);

impl Scratch {
    fn new() -> Scratch {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let dir = std::env::temp_dir().join(format!("cairn-image-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        Scratch(dir)
    }

    /// What becomes of an image.
    fn take(&self, bytes: &[u8]) -> Result<Arc<Store>, Error> {
        let (db, dir) = (self.0.join("db"), self.0.join("store"));
        let _ = std::fs::remove_dir_all(&dir);
        std::fs::write(&db, bytes).unwrap();
        let disk: Arc<dyn Disk> = Arc::new(OsDisk { unsafe_no_sync: true });
        store_of_image(founding(disk.clone(), &dir), &db, &sent())?;
        Ok(store::open(disk, &dir, store::Options::default()).unwrap().store)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn founding(disk: Arc<dyn Disk>, dir: &Path) -> Founding {
    Founding::begin(disk, dir, store::log::Options::default()).unwrap()
}

fn conf_state() -> ConfState {
    ConfState { voters: vec![1, 2], auto_leave: Some(false), ..ConfState::default() }
}

fn sent() -> SnapshotMetadata {
    SnapshotMetadata { conf_state: Some(conf_state()), index: Some(700), term: Some(3) }
}

/// What the buckets of an image say.
struct Parts {
    storage_version: Option<&'static str>,
    cluster_version: &'static str,
    leases: i64,
    alarms: u64,
    members: u64,
    removed: u64,
    users: usize,
}

const WHOLE: Parts = Parts {
    storage_version: Some("3.7.0"),
    cluster_version: "3.7.0",
    leases: 20,
    alarms: 2,
    members: 3,
    removed: 2,
    users: 5,
};

/// A put of a key, or its deletion.
fn change(main: i64, key: &str, value: Option<Vec<u8>>) -> (Vec<u8>, Vec<u8>) {
    let is_tombstone = value.is_none();
    let kv = KeyValue {
        key: key.as_bytes().to_vec().into(),
        create_revision: if is_tombstone { 0 } else { main },
        mod_revision: if is_tombstone { 0 } else { main },
        version: i64::from(!is_tombstone),
        value: value.unwrap_or_default().into(),
        lease: 0,
    };
    (RevisionKey::new(Revision { main, sub: 0 }, is_tombstone).to_vec(), kv.encode_to_vec())
}

impl Parts {
    fn bytes(&self) -> Vec<u8> {
        let mut changes: Vec<_> =
            (2..300).map(|main| change(main, &format!("key{main}"), Some(vec![b'v'; 50]))).collect();
        changes.push(change(300, "key77", None));
        changes.push(change(301, "large", Some(vec![b'l'; 20_000])));
        let member = |id| Member {
            id,
            name: format!("m{id}"),
            peer_ur_ls: vec![format!("http://127.0.0.1:{id}")],
            ..Member::default()
        };
        let members: Vec<Member> = (1..=self.members).map(member).collect();
        let removed: Vec<u64> = (1000..1000 + self.removed).collect();
        let alarm = |id| AlarmMember { member_id: id, alarm: AlarmType::Nospace as i32 };
        let alarms: Vec<AlarmMember> = (1..=self.alarms).map(alarm).collect();
        let leases = (1..=self.leases).map(|id| Lease { id, ttl: 60, remaining_ttl: 0 });
        let user = |number| {
            let name = format!("user{number}").into_bytes();
            let user =
                api::authpb::User { name: name.clone().into(), password: vec![7; 60].into(), ..Default::default() };
            (name, user.encode_to_vec())
        };
        let compactions = Compactions { scheduled: Some(9), finished: Some(9) };
        let buckets: Vec<Box<dyn Bucket>> = vec![
            Box::new(Table::new("key", changes)),
            Box::new(image::meta(700, 3, &conf_state(), self.storage_version, compactions)),
            Box::new(image::leases(leases)),
            Box::new(image::alarms(&alarms)),
            Box::new(image::cluster(self.cluster_version, None)),
            Box::new(image::members(&members)),
            Box::new(image::members_removed(&removed)),
            Box::new(image::auth(false, 4)),
            Box::new(image::auth_users((0..self.users).map(user).collect())),
            Box::new(image::auth_roles(Vec::new())),
        ];
        let mut image = Image::new(buckets);
        let mut bytes = Vec::new();
        while let Some(part) = image.next(1 << 16) {
            bytes.extend_from_slice(&part);
        }
        bytes
    }
}

fn why(result: Result<Arc<Store>, Error>) -> String {
    result.err().map_or("it was taken".into(), |error| error.to_string())
}

#[test]
fn an_image_becomes_a_store() {
    let scratch = Scratch::new();
    let store = scratch.take(&WHOLE.bytes()).unwrap();
    assert_eq!((store.revision(), store.compact_revision()), (301, 9));
    assert_eq!(store.leases().list().len(), 20);
    // A member that is asked after it has compacted further has the same hash as the image would have.
    let own = store.hash_kv(0).unwrap();
    assert_eq!(store.hash_kv_compacted(9), Some(own.hash));
    assert_ne!(store.hash_kv_compacted(290), Some(own.hash));
    assert_eq!((store.hash_kv_compacted(8), store.hash_kv_compacted(302)), (None, None));
}

#[test]
fn an_image_that_is_cut_off_is_refused() {
    let scratch = Scratch::new();
    let whole = WHOLE.bytes();
    let lengths = (0..whole.len()).step_by(1021).chain((0..whole.len()).step_by(4096)).chain([whole.len() - 1]);
    for length in lengths {
        assert!(scratch.take(&whole[..length]).is_err(), "{length} of {} bytes", whole.len());
    }
}

/// A byte that is another one in the history is found while the image is read, or by the hash; or it is none that anything depends on.
#[test]
fn no_flipped_byte_of_the_history_goes_unseen() {
    let scratch = Scratch::new();
    let whole = WHOLE.bytes();
    let contents = |store: &Store| {
        let range = api::etcdserverpb::RangeRequest { key: "\0".into(), range_end: "\0".into(), ..Default::default() };
        format!("{:?}", store.range(&range).map(|answer| answer.count))
    };
    let right = scratch.take(&whole).unwrap();
    let (hash, seen) = (right.hash_kv(0).unwrap(), contents(&right));
    drop(right);
    let (mut refused, mut by_hash, mut without_effect) = (0, 0, 0);
    for place in (0..whole.len()).step_by(61) {
        let mut bytes = whole.clone();
        bytes[place] ^= 0x10;
        match scratch.take(&bytes) {
            Err(_) => refused += 1,
            Ok(store) => {
                let found = store.hash_kv(0).unwrap();
                if (found.hash, found.hash_revision) == (hash.hash, hash.hash_revision) {
                    assert_eq!(contents(&store), seen, "byte {place}");
                    without_effect += 1;
                } else {
                    by_hash += 1;
                }
            }
        }
    }
    assert!(
        refused > 20 && by_hash > 200,
        "{refused} refused, {by_hash} found by the hash, {without_effect} without effect"
    );
}

#[test]
fn images_of_other_versions_are_refused() {
    let scratch = Scratch::new();
    for (storage_version, cluster_version, is_taken) in [
        (Some("3.7.0"), "3.7.0", true),
        (Some("3.6.0"), "3.6.0", true),
        // Just after the cluster has agreed.
        (None, "3.7.0", true),
        (None, "3.5.0", false),
        (None, "3.0.0", false),
        (None, "", false),
        (Some("3.5.0"), "3.5.0", false),
        (Some("3.8.0"), "3.7.0", false),
        (Some("4.0.0"), "3.7.0", false),
        (Some("new"), "3.7.0", false),
    ] {
        let found = scratch.take(&Parts { storage_version, cluster_version, ..WHOLE }.bytes());
        assert_eq!(found.is_ok(), is_taken, "{storage_version:?} {cluster_version:?}");
        assert!(is_taken || why(found).contains("another version of etcd than 3.6 and 3.7"));
    }
}

#[test]
fn an_image_of_another_entry_is_refused() {
    let scratch = Scratch::new();
    let db = scratch.0.join("db");
    std::fs::write(&db, WHOLE.bytes()).unwrap();
    let disk: Arc<dyn Disk> = Arc::new(OsDisk { unsafe_no_sync: true });
    let other = SnapshotMetadata { index: Some(701), ..sent() };
    let refused = store_of_image(founding(disk, &scratch.0.join("store")), &db, &other);
    assert!(refused.unwrap_err().to_string().contains("ends at entry 700, but the leader's message says 701"));
}

#[test]
fn what_is_kept_in_memory_is_bounded() {
    let scratch = Scratch::new();
    for (parts, bound) in [
        (Parts { members: 10_001, ..WHOLE }, "bucket `members`: it has more than 10000 rows"),
        (Parts { removed: (1 << 20) + 1, ..WHOLE }, "bucket `members_removed`: it has more than 1048576 rows"),
        (Parts { alarms: 1_000_001, ..WHOLE }, "bucket `alarm`: it has more than 1000000 rows"),
        (Parts { users: 300_000, ..WHOLE }, "bucket `authUsers`: it has more than 16777216 bytes"),
    ] {
        assert_eq!(why(scratch.take(&parts.bytes())), bound);
    }
}

/// Writes some hundred megabytes.
#[test]
fn leases_are_bounded() {
    let parts = Parts { leases: (8 << 20) + 1, ..WHOLE };
    assert_eq!(why(Scratch::new().take(&parts.bytes())), "bucket `lease`: it has more than 8388608 leases");
}

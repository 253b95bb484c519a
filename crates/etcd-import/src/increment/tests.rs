//! Whole snapshots, and what is made of increments.

#![allow(clippy::unwrap_used)]

use super::*;
use crate::save::Nobody;
use crate::{Database, Replay, Restore, restore};
use api::Message;
use api::etcdserverpb::{
    CompactionRequest, DeleteRangeRequest, InternalRaftRequest, LeaseGrantRequest, LeaseRevokeRequest, PutRequest,
    RequestOp, TxnRequest, request_op::Request,
};
use disk::OsDisk;
use sha2::{Digest as _, Sha256};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use store::increment::Since;
use store::{Applier, Image, Store, Work};

const CLUSTER: u64 = 0xc1;

/// A directory that goes away with the test.
struct Scratch(PathBuf);

impl Scratch {
    fn new() -> Scratch {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let dir = std::env::temp_dir().join(format!("cairn-increment-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        Scratch(dir)
    }

    fn file(&self, name: impl std::fmt::Display) -> PathBuf {
        self.0.join(name.to_string())
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// xorshift64*.
struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) % end
    }
}

/// A member that lives.
struct Member {
    applier: Applier,
    store: Arc<Store>,
    index: u64,
    random: Random,
}

impl Member {
    fn new(dir: &Path, seed: u64) -> Member {
        let options =
            store::Options { log: store::log::Options { segment_bytes: 16 << 10 }, ..store::Options::default() };
        let opened = store::open(Arc::new(OsDisk { unsafe_no_sync: true }), dir, options).unwrap();
        Member { applier: opened.applier, store: opened.store, index: 0, random: Random(seed * 2 + 1) }
    }

    fn apply(&mut self, mut request: InternalRaftRequest) {
        self.index += 1;
        request.id = self.index;
        let data = Some(request.encode_to_vec().into());
        let entry = api::raftpb::Entry { term: Some(1), index: Some(self.index), r#type: None, data };
        self.applier.apply(&[entry], &mut Nobody).unwrap();
    }

    fn put(&mut self, key: &str, value: Vec<u8>) {
        let put = PutRequest { key: key.as_bytes().to_vec().into(), value: value.into(), ..PutRequest::default() };
        self.apply(InternalRaftRequest { put: Some(put), ..InternalRaftRequest::default() });
    }

    fn compact(&mut self, revision: i64) {
        let compaction = Some(CompactionRequest { revision, physical: false });
        self.apply(InternalRaftRequest { compaction, ..InternalRaftRequest::default() });
    }

    fn settle(&self) {
        while self.store.maintain(64 << 10).unwrap().work != Work::Idle {}
    }

    /// One change, which may be none, and some housekeeping.
    fn live(&mut self) {
        let (key, lease) = (format!("key{:02}", self.random.below(40)), 1 + self.random.below(5) as i64);
        let put = |key: &str, value: Vec<u8>, lease| PutRequest {
            key: key.as_bytes().to_vec().into(),
            value: value.into(),
            lease,
            ..PutRequest::default()
        };
        let mut request = InternalRaftRequest::default();
        match self.random.below(20) {
            0 => request.lease_grant = Some(LeaseGrantRequest { id: lease, ttl: 60 }),
            1 => request.lease_revoke = Some(LeaseRevokeRequest { id: lease }),
            2 => {
                let revision = self.store.revision() - self.random.below(60) as i64;
                request.compaction = Some(CompactionRequest { revision, physical: false });
            }
            3 => {
                let range_end = b"key20".to_vec().into();
                request.delete_range = Some(DeleteRangeRequest { key: key.into(), range_end, prev_kv: false });
            }
            4..8 => {
                request.delete_range = Some(DeleteRangeRequest { key: key.into(), ..DeleteRangeRequest::default() });
            }
            8..11 => {
                let op = |request| RequestOp { request: Some(request) };
                let delete = DeleteRangeRequest { key: b"key30".to_vec().into(), ..DeleteRangeRequest::default() };
                let success = vec![
                    op(Request::RequestPut(put(&key, b"first".to_vec(), 0))),
                    op(Request::RequestPut(put("other", b"second".to_vec(), 0))),
                    op(Request::RequestDeleteRange(delete)),
                ];
                request.txn = Some(TxnRequest { success, ..TxnRequest::default() });
            }
            kind => {
                let value = vec![b'v'; self.random.below(700) as usize];
                request.put = Some(put(&key, value, if kind > 17 { lease } else { 0 }));
            }
        }
        self.apply(request);
        if self.random.below(4) == 0 {
            self.store.maintain(self.random.below(16 << 10)).unwrap();
        }
    }

    fn whole(&mut self, path: &Path) {
        write(self.applier.snapshot().image().unwrap(), path);
    }

    fn increment(&mut self, since: &Path, path: &Path) -> Result<(), Error> {
        self.increment_of(CLUSTER, since, path)
    }

    fn increment_of(&mut self, cluster_id: u64, since: &Path, path: &Path) -> Result<(), Error> {
        let before = Predecessor::open(since)?;
        let job = self.applier.snapshot();
        job.check_since(&before.since()).map_err(Error::Refused)?;
        write(job.increment_while(&before.since(), cluster_id, &|| true).unwrap().unwrap(), path);
        before.check(path)
    }
}

/// Writes a file as a member sends it.
fn write(mut image: Image, path: &Path) {
    let (mut bytes, len) = (Vec::new(), image.len());
    while let Some(piece) = image.next(5_000) {
        bytes.extend_from_slice(&piece);
    }
    assert_eq!(bytes.len() as u64, len, "the length that was announced");
    seal(bytes, path);
}

fn seal(mut bytes: Vec<u8>, path: &Path) {
    let sum = Sha256::digest(&bytes);
    bytes.extend_from_slice(&sum);
    std::fs::write(path, bytes).unwrap();
}

fn open(base: &Path, increments: &[PathBuf]) -> Result<Database, Error> {
    SnapshotFile::check(base, false)?;
    Database::open(base)?.with_increments(base, increments)
}

fn merged(scratch: &Scratch, base: &Path, increments: &[PathBuf]) -> Vec<u8> {
    let dir = scratch.file("merged");
    let database = open(base, increments).unwrap();
    let replay = Replay::begin(&database, &dir).unwrap();
    let mut bytes = Vec::new();
    replay
        .save(&mut |piece| {
            bytes.extend_from_slice(piece);
            Ok(())
        })
        .unwrap();
    std::fs::remove_dir_all(&dir).unwrap();
    let sum = Sha256::digest(&bytes);
    bytes.extend_from_slice(&sum);
    bytes
}

/// Why a chain is refused.
fn why(base: &Path, increments: &[PathBuf]) -> String {
    open(base, increments).err().unwrap().to_string()
}

#[test]
fn any_snapshot_with_its_increments_is_a_later_one() {
    for seed in 0..40 {
        let scratch = Scratch::new();
        let mut member = Member::new(&scratch.file("member"), seed);
        let (mut wholes, mut increments) = (Vec::<PathBuf>::new(), Vec::<PathBuf>::new());
        for stage in 0..5 {
            for _ in 0..member.random.below(120) {
                member.live();
            }
            if member.random.below(2) == 0 {
                member.settle();
            }
            let whole = scratch.file(format_args!("whole{stage}"));
            member.whole(&whole);
            if let Some(before) = increments.last().or(wholes.first()) {
                let increment = scratch.file(format_args!("increment{stage}"));
                member.increment(before, &increment).unwrap();
                increments.push(increment);
            }
            wholes.push(whole);
        }
        for (first, base) in wholes.iter().enumerate() {
            for last in first + 1..wholes.len() {
                // The increment after a whole snapshot follows it, although it was saved since another increment.
                let chain = &increments[first..last];
                let (chained, whole) = (open(base, chain).unwrap(), Database::open(&wholes[last]).unwrap());
                let (found, wanted) = (chained.status().unwrap(), whole.status().unwrap());
                assert_eq!((found.hash, found.revision), (wanted.hash, wanted.revision), "seed {seed}: {first} {last}");
                assert_eq!(chained.hash_kv(0).unwrap(), whole.hash_kv(0).unwrap());
                if seed < 8 {
                    let merged = merged(&scratch, base, chain);
                    assert!(merged == std::fs::read(&wholes[last]).unwrap(), "seed {seed}: {first} {last}");
                }
            }
        }
    }
}

#[test]
fn what_was_saved_of_a_merged_file_follows_the_increments() {
    let scratch = Scratch::new();
    let mut member = Member::new(&scratch.file("member"), 1);
    let names = ["base", "first", "second", "merged.db"].map(|name| scratch.file(name));
    let [base, first, second, merged_file] = &names;
    (0..50).for_each(|_| member.live());
    member.whole(base);
    (0..50).for_each(|_| member.live());
    member.increment(base, first).unwrap();
    std::fs::write(merged_file, merged(&scratch, base, std::slice::from_ref(first))).unwrap();
    (0..50).for_each(|_| member.live());
    member.increment(merged_file, second).unwrap();
    let whole = scratch.file("whole");
    member.whole(&whole);
    assert!(merged(&scratch, base, &[first.clone(), second.clone()]) == std::fs::read(&whole).unwrap());
}

/// A base and three increments, of which the second lists what a compaction left.
fn chain(scratch: &Scratch, seed: u64) -> (Member, PathBuf, Vec<PathBuf>) {
    let mut member = Member::new(&scratch.file(format_args!("member{seed}")), seed);
    let base = scratch.file(format_args!("base{seed}"));
    (0..60).for_each(|number| member.put(&format!("key{}", number % 20), vec![seed as u8; 100]));
    member.whole(&base);
    let mut files = vec![base];
    for number in 1..4 {
        (0..30).for_each(|value| member.put(&format!("key{number}"), vec![value; 50]));
        if number == 2 {
            member.compact(80);
        }
        let next = scratch.file(format_args!("increment{seed}-{number}"));
        member.increment(files.last().unwrap(), &next).unwrap();
        files.push(next);
    }
    let base = files.remove(0);
    (member, base, files)
}

#[test]
fn a_flipped_byte_anywhere_is_found() {
    let scratch = Scratch::new();
    let (_, base, files) = chain(&scratch, 1);
    let whole = std::fs::read(&files[1]).unwrap();
    // Every byte of the head and of the checksum, and many of the pages.
    let places = (0..HEAD_BYTES).chain((HEAD_BYTES..whole.len()).step_by(97)).chain(whole.len() - 32..whole.len());
    for place in places {
        let mut wrong = whole.clone();
        wrong[place] ^= 0x10;
        let path = scratch.file("flipped");
        std::fs::write(&path, wrong).unwrap();
        assert!(open(&base, &[files[0].clone(), path.clone(), files[2].clone()]).is_err(), "{place}");
        assert!(Predecessor::open(&path).is_err(), "{place}");
    }
    for length in [0, 7, 8, 100, HEAD_BYTES, HEAD_BYTES + 32, whole.len() - 4096, whole.len() - 1] {
        let path = scratch.file("torn");
        std::fs::write(&path, &whole[..length]).unwrap();
        assert!(open(&base, &[files[0].clone(), path.clone()]).is_err(), "{length}");
        assert!(Predecessor::open(&path).is_err(), "{length}");
    }
}

#[test]
fn what_does_not_follow_is_refused() {
    let scratch = Scratch::new();
    let (mut member, base, files) = chain(&scratch, 1);
    let [first, second, third] = [0, 1, 2].map(|number: usize| files[number].clone());
    open(&base, &files).unwrap();
    for (wrong, text) in [
        (vec![second.clone(), third.clone()], "without a gap"),
        (vec![first.clone(), third.clone()], "without a gap"),
        (vec![second.clone(), first.clone()], "in the order"),
        (vec![first.clone(), first.clone()], "in the order"),
        (vec![base.clone()], "it is no increment"),
    ] {
        let why = why(&base, &wrong);
        assert!(why.contains(text), "{why}");
    }
    assert!(Database::open(&first).err().unwrap().to_string().contains("name the snapshot that it follows"));
    // A history of the same revisions and compactions, but with other values.
    let (mut other, other_base, others) = chain(&scratch, 2);
    let text = "does not follow what is named before it";
    assert!(why(&other_base, &files[..1]).contains(text));
    // The compaction has left versions of the base, so that all of them are vouched for by the last increment.
    assert!(why(&other_base, &files).contains(text));
    assert!(why(&base, &[first.clone(), others[1].clone()]).contains(text));
    assert!(other.increment(&base, &scratch.file("next")).err().unwrap().to_string().contains("does not have what"));
    // Of another cluster.
    let foreign = scratch.file("foreign");
    let error = member.increment_of(CLUSTER + 1, &third, &foreign).err().unwrap().to_string();
    assert!(error.contains("is of cluster c1, and the member is of cluster c2"), "{error}");
    let why = why(&base, &[first.clone(), second.clone(), third.clone(), foreign]);
    assert!(why.contains("it is of cluster c2"), "{why}");
    // A member that has less.
    let mut empty = Member::new(&scratch.file("empty"), 9);
    assert!(
        empty.increment(&base, &scratch.file("next")).err().unwrap().to_string().contains("this member is at revision")
    );
    // Nothing is made of it.
    let wanted = Restore {
        snapshot: base.clone(),
        increments: vec![first, third],
        data_dir: scratch.file("data"),
        wal_dir: None,
        cluster: vec![("m".into(), vec!["http://127.0.0.1:1".into()])],
        token: "t".into(),
        name: "m".into(),
        peer_urls: vec!["http://127.0.0.1:1".into()],
        skips_check: false,
        revision_bump: 0,
        marks_compacted: false,
    };
    assert!(restore(&wanted).is_err());
    assert!(!wanted.data_dir.exists());
    restore(&Restore { increments: files, ..wanted.clone() }).unwrap();
    assert!(wanted.data_dir.join("member").join("wal").exists());
}

#[test]
fn the_list_of_what_is_left_must_be_there_and_fit() {
    let scratch = Scratch::new();
    let (_, base, files) = chain(&scratch, 1);
    let bytes = std::fs::read(&files[1]).unwrap();
    let head = Head::decode(bytes[..HEAD_BYTES].first_chunk().unwrap()).unwrap();
    assert!(head.lists_kept() && !Increment::open(&files[0]).unwrap().head.lists_kept());
    // With a checksum that is right: who can write files can do that.
    let change = |head: Head| {
        let path = scratch.file("changed");
        seal([&head.encode()[..], &bytes[HEAD_BYTES..bytes.len() - 32]].concat(), &path);
        let read = open(&base, &[files[0].clone(), path]).and_then(|database| database.records(&mut |_| Ok(())));
        read.err().unwrap().to_string()
    };
    let why = change(Head { compact_revision: 20, ..head.clone() });
    assert!(why.contains("its database is compacted to another revision than its head says"), "{why}");
    // The list has a revision that these do not leave room for.
    let why = change(Head { since: Since { revision: 1, compact_revision: 1, start: 0 }, ..head.clone() });
    assert!(why.contains("the list of kept revisions is damaged"), "{why}");
    let why = change(Head { hash: [0; 32], ..head.clone() });
    assert!(why.contains("does not follow"), "{why}");
    let why = change(Head { revision: head.revision - 1, ..head });
    assert!(why.contains("it has versions of another time"), "{why}");
}

#[test]
fn only_the_last_list_is_kept_in_memory() {
    let scratch = Scratch::new();
    let mut member = Member::new(&scratch.file("data"), 5);
    let mut files = vec![scratch.file("base")];
    for number in 0..5 {
        for key in 0..30 {
            member.put(&format!("key{key}"), vec![number; 20]);
        }
        if number == 0 {
            member.whole(&files[0]);
            continue;
        }
        member.compact(member.store.revision() - 10);
        member.settle();
        let next = scratch.file(format!("next{number}"));
        member.increment(files.last().unwrap(), &next).unwrap();
        files.push(next);
    }
    let database = open(&files[0], &files[1..]).unwrap();
    let lists = database.chain.as_ref().unwrap().lists();
    assert_eq!(lists, [false, false, false, true]);
    // A member that is back at an earlier entry has another history.
    let last = Predecessor::open(files.last().unwrap()).unwrap();
    let bytes = std::fs::read(files.last().unwrap()).unwrap();
    let head = Head::decode(bytes[..HEAD_BYTES].first_chunk().unwrap()).unwrap();
    let next = scratch.file("next");
    member.increment(files.last().unwrap(), &next).unwrap();
    last.check(&next).unwrap();
    let next_bytes = std::fs::read(&next).unwrap();
    let next_head = Head::decode(next_bytes[..HEAD_BYTES].first_chunk().unwrap()).unwrap();
    let earlier = Head { index: head.index - 1, ..next_head };
    seal([&earlier.encode()[..], &next_bytes[HEAD_BYTES..next_bytes.len() - 32]].concat(), &next);
    let why = last.check(&next).err().unwrap().to_string();
    assert!(why.contains("it has another history"), "{why}");
}

/// Makes all checksums right again, so that the rest is believed.
fn sealed(mut bytes: Vec<u8>, path: &Path) {
    bytes.truncate(bytes.len() - 32);
    let crc = crc32c::crc32c(&bytes[..HEAD_BYTES - 4]);
    bytes[HEAD_BYTES - 4..HEAD_BYTES].copy_from_slice(&crc.to_le_bytes());
    for page in [0, 4096] {
        let meta = &mut bytes[HEAD_BYTES + page + 16..];
        let sum = meta[..56]
            .iter()
            .fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3));
        meta[56..64].copy_from_slice(&sum.to_le_bytes());
    }
    seal(bytes, path);
}

#[test]
fn any_bytes_are_read_or_refused() {
    let scratch = Scratch::new();
    let (_, base, files) = chain(&scratch, 1);
    let (good, path, mut random) = (std::fs::read(&files[1]).unwrap(), scratch.file("edited"), Random(5));
    let pages = (good.len() / 4096) as u64;
    let (mut read, mut refused) = (0, 0);
    for _ in 0..1_500 {
        let mut bytes = good.clone();
        for _ in 0..1 + random.below(4) {
            let place = match random.below(4) {
                0 => random.below(160),
                1 => HEAD_BYTES as u64 + random.below(pages) * 4096 + random.below(64),
                _ => HEAD_BYTES as u64 + random.below(pages * 4096),
            };
            bytes[place as usize] = random.below(256) as u8;
        }
        sealed(bytes, &path);
        let found = open(&base, &[files[0].clone(), path.clone()])
            .and_then(|database| Ok((database.status()?, database.contents()?, database.hash_kv(0)?)));
        let before = Predecessor::open(&path).and_then(|before| before.check(&files[2]));
        *(if found.is_ok() { &mut read } else { &mut refused }) += 1;
        drop((found, before));
    }
    // Most of a page is zeros that nothing reads.
    assert!(read > 100 && refused > 100, "{read} read, {refused} refused");
}

//! Directories that earlier versions wrote are read as they were meant: `fixtures/<number>` has the files of a Raft log and a store, and what they say
//! in words. None of them is ever changed. A new one is made when a format changes, and kept beside the others:
//! `WRITE_FIXTURE=<number> cargo test -p cairn-sim --test formats`.

#![allow(clippy::unwrap_used, clippy::disallowed_methods, reason = "a test, which reads files and the environment")]

use api::authpb::{Permission, UserAddOptions};
use api::etcdserverpb::*;
use api::{Message, raftpb, walpb};
use disk::Disk;
use disk::sim::SimDisk;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use store::{Response, Sink};
use wal::{EntryRef, Wal};

const STORE: &str = "/store";
const LOG: &str = "/wal";
const TERM: u64 = 5;
const ENTRIES: u64 = 220;
const CHECKPOINTS: [u64; 3] = [60, 120, 180];

struct Ignored;

impl Sink for Ignored {
    fn done(&mut self, _index: u64, _request_id: u64, _result: Result<Response, api::Error>) {}
    fn conf_change(&mut self, _index: u64, _change: raftpb::ConfChange) {}
    fn over_quota(&mut self, _response: &Response) {}
}

fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures")
}

fn log_options() -> wal::Options {
    wal::Options { segment_bytes: 8 << 10, segments_min: 2, rest: || {} }
}

fn store_options() -> store::Options {
    store::Options {
        log: store::log::Options { segment_bytes: 16 << 10 },
        quota_bytes: -1,
        lease_ttl_seconds_min: 1,
        ..Default::default()
    }
}

/// One request of every kind that leaves something, then puts, deletions, transactions and compactions.
fn request(index: u64) -> InternalRaftRequest {
    let key = format!("key/{:02}", index % 17);
    let put = |lease| PutRequest {
        key: key.clone().into(),
        value: format!("value {index} {}", "v".repeat(index as usize % 40)).into(),
        lease,
        ..Default::default()
    };
    let mut request =
        InternalRaftRequest { header: Some(RequestHeader { id: index, ..Default::default() }), ..Default::default() };
    let options = Some(UserAddOptions { no_password: true });
    match index {
        4 => {
            let add = AuthUserAddRequest { name: "root".into(), options, ..Default::default() };
            request.auth_user_add = Some(add);
        }
        5 => request.auth_role_add = Some(AuthRoleAddRequest { name: "reader".into() }),
        6 => {
            let perm = Some(Permission { perm_type: 0, key: "key/".into(), range_end: "key0".into() });
            let grant = AuthRoleGrantPermissionRequest { name: "reader".into(), perm };
            request.auth_role_grant_permission = Some(grant);
        }
        7 => {
            let grant = AuthUserGrantRoleRequest { user: "root".into(), role: "reader".into() };
            request.auth_user_grant_role = Some(grant);
        }
        8..12 => request.lease_grant = Some(LeaseGrantRequest { id: index as i64 * 100, ttl: 60 + index as i64 }),
        12 => {
            let checkpoints = vec![LeaseCheckpoint { id: 900, remaining_ttl: 33 }];
            request.lease_checkpoint = Some(LeaseCheckpointRequest { checkpoints });
        }
        13 => request.alarm = Some(AlarmRequest { action: 1, member_id: 0xabc, alarm: 2 }),
        14 => request.alarm = Some(AlarmRequest { action: 2, member_id: 0xabc, alarm: 2 }),
        15 => request.lease_revoke = Some(LeaseRevokeRequest { id: 1100 }),
        70 | 130 | 190 => {
            request.compaction = Some(CompactionRequest { revision: index as i64 - 25, physical: false });
        }
        _ if index.is_multiple_of(9) => {
            request.delete_range = Some(DeleteRangeRequest { key: key.into(), ..Default::default() });
        }
        _ if index.is_multiple_of(11) => {
            let op = |put| RequestOp { request: Some(request_op::Request::RequestPut(put)) };
            let other = PutRequest { key: "other".into(), ..put(800) };
            request.txn = Some(TxnRequest { success: vec![op(put(0)), op(other)], ..Default::default() });
        }
        _ => request.put = Some(put(if index.is_multiple_of(6) { 900 } else { 0 })),
    }
    request
}

fn entry(index: u64) -> raftpb::Entry {
    let (kind, data) = match index {
        1 | 2 => {
            let member = store::Member { id: index, name: format!("m{index}"), ..Default::default() };
            let context = store::ConfChangeContext { member, is_promote: false }.encode();
            let change = raftpb::ConfChange {
                id: Some(index),
                r#type: Some(raftpb::ConfChangeType::ConfChangeAddNode as i32),
                node_id: Some(index),
                context: Some(context.into()),
            };
            (raftpb::EntryType::EntryConfChange, change.encode_to_vec())
        }
        3 => (raftpb::EntryType::EntryNormal, Vec::new()),
        _ => (raftpb::EntryType::EntryNormal, request(index).encode_to_vec()),
    };
    raftpb::Entry { r#type: Some(kind as i32), term: Some(TERM), index: Some(index), data: Some(data.into()) }
}

fn conf_state() -> raftpb::ConfState {
    raftpb::ConfState { voters: vec![1, 2], ..Default::default() }
}

fn apply(opened: &mut store::Opened, entry: &raftpb::Entry) {
    opened.applier.apply(std::slice::from_ref(entry), &mut Ignored).unwrap();
    if entry.r#type() == raftpb::EntryType::EntryConfChange {
        opened.applier.set_conf_state(conf_state());
    }
}

/// A member's files, as this version writes them: several segments of both logs, some rewritten, two checkpoints.
fn write() -> SimDisk {
    let sim = SimDisk::new();
    let disk: Arc<dyn Disk> = Arc::new(sim.clone());
    for path in [STORE, LOG] {
        disk.create_dir(Path::new(path)).unwrap();
    }
    let metadata = Metadata { node_id: Some(1), cluster_id: Some(7) }.encode_to_vec();
    let mut log = Wal::create(disk.clone(), Path::new(LOG), &metadata, log_options()).unwrap();
    let mut opened = store::open(disk, Path::new(STORE), store_options()).unwrap();
    for index in 1..=ENTRIES {
        let entry = entry(index);
        let state = raftpb::HardState { term: Some(TERM), vote: Some(2), commit: Some(index) };
        let data = entry.data.clone().unwrap_or_default();
        let (term, kind) = (TERM, entry.r#type() as i32);
        log.append(&mut std::iter::once(EntryRef { term, index, kind, data: &data }), Some(&state));
        log.commit(true).unwrap();
        apply(&mut opened, &entry);
        for _ in 0..3 {
            opened.store.maintain(4 << 10).unwrap();
        }
        if CHECKPOINTS.contains(&index) {
            opened.applier.checkpoint().write().unwrap();
            let snapshot = walpb::Snapshot { index: Some(index), term: Some(TERM), conf_state: Some(conf_state()) };
            log.save_snapshot(&snapshot);
            log.commit(true).unwrap();
        }
    }
    sim
}

/// Opens both, replays, and says what is there.
fn read(sim: &SimDisk) -> String {
    let disk: Arc<dyn Disk> = Arc::new(sim.clone());
    let mut opened = store::open(disk.clone(), Path::new(STORE), store_options()).unwrap();
    assert!(opened.passed_over.is_empty(), "{:?}", opened.passed_over);
    assert!(opened.refused_keys.is_empty(), "{:?}", opened.refused_keys);
    let applied = opened.applied.clone();
    let from = walpb::Snapshot {
        index: Some(applied.index),
        term: Some(applied.term),
        conf_state: Some(applied.conf_state.clone()),
    };
    let (_log, recovered) = Wal::open(disk, Path::new(LOG), &from, log_options()).unwrap();
    let mut text = String::new();
    let state = recovered.hard_state;
    writeln!(text, "metadata {:?}", Metadata::decode(recovered.metadata).unwrap()).unwrap();
    writeln!(text, "term {} vote {} commit {}", state.term(), state.vote(), state.commit()).unwrap();
    writeln!(text, "snapshot {} of term {}", recovered.snapshot.index(), recovered.snapshot.term()).unwrap();
    writeln!(text, "checkpoint {} of term {}, voters {:?}", applied.index, applied.term, applied.conf_state.voters)
        .unwrap();
    for entry in &recovered.entries {
        writeln!(text, "entry {} crc {:08x}", entry.index(), crc32c::crc32c(&entry.encode_to_vec())).unwrap();
        apply(&mut opened, entry);
    }
    let store = &opened.store;
    writeln!(text, "revision {} compacted {}", store.revision(), store.compact_revision()).unwrap();
    for revision in store.compact_revision()..=store.revision() {
        let all = RangeRequest { key: vec![0].into(), range_end: vec![0].into(), revision, ..Default::default() };
        let found = store.range(&all).unwrap().kvs.to_messages();
        let crc = found.iter().fold(0, |crc, kv| crc32c::crc32c_append(crc, &kv.encode_to_vec()));
        writeln!(text, "at {revision}: {} keys, crc {crc:08x}", found.len()).unwrap();
    }
    let mut leases = store.leases().list();
    leases.sort_unstable_by_key(|lease| lease.id);
    for lease in leases {
        let keys = store.leases().keys(lease.id);
        writeln!(text, "lease {} ttl {} left {} keys {keys:?}", lease.id, lease.ttl, lease.remaining_ttl).unwrap();
    }
    for alarm in store.alarms() {
        writeln!(text, "alarm {} of {:x}", alarm.alarm, alarm.member_id).unwrap();
    }
    let auth = store.auth();
    writeln!(text, "users {:?} roles {:?} revision {}", auth.users(), auth.roles(), auth.revision()).unwrap();
    writeln!(text, "root has {:?}, reader {:?}", auth.user("root").unwrap(), auth.role("reader").unwrap()).unwrap();
    for member in store.members().members.values() {
        writeln!(text, "member {} {} learner {}", member.id, member.name, member.is_learner).unwrap();
    }
    text
}

/// Runs of zeros are most of a segment: `<zeros in hexadecimal>:<bytes>` for each run and what follows it, a line for each.
fn pack(bytes: &[u8]) -> String {
    let mut text = String::new();
    let mut rest = bytes;
    while !rest.is_empty() {
        let zeros = rest.iter().take_while(|byte| **byte == 0).count();
        let end = rest[zeros..].windows(32).position(|run| run.iter().all(|byte| *byte == 0));
        let (data, behind) = rest[zeros..].split_at(end.unwrap_or(rest.len() - zeros));
        write!(text, "{zeros:x}:").unwrap();
        data.iter().for_each(|byte| write!(text, "{byte:02x}").unwrap());
        text.push('\n');
        rest = behind;
    }
    text
}

fn unpack(text: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    for line in text.lines() {
        let (zeros, data) = line.split_once(':').unwrap();
        bytes.resize(bytes.len() + usize::from_str_radix(zeros, 16).unwrap(), 0);
        let pairs = data.as_bytes().chunks(2).map(|pair| std::str::from_utf8(pair).unwrap());
        bytes.extend(pairs.map(|pair| u8::from_str_radix(pair, 16).unwrap()));
    }
    bytes
}

fn load(fixture: &Path) -> SimDisk {
    let sim = SimDisk::new();
    for dir in [STORE, LOG] {
        for file in std::fs::read_dir(fixture.join(&dir[1..])).unwrap() {
            let file = file.unwrap().path();
            let name = file.file_stem().unwrap().to_str().unwrap();
            sim.install(&Path::new(dir).join(name), &unpack(&std::fs::read_to_string(&file).unwrap())).unwrap();
        }
    }
    sim
}

fn save(fixture: &Path) {
    let sim = write();
    for dir in [STORE, LOG] {
        std::fs::create_dir_all(fixture.join(&dir[1..])).unwrap();
        let names = sim.list(Path::new(dir)).unwrap();
        for name in names.iter().filter(|name| !name.ends_with(".tmp") && !name.ends_with(".intake")) {
            let bytes = sim.contents(&Path::new(dir).join(name)).unwrap();
            std::fs::write(fixture.join(&dir[1..]).join(format!("{name}.hex")), pack(&bytes)).unwrap();
        }
    }
    std::fs::write(fixture.join("expected.txt"), read(&load(fixture))).unwrap();
}

#[test]
fn directories_of_earlier_versions_are_read() {
    if let Ok(number) = std::env::var("WRITE_FIXTURE") {
        save(&fixtures().join(number));
    }
    let mut count = 0;
    for fixture in std::fs::read_dir(fixtures()).unwrap() {
        let fixture = fixture.unwrap().path();
        let expected = std::fs::read_to_string(fixture.join("expected.txt")).unwrap();
        let found = read(&load(&fixture));
        let differs = expected.lines().zip(found.lines()).find(|(expected, found)| expected != found);
        assert!(expected == found, "{} is read otherwise than it was meant: {differs:?}", fixture.display());
        count += 1;
    }
    assert!(count > 0, "no fixtures");
}

/// What this version writes now means what the newest fixture means: a format does not change without a new fixture.
#[test]
fn what_is_written_now_is_read_alike() {
    let newest = std::fs::read_dir(fixtures()).unwrap().map(|found| found.unwrap().path()).max().unwrap();
    let expected = std::fs::read_to_string(newest.join("expected.txt")).unwrap();
    let sim = write();
    assert_eq!(read(&sim), expected);
    // A start gives back those that it does not use.
    let names = sim.list(Path::new(STORE)).unwrap();
    assert!(names.iter().any(|name| name.ends_with(".keys")), "no key file was used: {names:?}");
}

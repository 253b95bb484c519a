//! A record that the start has not read is damaged.
//!
//! The member runs in a process of its own, which is this test's binary again.

use super::Rig;
use api::etcdserverpb::{
    CompactionRequest, CompactionResponse, PutRequest, PutResponse, RangeRequest, RangeResponse, RequestOp, TxnRequest,
    TxnResponse, request_op::Request,
};
use disk::Disk;
use disk::sim::SimDisk;
use std::io::Write;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::Command;

const CASE: &str = "CAIRN_DAMAGE_CASE";
const STORE: &str = "/simulated/member/store";
const VALUE_BYTES: usize = 1 << 20;

fn key_files(disk: &SimDisk) -> Vec<String> {
    let names = disk.list(Path::new(STORE)).expect("a store");
    names.iter().filter_map(|name| name.strip_suffix(".keys").map(str::to_string)).collect()
}

/// Whether the store counts a key file, so that the next checkpoint lists it: one that is still being written is in the directory before.
fn has_key_file(rig: &Rig, disk: &SimDisk) -> bool {
    let names = disk.list(Path::new(STORE)).expect("a store");
    let bytes = |ending: &str| {
        let files = names.iter().filter(|name| name.ends_with(ending));
        files.flat_map(|name| disk.contents(&Path::new(STORE).join(name))).map(|bytes| bytes.len() as u64).sum::<u64>()
    };
    let (segments, keys) = (bytes(".seg"), bytes(".keys"));
    keys > 0 && rig.node().store.usage().file_bytes == segments + keys
}

fn say(line: &str) {
    writeln!(std::io::stderr(), "{line}").expect("the test reads it");
}

/// What the process of the test below does; nothing when it runs as a test.
#[test]
fn reader() {
    let Ok(case) = std::env::var(CASE) else { return };
    contain::install(|panic, fate| say(&format!("{fate:?}: {panic}")));
    let disk = SimDisk::new();
    // A compaction that never goes on keeps the check in the background from finding the damage first.
    let flags = ["--compaction-sleep-interval=1h"];
    let rig = Rig::start_on(disk.clone(), &flags);
    for number in 0..6_u8 {
        let put =
            PutRequest { key: vec![b'k', number].into(), value: vec![7; VALUE_BYTES].into(), ..Default::default() };
        let _: PutResponse = rig.call("/etcdserverpb.KV/Put", None, &put).expect("written");
    }
    rig.wait_for("a key file", || has_key_file(&rig, &disk));
    let compact = CompactionRequest { revision: 7, ..Default::default() };
    let _: CompactionResponse = rig.call("/etcdserverpb.KV/Compact", None, &compact).expect("compacted");
    drop(rig);

    let keys = key_files(&disk);
    let segment = Path::new(STORE).join(format!("{}.seg", keys[0]));
    let mut bytes = disk.contents(&segment).expect("a segment");
    bytes[VALUE_BYTES + VALUE_BYTES / 2] ^= 1;
    disk.install(&segment, &bytes).expect("damaged");
    let rig = Rig::start_on(disk.clone(), &flags);
    assert_eq!(key_files(&disk), keys, "the key file is used");
    let range = |number| RangeRequest { key: vec![b'k', number].into(), ..Default::default() };
    let whole: RangeResponse = rig.call("/etcdserverpb.KV/Range", None, &range(0)).expect("read");
    assert_eq!(whole.kvs[0].value.len(), VALUE_BYTES);
    say("reads");
    match case.as_str() {
        "range" => drop(rig.call::<RangeResponse>("/etcdserverpb.KV/Range", None, &range(1))),
        "txn" => {
            let op = RequestOp { request: Some(Request::RequestRange(range(1))) };
            let txn = TxnRequest { success: vec![op], ..Default::default() };
            drop(rig.call::<TxnResponse>("/etcdserverpb.KV/Txn", None, &txn));
        }
        other => panic!("no case {other}"),
    }
    say("goes on");
}

#[test]
fn a_read_of_a_damaged_record_ends_the_member() {
    for case in ["range", "txn"] {
        let mut command = Command::new(std::env::current_exe().expect("a program"));
        command.args(["--exact", "services::tests::damage::reader", "--nocapture"]).env(CASE, case);
        let output = command.output().expect("started");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(said.contains("reads") && !said.contains("goes on"), "{case}: {said}");
        assert!(said.contains("is damaged at offset") && !said.contains("Scope: panicked at"), "{case}: {said}");
        assert_eq!(output.status.signal(), Some(libc::SIGABRT), "{case}: {said}");
    }
}

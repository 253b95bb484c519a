//! A state that another member sends: a good one, changed here and there, with checksums that are right again. Whatever comes, the store
//! takes it whole or refuses it, and can be read and opened afterwards.
#![no_main]

#[path = "seal.rs"]
mod seal;

use api::Message;
use api::etcdserverpb::{DeleteRangeRequest, InternalRaftRequest, LeaseGrantRequest, PutRequest, RangeRequest};
use api::raftpb::{ConfChange, Entry};
use disk::sim::SimDisk;
use libfuzzer_sys::fuzz_target;
use seal::HEADER_BYTES;
use std::path::Path;
use std::sync::{Arc, OnceLock};
use store::checkpoint::{Checkpoint, decode_checkpoint};
use store::{Applier, Intake, Opened, Options, Response, Sink};

struct Nobody;

impl Sink for Nobody {
    fn done(&mut self, _: u64, _: u64, _: Result<Response, api::Error>) {}
    fn conf_change(&mut self, _: u64, _: ConfChange) {}
    fn over_quota(&mut self, _: &Response) {}
}

/// What is sent: the body of a checkpoint, and its segments.
#[derive(Clone)]
struct State {
    body: Vec<u8>,
    segments: Vec<Vec<u8>>,
}

fn options() -> Options {
    Options { log: store::log::Options { segment_bytes: 16 << 10 }, ..Options::default() }
}

fn open(disk: &SimDisk) -> Opened {
    match store::open(Arc::new(disk.clone()), Path::new("store"), options()) {
        Ok(opened) => opened,
        Err(error) => panic!("{error}"),
    }
}

fn apply(applier: &mut Applier, request: InternalRaftRequest) {
    let index = Some(applier.applied_index() + 1);
    let entry = Entry { term: Some(1), index, r#type: None, data: Some(request.encode_to_vec().into()) };
    if let Err(error) = applier.apply(&[entry], &mut Nobody) {
        panic!("{error}");
    }
}

fn put(key: &'static str) -> InternalRaftRequest {
    let put = PutRequest { key: key.into(), ..Default::default() };
    InternalRaftRequest { put: Some(put), ..Default::default() }
}

/// A small state with something of everything.
fn good() -> &'static State {
    static GOOD: OnceLock<State> = OnceLock::new();
    GOOD.get_or_init(|| {
        let mut opened = open(&SimDisk::new());
        let raft = InternalRaftRequest::default;
        apply(
            &mut opened.applier,
            InternalRaftRequest { lease_grant: Some(LeaseGrantRequest { id: 3, ttl: 9 }), ..raft() },
        );
        for at in 0..40u8 {
            let key = format!("k{}", at % 7).into();
            let put =
                PutRequest { key, value: vec![at; 60].into(), lease: i64::from(at % 2) * 3, ..Default::default() };
            apply(&mut opened.applier, InternalRaftRequest { put: Some(put), ..raft() });
        }
        let delete = DeleteRangeRequest { key: "k2".into(), range_end: "k4".into(), prev_kv: false };
        apply(&mut opened.applier, InternalRaftRequest { delete_range: Some(delete), ..raft() });
        let export = opened.applier.export();
        let bytes = export.checkpoint().unwrap_or_else(|error| panic!("{error}"));
        let content = decode_checkpoint(&bytes).unwrap_or_else(|damage| panic!("{damage:?}"));
        let read = |id, length| export.read(id, 0, length as usize).unwrap_or_else(|error| panic!("{error}")).to_vec();
        let segments = content.segments.iter().map(|entry| read(entry.id, entry.length)).collect();
        State { body: bytes[HEADER_BYTES..].to_vec(), segments }
    })
}

impl State {
    /// Changes one byte: of the checkpoint, or of a segment.
    fn edit(&mut self, target: u8, at: u16, value: u8) {
        let count = self.segments.len() + 1;
        let bytes = match usize::from(target) % count {
            0 => &mut self.body,
            number => &mut self.segments[number - 1],
        };
        let at = usize::from(at) % bytes.len();
        bytes[at] = value;
    }

    /// Makes the checksums of records and segments right, as far as there are records and segments.
    fn seal(&mut self) {
        let Ok(mut content) = Checkpoint::decode(&*self.body) else { return };
        for (entry, bytes) in content.segments.iter_mut().zip(&mut self.segments) {
            seal::segment(bytes);
            entry.body_crc = Some(crc32c::crc32c(bytes.get(HEADER_BYTES..).unwrap_or_default()));
        }
        self.body = content.encode_to_vec();
    }

    /// The checkpoint as it is sent.
    fn checkpoint(&self) -> Vec<u8> {
        seal::checkpoint(1, &self.body)
    }
}

/// Sends the state as far as it is taken. True when it was installed.
fn send(state: &State, opened: &mut Opened) -> bool {
    let Ok(mut intake) = Intake::begin(&opened.store, 1, &state.checkpoint()) else { return false };
    let content = Checkpoint::decode(&*state.body).unwrap_or_else(|error| panic!("{error}"));
    for (entry, bytes) in content.segments.iter().zip(&state.segments) {
        for (number, piece) in bytes.chunks(1000).enumerate() {
            if intake.write(entry.id, number as u64 * 1000, piece).is_err() {
                return false;
            }
        }
    }
    let Ok(ready) = intake.finish() else { return false };
    opened.applier.install(ready).is_ok()
}

fuzz_target!(|data: &[u8]| {
    let mut state = good().clone();
    let (edits, _) = data.as_chunks::<4>();
    for [target, low, high, value] in edits.iter().take(64) {
        state.edit(*target, u16::from_le_bytes([*low, *high]), *value);
    }
    state.seal();
    let disk = SimDisk::new();
    let mut opened = open(&disk);
    // The state may end before what this member has.
    apply(&mut opened.applier, put("own"));
    if let Err(error) = opened.applier.checkpoint().write() {
        panic!("{error}");
    }
    let installed = send(&state, &mut opened);
    let all = RangeRequest { key: "\0".into(), range_end: "\0".into(), ..Default::default() };
    let count = opened.store.range(&all).map(|answer| answer.into_message().count);
    assert!(installed || count == Ok(1), "something of a refused state is there");
    let _ = opened.store.hash_kv(0);
    if installed {
        apply(&mut opened.applier, put("more"));
    }
    drop(opened);
    let reopened = open(&disk);
    assert!(reopened.store.range(&all).map(|answer| answer.into_message().count) == count, "it opens as it was");
});

//! What the contract tests share.
#![allow(dead_code, clippy::unwrap_used, unreachable_pub, missing_docs)]

pub mod model;
pub mod page;
pub mod requests;
pub mod transfer;

use api::etcdserverpb::{InternalRaftRequest, RangeRequest, RangeResponse};
use api::{Error, Message, raftpb};
use disk::sim::SimDisk;
use std::path::Path;
use std::sync::Arc;
use store::{Applier, Opened, Options, Response, Sink, Store, Work};

pub const DIR: &str = "store";

/// A store with small segments on a simulated disk, and every entry it was given.
pub struct Node {
    pub disk: SimDisk,
    pub store: Arc<Store>,
    pub applier: Applier,
    pub entries: Vec<raftpb::Entry>,
    pub options: Options,
}

/// Keeps what it is told.
#[derive(Default)]
pub struct Told {
    pub results: Vec<(u64, Result<Response, Error>)>,
    pub changes: Vec<raftpb::ConfChange>,
    pub no_space: usize,
}

impl Sink for Told {
    fn done(&mut self, _: u64, request_id: u64, result: Result<Response, Error>) {
        self.results.push((request_id, result));
    }
    fn conf_change(&mut self, _: u64, change: raftpb::ConfChange) {
        self.changes.push(change);
    }
    fn over_quota(&mut self, _response: &Response) {
        self.no_space += 1;
    }
}

pub fn small_segments() -> Options {
    Options { log: store::log::Options { segment_bytes: 16 << 10 }, ..Options::default() }
}

impl Node {
    pub fn new() -> Node {
        Node::with(small_segments())
    }

    pub fn with(options: Options) -> Node {
        Node::on(SimDisk::new(), options)
    }

    pub fn on(disk: SimDisk, options: Options) -> Node {
        let Opened { store, applier, .. } =
            store::open(Arc::new(disk.clone()), Path::new(DIR), options.clone()).unwrap();
        Node { disk, store, applier, entries: Vec::new(), options }
    }

    /// Makes an entry of a request; its index is also its id.
    pub fn entry(&mut self, mut request: InternalRaftRequest) -> raftpb::Entry {
        let index = self.entries.len() as u64 + 1;
        request.id = index;
        let data = Some(request.encode_to_vec().into());
        let entry = raftpb::Entry { term: Some(1), index: Some(index), r#type: None, data };
        self.entries.push(entry.clone());
        entry
    }

    pub fn apply_all(&mut self, requests: Vec<InternalRaftRequest>) -> Told {
        let entries: Vec<_> = requests.into_iter().map(|request| self.entry(request)).collect();
        let mut told = Told::default();
        self.applier.apply(&entries, &mut told).unwrap();
        told
    }

    pub fn apply(&mut self, request: InternalRaftRequest) -> Result<Response, Error> {
        self.apply_all(vec![request]).results.pop().unwrap().1
    }

    /// Housekeeping until there is none.
    pub fn settle(&self) {
        while self.store.maintain(64 << 10).unwrap().work != Work::Idle {}
    }

    /// Gives back what nobody uses any more.
    pub fn reap(&self) {
        self.store.segments().reaper().finish().unwrap();
    }

    pub fn checkpoint(&mut self) {
        self.applier.checkpoint().write().unwrap();
    }

    /// Closes the store, opens it from what is on `disk`, and replays. Returns the index that was found applied.
    pub fn reopen_on(&mut self, disk: SimDisk) -> u64 {
        let Opened { store, applier, applied, .. } =
            store::open(Arc::new(disk.clone()), Path::new(DIR), self.options.clone()).unwrap();
        (self.disk, self.store, self.applier) = (disk, store, applier);
        // Each compaction is to leave its own hash, as the first time.
        let compacts = |entry: &raftpb::Entry| {
            InternalRaftRequest::decode(entry.data()).is_ok_and(|request| request.compaction.is_some())
        };
        for part in self.entries[applied.index as usize..].chunk_by(|_, next| !compacts(next)) {
            if part.iter().any(compacts) {
                self.settle();
            }
            self.applier.apply(part, &mut Told::default()).unwrap();
        }
        applied.index
    }

    pub fn reopen(&mut self) -> u64 {
        self.reopen_on(self.disk.clone())
    }

    pub fn range(&self, request: &RangeRequest) -> Result<RangeResponse, Error> {
        self.store.range(request).map(|answer| answer.into_message())
    }
}

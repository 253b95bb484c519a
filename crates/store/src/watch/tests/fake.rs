//! A store that is a list of records.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;

use api::Message;
use api::mvccpb::KeyValue;
use bytes::Bytes;

use crate::sync::Mutex;
use crate::sync::atomic::{AtomicBool, AtomicI64, AtomicUsize, Ordering};
use crate::types::{Loc, Revision};
use crate::watch::{Event, History, Hub, Kind, Options, Record};

/// One change that happened, compacted or not.
#[derive(Clone, Debug)]
pub(super) struct Change {
    pub(super) rev: Revision,
    pub(super) kind: Kind,
    pub(super) kv: KeyValue,
    pub(super) prev: Option<KeyValue>,
}

struct Stored {
    rev: Revision,
    tombstone: bool,
    key: Bytes,
    bytes: Bytes,
}

#[derive(Default)]
struct Data {
    /// Everything that ever happened: what the model expects from.
    changes: Vec<Change>,
    latest: BTreeMap<Bytes, (KeyValue, Loc)>,
    /// What compaction has left.
    records: Vec<Stored>,
}

pub(super) struct Fake {
    hub: Hub,
    data: Mutex<Data>,
    blobs: Arc<Mutex<Vec<Bytes>>>,
    compact: AtomicI64,
    revision: AtomicI64,
    /// Makes the next read of a published event fail, as if its segment had been rewritten.
    pub(super) forgetful: Arc<AtomicBool>,
    /// Says of the next revision only that it is there, as if it had not been built.
    pub(super) unbuilt: AtomicBool,
    /// Compacts to this revision in the middle of the next scan, unless it is 0.
    pub(super) compact_in_scan: AtomicI64,
    /// Records that scans have shown.
    pub(super) scanned: AtomicUsize,
}

impl Fake {
    pub(super) fn new(options: Options) -> Arc<Fake> {
        let blobs: Arc<Mutex<Vec<Bytes>>> = Arc::default();
        let forgetful = Arc::new(AtomicBool::new(false));
        let (all, forget) = (blobs.clone(), forgetful.clone());
        let reader = move |loc: Loc| {
            let known = !forget.swap(false, Ordering::SeqCst);
            known.then(|| all.lock().unwrap()[loc.offset as usize].clone())
        };
        Arc::new(Fake {
            hub: Hub::new(1, Box::new(reader), options),
            data: Mutex::default(),
            blobs,
            compact: AtomicI64::new(-1),
            revision: AtomicI64::new(1),
            forgetful,
            unbuilt: AtomicBool::new(false),
            compact_in_scan: AtomicI64::new(0),
            scanned: AtomicUsize::new(0),
        })
    }

    pub(super) fn revision(&self) -> i64 {
        self.revision.load(Ordering::SeqCst)
    }

    pub(super) fn changes(&self) -> Vec<Change> {
        self.data.lock().unwrap().changes.clone()
    }

    /// One transaction: puts, and deletes (`None`) of keys that are there.
    pub(super) fn write(&self, ops: &[(&[u8], Option<&[u8]>)]) -> i64 {
        let main = self.revision() + 1;
        let mut events = Vec::new();
        let mut data = self.data.lock().unwrap();
        for (key, value) in ops {
            let rev = Revision { main, sub: events.len() as u32 };
            let key = Bytes::copy_from_slice(key);
            let prev = data.latest.remove(&key);
            let (kind, kv, bytes) = match (value, &prev) {
                (None, None) => continue,
                (None, Some(_)) => {
                    let stored = KeyValue { key: key.clone(), ..Default::default() };
                    let kv = KeyValue { mod_revision: main, ..stored.clone() };
                    (Kind::Delete, kv, stored.encode_to_vec())
                }
                (Some(value), prev) => {
                    let kv = KeyValue {
                        key: key.clone(),
                        create_revision: prev.as_ref().map_or(main, |(kv, _)| kv.create_revision),
                        mod_revision: main,
                        version: prev.as_ref().map_or(0, |(kv, _)| kv.version) + 1,
                        value: Bytes::copy_from_slice(value),
                        lease: 0,
                    };
                    (Kind::Put, kv.clone(), kv.encode_to_vec())
                }
            };
            let bytes = Bytes::from(bytes);
            let loc = {
                let mut blobs = self.blobs.lock().unwrap();
                blobs.push(bytes.clone());
                Loc { segment: 0, offset: blobs.len() as u32 - 1, len: bytes.len() as u32 }
            };
            if kind == Kind::Put {
                data.latest.insert(key.clone(), (kv.clone(), loc));
            }
            data.records.push(Stored { rev, tombstone: kind == Kind::Delete, key: key.clone(), bytes });
            let (prev, prev_loc) = prev.unzip();
            data.changes.push(Change { rev, kind, kv, prev });
            events.push(Event { kind, key, rev, loc, prev: prev_loc });
        }
        drop(data);
        if events.is_empty() {
            return main - 1;
        }
        let unbuilt = self.unbuilt.swap(false, Ordering::SeqCst);
        let publication = self.hub.begin();
        self.revision.store(main, Ordering::SeqCst);
        if unbuilt || publication.is_idle() {
            publication.skip_to(main);
        } else {
            publication.publish(&[(main, &events)]);
        }
        main
    }

    pub(super) fn put(&self, key: &str, value: &str) -> i64 {
        self.write(&[(key.as_bytes(), Some(value.as_bytes()))])
    }

    pub(super) fn delete(&self, key: &str) -> i64 {
        self.write(&[(key.as_bytes(), None)])
    }

    /// Moves the watermark and drops at once what no reader may need.
    pub(super) fn compact(&self, revision: i64) {
        assert!(revision <= self.revision() && revision > self.compact_revision());
        self.compact.store(revision, Ordering::SeqCst);
        let mut data = self.data.lock().unwrap();
        let mut newest: BTreeMap<Bytes, Revision> = BTreeMap::new();
        for record in data.records.iter().filter(|record| record.rev.main <= revision) {
            newest.insert(record.key.clone(), record.rev);
        }
        data.records.retain(|record| {
            record.rev.main > revision
                || newest[&record.key] == record.rev && (!record.tombstone || record.rev.main == revision)
        });
    }
}

impl History for Fake {
    fn hub(&self) -> &Hub {
        &self.hub
    }

    fn compact_revision(&self) -> i64 {
        self.compact.load(Ordering::SeqCst)
    }

    fn scan(&self, from: Revision, to: i64, visit: &mut dyn FnMut(Record<'_>) -> ControlFlow<()>) {
        // One record at a time under the lock, so that compaction gets in between.
        let mut after = from;
        loop {
            let next = {
                let data = self.data.lock().unwrap();
                let at = data.records.partition_point(|record| record.rev < after);
                data.records.get(at).map(|record| (record.rev, record.tombstone, record.bytes.clone()))
            };
            let Some((rev, tombstone, bytes)) = next.filter(|(rev, ..)| rev.main <= to) else { return };
            self.scanned.fetch_add(1, Ordering::SeqCst);
            if visit(Record { rev, tombstone, stored: &bytes, share: &|| bytes.clone() }).is_break() {
                return;
            }
            after = Revision { main: rev.main, sub: rev.sub + 1 };
            let compact = self.compact_in_scan.swap(0, Ordering::SeqCst);
            if compact != 0 {
                self.compact(compact);
            }
        }
    }

    fn previous(&self, key: &[u8], main: i64) -> Option<Bytes> {
        let data = self.data.lock().unwrap();
        let before = data.records.iter().rev().find(|record| record.key == key && record.rev.main < main)?;
        (!before.tombstone).then(|| before.bytes.clone())
    }
}

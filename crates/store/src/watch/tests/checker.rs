//! A client that knows what it must get.

use std::collections::BTreeMap;
use std::sync::Arc;

use api::etcdserverpb::{WatchCreateRequest, WatchResponse};
use api::mvccpb;
use api::{KeyRange, Message};
use bytes::BytesMut;

use super::fake::{Change, Fake};
use crate::sync::atomic::{AtomicBool, Ordering};
use crate::watch::{History, Hub, Kind, Origin, Sink, WatchStream};

const ORIGIN: Origin = Origin { cluster_id: 11, member_id: 12, raft_term: 13 };

/// Responses as they were written, with the lengths that were announced.
#[derive(Default)]
struct Pages(Vec<(usize, BytesMut)>);

impl Sink for Pages {
    fn response(&mut self, len: usize) -> &mut BytesMut {
        self.0.push((len, BytesMut::new()));
        &mut self.0.last_mut().expect("it was just added").1
    }
}

/// What one poll writes, decoded as a client does.
pub(super) fn poll(stream: &mut WatchStream, bytes_max: usize) -> Vec<WatchResponse> {
    poll_within(stream, &mut stream.records_max(), bytes_max)
}

/// The same with so many records left to look at.
pub(super) fn poll_within(stream: &mut WatchStream, records_left: &mut usize, bytes_max: usize) -> Vec<WatchResponse> {
    written(|pages| stream.poll_within(records_left, &ORIGIN, bytes_max, pages), bytes_max)
}

/// The same of what waits already.
pub(super) fn answer(stream: &mut WatchStream, bytes_max: usize) -> Vec<WatchResponse> {
    written(|pages| stream.answer(&ORIGIN, bytes_max, pages), bytes_max)
}

fn written(write: impl FnOnce(&mut Pages) -> usize, bytes_max: usize) -> Vec<WatchResponse> {
    let mut pages = Pages::default();
    let bytes = write(&mut pages);
    assert_eq!(bytes, pages.0.iter().map(|(_, page)| page.len()).sum::<usize>());
    let last = pages.0.last().map_or(0, |(len, _)| *len);
    assert!(bytes == 0 || bytes - last < bytes_max, "{bytes} bytes, the last {last} of them beyond {bytes_max}");
    let decode = |(len, page): &(usize, BytesMut)| {
        assert_eq!(page.len(), *len);
        let response = WatchResponse::decode(&page[..]).expect("a response decodes");
        assert_eq!(response.encode_to_vec(), page[..], "hand-made bytes are prost's bytes");
        response
    };
    pages.0.iter().map(decode).collect()
}

/// A watcher as its client sees it.
struct Expectation {
    request: WatchCreateRequest,
    /// Events before this are not for it.
    start: i64,
    /// Position in the list of all changes: everything before was received or is not for it.
    at: usize,
    last_main: i64,
    fragmenting: bool,
}

impl Expectation {
    fn wants(&self, change: &Change) -> bool {
        let key: &[u8] = if self.request.key.is_empty() { b"\0" } else { &self.request.key };
        let filter = match change.kind {
            Kind::Put => 0,
            Kind::Delete => 1,
        };
        change.rev.main >= self.start
            && KeyRange::new(key, &self.request.range_end).contains(&change.kv.key)
            && !self.request.filters.contains(&filter)
    }

    /// The next change it must get.
    fn next<'a>(&mut self, changes: &'a [Change]) -> Option<&'a Change> {
        while let Some(change) = changes.get(self.at) {
            if self.wants(change) {
                return Some(change);
            }
            self.at += 1;
        }
        None
    }
}

/// A stream and what its watchers expect.
pub(super) struct Checker {
    store: Arc<Fake>,
    pub(super) stream: WatchStream,
    woken: Arc<AtomicBool>,
    /// The last poll gave something: there may be more.
    more: bool,
    /// What a poll may write, which changes.
    bytes_max: usize,
    /// With the revision that readers saw then.
    asked: Vec<(WatchCreateRequest, i64)>,
    active: BTreeMap<i64, Expectation>,
    pub(super) fragment_bytes: usize,
    pub(super) compacted: usize,
    pub(super) progressed: usize,
    pub(super) received: usize,
}

impl Checker {
    pub(super) fn new(store: &Arc<Fake>, notify: impl Fn() + Send + Sync + 'static) -> Checker {
        let woken = Arc::new(AtomicBool::new(false));
        let flag = woken.clone();
        let wake = Arc::new(move || {
            flag.store(true, Ordering::SeqCst);
            notify();
        });
        Checker {
            store: store.clone(),
            stream: Hub::open(store.clone(), wake),
            woken,
            more: false,
            bytes_max: 1,
            asked: Vec::new(),
            active: BTreeMap::new(),
            fragment_bytes: store.hub().options().fragment_bytes,
            compacted: 0,
            progressed: 0,
            received: 0,
        }
    }

    pub(super) fn create(&mut self, request: WatchCreateRequest) {
        self.asked.push((request.clone(), self.store.revision()));
        self.stream.create(request);
        self.more = true;
    }

    pub(super) fn ids(&self) -> Vec<i64> {
        self.active.keys().copied().collect()
    }

    pub(super) fn cancel(&mut self, id: i64) {
        self.stream.cancel(id);
        self.more = true;
        // Its answer must be the last that this watcher gets; others that wait may come first.
        while self.active.contains_key(&id) {
            assert!(self.poll_once(), "a cancellation is answered");
        }
    }

    pub(super) fn progress(&mut self) {
        self.stream.progress();
        self.more = true;
    }

    pub(super) fn periodic_progress(&mut self) {
        self.stream.periodic_progress();
        self.more = true;
    }

    /// Polls once if there is reason to. False when there is nothing to do.
    pub(super) fn poll_once(&mut self) -> bool {
        let woken = self.woken.swap(false, Ordering::SeqCst);
        if !woken && !self.more {
            return false;
        }
        // 1, 60, 3600, then 1 again: one response, a few, and all for the same event.
        self.bytes_max = if self.bytes_max > 3_000 { 1 } else { 60 * self.bytes_max };
        let responses = poll(&mut self.stream, self.bytes_max);
        self.more = !responses.is_empty();
        responses.into_iter().for_each(|response| self.check(response));
        true
    }

    pub(super) fn drain(&mut self) {
        while self.poll_once() {}
    }

    /// Whether every request has its answer, and every watcher that begins before `main` has got something of it.
    #[cfg(feature = "schedules")]
    pub(super) fn has_reached(&self, main: i64) -> bool {
        let has_it = |watcher: &Expectation| watcher.start > main || watcher.last_main >= main;
        self.asked.is_empty() && self.active.values().all(has_it)
    }

    /// After a drain with nothing going on: everything has arrived.
    pub(super) fn assert_complete(&mut self) {
        let changes = self.store.changes();
        assert!(self.asked.is_empty(), "every create request was answered");
        for (id, watcher) in &mut self.active {
            let missing = watcher.next(&changes);
            assert!(missing.is_none(), "watcher {id} misses {missing:?}");
            assert!(!watcher.fragmenting, "watcher {id} waits for a fragment");
        }
    }

    fn check(&mut self, response: WatchResponse) {
        let header = response.header.expect("a response has a header");
        assert_eq!((header.cluster_id, header.member_id, header.raft_term), (11, 12, 13));
        if response.created {
            return self.check_created(&response, header.revision);
        }
        if response.watch_id == -1 {
            return self.check_progress(None, header.revision);
        }
        if response.canceled {
            let Some(watcher) = self.active.remove(&response.watch_id) else {
                panic!("watcher {} was not there", response.watch_id)
            };
            if response.compact_revision != 0 {
                self.compacted += 1;
                assert_eq!(header.revision, 0);
                assert!(response.compact_revision <= self.store.compact_revision());
                assert!(watcher.start < response.compact_revision && watcher.last_main < response.compact_revision);
            }
            assert!(response.events.is_empty() && response.cancel_reason.is_empty());
            return;
        }
        if response.events.is_empty() {
            return self.check_progress(Some(response.watch_id), header.revision);
        }
        self.check_events(&response, header.revision);
    }

    fn check_created(&mut self, response: &WatchResponse, revision: i64) {
        let (request, seen) = self.asked.remove(0);
        assert!(revision >= seen, "a watcher begins at {revision}, and readers had seen {seen}");
        assert!(revision <= self.store.revision(), "a watcher begins at {revision}, which readers do not see");
        let start = request.start_revision;
        if response.canceled {
            assert_eq!(response.watch_id, -1);
            assert!(!response.cancel_reason.is_empty());
            return;
        }
        let start = if start == 0 { revision + 1 } else { start };
        assert!(request.watch_id == 0 || request.watch_id == response.watch_id);
        let watcher = Expectation { request, start, at: 0, last_main: 0, fragmenting: false };
        let replaced = self.active.insert(response.watch_id, watcher);
        assert!(replaced.is_none(), "watch id {} was free", response.watch_id);
    }

    fn check_progress(&mut self, id: Option<i64>, revision: i64) {
        self.progressed += 1;
        let changes = self.store.changes();
        for (watch_id, watcher) in &mut self.active {
            if id.is_none_or(|id| id == *watch_id) {
                assert!(id.is_none() || watcher.request.progress_notify);
                assert!(watcher.start <= revision + 1, "progress waits for a future start");
                let next = watcher.next(&changes).map_or(i64::MAX, |change| change.rev.main);
                assert!(next > revision, "progress {revision} promised, but {next} was not delivered");
            }
        }
    }

    fn check_events(&mut self, response: &WatchResponse, revision: i64) {
        let Some(watcher) = self.active.get_mut(&response.watch_id) else {
            panic!("events for watcher {}, which is not there", response.watch_id)
        };
        let changes = self.store.changes();
        let first_main = response.events[0].kv.as_ref().map_or(0, |kv| kv.mod_revision);
        assert!(watcher.fragmenting || first_main > watcher.last_main, "revision {first_main} was split");
        for event in &response.events {
            let Some(change) = watcher.next(&changes) else { panic!("too many events: {event:?}") };
            check_event(event, change, watcher.request.prev_kv, self.store.compact_revision());
            watcher.at += 1;
            watcher.last_main = change.rev.main;
            self.received += 1;
        }
        assert!(revision >= watcher.last_main);
        assert!(watcher.request.fragment || !response.fragment);
        watcher.fragmenting = response.fragment;
        if watcher.request.fragment && response.events.len() > 1 {
            assert!(response.encoded_len() <= self.fragment_bytes);
        }
    }
}

fn check_event(event: &mvccpb::Event, change: &Change, prev_kv: bool, compact_revision: i64) {
    assert_eq!(event.kv.as_ref(), Some(&change.kv), "the next event");
    assert_eq!(event.r#type, change.kind as i32);
    match &event.prev_kv {
        Some(prev) => assert!(prev_kv && Some(prev) == change.prev.as_ref(), "previous value {prev:?}"),
        None if prev_kv => {
            assert!(change.prev.is_none() || change.rev.main <= compact_revision, "previous value is missing");
        }
        None => {}
    }
}

//! Memory for events: what is asked for, and what happens without it.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use api::Message;
use api::etcdserverpb::{WatchCreateRequest, WatchResponse};
use api::limits::WATCH_BYTES_FREE;
use bytes::{Bytes, BytesMut};

use super::fake::Fake;
use crate::watch::{Chunks, Hub, Options, Origin, Room, Sink, WatchStream};

const ORIGIN: Origin = Origin { cluster_id: 11, member_id: 12, raft_term: 13 };
/// Less than is referred to.
const SMALL_BYTES: usize = 10_000;
const LARGE_BYTES: usize = 1 << 20;

/// A client of which much is kept, and the memory that it has.
#[derive(Default)]
struct Client {
    responses: Vec<BytesMut>,
    long: Vec<(Bytes, Chunks)>,
    /// What may be asked for at once.
    room_bytes: usize,
    held: Arc<AtomicUsize>,
    waits_for: Option<usize>,
    /// How often it was asked for memory.
    asked: usize,
}

struct Held(Arc<AtomicUsize>, AtomicUsize);

impl Room for Held {
    fn shrink(&self, bytes: usize) {
        let before = self.1.swap(bytes, Ordering::SeqCst);
        assert!(before >= bytes, "{bytes} of {before} bytes");
        self.0.fetch_sub(before - bytes, Ordering::SeqCst);
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.shrink(0);
    }
}

impl Sink for Client {
    fn response(&mut self, len: usize) -> &mut BytesMut {
        assert!(len <= WATCH_BYTES_FREE, "{len} bytes are copied");
        self.responses.push(BytesMut::new());
        self.responses.last_mut().expect("it was just added")
    }

    fn long_response(&mut self, front: Bytes, events: Chunks) {
        self.long.push((front, events));
    }

    fn room(&mut self, bytes: usize, waits: bool) -> Option<Arc<dyn Room>> {
        assert!(bytes > WATCH_BYTES_FREE, "{bytes} bytes are asked for");
        self.asked += 1;
        if bytes > self.room_bytes {
            if waits {
                self.waits_for = Some(bytes);
            }
            return None;
        }
        self.held.fetch_add(bytes, Ordering::SeqCst);
        Some(Arc::new(Held(self.held.clone(), AtomicUsize::new(bytes))))
    }

    fn is_waiting(&self) -> bool {
        self.waits_for.is_some_and(|bytes| bytes > self.room_bytes)
    }
}

impl Client {
    /// Polls until nothing comes.
    fn poll(&mut self, stream: &mut WatchStream) {
        while stream.poll(&ORIGIN, 1, self) > 0 {}
    }

    /// The mod revisions of the events that have come, which are taken.
    fn events(&mut self) -> Vec<i64> {
        let long = self.long.drain(..).map(|(front, events)| {
            let mut all = BytesMut::from(&front[..]);
            events.iter().for_each(|chunk| all.extend_from_slice(chunk));
            assert_eq!(all.len(), front.len() + events.len());
            all
        });
        let all: Vec<BytesMut> = self.responses.drain(..).chain(long).collect();
        let decoded = all.iter().map(|all| WatchResponse::decode(&all[..]).expect("a response"));
        let mut revisions: Vec<i64> =
            decoded.flat_map(|one| one.events).map(|event| event.kv.map_or(0, |kv| kv.mod_revision)).collect();
        revisions.sort_unstable();
        revisions
    }

    fn held(&self) -> usize {
        self.held.load(Ordering::SeqCst)
    }
}

fn everything(start_revision: i64, prev_kv: bool) -> WatchCreateRequest {
    WatchCreateRequest { range_end: b"\0".to_vec().into(), start_revision, prev_kv, ..Default::default() }
}

/// Writes `count` keys of `len` bytes in one revision.
fn write(store: &Arc<Fake>, count: usize, len: usize) -> i64 {
    let keys: Vec<String> = (0..count).map(|key| format!("k{key:03}")).collect();
    let value = vec![7; len];
    let ops: Vec<(&[u8], Option<&[u8]>)> = keys.iter().map(|key| (key.as_bytes(), Some(&value[..]))).collect();
    store.write(&ops)
}

fn open(store: &Arc<Fake>) -> WatchStream {
    Hub::open(store.clone(), Arc::new(|| {}))
}

#[test]
fn large_values_are_not_copied_and_need_no_room() {
    let store = Fake::new(Options { join_gap_revisions: 0, ..Options::default() });
    for start in [0, 2] {
        let mut client = Client::default();
        let mut stream = open(&store);
        stream.create(everything(start, true));
        let mut last = 0;
        for _ in 0..3 {
            last = write(&store, 3, LARGE_BYTES);
        }
        client.poll(&mut stream);
        assert_eq!((client.waits_for, client.held()), (None, 0));
        for (_, events) in &client.long {
            let built = |chunk: &&Bytes| chunk.len() < SMALL_BYTES;
            let copied: usize = events.iter().filter(built).map(Bytes::len).sum();
            assert!(events.len() > 3 * LARGE_BYTES && copied < 1_000, "{copied} bytes are copied");
        }
        assert_eq!(client.events().last(), Some(&last));
    }
}

#[test]
fn what_there_is_no_room_for_comes_later_once_and_in_order() {
    let store = Fake::new(Options { join_gap_revisions: 0, ..Options::default() });
    let mut other = (open(&store), Client::default());
    other.0.create(WatchCreateRequest { key: "k000".into(), ..Default::default() });
    for is_behind in [false, true] {
        let mut client = Client::default();
        let mut stream = open(&store);
        let create = |stream: &mut WatchStream, start| {
            stream.create(everything(start, false));
            stream.create(WatchCreateRequest { fragment: true, ..everything(start, true) });
        };
        if !is_behind {
            create(&mut stream, 0);
        }
        let first = write(&store, 1, 1);
        let large = [write(&store, 20, SMALL_BYTES), write(&store, 30, SMALL_BYTES)];
        let last = write(&store, 1, 1);
        if is_behind {
            create(&mut stream, first);
        }
        client.poll(&mut stream);
        assert_eq!(client.events(), [first, first]);
        for _ in 0..10 {
            client.poll(&mut stream);
            assert!(client.events().is_empty(), "nothing before the first of them");
            assert!(client.waits_for.take().is_some_and(|bytes| bytes >= 20 * SMALL_BYTES));
        }
        // Nobody waits for it but itself.
        other.1.poll(&mut other.0);
        assert_eq!(other.1.events().last(), Some(&last));
        // There is room for the first: of the log both watches are read at once.
        client.room_bytes = if is_behind { 90 * SMALL_BYTES } else { 25 * SMALL_BYTES };
        stream.poll(&ORIGIN, 1, &mut client);
        assert!(client.held() >= 20 * SMALL_BYTES);
        let mut seen = Vec::new();
        for room_bytes in [client.room_bytes, usize::MAX] {
            client.room_bytes = room_bytes;
            client.poll(&mut stream);
            seen.extend(client.events());
        }
        let wanted = [vec![large[0]; 40], vec![large[1]; 60], vec![last; 2]].concat();
        assert!(seen == wanted, "{seen:?}");
        assert_eq!(client.held(), 0, "it is given back with the bytes");
    }
}

#[test]
fn reading_the_log_goes_on_in_small_steps_without_room() {
    let store = Fake::new(Options { join_gap_revisions: 0, ..Options::default() });
    for _ in 0..100 {
        write(&store, 3, SMALL_BYTES);
    }
    for (room_bytes, responses) in [(0, 50..=100), (usize::MAX, 5..=10)] {
        let mut client = Client { room_bytes, ..Client::default() };
        let mut stream = open(&store);
        stream.create(everything(2, false));
        client.poll(&mut stream);
        assert_eq!(client.waits_for, None);
        let count = client.responses.len() + client.long.len();
        assert!(responses.contains(&count), "{count} responses");
        assert_eq!(client.events().len(), 300);
    }
}

/// How a stream comes to wait.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Place {
    Live,
    Joining,
    Behind,
}

#[test]
fn what_waits_for_room_is_measured_once() {
    for place in [Place::Live, Place::Joining, Place::Behind] {
        let join_gap_revisions = if place == Place::Joining { 10 } else { 0 };
        let store = Fake::new(Options { join_gap_revisions, ..Options::default() });
        let mut client = Client::default();
        let mut stream = open(&store);
        let start = if place == Place::Live { 0 } else { 2 };
        let create = |stream: &mut WatchStream, key: &'static str| {
            let one = WatchCreateRequest { key: key.into(), start_revision: start, ..Default::default() };
            stream.create(WatchCreateRequest { watch_id: 9, ..one });
        };
        if place == Place::Live {
            stream.create(everything(start, false));
            create(&mut stream, "k000");
        }
        let first = write(&store, 20, SMALL_BYTES);
        let last = write(&store, 1, 1);
        if place != Place::Live {
            stream.create(everything(start, false));
            create(&mut stream, "k000");
        }
        client.poll(&mut stream);
        assert!(client.waits_for.is_some() && client.events().is_empty(), "{place:?}");
        let asked = client.asked;
        for _ in 0..10 {
            stream.progress();
            stream.periodic_progress();
            stream.cancel(77);
            stream.refuse("not answered later");
            assert!(stream.poll(&ORIGIN, 1, &mut client) > 0, "{place:?}: an answer needs no memory");
            client.poll(&mut stream);
        }
        assert_eq!(client.asked, asked, "{place:?}: it is looked at again though nothing has changed");

        // Refused for now: it looks again, and waits again.
        client.waits_for = None;
        client.poll(&mut stream);
        assert!(client.waits_for.is_some() && client.asked > asked, "{place:?}");
        client.responses.clear();

        // Without the watch that needs the memory, the stream goes on.
        let mut without = (open(&store), Client::default());
        if place != Place::Live {
            without.0.create(everything(start, false));
            create(&mut without.0, "k000");
            without.1.poll(&mut without.0);
            assert!(without.1.waits_for.is_some(), "{place:?}");
            without.0.cancel(0);
            without.1.poll(&mut without.0);
            assert!(without.1.waits_for.is_some(), "{place:?}: what was asked for is still waited for");
            assert!(!without.0.is_waiting(), "{place:?}: but not needed");
            assert_eq!(without.1.events(), [first, last], "{place:?}");
        }

        client.room_bytes = usize::MAX;
        client.waits_for = None;
        client.poll(&mut stream);
        let mut wanted = [vec![first; 21], vec![last; 2]].concat();
        wanted.sort_unstable();
        assert_eq!(client.events(), wanted, "{place:?}: nothing is lost");
    }
}

#[test]
fn a_compaction_is_told_while_a_stream_waits_for_room() {
    for place in [Place::Live, Place::Joining, Place::Behind] {
        let join_gap_revisions = if place == Place::Joining { 10 } else { 0 };
        let store = Fake::new(Options { join_gap_revisions, ..Options::default() });
        let mut client = Client::default();
        let mut stream = open(&store);
        if place == Place::Live {
            stream.create(everything(0, false));
        }
        let first = write(&store, 20, SMALL_BYTES);
        let last = write(&store, 20, SMALL_BYTES);
        if place == Place::Live {
            // What is live waits in the queue, where no compaction passes it.
            client.poll(&mut stream);
        }
        stream.create(WatchCreateRequest { watch_id: 5, ..everything(first, false) });
        stream.create(WatchCreateRequest { watch_id: 6, ..everything(first, true) });
        stream.create(WatchCreateRequest { watch_id: 7, ..everything(last, false) });
        client.poll(&mut stream);
        assert!(client.waits_for.is_some() && client.events().is_empty(), "{place:?}");
        let asked = client.asked;
        store.compact(first);
        stream.progress();
        client.poll(&mut stream);
        assert_eq!((client.asked, client.responses.len()), (asked, 0), "{place:?}: it has passed none");

        store.compact(last);
        stream.progress();
        client.poll(&mut stream);
        let told: Vec<WatchResponse> =
            client.responses.drain(..).map(|one| WatchResponse::decode(&one[..]).expect("a response")).collect();
        let mut ended: Vec<(i64, bool, i64)> =
            told.iter().map(|one| (one.watch_id, one.canceled, one.compact_revision)).collect();
        ended.sort_unstable();
        assert_eq!(ended, [(5, true, last), (6, true, last)], "{place:?}");
        client.room_bytes = usize::MAX;
        client.poll(&mut stream);
        let live = if place == Place::Live { vec![first; 20] } else { Vec::new() };
        let both = if place == Place::Live { 40 } else { 20 };
        assert_eq!(client.events(), [live, vec![last; both]].concat(), "{place:?}: the others go on");
    }
}

#[test]
fn watches_that_begin_before_a_compaction_are_told_so_while_a_stream_waits_for_room() {
    let store = Fake::new(Options { join_gap_revisions: 0, ..Options::default() });
    let mut client = Client::default();
    let mut stream = open(&store);
    let first = write(&store, 20, SMALL_BYTES);
    let last = write(&store, 20, SMALL_BYTES);
    store.compact(last);
    let mut create = |watch_ids: &[i64], client: &mut Client| {
        for watch_id in watch_ids {
            let start = if *watch_id == 5 { last } else { first };
            stream.create(WatchCreateRequest { watch_id: *watch_id, ..everything(start, false) });
        }
        client.poll(&mut stream);
        let told = client.responses.drain(..).map(|one| WatchResponse::decode(&one[..]).expect("a response"));
        told.map(|one| (one.watch_id, one.canceled, one.compact_revision)).collect::<Vec<_>>()
    };
    // The newest is read first, and waits.
    assert_eq!(create(&[5, 6], &mut client), [(5, false, 0), (6, false, 0), (6, true, last)]);
    assert!(client.waits_for.is_some());
    assert_eq!(create(&[7], &mut client), [(7, false, 0), (7, true, last)], "it is there since the stream waits");
    client.room_bytes = usize::MAX;
    client.poll(&mut stream);
    assert_eq!(client.events(), vec![last; 20], "the other goes on");
}

#[test]
fn a_large_revision_takes_no_memory_before_there_is_room_for_it() {
    for join_gap_revisions in [0, 10] {
        let store = Fake::new(Options { poll_records_max: 10, join_gap_revisions, ..Options::default() });
        let mut client = Client::default();
        let mut stream = open(&store);
        let large = write(&store, 200, SMALL_BYTES);
        stream.create(WatchCreateRequest { watch_id: 8, ..everything(0, false) });
        stream.create(WatchCreateRequest { watch_id: 9, ..everything(large, false) });
        stream.create(WatchCreateRequest { key: "k007".into(), start_revision: large, ..Default::default() });
        let turns = |stream: &mut WatchStream, client: &mut Client| (0..500).for_each(|_| client.poll(stream));
        turns(&mut stream, &mut client);
        assert!(client.waits_for.is_some_and(|bytes| bytes > 200 * SMALL_BYTES) && client.events().is_empty());
        let (asked, scanned) = (client.asked, store.scanned.load(Ordering::SeqCst));
        stream.cancel(77);
        stream.refuse("not measured again");
        turns(&mut stream, &mut client);
        assert_eq!((client.asked, store.scanned.load(Ordering::SeqCst)), (asked, scanned));

        // What has room is read to its end: it does not wait with that for more.
        client.room_bytes = usize::MAX;
        client.waits_for = None;
        while client.held() == 0 {
            stream.poll(&ORIGIN, 1, &mut client);
        }
        assert!(store.scanned.load(Ordering::SeqCst) - scanned < 20);
        client.room_bytes = 0;
        let live = write(&store, 20, SMALL_BYTES);
        turns(&mut stream, &mut client);
        assert!(client.waits_for.is_some());
        assert_eq!(client.events(), [large; 201]);
        assert_eq!(client.held(), 0);
        client.room_bytes = usize::MAX;
        client.waits_for = None;
        turns(&mut stream, &mut client);
        assert_eq!(client.events(), [live; 41]);

        // The watch alone that needs the memory is gone: while it waits, and while it is measured.
        client.room_bytes = 0;
        for polls in [500, 5] {
            stream.create(WatchCreateRequest { watch_id: 10, ..everything(large, true) });
            stream.create(WatchCreateRequest { key: "k008".into(), start_revision: large, ..Default::default() });
            (0..polls).for_each(|_| client.poll(&mut stream));
            assert_eq!(client.waits_for.take().is_some(), polls == 500);
            assert!(client.events().is_empty());
            stream.cancel(10);
            turns(&mut stream, &mut client);
            assert_eq!((client.waits_for, client.events()), (None, vec![large, live]));
        }
    }
}

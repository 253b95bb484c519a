//! Queues that are long, and what happens where all of them hold too much.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use api::etcdserverpb::WatchCreateRequest;

use super::fake::Fake;
use super::rules::{all, mains, next, on, open};
use crate::watch::stream_queue::{Item, LiveEvent, LiveRevision};
use crate::watch::{History, Kind, Options, WatchStream};

/// A stream with a watch.
fn created(store: &Arc<Fake>, key: &str) -> WatchStream {
    let mut stream = open(store);
    stream.create(on(key));
    assert_eq!(all(&mut stream).len(), 1);
    stream
}

#[test]
fn queues_that_nobody_takes_from_are_given_up_where_all_hold_too_much() {
    let store = Fake::new(Options { all_queues_events_max: 400, long_queue_events: 50, ..Options::default() });
    let mut streams: Vec<WatchStream> = (0..12).map(|_| open(&store)).collect();
    for stream in &mut streams {
        stream.create(on("a"));
        assert_eq!(all(stream).len(), 1);
    }
    // They stop reading later: that they once did saves them nothing.
    store.put("a", "x");
    assert!(streams.iter_mut().all(|stream| all(stream).len() == 1));
    let (mut last, mut first) = (streams.pop().expect("a stream"), streams.remove(0));
    let metrics = store.hub().metrics();
    for put in 0..300 {
        store.put("a", "x");
        assert!(metrics.pending_events() <= 1_000, "put {put}: {} wait", metrics.pending_events());
        assert_eq!((all(&mut first).len(), all(&mut last).len()), (1, 1));
        store.hub().check_queues();
    }
    // No more are given up than have to be: three queues of 300 may stay.
    assert_eq!(metrics.slow_watchers(), 7);
    assert_eq!(store.scanned.load(Ordering::SeqCst), 0, "who reads has read nothing from the log");
    for mut stream in streams {
        let told: Vec<i64> = all(&mut stream).iter().flat_map(mains).collect();
        assert_eq!(told, (3..303).collect::<Vec<_>>());
    }
    assert_eq!((metrics.slow_watchers(), metrics.pending_events()), (0, 0));
}

#[test]
fn a_long_queue_that_gets_nothing_more_is_given_up_before_one_that_is_read() {
    let store = Fake::new(Options { all_queues_events_max: 400, long_queue_events: 50, ..Options::default() });
    let (mut quiet, mut reading) = (open(&store), open(&store));
    quiet.create(on("a"));
    reading.create(on("b"));
    assert_eq!((all(&mut quiet).len(), all(&mut reading).len()), (1, 1));
    store.put("a", "x");
    assert_eq!(all(&mut quiet).len(), 1);
    let metrics = store.hub().metrics();
    let mut burst = || {
        for _ in 0..60 {
            store.put("b", "x");
        }
        assert!(metrics.pending_events() <= 500);
        assert_eq!(all(&mut reading).len(), 60);
    };
    // Long for a moment: who reads is the first in the line, until the queue is long again.
    burst();
    for _ in 0..450 {
        store.put("a", "x");
    }
    assert_eq!(metrics.slow_watchers(), 0);
    burst();
    assert_eq!(metrics.slow_watchers(), 1);
    assert_eq!(store.scanned.load(Ordering::SeqCst), 0, "who reads has read nothing from the log");
    assert_eq!(all(&mut quiet).iter().flat_map(mains).count(), 450);
}

#[test]
fn a_queue_that_was_given_up_can_be_given_up_again() {
    let store = Fake::new(Options {
        queue_events_max: 200,
        all_queues_events_max: 50,
        long_queue_events: 50,
        ..Options::default()
    });
    let (mut stalled, mut other) = (open(&store), open(&store));
    stalled.create(WatchCreateRequest { range_end: b"b".to_vec().into(), ..on("a") });
    other.create(on("b"));
    assert_eq!((all(&mut stalled).len(), all(&mut other).len()), (1, 1));
    let metrics = store.hub().metrics();
    let keys: Vec<String> = (0..100).map(|number| format!("a{number}")).collect();
    let many: Vec<(&[u8], Option<&[u8]>)> = keys.iter().map(|key| (key.as_bytes(), Some(&b"x"[..]))).collect();
    let told = |stream: &mut WatchStream| all(stream).iter().flat_map(mains).count();
    for _ in 0..3 {
        // Too long by itself while it is in the line, then level again.
        for _ in 0..140 {
            store.put("a", "x");
        }
        assert_eq!(metrics.slow_watchers(), 0);
        store.write(&many);
        assert_eq!(metrics.slow_watchers(), 1);
        assert_eq!(told(&mut stalled), 240);
        assert_eq!((metrics.slow_watchers(), metrics.pending_events()), (0, 0));
        // Long again, and given up for the other one's sake.
        for _ in 0..100 {
            store.put("a", "x");
        }
        for _ in 0..60 {
            store.put("b", "x");
        }
        assert_eq!((metrics.slow_watchers(), metrics.pending_events()), (1, 60));
        store.hub().check_queues();
        assert_eq!((told(&mut stalled), told(&mut other)), (100, 60));
    }
}

#[test]
fn a_long_queue_that_ends_leaves_the_line() {
    let store = Fake::new(Options { all_queues_events_max: 0, long_queue_events: 50, ..Options::default() });
    let (mut ending, mut stalled) = (open(&store), open(&store));
    ending.create(on("a"));
    stalled.create(on("b"));
    assert_eq!((all(&mut ending).len(), all(&mut stalled).len()), (1, 1));
    for _ in 0..60 {
        store.put("a", "x");
    }
    drop(ending);
    store.hub().check_queues();
    // The next stream has its number.
    let mut next = open(&store);
    next.create(on("c"));
    assert_eq!(all(&mut next).len(), 1);
    for _ in 0..101 {
        store.put("b", "x");
    }
    store.hub().check_queues();
    let metrics = store.hub().metrics();
    assert_eq!((metrics.slow_watchers(), metrics.pending_events()), (1, 0));
    assert_eq!(all(&mut stalled).iter().flat_map(mains).count(), 101);
}

#[test]
fn one_publication_gives_up_as_many_queues_as_it_has_made_long() {
    const STREAMS: usize = 3_000;
    let store = Fake::new(Options { all_queues_events_max: 0, long_queue_events: 2, ..Options::default() });
    let mut streams: Vec<WatchStream> = (0..STREAMS).map(|_| open(&store)).collect();
    for stream in &mut streams {
        stream.create(WatchCreateRequest { range_end: b"b".to_vec().into(), ..on("a") });
    }
    let keys: Vec<String> = (0..30).map(|number| format!("a{number}")).collect();
    store.write(&keys.iter().map(|key| (key.as_bytes(), Some(&b"x"[..]))).collect::<Vec<_>>());
    let pending = store.hub().metrics().pending_events();
    assert!(pending <= 2 * STREAMS as i64, "{pending} wait");
    store.hub().check_queues();
}

#[test]
fn a_queue_that_was_long_gives_its_room_back_while_it_is_read() {
    let store = Fake::new(Options::default());
    let mut stream = open(&store);
    stream.create(on("a"));
    for _ in 0..5_000 {
        store.put("a", "x");
    }
    while store.hub().metrics().pending_events() > 100 {
        next(&mut stream).expect("a response");
        store.hub().check_queues();
    }
    assert!(store.hub().metrics().pending_events() > 0);
}

#[test]
fn what_is_given_up_is_not_freed_in_one_publication() {
    let store = Fake::new(Options { queue_events_max: 3_000, ..Options::default() });
    let mut reading = open(&store);
    reading.create(WatchCreateRequest { range_end: b"c".to_vec().into(), ..on("b") });
    let mut streams: Vec<WatchStream> = (0..2).map(|_| open(&store)).collect();
    for stream in &mut streams {
        stream.create(on("a"));
        assert_eq!(all(stream).len(), 1);
    }
    for _ in 0..3_010 {
        store.put("a", "x");
    }
    // One publication was too much, nine had nothing for the streams, and each has freed some.
    assert_eq!(store.hub().forgotten(), 6_000 - 10 * 64);
    // Whole chunks are freed: up to 63 entries more.
    store.hub().free_forgotten(4_000);
    let left = store.hub().forgotten();
    assert!((2_000 - 11 * 64..=2_000 - 10 * 64).contains(&left), "{left}");
    // A publication frees as many as it hands over.
    let keys: Vec<String> = (0..1_000).map(|number| format!("b{number}")).collect();
    store.write(&keys.iter().map(|key| (key.as_bytes(), Some(&b"x"[..]))).collect::<Vec<_>>());
    assert!((left - 1_064..=left - 1_000).contains(&store.hub().forgotten()), "{left}");
    store.hub().free_forgotten(4_000);
    assert_eq!(store.hub().forgotten(), 0);
}

#[test]
fn with_more_streams_each_keeps_less() {
    let store = Fake::new(Options {
        all_queues_events_max: 0,
        long_queue_events: 50,
        short_queues_events_max: 400,
        ..Options::default()
    });
    let mut first: Vec<WatchStream> = (0..8).map(|_| created(&store, "a")).collect();
    for _ in 0..50 {
        store.put("a", "x");
    }
    let metrics = store.hub().metrics();
    assert_eq!((metrics.slow_watchers(), metrics.pending_events()), (0, 400));
    let others: Vec<WatchStream> = (0..392).map(|_| created(&store, "b")).collect();
    assert_eq!((metrics.slow_watchers(), metrics.pending_events()), (0, 400));
    // One event each is short; for those with 50 nothing more comes, and yet they are found.
    store.put("b", "x");
    assert_eq!((metrics.slow_watchers(), metrics.pending_events()), (8, 392));
    assert!(first.iter_mut().all(|stream| all(stream).iter().flat_map(mains).count() == 50));
    drop(others);
    assert_eq!((metrics.slow_watchers(), metrics.pending_events()), (0, 0));
}

#[test]
fn one_publication_gives_up_as_much_as_it_has_queued() {
    let store = Fake::new(Options { all_queues_events_max: 1_600, long_queue_events: 1, ..Options::default() });
    // As many in the line as a publication looks at, with little each, before one with much.
    let streams: Vec<WatchStream> = (0..1_500)
        .map(|_| {
            let mut stream = open(&store);
            stream.create(on("a"));
            assert_eq!(all(&mut stream).len(), 1);
            stream
        })
        .collect();
    store.put("a", "x");
    store.put("a", "x");
    let mut other = open(&store);
    other.create(WatchCreateRequest { range_end: b"c".to_vec().into(), ..on("b") });
    assert_eq!(all(&mut other).len(), 1);
    let keys: Vec<String> = (0..3_500).map(|number| format!("b{number}")).collect();
    store.write(&keys.iter().map(|key| (key.as_bytes(), Some(&b"x"[..]))).collect::<Vec<_>>());
    let pending = store.hub().metrics().pending_events();
    assert!(pending <= 3_101, "{pending} wait");
    store.hub().check_queues();
    drop(streams);
    assert_eq!(all(&mut other).iter().flat_map(mains).count(), 3_500);
}

#[test]
fn progress_that_is_asked_for_again_and_again_takes_one_place() {
    let store = Fake::new(Options::default());
    let mut stream = open(&store);
    stream.create(on("a"));
    assert_eq!(all(&mut stream).len(), 1);
    for _ in 0..3 {
        store.put("a", "x");
        (0..1_000).for_each(|_| stream.progress());
    }
    let told = all(&mut stream);
    assert!(told.len() <= 70, "{} responses", told.len());
    // The last one comes after all events.
    assert_eq!(told.iter().flat_map(mains).collect::<Vec<_>>(), [2, 3, 4]);
    let last = told.last().expect("a response");
    assert_eq!((last.watch_id, last.header.as_ref().expect("a header").revision), (-1, 4));
}

#[test]
fn progress_never_goes_back() {
    let store = Fake::new(Options::default());
    let mut stream = open(&store);
    stream.create(WatchCreateRequest { progress_notify: true, ..on("a") });
    assert_eq!(all(&mut stream).len(), 1);
    stream.periodic_progress();
    stream.progress();
    store.put("b", "x");
    stream.periodic_progress();
    let levels: Vec<(i64, i64)> = all(&mut stream)
        .iter()
        .map(|response| (response.watch_id, response.header.as_ref().expect("a header").revision))
        .collect();
    assert!(levels.is_sorted_by_key(|(_, level)| *level), "{levels:?}");
    assert_eq!(levels.len(), 2, "{levels:?}");
}

#[test]
fn a_stream_that_wants_little_of_a_revision_keeps_little_of_it() {
    let event = |number: usize| LiveEvent { kind: Kind::Put, stored: vec![number as u8].into(), prev: None };
    let revision = Arc::new(LiveRevision { main: 7, events: (0..100).map(event).collect() });
    let Item { revision: own, hits } = Item::of(&revision, vec![(1, 4), (2, 4), (1, 50), (3, 99)], 4);
    let stored: Vec<u8> = own.events.iter().map(|event| event.stored[0]).collect();
    assert_eq!((own.main, stored), (7, vec![4, 50, 99]));
    assert_eq!(hits, [(1, 0), (2, 0), (1, 1), (3, 2)]);
    let quarter: Vec<(u32, u32)> = (0..25).map(|number| (1, number * 4)).collect();
    let Item { revision: shared, hits } = Item::of(&revision, quarter.clone(), 4);
    assert!(Arc::ptr_eq(&shared, &revision));
    assert_eq!(hits, quarter);
}

#[test]
fn queues_in_the_line_are_not_swept() {
    let store = Fake::new(Options {
        all_queues_events_max: 4_000,
        long_queue_events: 3,
        short_queues_events_max: 12_000,
        ..Options::default()
    });
    // Those with the smaller numbers are behind the others in the line.
    let behind: Vec<WatchStream> = (0..2_000).map(|_| created(&store, "b")).collect();
    let before: Vec<WatchStream> = (0..2_000).map(|_| created(&store, "a")).collect();
    for key in ["a", "a", "a", "a", "b", "b", "b", "b"] {
        store.put(key, "x");
    }
    let metrics = store.hub().metrics();
    assert_eq!((metrics.slow_watchers(), metrics.pending_events()), (0, 16_000));
    // Now it is too much by more than the part of the line that one publication looks at.
    let others: Vec<WatchStream> = (0..3_000).map(|_| created(&store, "c")).collect();
    let mut one = created(&store, "d");
    store.put("d", "x");
    store.hub().check_queues();
    assert_eq!(metrics.pending_events(), 16_001 - 1_024 * 4);
    store.put("d", "x");
    store.hub().check_queues();
    assert!(metrics.pending_events() <= 11_001);
    assert_eq!(all(&mut one).len(), 2);
    drop((behind, before, others));
    assert_eq!((metrics.slow_watchers(), metrics.pending_events()), (0, 0));
}

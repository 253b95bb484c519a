//! Revisions with more records than a turn looks at.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use api::etcdserverpb::WatchCreateRequest;

use super::checker::Checker;
use super::fake::Fake;
use crate::watch::{History, Options};

const RECORDS_MAX: usize = 50;
const KEYS: usize = 1_000;

fn store(join_gap_revisions: i64) -> Arc<Fake> {
    Fake::new(Options { poll_records_max: RECORDS_MAX, join_gap_revisions, fragment_bytes: 500, ..Options::default() })
}

/// Puts all keys in one revision.
fn write(store: &Arc<Fake>) -> i64 {
    let keys: Vec<String> = (0..KEYS).map(|key| format!("k{key:03}")).collect();
    let ops: Vec<(&[u8], Option<&[u8]>)> = keys.iter().map(|key| (key.as_bytes(), Some(key.as_bytes()))).collect();
    store.write(&ops)
}

fn on(key: &str, start_revision: i64) -> WatchCreateRequest {
    WatchCreateRequest { key: key.as_bytes().to_vec().into(), start_revision, ..Default::default() }
}

fn everything(start_revision: i64) -> WatchCreateRequest {
    WatchCreateRequest { range_end: b"\0".to_vec().into(), ..on("", start_revision) }
}

/// Polls until nothing comes, each time a bounded part of the log. Returns how often it was read.
fn turns(store: &Arc<Fake>, checker: &mut Checker) -> usize {
    std::iter::from_fn(|| turn(store, checker)).filter(|looked| *looked > 0).count()
}

/// Polls once. Returns how many records were looked at.
fn turn(store: &Arc<Fake>, checker: &mut Checker) -> Option<usize> {
    let before = store.scanned.load(Ordering::SeqCst);
    let polled = checker.poll_once();
    let looked = store.scanned.load(Ordering::SeqCst) - before;
    assert!(looked < 3 * RECORDS_MAX, "{looked} records in a turn");
    polled.then_some(looked)
}

/// Watches of all kinds, and how many events of [`write`] each gets.
fn watches(start: i64) -> [(WatchCreateRequest, usize); 7] {
    [
        (on("other", start), 0),
        (on("k500", start), 1),
        (WatchCreateRequest { range_end: b"k7".to_vec().into(), prev_kv: true, ..on("k3", start) }, 400),
        (everything(start), KEYS),
        (WatchCreateRequest { filters: vec![0], ..everything(start) }, 0),
        (WatchCreateRequest { prev_kv: true, ..everything(start) }, KEYS),
        (WatchCreateRequest { fragment: true, ..everything(start) }, KEYS),
    ]
}

#[test]
fn a_large_revision_is_read_in_several_turns() {
    for join_gap_revisions in [0, 1_000] {
        let store = store(join_gap_revisions);
        store.put("k500", "before");
        store.put("other", "before");
        let large = write(&store);
        store.put("k500", "after");
        for start in [large - 2, large] {
            for (watch, events) in watches(start) {
                let mut checker = Checker::new(&store, || {});
                checker.create(watch.clone());
                assert!(turns(&store, &mut checker) >= KEYS / RECORDS_MAX / 2);
                checker.assert_complete();
                assert!(checker.received >= events, "{} of {events} for {watch:?}", checker.received);
            }
            let mut checker = Checker::new(&store, || {});
            watches(start).into_iter().for_each(|(watch, _)| checker.create(watch));
            turns(&store, &mut checker);
            checker.assert_complete();
        }
    }
}

#[test]
fn watches_come_and_go_while_a_large_revision_is_read() {
    for join_gap_revisions in [0, 1_000] {
        let store = store(join_gap_revisions);
        write(&store);
        let large = write(&store);
        for steps in [2, 12, 24, 36, 48] {
            let mut checker = Checker::new(&store, || {});
            watches(large).into_iter().for_each(|(watch, _)| checker.create(watch));
            (0..steps).for_each(|_| _ = turn(&store, &mut checker));
            checker.create(everything(large));
            checker.create(on("k700", 0));
            checker.create(on("k700", large - 1));
            if let Some(first) = checker.ids().first() {
                checker.cancel(*first);
            }
            store.put("k700", "live");
            checker.progress();
            turns(&store, &mut checker);
            checker.assert_complete();
            // All are gone at once.
            checker.create(everything(large));
            (0..steps).for_each(|_| _ = turn(&store, &mut checker));
            checker.ids().into_iter().for_each(|id| checker.cancel(id));
            turns(&store, &mut checker);
            assert_eq!(store.hub().metrics().slow_watchers(), 0);
        }
    }
}

#[test]
fn a_large_revision_is_compacted_while_it_is_read() {
    for join_gap_revisions in [0, 1_000] {
        for is_passed in [false, true] {
            for steps in [1, 12, 24, 36] {
                let store = store(join_gap_revisions);
                write(&store);
                let large = write(&store);
                let last = write(&store);
                let mut checker = Checker::new(&store, || {});
                checker.create(WatchCreateRequest { prev_kv: true, ..everything(large) });
                (0..steps).for_each(|_| _ = turn(&store, &mut checker));
                assert_eq!(checker.received, 0, "it is not divided");
                store.compact(if is_passed { last } else { large });
                turns(&store, &mut checker);
                assert_eq!(checker.compacted, usize::from(is_passed));
                // What the compaction has taken away is not told.
                assert!(is_passed == (checker.received == 0), "{} events", checker.received);
            }
        }
    }
}

//! Streams register, poll and end while the applier publishes and compaction goes on, under many schedules.
//!
//! Whatever the schedule, every watcher gets each of its events once and in order ([`Checker`] compares), from a start that is not
//! behind what readers had seen; and a stream that found nothing is woken when there is something, or its thread would wait for ever.

use std::sync::Arc;

use api::etcdserverpb::WatchCreateRequest;
use schedules::sync::{Condvar, Mutex};
use schedules::{explore, finds, roll, thread};

use super::checker::Checker;
use super::fake::Fake;
use crate::mistake::Mistake;
use crate::watch::{History, Options};

const STREAMS: usize = 2;
const WRITES: u64 = 5;

/// A thread that waits for a stream.
#[derive(Default)]
struct Bell {
    is_rung: Mutex<bool>,
    rung: Condvar,
}

impl Bell {
    fn ring(&self) {
        *self.is_rung.lock().unwrap() = true;
        self.rung.notify_one();
    }

    fn wait(&self) {
        let mut is_rung = self.is_rung.lock().unwrap();
        while !*is_rung {
            is_rung = self.rung.wait(is_rung).unwrap();
        }
        *is_rung = false;
    }
}

fn request(store: &Fake) -> WatchCreateRequest {
    let start_revision = match roll(3) {
        0 => 0,
        1 => (store.revision() - roll(4) as i64).max(1),
        // One that is not there yet.
        _ => store.revision() + roll(3) as i64,
    };
    WatchCreateRequest {
        key: "a".into(),
        range_end: [vec![0], b"c".to_vec()][roll(2) as usize].clone().into(),
        start_revision,
        prev_kv: roll(2) == 0,
        ..Default::default()
    }
}

/// Serves a stream until every watcher has got the revision `last`, which is for all of them.
fn serve(store: &Arc<Fake>, last: i64) {
    let bell = Arc::new(Bell::default());
    let ring = bell.clone();
    let mut checker = Checker::new(store, move || ring.ring());
    checker.create(request(store));
    let mut requests = roll(4);
    loop {
        while checker.poll_once() {
            if requests > 0 {
                requests -= 1;
                match (roll(4), checker.ids().first()) {
                    (0 | 1, _) => checker.create(request(store)),
                    (2, Some(id)) => checker.cancel(*id),
                    _ => checker.progress(),
                }
            }
        }
        if checker.has_reached(last) {
            checker.assert_complete();
            return;
        }
        bell.wait();
    }
}

fn streams_and_a_publisher() {
    let store = Fake::new(Options {
        queue_events_max: 2 + roll(4) as usize,
        all_queues_events_max: [3, 1 << 20][roll(2) as usize],
        long_queue_events: roll(3) as usize,
        short_queues_events_max: 2,
        catch_up_revisions_max: 2,
        poll_records_max: 3,
        join_gap_revisions: roll(3) as i64,
        ..Options::default()
    });
    let before = 1 + roll(3);
    for _ in 0..before {
        store.put("a", "before");
    }
    let last = store.revision() + WRITES as i64;
    let streams: Vec<_> = (0..STREAMS)
        .map(|_| {
            let store = store.clone();
            thread::spawn(move || serve(&store, last))
        })
        .collect();
    for number in 0..WRITES {
        store.write(&[(b"a", Some(b"value")), (b"b", (roll(2) == 0).then_some(b"value".as_slice()))]);
        if number == 2 && roll(3) == 0 {
            store.compact(store.revision() - 1);
        }
    }
    for stream in streams {
        stream.join().unwrap();
    }
    assert!(store.hub().is_idle());
    assert_eq!(store.hub().metrics().pending_events(), 0);
}

#[test]
fn each_event_once_and_in_order() {
    explore(streams_and_a_publisher);
}

#[test]
fn planted_races_are_found() {
    for mistake in [Mistake::LevelBeforeRegistration, Mistake::SleepsAfterLook] {
        finds(mistake as u8, streams_and_a_publisher);
    }
}

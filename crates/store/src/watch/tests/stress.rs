//! A publisher and many readers at once.

#![allow(clippy::disallowed_methods, reason = "a test with threads starts them and waits for them")]

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use api::etcdserverpb::WatchCreateRequest;

use super::checker::Checker;
use super::fake::Fake;
use crate::watch::{History, Options};

const READERS: u64 = 4;
const WRITES: u64 = 4_000;

/// A small generator: the test needs variety, not quality.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % sides
    }
}

fn read(store: &Arc<Fake>, seed: u64, done: &AtomicBool, has_events: &AtomicBool) -> (usize, usize) {
    let mut dice = Dice(seed * 7_919 + 1);
    let bell = Arc::new((Mutex::new(false), Condvar::new()));
    let ring = bell.clone();
    let mut checker = Checker::new(store, move || {
        *ring.0.lock().unwrap() = true;
        ring.1.notify_one();
    });
    loop {
        let finished = done.load(Ordering::SeqCst);
        for _ in 0..dice.roll(200) {
            if !checker.poll_once() {
                break;
            }
        }
        if checker.received > 0 {
            has_events.store(true, Ordering::SeqCst);
        }
        match dice.roll(20) {
            0..=2 => {
                let back = dice.roll(30) as i64 - 3;
                let key = vec![b'a' + dice.roll(8) as u8];
                checker.create(WatchCreateRequest {
                    range_end: [vec![], vec![0], vec![key[0] + 2]][dice.roll(3) as usize].clone().into(),
                    key: key.into(),
                    start_revision: if dice.roll(2) == 0 { 0 } else { (store.revision() - back).max(0) },
                    prev_kv: dice.roll(2) == 0,
                    fragment: dice.roll(2) == 0,
                    ..Default::default()
                });
            }
            3..=4 => {
                let ids = checker.ids();
                if !ids.is_empty() {
                    checker.cancel(ids[dice.roll(ids.len() as u64) as usize]);
                }
            }
            5 => checker.progress(),
            6 => std::thread::sleep(Duration::from_micros(dice.roll(3_000))),
            _ => {}
        }
        if finished {
            // Only wakes say that there is more: a lost one shows as a missing event.
            checker.drain();
            checker.assert_complete();
            return (checker.received, checker.compacted);
        }
        let rung = bell.0.lock().unwrap();
        let mut rung = bell.1.wait_timeout_while(rung, Duration::from_micros(200), |rung| !*rung).unwrap().0;
        *rung = false;
    }
}

#[test]
fn readers_and_a_publisher() {
    let store = Fake::new(Options {
        queue_events_max: 64,
        all_queues_events_max: 150,
        long_queue_events: 5,
        short_queues_events_max: 20,
        catch_up_revisions_max: 20,
        poll_records_max: 50,
        join_gap_revisions: 10,
        fragment_bytes: 200,
        ..Options::default()
    });
    let done = AtomicBool::new(false);
    let have_events: Vec<AtomicBool> = (0..READERS).map(|_| AtomicBool::new(false)).collect();
    std::thread::scope(|scope| {
        let readers: Vec<_> = (1..)
            .zip(&have_events)
            .map(|(seed, has_events)| {
                let (store, done) = (&store, &done);
                scope.spawn(move || read(store, seed, done, has_events))
            })
            .collect();
        let mut dice = Dice(4_711);
        for number in 0.. {
            // On a busy machine a reader may not have had its first turn by the last write.
            if number >= WRITES {
                if have_events.iter().all(|has_events| has_events.load(Ordering::SeqCst)) {
                    break;
                }
                std::thread::sleep(Duration::from_millis(1));
            }
            let value = number.to_string();
            let first = b'a' + dice.roll(8) as u8;
            let put = dice.roll(4) != 0;
            store.write(&[(&[first], put.then_some(value.as_bytes())), (&[first + 1], Some(value.as_bytes()))]);
            if dice.roll(500) == 0 && store.revision() > 40 {
                store.compact(store.revision() - 40);
            }
            if dice.roll(100) == 0 {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        done.store(true, Ordering::SeqCst);
        for reader in readers {
            let (received, _) = reader.join().expect("a reader is content");
            assert!(received > 0);
        }
    });
    assert!(store.hub().is_idle());
    assert_eq!(store.hub().metrics().pending_events(), 0);
}

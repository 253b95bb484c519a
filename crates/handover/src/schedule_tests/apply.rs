//! Consensus commits entries and applies some of them in place, the apply thread the others; reads wait for an index.
//!
//! Whatever the schedule, entries are applied once and in order, one thread at a time; who waits until all are applied finds them applied;
//! and consensus is told that the store is idle, or has got to the index that a read waits for, or it would wait for ever.

use crate::mistake::Mistake;
use crate::sync::{Mutex, lock};
use crate::{Applied, Inbox, SharedApplyQueue};
use api::raftpb::Entry;
use schedules::{explore, finds, roll, thread};
use std::sync::Arc;
use std::time::{Duration, Instant};

const IN_PLACE_ENTRIES_MAX: usize = 1;
const ROUNDS: usize = 4;

struct Store {
    /// The indexes that were applied.
    entries: Mutex<Vec<u64>>,
    applied: Applied,
}

impl Store {
    /// Applies, and answers whether a read waits for that.
    fn apply(&self, batch: &[Entry]) -> bool {
        let Some(mut entries) = crate::sync::try_lock(&self.entries) else { panic!("two threads apply") };
        for entry in batch {
            let last = entries.last().copied().unwrap_or(0);
            assert_eq!(entry.index(), last + 1, "entries are applied in order");
            entries.push(entry.index());
            thread::yield_now();
        }
        self.applied.set(entries.last().copied().unwrap_or(0))
    }
}

fn consensus_and_the_apply_thread() {
    let queue = Arc::new(SharedApplyQueue::<u64>::new(IN_PLACE_ENTRIES_MAX));
    let store = Arc::new(Store { entries: Mutex::default(), applied: Applied::default() });
    let inbox = Arc::new(Inbox::<usize>::default());
    let worker = {
        let (queue, store, inbox) = (queue.clone(), store.clone(), inbox.clone());
        thread::spawn(move || {
            let nudge = || inbox.push(|nudges| *nudges += 1);
            let apply = |entries: Vec<Entry>, since: u64| {
                assert!(
                    entries.iter().any(|entry| entry.index() == since),
                    "a batch has the time of one of its offers"
                );
                if store.apply(&entries) {
                    nudge();
                }
            };
            queue.run(apply, nudge);
        })
    };
    let wait_for_nudge = || inbox.take(Instant::now() + Duration::from_secs(3600), std::mem::take);
    let mut committed = 0;
    for _ in 0..ROUNDS {
        let count = 1 + roll(2);
        let entry = |index| Entry { index: Some(index), ..Entry::default() };
        let entries: Vec<Entry> = (committed + 1..=committed + count).map(entry).collect();
        committed += count;
        if let Some(entries) = queue.offer(entries, || committed) {
            store.apply(&entries);
        }
        match roll(4) {
            // A configuration change waits for everything before it.
            0 => {
                while !queue.is_idle_or_tells() {
                    wait_for_nudge();
                }
                assert_eq!(store.applied.index(), committed);
            }
            // A read waits for its index.
            1 => {
                while store.applied.wait_for(Some(committed)) {
                    wait_for_nudge();
                }
                store.applied.wait_for(None);
                assert!(lock(&store.entries).contains(&committed));
            }
            // A snapshot is installed.
            2 => {
                queue.wait_idle();
                assert_eq!(store.applied.index(), committed);
            }
            _ => {}
        }
    }
    queue.wait_idle();
    queue.stop();
    worker.join().unwrap();
    assert_eq!(*lock(&store.entries), (1..=committed).collect::<Vec<_>>());
}

#[test]
fn entries_are_applied_once_and_in_order() {
    explore(consensus_and_the_apply_thread);
}

#[test]
fn planted_races_are_found() {
    for mistake in [Mistake::ApplierSleepsAfterLook, Mistake::DoneBeforeApplied, Mistake::LooksBeforeAwaiting] {
        finds(mistake as u8, consensus_and_the_apply_thread);
    }
}

//! Prints what the log and recovery cost on the operating system's disk. Not a test of anything; run it by name, in release:
//! `cargo test --release -p cairn-store -- --ignored --nocapture speed`.

use crate::checkpoint::Checkpoint;
use crate::log::{KvParts, Options};
use crate::recovery::open;
use crate::types::{Revision, Version};
use disk::OsDisk;
use disk::sim::Random;
use std::sync::Arc;
use std::time::Duration;

const RECORDS: i64 = 1_000_000;

/// Time that this thread was running, by the kernel's books: other work on the machine does not count.
fn cpu() -> Duration {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    Duration::from_nanos(stat.split(' ').next().unwrap().parse().unwrap())
}

#[test]
#[ignore = "prints times"]
fn speed_of_a_million_records() {
    type Key = fn(i64) -> String;
    let shapes: [(&str, Key); 4] = [
        ("ascending keys of 16 B", |i| format!("key{i:013}")),
        ("random keys of 16 B", |i| format!("{:016x}", Random::new(i as u64).next_u64())),
        ("keys in directories", |i| {
            let number = Random::new(i as u64).next_u64();
            format!("/registry/pods/namespace-{:04}/pod-{:010}", number % 1000, number / 1000 % 100_000_000)
        }),
        ("1000 keys overwritten", |i| format!("key{:013}", i % 1000)),
    ];
    let dir = std::env::temp_dir().join(format!("cairn-speed-{}", std::process::id()));
    for (shape, key) in shapes {
        let mut store = open(Arc::new(OsDisk::default()), &dir, Options::default()).unwrap();
        let keys: Vec<String> = (2..RECORDS + 2).map(key).collect();
        let value = [7; 256];
        let mut locs = Vec::new();
        let started = cpu();
        for (main, key) in (2..).zip(&keys) {
            let kv = KvParts { key: key.as_bytes(), create: main, version: 1, value: &value, lease: 0 };
            locs.push(store.log.append_put(Revision { main, sub: 0 }, kv));
            if main % 64 == 0 {
                store.log.flush().unwrap();
                if main % 6400 == 0 && store.log.spare().needed() {
                    store.log.spare().prepare().unwrap();
                }
            }
        }
        store.log.flush().unwrap();
        println!("{shape}: append {:?} each, with one write per 64", (cpu() - started) / RECORDS as u32);

        let started = cpu();
        let mut random = Random::new(1);
        let mut sum = 0;
        for _ in 0..RECORDS {
            let loc = locs[random.below(RECORDS as u64) as usize];
            sum += store.segments.read(loc).len();
        }
        println!("  lookup of a place {:?} ({sum})", (cpu() - started) / RECORDS as u32);
        let started = cpu();
        let count = store.segments.scan(0).count();
        println!("  scan {:?} each", (cpu() - started) / count as u32);

        let started = cpu();
        let content = Checkpoint { applied_index: 1, revision: RECORDS + 1, ..Checkpoint::initial() };
        let listing = store.log.listing();
        store.checkpoints.write(content, listing).unwrap();
        println!("  first checkpoint {:?}", (cpu() - started));
        drop(store);
        let started = cpu();
        let store = open(Arc::new(OsDisk::default()), &dir, Options::default()).unwrap();
        println!(
            "  recovery {:?}, {} keys, {} segments",
            (cpu() - started),
            store.index.keys(),
            store.segments.count()
        );
        let found: Option<Version> = store.index.latest(keys[77].as_bytes());
        assert!(found.is_some());
        drop(store);
        std::fs::remove_dir_all(&dir).unwrap();
    }
}

use super::place::Places;
use super::sort::{Item, sort};
use super::*;
use crate::log::RECORD_HEADER_BYTES;
use crate::test_support::{DIR, Rig};
use crate::upkeep::checkpoint;
use api::KeyRange;
use disk::Disk;
use disk::sim::{Random, SimDisk};
use proptest::prelude::*;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;

/// What an index holds now.
fn contents(index: &Index) -> Vec<(Vec<u8>, crate::types::Version)> {
    let mut found = Vec::new();
    index.scan(KeyRange::From(b""), i64::MAX, None, usize::MAX, &mut |key, version| {
        found.push((key.to_vec(), *version));
        ControlFlow::Continue(())
    });
    found
}

/// However many threads rebuild it, the index is the same, and so is what belongs to each segment.
#[test]
fn threads_make_no_difference() {
    for seed in 0..20 {
        let disk = SimDisk::new();
        let mut random = Random::new(seed);
        let mut rig = Rig::open(Arc::new(disk.clone()), seed).unwrap();
        for _ in 0..60 {
            rig.apply().unwrap();
            rig.maintain(&mut random).unwrap();
        }
        rig.capture();
        rig.write_checkpoint().unwrap();
        let names = disk.list(Path::new(DIR)).unwrap();
        let newest = names.iter().rfind(|name| name.ends_with(".ckpt")).unwrap();
        let bytes = disk.contents(&Path::new(DIR).join(newest)).unwrap();
        let content = checkpoint::decode_checkpoint(&bytes).unwrap();
        let sources = Source::open_all(&disk, Path::new(DIR), &content).unwrap();
        let by = |threads| {
            let Rebuilt { index, shares } = rebuild(&sources, content.finished_compaction(), Crew::of(threads))
                .unwrap_or_else(|error| panic!("{error}"));
            index.check();
            let shares: Vec<_> = shares.iter().map(|share| format!("{share:?}")).collect();
            (contents(&index), index.keys(), index.live(), shares)
        };
        let alone = by(1);
        assert!(alone.1 > 10, "{} keys", alone.1);
        for threads in 2..7 {
            assert_eq!(by(threads), alone, "seed {seed}, {threads} threads");
        }
        // The first damaged segment is told, whichever thread finds it.
        let paths: Vec<_> = sources.iter().map(|source| source.path.clone()).collect();
        drop(sources);
        for path in paths.iter().skip(1).rev() {
            let mut bytes = disk.contents(path).unwrap();
            bytes[40] ^= 1;
            disk.install(path, &bytes).unwrap();
            let sources = Source::open_all(&disk, Path::new(DIR), &content).unwrap();
            for threads in 1..5 {
                match rebuild(&sources, content.finished_compaction(), Crew::of(threads)).map(|_| ()) {
                    Err(OpenError::Corrupt { file, .. }) => assert_eq!(&file, path, "seed {seed}, {threads} threads"),
                    other => panic!("seed {seed}: {other:?}"),
                }
            }
        }
    }
}

/// Keys that agree in long prefixes, end inside of one another, or are equal.
fn keys() -> impl Strategy<Value = Vec<Vec<u8>>> {
    let part = prop::sample::select(vec![&b"\0"[..], b"a", b"b", b"/registry/pods/", b"namespace-0001/", b"\xff\xff"]);
    let key = prop::collection::vec(part, 1..6).prop_map(|parts| parts.concat());
    prop::collection::vec(key, 0..200)
}

proptest! {
    #[test]
    fn records_are_sorted_by_key_then_place(keys in keys(), depth_hint in any::<bool>(), threads in 1_usize..5) {
        let mut bytes = Vec::new();
        let mut expected = Vec::new();
        for key in &keys {
            expected.push((key.clone(), bytes.len() as u32));
            bytes.resize(bytes.len() + RECORD_HEADER_BYTES, 0);
            bytes.extend_from_slice(&[0x0a, key.len() as u8]);
            bytes.extend_from_slice(key);
        }
        let mut depth = 0;
        if let (true, Some(first)) = (depth_hint, keys.first()) {
            depth = keys.iter().fold(first.len(), |depth, key| sort::shared(&first[..depth], key));
        }
        let mut items: Vec<Item> =
            expected.iter().map(|(_, offset)| Item::new(Place { segment: 0, offset: *offset })).collect();
        let places = Places::new(vec![&bytes]);
        sort(&mut items, depth, &places, threads, || {});
        expected.sort();
        let sorted: Vec<_> =
            items.iter().map(|item| (places.key(item.place()).to_vec(), item.place().offset)).collect();
        prop_assert_eq!(&sorted, &expected);
        let parts = parts(&items, threads);
        prop_assert_eq!(parts.len(), threads);
        prop_assert_eq!(parts.concat(), items.clone());
        for pair in parts.windows(2) {
            let (Some(last), Some(first)) = (pair[0].last(), pair[1].first()) else { continue };
            prop_assert!(places.key(last.place()) < places.key(first.place()), "a key is cut in two");
        }
        for (pair, keys) in items.windows(2).zip(expected.windows(2)) {
            prop_assert!(keys[0].0 != keys[1].0 || pair[0].may_share_key(&pair[1]));
        }
    }
}

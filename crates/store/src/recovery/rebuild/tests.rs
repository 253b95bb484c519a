use super::merge::common;
use super::*;
use crate::log::RECORD_HEADER_BYTES;
use crate::test_support::{DIR, Rig};
use crate::upkeep::checkpoint::{self, Checkpoint};
use crate::upkeep::keyfiles::Made;
use api::KeyRange;
use disk::Disk;
use disk::sim::{Random, SimDisk};
use proptest::prelude::*;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;

/// What an index holds now, tombstones and older versions included.
fn contents(index: &Index, revision: i64) -> Vec<(Vec<u8>, crate::types::Version)> {
    let mut found = Vec::new();
    for at in 0..=revision {
        index.scan(KeyRange::From(b""), at, None, usize::MAX, &mut |key, version| {
            found.push((key.to_vec(), *version));
            ControlFlow::Continue(())
        });
    }
    found
}

/// All that a rebuild finds: versions, number of keys, live keys, what belongs to each segment, keys on leases.
type Contents = (Vec<(Vec<u8>, crate::types::Version)>, usize, u64, Vec<String>, Vec<(Vec<u8>, i64)>);

/// All that a rebuild finds. The key files leave no trace in it.
fn found(rebuilt: Rebuilt, revision: i64) -> Contents {
    let Rebuilt { index, shares, leased } = rebuilt;
    index.check();
    let shares = shares.iter().map(|Share { batch, live, graves, .. }| {
        let (entry, marks) = batch.summary();
        format!("{entry:?} {marks:?} {live} {graves}")
    });
    let mut of_leases = Vec::new();
    for part in leased.into_parts() {
        of_leases.extend(part.iter().map(|(key, lease)| (key.to_vec(), lease)));
    }
    (contents(&index, revision), index.keys(), index.live(), shares.collect(), of_leases)
}

/// A store with compactions, rewrites and leases, and key files of all segments that can have one.
fn store(seed: u64) -> (SimDisk, Checkpoint) {
    let disk = SimDisk::new();
    let mut random = Random::new(seed);
    let mut rig = Rig::open(Arc::new(disk.clone()), seed).unwrap();
    for _ in 0..60 {
        rig.apply().unwrap();
        rig.maintain(&mut random).unwrap();
    }
    while rig.make_keys(1 + random.below(9000)).unwrap() != Made::Nothing {}
    rig.capture();
    rig.write_checkpoint().unwrap();
    let names = disk.list(Path::new(DIR)).unwrap();
    let newest = names.iter().rfind(|name| name.ends_with(".ckpt")).unwrap();
    let bytes = disk.contents(&Path::new(DIR).join(newest)).unwrap();
    (disk, checkpoint::decode_checkpoint(&bytes).unwrap())
}

fn sources(disk: &SimDisk, content: &Checkpoint) -> Vec<Source> {
    Source::open_all(disk, Path::new(DIR), content).unwrap()
}

/// However many threads rebuild it, the index is the same, and so is what belongs to each segment.
#[test]
fn threads_make_no_difference() {
    for seed in 0..20 {
        let (disk, content) = store(seed);
        let mut sources = sources(&disk, &content);
        let mut by = |threads| {
            let rebuilt = rebuild(&mut sources, content.finished_compaction(), Crew::of(threads))
                .unwrap_or_else(|error| panic!("{error}"));
            found(rebuilt, content.revision)
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
            let mut sources = self::sources(&disk, &content);
            for threads in 1..5 {
                match rebuild(&mut sources, content.finished_compaction(), Crew::of(threads)).map(|_| ()) {
                    Err(OpenError::Corrupt { file, .. }) => assert_eq!(&file, path, "seed {seed}, {threads} threads"),
                    other => panic!("seed {seed}: {other:?}"),
                }
            }
        }
    }
}

/// Key files of all, of some or of no segments lead to the same index.
#[test]
fn key_files_make_no_difference() {
    let mut used = 0;
    for seed in 0..60 {
        let (disk, content) = store(seed);
        let mut random = Random::new(seed);
        let mut by = |keep: &mut dyn FnMut() -> bool, threads| {
            let mut sources = sources(&disk, &content);
            Source::open_keys(&disk, &mut sources);
            let (last, before) = sources.split_last().unwrap();
            assert!(last.keys.is_none() && before.iter().all(|source| source.keys.is_some()), "seed {seed}");
            for source in &mut sources {
                if !keep() {
                    source.keys = None;
                }
                used += u32::from(source.keys.is_some());
            }
            let rebuilt = rebuild(&mut sources, content.finished_compaction(), Crew::of(threads)).unwrap();
            assert!(sources.iter().all(|source| source.refused.is_none()), "seed {seed}");
            found(rebuilt, content.revision)
        };
        let scanned = by(&mut || false, 1);
        for threads in 1..5 {
            assert_eq!(by(&mut || true, threads), scanned, "seed {seed}, {threads} threads");
            assert_eq!(by(&mut || random.chance(50), threads), scanned, "seed {seed}, {threads} threads");
        }
    }
    assert!(used > 500, "{used} key files in all");
}

/// What somebody made up is no reason for a panic: it is used, which its checksums allow, or refused, and then the index is right.
#[test]
fn forged_key_files_are_used_or_refused() {
    let (mut used, mut refused) = (0, 0);
    for seed in 0..8 {
        let (disk, mut content) = store(seed);
        let mut random = Random::new(seed);
        let scanned = rebuild(&mut sources(&disk, &content), content.finished_compaction(), Crew::of(1)).unwrap();
        let scanned = found(scanned, content.revision);
        let count = content.segments.len() - 1;
        for round in 0..150 {
            let at = random.below(count as u64) as usize;
            let path = Path::new(DIR).join(crate::log::key_file_name(content.segments[at].id));
            let (bytes, crc) = (disk.contents(&path).unwrap(), content.segments[at].keys_crc);
            let mut forged = bytes.clone();
            content.segments[at].keys_crc = Some(crate::keyfile::forge::forge(&mut forged, &mut random));
            disk.install(&path, &forged).unwrap();
            let mut sources = sources(&disk, &content);
            Source::open_keys(&disk, &mut sources);
            let rebuilt = rebuild(&mut sources, content.finished_compaction(), Crew::of(1 + round % 4)).unwrap();
            rebuilt.index.check();
            if sources[at].refused.is_some() {
                assert_eq!(found(rebuilt, content.revision), scanned, "seed {seed}, round {round}");
                refused += 1;
            } else {
                used += 1;
            }
            content.segments[at].keys_crc = crc;
            disk.install(&path, &bytes).unwrap();
        }
    }
    assert!(used > 10 && refused > 300, "{used} used, {refused} refused");
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
            depth = keys.iter().fold(first.len(), |depth, key| shared(&first[..depth], key));
        }
        let mut items: Vec<Item> =
            expected.iter().map(|(_, offset)| Item::new(Place { segment: 0, offset: *offset })).collect();
        let places = Places::new(vec![&bytes]);
        sort(&mut items, depth, &places, threads, || {});
        expected.sort();
        let sorted: Vec<_> =
            items.iter().map(|item| (places.key(item.place()).to_vec(), item.place().offset)).collect();
        prop_assert_eq!(&sorted, &expected);
        let runs = Runs { sources: &[], items: &items, places: &places, common: common(&[], None).unwrap_or(usize::MAX) };
        let spans = runs.spans(threads).unwrap_or_default();
        prop_assert!(!spans.is_empty() && spans.len() <= threads);
        let (mut keys_of_spans, mut before) = (Vec::new(), None);
        for span in spans {
            prop_assert_eq!(span.from, before, "spans do not follow one another");
            before = span.to;
            let within = |key: &[u8]| span.from.is_none_or(|from| from <= key) && span.to.is_none_or(|to| key < to);
            keys_of_spans.extend(expected.iter().filter(|(key, _)| within(key)).cloned());
        }
        prop_assert_eq!(before, None);
        prop_assert_eq!(keys_of_spans, expected, "a key is in two spans, or in none");
    }
}

//! The reader against the writer of our own snapshots, and against random bytes.

#![allow(clippy::unwrap_used)]

use super::*;
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, Ordering};
use store::Image;
use store::image::{Bucket as Source, Table};

/// A file that goes when it is dropped.
struct Temporary(PathBuf);

impl Temporary {
    fn new(bytes: &[u8]) -> Temporary {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("cairn-bolt-{}-{number}", std::process::id()));
        std::fs::write(&path, bytes).unwrap();
        Temporary(path)
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

type Rows = BTreeMap<Vec<u8>, Vec<u8>>;

fn image(rows: &Rows, others: usize) -> Vec<u8> {
    let rows = rows.iter().map(|(key, value)| (key.clone(), value.clone())).collect();
    let many = (0..others).map(|number| (format!("k{number:06}").into_bytes(), vec![b'v'; 100])).collect();
    let buckets: Vec<Box<dyn Source>> = vec![
        Box::new(Table::new("rows", rows)),
        Box::new(Table::new("empty", Vec::new())),
        Box::new(Table::new("many", many)),
    ];
    let mut image = Image::new(buckets);
    let mut bytes = Vec::new();
    while let Some(part) = image.next(1 << 16) {
        bytes.extend_from_slice(&part);
    }
    bytes
}

fn read(bytes: &[u8]) -> Result<Vec<(Vec<u8>, Rows)>, Error> {
    let file = Temporary::new(bytes);
    let db = Db::open(&file.0)?;
    let mut all = Vec::new();
    for bucket in db.buckets()? {
        let mut rows = Rows::new();
        db.walk(&bucket, &mut |key, value| {
            rows.insert(key.to_vec(), value.unwrap_or_default().to_vec());
            Ok(())
        })?;
        all.push((bucket.name, rows));
    }
    Ok(all)
}

#[test]
fn what_was_written_is_read() {
    let rows: Rows = [(b"a".to_vec(), b"1".to_vec()), (b"b".to_vec(), vec![7; 20_000])].into();
    let mut bytes = image(&rows, 5000);
    // A checksum after the database is none of it.
    bytes.extend_from_slice(&[9; 32]);
    let found = read(&bytes).unwrap();
    let names: Vec<&[u8]> = found.iter().map(|(name, _)| &name[..]).collect();
    assert_eq!(names, [&b"empty"[..], b"many", b"rows"]);
    assert_eq!((found[0].1.len(), found[1].1.len(), &found[2].1), (0, 5000, &rows));
}

#[test]
fn one_head_is_enough() {
    let rows: Rows = [(b"a".to_vec(), b"1".to_vec())].into();
    for head in [0, 4096] {
        let mut bytes = image(&rows, 0);
        bytes[head + 40] ^= 1;
        assert_eq!(read(&bytes).unwrap()[2].1, rows);
    }
    let mut bytes = image(&rows, 0);
    bytes[40] ^= 1;
    bytes[4096 + 40] ^= 1;
    assert!(matches!(read(&bytes), Err(Error::NoDatabase { .. })));
    assert!(matches!(read(&image(&rows, 100)[..9000]), Err(Error::NoDatabase { .. })));
    assert!(matches!(read(b""), Err(Error::NoDatabase { .. })));
}

#[test]
fn a_file_with_holes_takes_no_memory() {
    let mut bytes = image(&[(b"a".to_vec(), b"1".to_vec())].into(), 300);
    let pages: u64 = 2 << 20;
    for head in [0, 4096] {
        let meta = &mut bytes[head + 16..head + 80];
        meta[40..48].copy_from_slice(&pages.to_le_bytes());
        let checksum = page::checksum(&meta[..56]);
        meta[56..].copy_from_slice(&checksum.to_le_bytes());
    }
    for page in 3..bytes.len() / 4096 {
        bytes[page * 4096 + 12..page * 4096 + 16].copy_from_slice(&(1_u32 << 20).to_le_bytes());
    }
    let file = Temporary::new(&bytes);
    File::options().write(true).open(&file.0).unwrap().set_len(pages * 4096).unwrap();
    let db = Db::open(&file.0).unwrap();
    let read =
        db.buckets().and_then(|buckets| buckets.iter().try_for_each(|bucket| db.walk(bucket, &mut |_, _| Ok(()))));
    assert!(matches!(read, Err(Error::Damaged { what, .. }) if what.contains("longer than anything")));
}

/// Gives the file more pages, which are a hole, and lets every page of `kind` go on into `overflow` of them.
fn with_a_hole(bytes: &mut [u8], kind: u8, overflow: u32) -> Temporary {
    let pages = bytes.len() as u64 / 4096 + u64::from(overflow);
    for head in [0, 4096] {
        let meta = &mut bytes[head + 16..head + 80];
        meta[40..48].copy_from_slice(&pages.to_le_bytes());
        let checksum = page::checksum(&meta[..56]);
        meta[56..].copy_from_slice(&checksum.to_le_bytes());
    }
    for page in 3..bytes.len() / 4096 {
        if bytes[page * 4096 + 8] == kind {
            bytes[page * 4096 + 12..page * 4096 + 16].copy_from_slice(&overflow.to_le_bytes());
        }
    }
    let file = Temporary::new(bytes);
    File::options().write(true).open(&file.0).unwrap().set_len(pages * 4096).unwrap();
    file
}

#[test]
fn the_branches_of_a_way_are_bounded_together() {
    let mut bytes = image(&Rows::new(), 5000);
    let file = with_a_hole(&mut bytes, 1, (WAY_BYTES_MAX / 4096) as u32);
    let db = Db::open(&file.0).unwrap();
    let read =
        db.buckets().and_then(|buckets| buckets.iter().try_for_each(|bucket| db.walk(bucket, &mut |_, _| Ok(()))));
    assert!(matches!(read, Err(Error::Damaged { what, .. }) if what.contains("branches on the way")));
}

#[test]
fn elements_that_share_their_bytes_are_refused() {
    let mut bytes = image(&Rows::new(), 5000);
    let leaf = (3..bytes.len() / 4096).rev().find(|page| {
        bytes[page * 4096 + 8] == 2 && u16::from_le_bytes([bytes[page * 4096 + 10], bytes[page * 4096 + 11]]) > 20
    });
    let at = leaf.unwrap() * 4096;
    // Each value reaches to the end of the page.
    for number in 0..20 {
        let slot = at + 16 + number * 16;
        let word =
            |place: usize| u32::from_le_bytes(bytes[slot + place..slot + place + 4].try_into().unwrap()) as usize;
        let rest = 4096 - (slot - at) - word(4) - word(8);
        bytes[slot + 12..slot + 16].copy_from_slice(&(rest as u32).to_le_bytes());
    }
    assert!(
        matches!(read(&bytes), Err(Error::Damaged { what, .. }) if what == "its elements do not lie one behind the other")
    );
}

#[test]
fn a_file_is_not_looked_at_before_its_writer_is_gone() {
    let file = Temporary::new(&image(&Rows::new(), 10));
    let writer = File::options().write(true).open(&file.0).unwrap();
    // SAFETY: a call on an open file of ours, without memory.
    assert_eq!(unsafe { libc::flock(writer.as_raw_fd(), libc::LOCK_EX) }, 0);
    let patience = Duration::from_millis(10);
    assert!(matches!(Db::open_unused(&file.0, patience), Err(Error::InUse { .. })));
    let path = file.0.clone();
    let waiting =
        std::thread::spawn(move || Db::open_unused(&path, Duration::ZERO).map(|db| db.buckets().unwrap().len()));
    // The last thing that the writer does.
    std::fs::write(&file.0, image(&[(b"a".to_vec(), b"1".to_vec())].into(), 500)).unwrap();
    drop(writer);
    assert_eq!(waiting.join().unwrap().unwrap(), 3);
}

#[test]
fn circles_end() {
    let mut bytes = image(&Rows::new(), 5000);
    let pages = bytes.len() / 4096;
    for page in 3..pages {
        let at = page * 4096;
        if bytes[at + 8] == 1 {
            // The second child is the branch itself.
            let id = (page as u64).to_le_bytes();
            bytes[at + 16 + 16 + 8..at + 16 + 16 + 16].copy_from_slice(&id);
        }
    }
    assert!(matches!(read(&bytes), Err(Error::Damaged { .. })));
}

/// Each leaf goes on over half of the file, with all that are behind it: no key is out of order there.
#[test]
fn long_pages_are_not_read_again_and_again() {
    let mut bytes = image(&Rows::new(), 5000);
    let pages = bytes.len() / 4096;
    let first: Vec<usize> =
        pages_of(&bytes, page::LEAF).into_iter().filter(|at| at / 4096 + pages / 2 < pages).collect();
    assert!(first.len() > 3);
    for at in first {
        bytes[at + 12..at + 16].copy_from_slice(&(pages as u32 / 2).to_le_bytes());
    }
    assert!(matches!(read(&bytes), Err(Error::Damaged { what, .. }) if what == "pages form a circle"));
}

/// The pages of this kind, from the last one on.
fn pages_of(bytes: &[u8], kind: u16) -> Vec<usize> {
    let is_of = |page: &usize| u16::from_le_bytes([bytes[page * 4096 + 8], bytes[page * 4096 + 9]]) == kind;
    (3..bytes.len() / 4096).rev().filter(is_of).map(|page| page * 4096).collect()
}

/// Nothing in a page says that something is missing but how its parts fit together.
#[test]
fn a_page_that_lost_elements_is_refused() {
    let rows: Rows = [(b"a".to_vec(), vec![7; 20_000])].into();
    let whole = image(&rows, 5000);
    assert!(read(&whole).is_ok());
    for kind in [page::LEAF, page::BRANCH] {
        for at in pages_of(&whole, kind) {
            let count = u16::from_le_bytes([whole[at + 10], whole[at + 11]]);
            for fewer in [count - 1, count / 2, 0] {
                let mut bytes = whole.clone();
                bytes[at + 10..at + 12].copy_from_slice(&fewer.to_le_bytes());
                assert!(matches!(read(&bytes), Err(Error::Damaged { .. })), "page {}: {fewer} of {count}", at / 4096);
            }
        }
    }
}

#[test]
fn elements_of_another_length_are_refused() {
    let whole = image(&Rows::new(), 5000);
    let at = pages_of(&whole, page::LEAF)[10];
    for (place, bit) in [(8, 1), (12, 4), (12, 32)] {
        let mut bytes = whole.clone();
        bytes[at + 16 + place] ^= bit;
        assert!(matches!(read(&bytes), Err(Error::Damaged { .. })), "{place} {bit}");
    }
}

/// A child that is an old page of lower keys: all is in order, but not where it belongs.
#[test]
fn a_page_of_another_place_is_refused() {
    let mut bytes = image(&Rows::new(), 5000);
    let branch = pages_of(&bytes, page::BRANCH)[0];
    let leaf = u64::from_le_bytes(*bytes[branch + 24..].first_chunk().unwrap()) as usize * 4096;
    let count = u16::from_le_bytes([bytes[leaf + 10], bytes[leaf + 11]]);
    for slot in (0..usize::from(count)).map(|number| leaf + 16 + number * 16) {
        let key = slot + u32::from_le_bytes(*bytes[slot + 4..].first_chunk().unwrap()) as usize;
        assert_eq!(bytes[key], b'k');
        bytes[key] = b'j';
    }
    assert!(matches!(read(&bytes), Err(Error::Damaged { .. })));
}

proptest! {
    #[test]
    fn any_file_can_be_opened(bytes: Vec<u8>) {
        prop_assert!(read(&bytes).is_err());
    }

    #[test]
    fn any_damage_can_be_read(places in proptest::collection::vec((8192usize..60_000, any::<u8>()), 1..20)) {
        let mut bytes = image(&[(b"a".to_vec(), vec![1; 9000])].into(), 300);
        for (place, byte) in places {
            let place = place.min(bytes.len() - 1);
            bytes[place] = byte;
        }
        let _ = read(&bytes);
    }
}

/// On a stack of 2 MiB: what threads have.
#[test]
fn a_tree_as_deep_as_it_may_be() {
    let read_below = |branches: u64| {
        let mut bytes = image(&[(b"a".to_vec(), b"1".to_vec())].into(), 0);
        let first = (bytes.len() / 4096) as u64;
        let u64_at = |bytes: &[u8], at: usize| u64::from_le_bytes(*bytes[at..].first_chunk().unwrap());
        let root = u64_at(&bytes, 32);
        for id in first..first + branches {
            let mut page = vec![0; 4096];
            page[..8].copy_from_slice(&id.to_le_bytes());
            page[8..12].copy_from_slice(&[page::BRANCH as u8, 0, 1, 0]);
            let child = if id + 1 == first + branches { root } else { id + 1 };
            page[16] = 16;
            page[24..32].copy_from_slice(&child.to_le_bytes());
            bytes.extend_from_slice(&page);
        }
        for head in [0, 4096] {
            let meta = &mut bytes[head + 16..head + 80];
            meta[16..24].copy_from_slice(&first.to_le_bytes());
            meta[40..48].copy_from_slice(&(first + branches).to_le_bytes());
            let checksum = page::checksum(&meta[..56]);
            meta[56..].copy_from_slice(&checksum.to_le_bytes());
        }
        let reading = move || read(&bytes).map(|buckets| buckets.len());
        std::thread::Builder::new().stack_size(2 << 20).spawn(reading).unwrap().join().unwrap()
    };
    assert_eq!(read_below(DEPTH_MAX as u64).unwrap(), 3);
    let deeper = read_below(DEPTH_MAX as u64 + 1);
    assert!(matches!(deeper, Err(Error::Damaged { what, .. }) if what == "the tree is too deep"));
}

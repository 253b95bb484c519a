//! Taking a store that was founded beside the running one.

use super::*;
use crate::recovery::OpenError;
use crate::{Founding, FoundingError};
use api::leasepb::Lease;
use disk::{Mode, Reaped, Reaper};

const BESIDE: &str = "/image/store";
const SMALL: Options = Options { segment_bytes: 16 << 10 };
/// The entry that the member has applied, and the one that the other store ends at.
const OWN: u64 = 20;
const FOUNDED: u64 = 500;
/// What a system says to a rename from another file system.
const EXDEV: i32 = 18;

fn open(disk: &SimDisk, dir: &str) -> Result<Opened, OpenError> {
    let options = crate::Options { log: SMALL, ..Default::default() };
    crate::open(Arc::new(disk.clone()), Path::new(dir), options)
}

/// A member with keys of its own.
fn member() -> (SimDisk, Opened) {
    let disk = SimDisk::new();
    let mut opened = open(&disk, DIR).unwrap();
    live(&mut opened, OWN);
    opened.applier.checkpoint().write().unwrap();
    opened.store.segments.reaper().finish().unwrap();
    (disk, opened)
}

/// Fills a store of many segments, one of whose keys is on lease 7.
fn fill(mut founding: Founding, leases: &[i64]) -> Result<(), FoundingError> {
    for main in 2..60 {
        let (mut stored, key, value) = (Vec::new(), format!("key{main}"), vec![main as u8; 900]);
        let lease = if main == 30 { 7 } else { 0 };
        KvParts { key: key.as_bytes(), create: main, version: 1, value: &value, lease }.encode(main, &mut stored);
        founding.add(Revision { main, sub: 0 }, false, &stored)?;
    }
    founding.add(Revision { main: 60, sub: 0 }, true, b"\x0a\x04key2")?;
    let leases = leases.iter().map(|id| Lease { id: *id, ttl: 90, remaining_ttl: 0 }).collect();
    let state = Checkpoint { applied_index: FOUNDED, applied_term: 3, revision: 60, leases, ..Checkpoint::initial() };
    founding.finish(state)
}

fn beside(disk: &SimDisk, store: &Store) -> Result<Founding, FoundingError> {
    Founding::beside(store, Arc::new(disk.clone()), Path::new(BESIDE), SMALL)
}

/// A store beside the member's, opened.
fn founded(disk: &SimDisk, store: &Store) -> Opened {
    fill(beside(disk, store).unwrap(), &[7]).unwrap();
    open(disk, BESIDE).unwrap()
}

fn segments(disk: &SimDisk, dir: &str) -> Vec<String> {
    let names = disk.list(Path::new(dir)).unwrap_or_default();
    names.into_iter().filter(|name| name.ends_with(".seg")).collect()
}

fn hash(store: &Store) -> u32 {
    store.hash_kv(0).unwrap().hash
}

/// What is refused leaves the member as it was, on the disk too.
fn check_refused(
    disk: &SimDisk,
    own: &Opened,
    before: &[String],
    refused: Result<Prepared, IntakeError>,
) -> IntakeError {
    let error = refused.unwrap_err();
    disk.repair();
    disk.fail_renames(None);
    own.store.segments.reaper().finish().unwrap();
    assert_eq!(disk.list(Path::new(DIR)).unwrap(), before, "{error}");
    assert_eq!((own.store.revision(), own.store.has_second_index()), (OWN as i64 + 1, false), "{error}");
    error
}

#[test]
fn a_store_is_taken_as_it_is() {
    let (disk, mut own) = member();
    let other = founded(&disk, &own.store);
    let (wanted, names) = (hash(&other.store), segments(&disk, BESIDE));
    assert!(names.len() > 5, "{names:?}");
    let moved = std::cell::Cell::new(0);
    let ready = Prepared::of_store(&own.store, other, &|bytes| moved.set(moved.get() + bytes)).unwrap();
    assert!(segments(&disk, BESIDE).is_empty() && own.store.has_second_index());
    assert_eq!((ready.index(), ready.revision(), own.store.revision()), (FOUNDED, 60, OWN as i64 + 1));
    own.applier.install(ready).unwrap();
    let bytes: u64 = own.store.segments.order().iter().map(|segment| segment.len()).sum();
    assert_eq!(moved.get(), bytes);
    let check = |opened: &Opened, revision| {
        let store = &opened.store;
        assert_eq!((store.revision(), store.leases.keys(7)), (revision, vec!["key30".into()]));
    };
    assert_eq!(hash(&own.store), wanted);
    check(&own, 60);
    // It goes on in segments of its own.
    live(&mut own, 30);
    own.applier.checkpoint().write().unwrap();
    let went_on = hash(&own.store);
    own.store.maintain(1 << 20).unwrap();
    own.store.segments.reaper().finish().unwrap();
    drop(own);
    let again = open(&disk, DIR).unwrap();
    assert_eq!(hash(&again.store), went_on);
    check(&again, 90);
    assert!(names.iter().all(|name| segments(&disk, DIR).contains(name)), "the files are the same");
}

#[test]
fn one_that_is_not_installed_is_given_back() {
    let (disk, own) = member();
    let before = disk.list(Path::new(DIR)).unwrap();
    drop(Prepared::of_store(&own.store, founded(&disk, &own.store), &|_| ()).unwrap());
    own.store.segments.reaper().finish().unwrap();
    assert_eq!(disk.list(Path::new(DIR)).unwrap(), before);
}

#[test]
fn a_file_that_became_shorter_is_refused() {
    let (disk, own) = member();
    let other = founded(&disk, &own.store);
    let before = disk.list(Path::new(DIR)).unwrap();
    let path = Path::new(BESIDE).join(&segments(&disk, BESIDE)[3]);
    disk.open(&path, Mode::Write).unwrap().truncate(900).unwrap();
    let error = check_refused(&disk, &own, &before, Prepared::of_store(&own.store, other, &|_| ()));
    assert!(matches!(error, IntakeError::Damaged { .. }), "{error}");
}

#[test]
fn a_damaged_file_is_refused() {
    let (disk, own) = member();
    fill(beside(&disk, &own.store).unwrap(), &[7]).unwrap();
    let path = Path::new(BESIDE).join(&segments(&disk, BESIDE)[3]);
    let whole = disk.contents(&path).unwrap();
    for at in [0, 12, 40, 900] {
        let mut damaged = whole.clone();
        damaged[at] ^= 4;
        disk.install(&path, &damaged).unwrap();
        let refused = open(&disk, BESIDE).err().unwrap();
        assert!(matches!(&refused, OpenError::Corrupt { file, .. } if *file == path), "{refused}");
    }
    assert!(!own.store.has_second_index());
}

#[test]
fn a_store_that_does_not_fit_is_refused() {
    let refused = |what: &str, prepare: &dyn Fn(&SimDisk, &Opened) -> Opened| {
        let (disk, own) = member();
        let before = disk.list(Path::new(DIR)).unwrap();
        let other = prepare(&disk, &own);
        let error = check_refused(&disk, &own, &before, Prepared::of_store(&own.store, other, &|_| ()));
        assert!(error.to_string().contains(what), "{error}");
        // What was there has still the bytes that it had.
        let (found, wanted) = (open(&disk, DIR).unwrap(), hash(&own.store));
        assert_eq!(hash(&found.store), wanted);
    };
    refused("a key is on lease 7, which was not granted", &|disk, own| {
        fill(beside(disk, &own.store).unwrap(), &[8]).unwrap();
        open(disk, BESIDE).unwrap()
    });
    // One that counts its segments on its own.
    refused("has the number of another one of this member", &|disk, _| {
        fill(Founding::begin(Arc::new(disk.clone()), Path::new(BESIDE), SMALL).unwrap(), &[7]).unwrap();
        open(disk, BESIDE).unwrap()
    });
    refused("it ends at revision 5", &|disk, own| {
        let state = Checkpoint { applied_index: FOUNDED, applied_term: 3, revision: 5, ..Checkpoint::initial() };
        beside(disk, &own.store).unwrap().finish(state).unwrap();
        open(disk, BESIDE).unwrap()
    });
    refused("it is a snapshot that no member can be in", &|disk, own| {
        beside(disk, &own.store).unwrap().finish(Checkpoint::initial()).unwrap();
        open(disk, BESIDE).unwrap()
    });
}

#[test]
fn what_the_disk_refuses_is_given_back() {
    let attempt = |fail: &dyn Fn(&SimDisk)| {
        let (disk, own) = member();
        let before = disk.list(Path::new(DIR)).unwrap();
        let other = founded(&disk, &own.store);
        fail(&disk);
        match Prepared::of_store(&own.store, other, &|_| ()) {
            Ok(_) => false,
            refused => matches!(check_refused(&disk, &own, &before, refused), IntakeError::Log(_)),
        }
    };
    let syncs = (0..).take_while(|syncs| attempt(&|disk| disk.fail_file_sync_after(*syncs))).count();
    assert!(syncs > 6, "each segment and the checkpoint: {syncs}");
    // The directory that they leave is synced before the checkpoint. A failed sync of their new one would end the member.
    assert!(attempt(&|disk| disk.fail_sync_after(syncs as u64 - 1)));
    assert!(attempt(&|disk| disk.fail_renames(Some((".seg", EXDEV)))));
    assert!(attempt(&|disk| {
        let last = segments(disk, BESIDE).pop().unwrap();
        disk.remove(&Path::new(BESIDE).join(last)).unwrap();
    }));
}

/// Has nothing of the files be durable that has their contents.
fn unsync(disk: &SimDisk) -> std::io::Result<()> {
    for name in segments(disk, BESIDE) {
        let path = Path::new(BESIDE).join(name);
        let bytes = disk.contents(&path)?;
        let file = disk.open(&path, Mode::Write)?;
        file.write_at(&vec![0; bytes.len()], 0)?;
        file.write_at(&bytes, 0)?;
    }
    Ok(())
}

/// Removes what is left beside the store as a start of the member does: in steps, each of which cuts a file. On a file system without a journal
/// nothing says that one has another name as well.
fn remove_beside(disk: &SimDisk) {
    disk.miscount_names();
    let reaper = Reaper::new(Arc::new(disk.clone()), Path::new(BESIDE));
    for name in disk.list(Path::new(BESIDE)).unwrap_or_default() {
        reaper.retire_found(Path::new(BESIDE).join(name));
    }
    while let Reaped::Freed(_) = reaper.step(512).unwrap() {}
}

/// Founds a store, takes it and goes on. Stops when the disk fails.
fn take(disk: &SimDisk, own: &mut Opened) -> Option<()> {
    fill(beside(disk, &own.store).ok()?, &[7]).ok()?;
    let other = open(disk, BESIDE).ok()?;
    unsync(disk).ok()?;
    let ready = Prepared::of_store(&own.store, other, &|_| ()).ok()?;
    own.applier.install(ready).ok()?;
    own.applier.checkpoint().write().ok()
}

#[test]
fn the_old_state_or_the_new_one_survives_every_cut() {
    let (disk, mut own) = member();
    let (begun, old_hash) = (disk.operations(), hash(&own.store));
    take(&disk, &mut own).unwrap();
    let (operations, new_hash) = (disk.operations() - begun, hash(&own.store));
    let (mut old, mut new) = (0, 0);
    for cut in 0..operations {
        let (disk, mut own) = member();
        disk.cut_at(disk.operations() + cut);
        assert!(take(&disk, &mut own).is_none(), "cut {cut}");
        for seed in 0..3 {
            let found = disk.after_cut(seed << 32 | cut);
            remove_beside(&found);
            let Opened { store, applied, .. } = open(&found, DIR).unwrap();
            match applied.index {
                OWN => assert_eq!(hash(&store), old_hash, "cut {cut}"),
                FOUNDED => assert_eq!(hash(&store), new_hash, "cut {cut}"),
                other => panic!("cut {cut}: neither state is at entry {other}"),
            }
            old += u32::from(applied.index == OWN);
            new += u32::from(applied.index == FOUNDED);
            store.segments.reaper().finish().unwrap();
            let mut listed: Vec<String> =
                store.segments.order().iter().map(|segment| crate::log::segment_name(segment.id())).collect();
            listed.sort_unstable();
            assert_eq!(segments(&found, DIR), listed, "cut {cut}: nothing is left that no state has");
        }
    }
    assert!(old > 50 && new > 5, "{old} old states and {new} new ones");
}

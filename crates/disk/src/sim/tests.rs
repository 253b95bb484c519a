#![allow(clippy::unwrap_used)]

use super::*;

const SEEDS: u64 = 300;

fn disk_with_file(name: &str, bytes: &[u8]) -> (SimDisk, Arc<dyn File>) {
    let disk = SimDisk::new();
    disk.install(Path::new(name), bytes).unwrap();
    let file = disk.open(Path::new(name), Mode::Write).unwrap();
    (disk, file)
}

#[test]
fn synced_bytes_survive_and_unsynced_ones_come_in_every_subset_of_sectors() {
    let (disk, file) = disk_with_file("/d/f", &[1; 3 * SECTOR_BYTES]);
    file.write_at(&[2; SECTOR_BYTES], 0).unwrap();
    file.sync_data().unwrap();
    file.write_at(&[3; 2 * SECTOR_BYTES], SECTOR_BYTES as u64).unwrap();
    let mut seen = std::collections::BTreeSet::new();
    for seed in 0..SEEDS {
        let after = disk.after_cut(seed).contents(Path::new("/d/f")).unwrap();
        assert_eq!(after[..SECTOR_BYTES], [2; SECTOR_BYTES]);
        for sector in after.chunks(SECTOR_BYTES) {
            assert!(sector.iter().all(|byte| *byte == sector[0]), "a sector is torn");
        }
        seen.insert((after[SECTOR_BYTES], after[2 * SECTOR_BYTES]));
    }
    assert_eq!(seen.into_iter().collect::<Vec<_>>(), [(1, 1), (1, 3), (3, 1), (3, 3)]);
}

#[test]
fn a_sector_written_twice_may_come_back_in_between() {
    let (disk, file) = disk_with_file("/f", &[1; 16]);
    file.write_at(&[2], 0).unwrap();
    file.write_at(&[3], 1).unwrap();
    let outcomes = (0..SEEDS).map(|seed| disk.after_cut(seed).contents(Path::new("/f")).unwrap()[..2].to_vec());
    let seen: std::collections::BTreeSet<_> = outcomes.collect();
    assert_eq!(seen.into_iter().collect::<Vec<_>>(), [vec![1, 1], vec![2, 1], vec![2, 3]]);
}

#[test]
fn names_and_lengths_need_their_syncs() {
    let disk = SimDisk::new();
    disk.create_dir(Path::new("/d")).unwrap();
    disk.sync_dir(Path::new("/")).unwrap();
    let file = disk.open(Path::new("/d/a"), Mode::Create).unwrap();
    file.allocate(4096).unwrap();
    disk.sync_dir(Path::new("/d")).unwrap();
    disk.rename(Path::new("/d/a"), Path::new("/d/b")).unwrap();
    let mut seen = std::collections::BTreeSet::new();
    for seed in 0..SEEDS {
        let after = disk.after_cut(seed);
        let names = after.list(Path::new("/d")).unwrap();
        assert_eq!(names.len(), 1);
        let len = after.contents(&Path::new("/d").join(&names[0])).unwrap().len();
        seen.insert((names[0].clone(), len));
    }
    assert_eq!(seen.len(), 4);
    file.sync_data().unwrap();
    disk.sync_dir(Path::new("/d")).unwrap();
    for seed in 0..SEEDS {
        assert_eq!(disk.after_cut(seed).contents(Path::new("/d/b")).unwrap().len(), 4096);
    }
}

#[test]
fn a_directory_needs_its_parents_sync() {
    let disk = SimDisk::new();
    disk.create_dir(Path::new("d")).unwrap();
    disk.open(Path::new("d/f"), Mode::Create).unwrap();
    disk.sync_dir(Path::new("d")).unwrap();
    let lost = (0..SEEDS).filter(|seed| disk.after_cut(*seed).list(Path::new("d")).is_err()).count();
    assert!(lost > 0 && lost < SEEDS as usize);
    disk.sync_dir(Path::new(".")).unwrap();
    assert!((0..SEEDS).all(|seed| disk.after_cut(seed).list(Path::new("d")).is_ok()));
}

#[test]
fn after_the_cut_every_call_fails_and_a_seed_repeats() {
    let (disk, file) = disk_with_file("/f", &[0; 8192]);
    disk.cut_at(2);
    file.write_at(&[1; 512], 0).unwrap();
    file.sync_data().unwrap();
    assert!(file.write_at(&[2; 4096], 512).is_err());
    assert!(disk.is_cut());
    assert!(file.sync_data().is_err() && file.read_at(&mut [0], 0).is_err() && file.len().is_err());
    assert!(disk.list(Path::new("/")).is_err() && disk.open(Path::new("/f"), Mode::Read).is_err());
    for seed in 0..SEEDS {
        let after = disk.after_cut(seed).contents(Path::new("/f")).unwrap();
        assert_eq!(after[..512], [1; 512]);
        assert_eq!(after, disk.after_cut(seed).contents(Path::new("/f")).unwrap());
    }
}

#[test]
fn a_failed_sync_is_not_made_good_by_the_next() {
    let (disk, file) = disk_with_file("/f", &[0; 512]);
    disk.fail_sync_after(0);
    file.write_at(&[1; 512], 0).unwrap();
    assert_eq!(file.sync_data().unwrap_err().raw_os_error(), Some(libc::EIO));
    file.sync_data().unwrap();
    assert!((0..SEEDS).any(|seed| disk.after_cut(seed).contents(Path::new("/f")).unwrap()[0] == 0));
    file.write_at(&[1; 512], 0).unwrap();
    file.sync_data().unwrap();
    assert!((0..SEEDS).all(|seed| disk.after_cut(seed).contents(Path::new("/f")).unwrap()[0] == 1));
}

#[test]
fn writes_fail_when_told_to_and_when_the_disk_is_full() {
    let (disk, file) = disk_with_file("/f", &[0; 1000]);
    disk.fail_write_after(1);
    file.write_at(&[1], 0).unwrap();
    assert_eq!(file.write_at(&[1; 2], 1).unwrap_err().raw_os_error(), Some(libc::EIO));
    disk.set_capacity(Some(2000));
    assert_eq!(disk.free_bytes(Path::new("/")).unwrap(), 1000);
    file.write_at(&[1; 1500], 0).unwrap();
    assert_eq!(file.allocate(2001).unwrap_err().raw_os_error(), Some(libc::ENOSPC));
    disk.remove(Path::new("/f")).unwrap();
    assert_eq!(disk.free_bytes(Path::new("/")).unwrap(), 2000);
}

#[test]
fn a_mapping_shows_later_writes_and_outlives_the_name() {
    let (disk, file) = disk_with_file("/f", &[1; 100]);
    file.allocate(1 << 20).unwrap();
    let mapping = file.map(1 << 20).unwrap();
    file.write_at(&[9; 10], 4000).unwrap();
    disk.remove(Path::new("/f")).unwrap();
    drop(file);
    assert_eq!(mapping.get(4000, 11).unwrap(), [9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 0]);
}

#[test]
fn a_shrunk_file_grows_with_zeros() {
    let (_, file) = disk_with_file("/f", &[1; 2000]);
    file.truncate(100).unwrap();
    file.allocate(2000).unwrap();
    let mut bytes = [7; 2000];
    file.read_at(&mut bytes, 0).unwrap();
    assert_eq!(bytes[..100], [1; 100]);
    assert_eq!(bytes[100..], [0; 1900]);
}

#[test]
fn a_lock_is_held_until_the_file_is_closed() {
    let (disk, file) = disk_with_file("/f", b"");
    let other = disk.open(Path::new("/f"), Mode::Write).unwrap();
    file.lock().unwrap();
    assert_eq!(other.lock().unwrap_err().kind(), io::ErrorKind::WouldBlock);
    drop(file);
    other.lock().unwrap();
}

#[test]
fn a_failed_write_back_is_told_once_and_its_pages_are_lost() {
    let (disk, file) = disk_with_file("/f", &[1; 16]);
    file.write_at(&[2; 16], 0).unwrap();
    disk.fail_write_back_after(0);
    assert!(file.write_back(0, 16, false).is_err());
    file.sync_data().unwrap();
    let lost = (0..SEEDS).any(|seed| disk.after_cut(seed).contents(Path::new("/f")).unwrap() == [1; 16]);
    assert!(lost, "the sync after it made the pages durable");
}

#![allow(clippy::unwrap_used)]

use super::*;
use crate::OsDisk;
#[cfg(feature = "sim")]
use crate::sim::SimDisk;

const DIR: &str = "/d";

fn temporary_dir(what: &str) -> PathBuf {
    let dir = std::env::temp_dir().join(format!("cairn-reaper-{what}-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    dir
}

#[cfg(feature = "sim")]
fn retired(bytes: u64) -> (SimDisk, Reaper, PathBuf) {
    let disk = SimDisk::new();
    let old = Path::new(DIR).join("a");
    disk.install(&old, &vec![7; bytes as usize]).unwrap();
    let path = Path::new(DIR).join("a.tmp");
    disk.rename(&old, &path).unwrap();
    let reaper = Reaper::new(Arc::new(disk.clone()), Path::new(DIR));
    reaper.retire(path.clone(), bytes, None);
    (disk, reaper, path)
}

#[cfg(feature = "sim")]
#[test]
fn a_file_shrinks_step_by_step_and_goes() {
    let (disk, reaper, path) = retired(1000);
    let mut lengths = Vec::new();
    while reaper.step(300).unwrap() != Reaped::Idle {
        lengths.push(disk.contents(&path).map_or(0, |bytes| bytes.len()));
        assert_eq!(reaper.waiting().bytes, *lengths.last().unwrap() as u64);
    }
    assert_eq!(lengths, [700, 400, 100, 0]);
    assert_eq!((reaper.freed_bytes(), reaper.waiting()), (1000, Waiting::default()));
    assert_eq!(disk.list(Path::new(DIR)).unwrap(), Vec::<String>::new());
}

#[cfg(feature = "sim")]
#[test]
fn no_byte_goes_before_the_old_name_is_durably_gone() {
    let (disk, reaper, _) = retired(1000);
    for _ in 0..3 {
        for seed in 0..50 {
            let after = disk.after_cut(seed);
            if let Ok(bytes) = after.contents(&Path::new(DIR).join("a")) {
                assert_eq!(bytes, [7; 1000], "seed {seed}");
            }
        }
        reaper.step(300).unwrap();
    }
}

#[cfg(feature = "sim")]
#[test]
fn a_file_that_is_used_stays_whole_and_holds_up_no_other() {
    let (disk, reaper, path) = retired(1000);
    disk.guard_mappings();
    let users: Users = Arc::new(disk.open(&path, Mode::Read).unwrap().map(1000).unwrap());
    let used = Path::new(DIR).join("b.tmp");
    disk.install(&used, &[8; 1000]).unwrap();
    let users_of_b = Arc::new(disk.open(&used, Mode::Read).unwrap().map(1000).unwrap());
    reaper.retire(used.clone(), 1000, Some(Arc::clone(&users_of_b) as Users));
    drop(users);
    reaper.finish().unwrap();
    assert_eq!(reaper.step(100).unwrap(), Reaped::Waiting);
    assert_eq!(users_of_b.get(0, 1000).unwrap(), [8; 1000]);
    assert_eq!(disk.list(Path::new(DIR)).unwrap(), ["b.tmp"]);
    drop(users_of_b);
    reaper.finish().unwrap();
    assert_eq!(disk.list(Path::new(DIR)).unwrap(), Vec::<String>::new());
}

#[cfg(feature = "sim")]
#[test]
fn a_file_that_cannot_go_is_kept_and_tried_again_later() {
    for code in [libc::EIO, libc::EROFS] {
        let (disk, reaper, path) = retired(1000);
        reaper.step(300).unwrap();
        disk.fail_shrinking(Some(code));
        disk.set_capacity(Some(1000));
        for _ in 0..3 {
            assert!(reaper.has_work() && reaper.is_urgent());
            let error = reaper.step(300).unwrap_err();
            assert_eq!((error.operation, error.source.raw_os_error()), ("truncate", Some(code)));
            assert!(!error.is_fatal);
            // It is there, but nobody is to wait for it.
            assert_eq!(reaper.step(300).unwrap(), Reaped::Waiting);
            assert_eq!(reaper.waiting(), Waiting { files: 1, bytes: 700 });
            assert!(!reaper.has_work() && !reaper.is_urgent() && !reaper.make_room());
            reaper.retry();
        }
        let error = reaper.finish().unwrap_err();
        assert_eq!(error.to_string(), format!("cannot remove `{}`: {}", path.display(), error.source));
        disk.fail_shrinking(None);
        reaper.retry();
        reaper.finish().unwrap();
        assert_eq!(reaper.waiting(), Waiting::default());
    }
}

#[test]
fn a_file_that_cannot_go_holds_up_no_other() {
    let dir = temporary_dir("stuck");
    let reaper = Reaper::new(Arc::new(OsDisk::default()), &dir);
    std::fs::create_dir(dir.join("a.tmp")).unwrap();
    for name in ["a.tmp", "b.tmp", "c.tmp"] {
        if name != "a.tmp" {
            std::fs::write(dir.join(name), [7; 10_000]).unwrap();
        }
        reaper.retire_found(dir.join(name));
    }
    assert_eq!(reaper.finish().unwrap_err().operation, "remove");
    assert_eq!(OsDisk::default().list(&dir).unwrap(), ["a.tmp"]);
    assert!(!reaper.has_work());
    std::fs::remove_dir_all(&dir).unwrap();
}

#[cfg(feature = "sim")]
#[test]
fn room_is_made_by_whole_files_and_by_those_of_a_neighbour() {
    let (disk, reaper, _) = retired(1000);
    let (reaper, dir) = (Arc::new(reaper), Path::new("/other"));
    let neighbour = Arc::new(Reaper::new(Arc::new(disk.clone()), dir));
    reaper.share_disk_with(&neighbour);
    for name in ["a.tmp", "b.tmp"] {
        disk.install(&dir.join(name), &[7; 500]).unwrap();
        neighbour.retire(dir.join(name), 500, None);
    }
    // A name that is gone makes no room.
    reaper.retire(Path::new(DIR).join("gone.tmp"), 5, None);
    let files = || disk.list(Path::new(DIR)).unwrap().len() + disk.list(dir).unwrap().len();
    for left in [2, 1, 0] {
        assert!(reaper.make_room());
        assert_eq!(files(), left);
    }
    assert!(!reaper.make_room() && !neighbour.make_room());
}

#[cfg(feature = "sim")]
#[test]
fn a_disk_too_full_to_rename_removes() {
    for code in [libc::ENOSPC, libc::EDQUOT] {
        let (disk, reaper, path) = retired(1000);
        disk.fail_renames(Some((".old", code)));
        let to = path.with_extension("old");
        assert!(!reaper.put_aside(&path, &to).unwrap());
        assert_eq!(disk.list(Path::new(DIR)).unwrap(), Vec::<String>::new());
    }
    let (disk, reaper, path) = retired(1000);
    disk.fail_renames(Some((".old", libc::EIO)));
    let to = path.with_extension("old");
    assert_eq!(reaper.put_aside(&path, &to).unwrap_err().raw_os_error(), Some(libc::EIO));
    disk.fail_renames(None);
    assert!(reaper.put_aside(&path, &to).unwrap());
    assert_eq!(disk.list(Path::new(DIR)).unwrap(), ["a.old"]);
}

#[cfg(feature = "sim")]
#[test]
fn what_waits_is_urgent_when_little_else_is_free() {
    let (disk, reaper, _) = retired(1000);
    disk.set_capacity(Some(1000 + 4000));
    assert!(!reaper.is_urgent());
    disk.set_capacity(Some(1000 + 3999));
    assert!(reaper.is_urgent());
    let users: Users = Arc::new(());
    reaper.finish().unwrap();
    assert!(!reaper.is_urgent() && !reaper.has_work());
    reaper.retire(Path::new(DIR).join("b.tmp"), 5000, Some(Arc::clone(&users)));
    assert!(!reaper.has_work() && !reaper.is_urgent(), "nothing can be done while it is used");
    drop(users);
    assert!(reaper.has_work() && reaper.is_urgent());
}

#[cfg(feature = "sim")]
#[test]
fn after_a_failed_sync_of_the_directory_nothing_is_cut_and_no_name_counts_as_durable() {
    let (disk, reaper, path) = retired(1000);
    disk.fail_sync_after(0);
    for _ in 0..3 {
        let error = reaper.step(300).unwrap_err();
        assert_eq!((error.operation, error.is_fatal), ("sync", true));
        // The operating system told the reaper, and would tell nobody else.
        assert!(reaper.sync_names().is_err());
        assert!(!reaper.make_room());
        reaper.retry();
        assert!(reaper.finish().unwrap_err().is_fatal);
        reaper.retry();
        assert_eq!(disk.contents(&path).unwrap().len(), 1000);
    }
    disk.sync_dir(Path::new(DIR)).unwrap();
    assert_eq!(disk.after_cut(1).list(Path::new(DIR)).unwrap(), ["a"], "the sync after it made the name durable");
}

#[cfg(feature = "sim")]
#[test]
fn a_file_with_a_second_name_keeps_its_bytes() {
    let (disk, reaper, path) = retired(1000);
    disk.link(&path, "copy").unwrap();
    assert!(disk.open(&path, Mode::Read).unwrap().is_shared().unwrap());
    reaper.finish().unwrap();
    assert_eq!(disk.contents(&Path::new(DIR).join("copy")).unwrap(), [7; 1000]);
    assert_eq!(disk.list(Path::new(DIR)).unwrap(), ["copy"]);
}

/// Looks at the reaper while it is dropped, which would wait for ever if a step dropped it under the lock.
#[cfg(feature = "sim")]
struct Looks(Arc<Reaper>);

#[cfg(feature = "sim")]
impl Drop for Looks {
    fn drop(&mut self) {
        assert_eq!(self.0.waiting(), Waiting { files: 0, bytes: 1000 });
        self.0.retire(Path::new(DIR).join("gone.tmp"), 0, None);
    }
}

#[cfg(feature = "sim")]
#[test]
fn a_step_holds_no_lock_while_it_works() {
    let (disk, reaper, path) = retired(1000);
    reaper.finish().unwrap();
    disk.install(&path, &[7; 1000]).unwrap();
    let reaper = Arc::new(reaper);
    reaper.retire(path, 1000, Some(Arc::new(Looks(Arc::clone(&reaper)))));
    assert_eq!(reaper.step(100).unwrap(), Reaped::Freed(100));
    assert_eq!(reaper.waiting(), Waiting { files: 2, bytes: 900 });
    reaper.finish().unwrap();
}

#[test]
fn on_the_operating_systems_disk_a_copy_by_hard_links_keeps_its_bytes() {
    let dir = temporary_dir("copy");
    let reaper = Reaper::new(Arc::new(OsDisk::default()), &dir);
    for name in ["a.tmp", "b.tmp"] {
        std::fs::write(dir.join(name), [7; 10_000]).unwrap();
        reaper.retire(dir.join(name), 10_000, None);
    }
    reaper.retire(dir.join("gone.tmp"), 5, None);
    std::fs::hard_link(dir.join("a.tmp"), dir.join("copy")).unwrap();
    while reaper.step(4096).unwrap() != Reaped::Idle {}
    assert_eq!(std::fs::read(dir.join("copy")).unwrap(), [7; 10_000]);
    assert_eq!(OsDisk::default().list(&dir).unwrap(), ["copy"]);
    std::fs::remove_dir_all(&dir).unwrap();
}

#[test]
fn a_link_goes_and_what_it_points_to_stays() {
    let dir = temporary_dir("link");
    let reaper = Reaper::new(Arc::new(OsDisk::default()), &dir);
    std::fs::write(dir.join("mine"), [7; 10_000]).unwrap();
    std::os::unix::fs::symlink(dir.join("mine"), dir.join("a.tmp")).unwrap();
    reaper.retire_found(dir.join("a.tmp"));
    while reaper.step(4096).unwrap() != Reaped::Idle {}
    assert_eq!(std::fs::read(dir.join("mine")).unwrap(), [7; 10_000]);
    assert_eq!(OsDisk::default().list(&dir).unwrap(), ["mine"]);
    std::os::unix::fs::symlink(dir.join("mine"), dir.join("b.tmp")).unwrap();
    remove_in_steps(Arc::new(OsDisk::default()), &dir.join("b.tmp")).unwrap();
    remove_in_steps(Arc::new(OsDisk::default()), &dir.join("mine")).unwrap();
    assert_eq!(OsDisk::default().list(&dir).unwrap(), Vec::<String>::new());
    std::fs::remove_dir_all(&dir).unwrap();
}

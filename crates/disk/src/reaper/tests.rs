#![allow(clippy::unwrap_used)]

use super::*;
use crate::OsDisk;
#[cfg(feature = "sim")]
use crate::sim::SimDisk;

const DIR: &str = "/d";

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
fn a_file_that_cannot_go_is_kept_and_tried_again() {
    for code in [libc::EIO, libc::EROFS] {
        let (disk, reaper, path) = retired(1000);
        reaper.step(300).unwrap();
        disk.fail_shrinking(Some(code));
        for _ in 0..3 {
            let error = reaper.step(300).unwrap_err();
            assert_eq!((error.operation, error.source.raw_os_error()), ("truncate", Some(code)));
            assert_eq!(reaper.waiting(), Waiting { files: 1, bytes: 700 });
        }
        let error = reaper.finish().unwrap_err();
        assert_eq!(error.to_string(), format!("cannot remove `{}`: {}", path.display(), error.source));
        disk.fail_shrinking(None);
        reaper.finish().unwrap();
        assert_eq!(reaper.waiting(), Waiting::default());
    }
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
fn a_failed_sync_of_the_directory_cuts_nothing() {
    let (disk, reaper, path) = retired(1000);
    disk.fail_sync_after(0);
    assert_eq!(reaper.step(300).unwrap_err().operation, "sync");
    assert_eq!(disk.contents(&path).unwrap().len(), 1000);
    assert_eq!(reaper.step(300).unwrap(), Reaped::Freed(300));
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
    let dir = std::env::temp_dir().join(format!("cairn-reaper-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
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

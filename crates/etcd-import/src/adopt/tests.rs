#![allow(clippy::unwrap_used)]

use super::*;

/// A directory that goes away with the test.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Scratch {
        let dir = std::env::temp_dir().join(format!("cairn-adopt-{}-{name}", std::process::id()));
        let _ = fs::remove_dir_all(&dir);
        fs::create_dir_all(&dir).unwrap();
        Scratch(dir)
    }

    fn data_dir(&self) -> PathBuf {
        self.0.join("data")
    }

    fn wal_dir(&self) -> PathBuf {
        self.0.join("log/")
    }

    /// What etcd has left, as far as an adoption looks at it.
    fn etcds(&self, has_wal_dir: bool) {
        write(&self.data_dir().join("member/snap/db"), "etcd");
        let wal = if has_wal_dir { self.wal_dir() } else { self.data_dir().join("member/wal") };
        write(&wal.join("0.wal"), "etcd");
    }

    /// One attempt that is killed after so many steps.
    fn attempt(&self, has_wal_dir: bool, may_begin: bool, steps: usize) -> Result<Option<Adopted>, Error> {
        let (data_dir, wal_dir) = (self.data_dir(), self.wal_dir());
        let wal_dir = has_wal_dir.then_some(wal_dir.as_path());
        let steps = Steps { left: std::cell::Cell::new(steps) };
        Adoption { data_dir: &data_dir, wal_dir, steps }.run(
            may_begin,
            || Ok(()),
            |(), from_wal, to, to_wal| {
                assert_eq!(from_wal, wal_dir);
                write(&to.join("member/snap"), "ours");
                let wal = to_wal.cloned().unwrap_or(to.join("member/wal"));
                write(&wal.join("0.wal"), "ours");
                crate::log::tests::own_log(&wal, 1);
                Ok(Migrated { member_id: 1, cluster_id: 2, revision: 3, index: 4, entries: 5 })
            },
        )
    }

    fn is_untouched(&self, has_wal_dir: bool) -> bool {
        let wal = if has_wal_dir { self.wal_dir() } else { self.data_dir().join("member/wal") };
        read(&self.data_dir().join("member/snap/db")) == "etcd" && read(&wal.join("0.wal")) == "etcd"
    }

    /// The new data is in place, etcd's is in the backup, and nothing else is there.
    fn check_adopted(&self, has_wal_dir: bool) {
        let (data_dir, wal_dir) = (self.data_dir(), self.wal_dir());
        assert_eq!(read(&data_dir.join("member/snap")), "ours");
        let backup = names(&data_dir).into_iter().find(|name| name.starts_with(BACKUP)).unwrap();
        assert_eq!(names(&data_dir), [backup.clone(), "member".into()]);
        assert_eq!(read(&data_dir.join(&backup).join("snap/db")), "etcd");
        if !has_wal_dir {
            assert_eq!(read(&data_dir.join("member/wal/0.wal")), "ours");
            assert_eq!(read(&data_dir.join(&backup).join("wal/0.wal")), "etcd");
            return;
        }
        assert_eq!(read(&wal_dir.join("0.wal")), "ours");
        assert_eq!(names(&self.0), ["data".into(), "log".into(), format!("log-{backup}")]);
        assert_eq!(read(&self.0.join(format!("log-{backup}")).join("0.wal")), "etcd");
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn write(path: &Path, text: &str) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

fn names(dir: &Path) -> Vec<String> {
    let mut names: Vec<String> =
        fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort_unstable();
    names
}

#[test]
fn a_kill_at_any_step_loses_nothing() {
    for has_wal_dir in [false, true] {
        let mut step = 0;
        loop {
            let scratch = Scratch::new(&format!("kill-{has_wal_dir}-{step}"));
            scratch.etcds(has_wal_dir);
            if scratch.attempt(has_wal_dir, true, step).is_ok() {
                scratch.check_adopted(has_wal_dir);
                assert!(step > 5);
                break;
            }
            // A start without the flag begins nothing, and finishes what has begun.
            let is_untouched = scratch.is_untouched(has_wal_dir);
            let next = scratch.attempt(has_wal_dir, false, usize::MAX).unwrap();
            if is_untouched {
                assert_eq!(next, None, "killed at step {step}");
                assert!(scratch.is_untouched(has_wal_dir), "killed at step {step}");
                scratch.attempt(has_wal_dir, true, usize::MAX).unwrap().unwrap();
            }
            scratch.check_adopted(has_wal_dir);
            assert_eq!(scratch.attempt(has_wal_dir, true, usize::MAX).unwrap(), None, "adopted once");
            step += 1;
        }
    }
}

#[test]
fn an_etcd_that_was_started_on_half_an_adoption_is_not_thrown_away() {
    let scratch = Scratch::new("both");
    scratch.etcds(false);
    // Killed behind the renaming of `member`.
    assert!(scratch.attempt(false, true, 2).is_err());
    write(&scratch.data_dir().join("member/snap/db"), "another");
    let error = scratch.attempt(false, true, usize::MAX).unwrap_err().to_string();
    assert!(error.contains("an etcd was started on it meanwhile"), "{error}");
    assert_eq!(read(&scratch.data_dir().join("member/snap/db")), "another");
}

/// A start on nothing would be one of a member that has forgotten what it acknowledged.
#[test]
fn an_adoption_whose_data_is_gone_is_not_finished() {
    for has_wal_dir in [false, true] {
        let scratch = Scratch::new(&format!("gone-{has_wal_dir}"));
        scratch.etcds(has_wal_dir);
        // Killed once the new `member` was in its place.
        assert!(scratch.attempt(has_wal_dir, true, 3).is_err());
        let (member, aside) = (scratch.data_dir().join("member"), scratch.0.join("aside"));
        fs::rename(&member, &aside).unwrap();
        for _ in 0..2 {
            let error = scratch.attempt(has_wal_dir, true, usize::MAX).unwrap_err().to_string();
            assert!(error.contains("holds the new data"), "{error}");
        }
        fs::rename(&aside, &member).unwrap();
        scratch.attempt(has_wal_dir, false, usize::MAX).unwrap().unwrap();
        scratch.check_adopted(has_wal_dir);
    }
}

/// etcd's own log, still in its place, is no adopted one.
#[test]
fn an_adoption_whose_log_is_gone_is_not_finished() {
    let scratch = Scratch::new("log-gone");
    scratch.etcds(true);
    // Killed before the log was renamed.
    assert!(scratch.attempt(true, true, 3).is_err());
    let (staged, aside) = (scratch.0.join("log.adopting"), scratch.0.join("aside"));
    write(&scratch.wal_dir().join("0000000000000000-0000000000000000.wal"), "etcd");
    fs::rename(&staged, &aside).unwrap();
    for _ in 0..2 {
        let error = scratch.attempt(true, true, usize::MAX).unwrap_err().to_string();
        assert!(error.contains("holds the new log"), "{error}");
    }
    fs::rename(&aside, &staged).unwrap();
    scratch.attempt(true, false, usize::MAX).unwrap().unwrap();
    scratch.check_adopted(true);
}

#[test]
fn only_etcds_data_is_adopted() {
    let scratch = Scratch::new("none");
    assert_eq!(scratch.attempt(false, true, usize::MAX).unwrap(), None, "no directory");
    write(&scratch.data_dir().join("member/snap"), "ours");
    assert_eq!(scratch.attempt(false, true, usize::MAX).unwrap(), None, "ours already");
    write(&scratch.data_dir().join("adopting/ready"), "../elsewhere\n");
    assert!(scratch.attempt(false, true, usize::MAX).unwrap_err().to_string().contains("names no backup"));
    let empty = Scratch::new("empty");
    fs::create_dir_all(empty.data_dir().join("member/snap")).unwrap();
    let error = empty.attempt(false, true, usize::MAX).unwrap_err().to_string();
    assert!(error.contains("was never started"), "{error}");
}

#[test]
fn one_adoption_at_a_time_with_one_log() {
    let scratch = Scratch::new("locked");
    scratch.etcds(true);
    let lock = File::open(scratch.data_dir()).unwrap();
    lock.try_lock().unwrap();
    assert!(matches!(scratch.attempt(true, true, usize::MAX), Err(Error::InUse { .. })));
    drop(lock);
    // Killed behind the renaming of `member`: the next start must name the same log.
    assert!(scratch.attempt(true, true, 2).is_err());
    let error = scratch.attempt(false, true, usize::MAX).unwrap_err().to_string();
    assert!(error.contains("with another --wal-dir") && error.contains("log"), "{error}");
    scratch.attempt(true, false, usize::MAX).unwrap().unwrap();
    scratch.check_adopted(true);
}

#[test]
fn a_log_inside_member_is_the_usual_one_or_refused() {
    let scratch = Scratch::new("inside");
    scratch.etcds(false);
    let data_dir = scratch.data_dir();
    let elsewhere = |wal_dir: &str| elsewhere(&data_dir, Some(&data_dir.join(wal_dir)));
    assert_eq!(elsewhere("member/wal/").unwrap(), None);
    assert_eq!(elsewhere("member/../member/wal").unwrap(), None);
    assert!(elsewhere("member/snap").unwrap_err().to_string().contains("leave --wal-dir out"));
    let log = real(&data_dir).unwrap().join("log");
    assert_eq!(elsewhere("log").unwrap(), Some(log.clone()));
    // A link is followed, whether there is something at its end or, for a moment, not.
    std::os::unix::fs::symlink("log", data_dir.join("link")).unwrap();
    assert_eq!(elsewhere("link").unwrap(), Some(log.clone()));
    fs::create_dir(&log).unwrap();
    assert_eq!(elsewhere("link").unwrap(), Some(log));
}

#[test]
fn mount_points_are_read_as_they_are_named() {
    assert!(mount_points().contains(&PathBuf::from("/proc")));
    assert_eq!(unescaped(b"/a\\040b\\134"), Path::new("/a b\\"));
    assert_eq!(unescaped(b"/a\\9"), Path::new("/a\\9"));
}

#[test]
fn days_have_dates() {
    for (day, date) in
        [(0, "19700101"), (59, "19700301"), (11_016, "20000229"), (11_017, "20000301"), (20_780, "20261123")]
    {
        assert_eq!(date_of(day), date);
    }
}

//! Of how many members the cluster in a directory is.

use disk::{OsDisk, data_dir};
use std::fs;
use std::io;
use std::path::Path;

use super::SIZE_MAX;

/// The file that has the number: of members that never started there is no trace.
const SIZE_FILE: &str = "size";

/// Why a cluster of `size` members cannot be started on `dir`, if so: one of another size is there already.
pub(super) fn refusal(dir: &Path, size: u16) -> Option<String> {
    let found = size_of(dir).filter(|found| *found != size)?;
    let member = if found == 1 { "member" } else { "members" };
    Some(format!(
        "`{dir}` holds a cluster of {found} {member}, not of {size}: nothing was started. Start it with --size {found}, or name another \
         directory (--data-dir); a running cluster grows and shrinks by `cairn ctl member add` and `member remove`",
        dir = dir.display(),
    ))
}

/// Writes the number down, for the next start.
pub(super) fn note(dir: &Path, size: u16) -> io::Result<()> {
    fs::write(dir.join(SIZE_FILE), format!("{size}\n"))
}

/// The number of members that the cluster in `dir` was made with; none if no member has a log there.
fn size_of(dir: &Path) -> Option<u16> {
    let disk = OsDisk { unsafe_no_sync: false };
    let has_member = |number: &u16| data_dir::has_member(&disk, &dir.join(format!("m{number}")), None);
    let last = (1..=SIZE_MAX).rev().find(has_member)?;
    let noted = fs::read_to_string(dir.join(SIZE_FILE)).ok().and_then(|text| text.trim().parse().ok());
    // A directory of an earlier version has no such file.
    Some(noted.filter(|noted| (last..=SIZE_MAX).contains(noted)).unwrap_or(last))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn directory(name: &str) -> std::path::PathBuf {
        let dir = std::env::temp_dir().join(format!("cairn-founded-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&dir);
        dir
    }

    fn found(dir: &Path, members: u16) {
        for number in 1..=members {
            let wal = dir.join(format!("m{number}")).join("member").join("wal");
            fs::create_dir_all(&wal).expect("room");
            fs::write(wal.join("0000000000000000-0000000000000000.wal"), b"").expect("room");
        }
    }

    #[test]
    fn a_cluster_of_another_size_is_refused() {
        let dir = directory("sizes");
        assert_eq!(refusal(&dir, 3), None, "nothing is there");
        found(&dir, 3);
        assert_eq!(refusal(&dir, 3), None);
        for size in [1, 5] {
            let text = refusal(&dir, size).expect("another size");
            assert!(text.contains("a cluster of 3 members") && text.contains("--size 3"), "{text}");
        }
        fs::remove_dir_all(&dir).expect("it is there");
    }

    /// A start that failed half-way is tried again with the same size.
    #[test]
    fn members_that_never_started_count() {
        let dir = directory("half");
        found(&dir, 2);
        note(&dir, 3).expect("room");
        assert_eq!(refusal(&dir, 3), None);
        assert!(refusal(&dir, 2).is_some_and(|text| text.contains("a cluster of 3 members")));
        fs::remove_dir_all(&dir).expect("it is there");
    }
}

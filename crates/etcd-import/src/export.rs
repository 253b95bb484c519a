//! The way back: a stopped member of Cairn becomes the same member of the same cluster as a data directory of etcd's.
//!
//! ```text
//! <to>/member/snap/db                        the store, as of the entry that it has applied
//! <to>/member/snap/<term>-<index>.snap       the same entry, with the members in the JSON of etcd's old store
//! <to>/member/wal/0000000000000000-...wal    term, vote, commit index, and the entries after it
//! ```

use crate::migrate::{check_reaches, continuous, hard_state};
use crate::steps::Steps;
use crate::target::check_apart;
use crate::{Error, log};
use api::Message;
use api::etcdserverpb::Metadata;
use api::raftpb::Snapshot;
use api::{snappb, walpb};
use disk::data_dir::{self, DataDir};
use disk::{Disk, OsDisk};
use std::fs::{self, File};
use std::io;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use wal::{Contents, EntryRef, Wal};

/// Bytes of the database written at once.
const PIECE_BYTES: usize = 1 << 20;

/// What was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exported {
    /// The member.
    pub member_id: u64,
    /// Its cluster.
    pub cluster_id: u64,
    /// Revision of the database.
    pub revision: i64,
    /// The last entry of the log that is in the database.
    pub index: u64,
    /// Entries after it, which the member applies when it starts.
    pub entries: usize,
    /// Bytes of the database.
    pub bytes: u64,
}

/// Writes the data of a stopped member into `to`, which must be empty or not there. A genuine etcd of the cluster's version starts on it.
/// The source is marked, so that it does not start again beside it.
///
/// # Errors
/// If the member runs, its data is damaged, or `to` cannot be written; nothing is left in `to` then.
pub fn export(data_dir: &Path, wal_dir: Option<&Path>, to: &Path) -> Result<Exported, Error> {
    export_in(data_dir, wal_dir, to, &Steps::all(), &|from, to| fs::rename(from, to))
}

/// What becomes `member` is called so before.
const DRAFT: &str = "exporting";

/// A rename, which tests have fail.
type Rename<'a> = &'a dyn Fn(&Path, &Path) -> io::Result<()>;

fn export_in(
    data_dir: &Path,
    wal_dir: Option<&Path>,
    to: &Path,
    steps: &Steps,
    rename: Rename<'_>,
) -> Result<Exported, Error> {
    // Opening a directory that is none of Cairn's would make it one.
    let sentinel = data_dir.join("member").join("snap");
    if !sentinel.is_file() {
        return Err(Error::Refused(format!("`{}` does not hold the data of a member of Cairn", data_dir.display())));
    }
    check_apart(data_dir, to)?;
    wal_dir.map_or(Ok(()), |wal_dir| check_apart(wal_dir, to))?;
    let made = Draft::begin(to)?;
    let disk: Arc<dyn Disk> = Arc::new(OsDisk { unsafe_no_sync: false });
    let dir = DataDir::open(&*disk, data_dir, wal_dir)?;
    // A member that lost what it had acknowledged must not go on as etcd's either.
    data_dir::check_lost_log(&*disk, data_dir, false)?;
    let options = store::Options { learners_max: usize::MAX, uses_key_files: false, ..store::Options::default() };
    let mut opened = store::open(disk.clone(), &dir.store, options)
        .map_err(|error| Error::Refused(format!("cannot open the store: {error}")))?;
    let index = opened.applied.index;
    let tail = log::read_tail(&dir.wal, index)?;
    check_reaches(&tail, &dir.wal, index)?;
    let identity = Metadata::decode(tail.metadata.as_slice())
        .map_err(|error| Error::Refused(format!("the log does not say whose it is: {error}")))?;
    let (mut revision, mut bytes, mut state) = (1, 0, walpb::Snapshot::default());
    // A member that has not written a checkpoint yet has all of it in its log.
    if index > 0 {
        let job = opened.applier.snapshot();
        let snapshot = job.raft_snapshot();
        revision = job.revision();
        let Some(mut image) = job.image() else {
            return Err(Error::Refused("the store was replaced meanwhile".into()));
        };
        bytes = image.len();
        let snap = made.draft.join("snap");
        write(&snap.join("db"), &mut || image.next(PIECE_BYTES).map(Vec::from))?;
        let metadata = snapshot.metadata.clone().unwrap_or_default();
        let mut file = Some(snap_file(&snapshot));
        write(&snap.join(format!("{:016x}-{index:016x}.snap", metadata.term())), &mut || file.take())?;
        sync(&snap)?;
        state = walpb::Snapshot { index: Some(index), term: metadata.term, conf_state: metadata.conf_state };
    }
    let entries = continuous(&tail.entries, index)?;
    let hard_state = hard_state(&tail.hard_state, index, state.term(), entries)?;
    let mut refs = entries.iter().map(|entry| EntryRef {
        term: entry.term(),
        index: entry.index(),
        kind: entry.r#type() as i32,
        data: entry.data.as_deref().unwrap_or_default(),
    });
    let contents = Contents { state: &state, entries: &mut refs, hard_state: &hard_state };
    Wal::create_with(disk.clone(), &made.draft.join("wal"), &tail.metadata, contents, wal::Options::default())?;
    sync(&made.draft)?;
    steps.next()?;
    // Two copies of one member must not both go on: what etcd acknowledges there is not in this one. So this one ends before etcd can start
    // on the other: a kill in between leaves none that starts by itself, and never two.
    let text = format!(
        "it was exported to `{}`, and etcd may have gone on there as the same member; what it has acknowledged since is not here (without \
         `member` in it the export was cut off at its end, and etcd has not)",
        to.display()
    );
    data_dir::mark_lost_log(&*disk, data_dir, &text)?;
    steps.next()?;
    if let Err(error) = made.place(to, rename) {
        // A rename over a network can be done and report an error all the same, or still be under way: so the draft must be gone, too.
        let is_gone = |name: &str| {
            fs::symlink_metadata(to.join(name)).is_err_and(|error| error.kind() == io::ErrorKind::NotFound)
        };
        if is_gone("member") && is_gone(DRAFT) {
            data_dir::check_lost_log(&*disk, data_dir, true)?;
            return Err(error);
        }
        return Err(Error::Refused(format!(
            "{error}; `{}` is there nevertheless, or may be, and etcd could start on it: `{}` stays marked and does not start",
            to.join("member").display(),
            data_dir.display()
        )));
    }
    steps.next()?;
    sync(to)?;
    sync(to.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new(".")))?;
    Ok(Exported {
        member_id: identity.node_id(),
        cluster_id: identity.cluster_id(),
        revision,
        index,
        entries: entries.len(),
        bytes,
    })
}

/// What becomes `member/` once it is written whole: etcd would start on half of one.
struct Draft {
    draft: PathBuf,
}

impl Draft {
    fn begin(to: &Path) -> Result<Draft, Error> {
        match fs::read_dir(to).map(|mut entries| entries.next().is_none()) {
            Ok(true) => {}
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                fs::create_dir(to).map_err(Error::io("create", to))?;
            }
            Ok(false) => return Err(Error::Refused(format!("`{}` is not empty", to.display()))),
            Err(error) => return Err(Error::io("read", to)(error)),
        }
        let made = Draft { draft: to.join(DRAFT) };
        let snap = made.draft.join("snap");
        for dir in [&made.draft, &snap] {
            fs::create_dir(dir).map_err(Error::io("create", dir))?;
        }
        for dir in [to, &made.draft, &snap] {
            use std::os::unix::fs::PermissionsExt as _;
            fs::set_permissions(dir, fs::Permissions::from_mode(0o700)).map_err(Error::io("change", dir))?;
        }
        Ok(made)
    }

    fn place(self, to: &Path, rename: Rename<'_>) -> Result<(), Error> {
        rename(&self.draft, &to.join("member")).map_err(Error::io("rename", &self.draft))
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        // Gone if it was finished. An empty directory around it may be one that only another user can make: it stays.
        let _ = fs::remove_dir_all(&self.draft);
    }
}

/// etcd's file of a snapshot: a checksum and the snapshot.
fn snap_file(snapshot: &Snapshot) -> Vec<u8> {
    let data = snapshot.encode_to_vec();
    snappb::Snapshot { crc: Some(crc32c::crc32c(&data)), data: Some(data.into()) }.encode_to_vec()
}

fn write(path: &Path, next: &mut dyn FnMut() -> Option<Vec<u8>>) -> Result<(), Error> {
    use std::os::unix::fs::OpenOptionsExt as _;
    let mut file =
        File::options().write(true).create_new(true).mode(0o600).open(path).map_err(Error::io("create", path))?;
    while let Some(bytes) = next() {
        file.write_all(&bytes).map_err(Error::io("write", path))?;
    }
    file.sync_all().map_err(Error::io("sync", path))
}

fn sync(dir: &Path) -> Result<(), Error> {
    File::open(dir).and_then(|dir| dir.sync_all()).map_err(Error::io("sync", dir))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Database;
    use crate::target::Target;
    use api::raftpb::{ConfState, Entry, HardState};
    use store::checkpoint::Checkpoint;

    /// A member of Cairn that has applied entry 5, with two entries after it, and knows that entry `commit` was committed.
    fn member(scratch: &Path, commit: u64) -> PathBuf {
        let (path, data_dir) = (scratch.join("db"), scratch.join(format!("data-{commit}")));
        let disk = Arc::new(OsDisk { unsafe_no_sync: true });
        let name = scratch.join(format!("store-{commit}"));
        let mut opened = store::open(disk, &name, store::Options::default()).expect("a store");
        let mut image = opened.applier.snapshot().image().expect("an image");
        std::fs::write(&path, image.next(1 << 20).expect("bytes")).expect("room");
        let database = Database::open(&path).expect("a database");
        let conf_state = ConfState { voters: vec![1], ..ConfState::default() };
        let target = Target::create(&data_dir, None).expect("room");
        let state =
            Checkpoint { applied_index: 5, applied_term: 1, conf_state: conf_state.clone(), ..Checkpoint::initial() };
        target.write_store(&database, |_| Ok(state)).expect("a store");
        let entry = |index| Entry { index: Some(index), term: Some(1), ..Entry::default() };
        let hard_state = HardState { term: Some(1), vote: Some(1), commit: Some(commit) };
        let metadata = Metadata { node_id: Some(1), cluster_id: Some(2) }.encode_to_vec();
        target.write_log(&metadata, (5, 1, conf_state), &[entry(6), entry(7)], &hard_state).expect("room");
        data_dir
    }

    #[test]
    fn a_kill_never_leaves_two_that_start() {
        let scratch = std::env::temp_dir().join(format!("cairn-export-killed-{}", std::process::id()));
        let disk = OsDisk { unsafe_no_sync: true };
        let mut found = Vec::new();
        for steps in 0..4 {
            std::fs::create_dir_all(&scratch).expect("room");
            let (data_dir, to) = (member(&scratch, 7), scratch.join("to"));
            let done = export_in(&data_dir, None, &to, &Steps { left: std::cell::Cell::new(steps) }, &|from, to| {
                fs::rename(from, to)
            });
            let is_marked = data_dir::check_lost_log(&disk, &data_dir, false).is_err();
            found.push((done.is_ok(), !is_marked, to.join("member").exists()));
            if !to.join("member").exists() {
                // Nothing of the source is lost: once the mark is taken away it is exported as if nothing had been.
                data_dir::check_lost_log(&disk, &data_dir, true).expect("room");
                assert_eq!(export(&data_dir, None, &scratch.join("again")).expect("an export").entries, 2);
            }
            std::fs::remove_dir_all(&scratch).expect("ours");
        }
        let [before, between, after, whole] = found[..] else { panic!("{found:?}") };
        assert_eq!(before, (false, true, false), "killed before the mark");
        assert_eq!(between, (false, false, false), "killed behind the mark");
        assert_eq!(after, (false, false, true), "killed when etcd can start");
        assert_eq!(whole, (true, false, true));
    }

    #[test]
    fn a_rename_that_reports_an_error_never_leaves_two_that_start() {
        let scratch = std::env::temp_dir().join(format!("cairn-export-renamed-{}", std::process::id()));
        let disk = OsDisk { unsafe_no_sync: true };
        for is_done in [true, false] {
            std::fs::create_dir_all(&scratch).expect("room");
            let (data_dir, to) = (member(&scratch, 7), scratch.join("to"));
            let rename = |from: &Path, to: &Path| {
                if is_done {
                    fs::rename(from, to)?;
                }
                Err(io::Error::other("the answer was lost"))
            };
            let failed = export_in(&data_dir, None, &to, &Steps::all(), &rename).expect_err("an error").to_string();
            assert!(failed.contains("the answer was lost"), "{failed}");
            assert_eq!(failed.contains("stays marked"), is_done, "{failed}");
            let is_marked = data_dir::check_lost_log(&disk, &data_dir, false).is_err();
            assert_eq!((is_marked, to.join("member").exists()), (is_done, is_done));
            std::fs::remove_dir_all(&scratch).expect("ours");
        }
    }

    #[test]
    fn a_log_without_what_was_committed_is_refused() {
        let scratch = std::env::temp_dir().join(format!("cairn-export-{}", std::process::id()));
        std::fs::create_dir_all(&scratch).expect("room");
        let exported = |commit: u64| {
            let to = scratch.join(format!("to-{commit}"));
            let done = export(&member(&scratch, commit), None, &to);
            (done.map(|done| (done.index, done.entries)).map_err(|error| error.to_string()), to.join("member").exists())
        };
        let (whole, cut) = (exported(7), exported(8));
        std::fs::remove_dir_all(&scratch).expect("ours");
        assert_eq!(whole, (Ok((5, 2)), true));
        assert!(cut.0.as_ref().is_err_and(|text| text.contains("entry 8 was committed: parts of the log are missing")));
        assert!(!cut.1, "{cut:?}");
    }
}

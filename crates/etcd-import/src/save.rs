//! The database of a stopped member, as its snapshot would be if it ran: the store, and what the log says was committed after it.

use crate::migrate::check_reaches;
use crate::overlay::Overlay;
use crate::{Error, log};
use api::Message;
use api::etcdserverpb::Metadata;
use api::raftpb::{self, ConfChange, Entry, EntryType};
use disk::data_dir::{self, DataDirError};
use disk::{Disk, File, Mode, OsDisk};
use std::path::Path;
use std::sync::Arc;
use store::{Applier, Response, Sink, image};

/// Bytes of the database written at once.
pub(crate) const PIECE_BYTES: usize = 1 << 20;

/// What was saved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Saved {
    /// The member.
    pub member_id: u64,
    /// Its cluster.
    pub cluster_id: u64,
    /// Revision of the database.
    pub revision: i64,
    /// The last entry of the log that is in the database.
    pub index: u64,
    /// Entries after it. Whether the other members have them is not known here.
    pub uncommitted: u64,
    /// Bytes of the database.
    pub bytes: u64,
    /// Its version of etcd; empty if it is from before databases said theirs.
    pub version: String,
}

/// Gives `write` the database of a stopped member piece by piece. Nothing in its directory is changed; `scratch`, an empty directory, takes
/// what must be written meanwhile. It holds values, and is the caller's to remove.
///
/// # Errors
/// If the member runs, must not start again, or its data is damaged; or what `write` says.
pub fn save(
    data_dir: &Path,
    wal_dir: Option<&Path>,
    scratch: &Path,
    write: &mut dyn FnMut(&[u8]) -> Result<(), Error>,
) -> Result<Saved, Error> {
    let member = data_dir.join("member");
    if !member.join("snap").is_file() {
        return Err(Error::Refused(format!("`{}` does not hold the data of a member of Cairn", data_dir.display())));
    }
    let wal_dir = wal_dir.map_or_else(|| member.join("wal"), Path::to_path_buf);
    let _locks = [lock(&member.join("lock"))?, lock(&wal_dir.join("lock"))?];
    let disk = OsDisk { unsafe_no_sync: false };
    data_dir::check_lost_log(&disk, data_dir, false)?;
    let store_dir = member.join("store");
    check_whole(&disk, &store_dir)?;
    let options = store::Options { learners_max: usize::MAX, uses_key_files: false, ..store::Options::default() };
    let mut opened = store::open(Arc::new(Overlay::new(scratch)), &store_dir, options)
        .map_err(|error| Error::Refused(format!("cannot open the store: {error}")))?;
    let tail = log::read_tail(&wal_dir, opened.applied.index)?;
    check_reaches(&tail, &wal_dir, opened.applied.index)?;
    let identity = Metadata::decode(tail.metadata.as_slice())
        .map_err(|error| Error::Refused(format!("the log does not say whose it is: {error}")))?;
    let last = tail.entries.last().map_or(opened.applied.index, Entry::index);
    let commit = committed(&tail, identity.node_id(), last);
    if commit > last {
        return Err(Error::Refused(format!(
            "the log ends at entry {last}, but the member knows that entry {commit} was committed: parts of the log are missing"
        )));
    }
    apply(&mut opened.applier, &tail, commit)?;
    let index = opened.applier.applied_index();
    let job = opened.applier.snapshot();
    let revision = job.revision();
    let Some(mut image) = job.image() else {
        return Err(Error::Refused("the store was replaced meanwhile".into()));
    };
    let bytes = image.len();
    while let Some(piece) = image.next(PIECE_BYTES) {
        write(&piece)?;
    }
    let (member_id, cluster_id) = (identity.node_id(), identity.cluster_id());
    let version = image::storage_version(&opened.store.cluster_version()).unwrap_or_default().into();
    Ok(Saved { member_id, cluster_id, revision, index, uncommitted: last.saturating_sub(index), bytes, version })
}

/// The last entry that is known to be committed. A member that votes alone commits whatever its log has.
fn committed(tail: &log::Tail, member: u64, last: u64) -> u64 {
    let mut commit = tail.hard_state.commit();
    while commit < last {
        let votes_alone = |state: raftpb::ConfState| state.voters == [member] && state.voters_outgoing.is_empty();
        if !tail.votes.at(commit).is_some_and(votes_alone) {
            break;
        }
        // From a change of the members on others may vote.
        let mut behind = tail.entries.iter().filter(|entry| entry.index() > commit);
        commit = behind.find(|entry| entry.r#type() != EntryType::EntryNormal).map_or(last, Entry::index);
    }
    commit
}

/// Applies what the member would at its next start.
fn apply(applier: &mut Applier, tail: &log::Tail, commit: u64) -> Result<(), Error> {
    let failed = |error: store::Fatal| Error::Refused(format!("cannot apply the log: {error}"));
    let from = applier.applied_index();
    for entry in tail.entries.iter().filter(|entry| entry.index() > from && entry.index() <= commit) {
        applier.apply(std::slice::from_ref(entry), &mut Nobody).map_err(failed)?;
        if entry.r#type() == EntryType::EntryNormal {
            continue;
        }
        if let Some(state) = tail.votes.at(entry.index()) {
            applier.set_conf_state(state);
        }
        while !applier.can_capture() {
            applier.keep_conf_state();
        }
    }
    Ok(())
}

/// No client waits for what is applied.
pub(crate) struct Nobody;

impl Sink for Nobody {
    fn done(&mut self, _index: u64, _request: u64, _result: Result<Response, api::Error>) {}

    fn conf_change(&mut self, _index: u64, _change: ConfChange) {}

    fn over_quota(&mut self, _response: &Response) {}
}

/// Checks every record, and both checkpoints.
fn check_whole(disk: &dyn Disk, store: &Path) -> Result<(), Error> {
    let damaged = |why: String| Error::Refused(format!("`{}` is damaged: {why}", store.display()));
    let found = store::inspect(disk, store).map_err(|error| damaged(error.to_string()))?;
    match found.damaged.first() {
        None => Ok(()),
        Some(damage) => Err(damaged(format!("one of two checkpoints: {damage}"))),
    }
}

/// Keeps the member from starting meanwhile. Nothing is created.
fn lock(path: &Path) -> Result<Arc<dyn File>, Error> {
    let file = OsDisk { unsafe_no_sync: false }.open(path, Mode::Write).map_err(Error::io("open", path))?;
    match file.lock() {
        Ok(()) => Ok(file),
        Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
            Err(DataDirError::Locked { path: path.into() }.into())
        }
        Err(error) => Err(Error::io("lock", path)(error)),
    }
}

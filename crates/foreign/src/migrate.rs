//! A member of etcd, stopped, as a member of Cairn: the same member of the same cluster.

use crate::target::{Target, check_apart};
use crate::{Database, Error, log};
use api::Message;
use api::etcdserverpb::Metadata;
use api::raftpb::{Entry, HardState};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// What was taken over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Migrated {
    /// The member.
    pub member_id: u64,
    /// Its cluster.
    pub cluster_id: u64,
    /// Revision of the database.
    pub revision: i64,
    /// The last entry of the log that was in the database.
    pub index: u64,
    /// Entries behind it, which the member applies when it starts.
    pub entries: usize,
}

/// Makes a data directory of Cairn of one that a stopped etcd 3.5 - 3.7 has left, or that its tool has restored from a snapshot. The
/// source is only read; whoever works with it has so long to end.
///
/// # Errors
/// If the source is in use or damaged, or something is already where the data is to go.
pub fn migrate(
    from: &Path,
    from_wal: Option<&Path>,
    data_dir: &Path,
    wal_dir: Option<&PathBuf>,
    patience: Duration,
) -> Result<Migrated, Error> {
    let database_path = from.join("member").join("snap").join("db");
    for target in [Some(data_dir), wal_dir.map(PathBuf::as_path)].into_iter().flatten() {
        check_apart(from, target)?;
        from_wal.map_or(Ok(()), |from_wal| check_apart(from_wal, target))?;
    }
    let database = Database::open_unused(&database_path, patience)?;
    let mut contents = database.contents()?;
    let own_wal = from.join("member").join("wal");
    let tail = log::read_tail(from_wal.unwrap_or(&own_wal), contents.index)?;
    let metadata = tail.metadata.clone();
    let identity = Metadata::decode(&metadata[..])
        .map_err(|error| Error::Refused(format!("the log does not say whose it is: {error}")))?;
    contents.conf_state = tail.votes.at(contents.index).or(contents.conf_state);
    let Some(conf_state) = contents.conf_state.clone() else {
        let text =
            "neither the database nor the log says who votes: start this member once with etcd 3.5, then try again";
        return Err(Error::Refused(text.into()));
    };
    let index = contents.index;
    let term = match tail.term_of(index) {
        Some(term) => term,
        None if index == 0 => 0,
        None => contents.term,
    };
    contents.term = term;
    let entries = continuous(&tail.entries, index)?;
    let hard_state = hard_state(&tail.hard_state, index, term, entries);
    let (count, behind) = (entries.len(), (index, term, conf_state));
    let target = Target::create(data_dir, wal_dir)?;
    let revision = target.write_store(&database, |last| Ok(contents.checkpoint(last)))?;
    target.write_log(&metadata, behind, entries, &hard_state)?;
    Ok(Migrated { member_id: identity.node_id(), cluster_id: identity.cluster_id(), revision, index, entries: count })
}

/// The entries behind `index`, which must follow it without a gap.
fn continuous(entries: &[Entry], index: u64) -> Result<&[Entry], Error> {
    let first = entries.iter().position(|entry| entry.index() > index).unwrap_or(entries.len());
    let entries = &entries[first..];
    let is_whole = entries.iter().zip(index + 1..).all(|(entry, index)| entry.index() == index);
    if is_whole {
        return Ok(entries);
    }
    let found = entries.first().map_or(0, Entry::index);
    Err(Error::Refused(format!(
        "the log has entry {found} where entry {} is due: parts of it are missing, or the database is older than the log",
        index + 1
    )))
}

/// What the member knows of votes and of what is agreed. What is in the database was agreed, whatever the log had heard of that.
fn hard_state(found: &HardState, index: u64, term: u64, entries: &[Entry]) -> HardState {
    let last = entries.last().map_or(index, Entry::index);
    let newest = entries.last().map_or(term, Entry::term);
    let vote = if found.term() >= newest { found.vote() } else { 0 };
    HardState {
        term: Some(found.term().max(newest)),
        vote: Some(vote),
        commit: Some(found.commit().clamp(index, last)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(index: u64, term: u64) -> Entry {
        Entry { index: Some(index), term: Some(term), ..Entry::default() }
    }

    #[test]
    fn entries_must_follow_the_database() {
        let entries = [entry(4, 1), entry(5, 2), entry(6, 2)];
        assert_eq!(continuous(&entries, 4).map(<[Entry]>::len).ok(), Some(2));
        assert_eq!(continuous(&entries, 9).map(<[Entry]>::len).ok(), Some(0));
        assert!(continuous(&entries, 2).is_err());
        assert!(continuous(&[entry(5, 1), entry(7, 1)], 4).is_err());
    }

    #[test]
    fn what_is_applied_is_committed() {
        let found = HardState { term: Some(3), vote: Some(9), commit: Some(2) };
        let state = hard_state(&found, 5, 3, &[entry(6, 3)]);
        assert_eq!((state.term(), state.vote(), state.commit()), (3, 9, 5));
        let state = hard_state(&HardState { commit: Some(99), ..found }, 5, 3, &[entry(6, 4)]);
        assert_eq!((state.term(), state.vote(), state.commit()), (4, 0, 6));
    }
}

//! Turning a stopped member of etcd into a member of Cairn: the same member of the same cluster.

use crate::target::{Target, check_apart};
use crate::{Database, Error, log};
use api::Message;
use api::etcdserverpb::Metadata;
use api::raftpb::{ConfState, Entry, HardState};
use api::walpb::Snapshot;
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
    /// Entries after it, which the member applies when it starts.
    pub entries: usize,
}

/// Makes a data directory of Cairn of one that a stopped etcd 3.5 - 3.7 has left, or that its tool has restored from a snapshot. The
/// source is only read; a process that uses it has this long to end.
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
    for target in [Some(data_dir), wal_dir.map(PathBuf::as_path)].into_iter().flatten() {
        check_apart(from, target)?;
        from_wal.map_or(Ok(()), |from_wal| check_apart(from_wal, target))?;
    }
    let own = Database::open_unused(&from.join("member").join("snap").join("db"), patience)?;
    take_over(from, from_wal, &own, data_dir, wal_dir, patience)
}

/// The same, where the target may lie in the source. `own` is the member's database: its lock keeps the member from starting meanwhile.
pub(crate) fn take_over(
    from: &Path,
    from_wal: Option<&Path>,
    own: &Database,
    data_dir: &Path,
    wal_dir: Option<&PathBuf>,
    patience: Duration,
) -> Result<Migrated, Error> {
    let database_path = from.join("member").join("snap").join("db");
    let mut contents = own.contents()?;
    let own_wal = from.join("member").join("wal");
    let mut tail = log::read_tail(from_wal.unwrap_or(&own_wal), contents.index)?;
    check_reaches(&tail, from_wal.unwrap_or(&own_wal), contents.index)?;
    let received = match tail.votes.newest(tail.hard_state.commit()) {
        Some(snapshot) if snapshot.index() > contents.index => {
            let (path, database) = received(&database_path, snapshot, contents.index, patience)?;
            contents = database.contents()?;
            check_received(&path, contents.index, snapshot.index())?;
            Some(database)
        }
        _ => None,
    };
    let database = received.as_ref().unwrap_or(own);
    let metadata = tail.metadata.clone();
    let identity = Metadata::decode(metadata.as_slice())
        .map_err(|error| Error::Refused(format!("the log does not say whose it is: {error}")))?;
    let index = contents.index;
    let entries = continuous(&tail.entries, index)?;
    let is_member = |id: u64| contents.members.iter().any(|member| member.id == id);
    // Of a table without this member itself nothing is believed.
    if is_member(identity.node_id()) {
        tail.votes.forget_refused(index, is_member);
    }
    contents.conf_state = tail.votes.at(index).or(contents.conf_state);
    let conf_state = match contents.conf_state.clone() {
        Some(conf_state) => conf_state,
        // Nothing was applied yet: the log says it all, from its first entry on.
        None if index == 0 && !entries.is_empty() => ConfState::default(),
        None => {
            let text = "neither the database nor the log says who votes: start this member once with etcd, 3.5 or \
                        later, until it has answered, stop it, then try again";
            return Err(Error::Refused(text.into()));
        }
    };
    let term = match tail.term_of(index) {
        Some(term) => term,
        None if index == 0 => 0,
        None => contents.term,
    };
    contents.term = term;
    let hard_state = hard_state(&tail.hard_state, index, term, entries)?;
    let (count, behind) = (entries.len(), (index, term, conf_state));
    let target = Target::create(data_dir, wal_dir)?;
    let revision = target.write_store(database, |last| Ok(contents.checkpoint(last)))?;
    target.write_log(&metadata, behind, entries, &hard_state)?;
    Ok(Migrated { member_id: identity.node_id(), cluster_id: identity.cluster_id(), revision, index, entries: count })
}

/// A log that ends before its database is an old copy, or another member's: what this member voted and acknowledged since is not in it.
pub(crate) fn check_reaches(tail: &log::Tail, dir: &Path, index: u64) -> Result<(), Error> {
    if index == 0 || !tail.entries.is_empty() || tail.term_of(index).is_some() {
        return Ok(());
    }
    Err(Error::Refused(format!(
        "the log in `{}` ends before entry {index}, which the database has: it is not the log that this member has written last; \
         name that one (--wal-dir, or --from-wal-dir)",
        dir.display()
    )))
}

/// The database that came with a snapshot of the leader, where the member's own is not yet replaced by it: the log continues after the
/// snapshot, and what lies between is in this file alone.
fn received(own: &Path, snapshot: &Snapshot, index: u64, patience: Duration) -> Result<(PathBuf, Database), Error> {
    let path = own.with_file_name(format!("{:016x}.snap.db", snapshot.index()));
    if path.exists() {
        let database = Database::open_unused(&path, patience)?;
        return Ok((path, database));
    }
    Err(Error::Refused(format!(
        "the log goes on behind a snapshot of entry {}, but the database ends at entry {index} and `{}` is not there: \
         this member has lost what it received; take over another one, and add this one to its cluster anew",
        snapshot.index(),
        path.display()
    )))
}

/// A name proves nothing: what a leader sends has the entry it was sent for as its last one, and an older state under that name would
/// roll the member back without a word.
fn check_received(path: &Path, index: u64, expected: u64) -> Result<(), Error> {
    if index == expected {
        return Ok(());
    }
    Err(Error::Refused(format!(
        "`{}` ends at entry {index}, not at {expected}: it is not what the leader sent; take over another member, and add \
         this one to its cluster anew",
        path.display()
    )))
}

/// The entries after `index`, which must follow it without a gap.
pub(crate) fn continuous(entries: &[Entry], index: u64) -> Result<&[Entry], Error> {
    let first = entries.iter().position(|entry| entry.index() > index).unwrap_or(entries.len());
    let entries = entries.get(first..).unwrap_or_default();
    let mut last = index;
    for found in entries.iter().map(Entry::index) {
        let due = last.saturating_add(1);
        if found != due || found == last {
            return Err(Error::Refused(format!(
                "the log has entry {found} where entry {due} is due: parts of it are missing, or the database is older than the log"
            )));
        }
        last = found;
    }
    Ok(entries)
}

/// What the member knows of votes and of what is agreed. What is in the database was agreed, whatever the log had heard of that; what
/// was agreed must be in one of them, or the member has lost what it acknowledged.
pub(crate) fn hard_state(found: &HardState, index: u64, term: u64, entries: &[Entry]) -> Result<HardState, Error> {
    let last = entries.last().map_or(index, Entry::index);
    let newest = entries.last().map_or(term, Entry::term);
    if found.commit() > last {
        return Err(Error::Refused(format!(
            "the log ends at entry {last}, but the member knows that entry {} was committed: parts of the log are missing",
            found.commit()
        )));
    }
    let vote = if found.term() >= newest { found.vote() } else { 0 };
    Ok(HardState { term: Some(found.term().max(newest)), vote: Some(vote), commit: Some(found.commit().max(index)) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use api::raftpb;

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
        // A database may say anything of itself.
        assert_eq!(continuous(&entries, u64::MAX).map(<[Entry]>::len).ok(), Some(0));
        let last = [entry(u64::MAX - 1, 1), entry(u64::MAX, 1)];
        assert_eq!(continuous(&last, u64::MAX - 2).map(<[Entry]>::len).ok(), Some(2));
        assert!(continuous(&[entry(u64::MAX, 1), entry(u64::MAX, 1)], u64::MAX - 1).is_err());
    }

    #[test]
    fn what_was_received_is_what_its_name_says() {
        let check = |index| check_received(Path::new("a.snap.db"), index, 7).map_err(|error| error.to_string());
        assert_eq!(check(7), Ok(()));
        for index in [0, 6, 8] {
            assert!(check(index).is_err_and(|text| text.contains(&format!("ends at entry {index}, not at 7"))));
        }
    }

    /// What an etcd has left that was founded with member 1 alone and has applied four entries: of two members that were to be added
    /// the second one is none, for it was refused.
    fn left_by_etcd(scratch: &Path) {
        let member = |id, port: u16| store::Member {
            id,
            peer_urls: vec![format!("http://127.0.0.1:{port}")],
            ..store::Member::default()
        };
        let members = [member(1, 1), member(2, 2), member(3, 1)];
        let add = |index, member: &store::Member| {
            let context = store::ConfChangeContext { member: member.clone(), is_promote: false };
            let change = raftpb::ConfChange {
                r#type: Some(raftpb::ConfChangeType::ConfChangeAddNode as i32),
                node_id: Some(member.id),
                context: Some(context.encode().into()),
                id: None,
            };
            let kind = Some(raftpb::EntryType::EntryConfChange as i32);
            Entry { r#type: kind, data: Some(change.encode_to_vec().into()), ..entry(index, 1) }
        };
        let disk: std::sync::Arc<dyn disk::Disk> = std::sync::Arc::new(disk::OsDisk { unsafe_no_sync: true });
        let state = store::checkpoint::Checkpoint {
            applied_index: 4,
            applied_term: 1,
            members: members.iter().take(2).cloned().map(Into::into).collect(),
            ..store::checkpoint::Checkpoint::initial()
        };
        let founding = store::Founding::begin(disk.clone(), &scratch.join("store"), Default::default());
        founding.and_then(|founding| founding.finish(state)).expect("a store");
        let opened = store::open(disk.clone(), &scratch.join("store"), store::Options::default());
        let mut image = opened.expect("a store").applier.snapshot().image().expect("an image");
        let snap = scratch.join("etcd/member/snap");
        std::fs::create_dir_all(&snap).expect("room");
        std::fs::write(snap.join("db"), image.next(1 << 20).expect("bytes")).expect("room");
        let [first, second, refused] = &members;
        let entries = [add(1, first), entry(2, 1), add(3, second), add(4, refused)];
        let mut entries = entries.iter().map(|entry| wal::EntryRef {
            term: entry.term(),
            index: entry.index(),
            kind: entry.r#type() as i32,
            data: entry.data.as_deref().unwrap_or_default(),
        });
        let hard_state = HardState { term: Some(1), vote: Some(1), commit: Some(4) };
        let contents = wal::Contents { state: &Snapshot::default(), entries: &mut entries, hard_state: &hard_state };
        let metadata = Metadata { node_id: Some(1), cluster_id: Some(2) }.encode_to_vec();
        let dir = scratch.join("etcd/member/wal");
        wal::Wal::create_with(disk, &dir, &metadata, contents, wal::Options::default()).expect("a log");
    }

    #[test]
    fn a_member_whose_addition_was_refused_does_not_vote() {
        let scratch = std::env::temp_dir().join(format!("cairn-migrate-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&scratch);
        left_by_etcd(&scratch);
        let to = scratch.join("cairn");
        let done = migrate(&scratch.join("etcd"), None, &to, None, Duration::ZERO).map(|done| done.index);
        let disk = std::sync::Arc::new(disk::OsDisk { unsafe_no_sync: true });
        let opened = store::open(disk, &to.join("member/store"), store::Options::default());
        let voters = opened.map(|opened| opened.applied.conf_state.voters).ok();
        let logged = log::read_tail(&to.join("member/wal"), 4).ok().and_then(|tail| tail.votes.at(4));
        std::fs::remove_dir_all(&scratch).expect("ours");
        assert_eq!(done.ok(), Some(4));
        assert_eq!(voters, Some(vec![1, 2]));
        assert_eq!(logged.map(|state| state.voters), Some(vec![1, 2]), "nor by the log");
    }

    #[test]
    fn what_is_applied_is_committed() {
        let found = HardState { term: Some(3), vote: Some(9), commit: Some(2) };
        let state = hard_state(&found, 5, 3, &[entry(6, 3)]).expect("a state");
        assert_eq!((state.term(), state.vote(), state.commit()), (3, 9, 5));
        let state = hard_state(&HardState { commit: Some(6), ..found }, 5, 3, &[entry(6, 4)]).expect("a state");
        assert_eq!((state.term(), state.vote(), state.commit()), (4, 0, 6));
        assert!(hard_state(&HardState { commit: Some(7), ..found }, 5, 3, &[entry(6, 4)]).is_err());
    }
}

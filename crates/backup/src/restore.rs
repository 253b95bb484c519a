//! The state at an entry, a revision or a time, as a snapshot file.

use crate::archive::Archive;
use crate::base::Base;
use crate::chain::Chain;
use crate::error::Error;
use crate::piece::{At, PieceName};
use crate::time;
use crate::vault::Vault;
use api::raftpb::Entry;
use etcd_import::{Database, Replay, SnapshotFile};
use sha2::{Digest, Sha256};
use std::fs::File;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Which state is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// The newest one.
    Newest,
    /// The one after the entry of this index.
    Index(u64),
    /// The first one of this revision.
    Revision(i64),
    /// The newest one that a member had reached by then, in milliseconds since 1970.
    Time(u64),
}

/// What was made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Made {
    /// The last entry that is in it.
    pub at: At,
    /// Its revision.
    pub revision: i64,
    /// Index of the last entry of the base that it was made of.
    pub base: u64,
    /// The cluster that it is of.
    pub cluster_id: u64,
    /// The archive has later entries, behind a gap: this is the last state before it.
    pub ends_in_gap: bool,
}

/// Makes the state `wanted`, and writes it into the new file `file`, as `snapshot save` of a member would have. `scratch`, an empty
/// directory that is the caller's to remove, takes the base and a store meanwhile.
///
/// # Errors
/// If the archive does not have it, or is damaged where it is needed.
pub async fn make(vault: &Vault, wanted: Wanted, scratch: &Path, file: &Path) -> Result<Made, Error> {
    let archive = Archive::read(vault).await?;
    let Some(cluster_id) = archive.cluster_id else {
        return Err(Error::Refused(format!("there is no archive at {}", vault.place())));
    };
    check_time(vault, &archive, wanted)?;
    let Some(mut base) = choose(&archive, wanted) else {
        return Err(too_early(vault, &archive, wanted));
    };
    loop {
        let attempt = Attempt { vault, archive: &archive, wanted, scratch, file };
        match attempt.run(base).await? {
            Reached::There(at, revision) => {
                let later = |name: &PieceName| name.last.index > at.index;
                let ends_in_gap = wanted == Wanted::Newest && archive.names().iter().any(later);
                return Ok(Made { at, revision, base: base.index, cluster_id, ends_in_gap });
            }
            Reached::Ends(at, revision) => {
                // A base behind a gap may be just what is wanted.
                let same = |other: &&Base| matches!(wanted, Wanted::Revision(wanted) if other.revision == wanted);
                let later = archive.bases.iter().find(|other| other.at() > base.at() && same(other));
                base = later.ok_or_else(|| too_late(vault, &archive, wanted, at, revision))?;
            }
        }
    }
}

/// The base to begin with.
fn choose(archive: &Archive, wanted: Wanted) -> Option<&Base> {
    let newest = |fits: &dyn Fn(&Base) -> bool| archive.bases.iter().rev().find(|base| fits(base));
    match wanted {
        Wanted::Newest => archive.bases.last(),
        Wanted::Index(index) => newest(&|base| base.index <= index),
        Wanted::Time(time_ms) => newest(&|base| base.time_ms <= time_ms),
        // Entries after the first state of a revision change no keys, but users, leases and what is compacted.
        Wanted::Revision(revision) => newest(&|base| base.revision < revision)
            .or_else(|| archive.bases.iter().find(|base| base.revision == revision)),
    }
}

struct Attempt<'a> {
    vault: &'a Vault,
    archive: &'a Archive,
    wanted: Wanted,
    scratch: &'a Path,
    file: &'a Path,
}

enum Reached {
    There(At, i64),
    /// The pieces end before it.
    Ends(At, i64),
}

impl Attempt<'_> {
    async fn run(&self, base: &Base) -> Result<Reached, Error> {
        let path = self.scratch.join(format!("{}.db", base.index));
        let (bytes, sum) = self
            .vault
            .get_file(&base.file(), &path)
            .await?
            .ok_or_else(|| self.vault.damaged(&base.file(), "it is not there, although it is described"))?;
        if (bytes, &sum) != (base.bytes, &base.sha256) {
            return Err(self.vault.damaged(&base.file(), "it is not what its description says"));
        }
        SnapshotFile::check(&path, false)?;
        let database = Database::open(&path)?;
        let store = self.scratch.join(format!("{}.store", base.index));
        let mut replay = Replay::begin(&database, &store)?;
        drop(database);
        if replay.at() != (base.index, base.term) || replay.revision() != base.revision {
            return Err(self.vault.damaged(&base.file(), "it is not what its description says"));
        }
        let to = if let Wanted::Index(index) = self.wanted { index } else { u64::MAX };
        let chain = Chain::find(&self.archive.names(), base.index, to);
        let mut is_there = self.is_there(&replay);
        for name in &chain.pieces {
            if is_there {
                break;
            }
            is_there = self.add(&mut replay, *name).await?;
        }
        let (index, term) = replay.at();
        let (at, revision) = (At { index, term }, replay.revision());
        let is_reached = is_there
            || match self.wanted {
                Wanted::Index(_) | Wanted::Revision(_) => false,
                // What was there once and is not any more is no newest state.
                Wanted::Newest => self.archive.mark.as_ref().is_none_or(|mark| mark.index <= at.index),
                // Nothing was applied later by that time, unless the pieces end in a gap.
                Wanted::Time(_) => self.archive.mark.as_ref().is_some_and(|mark| mark.index <= at.index),
            };
        if !is_reached {
            return Ok(Reached::Ends(at, revision));
        }
        if at == base.at() {
            drop(replay);
            std::fs::rename(&path, self.file).map_err(Error::file("cannot rename", &path))?;
        } else {
            std::fs::remove_file(&path).map_err(Error::file("cannot remove", &path))?;
            write(replay, self.file)?;
        }
        Ok(Reached::There(at, revision))
    }

    fn is_there(&self, replay: &Replay) -> bool {
        match self.wanted {
            Wanted::Index(index) => replay.at().0 >= index,
            Wanted::Revision(revision) => replay.revision() >= revision,
            Wanted::Newest | Wanted::Time(_) => false,
        }
    }

    /// Applies what is wanted of a piece; returns whether that is all.
    async fn add(&self, replay: &mut Replay, name: PieceName) -> Result<bool, Error> {
        let piece = self.archive.piece(self.vault, name).await?;
        let text = name.to_string();
        let mut before = piece.before;
        for batch in piece.batches() {
            let batch = batch.map_err(|what| self.vault.damaged(&text, what))?;
            if matches!(self.wanted, Wanted::Time(time_ms) if batch.time_ms > time_ms) {
                return Ok(true);
            }
            let (index, term) = replay.at();
            let mut entries = &batch.entries[..];
            // What overlaps with what was applied has to be the same.
            while let Some((first, rest)) = entries.split_first().filter(|(first, _)| first.index() <= index) {
                before = At { index: first.index(), term: first.term() };
                entries = rest;
            }
            if entries.is_empty() {
                continue;
            }
            if before != (At { index, term }) {
                let what = format!(
                    "it goes on behind entry {before}, but what is before it ends with entry {index} of term {term}"
                );
                return Err(self.vault.damaged(&text, what));
            }
            if self.apply(replay, entries)? {
                return Ok(true);
            }
            let (index, term) = replay.at();
            before = At { index, term };
        }
        Ok(false)
    }

    fn apply(&self, replay: &mut Replay, mut entries: &[Entry]) -> Result<bool, Error> {
        while !entries.is_empty() && !self.is_there(replay) {
            // An entry makes one revision at most: so many are surely not too many, and the last of them is the first of its revision.
            let left = match self.wanted {
                Wanted::Index(index) => index.saturating_sub(replay.at().0),
                Wanted::Revision(revision) => u64::try_from(revision.saturating_sub(replay.revision())).unwrap_or(0),
                Wanted::Newest | Wanted::Time(_) => u64::MAX,
            };
            let count = usize::try_from(left).unwrap_or(usize::MAX).clamp(1, entries.len());
            let (now, later) = entries.split_at_checked(count).unwrap_or((entries, &[]));
            replay.apply(now)?;
            entries = later;
        }
        Ok(self.is_there(replay))
    }
}

/// Writes the state, and its checksum behind it.
fn write(replay: Replay, path: &Path) -> Result<(), Error> {
    // The values in it are not for everybody.
    let file = File::options().write(true).create_new(true).mode(0o600).open(path);
    let mut file = file.map_err(Error::file("cannot make", path))?;
    let mut hash = Sha256::new();
    replay.save(&mut |piece| {
        hash.update(piece);
        let written = file.write_all(piece);
        written.map_err(|source| etcd_import::Error::Io { what: "write", path: path.into(), source })
    })?;
    let ended = file.write_all(&hash.finalize()).and_then(|()| file.sync_all());
    ended.map_err(Error::file("cannot write", path))
}

/// Refuses a time of which the archive does not know yet what there was by then.
fn check_time(vault: &Vault, archive: &Archive, wanted: Wanted) -> Result<(), Error> {
    let Wanted::Time(time_ms) = wanted else { return Ok(()) };
    let until = archive.mark.as_ref().map_or(0, |mark| mark.time_ms);
    if time_ms <= until {
        return Ok(());
    }
    let (place, wanted, until) = (vault.place(), time::shown(time_ms), time::shown(until));
    Err(Error::Refused(format!(
        "{place} goes up to {until} only, not to {wanted}: without --to-time its newest state is made"
    )))
}

fn named(wanted: Wanted) -> String {
    match wanted {
        Wanted::Newest => "the newest state".into(),
        Wanted::Index(index) => format!("entry {index}"),
        Wanted::Revision(revision) => format!("revision {revision}"),
        Wanted::Time(time_ms) => time::shown(time_ms),
    }
}

fn too_early(vault: &Vault, archive: &Archive, wanted: Wanted) -> Error {
    let (place, wanted) = (vault.place(), named(wanted));
    Error::Refused(match archive.bases.first() {
        None if archive.unreadable.is_empty() => format!("{place} has no base yet: nothing can be made of it"),
        None => format!("{place} has no whole base: nothing can be made of it ({})", archive.unreadable.join("; ")),
        Some(base) => format!(
            "{wanted} is not in {place}: it begins with entry {}, revision {}, {}",
            base.index,
            base.revision,
            time::shown(base.time_ms)
        ),
    })
}

fn too_late(vault: &Vault, archive: &Archive, wanted: Wanted, at: At, revision: i64) -> Error {
    let (place, named) = (vault.place(), named(wanted));
    let next = archive.bases.iter().find(|base| base.index > at.index);
    Error::Refused(match next {
        None if wanted == Wanted::Newest => format!(
            "{place} ends with entry {0}, revision {revision}, although its mark.json says that everything up to entry {1} is there: pieces              are missing (`cairn backup status`); --to-index {0} makes what there is",
            at.index,
            archive.mark.as_ref().map_or(0, |mark| mark.index)
        ),
        None => format!("{named} is not in {place}: it ends with entry {}, revision {revision}", at.index),
        Some(base) => format!(
            "{named} is not in {place}: it is in a gap between entry {}, revision {revision}, and entry {}, revision {}",
            at.index, base.index, base.revision
        ),
    })
}

//! A database and the entries of the log behind it, applied as a member applies them: a later state of the same cluster.

use crate::save::{Nobody, PIECE_BYTES};
use crate::target::write_store;
use crate::votes::Votes;
use crate::{Database, Error};
use api::raftpb::{Entry, EntryType};
use api::walpb;
use disk::OsDisk;
use std::path::Path;
use std::sync::Arc;
use store::{Applier, Founding};

/// A state that entries are applied to.
pub struct Replay {
    applier: Applier,
    votes: Votes,
}

impl Replay {
    /// Begins with a member's database. `scratch`, a directory that is empty or not there, takes a store made of it, and is the
    /// caller's to remove: it holds values, and outlives no power cut.
    ///
    /// # Errors
    /// If the database is damaged, or the store cannot be written.
    pub fn begin(database: &Database, scratch: &Path) -> Result<Replay, Error> {
        let disk = Arc::new(OsDisk { unsafe_no_sync: true });
        let contents = database.contents()?;
        let mut votes = Votes::default();
        votes.snapshot(&walpb::Snapshot {
            index: Some(contents.index),
            term: Some(contents.term),
            conf_state: contents.conf_state.clone(),
        });
        let founding = Founding::begin(disk.clone(), scratch, store::log::Options::default())?;
        write_store(founding, database, |last| Ok(contents.checkpoint(last)))?;
        let options = store::Options { learners_max: usize::MAX, ..store::Options::default() };
        let opened = store::open(disk, scratch, options)
            .map_err(|error| Error::Refused(format!("cannot open the store: {error}")))?;
        Ok(Replay { applier: opened.applier, votes })
    }

    /// Index and term of the last entry applied.
    pub fn at(&self) -> (u64, u64) {
        (self.applier.applied_index(), self.applier.applied_term())
    }

    /// The revision.
    pub fn revision(&self) -> i64 {
        self.applier.store().revision()
    }

    /// The checksum of the history up to the revision, as a member computes it.
    ///
    /// # Errors
    /// If a record is damaged.
    pub fn hash_kv(&self) -> Result<(u32, i64), Error> {
        let found = self.applier.store().hash_kv(0);
        let found = found.map_err(|error| Error::Refused(format!("cannot hash the store: {error}")))?;
        Ok((found.hash, found.compact_revision))
    }

    /// Applies entries, which follow the last one without a gap.
    ///
    /// # Errors
    /// If they do not, or one cannot be read. Nothing can be applied after it.
    pub fn apply(&mut self, entries: &[Entry]) -> Result<(), Error> {
        let failed = |error: store::Fatal| Error::Refused(format!("cannot apply the log: {error}"));
        let mut rest = entries;
        while !rest.is_empty() {
            let is_change = |entry: &Entry| entry.r#type() != EntryType::EntryNormal;
            // The configuration after a change is told before anything else is applied.
            let count = rest.iter().position(is_change).map_or(rest.len(), |place| place.max(1));
            let (now, later) = rest.split_at_checked(count).unwrap_or((rest, &[]));
            self.applier.apply(now, &mut Nobody).map_err(failed)?;
            for entry in now.iter().filter(|entry| is_change(entry)) {
                self.votes.entry(entry);
                if let Some(state) = self.votes.at(entry.index()) {
                    self.applier.set_conf_state(state);
                }
                while !self.applier.can_capture() {
                    self.applier.keep_conf_state();
                }
            }
            rest = later;
        }
        Ok(())
    }

    /// Gives `write` the database of the state that was reached, piece by piece.
    ///
    /// # Errors
    /// What `write` says.
    pub fn save(mut self, write: &mut dyn FnMut(&[u8]) -> Result<(), Error>) -> Result<(), Error> {
        let Some(mut image) = self.applier.snapshot().image() else {
            return Err(Error::Refused("the store was replaced meanwhile".into()));
        };
        while let Some(piece) = image.next(PIECE_BYTES) {
            write(&piece)?;
        }
        Ok(())
    }
}

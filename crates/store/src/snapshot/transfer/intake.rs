//! The receiving side: a snapshot being written beside the running one, under temporary names.

use super::lease_table::{self, Incoming};
use super::part::Part;
use super::{IntakeError, Prepared, manifest, prepared};
use crate::log::lock;
use crate::state::Leases;
use crate::store::Store;
use crate::upkeep::checkpoint::Checkpoint;
use crate::upkeep::loaded_leases;
use api::raftpb::ConfState;
use std::sync::Arc;

/// A snapshot that is being received. Dropped before it is finished, it leaves the segments that came whole to the next one. A later
/// one ends it.
pub struct Intake {
    store: Arc<Store>,
    from: u64,
    number: u64,
    /// As the sender wrote it, but for the segments' checksums, which are with the parts.
    content: Checkpoint,
    /// In the order of the checkpoint.
    parts: Vec<Part>,
    /// The leases, if they are sent apart from the checkpoint. After a break they are sent again from the first one.
    leases: Option<Incoming>,
}

impl Intake {
    /// Begins to receive the snapshot that the member `from` describes by `checkpoint`. Nothing is trusted: what is too large,
    /// contradicts itself or does not fit on the disk is refused.
    pub fn begin(store: &Arc<Store>, from: u64, checkpoint: &[u8]) -> Result<Intake, IntakeError> {
        let content = manifest::read(checkpoint)?;
        check_ahead(store, &content)?;
        let number = store.shelf.begin();
        let part = |entry| store.shelf.take(entry).map_or_else(|| Part::new(*entry), |part| part.listed_as(*entry));
        let parts = content.segments.iter().map(part).collect();
        // Dropped on the way out, it gives back what it took.
        let leases = content.lease_table.map(Incoming::new);
        let intake = Intake { store: Arc::clone(store), from, number, content, parts, leases };
        store.shelf.clear(store.segments.reaper());
        let to_come: u64 = intake.needed().iter().map(|(_, _, length)| *length).sum();
        make_room(store, to_come.saturating_add(checkpoint.len() as u64))?;
        Ok(intake)
    }

    /// The member that sends it.
    pub fn from(&self) -> u64 {
        self.from
    }

    /// Index of the last entry the snapshot covers.
    pub fn index(&self) -> u64 {
        self.content.applied_index
    }

    /// Term of that entry.
    pub fn term(&self) -> u64 {
        self.content.applied_term
    }

    /// Raft's membership after it.
    pub fn conf_state(&self) -> &ConfState {
        &self.content.conf_state
    }

    /// What is still to come: the sender's segments, each with the next byte and how many there are from it on.
    pub fn needed(&self) -> Vec<(u32, u64, u64)> {
        let missing = self.parts.iter().filter(|part| !part.is_whole());
        let segments = missing.map(|part| (part.entry.id, part.written, part.entry.length - part.written));
        let leases = self.leases.iter().filter(|leases| !leases.is_whole());
        let leases = leases.map(|leases| (lease_table::NUMBER, leases.written, leases.total() - leases.written));
        segments.chain(leases).collect()
    }

    /// Takes the next bytes of a segment, which must follow those before. Bounded by what the checkpoint lists. After an error the
    /// transfer is over; the segments that came whole are left to the next one.
    pub fn write(&mut self, segment: u32, offset: u64, bytes: &[u8]) -> Result<(), IntakeError> {
        self.check_number()?;
        if let Some(leases) = self.leases.as_mut().filter(|_| segment == lease_table::NUMBER) {
            return leases.write(offset, bytes);
        }
        let Some(part) = self.parts.iter_mut().find(|part| part.entry.id == segment) else {
            return Err(IntakeError::Unlisted(segment));
        };
        let written = part.write(&self.store.segments, offset, bytes);
        if written.is_err() {
            part.discard(self.store.segments.reaper());
        }
        written
    }

    /// Checks every record of the snapshot, makes it durable and rebuilds the index: for a thread that may take its time. Nothing
    /// of it is visible yet.
    pub fn finish(mut self) -> Result<Prepared, IntakeError> {
        self.check_number()?;
        if let Some(part) = self.parts.iter().find(|part| !part.is_whole()) {
            let (segment, written, total) = (part.entry.id, part.written, part.entry.length);
            return Err(IntakeError::Incomplete { segment, written, total });
        }
        if let Some(leases) = self.leases.as_ref().filter(|leases| !leases.is_whole()) {
            let (written, total) = (leases.written, leases.total());
            return Err(IntakeError::Incomplete { segment: lease_table::NUMBER, written, total });
        }
        let content = std::mem::take(&mut self.content);
        let leases = self.leases.take().map_or_else(|| Leases::new(loaded_leases(&content)), |leases| leases.finish());
        prepared::prepare(&self.store, content, leases, &mut self.parts)
    }

    fn check_number(&self) -> Result<(), IntakeError> {
        if self.store.shelf.is_last(self.number) { Ok(()) } else { Err(IntakeError::Superseded) }
    }
}

/// Refuses a snapshot that is older than what this member has.
pub(super) fn check_ahead(store: &Store, content: &Checkpoint) -> Result<(), IntakeError> {
    if content.revision >= store.revision() && content.compact_revision >= store.compact_revision() {
        return Ok(());
    }
    Err(IntakeError::Contradiction(format!(
        "it ends at revision {}, compacted to {}, and this member is at {}, compacted to {}",
        content.revision,
        content.compact_revision,
        store.revision(),
        store.compact_revision()
    )))
}

/// Checks that the disk has space for `bytes` more, beside everything that is there now. What was just freed is not in their way.
pub(super) fn make_room(store: &Store, bytes: u64) -> Result<(), IntakeError> {
    loop {
        let reserve = lock(&store.checkpoints).needed_reserve_bytes().saturating_add(store.options.reserve_bytes);
        let needed_bytes = bytes.saturating_add(reserve);
        match store.disk.free_bytes(&store.dir) {
            Ok(free_bytes) if free_bytes < needed_bytes => {
                if !store.segments.reaper().make_room() {
                    return Err(IntakeError::NoSpace { needed_bytes, free_bytes });
                }
            }
            // A disk that does not say how much is free is found full by a write, if it is.
            _ => return Ok(()),
        }
    }
}

impl Drop for Intake {
    fn drop(&mut self) {
        self.store.shelf.put(self.store.segments.reaper(), self.parts.drain(..));
    }
}

impl std::fmt::Debug for Intake {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Intake({} from {:x}, {} segments)", self.index(), self.from, self.parts.len())
    }
}

//! Replaying the records of the log: entries, hard state and snapshot.

use crate::mistake::Mistake;
use crate::record::Record;
use crate::terms::Terms;
use api::{raftpb, walpb};
use bytes::Bytes;

/// The result of the records read so far.
pub(crate) struct Replay {
    from_index: u64,
    from_term: u64,
    /// Entries before the first segment that is read end here.
    before: u64,
    has_entries: bool,
    /// Terms of the entries that were read, before and after the caller's state.
    pub(crate) terms: Terms,
    /// Index of the newest entry or of the snapshot that the log was restarted from; `from_index` when there is neither.
    pub(crate) last_index: u64,
    pub(crate) metadata: Option<Bytes>,
    pub(crate) hard_state: raftpb::HardState,
    pub(crate) snapshot: walpb::Snapshot,
    pub(crate) entries: Vec<raftpb::Entry>,
    /// The last entries up to the caller's state, at most [`APPLIED_KEPT`] of them.
    pub(crate) applied: Vec<raftpb::Entry>,
}

/// Entries that the caller's state has already, and which are given to it all the same: observers compare their history by them.
const APPLIED_KEPT: u64 = 16;

/// Why a record cannot follow the ones before it.
pub(crate) enum Misfit {
    Metadata,
    /// The log continues at this entry, but the caller needs entries before it.
    Behind(u64),
    Damage(String),
}

impl Replay {
    /// `first_index` is that of the first segment that is read.
    pub(crate) fn new(from_index: u64, from_term: u64, first_index: u64) -> Replay {
        Replay {
            from_index,
            from_term,
            before: first_index.saturating_sub(1),
            has_entries: false,
            terms: Terms::default(),
            last_index: from_index,
            metadata: None,
            hard_state: raftpb::HardState::default(),
            snapshot: walpb::Snapshot::default(),
            entries: Vec::new(),
            applied: Vec::new(),
        }
    }

    pub(crate) fn push(&mut self, record: &Record<'_>) -> Result<(), Misfit> {
        match record {
            Record::Metadata(metadata) => match &self.metadata {
                Some(known) if known != metadata => return Err(Misfit::Metadata),
                Some(_) => {}
                None => self.metadata = Some(Bytes::copy_from_slice(metadata)),
            },
            Record::HardState(state) => self.hard_state = *state,
            Record::Snapshot(snapshot) => self.push_snapshot(snapshot)?,
            Record::Entry(entry) => {
                // A later record takes the place of every entry from its index on.
                let kept = entry.index.saturating_sub(self.from_index.saturating_add(1)) as usize;
                if kept > self.entries.len() {
                    let what = format!("entry {} follows entry {}", entry.index, self.last_index);
                    return Err(Misfit::Damage(what));
                }
                if Mistake::KeepsReplacedEntries.is_planted() && kept < self.entries.len() {
                    self.entries.remove(kept);
                    self.entries.insert(
                        kept,
                        raftpb::Entry {
                            r#type: Some(entry.kind),
                            term: Some(entry.term),
                            index: Some(entry.index),
                            data: Some(Bytes::copy_from_slice(entry.data)),
                        },
                    );
                    return Ok(());
                }
                self.entries.truncate(kept);
                self.terms.push(entry.index, entry.term);
                self.has_entries = true;
                self.last_index = entry.index.max(self.from_index);
                self.applied.retain(|kept| kept.index() < entry.index);
                let list = match self.from_index.checked_sub(entry.index) {
                    None => &mut self.entries,
                    Some(ago) if ago < APPLIED_KEPT => &mut self.applied,
                    Some(_) => return Ok(()),
                };
                list.push(raftpb::Entry {
                    r#type: Some(entry.kind),
                    term: Some(entry.term),
                    index: Some(entry.index),
                    data: Some(Bytes::copy_from_slice(entry.data)),
                });
            }
        }
        Ok(())
    }

    fn push_snapshot(&mut self, snapshot: &walpb::Snapshot) -> Result<(), Misfit> {
        let (index, term) = (snapshot.index(), snapshot.term());
        // Entries that cannot belong to the history that the snapshot ends: it came from another member and replaced them.
        let kept = index.saturating_sub(self.from_index) as usize;
        let replaced = index > self.terms.end()
            || self.terms.at(index).is_some_and(|known| known != term)
            || self.entries.get(kept).is_some_and(|next| next.term() < term);
        if replaced && index > self.from_index {
            return Err(Misfit::Behind(index.saturating_add(1)));
        }
        if replaced {
            self.entries.clear();
            self.applied.clear();
            self.last_index = self.from_index;
            self.terms.restart(index, term);
        }
        self.snapshot = snapshot.clone();
        Ok(())
    }

    /// The last entry that the log is known to have had.
    pub(crate) fn end(&self) -> u64 {
        // Until an entry is read, the names of the segments tell.
        if self.has_entries { self.terms.end() } else { self.terms.end().max(self.before) }
    }

    /// Whether the log continues after the caller's state, or at least reaches as far.
    pub(crate) fn follows(&self) -> bool {
        let read = (self.terms.end() >= self.from_index).then(|| self.terms.at(self.from_index)).flatten();
        match read {
            _ if self.from_index == 0 => true,
            _ if self.end() < self.from_index => false,
            Some(term) => term == self.from_term,
            // The entry is in a segment that was freed. What follows was then written by this member after its own state.
            None => self.entries.first().is_none_or(|next| next.term() >= self.from_term),
        }
    }

    /// Drops the entries after the caller's state, which belong to another history: the state is a snapshot from another member, and
    /// the power was cut before the log was told.
    pub(crate) fn restart(&mut self) {
        self.entries.clear();
        self.applied.clear();
        self.last_index = self.from_index;
        self.terms.restart(self.from_index, self.from_term);
    }

    /// Checks the whole: what was committed must be there.
    pub(crate) fn check_end(&self) -> Result<(), Misfit> {
        let commit = self.hard_state.commit();
        if commit > self.last_index {
            let what = format!("the log ends at entry {}, but entry {commit} was committed", self.last_index);
            return Err(Misfit::Damage(what));
        }
        Ok(())
    }
}

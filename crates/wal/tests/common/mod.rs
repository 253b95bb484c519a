//! Random histories of a log, and the plain list that they should leave.

use api::{raftpb, walpb};
use disk::ReapError;
use wal::{EntryRef, Error, Recovered, Wal};

/// One step of a history.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Op {
    /// A batch: entries of these sizes, first dropping `back` of the entries that are not committed yet; maybe a hard state.
    Append { sizes: Vec<usize>, back: u64, state: bool },
    /// A hard state that need not be synced.
    Advance,
    /// A checkpoint of what is committed, its snapshot record, and the release of what lies before it.
    Checkpoint,
    /// The slow thread prepares a segment.
    Prepare,
    /// Another thread gives back a part of a freed segment.
    Reap,
    /// The process is restarted.
    Reopen,
}

/// What the log should hold.
#[derive(Clone, Default, PartialEq, Debug)]
pub(crate) struct Model {
    /// Entry i has index i + 1.
    pub(crate) entries: Vec<(u64, Vec<u8>)>,
    pub(crate) hard_state: raftpb::HardState,
    pub(crate) snapshot: u64,
    pub(crate) applied: u64,
    term: u64,
}

impl Model {
    /// Runs a step on both. The model changes even if the log fails.
    pub(crate) fn run(&mut self, op: &Op, wal: &mut Wal) -> Result<(), Error> {
        match op {
            Op::Append { sizes, back, state } => {
                let committed = self.hard_state.commit() as usize;
                let kept = self.entries.len().saturating_sub(*back as usize).max(committed);
                self.entries.truncate(kept);
                self.term += 1;
                for size in sizes {
                    let seed = self.entries.len() as u8 ^ self.term as u8;
                    // Some data is zeros for more than a sector, which a lost sector looks like.
                    let data = (0..*size).map(|at| if at % 1500 > 700 { 0 } else { seed.wrapping_add(at as u8) });
                    self.entries.push((self.term, data.collect()));
                }
                let state = state.then(|| self.advance());
                let entries = self.entries.iter().enumerate().skip(kept);
                let mut entries = entries.map(|(position, (term, data))| EntryRef {
                    term: *term,
                    index: position as u64 + 1,
                    kind: (position % 3) as i32,
                    data,
                });
                wal.append(&mut entries, state.as_ref());
                wal.commit(true)
            }
            Op::Advance => {
                let state = self.advance();
                wal.append(&mut std::iter::empty(), Some(&state));
                // Synced, so that the model need not know what may wait.
                wal.commit(true)
            }
            Op::Checkpoint => {
                self.applied = self.hard_state.commit();
                self.snapshot = self.applied;
                wal.save_snapshot(&self.state());
                wal.commit(true)?;
                wal.release(self.applied)
            }
            Op::Prepare => wal.spare().prepare(),
            Op::Reap => {
                let step = wal.reaper().step(3000);
                let reaped =
                    step.map_err(|ReapError { operation, path, source, .. }| Error::Io { operation, path, source });
                reaped.map(|_| ())
            }
            Op::Reopen => Ok(()),
        }
    }

    /// The state that the last checkpoint stands for.
    pub(crate) fn state(&self) -> walpb::Snapshot {
        let conf_state = Some(raftpb::ConfState { voters: vec![1], ..Default::default() });
        let term = self.entries.get((self.applied as usize).wrapping_sub(1)).map(|(term, _)| *term);
        walpb::Snapshot { index: Some(self.applied), term: Some(term.unwrap_or_default()), conf_state }
    }

    fn advance(&mut self) -> raftpb::HardState {
        let (commit, len) = (self.hard_state.commit(), self.entries.len() as u64);
        let state = raftpb::HardState {
            term: Some(self.term),
            vote: Some(self.term % 3),
            commit: Some(commit + (len - commit).div_ceil(2)),
        };
        self.hard_state = state;
        state
    }

    /// Compares with what was recovered from the applied index on.
    pub(crate) fn check(&self, recovered: &Recovered) -> Result<(), String> {
        let from = self.applied as usize;
        let expected: Vec<_> = self.entries.iter().enumerate().skip(from).collect();
        if recovered.entries.len() != expected.len() {
            return Err(format!("{} entries, not {}", recovered.entries.len(), expected.len()));
        }
        let applied = recovered.applied.len();
        if applied > from.min(16) {
            return Err(format!("{applied} entries up to {from}"));
        }
        let kept = self.entries.iter().enumerate().take(from).skip(from - applied);
        let found = recovered.applied.iter().chain(&recovered.entries);
        for (entry, (position, (term, data))) in found.zip(kept.chain(expected)) {
            let same = entry.index() == position as u64 + 1
                && entry.term() == *term
                && entry.data() == data
                && entry.r#type() as i32 == (position % 3) as i32;
            if !same {
                return Err(format!("entry {} differs", position + 1));
            }
        }
        if recovered.hard_state != self.hard_state {
            return Err(format!("hard state {:?}, not {:?}", recovered.hard_state, self.hard_state));
        }
        if recovered.snapshot.index() != self.snapshot {
            return Err(format!("snapshot {}, not {}", recovered.snapshot.index(), self.snapshot));
        }
        Ok(())
    }
}

//! A copy of a member's log for the checks: only indexes and terms, which by log matching identify every entry.

/// A log as terms by index. Unlike the real one it is never trimmed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Shadow {
    /// Index and term of the last entry that a snapshot or checkpoint covers.
    base: (u64, u64),
    terms: Vec<u64>,
}

impl Shadow {
    pub(crate) fn new(base: (u64, u64), entries: impl Iterator<Item = (u64, u64)>) -> Shadow {
        let mut shadow = Shadow { base, terms: Vec::new() };
        shadow.append(entries);
        shadow
    }

    /// Adds entries, replacing those from the first one's index on.
    pub(crate) fn append(&mut self, entries: impl Iterator<Item = (u64, u64)>) {
        for (index, term) in entries {
            assert!(index > self.base.0, "entry {index} replaces one that a snapshot up to {} covers", self.base.0);
            let at = (index - self.base.0 - 1) as usize;
            assert!(at <= self.terms.len(), "entry {index} leaves a gap behind {:?}", self.last());
            self.terms.truncate(at);
            self.terms.push(term);
        }
    }

    /// Restarts the log behind a snapshot. If the log contains the snapshot's last entry, the entries behind it stay.
    pub(crate) fn restart(&mut self, index: u64, term: u64) {
        if self.term(index) != Some(term) {
            *self = Shadow { base: (index, term), terms: Vec::new() };
        }
    }

    pub(crate) fn last(&self) -> (u64, u64) {
        self.terms.last().map_or(self.base, |term| (self.base.0 + self.terms.len() as u64, *term))
    }

    /// The term of the entry at `index`; `None` if the log does not have it or the base covers it.
    pub(crate) fn term(&self, index: u64) -> Option<u64> {
        match index.checked_sub(self.base.0)? {
            0 => Some(self.base.1),
            at => self.terms.get(at as usize - 1).copied(),
        }
    }

    /// Whether the log has the entry, or the base covers it.
    pub(crate) fn holds(&self, index: u64, term: u64) -> bool {
        index < self.base.0 || self.term(index) == Some(term)
    }
}

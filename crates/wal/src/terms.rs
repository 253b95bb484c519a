//! Which term each entry has.

/// The terms of a log's entries, in runs: one for each change of leader.
#[derive(Clone, Debug, Default)]
pub(crate) struct Terms {
    /// First index and term of each run, ascending.
    runs: Vec<(u64, Option<u64>)>,
    /// The last entry; 0 when there is none.
    end: u64,
}

impl Terms {
    /// Notes an entry, which replaces those from its index on.
    pub(crate) fn push(&mut self, index: u64, term: u64) {
        while self.runs.pop_if(|(first, _)| *first >= index).is_some() {}
        if index > self.end.saturating_add(1) && !self.runs.is_empty() {
            // Those in between are in a segment that was not read.
            self.runs.push((self.end.saturating_add(1), None));
        }
        if self.runs.last().is_none_or(|(_, last)| *last != Some(term)) {
            self.runs.push((index, Some(term)));
        }
        self.end = index;
    }

    /// Forgets everything but this entry, after which the log continues.
    pub(crate) fn restart(&mut self, index: u64, term: u64) {
        self.runs = vec![(index, Some(term))];
        self.end = index;
    }

    /// Forgets what it can of the entries below `index`.
    pub(crate) fn release(&mut self, index: u64) {
        let needed = self.runs.partition_point(|(first, _)| *first <= index);
        self.runs.drain(..needed.saturating_sub(1));
    }

    /// The last entry, or the one after which the log continues.
    pub(crate) fn end(&self) -> u64 {
        self.end
    }

    /// The term of an entry that is not after the last one; `None` when it was not noted.
    pub(crate) fn at(&self, index: u64) -> Option<u64> {
        let behind = self.runs.partition_point(|(first, _)| *first <= index);
        self.runs.get(behind.checked_sub(1)?)?.1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_are_found_and_replaced() {
        let mut terms = Terms::default();
        assert_eq!(terms.at(5), None);
        for (index, term) in [(3, 1), (4, 1), (5, 2), (6, 2), (7, 4)] {
            terms.push(index, term);
        }
        assert_eq!(
            [2, 3, 4, 5, 6, 7].map(|index| terms.at(index)),
            [None, Some(1), Some(1), Some(2), Some(2), Some(4)]
        );
        terms.push(5, 1);
        assert_eq!((terms.runs.len(), terms.at(5), terms.end()), (1, Some(1), 5));
        terms.push(6, 9);
        terms.release(5);
        assert_eq!((terms.at(5), terms.at(6)), (Some(1), Some(9)));
        terms.release(6);
        assert_eq!((terms.at(5), terms.at(6)), (None, Some(9)));
        terms.restart(20, 10);
        assert_eq!((terms.at(19), terms.at(20)), (None, Some(10)));
        terms.push(30, 10);
        assert_eq!([20, 21, 29, 30].map(|index| terms.at(index)), [Some(10), None, None, Some(10)]);
    }
}

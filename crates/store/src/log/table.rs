//! Which segments there are.

use super::Segment;
use crate::types::Revision;
use std::sync::Arc;

/// The segments of a log. Few (one per 64 MiB), and changed rarely: when one is full, rewritten or removed.
#[derive(Clone, Debug, Default)]
pub(crate) struct Table {
    /// Those that make up the log, in revision order. None is empty.
    order: Vec<Arc<Segment>>,
    /// All that a location may name, by id: those of the log, the one a rewrite moves records to, and replaced ones whose files
    /// a checkpoint still lists.
    by_id: Vec<Arc<Segment>>,
    /// Replaced ones.
    retired: Vec<Retired>,
}

/// A replaced segment whose file is still there.
#[derive(Clone, Debug)]
struct Retired {
    segment: Arc<Segment>,
    /// Whether a sweep has passed since it was replaced.
    is_settled: bool,
}

impl Table {
    /// The segment with this id.
    pub(crate) fn get(&self, id: u32) -> Option<&Arc<Segment>> {
        // Nearly every read is of the newest few or of the only one.
        let at = self.by_id.binary_search_by_key(&id, |segment| segment.id()).ok()?;
        self.by_id.get(at)
    }

    /// The log, oldest first.
    pub(crate) fn order(&self) -> &[Arc<Segment>] {
        &self.order
    }

    /// Replaced segments whose files are still there.
    pub(crate) fn retired(&self) -> impl Iterator<Item = &Arc<Segment>> {
        self.retired.iter().map(|retired| &retired.segment)
    }

    /// The first segment that may hold a record at or after `from`.
    pub(crate) fn find(&self, from: Revision) -> Option<&Arc<Segment>> {
        let at = self.order.partition_point(|segment| segment.is_sealed() && segment.last() < from);
        self.order.get(at)
    }

    /// Makes a segment known by its id.
    pub(crate) fn admit(&mut self, segment: &Arc<Segment>) {
        let Err(at) = self.by_id.binary_search_by_key(&segment.id(), |segment| segment.id()) else {
            panic!("segment {:x} is there already", segment.id());
        };
        self.by_id.insert(at, Arc::clone(segment));
    }

    /// Adds the newest segment of the log, and seals the one before.
    pub(crate) fn push(&mut self, segment: Arc<Segment>) {
        if let Some(before) = self.order.last() {
            before.seal();
        }
        self.admit(&segment);
        self.order.push(segment);
    }

    /// Puts `new` into the place of a run of neighbours, which retire.
    pub(crate) fn replace(&mut self, run: &[Arc<Segment>], new: Option<Arc<Segment>>) {
        let Some(first) = run.first() else { return };
        let at = self.order.iter().position(|segment| Arc::ptr_eq(segment, first));
        let Some(at) = at.filter(|at| self.order.len() >= at + run.len()) else {
            panic!("segment {:x} is not part of the log", first.id());
        };
        for (old, expected) in self.order.splice(at..at + run.len(), new).zip(run) {
            assert!(Arc::ptr_eq(&old, expected), "segments to be replaced are not neighbours");
            self.retired.push(Retired { segment: old, is_settled: false });
        }
    }

    /// Replaces this log by another. All its segments retire, together with the index that refers to them.
    pub(crate) fn install(&mut self, new: Vec<Arc<Segment>>) {
        // Readers at the end continue in the new log.
        if let Some(last) = self.order.last() {
            last.seal();
        }
        // All that a place may name: also replaced ones, and one that a rewrite was moving records to.
        let retire = |segment: &Arc<Segment>| Retired { segment: Arc::clone(segment), is_settled: true };
        self.retired = self.by_id.iter().map(retire).collect();
        for segment in &new {
            assert!(segment.is_sealed(), "an installed segment takes no more records");
            self.admit(segment);
        }
        self.order = new;
    }

    /// Forgets the retired segments that `may_go`, but for those that no call that `settles` has seen before. Returns them: what is the last
    /// reference to one unmaps its file, which must not happen under the lock of the table.
    pub(crate) fn forget_retired(&mut self, settles: bool, may_go: impl Fn(&Segment) -> bool) -> Vec<Arc<Segment>> {
        let mut gone: Vec<Arc<Segment>> = Vec::new();
        self.retired.retain_mut(|retired| {
            let goes = retired.is_settled && may_go(&retired.segment);
            if goes {
                gone.push(Arc::clone(&retired.segment));
            }
            retired.is_settled |= settles;
            !goes
        });
        self.by_id.retain(|segment| !gone.iter().any(|gone| gone.id() == segment.id()));
        gone
    }
}

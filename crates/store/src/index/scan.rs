//! Walking a range of keys in order, in strides.

use std::ops::{Bound, ControlFlow};

use api::KeyRange;

use super::Index;
use super::entries::low_bits;
use super::leaf::Leaf;
use super::node::Node;
use crate::types::Version;

/// The revision of a walk over what the index holds now. It looks at live keys only, and passes over any number of others at once.
pub(crate) const NEWEST: i64 = i64::MAX;

/// How a walk ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Scan {
    /// At the end of the range.
    Done,
    /// Because the visitor said so.
    Stopped,
    /// After as many keys as were allowed; go on after this one.
    More(Box<[u8]>),
}

struct Walk<'a> {
    range: KeyRange<'a>,
    at: i64,
    left: &'a mut usize,
    /// The last key looked at.
    key: Vec<u8>,
    visit: &'a mut dyn FnMut(&[u8], &Version) -> ControlFlow<()>,
}

impl Walk<'_> {
    fn node(&mut self, node: &Node, low: Bound<&[u8]>) -> ControlFlow<Scan> {
        let branch = match node {
            Node::Leaf(leaf) => return self.leaf(leaf, low),
            Node::Branch(branch) => branch,
        };
        let first = match low {
            Bound::Included(key) | Bound::Excluded(key) => branch.child_of(key),
            Bound::Unbounded => 0,
        };
        for (i, child) in branch.children.iter().enumerate().skip(first) {
            if self.at != NEWEST || branch.has_live(i) {
                self.node(child, if i == first { low } else { Bound::Unbounded })?;
            }
        }
        ControlFlow::Continue(())
    }

    fn leaf(&mut self, leaf: &Leaf, low: Bound<&[u8]>) -> ControlFlow<Scan> {
        let from = leaf.position(low, 0);
        let to = leaf.position(reversed(self.range.upper()), leaf.keys.len());
        let within = low_bits(to) & !low_bits(from);
        let mut unseen = if self.at == NEWEST { leaf.live_bits() & within } else { within };
        let mut last = None;
        while unseen != 0 && *self.left > 0 {
            let i = unseen.trailing_zeros() as usize;
            unseen &= unseen - 1;
            *self.left -= 1;
            last = Some(i);
            let Some(version) = leaf.entries.get(i).at(self.at) else { continue };
            leaf.copy_key(i, &mut self.key);
            if (self.visit)(&self.key, &version).is_break() {
                return ControlFlow::Break(Scan::Stopped);
            }
        }
        if let Some(last) = last {
            leaf.copy_key(last, &mut self.key);
        }
        if unseen != 0 {
            ControlFlow::Break(Scan::More(self.key.as_slice().into()))
        } else if to < leaf.keys.len() {
            ControlFlow::Break(Scan::Done)
        } else {
            ControlFlow::Continue(())
        }
    }
}

impl Leaf {
    /// The position of the first key that `low` lets in; `unbounded` if it bounds nothing.
    pub(super) fn position(&self, low: Bound<&[u8]>, unbounded: usize) -> usize {
        match low {
            Bound::Included(key) => self.keys.find(key).unwrap_or_else(|at| at),
            Bound::Excluded(key) => self.keys.find(key).map_or_else(|at| at, |at| at + 1),
            Bound::Unbounded => unbounded,
        }
    }

    /// Key `i`, into a buffer that is used again.
    pub(super) fn copy_key(&self, i: usize, key: &mut Vec<u8>) {
        key.clear();
        self.keys.parts(i).iter().for_each(|part| key.extend_from_slice(part));
    }
}

/// An upper bound as the lower bound of what lies after it.
fn reversed(upper: Bound<&[u8]>) -> Bound<&[u8]> {
    match upper {
        Bound::Included(key) => Bound::Excluded(key),
        Bound::Excluded(key) => Bound::Included(key),
        Bound::Unbounded => Bound::Unbounded,
    }
}

impl Index {
    /// Visits the keys of `range` that are live at main revision `at`, in order, starting after `after` if it is given. Looks at no
    /// more than `visit_max` keys (at least one), live or not ([`NEWEST`]: live), so that the caller can give up its lock in between.
    pub(crate) fn scan(
        &self,
        range: KeyRange<'_>,
        at: i64,
        after: Option<&[u8]>,
        visit_max: usize,
        visit: &mut dyn FnMut(&[u8], &Version) -> ControlFlow<()>,
    ) -> Scan {
        let mut left = visit_max;
        self.scan_within(range, at, after, &mut left, visit)
    }

    /// The same, with what is left of the keys it may look at counted down, for one that makes several walks under one lock.
    pub(crate) fn scan_within(
        &self,
        range: KeyRange<'_>,
        at: i64,
        after: Option<&[u8]>,
        left: &mut usize,
        visit: &mut dyn FnMut(&[u8], &Version) -> ControlFlow<()>,
    ) -> Scan {
        if range.is_empty() {
            return Scan::Done;
        }
        let low = match after {
            Some(after) if after >= range.start() => Bound::Excluded(after),
            _ => Bound::Included(range.start()),
        };
        *left = (*left).max(1);
        let mut walk = Walk { range, at, left, key: Vec::new(), visit };
        match walk.node(&self.root, low) {
            ControlFlow::Break(scan) => scan,
            ControlFlow::Continue(()) => Scan::Done,
        }
    }
}

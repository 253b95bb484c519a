//! Dropping versions that a compaction made unreachable, slice by slice.

use std::ops::Bound;

use super::Index;
use super::leaf::Leaf;
use super::node::Node;
use crate::types::Loc;

struct Pruner<'a> {
    compact: i64,
    left: usize,
    removed: usize,
    /// The last key that is finished.
    done: Vec<u8>,
    /// A key is unfinished, or there was no allowance left to look at the next.
    stopped: bool,
    dead: &'a mut dyn FnMut(Loc, bool),
}

impl Pruner<'_> {
    /// Prunes in the one leaf that `low` leads to. Leaves in `next` the separator to the leaf after it, if there is one.
    fn node(&mut self, node: &mut Node, low: Bound<&[u8]>, next: &mut Option<Vec<u8>>) {
        let branch = match node {
            Node::Leaf(leaf) => return self.leaf(leaf, low),
            Node::Branch(branch) => branch,
        };
        let i = match low {
            Bound::Included(key) | Bound::Excluded(key) => branch.child_of(key),
            Bound::Unbounded => 0,
        };
        if i < branch.separators.len() {
            *next = Some(branch.separators.key(i));
        }
        let removed = self.removed;
        self.node(&mut branch.children[i], low, next);
        if self.removed > removed {
            branch.lost(i, (self.removed - removed) as u64);
        }
    }

    fn leaf(&mut self, leaf: &mut Leaf, low: Bound<&[u8]>) {
        let from = leaf.position(low, 0);
        let mut keep = u64::MAX;
        let mut finished = None;
        for i in from..leaf.entries.len() {
            if self.left == 0 {
                self.stopped = true;
                break;
            }
            let pruned = leaf.entries.prune(i, self.compact, self.left, self.dead);
            self.left -= pruned.visited;
            if !pruned.finished {
                self.stopped = true;
                break;
            }
            finished = Some(i);
            if pruned.emptied {
                keep &= !(1 << i);
                self.removed += 1;
            }
        }
        if let Some(last) = finished {
            leaf.copy_key(last, &mut self.done);
        }
        if keep != u64::MAX {
            leaf.retain(keep);
        }
    }
}

impl Index {
    /// One slice of a compaction, which starts after `after`: drops versions that no read at main revision `compact` or later needs,
    /// and keys that are left with none. Of each key stay the newest version not later than `compact` (unless that is a
    /// tombstone from before it) and all later ones. `dead` is told the place of each dropped version, and
    /// whether it is a tombstone. Looks at no more than `visit_max` versions (at least one).
    ///
    /// Returns where the next slice starts, `None` at the end. An empty key means the beginning.
    pub(crate) fn prune(
        &mut self,
        compact: i64,
        after: Option<&[u8]>,
        visit_max: usize,
        dead: &mut dyn FnMut(Loc, bool),
    ) -> Option<Box<[u8]>> {
        let done = after.unwrap_or_default().to_vec();
        let mut pruner = Pruner { compact, left: visit_max.max(1), removed: 0, done, stopped: false, dead };
        // The separator that the walk goes on from; at first, `after`.
        let mut low = None;
        let resume = loop {
            let mut next = None;
            let bound = match (&low, after) {
                (Some(separator), _) => Bound::Included(Vec::as_slice(separator)),
                (None, Some(after)) => Bound::Excluded(after),
                (None, None) => Bound::Unbounded,
            };
            pruner.node(&mut self.root, bound, &mut next);
            match next {
                _ if pruner.stopped => break Some(pruner.done.into_boxed_slice()),
                None => break None,
                Some(_) if pruner.left == 0 => break Some(pruner.done.into_boxed_slice()),
                next => low = next,
            }
        };
        self.keys -= pruner.removed;
        self.shape += u64::from(pruner.removed > 0);
        self.lower_root();
        resume
    }

    /// Takes away levels that a removal left with a single child.
    fn lower_root(&mut self) {
        while let Node::Branch(branch) = &mut self.root
            && branch.children.len() <= 1
        {
            self.root = branch.children.pop().unwrap_or_else(Node::empty);
        }
    }
}

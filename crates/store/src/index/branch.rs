//! The upper levels of the tree: children, the keys that separate them, and how many keys each holds.

use super::keys::{HEAP_BYTES_MAX, KEYS_MAX, KeyBlock};
use super::node::{Count, JOINED_MAX, Node, Pushed, Split, adjusted};
use crate::types::Version;

/// Children that a branch holds even if their separators are longer than a node should have. With fewer of them clients could choose
/// long keys, and an order of them, that leave one child to most branches: a tree as high as it has keys.
pub(super) const HEAVY_CHILDREN_MIN: usize = 8;

/// Up to [`KEYS_MAX`] children. Child i holds the keys in `[separator i - 1, separator i)`.
///
/// A branch may be left with a single child and no separator; all leaves stay at the same depth. A branch is cut in two only with
/// [`HEAVY_CHILDREN_MIN`] children or more. That makes a level stand for six times as many keys as the one below, or for about twice as
/// many where separators with other prefixes come to the end of full branches, which stay full. Functions that recurse by level, down
/// a way or over the whole tree, do so less than forty times.
pub(super) struct Branch {
    pub(super) separators: KeyBlock,
    pub(super) children: Vec<Node>,
    /// Keys under each child.
    counts: Vec<Count>,
}

impl Branch {
    /// A branch of these children; there is one separator fewer than children.
    pub(super) fn new(separators: KeyBlock, children: Vec<Node>) -> Branch {
        assert!(separators.len() + 1 == children.len(), "a branch needs one separator between two children");
        let counts = children.iter().map(Node::count).collect();
        Branch { separators, children, counts }
    }

    /// Which child holds `key`.
    pub(super) fn child_of(&self, key: &[u8]) -> usize {
        self.child_from(self.separators.rank(key), key)
    }

    /// The same, where the key's rank among the separators is known.
    pub(super) fn child_from(&self, rank: usize, key: &[u8]) -> usize {
        match self.separators.find_from(rank, key) {
            Ok(at) => at + 1,
            Err(at) => at,
        }
    }

    /// Keys below it.
    pub(super) fn count(&self) -> Count {
        self.before(self.counts.len())
    }

    /// Keys before child `i`.
    pub(super) fn before(&self, i: usize) -> Count {
        self.counts[..i].iter().copied().sum()
    }

    /// Whether there are live keys below child `i`.
    pub(super) fn has_live(&self, i: usize) -> bool {
        self.counts[i].live > 0
    }

    /// Which child holds the `n`th live key, and the keys before that child; the last one if fewer are live.
    pub(super) fn child_of_live(&self, n: u64) -> (usize, Count) {
        let (mut i, mut before) = (0, Count::default());
        while i + 1 < self.counts.len() && before.live + self.counts[i].live < n {
            before = before + self.counts[i];
            i += 1;
        }
        (i, before)
    }

    /// Adds a version. `is_last` says that nothing follows this branch at its level.
    pub(super) fn push(&mut self, key: &[u8], version: Version, is_last: bool) -> Pushed {
        let i = self.child_of(key);
        let is_last = is_last && i + 1 == self.children.len();
        let pushed = self.children[i].push(key, version, is_last);
        let Some(split) = pushed.split else {
            let count = &mut self.counts[i];
            count.live = adjusted(count.live, pushed.live);
            count.keys += u64::from(pushed.inserted);
            return pushed;
        };
        self.counts[i] = self.children[i].count();
        Pushed { split: self.insert(i + 1, split, is_last), ..pushed }
    }

    /// Notes that child `i` has lost keys, none of them live. Joins it with a neighbour if it has become sparse, or removes it if it is
    /// empty.
    pub(super) fn lost(&mut self, i: usize, keys: u64) {
        self.counts[i].keys -= keys;
        let child = &self.children[i];
        if child.is_empty() {
            self.remove(i);
        } else if child.is_sparse() && !self.join(i) && i > 0 {
            self.join(i - 1);
        }
    }

    /// Takes over all of `right`, the branch after this one, if that leaves room. `between` separates the two.
    pub(super) fn join_branch(&mut self, between: &[u8], right: &mut Branch) -> bool {
        let Some(separators) = self.separators.join(Some(between), &right.separators, JOINED_MAX) else { return false };
        self.separators = separators;
        self.children.append(&mut right.children);
        self.counts.append(&mut right.counts);
        true
    }

    fn join(&mut self, i: usize) -> bool {
        if i + 1 >= self.children.len() {
            return false;
        }
        let between = self.separators.key(i);
        let (left, right) = self.children.split_at_mut(i + 1);
        let joined = left[i].join(&between, &mut right[0]);
        if joined {
            self.counts[i] = self.counts[i] + self.counts[i + 1];
            self.remove(i + 1);
        }
        joined
    }

    fn remove(&mut self, i: usize) {
        self.children.remove(i);
        self.counts.remove(i);
        if self.separators.len() > 0 {
            self.separators.retain(!(1 << i.saturating_sub(1)));
        }
    }

    /// Puts a new child at `at`, cutting this branch in two if it is full.
    fn insert(&mut self, at: usize, split: Split, is_last: bool) -> Option<Split> {
        let len = self.children.len();
        let is_heavy = len >= HEAVY_CHILDREN_MIN && self.separators.bytes_with(&split.separator) > HEAP_BYTES_MAX;
        if len < KEYS_MAX && !is_heavy {
            self.place(at, split);
            return None;
        }
        // As for leaves: what is appended in order leaves full branches behind, and a foreign separator unpacks no prefix.
        let is_outside = !split.separator.starts_with(self.separators.prefix());
        if at == len && (is_last || is_outside) {
            return Some(Split { separator: split.separator, right: Node::branch(KeyBlock::new(), vec![split.right]) });
        }
        // Separator `cut - 1` goes up: children before `cut` stay.
        let cut = match (is_heavy, is_outside) {
            (true, true) => 1,
            (true, false) => self.separators.middle().clamp(2, len - 2),
            (false, _) => len / 2,
        };
        let separator = self.separators.key(cut - 1);
        let mut right = Branch {
            separators: self.separators.slice(cut, self.separators.len()),
            children: self.children.split_off(cut),
            counts: self.counts.split_off(cut),
        };
        self.separators = self.separators.slice(0, cut - 1);
        if at <= cut {
            self.place(at, split)
        } else {
            right.place(at - cut, split)
        }
        Some(Split { separator, right: Node::Branch(Box::new(right)) })
    }

    fn place(&mut self, at: usize, split: Split) {
        self.separators.insert(at - 1, &split.separator);
        self.counts.insert(at, split.right.count());
        self.children.insert(at, split.right);
    }

    /// Keys under each child, as counted so far.
    #[cfg(test)]
    pub(super) fn counts(&self) -> &[Count] {
        &self.counts
    }
}

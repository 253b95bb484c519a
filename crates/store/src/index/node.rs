//! A node of the tree, on any level.

use super::branch::Branch;
use super::entries::Entries;
use super::keys::{KEYS_MAX, KeyBlock};
use super::leaf::Leaf;
use crate::types::Version;
use std::slice;

/// A node with fewer keys or children than this looks for a neighbour to join.
const SPARSE: usize = KEYS_MAX / 4;

/// A joined node has at most this many, so that the next insertions do not split it again.
pub(super) const JOINED_MAX: usize = KEYS_MAX * 3 / 4;

/// A leaf, or a branch above leaves or other branches.
pub(super) enum Node {
    Leaf(Box<Leaf>),
    Branch(Box<Branch>),
}

/// Keys below a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Count {
    /// Those whose newest version is not a tombstone.
    pub(super) live: u64,
    /// Those, and the others.
    pub(super) keys: u64,
}

impl std::ops::Add for Count {
    type Output = Count;

    fn add(self, more: Count) -> Count {
        Count { live: self.live + more.live, keys: self.keys + more.keys }
    }
}

impl std::iter::Sum for Count {
    fn sum<I: Iterator<Item = Count>>(counts: I) -> Count {
        counts.fold(Count::default(), std::ops::Add::add)
    }
}

/// What a push into a node did.
pub(super) struct Pushed {
    /// Change in the number of live keys.
    pub(super) live: i64,
    /// The key is new to the tree.
    pub(super) inserted: bool,
    /// The node was cut in two, and this is the new half.
    pub(super) split: Option<Split>,
}

/// The right half of a node that was cut in two.
pub(super) struct Split {
    /// Greater than every key left of it, not greater than any in `right`.
    pub(super) separator: Vec<u8>,
    pub(super) right: Node,
}

impl Node {
    /// A leaf without keys.
    pub(super) fn empty() -> Node {
        Node::Leaf(Box::new(Leaf::new(KeyBlock::new(), Entries::default())))
    }

    pub(super) fn branch(separators: KeyBlock, children: Vec<Node>) -> Node {
        Node::Branch(Box::new(Branch::new(separators, children)))
    }

    /// Its keys, or what separates its children.
    pub(super) fn keys(&self) -> &KeyBlock {
        match self {
            Node::Leaf(leaf) => &leaf.keys,
            Node::Branch(branch) => &branch.separators,
        }
    }

    /// Fetches what the first half of a search looks at, and what leads on from there.
    pub(super) fn fetch(&self) {
        self.keys().fetch();
        match self {
            Node::Leaf(leaf) => disk::fetch(slice::from_ref(&leaf.entries)),
            Node::Branch(branch) => disk::fetch(slice::from_ref(&branch.children)),
        }
    }

    /// Fetches what the other half of a search compares, and a child.
    pub(super) fn fetch_place(&self, rank: usize) {
        self.keys().fetch_strings(rank);
        if let Node::Branch(branch) = self {
            disk::fetch(branch.children.get(rank).map_or(&[], slice::from_ref));
        }
    }

    /// The leaf that holds `key`, if any does.
    pub(super) fn leaf_of(&self, key: &[u8]) -> &Leaf {
        let mut node = self;
        loop {
            match node {
                Node::Leaf(leaf) => return leaf,
                Node::Branch(branch) => node = &branch.children[branch.child_of(key)],
            }
        }
    }

    pub(super) fn leaf_of_mut(&mut self, key: &[u8]) -> &mut Leaf {
        let mut node = self;
        loop {
            match node {
                Node::Leaf(leaf) => return leaf,
                Node::Branch(branch) => {
                    let i = branch.child_of(key);
                    node = &mut branch.children[i];
                }
            }
        }
    }

    /// Keys less than `key`.
    pub(super) fn rank(&self, key: &[u8]) -> Count {
        let (mut node, mut rank) = (self, Count::default());
        loop {
            match node {
                Node::Leaf(leaf) => {
                    let (Ok(at) | Err(at)) = leaf.keys.find(key);
                    return rank + Count { live: leaf.live_before(at), keys: at as u64 };
                }
                Node::Branch(branch) => {
                    let i = branch.child_of(key);
                    rank = rank + branch.before(i);
                    node = &branch.children[i];
                }
            }
        }
    }

    /// Keys up to the `n`th live one, and with it; all of them if fewer are live.
    pub(super) fn keys_until(&self, n: u64) -> u64 {
        let (mut node, mut left, mut keys) = (self, n, 0);
        loop {
            match node {
                Node::Leaf(leaf) => return keys + leaf.keys_until(left),
                Node::Branch(branch) => {
                    let (i, before) = branch.child_of_live(left);
                    node = &branch.children[i];
                    (left, keys) = (left - before.live, keys + before.keys);
                }
            }
        }
    }

    pub(super) fn push(&mut self, key: &[u8], version: Version, is_last: bool) -> Pushed {
        match self {
            Node::Leaf(leaf) => leaf.push(key, version, is_last),
            Node::Branch(branch) => branch.push(key, version, is_last),
        }
    }

    /// Keys below it.
    pub(super) fn count(&self) -> Count {
        match self {
            Node::Leaf(leaf) => Count { live: leaf.live(), keys: leaf.entries.len() as u64 },
            Node::Branch(branch) => branch.count(),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub(super) fn is_sparse(&self) -> bool {
        self.len() < SPARSE
    }

    /// Takes over all of `right`, the node after this one at its level, if that leaves room. `between` separates the two.
    pub(super) fn join(&mut self, between: &[u8], right: &mut Node) -> bool {
        match (self, right) {
            (Node::Leaf(left), Node::Leaf(right)) => left.join(right),
            (Node::Branch(left), Node::Branch(right)) => left.join_branch(between, right),
            _ => unreachable!("neighbours are at the same level"),
        }
    }

    /// Keys of a leaf, children of a branch.
    fn len(&self) -> usize {
        match self {
            Node::Leaf(leaf) => leaf.entries.len(),
            Node::Branch(branch) => branch.children.len(),
        }
    }
}

/// A count of live keys after a change.
pub(super) fn adjusted(count: u64, change: i64) -> u64 {
    let Some(count) = count.checked_add_signed(change) else { panic!("fewer live keys than were counted") };
    count
}

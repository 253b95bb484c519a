//! Loading a whole tree at once, from the bottom up.

use super::Index;
use super::entries::Entries;
use super::keys::{self, HEAP_BYTES_MAX, KEYS_MAX, KeyBlock};
use super::leaf::Leaf;
use super::node::Node;
use crate::types::Version;

/// Keys of a leaf and children of a branch: nearly full, with a little room, so that the first insertions do not split them all.
const FILL: usize = KEYS_MAX - 4;

/// A finished node, and the key that separates it from the one before (empty for the first).
type Built = (Vec<u8>, Node);

/// A part of an index: the leaves of some sorted keys.
pub(crate) struct Part {
    first: Vec<u8>,
    last: Vec<u8>,
    leaves: Vec<Built>,
    keys: usize,
}

/// Gathers sorted keys into leaves.
#[derive(Default)]
pub(crate) struct Loader {
    /// The keys of the next leaf, one after the other.
    bytes: Vec<u8>,
    ends: Vec<usize>,
    entries: Entries,
    /// The first key of all.
    first: Vec<u8>,
    /// The last key of the leaf before.
    before: Vec<u8>,
    leaves: Vec<Built>,
    keys: usize,
}

impl Loader {
    /// Adds the next version: of a later key than the one before, or of the same key at a later revision.
    ///
    /// # Panics
    /// If it is not.
    pub(crate) fn push(&mut self, key: &[u8], version: Version) {
        match (self.last_key().cmp(key), self.entries.len().checked_sub(1)) {
            (std::cmp::Ordering::Equal, Some(last)) => {
                self.entries.push(last, version);
                return;
            }
            (std::cmp::Ordering::Less, _) => {}
            _ => panic!("keys to load are not in order"),
        }
        if self.entries.len() == FILL || (!self.entries.is_empty() && self.bytes.len() + key.len() > HEAP_BYTES_MAX) {
            self.close_leaf();
        }
        self.bytes.extend_from_slice(key);
        self.ends.push(self.bytes.len());
        self.entries.insert(self.entries.len(), version);
        self.keys += 1;
    }

    /// The part of an index that was loaded.
    pub(crate) fn finish(mut self) -> Part {
        self.close_leaf();
        Part { first: self.first, last: self.before, leaves: self.leaves, keys: self.keys }
    }

    fn last_key(&self) -> &[u8] {
        match self.ends[..] {
            [] => &self.before,
            [end] => &self.bytes[..end],
            [.., start, end] => &self.bytes[start..end],
        }
    }

    fn close_leaf(&mut self) {
        let starts = std::iter::once(0).chain(self.ends.iter().copied());
        let keys = starts.zip(&self.ends).map(|(start, &end)| [&self.bytes[start..end], &[][..]]);
        let Some([first, _]) = keys.clone().next() else { return };
        let separator = match self.leaves.is_empty() {
            true => Vec::new(),
            false => keys::separator([&self.before, &[]], [first, &[]]),
        };
        if self.leaves.is_empty() {
            self.first = first.to_vec();
        }
        let last = self.last_key().to_vec();
        let keys = KeyBlock::assemble(keys::shared(first, &last), keys);
        let mut entries = std::mem::replace(&mut self.entries, Entries::with_capacity(FILL));
        entries.shrink_to_fit();
        self.leaves.push((separator, Node::Leaf(Box::new(Leaf::new(keys, entries)))));
        self.before = last;
        self.bytes.clear();
        self.ends.clear();
    }
}

/// One level of branches over `nodes`.
fn raise(nodes: Vec<Built>) -> Vec<Built> {
    let mut level = Vec::with_capacity(nodes.len() / FILL + 1);
    let mut nodes = nodes.into_iter().peekable();
    while let Some((lower, first)) = nodes.next() {
        let (mut children, mut separators, mut bytes) = (vec![first], Vec::new(), 0);
        while let Some((separator, child)) = nodes.next_if(|(separator, _)| {
            children.len() < 2 || (children.len() < FILL && bytes + separator.len() <= HEAP_BYTES_MAX)
        }) {
            bytes += separator.len();
            separators.push(separator);
            children.push(child);
        }
        let shared = match &separators[..] {
            [] => 0,
            [first, .., last] => keys::shared(first, last),
            [only] => only.len(),
        };
        let block = KeyBlock::assemble(shared, separators.iter().map(|key| [&key[..], &[][..]]));
        level.push((lower, Node::branch(block, children)));
    }
    level
}

impl Index {
    /// An index of these versions, which are sorted by key and, within a key, by revision.
    ///
    /// # Panics
    /// If they are not.
    #[cfg(test)]
    pub(crate) fn build<K: AsRef<[u8]>>(versions: impl IntoIterator<Item = (K, Version)>) -> Index {
        let mut loader = Loader::default();
        versions.into_iter().for_each(|(key, version)| loader.push(key.as_ref(), version));
        Index::of_parts(vec![loader.finish()])
    }

    /// An index of these parts, which follow one another.
    ///
    /// # Panics
    /// If they do not.
    pub(crate) fn of_parts(parts: Vec<Part>) -> Index {
        let (mut level, mut keys, mut before) = (Vec::new(), 0, None::<Vec<u8>>);
        for mut part in parts {
            let Some((separator, _)) = part.leaves.first_mut() else { continue };
            if let Some(before) = &before {
                assert!(*before < part.first, "parts to load are not in order");
                *separator = keys::separator([before, &[]], [&part.first, &[]]);
            }
            keys += part.keys;
            before = Some(part.last);
            level.append(&mut part.leaves);
        }
        while level.len() > 1 {
            level = raise(level);
        }
        let root = level.pop().map_or_else(Node::empty, |(_, node)| node);
        Index { live: root.count().live, keys, root, shape: 0 }
    }
}

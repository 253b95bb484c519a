//! Ways from the root to a key, found once and gone again without a search.

use super::Index;
use super::node::Node;
use crate::types::Version;

/// Levels of a tree in which ways are noted. Only keys of kilobytes make higher ones.
pub(super) const LEVELS_MAX: usize = 8;

/// The way to a key. It holds until keys come or go; only for the index that it was found in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Path {
    /// [`Index::shape`] when it was found.
    pub(super) shape: u64,
    /// Which child, from the root down; where in the leaf.
    pub(super) children: [u8; LEVELS_MAX],
    pub(super) at: u8,
}

impl Index {
    /// [`Index::latest`] of the key that the path was found for.
    pub(crate) fn latest_on(&self, path: Option<Path>, key: &[u8]) -> Option<Version> {
        let Some(path) = path.filter(|path| path.shape == self.shape) else { return self.latest(key) };
        let mut node = &self.root;
        for child in path.children {
            match node {
                Node::Branch(branch) => node = &branch.children[usize::from(child)],
                Node::Leaf(_) => break,
            }
        }
        match node {
            Node::Leaf(leaf) => {
                debug_assert!(leaf.keys.key(path.at.into()) == key, "another key's path");
                Some(leaf.entries.get(path.at.into()).newest())
            }
            Node::Branch(_) => self.latest(key),
        }
    }

    /// [`Index::push`] for the key that the path was found for.
    pub(crate) fn push_on(&mut self, path: Option<Path>, key: &[u8], version: Version) {
        let Some(path) = path.filter(|path| path.shape == self.shape) else { return self.push(key, version) };
        let mut node = &mut self.root;
        for child in path.children {
            match node {
                Node::Branch(branch) => node = &mut branch.children[usize::from(child)],
                Node::Leaf(_) => break,
            }
        }
        match node {
            // All counts stay as they are.
            Node::Leaf(leaf) if !version.is_tombstone() && leaf.is_live(path.at.into()) => {
                debug_assert!(leaf.keys.key(path.at.into()) == key, "another key's path");
                leaf.entries.push(path.at.into(), version);
            }
            _ => self.push(key, version),
        }
    }
}

//! Fetches what pushes to several keys will touch into the processor's caches, for all of these keys at once.
//!
//! A push follows a dozen pointers, one after the other, and in an index of some size each of them leads to memory that no cache has. Here
//! each step is done for all keys before the next: what the next one needs is on its way meanwhile.

use super::Index;
use super::leaf::Leaf;
use super::node::Node;
use super::path::{LEVELS_MAX, Path};

/// Keys that are fetched together: about as many as a processor waits for at a time.
pub(crate) const FETCHED_TOGETHER: usize = 16;

impl Index {
    /// Fetches what pushes to the first [`FETCHED_TOGETHER`] of these keys touch. Nothing is changed by it. Returns the ways to those keys
    /// that are here.
    pub(crate) fn fetch(&self, keys: &[&[u8]]) -> [Option<Path>; FETCHED_TOGETHER] {
        let keys = &keys[..keys.len().min(FETCHED_TOGETHER)];
        let mut nodes = [&self.root; FETCHED_TOGETHER];
        let mut ranks = [0; FETCHED_TOGETHER];
        let mut paths = [Path { shape: self.shape, children: [0; LEVELS_MAX], at: 0 }; FETCHED_TOGETHER];
        let mut level = 0;
        // All leaves are at the same depth.
        while !keys.is_empty() {
            for (i, key) in keys.iter().enumerate() {
                ranks[i] = nodes[i].keys().rank(key);
                nodes[i].fetch_place(ranks[i]);
            }
            if let Node::Leaf(_) = nodes[0] {
                break;
            }
            for (i, key) in keys.iter().enumerate() {
                if let Node::Branch(branch) = nodes[i] {
                    let child = branch.child_from(ranks[i], key);
                    nodes[i] = &branch.children[child];
                    nodes[i].fetch();
                    if let Some(step) = paths[i].children.get_mut(level) {
                        *step = child as u8;
                    }
                }
            }
            level += 1;
        }
        let mut found: [Option<(&Leaf, usize)>; FETCHED_TOGETHER] = [None; FETCHED_TOGETHER];
        for (i, key) in keys.iter().enumerate() {
            if let Node::Leaf(leaf) = nodes[i] {
                found[i] = leaf.keys.find_from(ranks[i], key).ok().map(|at| (&**leaf, at));
            }
        }
        let here = || found.iter().flatten();
        here().for_each(|(leaf, at)| leaf.entries.fetch(*at));
        here().for_each(|(leaf, at)| leaf.entries.fetch_older(*at));
        here().for_each(|(leaf, at)| leaf.entries.fetch_last(*at));
        std::array::from_fn(|i| {
            let (_, at) = found[i].filter(|_| level <= LEVELS_MAX)?;
            Some(Path { at: at as u8, ..paths[i] })
        })
    }
}

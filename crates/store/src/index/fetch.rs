//! Fetches what pushes to several keys will touch into the processor's caches, for all of these keys at once.
//!
//! A push follows a dozen pointers, one after the other, and in an index of some size each of them leads to memory that no cache has. Here
//! each step is done for all keys before the next: while the processor waits for one it already asks for the others.

use super::Index;
use super::entries::Versions;
use super::node::Node;
use std::hint::black_box;

/// Keys that are fetched together: about as many as a processor waits for at a time.
pub(crate) const FETCHED_TOGETHER: usize = 16;

impl Index {
    /// Fetches what pushes to the first [`FETCHED_TOGETHER`] of these keys touch. Nothing is changed by it. Says how many of them are here.
    pub(crate) fn fetch(&self, keys: &[&[u8]]) -> usize {
        let keys = &keys[..keys.len().min(FETCHED_TOGETHER)];
        if keys.is_empty() {
            return 0;
        }
        let mut nodes = [&self.root; FETCHED_TOGETHER];
        let mut ranks = [0; FETCHED_TOGETHER];
        let mut found: [Option<Versions<'_>>; FETCHED_TOGETHER] = Default::default();
        loop {
            touch(keys, |i, key| {
                ranks[i] = nodes[i].keys().rank(key);
                nodes[i].keys().touch_strings(ranks[i])
            });
            // All leaves are at the same depth.
            if let Node::Leaf(_) = nodes[0] {
                break;
            }
            for (i, key) in keys.iter().enumerate() {
                if let Node::Branch(branch) = nodes[i] {
                    nodes[i] = &branch.children[branch.child_from(ranks[i], key)];
                }
            }
            touch(keys, |i, _| nodes[i].touch());
        }
        touch(keys, |i, key| {
            if let Node::Leaf(leaf) = nodes[i] {
                found[i] = leaf.keys.find_from(ranks[i], key).ok().map(|at| leaf.entries.get(at));
            }
            found[i].as_ref().map_or(0, Versions::touch)
        });
        touch(keys, |i, _| found[i].as_ref().map_or(0, Versions::touch_older));
        touch(keys, |i, _| found[i].as_ref().map_or(0, Versions::touch_oldest));
        found.iter().flatten().count()
    }
}

/// Reads something for each key, in memory that may not be cached. What is read has no use but that.
fn touch(keys: &[&[u8]], mut read: impl FnMut(usize, &[u8]) -> u64) {
    black_box(keys.iter().enumerate().fold(0, |sum, (i, key)| sum ^ read(i, key)));
}

//! The invariants of the tree, checked by walking all of it.

use super::Index;
use super::branch::HEAVY_CHILDREN_MIN;
use super::keys::{HEAP_BYTES_MAX, KEYS_MAX};
use super::node::{Count, Node};

/// Sums over a tree.
#[derive(Default, Debug)]
pub(crate) struct Shape {
    pub(crate) leaves: usize,
    pub(crate) keys: usize,
    pub(crate) live: u64,
    pub(crate) depth: usize,
    /// Bytes of the largest key block that holds more than a key.
    pub(crate) bytes_max: usize,
}

impl Index {
    /// Panics unless the tree is sound.
    pub(crate) fn check(&self) -> Shape {
        let mut shape = Shape::default();
        visit(&self.root, 1, None, None, &mut shape);
        assert_eq!((shape.keys, shape.live), (self.keys, self.live));
        if let Node::Branch(branch) = &self.root {
            assert!(branch.children.len() > 1, "the root is a level too high");
        }
        assert!(shape.bytes_max <= 2 * HEAP_BYTES_MAX, "a block of {} bytes", shape.bytes_max);
        shape
    }
}

fn visit(node: &Node, depth: usize, low: Option<&[u8]>, high: Option<&[u8]>, shape: &mut Shape) -> Count {
    let block = match node {
        Node::Leaf(leaf) => &leaf.keys,
        Node::Branch(branch) => &branch.separators,
    };
    let keys: Vec<Vec<u8>> = (0..block.len()).map(|i| block.key(i)).collect();
    assert!(keys.is_sorted_by(|a, b| a < b), "keys out of order");
    assert!(keys.first().is_none_or(|key| low.is_none_or(|low| low <= &key[..])), "key below its node");
    assert!(keys.last().is_none_or(|key| high.is_none_or(|high| &key[..] < high)), "key above its node");
    keys.iter().enumerate().for_each(|(i, key)| assert_eq!(block.find(key), Ok(i)));
    let may_be_long = matches!(node, Node::Branch(_)) && keys.len() <= HEAVY_CHILDREN_MIN;
    if keys.len() > 1 && !may_be_long {
        let longest = keys.iter().map(Vec::len).max().unwrap_or_default();
        let bytes = block.prefix().len() + (0..keys.len()).map(|i| block.suffix(i).len()).sum::<usize>();
        shape.bytes_max = shape.bytes_max.max(bytes.saturating_sub(longest));
    }
    match node {
        Node::Leaf(leaf) => {
            assert!(shape.depth == 0 || shape.depth == depth, "leaves at two depths");
            assert!(depth == 1 || !leaf.entries.is_empty(), "an empty leaf");
            assert_eq!(leaf.entries.len(), keys.len());
            leaf.entries.check();
            let live = leaf.entries.iter().filter(|entry| entry.is_live()).count() as u64;
            assert_eq!(live, leaf.live());
            shape.depth = depth;
            shape.leaves += 1;
            shape.keys += keys.len();
            shape.live += live;
            Count { live, keys: keys.len() as u64 }
        }
        Node::Branch(branch) => {
            assert!(!branch.children.is_empty() && branch.children.len() <= KEYS_MAX);
            assert_eq!(branch.children.len(), keys.len() + 1);
            let mut count = Count::default();
            for (i, child) in branch.children.iter().enumerate() {
                let low = if i == 0 { low } else { Some(&keys[i - 1][..]) };
                let high = keys.get(i).map_or(high, |key| Some(&key[..]));
                let under = visit(child, depth + 1, low, high, shape);
                assert_eq!(under, branch.counts()[i], "a count is wrong");
                count = count + under;
            }
            count
        }
    }
}

//! Which of many key ranges contain a key.
//!
//! A treap ordered by (start, end), each node knowing the furthest end below it, so that a search skips what ends before the key.
//! Equal ranges share a node. Priorities come from a counter that is scrambled: nobody outside can choose them.

use std::cmp::Ordering;

use bytes::Bytes;

type Link<T> = Option<Box<Node<T>>>;

/// Where a range ends: before this key, or nowhere.
pub(super) type End = Option<Bytes>;

struct Node<T> {
    start: Bytes,
    end: End,
    furthest: End,
    priority: u64,
    items: Vec<T>,
    left: Link<T>,
    right: Link<T>,
}

/// Ranges with items attached.
pub(super) struct SpanTree<T> {
    root: Link<T>,
    inserted: u64,
}

impl<T: Copy + PartialEq> SpanTree<T> {
    pub(super) fn new() -> Self {
        SpanTree { root: None, inserted: 0 }
    }

    /// Attaches `item` to `[start, end)`.
    pub(super) fn insert(&mut self, start: &Bytes, end: &End, item: T) {
        if let Some(node) = find(&mut self.root, start, end) {
            node.items.push(item);
            return;
        }
        self.inserted += 1;
        let node = Node {
            start: start.clone(),
            end: end.clone(),
            furthest: end.clone(),
            priority: scramble(self.inserted),
            items: vec![item],
            left: None,
            right: None,
        };
        self.root = Some(insert(self.root.take(), Box::new(node)));
    }

    /// Detaches `item` from `[start, end)`. False when it was not there.
    pub(super) fn remove(&mut self, start: &Bytes, end: &End, item: T) -> bool {
        let Some(node) = find(&mut self.root, start, end) else { return false };
        let Some(at) = node.items.iter().position(|other| *other == item) else { return false };
        node.items.swap_remove(at);
        if node.items.is_empty() {
            self.root = remove(self.root.take(), start, end);
        }
        true
    }

    /// Calls `found` for each item whose range contains `key`.
    pub(super) fn visit(&self, key: &[u8], found: &mut impl FnMut(T)) {
        visit(&self.root, key, found);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.root.is_none()
    }
}

impl<T> Node<T> {
    fn order(&self, start: &[u8], end: &End) -> Ordering {
        self.start[..].cmp(start).then_with(|| compare(&self.end, end))
    }

    fn refresh(&mut self) {
        let mut furthest = &self.end;
        for child in [&self.left, &self.right].into_iter().flatten() {
            if compare(&child.furthest, furthest) == Ordering::Greater {
                furthest = &child.furthest;
            }
        }
        self.furthest = furthest.clone();
    }
}

fn compare(a: &End, b: &End) -> Ordering {
    match (a, b) {
        (Some(a), Some(b)) => a.cmp(b),
        (a, b) => a.is_none().cmp(&b.is_none()),
    }
}

fn beyond(end: &End, key: &[u8]) -> bool {
    end.as_ref().is_none_or(|end| key < &end[..])
}

fn scramble(counter: u64) -> u64 {
    let mut mixed = counter.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

fn find<'a, T>(mut link: &'a mut Link<T>, start: &[u8], end: &End) -> Option<&'a mut Node<T>> {
    while let Some(node) = link {
        match node.order(start, end) {
            Ordering::Equal => return Some(node),
            Ordering::Greater => link = &mut node.left,
            Ordering::Less => link = &mut node.right,
        }
    }
    None
}

fn insert<T>(link: Link<T>, mut new: Box<Node<T>>) -> Box<Node<T>> {
    let Some(mut node) = link else { return new };
    if new.priority > node.priority {
        (new.left, new.right) = split(Some(node), &new.start, &new.end);
        new.refresh();
        return new;
    }
    match node.order(&new.start, &new.end) {
        Ordering::Greater => node.left = Some(insert(node.left.take(), new)),
        _ => node.right = Some(insert(node.right.take(), new)),
    }
    node.refresh();
    node
}

fn split<T>(link: Link<T>, start: &[u8], end: &End) -> (Link<T>, Link<T>) {
    let Some(mut node) = link else { return (None, None) };
    if node.order(start, end) == Ordering::Less {
        let (below, above) = split(node.right.take(), start, end);
        node.right = below;
        node.refresh();
        (Some(node), above)
    } else {
        let (below, above) = split(node.left.take(), start, end);
        node.left = above;
        node.refresh();
        (below, Some(node))
    }
}

fn remove<T>(link: Link<T>, start: &[u8], end: &End) -> Link<T> {
    let mut node = link?;
    match node.order(start, end) {
        Ordering::Equal => return merge(node.left.take(), node.right.take()),
        Ordering::Greater => node.left = remove(node.left.take(), start, end),
        Ordering::Less => node.right = remove(node.right.take(), start, end),
    }
    node.refresh();
    Some(node)
}

fn merge<T>(below: Link<T>, above: Link<T>) -> Link<T> {
    match (below, above) {
        (None, link) | (link, None) => link,
        (Some(mut low), Some(mut high)) => {
            if low.priority > high.priority {
                low.right = merge(low.right.take(), Some(high));
                low.refresh();
                Some(low)
            } else {
                high.left = merge(Some(low), high.left.take());
                high.refresh();
                Some(high)
            }
        }
    }
}

fn visit<T: Copy>(link: &Link<T>, key: &[u8], found: &mut impl FnMut(T)) {
    let Some(node) = link else { return };
    if !beyond(&node.furthest, key) {
        return;
    }
    visit(&node.left, key, found);
    if node.start[..] <= *key {
        if beyond(&node.end, key) {
            node.items.iter().for_each(|item| found(*item));
        }
        visit(&node.right, key, found);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn depth<T>(link: &Link<T>) -> usize {
        link.as_ref().map_or(0, |node| 1 + depth(&node.left).max(depth(&node.right)))
    }

    #[test]
    fn stays_shallow() {
        let mut tree = SpanTree::new();
        for i in 0..10_000u32 {
            let start = Bytes::from(format!("{i:08}"));
            let end = Some(Bytes::from(format!("{:08}", i + 1)));
            tree.insert(&start, &end, i);
        }
        assert!(depth(&tree.root) < 60, "depth {}", depth(&tree.root));
        let mut found = Vec::new();
        tree.visit(b"00004711x", &mut |item| found.push(item));
        assert_eq!(found, [4711]);
    }

    proptest! {
        #[test]
        fn finds_what_a_list_finds(steps in prop::collection::vec((any::<bool>(), 0u8..12, 0u8..13, 0u32..4), 0..200)) {
            let mut tree = SpanTree::new();
            let mut list: Vec<(u8, u8, u32)> = Vec::new();
            for (add, start, end, item) in steps {
                let from = Bytes::from(vec![start]);
                let to = (end < 12).then(|| Bytes::from(vec![end]));
                if add {
                    tree.insert(&from, &to, item);
                    list.push((start, end, item));
                } else {
                    let at = list.iter().position(|other| *other == (start, end, item));
                    prop_assert_eq!(tree.remove(&from, &to, item), at.is_some());
                    at.map(|at| list.swap_remove(at));
                }
                for key in 0u8..13 {
                    let mut found = Vec::new();
                    tree.visit(&[key], &mut |item| found.push(item));
                    let mut expected: Vec<u32> = list
                        .iter()
                        .filter(|(start, end, _)| *start <= key && (key < *end || *end == 12))
                        .map(|(_, _, item)| *item)
                        .collect();
                    found.sort_unstable();
                    expected.sort_unstable();
                    prop_assert_eq!(found, expected);
                }
                prop_assert_eq!(tree.is_empty(), list.is_empty());
            }
        }
    }
}

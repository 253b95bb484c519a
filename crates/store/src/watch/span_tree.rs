//! Which of many key ranges contain a key.
//!
//! An AVL tree ordered by (start, end). Each node knows which range below it ends last, so that a search skips subtrees that end before
//! the key. Equal ranges share a node. Clients choose the ranges and the order in which they come and go: the tree stays balanced for
//! every choice, and nothing recurses, so clients decide neither the depth of the stack nor the time of a step.

use std::cmp::Ordering;

use bytes::Bytes;
use slab::Slab;

use super::items::Items;

/// Where a range ends: before this key, or nowhere.
pub(super) type End = Option<Bytes>;

/// Names a node; `NONE` names none.
type Link = u32;

const NONE: Link = u32::MAX;

/// No AVL tree of `u32::MAX` nodes is higher: one of height h has at least Fibonacci(h + 3) - 1.
const HEIGHT_MAX: usize = 46;

struct Node<T> {
    start: Bytes,
    end: End,
    items: Items<T>,
    left: Link,
    right: Link,
    /// The node in this subtree whose range ends last.
    furthest: Link,
    height: u8,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Side {
    Left,
    Right,
}

/// Nodes from the root down, each with the side on which the path continues.
type Path = Vec<(Link, Side)>;

/// Ranges with items attached.
pub(super) struct SpanTree<T> {
    nodes: Slab<Node<T>>,
    root: Link,
}

impl<T: Copy + Ord> SpanTree<T> {
    pub(super) fn new() -> Self {
        SpanTree { nodes: Slab::new(), root: NONE }
    }

    /// Attaches `item` to `[start, end)`.
    pub(super) fn insert(&mut self, start: &Bytes, end: &End, item: T) {
        let (found, path) = self.find(start, end);
        if let Some(node) = self.get_mut(found) {
            return node.items.insert(item);
        }
        let node = Node {
            start: start.clone(),
            end: end.clone(),
            items: Items::one(item),
            left: NONE,
            right: NONE,
            furthest: NONE,
            height: 0,
        };
        let Ok(link) = Link::try_from(self.nodes.insert(node)) else { unreachable!("fewer ranges than u32::MAX") };
        self.refresh(link);
        self.hang(path.last(), link);
        self.mend(path);
    }

    /// Detaches `item` from `[start, end)`. False when it was not there.
    pub(super) fn remove(&mut self, start: &Bytes, end: &End, item: T) -> bool {
        let (found, path) = self.find(start, end);
        let Some(node) = self.get_mut(found) else { return false };
        if !node.items.remove(item) {
            return false;
        }
        if node.items.is_empty() {
            self.take_out(found, path);
        }
        true
    }

    /// Calls `found` for each item whose range contains `key`. Looks at the ways from the root to those ranges and at one more:
    /// at most (found ranges + 1) x height nodes, and never at one twice.
    pub(super) fn visit(&self, key: &[u8], found: &mut impl FnMut(T)) {
        // What is still to be visited: of each level at most one.
        let mut waiting = [NONE; HEIGHT_MAX];
        let mut count = 0usize;
        let mut link = self.root;
        loop {
            let next = match self.get(link) {
                Some(node) if self.reaches_beyond(node.furthest, key) => {
                    if node.start[..] <= *key {
                        if is_beyond(&node.end, key) {
                            node.items.for_each(&mut *found);
                        }
                        if node.right != NONE {
                            let Some(slot) = waiting.get_mut(count) else { unreachable!("the tree is balanced") };
                            *slot = node.right;
                            count = count.saturating_add(1);
                        }
                    }
                    node.left
                }
                _ => NONE,
            };
            link = match next {
                NONE => {
                    let Some(last) = count.checked_sub(1) else { return };
                    count = last;
                    waiting.get(last).copied().unwrap_or(NONE)
                }
                next => next,
            };
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    fn get(&self, link: Link) -> Option<&Node<T>> {
        self.nodes.get(link as usize)
    }

    fn get_mut(&mut self, link: Link) -> Option<&mut Node<T>> {
        self.nodes.get_mut(link as usize)
    }

    /// The node of a range, `NONE` if there is none yet, and the way to where it is or would be.
    fn find(&self, start: &[u8], end: &End) -> (Link, Path) {
        let mut path = Path::new();
        let mut link = self.root;
        while let Some(node) = self.get(link) {
            let side = match node.order(start, end) {
                Ordering::Equal => break,
                Ordering::Greater => Side::Left,
                Ordering::Less => Side::Right,
            };
            path.push((link, side));
            link = node.child(side);
        }
        (link, path)
    }

    /// Puts a subtree where a way ends.
    fn hang(&mut self, place: Option<&(Link, Side)>, link: Link) {
        match place {
            None => self.root = link,
            Some((parent, side)) => {
                if let Some(parent) = self.get_mut(*parent) {
                    *parent.child_mut(*side) = link;
                }
            }
        }
    }

    /// Removes the node at the end of `path`.
    fn take_out(&mut self, link: Link, mut path: Path) {
        let Some(node) = self.nodes.try_remove(link as usize) else { return };
        if node.left == NONE || node.right == NONE {
            let rest = if node.left == NONE { node.right } else { node.left };
            self.hang(path.last(), rest);
            return self.mend(path);
        }
        // The next range in order takes its place.
        let place = path.len();
        path.push((link, Side::Right));
        let mut next = node.right;
        while let Some(left) = self.get(next).map(|node| node.left).filter(|left| *left != NONE) {
            path.push((next, Side::Left));
            next = left;
        }
        let behind = self.get(next).map_or(NONE, |next| next.right);
        if node.right != next {
            self.hang(path.last(), behind);
        }
        if let Some(taken) = self.get_mut(next) {
            taken.left = node.left;
            taken.right = if node.right == next { behind } else { node.right };
        }
        if let Some(step) = path.get_mut(place) {
            step.0 = next;
        }
        self.hang(place.checked_sub(1).and_then(|above| path.get(above)), next);
        self.mend(path);
    }

    /// Restores heights, balance and furthest ends along a way, from its end up to the root.
    fn mend(&mut self, mut path: Path) {
        while let Some((link, _)) = path.pop() {
            self.refresh(link);
            let top = match self.lean(link) {
                2 => self.lift(link, Side::Left),
                -2 => self.lift(link, Side::Right),
                _ => link,
            };
            if top != link {
                self.hang(path.last(), top);
            }
        }
    }

    /// Brings up the child on the side that is two higher. Returns the subtree's new top.
    fn lift(&mut self, link: Link, side: Side) -> Link {
        let child = self.get(link).map_or(NONE, |node| node.child(side));
        let leans_inwards = match side {
            Side::Left => self.lean(child) < 0,
            Side::Right => self.lean(child) > 0,
        };
        if leans_inwards {
            let top = self.rotate(child, side.other());
            if let Some(node) = self.get_mut(link) {
                *node.child_mut(side) = top;
            }
        }
        self.rotate(link, side)
    }

    /// Puts the child on `side` into the place of `link`, which becomes its child on the other side. Returns the former child.
    fn rotate(&mut self, link: Link, side: Side) -> Link {
        let child = self.get(link).map_or(NONE, |node| node.child(side));
        let between = self.get(child).map_or(NONE, |child| child.child(side.other()));
        if let Some(node) = self.get_mut(link) {
            *node.child_mut(side) = between;
        }
        if let Some(child) = self.get_mut(child) {
            *child.child_mut(side.other()) = link;
        }
        self.refresh(link);
        self.refresh(child);
        child
    }

    /// By how much the left side is higher than the right one.
    fn lean(&self, link: Link) -> i16 {
        self.get(link)
            .map_or(0, |node| i16::from(self.height(node.left)).saturating_sub(self.height(node.right).into()))
    }

    fn height(&self, link: Link) -> u8 {
        self.get(link).map_or(0, |node| node.height)
    }

    /// Works out again what a node knows of the subtree below it.
    fn refresh(&mut self, link: Link) {
        let Some(node) = self.get(link) else { return };
        let height = self.height(node.left).max(self.height(node.right)).saturating_add(1);
        let (mut furthest, mut end) = (link, &node.end);
        for child in [node.left, node.right] {
            let candidate = self.get(child).map_or(NONE, |child| child.furthest);
            if let Some(other) = self.get(candidate)
                && compare(&other.end, end) == Ordering::Greater
            {
                (furthest, end) = (candidate, &other.end);
            }
        }
        if let Some(node) = self.get_mut(link) {
            (node.height, node.furthest) = (height, furthest);
        }
    }

    fn reaches_beyond(&self, link: Link, key: &[u8]) -> bool {
        self.get(link).is_some_and(|node| is_beyond(&node.end, key))
    }
}

impl<T> Node<T> {
    fn order(&self, start: &[u8], end: &End) -> Ordering {
        self.start[..].cmp(start).then_with(|| compare(&self.end, end))
    }

    fn child(&self, side: Side) -> Link {
        match side {
            Side::Left => self.left,
            Side::Right => self.right,
        }
    }

    fn child_mut(&mut self, side: Side) -> &mut Link {
        match side {
            Side::Left => &mut self.left,
            Side::Right => &mut self.right,
        }
    }
}

impl Side {
    fn other(self) -> Side {
        match self {
            Side::Left => Side::Right,
            Side::Right => Side::Left,
        }
    }
}

fn compare(a: &End, b: &End) -> Ordering {
    match (a, b) {
        (Some(a), Some(b)) => a.cmp(b),
        (a, b) => a.is_none().cmp(&b.is_none()),
    }
}

fn is_beyond(end: &End, key: &[u8]) -> bool {
    end.as_ref().is_none_or(|end| key < &end[..])
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Asserts what an AVL tree is, without recursing itself. Returns the height.
    fn check(tree: &SpanTree<u32>) -> usize {
        let mut seen = 0;
        let mut ways = vec![tree.root];
        while let Some(link) = ways.pop() {
            let Some(node) = tree.get(link) else { continue };
            seen += 1;
            assert!(tree.lean(link).abs() <= 1);
            assert_eq!(node.height, 1 + tree.height(node.left).max(tree.height(node.right)));
            let mut furthest = &node.end;
            for (child, order) in [(node.left, Ordering::Less), (node.right, Ordering::Greater)] {
                let Some(below) = tree.get(child) else { continue };
                assert_eq!(below.order(&node.start, &node.end), order);
                let end = &tree.get(below.furthest).unwrap().end;
                if compare(end, furthest) == Ordering::Greater {
                    furthest = end;
                }
                ways.push(child);
            }
            assert_eq!(&tree.get(node.furthest).unwrap().end, furthest);
        }
        assert_eq!(seen, tree.nodes.len());
        usize::from(tree.height(tree.root))
    }

    fn found(tree: &SpanTree<u32>, key: &[u8]) -> Vec<u32> {
        let mut found = Vec::new();
        tree.visit(key, &mut |item| found.push(item));
        found.sort_unstable();
        found
    }

    /// Runs `test` on a thread with a stack on which recursion by range would end.
    #[allow(clippy::disallowed_methods, reason = "the stack of a thread is what is tested")]
    fn on_a_small_stack(test: impl FnOnce() + Send + 'static) {
        let thread = std::thread::Builder::new().stack_size(64 << 10).spawn(test).unwrap();
        thread.join().unwrap();
    }

    /// What scrambled the priorities of this tree when it was a treap: starts in this order made it a chain.
    fn scramble(counter: u64) -> u64 {
        let mut mixed = counter.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    #[test]
    fn no_order_of_ranges_makes_it_deep() {
        type Start = fn(u64) -> u64;
        let orders: [(Start, u64); 3] = [(scramble, 40_000), (|i| i, 100_000), (|i| u64::MAX - i, 100_000)];
        for (start, count) in orders {
            on_a_small_stack(move || {
                let mut tree = SpanTree::new();
                let range = |i| Bytes::copy_from_slice(&[&b"p/"[..], &start(i).to_be_bytes()].concat());
                let end = Some(Bytes::from_static(b"p0"));
                for i in 1..=count {
                    tree.insert(&range(i), &end, i as u32);
                }
                // 1.44 log2(100,000) is 23.9.
                assert!(check(&tree) <= 24);
                assert_eq!(found(&tree, &[&b"p/"[..], &[0xff; 9]].concat()).len(), count as usize);
                for i in 1..=count / 2 {
                    assert!(tree.remove(&range(i), &end, i as u32));
                }
                assert!(check(&tree) <= 24);
                // The rest is dropped as a whole.
            });
        }
    }

    #[test]
    fn a_million_ranges() {
        on_a_small_stack(|| {
            let mut tree = SpanTree::new();
            let key = |i: u32| Bytes::copy_from_slice(&i.to_be_bytes());
            for i in 0..1_000_000 {
                tree.insert(&key(i), &Some(key(i + 1)), i);
            }
            assert!(check(&tree) <= 29);
            for at in [0, 1, 4711, 999_999] {
                assert_eq!(found(&tree, &key(at)), [at]);
            }
            assert!(found(&tree, &key(1_000_000)).is_empty());
        });
    }

    #[test]
    fn many_items_of_one_range_come_and_go() {
        let mut tree = SpanTree::new();
        let (start, end) = (Bytes::from_static(b"a"), Some(Bytes::from_static(b"b")));
        (0..100_000).for_each(|item| tree.insert(&start, &end, item));
        assert_eq!(found(&tree, b"a").len(), 100_000);
        assert!((0..100_000).all(|item| tree.remove(&start, &end, item)));
        assert!(tree.is_empty() && !tree.remove(&start, &end, 7));
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
                    if list.contains(&(start, end, item)) {
                        continue;
                    }
                    tree.insert(&from, &to, item);
                    list.push((start, end, item));
                } else {
                    let at = list.iter().position(|other| *other == (start, end, item));
                    prop_assert_eq!(tree.remove(&from, &to, item), at.is_some());
                    at.map(|at| list.swap_remove(at));
                }
                check(&tree);
                for key in 0u8..13 {
                    let mut expected: Vec<u32> = list
                        .iter()
                        .filter(|(start, end, _)| *start <= key && (key < *end || *end == 12))
                        .map(|(_, _, item)| *item)
                        .collect();
                    expected.sort_unstable();
                    prop_assert_eq!(found(&tree, &[key]), expected);
                }
                prop_assert_eq!(tree.is_empty(), list.is_empty());
            }
        }
    }
}

//! Which interests a changed key touches.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use bytes::Bytes;

use super::items::Items;
use super::span_tree::SpanTree;
use super::spec::{Reach, Spec};

/// Items by the keys they want: a hash table for single keys, a tree for ranges.
pub(super) struct Matcher<T> {
    keys: HashMap<Bytes, Items<T>>,
    spans: SpanTree<T>,
}

impl<T: Copy + Ord> Matcher<T> {
    pub(super) fn new() -> Self {
        Matcher { keys: HashMap::new(), spans: SpanTree::new() }
    }

    /// Adds `item` under the keys of `spec`.
    pub(super) fn insert(&mut self, spec: &Spec, item: T) {
        match &spec.reach {
            Reach::One => match self.keys.entry(spec.key.clone()) {
                Entry::Occupied(mut items) => items.get_mut().insert(item),
                Entry::Vacant(vacant) => {
                    vacant.insert(Items::one(item));
                }
            },
            Reach::Until(end) => self.spans.insert(&spec.key, &Some(end.clone()), item),
            Reach::Unbounded => self.spans.insert(&spec.key, &None, item),
        }
    }

    /// Removes what [`Matcher::insert`] added.
    pub(super) fn remove(&mut self, spec: &Spec, item: T) {
        let found = match &spec.reach {
            Reach::One => self.remove_key(&spec.key, item),
            Reach::Until(end) => self.spans.remove(&spec.key, &Some(end.clone()), item),
            Reach::Unbounded => self.spans.remove(&spec.key, &None, item),
        };
        assert!(found, "an interest is removed once, by those who added it");
    }

    fn remove_key(&mut self, key: &Bytes, item: T) -> bool {
        let Some(items) = self.keys.get_mut(key) else { return false };
        if !items.remove(item) {
            return false;
        }
        if items.is_empty() {
            self.keys.remove(key);
        }
        true
    }

    /// Calls `found` for each item that wants `key`.
    pub(super) fn visit(&self, key: &[u8], mut found: impl FnMut(T)) {
        if !self.keys.is_empty()
            && let Some(items) = self.keys.get(key)
        {
            items.for_each(&mut found);
        }
        if !self.spans.is_empty() {
            self.spans.visit(key, &mut found);
        }
    }
}

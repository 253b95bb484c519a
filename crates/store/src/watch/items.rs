//! The items of one key or one range.

use std::collections::BTreeSet;

/// More items than this are kept in order: removing one must not look at all of them.
const UNSORTED_ITEMS_MAX: usize = 32;

/// A set of items, small where there are few. The caller adds an item once.
pub(super) enum Items<T> {
    Few(Vec<T>),
    Many(BTreeSet<T>),
}

impl<T: Copy + Ord> Items<T> {
    pub(super) fn one(item: T) -> Self {
        Items::Few(vec![item])
    }

    pub(super) fn insert(&mut self, item: T) {
        match self {
            Items::Few(items) if items.len() >= UNSORTED_ITEMS_MAX => {
                let mut many: BTreeSet<T> = items.drain(..).collect();
                many.insert(item);
                *self = Items::Many(many);
            }
            Items::Few(items) => items.push(item),
            Items::Many(items) => {
                items.insert(item);
            }
        }
    }

    /// Takes an item out. False when it was not there.
    pub(super) fn remove(&mut self, item: T) -> bool {
        match self {
            Items::Few(items) => {
                let Some(at) = items.iter().position(|other| *other == item) else { return false };
                items.swap_remove(at);
                true
            }
            Items::Many(items) => items.remove(&item),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        match self {
            Items::Few(items) => items.is_empty(),
            Items::Many(items) => items.is_empty(),
        }
    }

    pub(super) fn for_each(&self, mut found: impl FnMut(T)) {
        match self {
            Items::Few(items) => items.iter().for_each(|item| found(*item)),
            Items::Many(items) => items.iter().for_each(|item| found(*item)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_and_many() {
        let mut items = Items::one(0);
        (1..1000).for_each(|item| items.insert(item));
        assert!((0..1000).step_by(2).all(|item| items.remove(item)));
        assert!(!items.remove(2) && !items.remove(1000) && !items.is_empty());
        let mut found = Vec::new();
        items.for_each(|item| found.push(item));
        found.sort_unstable();
        assert!(found.iter().copied().eq((1..1000).step_by(2)));
        assert!(found.into_iter().all(|item| items.remove(item)));
        assert!(items.is_empty());
    }
}

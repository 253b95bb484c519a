//! The watches that a feed has, by what they want of its events.

use api::mvccpb::Event;
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use super::picked::Picked;
use super::{ClientId, Subject, WatchId};

/// Ranges that are parts of a feed's: each is looked at for each event.
const PARTS_MAX: usize = 64;

/// Watches that want the same of some events.
#[derive(Debug)]
pub(crate) struct Share {
    /// What they want of them; none for all.
    pub(crate) events: Option<Arc<Picked>>,
    pub(crate) ids: Vec<Id>,
}

/// A watch of a client.
pub(crate) type Id = (ClientId, WatchId);

/// Watches of all that a feed has, and of parts of it.
#[derive(Debug, Default)]
pub(crate) struct Audience {
    all: BTreeSet<Id>,
    whole: BTreeSet<Id>,
    /// Those of one key.
    keys: HashMap<Bytes, BTreeSet<Id>>,
    /// Those of a range, by its ends.
    parts: BTreeMap<(Bytes, Bytes), BTreeSet<Id>>,
}

impl Audience {
    /// Whether a feed about `of`, which has all of `subject`, can take on the watches of a feed about that, which `joining` has.
    pub(crate) fn has_room(&self, of: &Subject, subject: &Subject, joining: &Audience) -> bool {
        let own = (subject.key.clone(), subject.range_end.clone());
        let is_part = of != subject && !subject.range_end.is_empty();
        let parts = joining.parts.keys().chain(is_part.then_some(&own));
        let new = parts.filter(|part| !self.parts.contains_key(*part)).count();
        new == 0 || self.parts.len().saturating_add(new) <= PARTS_MAX
    }

    /// Takes on a watch about `subject`, of a feed about `of`.
    pub(crate) fn add(&mut self, of: &Subject, subject: &Subject, id: Id) {
        self.all.insert(id);
        if of == subject {
            self.whole.insert(id);
        } else if subject.range_end.is_empty() {
            self.keys.entry(subject.key.clone()).or_default().insert(id);
        } else {
            self.parts.entry((subject.key.clone(), subject.range_end.clone())).or_default().insert(id);
        }
    }

    /// Takes off a watch about `subject`.
    pub(crate) fn remove(&mut self, subject: &Subject, id: Id) {
        self.all.remove(&id);
        if self.whole.remove(&id) {
            return;
        }
        if let Some(of_key) = self.keys.get_mut(&subject.key) {
            of_key.remove(&id);
            if of_key.is_empty() {
                self.keys.remove(&subject.key);
            }
        }
        let ends = (subject.key.clone(), subject.range_end.clone());
        if let Some(of_part) = self.parts.get_mut(&ends) {
            of_part.remove(&id);
            if of_part.is_empty() {
                self.parts.remove(&ends);
            }
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.all.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Whether all want only a part of what the feed has.
    pub(crate) fn is_partial(&self) -> bool {
        self.whole.is_empty() && !self.all.is_empty()
    }

    pub(crate) fn ids(&self) -> Vec<Id> {
        self.all.iter().copied().collect()
    }

    /// Some of them, the last of which are those that want all: as long as one of these is left, nobody lacks anything.
    pub(crate) fn some(&self, count: usize) -> Vec<Id> {
        let partial = self.keys.values().chain(self.parts.values()).flatten();
        partial.chain(&self.whole).take(count).copied().collect()
    }

    /// Those that may want one of these events, and what of them those want that do not want all: each event is looked at once for each
    /// range, not for each watch.
    pub(crate) fn of_events(&self, events: &[Event]) -> Vec<Share> {
        let whole = || self.whole.iter().copied().collect();
        let mut shares: Vec<Share> =
            (!self.whole.is_empty()).then(|| Share { events: None, ids: whole() }).into_iter().collect();
        if self.keys.is_empty() && self.parts.is_empty() {
            return shares;
        }
        let mut share = |events: Picked, ids: &BTreeSet<Id>| {
            if events.len() > 0 {
                shares.push(Share { events: Some(Arc::new(events)), ids: ids.iter().copied().collect() });
            }
        };
        let mut of_keys: BTreeMap<&Bytes, Picked> = BTreeMap::new();
        for (place, event) in events.iter().enumerate() {
            let Some(kv) = &event.kv else { continue };
            if self.keys.contains_key(&kv.key) {
                of_keys.entry(&kv.key).or_default().add(place, event);
            }
        }
        for (key, events) in of_keys {
            if let Some(ids) = self.keys.get(key) {
                share(events, ids);
            }
        }
        for ((from, end), ids) in &self.parts {
            let is_inside =
                |event: &Event| event.kv.as_ref().is_some_and(|kv| kv.key >= *from && is_before(&kv.key, end));
            share(Picked::of(events, is_inside), ids);
        }
        shares
    }
}

/// Whether a key is before the end of a range, which may be that of all keys.
fn is_before(key: &[u8], range_end: &[u8]) -> bool {
    range_end == b"\0" || key < range_end
}

impl Subject {
    /// Whether a key is among its keys.
    pub(crate) fn has(&self, key: &[u8]) -> bool {
        if self.range_end.is_empty() { key == self.key } else { key >= self.key && is_before(key, &self.range_end) }
    }

    /// Whether it has everything that `other` has.
    pub(crate) fn contains(&self, other: &Subject) -> bool {
        let is_alike = self.prev_kv == other.prev_kv && self.no_events == other.no_events;
        if !is_alike || !self.has(&other.key) {
            return false;
        }
        match (&*self.range_end, &*other.range_end) {
            (_, []) | (b"\0", _) => true,
            ([], _) | (_, b"\0") => false,
            // An empty range is in every other one that has its beginning.
            (own, end) => end <= own,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use api::mvccpb::KeyValue;

    fn subject(key: &str, range_end: &str) -> Subject {
        Subject {
            key: key.to_string().into(),
            range_end: range_end.to_string().into(),
            prev_kv: false,
            no_events: false,
        }
    }

    #[test]
    fn what_contains_what() {
        for (wide, narrow, wanted) in [
            (("a", "b"), ("a", "b"), true),
            (("a", "b"), ("aa", ""), true),
            (("a", "b"), ("aa", "ab"), true),
            (("a", "b"), ("aa", "b"), true),
            (("a", "b"), ("b", ""), false),
            (("a", "b"), ("aa", "c"), false),
            (("a", "b"), ("aa", "\0"), false),
            (("a", "\0"), ("aa", "\0"), true),
            (("a", "\0"), ("b", "c"), true),
            (("b", "\0"), ("a", ""), false),
            (("a", ""), ("a", ""), true),
            (("a", ""), ("a", "b"), false),
        ] {
            let contains = subject(wide.0, wide.1).contains(&subject(narrow.0, narrow.1));
            assert_eq!(contains, wanted, "{wide:?} {narrow:?}");
        }
        let with_before = Subject { prev_kv: true, ..subject("a", "b") };
        assert!(!with_before.contains(&subject("a", "b")));
    }

    #[test]
    fn events_find_those_who_want_them() {
        let (of, mut audience) = (subject("a", "z"), Audience::default());
        for (number, (key, end)) in
            [("a", "z"), ("b", ""), ("b", "c"), ("c", "\0"), ("ba", "y")].into_iter().enumerate()
        {
            audience.add(&of, &subject(key, end), (1, number as i64));
        }
        let wanting = |audience: &Audience, key: &str| {
            let kv = Some(KeyValue { key: key.to_string().into(), ..KeyValue::default() });
            let shares = audience.of_events(&[Event { kv, ..Event::default() }]);
            assert!(shares.iter().all(|share| share.events.as_ref().is_none_or(|events| events.len() == 1)));
            shares.into_iter().flat_map(|share| share.ids).map(|(_, watch)| watch).collect::<Vec<_>>()
        };
        assert_eq!(wanting(&audience, "aa"), [0]);
        assert_eq!(wanting(&audience, "b"), [0, 1, 2]);
        assert_eq!(wanting(&audience, "bb"), [0, 2, 4]);
        assert_eq!(wanting(&audience, "yy"), [0, 3]);
        assert!(!audience.is_partial());
        audience.remove(&of, (1, 0));
        assert!(audience.is_partial());
        for (number, (key, end)) in [("b", ""), ("b", "c"), ("c", "\0"), ("ba", "y")].into_iter().enumerate() {
            audience.remove(&subject(key, end), (1, number as i64 + 1));
        }
        assert!(audience.is_empty() && audience.keys.is_empty() && audience.parts.is_empty());
        (0..PARTS_MAX)
            .for_each(|number| audience.add(&of, &subject("b", &format!("c{number:03}")), (2, number as i64)));
        let has_room = |subject: &Subject| audience.has_room(&of, subject, &Audience::default());
        assert!(!has_room(&subject("b", "d")) && has_room(&subject("b", "")));
        assert!(has_room(&of) && has_room(&subject("b", "c000")));
    }
}

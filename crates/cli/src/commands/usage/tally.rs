//! Sums of keys by their prefixes, in bounded memory.

use super::GROUPS_MAX;
use api::mvccpb::KeyValue;
use bytes::Bytes;
use std::collections::BTreeMap;

/// What all keys of one level take.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Group {
    pub(super) keys: u64,
    pub(super) key_bytes: u64,
    /// Values whose length is known, and their bytes.
    pub(super) values: u64,
    pub(super) value_bytes: u64,
    /// Older versions that are not compacted, at most; and the bytes of their keys, and of their values as far as those are known.
    pub(super) history: u64,
    history_key_bytes: u64,
    history_value_bytes: u64,
    /// The lowest revision at which one of the keys was written last.
    pub(super) oldest: i64,
}

/// A key that stands out, by `weight`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Outstanding {
    pub(super) key: Bytes,
    pub(super) weight: u64,
}

pub(super) struct Tally {
    pub(super) prefix: Bytes,
    separator: Bytes,
    depth: usize,
    pub(super) top: usize,
    pub(super) compacted: Option<i64>,
    pub(super) groups: BTreeMap<Bytes, Group>,
    /// Levels beyond the bound.
    pub(super) others: Group,
    pub(super) largest: Vec<Outstanding>,
    pub(super) most_written: Vec<Outstanding>,
    pub(super) oldest: Vec<Outstanding>,
}

impl Tally {
    pub(super) fn new(prefix: Bytes, separator: Bytes, depth: usize, top: usize, compacted: Option<i64>) -> Tally {
        Tally {
            prefix,
            separator,
            depth,
            top,
            compacted,
            groups: BTreeMap::new(),
            others: Group::default(),
            largest: Vec::new(),
            most_written: Vec::new(),
            oldest: Vec::new(),
        }
    }

    /// Counts a key; of its value the length, if that was read.
    pub(super) fn key(&mut self, kv: &KeyValue, value: Option<usize>) {
        let history = self.history(kv);
        self.group_of(&kv.key).add(kv, history);
        // The present version is not history.
        let written = kv.version.max(0).unsigned_abs();
        keep(&mut self.most_written, self.top, &kv.key, written);
        keep(&mut self.oldest, self.top, &kv.key, u64::MAX - kv.mod_revision.max(0).unsigned_abs());
        if let Some(length) = value {
            self.value(&kv.key, length);
            self.group_of(&kv.key).history_value_bytes += history * length as u64;
        }
    }

    /// Counts the length of a key's value.
    pub(super) fn value(&mut self, key: &Bytes, length: usize) {
        let group = self.group_of(key);
        group.values += 1;
        group.value_bytes += length as u64;
        keep(&mut self.largest, self.top, key, (key.len() + length) as u64);
    }

    /// Whether nothing is known yet of values like this key's.
    pub(super) fn wants_value(&self, key: &[u8]) -> bool {
        self.groups.get(self.level(key)).is_some_and(|group| group.values == 0)
    }

    /// How many older versions of a key are kept at most: it was written so often since it was created, and no two at one revision
    /// count twice. Of what was compacted only the newest version is left.
    fn history(&self, kv: &KeyValue) -> u64 {
        let since = self.compacted.unwrap_or(0).max(kv.create_revision);
        let writes = kv.version.min(kv.mod_revision.saturating_sub(since).saturating_add(1));
        writes.saturating_sub(1).max(0).unsigned_abs()
    }

    fn group_of(&mut self, key: &Bytes) -> &mut Group {
        let level = key.slice_ref(self.level(key));
        if self.groups.len() >= GROUPS_MAX && !self.groups.contains_key(&level) {
            return &mut self.others;
        }
        // A copy: the page that the key came with is not kept for it.
        self.groups.entry(Bytes::copy_from_slice(&level)).or_default()
    }

    /// The prefix and as many levels below it as are told apart; the rest of a key that has no more is its own.
    fn level<'a>(&self, key: &'a [u8]) -> &'a [u8] {
        let mut end = self.prefix.len().min(key.len());
        let (begin, mut levels) = (end, 0);
        while levels < self.depth {
            let Some(rest) = key.get(end..) else { break };
            // A separator at the beginning ends no level.
            levels += usize::from(end > begin || !rest.starts_with(&self.separator));
            match rest.windows(self.separator.len()).position(|part| part == self.separator) {
                Some(place) => end += place + self.separator.len(),
                None => break,
            }
        }
        &key[..end]
    }

    /// All keys together.
    pub(super) fn total(&self) -> Sum {
        Sum::of(self.groups.values().chain([&self.others]))
    }

    /// The levels that take most.
    pub(super) fn heaviest(&self) -> Vec<(&Bytes, &Group)> {
        let mut all: Vec<(&Bytes, &Group)> = self.groups.iter().collect();
        all.sort_by_key(|(_, group)| std::cmp::Reverse(group.live_bytes() + group.history_bytes()));
        all
    }
}

impl Group {
    fn add(&mut self, kv: &KeyValue, history: u64) {
        self.oldest = if self.keys == 0 { kv.mod_revision } else { self.oldest.min(kv.mod_revision) };
        self.keys += 1;
        self.key_bytes += kv.key.len() as u64;
        self.history += history;
        self.history_key_bytes += history * kv.key.len() as u64;
    }

    fn values_of(&self, count: u64) -> u64 {
        match self.values {
            0 => 0,
            values => (u128::from(self.value_bytes) * u128::from(count) / u128::from(values)) as u64,
        }
    }

    /// Keys and values as they are.
    pub(super) fn live_bytes(&self) -> u64 {
        self.key_bytes + self.values_of(self.keys)
    }

    /// Older versions, as if they were as large as the present one.
    pub(super) fn history_bytes(&self) -> u64 {
        let values = if self.history_value_bytes > 0 { self.history_value_bytes } else { self.values_of(self.history) };
        self.history_key_bytes + values
    }
}

/// Figures of one level or of several, each estimated by its own values.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Sum {
    pub(super) keys: u64,
    pub(super) key_bytes: u64,
    pub(super) values: u64,
    pub(super) live_bytes: u64,
    pub(super) history: u64,
    pub(super) history_bytes: u64,
    pub(super) oldest: i64,
}

impl Sum {
    pub(super) fn of<'a>(groups: impl IntoIterator<Item = &'a Group>) -> Sum {
        let mut sum = Sum::default();
        for group in groups.into_iter().filter(|group| group.keys > 0) {
            sum.oldest = if sum.keys == 0 { group.oldest } else { sum.oldest.min(group.oldest) };
            sum.keys += group.keys;
            sum.key_bytes += group.key_bytes;
            sum.values += group.values;
            sum.live_bytes += group.live_bytes();
            sum.history += group.history;
            sum.history_bytes += group.history_bytes();
        }
        sum
    }

    /// Whether the length of every value is known.
    pub(super) fn is_exact(&self) -> bool {
        self.values == self.keys
    }
}

/// Keeps the `top` heaviest.
fn keep(list: &mut Vec<Outstanding>, top: usize, key: &Bytes, weight: u64) {
    if list.len() >= top && list.last().is_none_or(|last| last.weight >= weight) {
        return;
    }
    let place = list.partition_point(|one| one.weight >= weight);
    list.insert(place, Outstanding { key: Bytes::copy_from_slice(key), weight });
    list.truncate(top);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kv(key: &str, created: i64, written: i64, version: i64) -> KeyValue {
        KeyValue {
            key: Bytes::copy_from_slice(key.as_bytes()),
            create_revision: created,
            mod_revision: written,
            version,
            ..KeyValue::default()
        }
    }

    fn tally(prefix: &'static str, depth: usize, compacted: Option<i64>) -> Tally {
        Tally::new(Bytes::from_static(prefix.as_bytes()), Bytes::from_static(b"/"), depth, 2, compacted)
    }

    #[test]
    fn keys_are_put_together_by_level() {
        let mut tally = tally("/r/", 1, None);
        for key in ["/r/pods/a", "/r/pods/b", "/r/leases/x/y", "/r/alone"] {
            tally.key(&kv(key, 1, 1, 1), None);
        }
        let found: Vec<_> = tally.groups.iter().map(|(level, group)| (&level[..], group.keys)).collect();
        assert_eq!(found, [(&b"/r/"[..], 1), (b"/r/leases/", 1), (b"/r/pods/", 2)]);
        assert_eq!((tally.total().keys, tally.total().key_bytes), (4, 9 + 9 + 13 + 8));
        assert_eq!(tally.level(b"/r//a/b"), b"/r//a/", "a separator at the beginning ends no level");
        assert_eq!(tally.level(b"/r"), b"/r");
        assert!(tally.wants_value(b"/r/pods/z"));
        tally.value(&Bytes::from_static(b"/r/pods/a"), 91);
        assert!(!tally.wants_value(b"/r/pods/z"));
        assert_eq!(tally.groups[&b"/r/pods/"[..]].live_bytes(), 18 + 182);
        assert_eq!(tally.largest, [Outstanding { key: Bytes::from_static(b"/r/pods/a"), weight: 100 }]);
    }

    #[test]
    fn history_is_no_more_than_there_can_be() {
        let of = |compacted, kv: &KeyValue| tally("", 0, compacted).history(kv);
        assert_eq!(of(None, &kv("a", 5, 5, 1)), 0);
        assert_eq!(of(None, &kv("a", 5, 100, 40)), 39);
        assert_eq!(of(Some(90), &kv("a", 5, 100, 40)), 10, "ten revisions after the compaction, and the one before it");
        assert_eq!(of(Some(100), &kv("a", 5, 100, 40)), 0);
        assert_eq!(of(Some(500), &kv("a", 5, 100, 40)), 0);
        assert_eq!(of(Some(i64::MAX), &kv("a", i64::MIN, i64::MIN, i64::MIN)), 0, "a member may say anything");
        let mut tally = tally("", 0, None);
        tally.key(&kv("ab", 1, 9, 4), Some(8));
        let total = tally.total();
        assert_eq!((total.live_bytes, total.history_bytes, total.is_exact()), (10, 30, true));
    }

    #[test]
    fn memory_is_bounded() {
        let mut tally = tally("", 1, None);
        for number in 0..GROUPS_MAX + 5 {
            tally.key(&kv(&format!("{number:06}/x"), 1, 1, number as i64), None);
        }
        assert_eq!((tally.groups.len(), tally.others.keys), (GROUPS_MAX, 5));
        assert_eq!(tally.most_written.iter().map(|one| one.weight).collect::<Vec<_>>(), [10_004, 10_003]);
        assert_eq!(tally.oldest.len(), 2);
    }
}

//! The dynamic table: header fields that both ends of a connection remember (RFC 7541 section 2.3.2).

use std::collections::VecDeque;

use super::FIELD_OVERHEAD_BYTES;

/// A table of fields, newest first, that forgets the oldest ones to keep below its maximum size.
///
/// The bytes of all entries lie in one buffer, each entry in one piece, in the order of their insertion; what is forgotten is
/// a gap at the front, which is closed when it has become as large as the rest. So nothing is allocated for an entry once
/// the buffer has its size, which is at most a few times the maximum.
pub(super) struct DynamicTable {
    bytes: Vec<u8>,
    /// How many bytes at the front of `bytes` belong to no entry any more.
    gap: usize,
    /// Where `bytes` begins among all bytes there have ever been.
    base: u64,
    /// Oldest first.
    entries: VecDeque<Entry>,
    /// What the entries count for together.
    size_bytes: usize,
    size_bytes_max: usize,
    generation: u64,
}

struct Entry {
    /// Where it begins among all bytes there have ever been.
    at: u64,
    name_bytes: usize,
    value_bytes: usize,
}

impl DynamicTable {
    pub(super) fn new(size_bytes_max: usize) -> DynamicTable {
        DynamicTable {
            bytes: Vec::new(),
            gap: 0,
            base: 0,
            entries: VecDeque::new(),
            size_bytes: 0,
            size_bytes_max,
            generation: 0,
        }
    }

    /// Grows with every change of the table.
    pub(super) fn generation(&self) -> u64 {
        self.generation
    }

    pub(super) fn size_bytes_max(&self) -> usize {
        self.size_bytes_max
    }

    #[expect(
        clippy::arithmetic_side_effects,
        reason = "a generation for each change: 64 bits outlast every connection"
    )]
    pub(super) fn set_size_bytes_max(&mut self, size_bytes_max: usize) {
        if size_bytes_max != self.size_bytes_max {
            self.generation += 1;
            self.size_bytes_max = size_bytes_max;
            self.shrink_to(size_bytes_max);
        }
    }

    /// Name and value of entry `number`; 0 is the newest.
    #[inline]
    pub(super) fn entry(&self, number: usize) -> Option<(&[u8], &[u8])> {
        self.text(self.newest(number)?)
    }

    #[inline]
    fn newest(&self, number: usize) -> Option<&Entry> {
        self.entries.get(self.entries.len().checked_sub(number.checked_add(1)?)?)
    }

    /// The number of the newest entry of this name and value, else of the newest of this name; and whether the value is the
    /// one.
    pub(super) fn find(&self, name: &[u8], value: &[u8]) -> Option<(usize, bool)> {
        let mut same_name = None;
        for (number, entry) in self.entries.iter().rev().enumerate() {
            if entry.name_bytes == name.len() {
                let (its_name, its_value) = self.text(entry)?;
                if its_name == name {
                    if its_value == value {
                        return Some((number, true));
                    }
                    same_name = same_name.or(Some((number, false)));
                }
            }
        }
        same_name
    }

    /// Adds a field. One that is larger than the table leaves it empty.
    pub(super) fn insert(&mut self, name: &[u8], value: &[u8]) {
        if self.fits(name.len(), value.len()) {
            self.bytes.extend_from_slice(name);
            self.add(name.len(), value);
        }
    }

    /// Adds a field with the name of entry `number`, which may be forgotten for it. Without that entry nothing is added.
    pub(super) fn insert_named_by(&mut self, number: usize, value: &[u8]) {
        let Some(entry) = self.newest(number) else { return };
        let (at, name_bytes) = (self.offset(entry), entry.name_bytes);
        if self.fits(name_bytes, value.len()) {
            self.bytes.extend_from_within(at..at.saturating_add(name_bytes));
            self.add(name_bytes, value);
        }
    }

    /// False, and the table empty, if not even the empty table can hold such a field.
    #[expect(
        clippy::arithmetic_side_effects,
        reason = "lengths of texts that are in memory; 64 bits of generations outlast every connection"
    )]
    fn fits(&mut self, name_bytes: usize, value_bytes: usize) -> bool {
        self.generation += 1;
        let fits = name_bytes + value_bytes + FIELD_OVERHEAD_BYTES <= self.size_bytes_max;
        if !fits {
            self.shrink_to(0);
        }
        fits
    }

    /// Adds the field whose name has just been put after everything else.
    #[expect(
        clippy::arithmetic_side_effects,
        reason = "lengths of texts that are in `bytes`, of which the name is the last"
    )]
    fn add(&mut self, name_bytes: usize, value: &[u8]) {
        let at = self.base + (self.bytes.len() - name_bytes) as u64;
        self.bytes.extend_from_slice(value);
        let entry = Entry { at, name_bytes, value_bytes: value.len() };
        self.size_bytes += entry.size_bytes();
        self.entries.push_back(entry);
        self.shrink_to(self.size_bytes_max);
    }

    /// Forgets the oldest entries until the others count for no more than `size_bytes`.
    #[expect(clippy::arithmetic_side_effects, reason = "what is taken off was added for the same entry")]
    fn shrink_to(&mut self, size_bytes: usize) {
        while self.size_bytes > size_bytes {
            let oldest = self.entries.pop_front();
            let oldest = oldest.unwrap_or_else(|| unreachable!("no entry counts for {} bytes", self.size_bytes));
            self.size_bytes -= oldest.size_bytes();
            self.gap += oldest.name_bytes + oldest.value_bytes;
        }
        let used = self.bytes.len() - self.gap;
        if self.gap >= used {
            self.bytes.copy_within(self.gap.., 0);
            self.bytes.truncate(used);
            self.base += self.gap as u64;
            self.gap = 0;
        }
    }

    /// Of an entry of this table; there is always some.
    #[inline]
    fn text(&self, entry: &Entry) -> Option<(&[u8], &[u8])> {
        let (name, rest) = self.bytes.get(self.offset(entry)..)?.split_at_checked(entry.name_bytes)?;
        Some((name, rest.get(..entry.value_bytes)?))
    }

    #[expect(
        clippy::arithmetic_side_effects,
        reason = "`base` moves on with what is forgotten, up to the oldest entry"
    )]
    fn offset(&self, entry: &Entry) -> usize {
        (entry.at - self.base) as usize
    }
}

impl Entry {
    #[expect(clippy::arithmetic_side_effects, reason = "lengths of texts that are in memory")]
    fn size_bytes(&self) -> usize {
        self.name_bytes + self.value_bytes + FIELD_OVERHEAD_BYTES
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn content(table: &DynamicTable) -> Vec<(Vec<u8>, Vec<u8>)> {
        let entry = |number| table.entry(number).map(|(name, value)| (name.to_vec(), value.to_vec()));
        (0..).map_while(entry).collect()
    }

    fn pair(name: &str, value: &str) -> (Vec<u8>, Vec<u8>) {
        (name.into(), value.into())
    }

    #[test]
    fn the_oldest_is_forgotten() {
        let mut table = DynamicTable::new(2 * (32 + 2));
        table.insert(b"a", b"1");
        table.insert(b"b", b"2");
        assert_eq!(content(&table), [pair("b", "2"), pair("a", "1")]);
        table.insert(b"c", b"3");
        assert_eq!(content(&table), [pair("c", "3"), pair("b", "2")]);
        // One byte more, and two must go.
        table.insert(b"d", b"44");
        assert_eq!(content(&table), [pair("d", "44")]);
        assert_eq!(table.find(b"c", b"3"), None);
    }

    #[test]
    fn one_larger_than_the_table_empties_it() {
        let mut table = DynamicTable::new(40);
        table.insert(b"name", b"1234");
        assert_eq!(content(&table).len(), 1);
        table.insert(b"name", b"12345");
        assert_eq!(content(&table), []);
        table.insert(b"name", b"");
        table.insert_named_by(0, b"12345");
        assert_eq!(content(&table), []);
    }

    #[test]
    fn the_name_may_come_from_the_entry_that_is_forgotten() {
        let mut table = DynamicTable::new(32 + 8);
        table.insert(b"name", b"1234");
        table.insert_named_by(0, b"5");
        assert_eq!(content(&table), [pair("name", "5")]);
    }

    #[test]
    fn nothing_stays_in_a_table_of_no_size() {
        let mut table = DynamicTable::new(0);
        table.insert(b"", b"");
        assert_eq!(content(&table), []);
        table.set_size_bytes_max(32);
        table.insert(b"", b"");
        assert_eq!(content(&table), [pair("", "")]);
        table.set_size_bytes_max(0);
        assert_eq!(content(&table), []);
    }

    #[test]
    fn the_newest_of_a_kind_is_found() {
        let mut table = DynamicTable::new(4096);
        for (name, value) in [("a", "1"), ("b", "1"), ("a", "2"), ("a", "3"), ("c", "1")] {
            table.insert(name.as_bytes(), value.as_bytes());
        }
        assert_eq!(table.find(b"a", b"2"), Some((2, true)));
        assert_eq!(table.find(b"a", b"4"), Some((1, false)));
        assert_eq!(table.find(b"d", b"1"), None);
    }

    #[test]
    fn the_generation_tells_of_changes_only() {
        let mut table = DynamicTable::new(4096);
        let mut last = table.generation();
        let mut changed = |table: &DynamicTable| std::mem::replace(&mut last, table.generation()) != table.generation();
        table.set_size_bytes_max(4096);
        table.find(b"a", b"");
        assert!(!changed(&table));
        table.insert(b"a", b"");
        assert!(changed(&table));
        table.set_size_bytes_max(100);
        assert!(changed(&table));
    }

    #[derive(Clone, Debug)]
    enum Step {
        Insert(Vec<u8>, Vec<u8>),
        InsertNamedBy(usize, Vec<u8>),
        SetMax(usize),
    }

    fn step() -> impl Strategy<Value = Step> {
        let text = || prop::collection::vec(b'a'..b'd', 0..40);
        prop_oneof![
            4 => (text(), text()).prop_map(|(name, value)| Step::Insert(name, value)),
            4 => (0..4usize, text()).prop_map(|(number, value)| Step::InsertNamedBy(number, value)),
            1 => (0..300usize).prop_map(Step::SetMax),
        ]
    }

    proptest! {
        /// Against a list of pairs that is as simple as the RFC's text.
        #[test]
        fn it_behaves_like_a_list(steps in prop::collection::vec(step(), 0..60)) {
            let (mut table, mut model, mut max) = (DynamicTable::new(200), VecDeque::new(), 200);
            for step in steps {
                match step {
                    Step::Insert(name, value) => {
                        table.insert(&name, &value);
                        model.push_front((name, value));
                    }
                    Step::InsertNamedBy(number, value) => {
                        let Some((name, _)) = model.get(number).cloned() else { continue };
                        table.insert_named_by(number, &value);
                        model.push_front((name, value));
                    }
                    Step::SetMax(bytes) => {
                        table.set_size_bytes_max(bytes);
                        max = bytes;
                    }
                }
                let size = |model: &VecDeque<(Vec<u8>, Vec<u8>)>| -> usize {
                    model.iter().map(|(name, value)| name.len() + value.len() + 32).sum()
                };
                while size(&model) > max {
                    model.pop_back();
                }
                prop_assert_eq!(content(&table), model.iter().cloned().collect::<Vec<_>>());
                prop_assert!(table.bytes.len() <= 3 * 300);
            }
        }
    }
}

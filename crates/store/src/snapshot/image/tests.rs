//! The file read back by a reader that knows only the format.

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;

type Rows = Vec<(Vec<u8>, Vec<u8>)>;

/// A file in memory.
struct Database(Vec<u8>);

impl Database {
    fn u16(&self, at: usize) -> usize {
        u16::from_le_bytes(self.0[at..at + 2].try_into().expect("two bytes")).into()
    }

    fn u32(&self, at: usize) -> usize {
        u32::from_le_bytes(self.0[at..at + 4].try_into().expect("four bytes")) as usize
    }

    fn u64(&self, at: usize) -> u64 {
        u64::from_le_bytes(self.0[at..at + 8].try_into().expect("eight bytes"))
    }

    /// Every bucket with its records. Panics unless each page is reached exactly once.
    fn buckets(&self) -> Vec<(String, Rows)> {
        for meta in 0..2 {
            let at = meta * PAGE_BYTES;
            assert_eq!((self.u64(at), self.u16(at + 8)), (meta as u64, 4));
            assert_eq!((self.u32(at + 16), self.u32(at + 20), self.u32(at + 24)), (0xed0c_daed, 2, PAGE_BYTES));
            assert_eq!((self.u64(at + 48), self.u64(at + 56) as usize), (2, self.0.len() / PAGE_BYTES));
            assert_eq!(self.u64(at + 64), meta as u64);
        }
        assert_eq!((self.u16(2 * PAGE_BYTES + 8), self.u16(2 * PAGE_BYTES + 10)), (0x10, 0));
        let mut reached = 3;
        let mut roots = Vec::new();
        self.page(self.u64(32), &mut roots, &mut reached, 1);
        let mut buckets = Vec::new();
        for (name, head) in roots {
            let mut rows = Vec::new();
            match u64::from_le_bytes(head[..8].try_into().expect("a root")) {
                0 => assert_eq!(head[16..], [0, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0]),
                root => {
                    assert_eq!(head.len(), 16);
                    self.page(root, &mut rows, &mut reached, 0);
                }
            }
            assert!(rows.is_sorted_by(|a, b| a.0 < b.0));
            buckets.push((String::from_utf8(name).expect("a name"), rows));
        }
        assert_eq!(reached, self.0.len() / PAGE_BYTES, "pages that nothing leads to");
        buckets
    }

    fn page(&self, id: u64, rows: &mut Rows, reached: &mut usize, flags: usize) {
        let at = id as usize * PAGE_BYTES;
        assert_eq!(self.u64(at), id);
        let (kind, count, span) = (self.u16(at + 8), self.u16(at + 10), self.u32(at + 12) + 1);
        *reached += span;
        let mut end = at + 16 + count * 16;
        for i in 0..count {
            let element = at + 16 + 16 * i;
            if kind == 1 {
                let key = element + self.u32(element);
                assert_eq!(key, end);
                end = key + self.u32(element + 4);
                let before = rows.len();
                self.page(self.u64(element + 8), rows, reached, flags);
                assert_eq!(rows[before].0, self.0[key..end], "first key of a child");
            } else {
                assert_eq!((kind, self.u32(element)), (2, flags));
                let key = element + self.u32(element + 4);
                assert_eq!(key, end);
                let value = key + self.u32(element + 8);
                end = value + self.u32(element + 12);
                rows.push((self.0[key..value].to_vec(), self.0[value..end].to_vec()));
            }
        }
        assert!(end <= at + span * PAGE_BYTES && end > at + (span - 1) * PAGE_BYTES);
        assert!(count > usize::from(kind == 1), "a page with too few elements");
        assert!(self.0[end..at + span * PAGE_BYTES].iter().all(|&byte| byte == 0));
    }
}

fn write(tables: &[(&'static str, Rows)], mut max: impl FnMut() -> usize) -> Database {
    let tables = tables.iter().map(|(name, rows)| Box::new(Table::new(name, rows.clone())) as Box<dyn Bucket>);
    let mut image = Image::new(tables.collect());
    let mut file = Vec::new();
    loop {
        let max = max();
        let Some(bytes) = image.next(max) else { break };
        assert!(!bytes.is_empty() && bytes.len() <= max.max(1));
        file.extend_from_slice(&bytes);
    }
    assert_eq!(file.len() as u64, image.len());
    assert!(image.next(1).is_none());
    Database(file)
}

fn round_trip(mut tables: Vec<(&'static str, Rows)>) {
    let found = write(&tables, || 32 << 10).buckets();
    tables.sort();
    tables.iter_mut().for_each(|(_, rows)| rows.sort());
    assert!(found.iter().map(|(name, rows)| (&name[..], rows)).eq(tables.iter().map(|(name, rows)| (*name, rows))));
}

fn numbered(count: u32, value_bytes: usize) -> Rows {
    (0..count).map(|n| (n.to_be_bytes().to_vec(), vec![n as u8; value_bytes])).collect()
}

#[test]
fn no_buckets_and_empty_buckets() {
    round_trip(vec![("key", vec![]), ("alarm", vec![])]);
    round_trip(vec![("key", numbered(1, 0)), ("alarm", vec![])]);
}

#[test]
fn values_larger_than_a_page() {
    let mut rows = numbered(9, 10);
    rows[3].1 = vec![7; 1_500_000];
    rows[8].1 = vec![8; PAGE_BYTES - 16 - 16 - 4];
    round_trip(vec![("key", rows)]);
}

#[test]
fn many_levels() {
    round_trip(vec![("key", numbered(300_000, 100)), ("lease", numbered(1000, 20))]);
}

#[test]
fn keys_larger_than_a_page() {
    let rows = (0..200u8).map(|n| ([vec![n; 3000], vec![1; usize::from(n) * 20]].concat(), vec![n])).collect();
    round_trip(vec![("authRoles", rows)]);
}

#[test]
#[should_panic(expected = "changed while it was written")]
fn a_source_that_changes_is_noticed() {
    struct Changing(Table, usize);
    impl Bucket for Changing {
        fn name(&self) -> &str {
            "key"
        }
        fn rewind(&mut self) {
            self.0.rewind();
            self.1 = 40;
        }
        fn next(&mut self) -> Option<(&[u8], &[u8])> {
            self.1 = self.1.checked_sub(1)?;
            self.0.next()
        }
    }
    let mut image = Image::new(vec![Box::new(Changing(Table::new("key", numbered(100, 100)), 100))]);
    while image.next(4096).is_some() {}
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn what_goes_in_comes_out(
        keys in proptest::collection::btree_set(vec(any::<u8>(), 1..300), 0..300),
        lengths in vec(prop_oneof![8 => 0..200usize, 1 => 0..20_000usize], 1..50),
        chunks in vec(prop_oneof![0..100usize, 0..100_000usize], 1..10),
    ) {
        let rows: Rows = keys.into_iter().zip(lengths.iter().cycle()).map(|(key, &len)| (key, vec![9; len])).collect();
        let mut chunks = chunks.iter().cycle();
        let database = write(&[("key", rows.clone())], || chunks.next().copied().unwrap_or(1).max(5));
        prop_assert_eq!(database.buckets(), vec![("key".to_string(), rows)]);
    }
}

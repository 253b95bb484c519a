//! Which of the earlier versions a compaction has left: their revisions, as small numbers.
//!
//! Of each revision there is a varint: the difference to the main revision before it, times two, and one more if the sub revision follows in
//! another varint, which it does unless it is 0.

use super::super::image::Table;
use crate::types::Revision;
use api::varint;

/// Name of the bucket.
pub const KEPT: &str = "kept";
/// Bytes of a value of it, about: a page takes one of them.
const ROW_BYTES: usize = 3_900;
/// The most that a row has: one more revision than fits, of two numbers.
const ROW_BYTES_MAX: usize = ROW_BYTES + 20;

/// The bucket that lists these revisions, which ascend.
pub(in super::super) fn table(revisions: &[Revision]) -> Table {
    let mut rows: Vec<(Vec<u8>, Vec<u8>)> = Vec::new();
    let (mut row, mut before) = (Vec::new(), 0);
    let mut close = |row: &mut Vec<u8>| {
        let number = u32::try_from(rows.len()).unwrap_or_else(|_| unreachable!("no index has as many keys"));
        rows.push((number.to_be_bytes().to_vec(), std::mem::take(row)));
    };
    for rev in revisions {
        assert!(rev.main >= before, "kept revisions are out of order");
        varint::put(&mut row, (rev.main - before).cast_unsigned() << 1 | u64::from(rev.sub > 0));
        if rev.sub > 0 {
            varint::put(&mut row, rev.sub.into());
        }
        before = rev.main;
        if row.len() >= ROW_BYTES {
            close(&mut row);
        }
    }
    if !row.is_empty() {
        close(&mut row);
    }
    Table::new(KEPT, rows)
}

/// Why a list cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the list of kept revisions is damaged: {0}")]
pub struct KeptError(&'static str);

/// A list of kept revisions that was read.
#[derive(Clone, Debug)]
pub struct Kept {
    bytes: Vec<u8>,
    rows: u32,
    bytes_max: u64,
}

impl Kept {
    /// Without revisions yet. It may have so many bytes: those of the file that it comes from.
    pub fn new(bytes_max: u64) -> Kept {
        Kept { bytes: Vec::new(), rows: 0, bytes_max }
    }

    /// Takes the next row of the bucket.
    ///
    /// # Errors
    /// If it is not the next one, or the list is too long.
    pub fn push(&mut self, key: &[u8], value: &[u8]) -> Result<(), KeptError> {
        if key != self.rows.to_be_bytes() {
            return Err(KeptError("a row is missing"));
        }
        if value.len() > ROW_BYTES_MAX {
            return Err(KeptError("a row is longer than any that is written"));
        }
        if self.bytes.len().saturating_add(value.len()) as u64 > self.bytes_max {
            return Err(KeptError("it is longer than its file"));
        }
        self.rows = self.rows.saturating_add(1);
        self.bytes.extend_from_slice(value);
        Ok(())
    }

    /// Checks the whole list, all of whose revisions must be below `end`.
    ///
    /// # Errors
    /// If there is something else in it.
    pub fn check(&self, end: i64) -> Result<(), KeptError> {
        let (mut rest, mut last) = (&self.bytes[..], Revision::default());
        while !rest.is_empty() {
            let next = read(&mut rest, last.main).ok_or(KeptError("there is no revision where one should be"))?;
            if next <= last || next.main >= end {
                return Err(KeptError("a revision in it is out of place"));
            }
            last = next;
        }
        Ok(())
    }

    /// Goes through the list, once [`Kept::check`] has found it whole.
    pub fn cursor(&self) -> Cursor<'_> {
        Cursor { rest: &self.bytes, next: None, main: 0 }
    }
}

/// A place in the list.
pub struct Cursor<'a> {
    rest: &'a [u8],
    next: Option<Revision>,
    main: i64,
}

impl Cursor<'_> {
    /// Whether `rev` is in the list. It is later than all that were asked for before.
    pub fn has(&mut self, rev: Revision) -> bool {
        while self.next.is_none_or(|next| next < rev) {
            let Some(next) = read(&mut self.rest, self.main) else {
                // Nothing is left.
                return false;
            };
            (self.next, self.main) = (Some(next), next.main);
        }
        self.next == Some(rev)
    }
}

/// The next revision, after one of main revision `before`.
fn read(rest: &mut &[u8], before: i64) -> Option<Revision> {
    let first = varint::take_shortest(rest)?;
    let main = before.checked_add(i64::try_from(first >> 1).ok()?)?;
    let sub =
        if first & 1 == 0 { 0 } else { u32::try_from(varint::take_shortest(rest)?).ok().filter(|sub| *sub > 0)? };
    Some(Revision { main, sub })
}

#[cfg(test)]
mod tests {
    use super::super::super::image::Bucket;
    use super::*;
    use proptest::collection::{btree_set, vec};
    use proptest::prelude::*;

    fn read_back(revisions: &[Revision]) -> Kept {
        let (mut table, mut kept) = (table(revisions), Kept::new(u64::MAX));
        while let Some((key, value)) = table.next() {
            kept.push(key, value).expect("rows in order");
        }
        kept
    }

    proptest! {
        #[test]
        fn lists_read_back(
            pairs in btree_set((prop_oneof![1..2_000i64, 1..i64::MAX], prop_oneof![3 => Just(0), 1 => 0..u32::MAX]), 0..3_000),
            asked in vec(1..2_000i64, 0..50),
        ) {
            let listed: Vec<Revision> = pairs.iter().map(|&(main, sub)| Revision { main, sub }).collect();
            let kept = read_back(&listed);
            let end = listed.last().map_or(1, |rev| rev.main);
            prop_assert_eq!(kept.check(end.saturating_add(1)), Ok(()));
            prop_assert_eq!(kept.check(end).is_ok(), listed.is_empty() || end == i64::MAX);
            let mut asked: Vec<Revision> = asked.into_iter().map(|main| Revision { main, sub: 0 }).collect();
            asked.extend(&listed);
            asked.sort_unstable();
            asked.dedup();
            let mut cursor = kept.cursor();
            for rev in asked {
                prop_assert_eq!(cursor.has(rev), listed.binary_search(&rev).is_ok());
            }
        }
    }

    #[test]
    fn damage_is_found() {
        let rows = |values: &[&[u8]]| {
            let mut kept = Kept::new(5_000);
            for (number, value) in (0_u32..).zip(values) {
                kept.push(&number.to_be_bytes(), value).expect("rows in order");
            }
            kept.check(100)
        };
        assert_eq!(rows(&[&[4, 5], &[1, 2]]), Ok(()));
        // Cut off, not ascending, not the shortest form, a sub revision of 0, too large.
        for wrong in [&[4, 5][..], &[4, 0], &[0], &[0x84, 0], &[5, 0], &[0xc8, 1]] {
            assert!(rows(&[wrong]).is_err(), "{wrong:?}");
        }
        assert!(Kept::new(100).push(&1_u32.to_be_bytes(), &[4]).is_err());
        // No more memory than what is written takes.
        assert!(Kept::new(u64::MAX).push(&0_u32.to_be_bytes(), &[4; ROW_BYTES_MAX + 1]).is_err());
        let mut kept = Kept::new(3);
        assert!(kept.push(&0_u32.to_be_bytes(), &[4; 3]).is_ok() && kept.push(&1_u32.to_be_bytes(), &[4]).is_err());
    }
}

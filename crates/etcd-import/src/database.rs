//! A database of etcd.

use crate::Error;
use crate::bolt::{Bucket, Db};
use crate::increment::{Chain, is_increment};
use std::path::{Path, PathBuf};
use std::time::Duration;
use store::types::Revision;

/// The bucket of all changes to keys.
pub(crate) const KEYS: &str = "key";
/// Bytes of a revision as a key.
const REVISION_BYTES: usize = 17;

/// Told of keys and values.
pub(crate) type Visit<'a> = dyn FnMut(&[u8], &[u8]) -> Result<(), Error> + 'a;

/// A database file, opened for reading, with the increments that follow it.
pub struct Database {
    pub(crate) db: Db,
    pub(crate) buckets: Vec<Bucket>,
    pub(crate) chain: Option<Chain>,
}

/// One change to a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record<'a> {
    /// When it was made.
    pub rev: Revision,
    /// It deleted the key.
    pub is_tombstone: bool,
    /// The revision as it is stored.
    pub name: &'a [u8],
    /// The stored `KeyValue`.
    pub bytes: &'a [u8],
}

impl Database {
    /// Opens a database in a file; other bytes may follow it.
    ///
    /// # Errors
    /// If there is none.
    pub fn open(path: &Path) -> Result<Database, Error> {
        check_is_whole(path)?;
        Database::of(path, Db::open(path)?)
    }

    /// The same for a file that another process may use: waits until it is free, for `patience` at most; 0 waits for as long as it takes.
    /// No process can write to it before this is dropped.
    ///
    /// # Errors
    /// Also if it stays in use.
    pub fn open_unused(path: &Path, patience: Duration) -> Result<Database, Error> {
        check_is_whole(path)?;
        Database::of(path, Db::open_unused(path, patience)?)
    }

    /// Other programs keep their data in such files, too: one of theirs must not pass for a cluster without keys.
    fn of(path: &Path, db: Db) -> Result<Database, Error> {
        let buckets = db.buckets()?;
        let has = |name: &str| buckets.iter().any(|bucket| bucket.name == name.as_bytes());
        if !(has(KEYS) && has("meta")) {
            let what = "it lacks the bucket `key` or `meta`, which every database of etcd has";
            return Err(Error::NoDatabase { path: path.into(), what });
        }
        Ok(Database { db, buckets, chain: None })
    }

    /// The same with increments behind it, in their order, all of which are checked: the database that the last one leads to. `path` is the file
    /// of this one, for what is said of it.
    ///
    /// # Errors
    /// If one of them is damaged, or does not follow what is before it.
    pub fn with_increments(mut self, path: &Path, increments: &[PathBuf]) -> Result<Database, Error> {
        self.chain = Chain::open(path, &self, increments)?;
        Ok(self)
    }

    /// What has everything but the keys.
    pub(crate) fn newest(&self) -> (&Db, &[Bucket]) {
        match &self.chain {
            None => (&self.db, &self.buckets),
            Some(chain) => (&chain.newest().db, &chain.newest().buckets),
        }
    }

    /// Bytes of the files, without what is before and after the databases.
    pub(crate) fn bytes(&self) -> u64 {
        self.db.bytes().saturating_add(self.chain.as_ref().map_or(0, Chain::bytes))
    }

    /// Goes through a bucket; nothing, if there is none of this name.
    pub(crate) fn walk(&self, name: &str, visit: &mut Visit<'_>) -> Result<(), Error> {
        match &self.chain {
            Some(chain) if name == KEYS => chain.keys(self, visit),
            _ => {
                let (db, buckets) = self.newest();
                walk(db, buckets, name, visit)
            }
        }
    }

    /// The revision, and the one that the history is compacted to.
    pub(crate) fn state(&self) -> Result<(i64, i64), Error> {
        let compact_revision = self.compact_revision()?;
        let mut last = 1;
        self.records(&mut |record| {
            last = record.rev.main;
            Ok(())
        })?;
        Ok((last.max(compact_revision).max(1), compact_revision))
    }

    /// Goes through all changes, in their order.
    ///
    /// # Errors
    /// If the file is damaged, or what `visit` says.
    pub fn records(&self, visit: &mut dyn FnMut(Record<'_>) -> Result<(), Error>) -> Result<(), Error> {
        self.walk(KEYS, &mut |name, bytes| {
            let (rev, is_tombstone) =
                revision(name).ok_or_else(|| Error::contents(KEYS, format!("{name:02x?} is no revision")))?;
            visit(Record { rev, is_tombstone, name, bytes })
        })
    }
}

/// Goes through one of these buckets; nothing, if there is none of this name.
pub(crate) fn walk(db: &Db, buckets: &[Bucket], name: &str, visit: &mut Visit<'_>) -> Result<(), Error> {
    let Some(bucket) = buckets.iter().find(|bucket| bucket.name == name.as_bytes()) else { return Ok(()) };
    db.walk(bucket, &mut |key, value| match value {
        Some(value) => visit(key, value),
        None => Err(Error::contents(name, "there is a bucket in it")),
    })
}

/// Refuses an increment where a whole database is wanted.
fn check_is_whole(path: &Path) -> Result<(), Error> {
    if !is_increment(path)? {
        return Ok(());
    }
    let text = format!(
        "`{}` is an increment, as `snapshot save --since` saves it: name the snapshot that it follows, then all increments in their order",
        path.display()
    );
    Err(Error::Refused(text))
}

/// A revision as etcd writes it: main and sub revision with `_` between them, and a `t` after a deletion's.
pub(crate) fn revision(name: &[u8]) -> Option<(Revision, bool)> {
    let (name, mark) = name.split_at_checked(REVISION_BYTES)?;
    let is_tombstone = match mark {
        b"" => false,
        b"t" => true,
        _ => return None,
    };
    let (main, rest) = name.split_first_chunk()?;
    let (between, sub) = rest.split_first()?;
    let (main, sub) = (i64::from_be_bytes(*main), i64::from_be_bytes(*sub.first_chunk()?));
    let rev = Revision { main, sub: u32::try_from(sub).ok()? };
    // A history can be compacted at 0, which changes nothing.
    (*between == b'_' && main >= 0).then_some((rev, is_tombstone))
}

#[cfg(test)]
mod tests {
    use super::*;
    use store::Image;
    use store::image::{Bucket, Table};

    #[test]
    fn a_database_of_another_program_is_refused() {
        let path = std::env::temp_dir().join(format!("cairn-database-{}", std::process::id()));
        let open = |names: &[&'static str]| {
            let row = || vec![(b"scheduledCompactRev".to_vec(), [&[0; 8][..], b"_", &[0; 8]].concat())];
            let table = |name: &&'static str| -> Box<dyn Bucket> { Box::new(Table::new(name, row())) };
            let mut image = Image::new(names.iter().map(table).collect());
            std::fs::write(&path, image.next(1 << 20).expect("bytes")).expect("room");
            Database::open(&path).map(drop).map_err(|error| error.to_string())
        };
        let found = [open(&["key", "meta"]), open(&["key"]), open(&["meta"]), open(&["v1"])];
        std::fs::remove_file(&path).expect("it is there");
        assert_eq!(found[0], Ok(()));
        for refused in &found[1..] {
            assert!(
                refused.as_ref().is_err_and(|text| text.contains("no database: it lacks the bucket")),
                "{refused:?}"
            );
        }
    }

    #[test]
    fn revisions_are_read() {
        let rev = |main, sub| Revision { main, sub };
        assert_eq!(revision(b"\0\0\0\0\0\0\0\x03_\0\0\0\0\0\0\0\x01"), Some((rev(3, 1), false)));
        assert_eq!(revision(b"\0\0\0\0\0\0\0\0_\0\0\0\0\0\0\0\0"), Some((rev(0, 0), false)));
        assert_eq!(revision(b"\0\0\0\0\0\0\0\x03_\0\0\0\0\0\0\0\x01t"), Some((rev(3, 1), true)));
        for wrong in [
            &b""[..],
            b"\0\0\0\0\0\0\0\x03_\0\0\0\0\0\0\0",
            b"\0\0\0\0\0\0\0\x03-\0\0\0\0\0\0\0\x01",
            b"\0\0\0\0\0\0\0\x03_\0\0\0\0\0\0\0\x01x",
            b"\xff\0\0\0\0\0\0\x03_\0\0\0\0\0\0\0\x01",
            b"\0\0\0\0\0\0\0\x03_\x01\0\0\0\0\0\0\x01",
        ] {
            assert_eq!(revision(wrong), None, "{wrong:?}");
        }
    }
}

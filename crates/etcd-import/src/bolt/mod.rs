//! Reads database files of bbolt, the library that etcd keeps its data with. The layout is drawn in `docs/formats.md`, "Snapshot image".
//!
//! Files are not trusted: places, lengths and page numbers are checked before they are used, and no page is visited twice. Pages have no
//! checksum; what shows damage is that their parts do not fit together: the elements of a page lie one behind the other, no page is without
//! any (an empty bucket has none), and the keys below a branch are those that it says. Memory is bounded, also for a file with holes: by one leaf, of at most [`RUN_BYTES_MAX`] and the bytes of
//! the file, and the branches above it, of at most [`WAY_BYTES_MAX`] together. A walk recurses by level, of which there are [`DEPTH_MAX`].

mod page;

use crate::Error;
use page::{Head, Meta, Page};
use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Levels of a tree: a tree of more than a few is none that was written.
const DEPTH_MAX: usize = 64;
/// Most bytes of a page with those into which it continues: what etcd stores came in a message, and none is longer.
const RUN_BYTES_MAX: u64 = 2 << 30;
/// Bytes of the branches on the way from the root to a leaf. Those of etcd are single pages, but for keys of kilobytes.
const WAY_BYTES_MAX: u64 = 64 << 20;
/// Buckets of a database; etcd has a dozen.
const BUCKETS_MAX: usize = 1000;
/// Bytes of their names and of those that are kept beside their names.
const BUCKETS_BYTES_MAX: usize = 16 << 20;
/// How often a lock is asked for.
const LOCK_STEP: Duration = Duration::from_millis(50);

/// A database, opened for reading.
pub struct Db {
    path: PathBuf,
    file: File,
    /// Where the database begins in it.
    begin: u64,
    meta: Meta,
}

/// A named part of a database.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bucket {
    /// Its name.
    pub name: Vec<u8>,
    root: Root,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Root {
    Page(u64),
    /// A small bucket is a page inside the value.
    Inline(Vec<u8>),
}

/// What [`Db::walk`] visits: key, and value unless it is a bucket.
type Visit<'a> = dyn FnMut(&[u8], Option<&[u8]>) -> Result<(), Error> + 'a;

impl Db {
    /// Opens the database in a file. Other bytes may follow it.
    ///
    /// # Errors
    /// If there is no file, or no database in it.
    pub fn open(path: &Path) -> Result<Db, Error> {
        Db::open_behind(path, 0)
    }

    /// The same, behind so many other bytes.
    ///
    /// # Errors
    /// As [`Db::open`].
    pub fn open_behind(path: &Path, begin: u64) -> Result<Db, Error> {
        Db::read_head(path, File::open(path).map_err(Error::io("open", path))?, begin)
    }

    /// Opens a database that somebody may be writing to: whoever does holds a lock on the file, and this asks for one beside other
    /// readers, for as long as `patience` (0: for ever), before it looks where the trees begin.
    ///
    /// # Errors
    /// As [`Db::open`], or if another process has the file open for writing.
    pub fn open_unused(path: &Path, patience: Duration) -> Result<Db, Error> {
        let file = File::open(path).map_err(Error::io("open", path))?;
        let begun = Instant::now();
        loop {
            // SAFETY: a call on an open file of ours, without memory.
            if unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_SH | libc::LOCK_NB) } == 0 {
                return Db::read_head(path, file, 0);
            }
            let why = std::io::Error::last_os_error();
            if !matches!(why.kind(), std::io::ErrorKind::WouldBlock | std::io::ErrorKind::Interrupted) {
                return Err(Error::io("lock", path)(why));
            }
            if !patience.is_zero() && begun.elapsed() >= patience {
                return Err(Error::InUse { path: path.into() });
            }
            std::thread::sleep(LOCK_STEP);
        }
    }

    fn read_head(path: &Path, file: File, begin: u64) -> Result<Db, Error> {
        let bytes = file.metadata().map_err(Error::io("stat", path))?.len().saturating_sub(begin);
        let read = |offset: u64, room: &mut [u8]| file.read_exact_at(room, begin.saturating_add(offset));
        let no_database = |what| Error::NoDatabase { path: path.into(), what };
        let meta = Meta::find(bytes, read).map_err(no_database)?;
        Ok(Db { path: path.into(), file, begin, meta })
    }

    /// Bytes of the database, without what follows it.
    pub fn bytes(&self) -> u64 {
        // Not more than the file has: that was checked.
        self.meta.pages.saturating_mul(self.meta.page_bytes as u64)
    }

    /// The buckets, in the order of their names.
    ///
    /// # Errors
    /// If the file is damaged.
    pub fn buckets(&self) -> Result<Vec<Bucket>, Error> {
        let mut buckets = Vec::new();
        let mut walk = self.begin();
        let mut room = BUCKETS_BYTES_MAX;
        walk.tree(self.meta.root, 0, WAY_BYTES_MAX, &mut |name, value, is_bucket| {
            if !is_bucket {
                return Err("a value where buckets are expected".into());
            }
            let left = room.checked_sub(name.len()).and_then(|left| left.checked_sub(value.len()));
            room = left.filter(|_| buckets.len() < BUCKETS_MAX).ok_or("there are more buckets than etcd ever has")?;
            let root = match page::bucket(value)? {
                (0, rest) if rest.len() > page::PAGE_BYTES_MAX => {
                    return Err("a bucket in it is longer than a page".into());
                }
                (0, rest) => Root::Inline(rest.to_vec()),
                (root, _) => Root::Page(root),
            };
            buckets.push(Bucket { name: name.to_vec(), root });
            Ok(Ok(()))
        })?;
        Ok(buckets)
    }

    /// Goes through a bucket, in the order of its keys.
    ///
    /// # Errors
    /// If the file is damaged, or what `visit` says.
    pub fn walk(&self, bucket: &Bucket, visit: &mut Visit<'_>) -> Result<(), Error> {
        let mut walk = self.begin();
        let each = &mut |key: &[u8], value: &[u8], is_bucket: bool| Ok(visit(key, Some(value).filter(|_| !is_bucket)));
        match &bucket.root {
            Root::Page(root) => walk.tree(*root, 0, WAY_BYTES_MAX, each),
            Root::Inline(bytes) => walk.leaf(&Page { id: 0, bytes }, each),
        }
    }

    fn begin(&self) -> Walk<'_> {
        Walk { db: self, pages_left: self.meta.pages, last: None, floor: None }
    }

    fn damaged(&self, page: u64, what: impl Into<String>) -> Error {
        Error::Damaged { path: self.path.clone(), page, what: what.into() }
    }

    /// A page with those into which it continues; a branch of at most `room` bytes.
    fn read(&self, id: u64, room: u64) -> Result<Vec<u8>, Error> {
        if !(2..self.meta.pages).contains(&id) {
            return Err(self.damaged(id, "there is no such page"));
        }
        let mut bytes = vec![0; self.meta.page_bytes];
        self.fill(id, 0, &mut bytes)?;
        let head = Head::of(&bytes);
        if head.id != id {
            return Err(self.damaged(id, "it has the number of another page"));
        }
        let span = u64::from(head.overflow).saturating_add(1);
        if span > self.meta.pages.saturating_sub(id) {
            return Err(self.damaged(id, "it goes on behind the end of the file"));
        }
        let length = span.saturating_mul(self.meta.page_bytes as u64);
        if length > RUN_BYTES_MAX {
            return Err(self.damaged(id, "it is longer than anything that etcd stores"));
        }
        if head.kind == page::BRANCH && length > room {
            return Err(self.damaged(id, "the branches on the way to it are longer than any that were written"));
        }
        if span > 1 {
            let first = bytes.len();
            bytes.resize(usize::try_from(length).map_err(|_| self.damaged(id, "it is longer than memory"))?, 0);
            self.fill(id, first, bytes.get_mut(first..).unwrap_or_default())?;
        }
        Ok(bytes)
    }

    fn fill(&self, id: u64, offset: usize, room: &mut [u8]) -> Result<(), Error> {
        // Within the file, which was checked.
        let at = id.saturating_mul(self.meta.page_bytes as u64).saturating_add(offset as u64);
        let at = self.begin.saturating_add(at);
        self.file.read_exact_at(room, at).map_err(Error::io("read", &self.path))
    }
}

/// The visitor of a walk. An error ends the walk: the visitor's own, or damage that it describes.
type Each<'a> = dyn FnMut(&[u8], &[u8], bool) -> Result<Result<(), Error>, String> + 'a;

/// One way through a tree.
struct Walk<'a> {
    db: &'a Db,
    /// A tree has no more pages than the file.
    pages_left: u64,
    last: Option<Vec<u8>>,
    /// What the branches say: no key from here on is lower.
    floor: Option<Vec<u8>>,
}

impl Walk<'_> {
    /// Goes through the tree below a page. `room` is what the branches from there on may have.
    fn tree(&mut self, id: u64, depth: usize, room: u64, each: &mut Each<'_>) -> Result<(), Error> {
        if depth > DEPTH_MAX {
            return Err(self.db.damaged(id, "the tree is too deep"));
        }
        let bytes = self.db.read(id, room)?;
        // The pages into which it continues count as well: otherwise one long empty leaf could be used as every child.
        let span = bytes.len().checked_div(self.db.meta.page_bytes).unwrap_or(0) as u64;
        self.pages_left =
            self.pages_left.checked_sub(span).ok_or_else(|| self.db.damaged(id, "pages form a circle"))?;
        let page = Page { id, bytes: &bytes };
        match page.kind() {
            page::BRANCH | page::LEAF if page.count() == 0 => Err(self.db.damaged(id, "it has no elements")),
            page::BRANCH => {
                let room = room.saturating_sub(bytes.len() as u64);
                let mut due = page.begin();
                for number in 0..page.count() {
                    let (key, child) = page.child(number, &mut due).map_err(|what| self.db.damaged(id, what))?;
                    self.check_order(id, key)?;
                    set(&mut self.floor, key);
                    self.tree(child, depth.saturating_add(1), room, each)?;
                }
                Ok(())
            }
            page::LEAF => self.leaf(&page, each),
            _ => Err(self.db.damaged(id, "it is neither a branch nor a leaf")),
        }
    }

    /// Refuses a key that is not above the last one, or is below what the branches say.
    fn check_order(&self, id: u64, key: &[u8]) -> Result<(), Error> {
        let is_above = self.last.as_deref().is_none_or(|last| last < key);
        match is_above && self.floor.as_deref().is_none_or(|floor| floor <= key) {
            true => Ok(()),
            false => Err(self.db.damaged(id, "keys are out of order")),
        }
    }

    fn leaf(&mut self, page: &Page<'_>, each: &mut Each<'_>) -> Result<(), Error> {
        let damaged = |what: &str| self.db.damaged(page.id, what);
        if page.bytes.len() < page::HEAD_BYTES || page.kind() != page::LEAF {
            return Err(damaged("it is no leaf"));
        }
        let mut due = page.begin();
        for number in 0..page.count() {
            let element = page.element(number, &mut due).map_err(damaged)?;
            self.check_order(page.id, element.key)?;
            set(&mut self.last, element.key);
            each(element.key, element.value, element.is_bucket).map_err(|what| damaged(&what))??;
        }
        Ok(())
    }
}

/// Keeps a copy of a key, in the place of another.
fn set(kept: &mut Option<Vec<u8>>, key: &[u8]) {
    let kept = kept.get_or_insert_default();
    kept.clear();
    kept.extend_from_slice(key);
}

#[cfg(test)]
mod tests;

//! A client snapshot: the store written out as the database file that etcd's own tools restore from.
//!
//! The file is a B+tree per bucket in pages of 4096 bytes (`docs/formats.md`, "Snapshot image"). Its length must be known before its
//! first byte is sent, and a store of any size must be written with little memory. So there are two passes over the records: one
//! counts pages without reading values, the other writes them. Both run the same code with another sink. Pages are numbered as they are
//! finished, children before parents, so that only one open page per level is held.

mod page;
mod schema;
mod tree;

#[cfg(test)]
mod tests;

use bytes::{Bytes, BytesMut};

pub use schema::{
    Compactions, Downgrade, RevisionKey, alarms, auth, auth_roles, auth_users, cluster, leases, members,
    members_removed, membership_v2, meta, storage_version,
};

use page::{PAGE_BYTES, Pages};
use tree::Tree;

/// Records planned between two looks whether the file is still wanted.
const SLICE_RECORDS: usize = 1_024;

/// The records of one bucket, which can be read twice and are the same both times.
pub trait Bucket: Send {
    /// Its name.
    fn name(&self) -> &str;
    /// Back to the first record.
    fn rewind(&mut self);
    /// The next key and value; keys ascend.
    fn next(&mut self) -> Option<(&[u8], &[u8])>;
}

/// A bucket small enough to be held in memory.
pub struct Table {
    name: &'static str,
    rows: Vec<(Vec<u8>, Vec<u8>)>,
    next: usize,
}

impl Table {
    /// A bucket of these rows, in any order, with distinct keys.
    pub fn new(name: &'static str, mut rows: Vec<(Vec<u8>, Vec<u8>)>) -> Table {
        rows.sort_unstable();
        Table { name, rows, next: 0 }
    }
}

impl Bucket for Table {
    fn name(&self) -> &str {
        self.name
    }

    fn rewind(&mut self) {
        self.next = 0;
    }

    fn next(&mut self) -> Option<(&[u8], &[u8])> {
        let (key, value) = self.rows.get(self.next)?;
        self.next += 1;
        Some((key, value))
    }
}

/// A database file that is written while it is read.
pub struct Image {
    buckets: Vec<Box<dyn Bucket>>,
    plan: Plan,
    pass: Option<Pass>,
    /// Written, not yet handed out.
    ready: BytesMut,
    /// Bytes that are handed out before the file's.
    head_bytes: u64,
}

/// What the first pass found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Plan {
    pages: u64,
    root: u64,
}

impl Image {
    /// Plans the file that holds these buckets, whose names differ. Goes through all their records.
    pub fn new(buckets: Vec<Box<dyn Bucket>>) -> Image {
        match Image::new_while(buckets, &|| true) {
            Some(image) => image,
            None => unreachable!("it is wanted to the end"),
        }
    }

    /// The same; `None` once it is not `wanted` any more.
    pub fn new_while(mut buckets: Vec<Box<dyn Bucket>>, wanted: &dyn Fn() -> bool) -> Option<Image> {
        buckets.sort_by(|a, b| a.name().cmp(b.name()));
        let mut pass = Pass::new(Pages::counted());
        let mut steps = 0_usize;
        let plan = loop {
            if let Some(plan) = pass.step(&mut buckets) {
                break plan;
            }
            steps = steps.wrapping_add(1);
            if steps.is_multiple_of(SLICE_RECORDS) && !wanted() {
                return None;
            }
        };
        buckets.iter_mut().for_each(|bucket| bucket.rewind());
        let pass = Some(Pass::new(Pages::written(plan.root, plan.pages)));
        Some(Image { buckets, plan, pass, ready: BytesMut::new(), head_bytes: 0 })
    }

    /// The same file behind `head`. Only before anything was handed out.
    pub(super) fn led_by(mut self, head: &[u8]) -> Image {
        assert!(self.ready.is_empty() && self.head_bytes == 0, "the file has begun");
        self.ready.extend_from_slice(head);
        self.head_bytes = head.len() as u64;
        self
    }

    /// Bytes of the whole file, with what leads it.
    #[allow(clippy::len_without_is_empty, reason = "even a file without records has a head")]
    pub fn len(&self) -> u64 {
        self.head_bytes + self.plan.pages * PAGE_BYTES as u64
    }

    /// The next bytes of the file, at most `max` of them (at least one); `None` at its end.
    ///
    /// # Panics
    /// If the records are not those that were planned for.
    pub fn next(&mut self, max: usize) -> Option<Bytes> {
        let max = max.max(1);
        while self.ready.len() < max
            && let Some(pass) = &mut self.pass
        {
            let end = pass.step(&mut self.buckets);
            pass.pages.drain(&mut self.ready);
            if let Some(end) = end {
                assert!(end == self.plan, "the records of a snapshot changed while it was written");
                self.pass = None;
            }
        }
        let bytes = self.ready.split_to(self.ready.len().min(max)).freeze();
        (!bytes.is_empty()).then_some(bytes)
    }
}

/// One way through all records.
struct Pass {
    pages: Pages,
    /// The tree of the bucket that is being read.
    tree: Tree,
    /// The tree that holds the buckets.
    roots: Tree,
    bucket: usize,
}

impl Pass {
    fn new(pages: Pages) -> Pass {
        Pass { pages, tree: Tree::default(), roots: Tree::default(), bucket: 0 }
    }

    /// Takes the next record, or finishes a bucket, or the file: then it tells what came out.
    fn step(&mut self, buckets: &mut [Box<dyn Bucket>]) -> Option<Plan> {
        let Some(bucket) = buckets.get_mut(self.bucket) else {
            let root = std::mem::take(&mut self.roots).finish(&mut self.pages);
            return Some(Plan { root, pages: self.pages.count() });
        };
        match bucket.next() {
            Some((key, value)) => self.tree.push(key, value, &mut self.pages),
            None => {
                let tree = std::mem::take(&mut self.tree);
                let root = if tree.is_empty() { None } else { Some(tree.finish(&mut self.pages)) };
                self.roots.push_bucket(bucket.name().as_bytes(), root, &mut self.pages);
                self.bucket += 1;
            }
        }
        None
    }
}

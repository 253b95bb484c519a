//! The names in a directory, and which changes of them are not durable yet.

use super::contents::{Contents, Odds};
use super::lock;
use super::memory::Memory;
use super::random::Random;
use std::collections::BTreeMap;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, Weak};

/// A file, whatever its names.
pub(super) struct Inode {
    pub(super) contents: Mutex<Contents>,
    pub(super) locked: AtomicBool,
    /// Reading it fails.
    pub(super) is_spoiled: AtomicBool,
    /// Mappings, some of which may be gone.
    mapped: Mutex<Vec<Weak<Region>>>,
}

/// A mapping of the first `bytes` of a file.
pub(super) struct Region {
    _memory: Arc<Memory>,
    bytes: u64,
    /// The guard under which it was made.
    guard: u64,
}

impl Inode {
    pub(super) fn new(contents: Contents) -> Inode {
        let no = || AtomicBool::new(false);
        Inode { contents: Mutex::new(contents), locked: no(), is_spoiled: no(), mapped: Mutex::default() }
    }

    /// Notes a mapping, which lasts as long as what is returned.
    pub(super) fn map(&self, memory: Arc<Memory>, bytes: u64, guard: u64) -> Arc<Region> {
        let region = Arc::new(Region { _memory: memory, bytes, guard });
        let mut mapped = lock(&self.mapped);
        mapped.retain(|region| region.strong_count() > 0);
        mapped.push(Arc::downgrade(&region));
        region
    }

    /// Bytes that a reader of the process under this guard may still look at.
    pub(super) fn mapped_bytes(&self, guard: u64) -> u64 {
        let mapped = lock(&self.mapped);
        let regions = mapped.iter().filter_map(Weak::upgrade).filter(|region| region.guard == guard);
        regions.map(|region| region.bytes).max().unwrap_or(0)
    }
}

#[derive(Clone)]
pub(super) enum Node {
    File(Arc<Inode>),
    Directory,
}

#[derive(Clone)]
enum Change {
    Link(String, Node),
    Unlink(String),
    Rename { from: String, to: String, node: Node },
}

#[derive(Default)]
pub(super) struct Directory {
    pub(super) names: BTreeMap<String, Node>,
    durable: BTreeMap<String, Node>,
    pending: Vec<Change>,
}

impl Directory {
    pub(super) fn durable(names: BTreeMap<String, Node>) -> Directory {
        Directory { durable: names.clone(), names, pending: Vec::new() }
    }

    pub(super) fn link(&mut self, name: &str, node: Node) {
        self.names.insert(name.into(), node.clone());
        self.pending.push(Change::Link(name.into(), node));
    }

    pub(super) fn unlink(&mut self, name: &str) {
        self.names.remove(name);
        self.pending.push(Change::Unlink(name.into()));
    }

    pub(super) fn rename(&mut self, from: &str, to: &str) -> bool {
        let Some(node) = self.names.remove(from) else { return false };
        self.names.insert(to.into(), node.clone());
        self.pending.push(Change::Rename { from: from.into(), to: to.into(), node });
        true
    }

    pub(super) fn sync(&mut self) {
        for change in self.pending.drain(..) {
            change.apply(&mut self.durable);
        }
    }

    /// A sync failed: the changes before it never become durable, and no later sync says so.
    pub(super) fn fail_sync(&mut self) {
        self.pending.clear();
    }

    /// The names after a power cut: the durable ones with any subset of the later changes, in order.
    pub(super) fn after_cut(&self, odds: &Odds, random: &mut Random) -> BTreeMap<String, Node> {
        let mut names = self.durable.clone();
        for change in &self.pending {
            if odds.keeps(random) {
                change.clone().apply(&mut names);
            }
        }
        names
    }
}

impl Change {
    fn apply(self, names: &mut BTreeMap<String, Node>) {
        match self {
            Change::Link(name, node) => {
                names.insert(name, node);
            }
            Change::Unlink(name) => {
                names.remove(&name);
            }
            Change::Rename { from, to, node } => {
                names.remove(&from);
                names.insert(to, node);
            }
        }
    }
}

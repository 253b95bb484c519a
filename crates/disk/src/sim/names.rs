//! The names in a directory, and which changes of them are not durable yet.

use super::contents::{Contents, Odds};
use super::random::Random;
use std::collections::BTreeMap;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};

/// A file, whatever its names.
pub(super) struct Inode {
    pub(super) contents: Mutex<Contents>,
    pub(super) locked: AtomicBool,
}

#[derive(Clone)]
pub(super) enum Node {
    File(Arc<Inode>),
    Directory,
}

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
        self.durable = self.names.clone();
        self.pending.clear();
    }

    /// The names after a power cut: the durable ones with any subset of the later changes, in order.
    pub(super) fn after_cut(&self, odds: &Odds, random: &mut Random) -> BTreeMap<String, Node> {
        let mut names = self.durable.clone();
        for change in &self.pending {
            if !odds.keeps(random) {
                continue;
            }
            match change {
                Change::Link(name, node) => {
                    names.insert(name.clone(), node.clone());
                }
                Change::Unlink(name) => {
                    names.remove(name);
                }
                Change::Rename { from, to, node } => {
                    names.remove(from);
                    names.insert(to.clone(), node.clone());
                }
            }
        }
        names
    }
}

//! What the store should hold: every version of every key, and no cleverness.

use super::{Entry, Op, entry};
use crate::types::{Loc, Revision, Version};
use std::collections::BTreeMap;

pub(crate) struct Model {
    pub(crate) seed: u64,
    pub(crate) applied: u64,
    pub(crate) revision: i64,
    pub(crate) compact: i64,
    keys: BTreeMap<Vec<u8>, Vec<(Version, Vec<u8>)>>,
}

const NOWHERE: Loc = Loc { segment: 0, offset: 0, len: 0 };

impl Model {
    /// The model after the first `applied` entries of the history of `seed`.
    pub(crate) fn at(seed: u64, applied: u64) -> Model {
        let mut model = Model { seed, applied: 0, revision: 1, compact: -1, keys: BTreeMap::new() };
        model.advance(applied);
        model
    }

    /// Applies entries up to the one at `applied`.
    pub(crate) fn advance(&mut self, applied: u64) {
        while self.applied < applied {
            self.applied += 1;
            match entry(self.seed, self.applied) {
                Entry::Txn(ops) => self.txn(ops),
                Entry::Compact { back } => self.compact = self.compact.max(self.revision - back),
            }
        }
    }

    fn txn(&mut self, ops: Vec<Op>) {
        let mut rev = Revision { main: self.revision + 1, sub: 0 };
        for op in ops {
            let versions = self.keys.entry(op.key().to_vec()).or_default();
            let latest = versions.last().map(|(version, _)| *version).filter(|version| !version.is_tombstone());
            let change = match (op, latest) {
                (Op::Delete { .. }, None) => continue,
                (Op::Delete { .. }, Some(_)) => (Version { rev, create: 0, version: 0, loc: NOWHERE }, Vec::new()),
                (Op::Put { value, .. }, latest) => {
                    let (create, number) = latest.map_or((rev.main, 1), |latest| (latest.create, latest.version + 1));
                    (Version { rev, create, version: number, loc: NOWHERE }, value)
                }
            };
            versions.push(change);
            rev.sub += 1;
        }
        if rev.sub > 0 {
            self.revision = rev.main;
        }
    }

    /// What the compaction leaves, by key and revision. Locations are made up.
    pub(crate) fn versions(&self) -> Vec<(&[u8], Version, &[u8])> {
        let mut left = Vec::new();
        for (key, versions) in &self.keys {
            let past = versions.iter().take_while(|(version, _)| version.rev.main <= self.compact).count();
            for (at, (version, value)) in versions.iter().enumerate() {
                let is_newest_past = at + 1 == past && !(version.is_tombstone() && version.rev.main < self.compact);
                if at >= past || is_newest_past {
                    left.push((&key[..], *version, &value[..]));
                }
            }
        }
        left
    }

    /// Keys that exist now.
    pub(crate) fn live(&self) -> u64 {
        let live = self.keys.values().filter(|versions| versions.last().is_some_and(|(last, _)| !last.is_tombstone()));
        live.count() as u64
    }
}

//! The comparison after compactions: each member keeps the hash of what it compacted, and the leader compares these. No data is read again.

use super::{Hash, ask, minority, raise};
use crate::node::Node;
use std::sync::Arc;
use telemetry::logging::{self, Value};

/// Remembers the newest compaction at which all members agreed.
#[derive(Default)]
pub(super) struct Checker {
    checked: i64,
}

impl Checker {
    /// Compares the newest compaction that every member knows.
    pub(super) fn check(&mut self, node: &Arc<Node>) {
        logging::info("starting compact hash check", &[("local-member-id", Value::Id(node.member_id))]);
        let mut looked_at = 0usize;
        for own in node.store.compaction_hashes() {
            if own.hash_revision <= self.checked {
                break;
            }
            looked_at += 1;
            if self.compare(node, own.hash_revision, Hash::from(&own)) {
                break;
            }
        }
        logging::info("finished compaction hash check", &[("number-of-hashes-checked", looked_at.into())]);
    }

    /// Compares one compaction. Returns whether older compactions need no comparison.
    fn compare(&mut self, node: &Arc<Node>, revision: i64, own: Hash) -> bool {
        let members: Vec<_> = node.store.members().members.into_values().collect();
        let others =
            ask(&node.connector, members, (node.member_id, node.cluster_id), revision, node.config.request_timeout());
        let mut hashes = vec![(node.member_id, own.hash)];
        for other in &others {
            match other.hash {
                Some(hash) if hash.compact_revision == own.compact_revision => hashes.push((other.id, hash.hash)),
                told => {
                    let reason = if told.is_some() { "it compacted from another revision" } else { "no response" };
                    let fields = [("peer-id", Value::Id(other.id)), ("reason", reason.into())];
                    logging::warn("skipped peer's hash", &fields);
                }
            }
        }
        if hashes.iter().all(|member| member.1 == own.hash) {
            let all = hashes.len() == others.len() + 1;
            if all {
                self.checked = self.checked.max(revision);
                logging::info("successfully checked hash on whole cluster", &[("revision", revision.into())]);
            }
            return all;
        }
        let wrong = minority(&hashes, others.len() + 1);
        let fields = [
            ("leader-id", Value::Id(node.member_id)),
            ("leader-revision", revision.into()),
            ("leader-compact-revision", own.compact_revision.into()),
            ("leader-hash", u64::from(own.hash).into()),
            ("quorum-exist", wrong.is_some().into()),
        ];
        logging::error("detected compaction hash mismatch", &fields);
        // Without a majority it is unknown which member is wrong: the alarm is for the whole cluster.
        for member in wrong.unwrap_or_else(|| vec![0]) {
            raise(node, member);
        }
        true
    }
}

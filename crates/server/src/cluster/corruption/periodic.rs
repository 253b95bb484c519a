//! The periodic comparison of all data.

use super::{Hash, Told, ask, minority, raise};
use crate::node::Node;
use api::Error;
use std::sync::Arc;
use telemetry::logging::{self, Value};

/// Compares everything once, and raises the alarm for members that are wrong.
pub(super) fn check(node: &Arc<Node>) -> Result<(), Error> {
    let told = node.store.hash_kv(0)?;
    let before = Hash::from(&told);
    let members: Vec<_> = node.store.members().members.into_values().collect();
    let timeout = node.config.request_timeout();
    let others = ask(&node.connector, members.clone(), (node.member_id, node.cluster_id), told.hash_revision, timeout);
    // From here on this member has everything that the others had when they answered.
    node.wait_linearized(timeout)?;
    let again = node.store.hash_kv(told.hash_revision).map(|again| Hash::from(&again));
    let compacted = node.store.compact_revision();
    let mut wrong = Vec::new();
    if let Ok(again) = again
        && again.hash != before.hash
        && again.compact_revision == before.compact_revision
    {
        let fields = [
            ("revision", told.hash_revision.into()),
            ("hash-1", u64::from(before.hash).into()),
            ("hash-2", u64::from(again.hash).into()),
        ];
        logging::warn("found hash mismatch", &fields);
        wrong.push(node.member_id);
    }
    wrong.extend(judge(node.member_id, before, &others, members.len(), node.store.revision(), compacted));
    for member in wrong {
        raise(node, member);
    }
    let checked = others.iter().filter(|other| other.hash.is_some()).count();
    logging::info("finished peer corruption check", &[("number-of-peers-checked", checked.into())]);
    Ok(())
}

/// The members that are wrong: ahead of their leader, or with another hash than most.
fn judge(own: u64, leader: Hash, others: &[Told], members: usize, revision: i64, compacted: i64) -> Vec<u64> {
    let mut wrong = Vec::new();
    let mut comparable = vec![(own, leader.hash)];
    for other in others {
        let Some(hash) = other.hash else { continue };
        let is_ahead = hash.revision > revision || hash.compact_revision > compacted;
        let is_different = hash.compact_revision == leader.compact_revision && hash.hash != leader.hash;
        if is_ahead || is_different {
            let what = if is_ahead { "a follower is ahead of its leader" } else { "hashes of the same history differ" };
            let fields = [
                ("leader-revision", revision.into()),
                ("leader-compact-revision", compacted.into()),
                ("leader-hash", u64::from(leader.hash).into()),
                ("follower-revision", hash.revision.into()),
                ("follower-compact-revision", hash.compact_revision.into()),
                ("follower-hash", u64::from(hash.hash).into()),
                ("follower-peer-id", Value::Id(other.id)),
            ];
            logging::warn(what, &fields);
        }
        if is_ahead {
            wrong.push(other.id);
        } else if hash.compact_revision == leader.compact_revision {
            comparable.push((other.id, hash.hash));
        }
    }
    match minority(&comparable, members) {
        Some(few) => wrong.extend(few),
        // Without a majority the leader is trusted, as in etcd.
        None => wrong.extend(comparable.iter().filter(|member| member.1 != leader.hash).map(|member| member.0)),
    }
    wrong
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOBODY: [u64; 0] = [];
    const LEADER: Hash = Hash { hash: 5, compact_revision: 10, revision: 20 };

    fn judged(others: &[(u64, Option<Hash>)], members: usize) -> Vec<u64> {
        let others: Vec<Told> = others.iter().map(|&(id, hash)| Told { id, hash }).collect();
        judge(1, LEADER, &others, members, 21, 11)
    }

    #[test]
    fn who_is_wrong() {
        let other = Hash { hash: 6, ..LEADER };
        assert_eq!(judged(&[(2, Some(LEADER)), (3, Some(LEADER))], 3), NOBODY);
        assert_eq!(judged(&[(2, Some(LEADER)), (3, Some(other))], 3), [3]);
        assert_eq!(judged(&[(2, Some(other)), (3, Some(other))], 3), [1], "two agree against the leader");
        assert_eq!(judged(&[(2, Some(other)), (3, None)], 3), [2], "the leader is believed");
        assert_eq!(judged(&[(2, None), (3, None)], 3), NOBODY);
        let elsewhere = Hash { compact_revision: 9, ..other };
        assert_eq!(judged(&[(2, Some(elsewhere)), (3, Some(LEADER))], 3), NOBODY, "not comparable");
        let ahead = Hash { revision: 22, ..LEADER };
        assert_eq!(judged(&[(2, Some(ahead)), (3, Some(LEADER))], 3), [2]);
    }
}

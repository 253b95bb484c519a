//! Comparing the members' data. Members apply the same log, so they have the same hash at a revision; a member with another hash has lost
//! or changed something that no checksum caught.
//!
//! `initial` compares before a member serves, `periodic` compares everything now and then, `compaction` what each compaction left, and
//! `image` the database of an etcd member before it is installed.

mod compaction;
mod image;
mod initial;
mod periodic;

pub(crate) use image::{Unequal, open_and_compare};
pub use initial::Inconsistent;
pub(crate) use initial::check as check_initial;

use super::{publish, remote};
use crate::node::Node;
use api::etcdserverpb::alarm_request::AlarmAction;
use api::etcdserverpb::{AlarmRequest, AlarmType, HashKvResponse};
use api::{Message, RaftRequest};
use peer::Connector;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use store::Member;
use telemetry::logging::{self, Value};

/// How often the thread checks whether a comparison is due or the member stops.
const POLL: Duration = Duration::from_millis(20);

/// A hash over the history of one member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Hash {
    hash: u32,
    compact_revision: i64,
    /// The member's current revision.
    revision: i64,
}

impl From<&HashKvResponse> for Hash {
    fn from(told: &HashKvResponse) -> Hash {
        let revision = told.header.as_ref().map_or(0, |header| header.revision);
        Hash { hash: told.hash, compact_revision: told.compact_revision, revision }
    }
}

/// The answer of another member.
struct Told {
    id: u64,
    /// `None` if it did not answer, or cannot hash that revision.
    hash: Option<Hash>,
}

/// Asks every other member for its hash at a revision. `ids` are the own member's and the cluster's.
fn ask(connector: &Connector, members: Vec<Member>, ids: (u64, u64), revision: i64, timeout: Duration) -> Vec<Told> {
    let (own, cluster) = ids;
    let others = members.into_iter().filter(|member| member.id != own && !member.peer_urls.is_empty());
    others.map(|member| Told { id: member.id, hash: ask_one(connector, &member, cluster, revision, timeout) }).collect()
}

fn ask_one(connector: &Connector, member: &Member, cluster: u64, revision: i64, timeout: Duration) -> Option<Hash> {
    for url in &member.peer_urls {
        match remote::hash_kv(connector, url, cluster, revision, timeout) {
            Ok(told) => return Some(Hash::from(&told)),
            Err(error) => logging::warn(
                "failed hash kv request",
                &[
                    ("requested-revision", revision.into()),
                    ("remote-peer-id", Value::Id(member.id)),
                    ("remote-peer-endpoint", url.into()),
                    ("error", Value::Shown(&error)),
                ],
            ),
        }
    }
    None
}

/// Compares until the member stops. Only a leader compares.
pub(crate) fn run(node: &Arc<Node>) {
    let settings = node.config.corruption;
    if settings.check_interval.is_none() && settings.compact_hash_interval.is_none() {
        return;
    }
    if let Some(interval) = settings.check_interval {
        logging::info("enabled corruption checking", &[("interval", Value::Shown(&format_args!("{interval:?}")))]);
    }
    let mut next = settings.check_interval.map(|interval| Instant::now() + interval);
    let mut next_compaction = settings.compact_hash_interval.map(|interval| Instant::now() + interval);
    let mut compactions = compaction::Checker::default();
    let is_due = |next: &mut Option<Instant>, interval: Option<Duration>| match (*next, interval) {
        (Some(at), Some(interval)) if Instant::now() >= at => {
            *next = Some(Instant::now() + interval);
            node.status.is_leader()
        }
        _ => false,
    };
    while !node.stopping.load(Ordering::Relaxed) {
        std::thread::sleep(POLL);
        if is_due(&mut next, settings.check_interval)
            && let Err(error) = periodic::check(node)
        {
            logging::warn("failed to check hash KV", &[("error", error.message().into())]);
        }
        if is_due(&mut next_compaction, settings.compact_hash_interval) {
            compactions.check(node);
        }
    }
}

/// Raises the alarm for a member, or for the whole cluster (0).
fn raise(node: &Arc<Node>, member_id: u64) {
    let kind = AlarmType::Corrupt as i32;
    if node.store.alarms().iter().any(|alarm| alarm.alarm == kind && alarm.member_id == member_id) {
        return;
    }
    logging::warn("data differs: raising the CORRUPT alarm", &[("member-id", Value::Id(member_id))]);
    let request = AlarmRequest { action: AlarmAction::Activate as i32, member_id, alarm: kind };
    if let Err(error) = publish::propose_and_wait(node, RaftRequest::Alarm, &request.encode_to_vec()) {
        logging::warn("cannot raise the CORRUPT alarm", &[("error", error.message().into())]);
    }
}

/// The members that are wrong, given the hashes of all members at one revision: those that differ from the majority. `None` without a
/// majority.
fn minority(hashes: &[(u64, u32)], members: usize) -> Option<Vec<u64>> {
    let votes = |hash: u32| hashes.iter().filter(|other| other.1 == hash).count();
    let right = hashes.iter().map(|member| member.1).find(|hash| votes(*hash) > members / 2)?;
    Some(hashes.iter().filter(|member| member.1 != right).map(|member| member.0).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_majority_is_right() {
        assert_eq!(minority(&[(1, 5), (2, 5), (3, 5)], 3), Some(vec![]));
        assert_eq!(minority(&[(1, 5), (2, 6), (3, 5)], 3), Some(vec![2]));
        assert_eq!(minority(&[(1, 6), (2, 5), (3, 5)], 3), Some(vec![1]), "it may be the leader");
        assert_eq!(minority(&[(1, 5), (2, 6)], 3), None, "the third did not answer");
        assert_eq!(minority(&[(1, 5), (2, 6)], 2), None);
        assert_eq!(minority(&[(1, 5), (2, 6), (3, 5), (4, 7), (5, 5)], 5), Some(vec![2, 4]));
    }
}

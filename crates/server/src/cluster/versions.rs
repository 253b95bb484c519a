//! The cluster's version: the lowest minor release among its members, decided by the leader and written to the log.

use super::{downgrade, publish, remote};
use crate::node::Node;
use api::membershippb::ClusterVersionSetRequest;
use api::{Message, RaftRequest};
use peer::Connector;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use store::Member;
use telemetry::logging::{self, Value};

/// Time between rounds while the version is settled.
const LOOK: Duration = Duration::from_secs(5);
/// Time between rounds while the version is not decided or may still change.
const LOOK_SOON: Duration = Duration::from_millis(500);
/// How long a member may take to report its version.
const ASK: Duration = Duration::from_secs(1);
const POLL: Duration = Duration::from_millis(50);

/// Major and minor number of a version.
pub(crate) type Minor = (u64, u64);

/// `3.7.3` and `3.7` are both 3.7.
pub(super) fn minor(version: &str) -> Option<Minor> {
    let mut parts = version.split('.');
    let minor = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
    Some(minor)
}

/// The version as it is written to the log.
pub(super) fn shown((major, minor): Minor) -> String {
    format!("{major}.{minor}.0")
}

/// Keeps the cluster version up to date until the member stops.
pub(crate) fn run(node: &Arc<Node>) {
    let mut next = Instant::now();
    let mut next_end = Instant::now();
    let mut known = minor(&node.store.cluster_version());
    while !node.stopping.load(Ordering::Relaxed) {
        std::thread::sleep(POLL);
        let current = minor(&node.store.cluster_version());
        let target = downgrade::under_way(&node.store.members().downgrade);
        if std::mem::replace(&mut known, current) != current && target.is_some() && target == current {
            let target = target.map_or(String::new(), shown);
            let fields = [("target-version", (&target).into()), ("server-version", api::version::ETCD.into())];
            logging::info("The server is ready to downgrade", &fields);
        }
        // Before that, a member alone decides the first version itself (`publish`).
        if !node.status.is_leader() || !node.opening.is_published() {
            continue;
        }
        if Instant::now() >= next {
            if let Some(version) = decide(current, target, || lowest(node)) {
                set(node, version);
            }
            let current = minor(&node.store.cluster_version());
            let settled = if target.is_some() { current == target } else { current >= minor(api::version::ETCD) };
            next = Instant::now() + if settled { LOOK } else { LOOK_SOON };
        }
        // A downgrade that has just begun does not wait for the next regular round.
        if target.is_some() && current != target {
            next = next.min(Instant::now() + LOOK_SOON);
        }
        if target.is_some() && Instant::now() >= next_end {
            downgrade::end_if_done(node, || versions(node));
            next_end = Instant::now() + node.config.downgrade_check_interval;
        }
    }
}

/// The new cluster version, if it must change. The first version is the lowest that members run, or the lowest
/// supported if one does not answer. Later it only rises. During a downgrade it becomes the target instead, if the
/// target is exactly one release below both the cluster version and the lowest release of a member.
fn decide(current: Option<Minor>, target: Option<Minor>, lowest: impl FnOnce() -> Option<Minor>) -> Option<Minor> {
    match (current, lowest(), target) {
        (None, lowest, _) => lowest.or_else(|| minor(api::version::MIN_CLUSTER)),
        (Some(_), None, _) => None,
        (Some(current), Some(_), Some(target)) if target == current => None,
        (Some(current), Some(lowest), Some(target)) => {
            let allowed = downgrade::below(current) == Some(target) && downgrade::below(lowest) == Some(target);
            if !allowed {
                let (target, current, lowest) = (shown(target), shown(current), shown(lowest));
                let fields = [
                    ("downgrade-target", (&target).into()),
                    ("cluster-version", (&current).into()),
                    ("minimal-server-version", (&lowest).into()),
                ];
                logging::error("cannot downgrade", &fields);
            }
            allowed.then_some(target)
        }
        (Some(current), Some(lowest), None) if lowest > current => Some(lowest),
        _ => None,
    }
}

/// The lowest release among the members; `None` when one does not answer.
fn lowest(node: &Node) -> Option<Minor> {
    versions(node)?.into_iter().min()
}

/// The releases of all members; `None` when one does not answer.
fn versions(node: &Node) -> Option<Vec<Minor>> {
    let members = node.store.members().members;
    let ask_or_own = |member: Member| if member.id == node.member_id { own() } else { ask(&node.connector, &member) };
    members.into_values().map(ask_or_own).collect()
}

fn own() -> Option<Minor> {
    minor(api::version::ETCD)
}

fn ask(connector: &Connector, member: &Member) -> Option<Minor> {
    let mut last = String::new();
    for url in &member.peer_urls {
        match remote::versions(connector, url, ASK) {
            Ok(versions) => return minor(&versions.server),
            Err(error) => last = error.to_string(),
        }
    }
    logging::warn("failed to get version", &[("remote-member-id", Value::Id(member.id)), ("error", (&last).into())]);
    None
}

fn set(node: &Arc<Node>, version: Minor) {
    let ver = shown(version);
    let request = ClusterVersionSetRequest { ver: ver.clone() };
    match publish::propose_and_wait(node, RaftRequest::ClusterVersionSet, &request.encode_to_vec()) {
        Ok(()) => logging::info("cluster version is updated", &[("cluster-version", (&ver).into())]),
        Err(error) => logging::warn("failed to update cluster version", &[("error", error.message().into())]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lowest_release_counts() {
        assert_eq!(minor("3.7.3"), Some((3, 7)));
        assert_eq!((minor("not_decided"), minor(""), minor("3")), (None, None, None));
        let (v6, v7) = (Some((3, 6)), Some((3, 7)));
        assert_eq!(decide(None, None, || v7), v7);
        assert_eq!(decide(None, None, || None), Some((3, 0)), "somebody is not up yet");
        assert_eq!(decide(Some((3, 0)), None, || v7), v7);
        assert_eq!(decide(v7, None, || v7), None);
        assert_eq!(decide(v7, None, || v6), None);
        assert_eq!(decide(v6, None, || None), None);
    }

    #[test]
    fn a_downgrade_lowers_the_version() {
        let (v5, v6, v7) = (Some((3, 5)), Some((3, 6)), Some((3, 7)));
        assert_eq!(decide(v7, v6, || v7), v6);
        assert_eq!(decide(v6, v6, || v7), None, "it is not raised again");
        assert_eq!(decide(v7, v6, || None), None);
        assert_eq!(decide(v7, v5, || v7), None);
        assert_eq!(decide(v7, v6, || v6), None, "somebody was too early");
        assert_eq!(decide(v6, None, || v7), v7, "it was cancelled");
    }
}

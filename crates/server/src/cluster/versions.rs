//! The cluster's version: the lowest minor release among its members, decided by the leader and written to the log.

use super::{publish, remote};
use crate::logging::{self, Value};
use crate::node::{self, Node};
use crate::peers::Gate;
use api::Message;
use api::membershippb::ClusterVersionSetRequest;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use store::Member;

/// Time between looks while all members run the same release,
const LOOK: Duration = Duration::from_secs(5);
/// and while the version is not decided or may rise.
const LOOK_SOON: Duration = Duration::from_millis(500);
/// How long a member may take to tell its version.
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

/// Watches over the version until the member stops.
pub(crate) fn run(node: &Arc<Node>) {
    let mut next = Instant::now();
    while !node.stopping.load(Ordering::Relaxed) {
        std::thread::sleep(POLL);
        if !node.status.is_leader() || Instant::now() < next {
            continue;
        }
        let current = minor(&node.store.cluster_version());
        if let Some(version) = decide(current, || lowest(node)) {
            set(node, version);
        }
        let settled = minor(&node.store.cluster_version()) >= minor(api::version::ETCD);
        next = Instant::now() + if settled { LOOK } else { LOOK_SOON };
    }
}

/// What the version should become. It is begun low when a member does not answer, and only ever raised.
fn decide(current: Option<Minor>, lowest: impl FnOnce() -> Option<Minor>) -> Option<Minor> {
    match (current, lowest()) {
        (None, lowest) => lowest.or_else(|| minor(api::version::MIN_CLUSTER)),
        (Some(current), Some(lowest)) if lowest > current => Some(lowest),
        _ => None,
    }
}

/// The lowest release among the members; `None` when one does not answer.
fn lowest(node: &Node) -> Option<Minor> {
    let members = node.store.members().members;
    members
        .into_values()
        .map(|member| if member.id == node.member_id { own() } else { ask(&node.gate, &member) })
        .min()
        .flatten()
}

fn own() -> Option<Minor> {
    minor(api::version::ETCD)
}

fn ask(gate: &Gate, member: &Member) -> Option<Minor> {
    let mut last = String::new();
    for url in &member.peer_urls {
        match remote::versions(gate, url, ASK) {
            Ok(versions) => return minor(&versions.server),
            Err(error) => last = error.to_string(),
        }
    }
    logging::warn("failed to get version", &[("remote-member-id", Value::Id(member.id)), ("error", (&last).into())]);
    None
}

fn set(node: &Arc<Node>, (major, minor): Minor) {
    let ver = format!("{major}.{minor}.0");
    let request = ClusterVersionSetRequest { ver: ver.clone() };
    match publish::propose_and_wait(node, node::CLUSTER_VERSION_SET, &request.encode_to_vec()) {
        Ok(()) => logging::info("set the cluster version", &[("cluster-version", (&ver).into())]),
        Err(error) => logging::warn("cannot set the cluster version", &[("error", error.message().into())]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lowest_release_counts() {
        assert_eq!(minor("3.7.3"), Some((3, 7)));
        assert_eq!((minor("not_decided"), minor(""), minor("3")), (None, None, None));
        assert_eq!(decide(None, || Some((3, 7))), Some((3, 7)));
        assert_eq!(decide(None, || None), Some((3, 0)), "somebody is not up yet");
        assert_eq!(decide(Some((3, 0)), || Some((3, 7))), Some((3, 7)));
        assert_eq!(decide(Some((3, 7)), || Some((3, 7))), None);
        assert_eq!(decide(Some((3, 7)), || Some((3, 6))), None);
        assert_eq!(decide(Some((3, 6)), || None), None);
    }
}

//! Downgrade of the cluster to the previous release: an operator enables it, the leader lowers the cluster's version, and it is complete
//! when every member runs that release. All of it is in the log.

use super::publish;
use super::versions::{Minor, minor, shown};
use crate::node::Node;
use api::membershippb::DowngradeInfoSetRequest;
use api::{Error, Message, RaftRequest};
use std::sync::Arc;
use store::Downgrade;
use telemetry::logging;

/// The release that a request names: `3.6` or `3.6.0`, the latter with an optional pre-release or build suffix of
/// semantic versions.
pub(crate) fn target(text: &str) -> Result<Minor, Error> {
    semantic(text).or_else(|| semantic(&format!("{text}.0"))).ok_or(Error::WrongDowngradeVersionFormat)
}

fn semantic(text: &str) -> Option<Minor> {
    let is_label = |label: &str| label.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '.'));
    let (rest, build) = text.split_once('+').unwrap_or((text, ""));
    let (numbers, pre) = rest.split_once('-').unwrap_or((rest, ""));
    let mut parts = numbers.split('.').map(|part| part.parse::<u64>().ok());
    let version = (parts.next()??, parts.next()??);
    parts.next()??;
    (parts.next().is_none() && is_label(build) && is_label(pre)).then_some(version)
}

/// The release before this one, the only one to which a cluster of this version can be downgraded.
pub(super) fn below((major, minor): Minor) -> Option<Minor> {
    minor.checked_sub(1).map(|minor| (major, minor))
}

/// The target of the downgrade under way, if there is one.
pub(super) fn under_way(downgrade: &Downgrade) -> Option<Minor> {
    minor(&downgrade.target_version).filter(|_| downgrade.enabled)
}

/// Whether a downgrade to `target` can begin, as far as this member knows.
pub(crate) fn check(node: &Node, target: Minor) -> Result<(), Error> {
    let members = node.store.members();
    let current = minor(&members.cluster_version).ok_or(Error::ClusterVersionUnavailable)?;
    if below(current) != Some(target) {
        return Err(Error::InvalidDowngradeTargetVersion);
    }
    if members.downgrade.enabled { Err(Error::DowngradeInProcess) } else { Ok(()) }
}

/// The request for the log that begins a downgrade to `target`, or ends it (`None`).
pub(crate) fn request(target: Option<Minor>) -> Vec<u8> {
    let ver = target.map_or(String::new(), shown);
    DowngradeInfoSetRequest { enabled: target.is_some(), ver }.encode_to_vec()
}

/// Ends the downgrade once every member runs the target release.
pub(super) fn end_if_done(node: &Arc<Node>, versions: impl FnOnce() -> Option<Vec<Minor>>) {
    let Some(target) = under_way(&node.store.members().downgrade) else { return };
    if versions().is_none_or(|versions| versions.iter().any(|version| *version != target)) {
        return;
    }
    logging::info("the cluster has been downgraded", &[("cluster-version", (&shown(target)).into())]);
    if let Err(error) = publish::propose_and_wait(node, RaftRequest::DowngradeInfoSet, &request(None)) {
        logging::warn("failed to cancel downgrade", &[("error", error.message().into())]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_of_requests() {
        for good in ["3.6", "3.6.0", "3.6.9", "3.6.0-rc.1", "3.6.0+build.5"] {
            assert_eq!(target(good), Ok((3, 6)), "{good}");
        }
        for bad in ["", "3", "v3.6", "3.6.x", "3.6.0.0", "3.-6", "three", "3.6.0-_", "3..6"] {
            assert_eq!(target(bad), Err(Error::WrongDowngradeVersionFormat), "{bad}");
        }
        assert_eq!((below((3, 7)), below((3, 0))), (Some((3, 6)), None));
    }

    #[test]
    fn what_the_log_is_told() {
        let read = |bytes: Vec<u8>| DowngradeInfoSetRequest::decode(&*bytes).expect("decodes");
        assert_eq!(read(request(Some((3, 6)))), DowngradeInfoSetRequest { enabled: true, ver: "3.6.0".into() });
        assert_eq!(read(request(None)), DowngradeInfoSetRequest { enabled: false, ver: String::new() });
        let downgrade = Downgrade { enabled: true, target_version: "3.6.0".into() };
        assert_eq!((under_way(&downgrade), under_way(&Downgrade::default())), (Some((3, 6)), None));
    }
}

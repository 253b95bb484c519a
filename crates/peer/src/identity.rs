//! This member's identity in the headers that peers exchange, and the check of theirs.

use api::version;
use http::{HeaderMap, HeaderName, HeaderValue};

pub(crate) const SERVER_FROM: HeaderName = HeaderName::from_static("x-server-from");
pub(crate) const SERVER_VERSION: HeaderName = HeaderName::from_static("x-server-version");
pub(crate) const MIN_CLUSTER_VERSION: HeaderName = HeaderName::from_static("x-min-cluster-version");
pub(crate) const CLUSTER_ID: HeaderName = HeaderName::from_static("x-etcd-cluster-id");
pub(crate) const RAFT_TO: HeaderName = HeaderName::from_static("x-raft-to");
/// Only members of Cairn send it: how far they are in what etcd's members do not know.
pub(crate) const CAIRN: HeaderName = HeaderName::from_static("x-cairn-peer");
/// Observers send it.
pub(crate) const OBSERVER: HeaderName = HeaderName::from_static("x-cairn-observer");
pub(crate) const PEER_URLS: HeaderName = HeaderName::from_static("x-peerurls");

/// The version assumed for etcd releases before 2.1, which sent none.
const NO_VERSION: &str = "2.0.0";

/// Why a peer is refused. The texts are compared by peers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Mismatch {
    #[error("incompatible version")]
    Version,
    #[error("cluster ID mismatch")]
    Cluster,
}

/// This member's identity.
pub(crate) struct Identity {
    pub(crate) member_id: u64,
    pub(crate) cluster_id: u64,
    /// The advertised peer URLs, with commas between them.
    pub(crate) urls: String,
}

impl Identity {
    /// The headers of every request to a peer.
    pub(crate) fn headers(&self) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert(SERVER_FROM, hex(self.member_id));
        headers.insert(SERVER_VERSION, HeaderValue::from_static(version::ETCD));
        headers.insert(MIN_CLUSTER_VERSION, HeaderValue::from_static(version::MIN_CLUSTER));
        headers.insert(CLUSTER_ID, hex(self.cluster_id));
        headers.insert(CAIRN, HeaderValue::from_static("1"));
        if let Ok(urls) = HeaderValue::from_str(&self.urls) {
            headers.insert(PEER_URLS, urls);
        }
        headers
    }

    /// Whether the sender of these headers belongs to this cluster and speaks a version that this member speaks.
    pub(crate) fn check(&self, headers: &HeaderMap) -> Result<(), Mismatch> {
        let (Some(remote), Some(remote_min)) = (minor(headers, &SERVER_VERSION), minor(headers, &MIN_CLUSTER_VERSION))
        else {
            return Err(Mismatch::Version);
        };
        if Some(remote) < parse_minor(version::MIN_CLUSTER) || Some(remote_min) > parse_minor(version::ETCD) {
            return Err(Mismatch::Version);
        }
        if headers.get(CLUSTER_ID) == Some(&hex(self.cluster_id)) { Ok(()) } else { Err(Mismatch::Cluster) }
    }
}

/// The member that a request names as its sender.
pub(crate) fn sender(headers: &HeaderMap) -> Option<u64> {
    parse_id(text(headers, &SERVER_FROM)?)
}

/// A header as text; `None` if it is missing or no text.
pub(crate) fn text<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a str> {
    headers.get(name)?.to_str().ok()
}

/// An id as written in paths and headers.
pub(crate) fn parse_id(text: &str) -> Option<u64> {
    u64::from_str_radix(text, 16).ok().filter(|_| !text.starts_with('+'))
}

/// An id as a header value.
pub(crate) fn hex(id: u64) -> HeaderValue {
    // Hex digits are always a valid header value.
    HeaderValue::from_str(&format!("{id:x}")).unwrap_or(HeaderValue::from_static(""))
}

fn minor(headers: &HeaderMap, name: &HeaderName) -> Option<(u64, u64)> {
    match headers.get(name) {
        None => parse_minor(NO_VERSION),
        Some(value) => parse_minor(value.to_str().ok()?),
    }
}

/// Major and minor number; further numbers never matter between members.
fn parse_minor(version: &str) -> Option<(u64, u64)> {
    let mut parts = version.split('.');
    let minor = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
    parts.next().map(|_| minor)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_and_clusters() {
        let own = Identity { member_id: 1, cluster_id: 0xab, urls: "http://a:1".into() };
        assert_eq!(own.check(&own.headers()), Ok(()));
        let with = |name: HeaderName, value: &'static str| {
            let mut headers = own.headers();
            headers.insert(name, HeaderValue::from_static(value));
            own.check(&headers)
        };
        assert_eq!(with(CLUSTER_ID, "ac"), Err(Mismatch::Cluster));
        assert_eq!(with(SERVER_VERSION, "2.3.8"), Err(Mismatch::Version));
        assert_eq!(with(SERVER_VERSION, "3.0.1"), Ok(()));
        assert_eq!(with(SERVER_VERSION, "nonsense"), Err(Mismatch::Version));
        assert_eq!(with(MIN_CLUSTER_VERSION, "3.7.9"), Ok(()));
        assert_eq!(with(MIN_CLUSTER_VERSION, "3.8.0"), Err(Mismatch::Version));
        let mut old = own.headers();
        old.remove(SERVER_VERSION);
        assert_eq!(own.check(&old), Err(Mismatch::Version));
        old = own.headers();
        old.remove(CLUSTER_ID);
        assert_eq!(own.check(&old), Err(Mismatch::Cluster));
    }

    #[test]
    fn ids() {
        assert_eq!(parse_id("8e9e05c52164694d"), Some(0x8e9e_05c5_2164_694d));
        for bad in ["", "+1", "-1", "x", "11111111111111111"] {
            assert_eq!(parse_id(bad), None, "{bad}");
        }
    }
}

//! Comparing two lists of peer URLs: as they are written, or else by the addresses of their hosts.

use std::net::{SocketAddr, ToSocketAddrs};
use std::time::{Duration, Instant};
use telemetry::logging;

/// Time between attempts to resolve a host: name servers may come up together with the members.
const RETRY: Duration = Duration::from_secs(1);
/// Longest time of all attempts together.
pub(super) const PATIENCE: Duration = Duration::from_secs(30);

/// Why two lists of URLs are not known to be the same.
#[derive(Debug, thiserror::Error)]
pub enum AddressError {
    /// The lists differ.
    #[error("`{}` and `{}` are different places", .0.join(","), .1.join(","))]
    Different(Vec<String>, Vec<String>),
    /// A host has no address.
    #[error("failed to resolve the host of `{url}`: {reason}")]
    Unresolved {
        /// The URL.
        url: String,
        /// The resolver's error.
        reason: String,
    },
}

/// `host:port` of an http URL.
pub(crate) fn authority(url: &str) -> &str {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    rest.split_once('/').map_or(rest, |(authority, _)| authority)
}

/// Whether both lists name the same addresses. Hosts are resolved only when the texts differ. `localhost` is not
/// resolved.
pub(super) fn same(left: &[String], right: &[String], deadline: Instant) -> Result<(), AddressError> {
    let different = || AddressError::Different(left.to_vec(), right.to_vec());
    if left.len() != right.len() {
        return Err(different());
    }
    if sorted(left.iter().map(|url| normal(url))) == sorted(right.iter().map(|url| normal(url))) {
        return Ok(());
    }
    let resolved = |urls: &[String]| urls.iter().map(|url| resolve(url, deadline)).collect::<Result<Vec<_>, _>>();
    let (left, right) = (resolved(left)?, resolved(right)?);
    if sorted(left.into_iter()) == sorted(right.into_iter()) { Ok(()) } else { Err(different()) }
}

/// Checks that every host resolves before `deadline`.
pub(super) fn resolvable(urls: &[String], deadline: Instant) -> Result<(), AddressError> {
    urls.iter().try_for_each(|url| resolve(url, deadline).map(drop))
}

fn sorted(urls: impl Iterator<Item = String>) -> Vec<String> {
    let mut urls: Vec<String> = urls.collect();
    urls.sort_unstable();
    urls
}

/// The URL with its host in lower case and IP addresses in one spelling.
fn normal(url: &str) -> String {
    if is_unix(url) {
        return url.to_string();
    }
    let (scheme, authority) = (url.split_once("://").map_or("", |(scheme, _)| scheme), authority(url));
    match authority.parse::<SocketAddr>() {
        Ok(address) => format!("{scheme}://{address}"),
        Err(_) => format!("{scheme}://{}", authority.to_ascii_lowercase()),
    }
}

/// Whether the URL names a Unix socket, which has no host.
fn is_unix(url: &str) -> bool {
    url.starts_with("unix:") || url.starts_with("unixs:")
}

fn resolve(url: &str, deadline: Instant) -> Result<String, AddressError> {
    let authority = authority(url);
    if authority.starts_with("localhost:") || is_unix(url) {
        return Ok(normal(url));
    }
    let scheme = url.split_once("://").map_or("", |(scheme, _)| scheme);
    loop {
        let reason = match first_address(authority) {
            Ok(address) => return Ok(format!("{scheme}://{address}")),
            Err(reason) => reason,
        };
        logging::warn("failed to resolve URL Host", &[("url", url.into()), ("error", (&reason).into())]);
        if Instant::now() + RETRY > deadline {
            return Err(AddressError::Unresolved { url: url.into(), reason });
        }
        std::thread::sleep(RETRY);
    }
}

/// The address that a connection to `authority` would try first; IPv4 before IPv6, so that every member picks the same.
pub(super) fn first_address(authority: &str) -> Result<SocketAddr, String> {
    let addresses: Vec<SocketAddr> = authority.to_socket_addrs().map_err(|error| error.to_string())?.collect();
    let first = addresses.iter().find(|address| address.is_ipv4()).or(addresses.first());
    first.copied().ok_or_else(|| "no address".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn urls(texts: &[&str]) -> Vec<String> {
        texts.iter().map(|text| text.to_string()).collect()
    }

    #[test]
    fn texts_and_addresses() {
        let soon = Instant::now();
        let equal = |left: &[&str], right: &[&str]| same(&urls(left), &urls(right), soon);
        assert!(
            equal(&["http://a.invalid:1", "http://b.invalid:2"], &["http://B.invalid:2", "http://a.invalid:1"]).is_ok()
        );
        assert!(equal(&["http://127.0.0.1:1"], &["http://127.0.0.1:1"]).is_ok());
        assert!(equal(&["http://[::1]:1"], &["http://[0:0:0:0:0:0:0:1]:1"]).is_ok());
        assert!(matches!(equal(&["http://127.0.0.1:1"], &["http://127.0.0.1:2"]), Err(AddressError::Different(..))));
        assert!(matches!(equal(&["http://127.0.0.1:1"], &["https://127.0.0.1:1"]), Err(AddressError::Different(..))));
        assert!(matches!(equal(&["http://127.0.0.1:1"], &["http://localhost:1"]), Err(AddressError::Different(..))));
        assert!(matches!(equal(&[], &["http://localhost:1"]), Err(AddressError::Different(..))));
        let unresolved = equal(&["http://127.0.0.1:1"], &["http://no-such-host.invalid:1"]);
        assert!(matches!(unresolved, Err(AddressError::Unresolved { .. })));
        assert!(resolvable(&urls(&["http://localhost:1", "http://127.0.0.1:2", "unix://etcd.unix:1"]), soon).is_ok());
        assert!(matches!(equal(&["unix://a:1"], &["unix://A:1"]), Err(AddressError::Different(..))));
        assert!(resolvable(&urls(&["http://no-such-host.invalid:1"]), soon).is_err());
    }
}

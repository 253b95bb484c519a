//! Members found by the SRV records of a domain.

use rpc::dns::{self, DnsError};
use std::hash::{BuildHasher, RandomState};

use crate::Endpoint;

/// Why a domain names no members.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DiscoveryError {
    /// Neither of the two services has records.
    #[error("dns lookup errors: {0} and {1}")]
    Lookup(String, String),
    /// A record that cannot be used.
    #[error(transparent)]
    Endpoint(#[from] crate::EndpointError),
}

/// Asks DNS for `_etcd-client-ssl._tcp.<domain>` and `_etcd-client._tcp.<domain>`, the services' names with `-<suffix>` if there is one.
/// Blocks as long as name servers take.
///
/// # Errors
/// If there are no records, or some cannot be used.
pub fn discover(domain: &str, suffix: &str) -> Result<Vec<Endpoint>, DiscoveryError> {
    let (servers, random) = (dns::servers(), RandomState::new());
    let ask = |service: &str, scheme: &str| -> Result<Vec<String>, DnsError> {
        let suffix = if suffix.is_empty() { String::new() } else { format!("-{suffix}") };
        let name = format!("_{service}{suffix}._tcp.{domain}");
        let records = dns::srv(&servers, &name, random.hash_one(&name) as u16)?;
        Ok(records.iter().map(|record| format!("{scheme}://{}:{}", record.target, record.port)).collect())
    };
    let urls = match (ask("etcd-client-ssl", "https"), ask("etcd-client", "http")) {
        (Err(secure), Err(plain)) => return Err(DiscoveryError::Lookup(secure.to_string(), plain.to_string())),
        (secure, plain) => [secure.unwrap_or_default(), plain.unwrap_or_default()].concat(),
    };
    urls.iter().map(|url| Ok(url.parse()?)).collect()
}

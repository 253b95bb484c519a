//! Discovery by DNS: `_etcd-server-ssl._tcp.<domain>` names the founding members whose peer URLs are `https`,
//! `_etcd-server._tcp.<domain>` those with `http`.

use super::addresses;
use super::bootstrap::Founders;
use crate::config::Srv;
use rpc::dns::{self, DnsError, Record};
use std::hash::{BuildHasher, RandomState};
use telemetry::logging;

/// Why DNS does not name the founders.
#[derive(Debug, thiserror::Error)]
pub enum SrvError {
    /// DNS has no records, or did not answer.
    #[error("error querying DNS SRV records: {0}")]
    Dns(#[from] DnsError),
    /// The host of a member has no address.
    #[error("failed to resolve `{host}`: {reason}")]
    Unresolved {
        /// The host.
        host: String,
        /// The resolver's error.
        reason: String,
    },
    /// No record names this member.
    #[error(
        "cannot find local member {name:?} in SRV records: none of {found} is at --initial-advertise-peer-urls={urls}"
    )]
    NotNamed {
        /// This member's name.
        name: String,
        /// The URLs in the records.
        found: String,
        /// The URLs that this member advertises.
        urls: String,
    },
}

/// Asks DNS for the founders. The one at an address that this member advertises is this member; the others are numbered.
pub(super) fn founders(srv: &Srv, name: &str, advertised: &[String]) -> Result<Founders, SrvError> {
    let service = |service: &str| {
        let suffix = if srv.service_suffix.is_empty() { String::new() } else { format!("-{}", srv.service_suffix) };
        format!("_{service}{suffix}._tcp.{}", srv.domain)
    };
    let servers = dns::servers();
    let id = RandomState::new().hash_one(&srv.domain) as u16;
    // Records of one of the two services are enough. Only `NotFound` counts as no records: a server that does not
    // answer may have some.
    let ask = |name: &str, id: u16| match dns::srv(&servers, &service(name), id) {
        Err(DnsError::NotFound(_)) => Ok(Vec::new()),
        answer => answer,
    };
    let found = [("https", ask("etcd-server-ssl", !id)?), ("http", ask("etcd-server", id)?)];
    if found.iter().all(|(_, records)| records.is_empty()) {
        return Err(DnsError::NotFound(service("etcd-server")).into());
    }
    let found = assign(&found, name, advertised, &|authority| addresses::first_address(authority))?;
    for (name, urls) in &found {
        logging::info("got bootstrap from DNS", &[("name", name.into()), ("url", (&urls.join(",")).into())]);
    }
    Ok(found)
}

fn assign(
    records: &[(&str, Vec<Record>)],
    name: &str,
    advertised: &[String],
    resolve: &dyn Fn(&str) -> Result<std::net::SocketAddr, String>,
) -> Result<Founders, SrvError> {
    let address = |host: &str| resolve(host).map_err(|reason| SrvError::Unresolved { host: host.into(), reason });
    let own = advertised.iter().map(|url| address(addresses::authority(url))).collect::<Result<Vec<_>, _>>()?;
    let mut founders = Founders::new();
    for (scheme, records) in records {
        // Each service is numbered on its own, as in etcd: the same number in both services is the same member.
        let mut number = 0;
        for record in records {
            let host = format!("{}:{}", record.target, record.port);
            let url = format!("{scheme}://{host}");
            // A host that does not resolve is an error: if only some members left its record out, they would found two
            // clusters.
            let founder = if own.contains(&address(&host)?) {
                name.to_string()
            } else {
                number += 1;
                (number - 1).to_string()
            };
            match founders.iter_mut().find(|known| known.0 == founder) {
                Some(known) => known.1.push(url),
                None => founders.push((founder, vec![url])),
            }
        }
    }
    if founders.iter().any(|founder| founder.0 == name) {
        return Ok(founders);
    }
    let found = founders.iter().map(|founder| founder.1.join(",")).collect::<Vec<_>>().join(",");
    Err(SrvError::NotNamed { name: name.into(), found, urls: advertised.join(",") })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::SocketAddr;

    fn resolve(authority: &str) -> Result<SocketAddr, String> {
        let number = authority.strip_prefix('m').and_then(|rest| rest.chars().next()).ok_or("unknown")?;
        format!("10.0.0.{number}:2380").parse().map_err(|_| "bad".to_string())
    }

    #[test]
    fn the_own_address_gets_the_own_name() {
        let record = |target: &str| Record { target: target.into(), port: 2380, priority: 0, weight: 0 };
        let records = || ["m1.x", "m2.x", "m3.x"].map(record).to_vec();
        let plain = [("http", records())];
        let found = assign(&plain, "me", &["http://m2.y:2380".into()], &resolve).unwrap_or_default();
        let names: Vec<&str> = found.iter().map(|founder| founder.0.as_str()).collect();
        assert_eq!(names, ["0", "me", "1"]);
        assert_eq!(found[1].1, ["http://m2.x:2380"]);
        let encrypted = [("https", records()), ("http", Vec::new())];
        let found = assign(&encrypted, "me", &["https://m2.y:2380".into()], &resolve).unwrap_or_default();
        assert_eq!(found[1], ("me".to_string(), vec!["https://m2.x:2380".to_string()]));
        let both = [("https", records()[..2].to_vec()), ("http", records()[2..].to_vec())];
        let found = assign(&both, "me", &["https://m2.y:2380".into()], &resolve).unwrap_or_default();
        assert_eq!(found[0], ("0".to_string(), vec!["https://m1.x:2380".to_string(), "http://m3.x:2380".to_string()]));
        let absent = assign(&plain, "me", &["http://m4.y:2380".into()], &resolve);
        assert!(matches!(absent, Err(SrvError::NotNamed { .. })));
        let unknown = assign(&plain, "me", &["http://other:2380".into()], &resolve);
        assert!(matches!(unknown, Err(SrvError::Unresolved { .. })));
    }
}

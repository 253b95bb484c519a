//! The members that connections are passed on to.

use client::{Discovered, DiscoveryError, discover_records, reachable};
use std::fmt;
use std::io;
use std::net::{IpAddr, ToSocketAddrs};
use telemetry::logging::{self, Value};

use crate::settings::{Discovery, Settings};

/// A member: where it is, and when it is used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Target {
    /// Name or address, without brackets.
    pub(crate) host: String,
    pub(crate) port: u16,
    /// Members with a higher one are used only while none with a lower one answers.
    pub(crate) priority: u16,
    /// The share of connections among members of the same priority.
    pub(crate) weight: u16,
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            write!(f, "[{}]:{}", self.host, self.port)
        } else {
            write!(f, "{}:{}", self.host, self.port)
        }
    }
}

/// What is wrong with the members or the address, in etcd's words.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum EndpointsError {
    #[error("error parsing endpoint {0:?}")]
    Endpoint(String),
    #[error("failed to validate listen address: {0}")]
    Listen(String),
    #[error("failed to resolve listen host: {0}")]
    ListenHost(String),
    #[error("failed to resolve endpoint host: {0}")]
    EndpointHost(String),
    #[error("SRV or endpoint ({target}->{found}:{port}) should not resolve to the gateway listen addr ({listen})")]
    Itself { target: Box<str>, found: IpAddr, port: u16, listen: Box<str> },
    #[error("no endpoints found")]
    None,
}

/// The members that DNS names, and if it names none, those of `--endpoints`.
pub(crate) fn find(settings: &Settings) -> Result<Vec<Target>, crate::StartError> {
    let mut found = settings.discovery.as_ref().map(discover).transpose()?.unwrap_or_default();
    if found.is_empty() {
        found = settings.endpoints.iter().map(|endpoint| parse(endpoint)).collect::<Result<_, _>>()?;
    }
    Ok(found)
}

fn discover(discovery: &Discovery) -> Result<Vec<Target>, DiscoveryError> {
    let found = discover_records(&discovery.domain, &discovery.suffix)?;
    tell(logging::info, discovery, "discovered cluster from SRV", &found, "");
    let usable = if discovery.is_insecure {
        found
    } else {
        tell(logging::info, discovery, "validating discovered SRV endpoints", &found, "");
        let (good, wrong) = reachable(found, &discovery.domain, discovery.authorities.as_deref());
        if wrong.is_empty() {
            tell(logging::info, discovery, "using validated discovered SRV endpoints", &good, "");
        } else {
            tell(logging::warn, discovery, "failed to validate discovered endpoints", &good, &wrong.join(","));
        }
        good
    };
    let target = |Discovered { record, .. }: Discovered| Target {
        host: record.target,
        port: record.port,
        priority: record.priority,
        weight: record.weight,
    };
    Ok(usable.into_iter().map(target).collect())
}

/// A way to write a line to the log.
type Line = fn(&str, &[(&str, Value<'_>)]);

/// Writes what was found in DNS to the log, and what is wrong with the rest.
fn tell(line: Line, discovery: &Discovery, text: &str, found: &[Discovered], wrong: &str) {
    let urls: Vec<String> = found.iter().map(Discovered::url).collect();
    let mut fields = vec![("srv-server", Value::from(&discovery.domain)), ("endpoints", Value::List(&urls))];
    if !wrong.is_empty() {
        fields.push(("error", wrong.into()));
    }
    line(text, &fields);
}

/// A member as `host:port`, with a scheme and a path or without.
fn parse(endpoint: &str) -> Result<Target, EndpointsError> {
    let authority = match endpoint.split_once("://") {
        Some((_, rest)) => rest.split('/').next().unwrap_or_default(),
        None => endpoint,
    };
    let (host, port) = split(authority).ok_or_else(|| EndpointsError::Endpoint(authority.into()))?;
    let port = port.parse().map_err(|_| EndpointsError::Endpoint(authority.into()))?;
    Ok(Target { host: host.into(), port, priority: 0, weight: 0 })
}

/// Host and port, the host without the brackets of an IPv6 address.
pub(crate) fn split(address: &str) -> Option<(&str, &str)> {
    let (host, port) = address.rsplit_once(':')?;
    if port.contains([']', '[']) {
        return None;
    }
    match host.strip_prefix('[') {
        Some(rest) => rest.strip_suffix(']').map(|host| (host, port)),
        None if host.contains([':', '[', ']']) => None,
        None => Some((host, port)),
    }
}

/// Refuses members that cannot be found, and those that are the gateway itself.
pub(crate) fn check(targets: &[Target], listen: &str) -> Result<(), EndpointsError> {
    let (host, port) = split(listen).ok_or_else(|| EndpointsError::Listen(listen.into()))?;
    let own = addresses(host).map_err(|_| EndpointsError::ListenHost(host.into()))?;
    for target in targets {
        let found = addresses(&target.host).map_err(|_| EndpointsError::EndpointHost(target.host.clone()))?;
        let same = found.into_iter().find(|found| own.contains(found) && target.port.to_string() == port);
        if let Some(found) = same {
            let (target, port) = (target.to_string().into(), target.port);
            return Err(EndpointsError::Itself { target, found, port, listen: listen.into() });
        }
    }
    if targets.is_empty() { Err(EndpointsError::None) } else { Ok(()) }
}

fn addresses(host: &str) -> io::Result<Vec<IpAddr>> {
    if host.is_empty() {
        return Err(io::ErrorKind::NotFound.into());
    }
    let found: Vec<IpAddr> = (host, 0).to_socket_addrs()?.map(|address| address.ip()).collect();
    if found.is_empty() { Err(io::ErrorKind::NotFound.into()) } else { Ok(found) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoints_with_and_without_a_scheme() {
        for (text, shown) in [
            ("127.0.0.1:2379", "127.0.0.1:2379"),
            ("http://m1:1", "m1:1"),
            ("https://[::1]:2379/path", "[::1]:2379"),
            ("[::1]:1", "[::1]:1"),
        ] {
            assert_eq!(parse(text).map(|target| target.to_string()), Ok(shown.into()), "{text}");
        }
        for text in ["nohost", "a:b", "::1:80", "[::1]", "a:99999", "http://", "x:", "[a:1", "a]:1"] {
            assert!(matches!(parse(text), Err(EndpointsError::Endpoint(_))), "{text}");
        }
        assert_eq!(parse("nohost").map_err(|error| error.to_string()), Err("error parsing endpoint \"nohost\"".into()));
    }

    #[test]
    fn addresses_that_cannot_be_used_are_refused() {
        let target = |text: &str| vec![parse(text).expect("a target")];
        let refused = |targets: &[Target], listen: &str| check(targets, listen).map_err(|error| error.to_string());
        let some = target("127.0.0.1:2379");
        for (targets, listen, why) in [
            (&some, "x", "failed to validate listen address: x"),
            (&some, ":23790", "failed to resolve listen host: "),
            (&some, "no.such.host.invalid:1", "failed to resolve listen host: no.such.host.invalid"),
            (&target("no.such.host.invalid:1"), "127.0.0.1:1", "failed to resolve endpoint host: no.such.host.invalid"),
            (&Vec::new(), "127.0.0.1:1", "no endpoints found"),
            (
                &target("127.0.0.1:23790"),
                "127.0.0.1:23790",
                "SRV or endpoint (127.0.0.1:23790->127.0.0.1:23790) should not resolve to the gateway listen addr \
                 (127.0.0.1:23790)",
            ),
        ] {
            assert_eq!(refused(targets, listen), Err(why.into()));
        }
        assert_eq!(refused(&some, "127.0.0.1:23790"), Ok(()));
    }
}

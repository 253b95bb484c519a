//! URLs of listeners and members.

use super::{ConfigError, invalid, unusable};
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

/// Where to listen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listen {
    /// The URL as it was given.
    pub url: String,
    /// Its address. `localhost` is the IPv4 loopback address.
    pub address: SocketAddr,
}

/// Where to listen for peers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ListenPeer {
    /// At a port.
    Tcp(Listen),
    /// At a Unix socket, whose path is relative to the working directory unless it begins with a slash.
    Unix {
        /// The URL as it was given.
        url: String,
        /// The path in it.
        path: PathBuf,
    },
}

/// The path of a `unix://path` URL.
fn unix_path(url: &str) -> Option<PathBuf> {
    url.strip_prefix("unix://").filter(|path| !path.is_empty()).map(PathBuf::from)
}

/// Refuses what is not a URL of a peer.
fn check_peer(flag: &str, url: &str) -> Result<(), ConfigError> {
    if unix_path(url).is_some() { Ok(()) } else { split(flag, url).map(drop) }
}

/// Splits `scheme://host:port`; refuses what is not an http URL of that form.
fn split<'a>(flag: &str, url: &'a str) -> Result<(&'a str, u16), ConfigError> {
    let Some(rest) = url.strip_prefix("http://") else {
        return match url.split_once("://") {
            Some((scheme @ ("https" | "unix" | "unixs"), _)) => {
                invalid(flag, url, format_args!("{scheme} URLs are not supported by this version"))
            }
            _ => invalid(flag, url, "URL scheme must be http, https, unix, or unixs"),
        };
    };
    if rest.contains('/') {
        return invalid(flag, url, "URL must not contain a path");
    }
    let Some((host, port)) = rest.rsplit_once(':') else {
        return invalid(flag, url, "URL address does not have the form \"host:port\"");
    };
    let Ok(port) = port.parse::<u16>() else { return invalid(flag, url, "the port must be in 0..=65535") };
    Ok((host, port))
}

/// Checks a comma-separated list of URLs.
pub(super) fn list(flag: &str, text: &str) -> Result<Vec<String>, ConfigError> {
    let urls: Vec<String> = text.split(',').map(|url| url.trim().to_string()).collect();
    for url in &urls {
        split(flag, url)?;
    }
    Ok(urls)
}

/// The same for URLs of peers.
pub(super) fn peer_list(flag: &str, text: &str) -> Result<Vec<String>, ConfigError> {
    let urls: Vec<String> = text.split(',').map(|url| url.trim().to_string()).collect();
    for url in &urls {
        check_peer(flag, url)?;
    }
    Ok(urls)
}

/// Peer URLs as a request names them; `None` unless there are some and each is a URL of a member.
pub(crate) fn peer_urls(urls: &[String]) -> Option<Vec<String>> {
    let urls: Vec<String> = urls.iter().map(|url| url.trim().to_string()).collect();
    (!urls.is_empty() && urls.iter().all(|url| check_peer("peer-urls", url).is_ok())).then_some(urls)
}

/// A comma-separated list of URLs to listen on: IP addresses or `localhost` only, so that no name server decides who can connect.
pub(super) fn listen(flag: &str, text: &str) -> Result<Vec<Listen>, ConfigError> {
    text.split(',').map(|url| listen_at(flag, url.trim())).collect()
}

fn listen_at(flag: &str, url: &str) -> Result<Listen, ConfigError> {
    let (host, port) = split(flag, url)?;
    let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    let ip: IpAddr = match bare {
        "localhost" => IpAddr::from([127, 0, 0, 1]),
        _ => match bare.parse() {
            Ok(ip) => ip,
            Err(_) => return unusable(flag, url, "expected IP in URL for binding"),
        },
    };
    Ok(Listen { url: url.to_string(), address: SocketAddr::new(ip, port) })
}

/// The same for peers, who may also be listened for at a Unix socket.
pub(super) fn listen_peer(flag: &str, text: &str) -> Result<Vec<ListenPeer>, ConfigError> {
    let place = |url: &str| match unix_path(url) {
        Some(path) => Ok(ListenPeer::Unix { url: url.to_string(), path }),
        None => listen_at(flag, url).map(ListenPeer::Tcp),
    };
    text.split(',').map(|url| place(url.trim())).collect()
}

/// `--initial-cluster`: `name=url` comma-separated, a name repeated for each of its URLs.
pub(super) fn cluster(text: &str) -> Result<Vec<(String, Vec<String>)>, ConfigError> {
    members("initial-cluster", text)
}

/// The same, from wherever the founding members are named.
pub(crate) fn members(flag: &str, text: &str) -> Result<Vec<(String, Vec<String>)>, ConfigError> {
    let mut members: Vec<(String, Vec<String>)> = Vec::new();
    for part in text.split(',').map(str::trim) {
        let Some((name, url)) = part.split_once('=').filter(|(name, _)| !name.is_empty()) else {
            return unusable(flag, text, format_args!("{part:?} is not name=URL"));
        };
        check_peer(flag, url)?;
        match members.iter_mut().find(|member| member.0 == name) {
            Some(member) => member.1.push(url.to_string()),
            None => members.push((name.to_string(), vec![url.to_string()])),
        }
    }
    Ok(members)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn listeners() {
        let urls =
            listen("listen-client-urls", "http://127.0.0.1:2379,http://[::1]:0,http://localhost:1").expect("valid");
        assert_eq!(urls.len(), 3);
        assert_eq!(urls[2].address, SocketAddr::from(([127, 0, 0, 1], 1)));
        for bad in
            ["127.0.0.1:1", "http://a.b:1", "ftp://127.0.0.1:1", "http://127.0.0.1", "http://127.0.0.1:99999", ""]
        {
            assert!(listen("listen-client-urls", bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn peers_may_have_unix_sockets() {
        let urls = listen_peer("listen-peer-urls", "http://127.0.0.1:2380,unix://localhost:20001").expect("valid");
        assert!(matches!(&urls[1], ListenPeer::Unix { path, .. } if path.as_os_str() == "localhost:20001"));
        assert!(peer_list("initial-advertise-peer-urls", "unix:///run/x,http://a:1").is_ok());
        assert!(cluster("a=unix://localhost:1").is_ok());
        assert!(peer_list("initial-advertise-peer-urls", "unix://").is_err());
        assert!(list("advertise-client-urls", "unix://localhost:1").is_err());
    }

    #[test]
    fn members_with_several_urls() {
        let members = cluster("a=http://x:1,b=http://y:1,a=http://x:2").expect("valid");
        assert_eq!(members[0].1.len(), 2);
        assert!(cluster("a").is_err() && cluster("=http://x:1").is_err());
    }
}

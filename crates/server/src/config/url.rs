//! URLs of listeners and members.

use super::ConfigError;
use super::values::unusable;
use api::limits::{PEER_URLS_BYTES_MAX, PEER_URLS_MAX};
use api::url::{At, Parts, split};
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

/// Where to listen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listen {
    /// The URL as it was given.
    pub url: String,
    /// Whether its scheme asks for TLS: `https` or `unixs`.
    pub secure: bool,
    /// The socket's address.
    pub place: Place,
}

/// The address of a socket that is listened at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// A port. `localhost` is the IPv4 loopback address.
    Tcp(SocketAddr),
    /// The file of a Unix socket, relative to the working directory unless its name begins with a slash.
    Unix(PathBuf),
}

impl fmt::Display for Place {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::Tcp(address) => address.fmt(out),
            Place::Unix(path) => path.display().fmt(out),
        }
    }
}

/// The URLs of a comma-separated list, each once, in order.
fn each(text: &str) -> impl Iterator<Item = &str> {
    let mut urls: Vec<&str> = text.split(',').map(str::trim).collect();
    urls.sort_unstable();
    urls.dedup();
    urls.into_iter()
}

/// Refuses a comma-separated list with something that is no URL.
pub(super) fn check_list(text: &str) -> Result<(), String> {
    each(text).try_for_each(|url| split(url).map(drop))
}

/// A comma-separated list of advertised URLs.
pub(super) fn list(flag: &str, form: &str, text: &str) -> Result<Vec<String>, ConfigError> {
    for url in each(text) {
        let why = match split(url) {
            Ok(Parts { at: At::Host("", _), .. }) => format!("unexpected empty host ({url})"),
            Ok(_) => continue,
            Err(why) => why,
        };
        return Err(ConfigError::Value(format!("--{flag} {text:?} must be {form} ({why})")));
    }
    Ok(each(text).map(Into::into).collect())
}

/// Peer URLs as a request names them; `None` unless there are some, not too many, and each is a URL of a member.
pub(crate) fn peer_urls(urls: &[String]) -> Option<Vec<String>> {
    let bytes = urls.iter().map(String::len).fold(0, usize::saturating_add);
    if !(1..=PEER_URLS_MAX).contains(&urls.len()) || bytes > PEER_URLS_BYTES_MAX {
        return None;
    }
    let urls: Vec<String> = urls.iter().map(|url| url.trim().to_string()).collect();
    urls.iter().all(|url| split(url).is_ok()).then_some(urls)
}

/// The IP address in a URL, if its host is one.
pub(super) fn ip(url: &str) -> Option<IpAddr> {
    match split(url).ok()?.at {
        At::Host(host, _) => bare(host).parse().ok(),
        At::Path(_) => None,
    }
}

/// An IPv6 address stands in brackets.
fn bare(host: &str) -> &str {
    host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host)
}

/// A comma-separated list of URLs to listen on: IP addresses or `localhost` only, so that no name server decides who can connect.
pub(super) fn listen(flag: &str, text: &str) -> Result<Vec<Listen>, ConfigError> {
    let mut listeners = Vec::new();
    for url in each(text) {
        let Parts { secure, at } = split(url).map_err(|why| unusable(flag, url, why))?;
        let place = match at {
            At::Path(path) => Place::Unix(path.into()),
            At::Host("localhost", port) => Place::Tcp(SocketAddr::from(([127, 0, 0, 1], port))),
            At::Host(host, port) => match bare(host).parse::<IpAddr>() {
                Ok(ip) => Place::Tcp(SocketAddr::new(ip, port)),
                Err(_) => return Err(unusable(flag, url, format_args!("expected IP in URL for binding ({url})"))),
            },
        };
        listeners.push(Listen { url: url.to_string(), secure, place });
    }
    Ok(listeners)
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
            return Err(unusable(flag, text, format_args!("{part:?} is not name=URL")));
        };
        split(url).map_err(|why| unusable(flag, text, why))?;
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
        let text =
            "http://127.0.0.1:2379,http://[::1]:0,https://localhost:1,http://127.0.0.1:2379,unix://localhost:20001";
        let urls = listen("listen-client-urls", text).expect("valid");
        assert_eq!(urls.len(), 4, "sorted, and each once");
        assert_eq!(urls[2].place, Place::Tcp(SocketAddr::from(([127, 0, 0, 1], 1))));
        assert_eq!(urls[3].place, Place::Unix("localhost:20001".into()));
        assert_eq!(urls.iter().map(|url| url.secure).collect::<Vec<_>>(), [false, false, true, false]);
        for bad in [
            "127.0.0.1:1",
            "http://a.b:1",
            "http://:1",
            "ftp://127.0.0.1:1",
            "http://127.0.0.1",
            "http://::1:1",
            "http://127.0.0.1:99999",
            "http://127.0.0.1:1/",
            "http:127.0.0.1:1",
            "http://127.0.0.1:1 ,",
            "unix://",
            "",
        ] {
            assert!(listen("listen-client-urls", bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn paths_of_unix_sockets() {
        for (url, path) in [("unix:///run/x", "/run/x"), ("unix:/run/x", "/run/x"), ("unixs://dir/x", "dir/x")] {
            let listener = listen("listen-client-urls", url).expect("valid").remove(0);
            assert_eq!(listener.place, Place::Unix(path.into()), "{url}");
            assert_eq!(listener.secure, url.starts_with("unixs"));
        }
    }

    #[test]
    fn told_to_others() {
        let told = |text| list("advertise-client-urls", "\"host:port\"", text);
        assert_eq!(told("http://b:1, https://a:1").expect("valid"), ["http://b:1", "https://a:1"]);
        assert!(told("http://:1").is_err() && told("http://a").is_err());
        assert!(cluster("a=unix://localhost:1").is_ok());
        assert!(peer_urls(&["http://a:1".into()]).is_some() && peer_urls(&["a:1".into()]).is_none());
        let many = |count, bytes| peer_urls(&vec![format!("http://{:a>1$}:1", "", bytes); count]).is_some();
        assert!(many(PEER_URLS_MAX, 60) && !many(PEER_URLS_MAX + 1, 60) && !many(PEER_URLS_MAX, 300));
    }

    #[test]
    fn members_with_several_urls() {
        let members = cluster("a=http://x:1,b=http://y:1,a=http://x:2").expect("valid");
        assert_eq!(members[0].1.len(), 2);
        assert!(cluster("a").is_err() && cluster("=http://x:1").is_err());
    }
}

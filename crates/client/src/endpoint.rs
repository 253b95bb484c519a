//! The address of a member.

use std::str::FromStr;

/// The port that is meant when none is given.
const PORT_DEFAULT: u16 = 2379;

/// A member's address: `host:port`, `http://host:port`, `https://host:port`, or the path of a socket after `unix:` or `unixs:`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Endpoint {
    /// As it was given.
    text: String,
    /// `host:port`, or `unix:path`.
    address: String,
    scheme: Option<Scheme>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Scheme {
    Http,
    Https,
    Unix,
    Unixs,
}

/// Why a text names no endpoint.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EndpointError {
    /// None of http, https, unix and unixs.
    #[error("endpoint `{0}` has a scheme that is none of http, https, unix and unixs")]
    Scheme(String),
    /// There is no host in it, or more than host and port.
    #[error("endpoint `{0}` is not `host:port`")]
    Authority(String),
    /// No endpoint at all.
    #[error("there is no endpoint")]
    None,
}

impl Endpoint {
    /// As it was given.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// `host:port`, or `unix:` and a path.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// Name or address of the member: of a socket with a path, what its file is called.
    pub fn host(&self) -> &str {
        let last = match self.address.strip_prefix("unix:") {
            Some(path) => path.rsplit('/').next().unwrap_or(path),
            None => &self.address,
        };
        let host = match last.rsplit_once(':') {
            Some((host, port)) if port.parse::<u16>().is_ok() => host,
            _ => last,
        };
        host.trim_matches(['[', ']'])
    }

    /// Whether it asks for TLS.
    pub fn is_encrypted(&self) -> bool {
        matches!(self.scheme, Some(Scheme::Https | Scheme::Unixs))
    }

    /// Whether it says nothing about TLS.
    pub(crate) fn leaves_open(&self) -> bool {
        matches!(self.scheme, None | Some(Scheme::Unix))
    }
}

impl std::fmt::Display for Endpoint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.text)
    }
}

impl FromStr for Endpoint {
    type Err = EndpointError;

    fn from_str(text: &str) -> Result<Endpoint, EndpointError> {
        let text = text.trim();
        for (prefix, scheme) in [("unix:", Scheme::Unix), ("unixs:", Scheme::Unixs)] {
            if let Some(rest) = text.strip_prefix(prefix) {
                let path = rest.strip_prefix("//").unwrap_or(rest);
                if path.is_empty() {
                    return Err(EndpointError::Authority(text.into()));
                }
                return Ok(Endpoint { text: text.into(), address: format!("unix:{path}"), scheme: Some(scheme) });
            }
        }
        let (scheme, rest) = match text.split_once("://") {
            None => (None, text),
            Some(("http", rest)) => (Some(Scheme::Http), rest),
            Some(("https", rest)) => (Some(Scheme::Https), rest),
            Some(_) => return Err(EndpointError::Scheme(text.into())),
        };
        let rest = rest.strip_suffix('/').unwrap_or(rest);
        // The last colon that is not inside the brackets of an IPv6 address.
        let port = rest.rfind(':').filter(|colon| rest.rfind(']').is_none_or(|bracket| bracket < *colon));
        let is_host = |host: &str| !host.is_empty() && !host.contains(['/', '?', '#', '@', ' ']);
        let address = match port {
            Some(colon) if is_host(&rest[..colon]) && rest[colon + 1..].parse::<u16>().is_ok() => rest.to_string(),
            None if is_host(rest) => format!("{rest}:{PORT_DEFAULT}"),
            _ => return Err(EndpointError::Authority(text.into())),
        };
        Ok(Endpoint { text: text.into(), address, scheme })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn schemes_and_ports_may_be_left_out() {
        let parsed = |text: &str| {
            let found: Endpoint = text.parse().expect("an endpoint");
            (found.address().to_string(), found.host().to_string(), found.is_encrypted())
        };
        let is = |address: &str, host: &str, encrypted| (address.to_string(), host.to_string(), encrypted);
        assert_eq!(parsed("127.0.0.1:2379"), is("127.0.0.1:2379", "127.0.0.1", false));
        assert_eq!(parsed("http://node-1:1"), is("node-1:1", "node-1", false));
        assert_eq!(parsed("https://[::1]:12379/"), is("[::1]:12379", "::1", true));
        assert_eq!(parsed("[::1]"), is("[::1]:2379", "::1", false));
        assert_eq!(parsed(" localhost "), is("localhost:2379", "localhost", false));
        assert_eq!(parsed("unix:///run/a.sock"), is("unix:/run/a.sock", "a.sock", false));
        assert_eq!(parsed("unixs://localhost:71"), is("unix:localhost:71", "localhost", true));
        assert_eq!(parsed("unix:here"), is("unix:here", "here", false));
    }

    #[test]
    fn what_is_no_address_is_refused() {
        for text in ["", ":2379", "http://", "a b:1", "a:99999", "http://a:1/path", "user@host:1", "unix://"] {
            assert_eq!(text.parse::<Endpoint>(), Err(EndpointError::Authority(text.trim().into())), "{text}");
        }
        assert_eq!("ftp://a:1".parse::<Endpoint>(), Err(EndpointError::Scheme("ftp://a:1".into())));
    }
}

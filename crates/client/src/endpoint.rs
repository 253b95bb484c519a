//! Where a member is reached.

use std::str::FromStr;

/// The port that is meant when none is given.
const PORT_DEFAULT: u16 = 2379;

/// A member's address: `host:port`, `http://host:port` or `https://host:port`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Endpoint {
    /// As it was given.
    text: String,
    /// `host:port`.
    authority: String,
    is_https: bool,
}

/// Why a text names no endpoint.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EndpointError {
    /// Neither http nor https.
    #[error("endpoint `{0}` has a scheme that is neither http nor https")]
    Scheme(String),
    /// There is no host in it, or more than host and port.
    #[error("endpoint `{0}` is not `host:port`")]
    Authority(String),
    /// TLS, which this client does not speak yet.
    #[error("endpoint `{0}` asks for TLS, which this client does not speak yet")]
    Tls(String),
    /// No endpoint at all.
    #[error("there is no endpoint")]
    None,
}

impl Endpoint {
    /// As it was given.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// `host:port`.
    pub fn authority(&self) -> &str {
        &self.authority
    }

    /// Whether the URL asks for TLS.
    pub fn is_https(&self) -> bool {
        self.is_https
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
        let (is_https, rest) = match text.split_once("://") {
            None => (false, text),
            Some(("http", rest)) => (false, rest),
            Some(("https", rest)) => (true, rest),
            Some(_) => return Err(EndpointError::Scheme(text.into())),
        };
        let rest = rest.strip_suffix('/').unwrap_or(rest);
        // The last colon that is not inside the brackets of an IPv6 address.
        let port = rest.rfind(':').filter(|colon| rest.rfind(']').is_none_or(|bracket| bracket < *colon));
        let is_host = |host: &str| !host.is_empty() && !host.contains(['/', '?', '#', '@', ' ']);
        let authority = match port {
            Some(colon) if is_host(&rest[..colon]) && rest[colon + 1..].parse::<u16>().is_ok() => rest.to_string(),
            None if is_host(rest) => format!("{rest}:{PORT_DEFAULT}"),
            _ => return Err(EndpointError::Authority(text.into())),
        };
        Ok(Endpoint { text: text.into(), authority, is_https })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn schemes_and_ports_may_be_left_out() {
        let parsed = |text: &str| text.parse::<Endpoint>().map(|found| (found.authority.clone(), found.is_https));
        assert_eq!(parsed("127.0.0.1:2379"), Ok(("127.0.0.1:2379".into(), false)));
        assert_eq!(parsed("http://node-1:1"), Ok(("node-1:1".into(), false)));
        assert_eq!(parsed("https://[::1]:12379/"), Ok(("[::1]:12379".into(), true)));
        assert_eq!(parsed("[::1]"), Ok(("[::1]:2379".into(), false)));
        assert_eq!(parsed(" localhost "), Ok(("localhost:2379".into(), false)));
    }

    #[test]
    fn what_is_no_address_is_refused() {
        for text in ["", ":2379", "http://", "a b:1", "a:99999", "http://a:1/path", "user@host:1"] {
            assert_eq!(text.parse::<Endpoint>(), Err(EndpointError::Authority(text.trim().into())), "{text}");
        }
        assert_eq!("ftp://a:1".parse::<Endpoint>(), Err(EndpointError::Scheme("ftp://a:1".into())));
    }
}

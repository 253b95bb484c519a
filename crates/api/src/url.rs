//! URLs of members.

/// The parts of a URL that matter here.
pub struct Parts<'a> {
    /// Whether its scheme asks for TLS: `https` or `unixs`.
    pub secure: bool,
    /// Where the member is.
    pub at: At<'a>,
}

/// A place in a URL.
pub enum At<'a> {
    /// A host and its port.
    Host(&'a str, u16),
    /// The file of a Unix socket.
    Path(&'a str),
}

/// Takes a URL apart.
///
/// # Errors
/// What is wrong with it, in etcd's words.
pub fn split(url: &str) -> Result<Parts<'_>, String> {
    let scheme = || format!("URL scheme must be http, https, unix, or unixs: {url}");
    let (name, rest) = url.split_once(':').ok_or_else(scheme)?;
    let secure = match name {
        "http" | "unix" => false,
        "https" | "unixs" => true,
        _ => return Err(scheme()),
    };
    if url.contains(|c: char| c.is_control() || c == ' ') {
        return Err(format!("invalid character in URL: {url:?}"));
    }
    let rest = rest.strip_prefix("//");
    if name.starts_with("unix") {
        // One slash less is the same: unix:/run/x and unix:///run/x.
        let path = rest.or_else(|| url.split_once(':').map(|parts| parts.1)).unwrap_or_default();
        return match path {
            "" => Err(format!("URL names no socket: {url}")),
            path => Ok(Parts { secure, at: At::Path(path) }),
        };
    }
    let form = || format!("URL address does not have the form \"host:port\": {url}");
    let rest = rest.ok_or_else(form)?;
    let (authority, path) = rest.find(['/', '?', '#']).map_or((rest, ""), |at| rest.split_at(at));
    let (host, port) = authority.rsplit_once(':').ok_or_else(form)?;
    if host.contains(':') && !(host.starts_with('[') && host.ends_with(']')) {
        return Err(form());
    }
    if !path.is_empty() {
        return Err(format!("URL must not contain a path: {url}"));
    }
    match port.parse() {
        Ok(port) => Ok(Parts { secure, at: At::Host(host, port) }),
        Err(_) if !port.bytes().all(|byte| byte.is_ascii_digit()) => {
            Err(format!("parse {url:?}: invalid port \":{port}\" after host"))
        }
        Err(_) => Err(format!("the port must be in 0..=65535: {url}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_wrong_is_said_in_etcds_words() {
        let wrong = |url: &str| split(url).err().unwrap_or_default();
        for url in ["http://a:1", "https://[::1]:2", "unix:///run/x", "unixs://dir/x", "http://:1"] {
            assert_eq!(wrong(url), "", "{url}");
        }
        assert_eq!(wrong("foo"), "URL scheme must be http, https, unix, or unixs: foo");
        assert_eq!(wrong("ftp://a:1"), "URL scheme must be http, https, unix, or unixs: ftp://a:1");
        assert_eq!(wrong("http://a"), "URL address does not have the form \"host:port\": http://a");
        assert_eq!(wrong("http://a:1/x"), "URL must not contain a path: http://a:1/x");
        assert_eq!(wrong("http://a:b"), "parse \"http://a:b\": invalid port \":b\" after host");
        for url in ["", "http://", "http://::1:1", "http://a:99999", "unix://", "http://a b:1"] {
            assert!(split(url).is_err(), "{url}");
        }
    }
}

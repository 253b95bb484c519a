//! Peer URLs, and connecting to them.

use crate::timeouts::after;
use socket2::{Domain, Socket, TcpKeepalive, Type};
use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
#[cfg(feature = "test-support")]
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// How long a connection may be silent before the kernel probes the other side.
const KEEPALIVE: Duration = Duration::from_secs(30);

/// Fuzzed URLs must not lead to other machines.
#[cfg(feature = "test-support")]
pub static LOOPBACK_ONLY: AtomicBool = AtomicBool::new(false);

/// Why a URL cannot be used.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("peer URL `{url}`: {reason}")]
pub struct BadUrl {
    url: String,
    reason: &'static str,
}

/// The address in a peer URL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Address {
    /// Whether the scheme requires TLS: `https` or `unixs`.
    pub(crate) secure: bool,
    /// The socket.
    pub(crate) place: Place,
}

/// The socket of a peer URL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// `http://host:port`.
    Tcp {
        /// A name or an IP address.
        host: String,
        /// The port; 80 or 443 if the URL has none.
        port: u16,
    },
    /// `unix://path`, relative to the working directory unless the path begins with a slash.
    Unix(PathBuf),
}

impl Address {
    /// Parses a URL.
    pub(crate) fn parse(url: &str) -> Result<Address, BadUrl> {
        let bad = |reason| BadUrl { url: url.to_string(), reason };
        let (scheme, rest) = url.split_once("://").ok_or_else(|| bad("not a URL"))?;
        let secure = scheme.ends_with('s');
        match scheme {
            "http" | "https" => {}
            "unix" | "unixs" if rest.is_empty() => return Err(bad("a path is missing")),
            "unix" | "unixs" => return Ok(Address { secure, place: Place::Unix(rest.into()) }),
            _ => return Err(bad("the scheme must be http, https, unix or unixs")),
        }
        let authority = rest.split_once('/').map_or(rest, |(authority, _)| authority);
        let (host, port) = match authority.rsplit_once(':') {
            Some((host, port)) if !port.ends_with(']') => {
                (host, port.parse().map_err(|_| bad("the port must be in 0..=65535"))?)
            }
            _ => (authority, if secure { 443 } else { 80 }),
        };
        let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        if host.is_empty() {
            return Err(bad("a host is missing"));
        }
        Ok(Address { secure, place: Place::Tcp { host: host.into(), port } })
    }

    /// The name or address for which the certificate must be valid.
    pub(crate) fn name(&self) -> &str {
        match &self.place {
            Place::Tcp { host, .. } => host,
            Place::Unix(_) => "localhost",
        }
    }

    /// The value of a request's `Host` line. For a Unix socket it is not the path, which can contain any byte.
    pub(crate) fn host(&self) -> String {
        match &self.place {
            Place::Tcp { host, port } if host.contains(':') => format!("[{host}]:{port}"),
            Place::Tcp { host, port } => format!("{host}:{port}"),
            Place::Unix(_) => "localhost".into(),
        }
    }

    /// Connects to the first of a name's addresses that answers. `from` is the local address to connect from.
    pub(crate) fn connect(&self, from: Option<IpAddr>, timeout: Duration) -> io::Result<Socket> {
        match &self.place {
            Place::Unix(path) => Ok(Socket::from(OwnedFd::from(UnixStream::connect(path)?))),
            Place::Tcp { host, port } => {
                let socket = connect_tcp(host, *port, from, after(timeout))?;
                prepare(&socket)?;
                Ok(socket)
            }
        }
    }
}

fn connect_tcp(host: &str, port: u16, from: Option<IpAddr>, deadline: Instant) -> io::Result<Socket> {
    #[cfg(feature = "test-support")]
    if LOOPBACK_ONLY.load(Ordering::Relaxed)
        && host != "localhost"
        && !host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
    {
        return Err(io::Error::new(io::ErrorKind::NetworkUnreachable, "tests connect to loopback only"));
    }
    let mut last = io::Error::new(io::ErrorKind::NotFound, format!("no address is known for `{host}`"));
    for address in (host, port).to_socket_addrs()? {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        match connect_from(from, address, left) {
            Ok(socket) => return Ok(socket),
            Err(error) => last = error,
        }
    }
    Err(last)
}

fn connect_from(from: Option<IpAddr>, to: SocketAddr, timeout: Duration) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(to), Type::STREAM, None)?;
    socket.set_cloexec(true)?;
    // A local address of the other family cannot reach the host.
    if let Some(from) = from.filter(|from| from.is_ipv4() == to.is_ipv4()) {
        socket.bind(&SocketAddr::new(from, 0).into())?;
    }
    socket.connect_timeout(&to.into(), timeout)?;
    Ok(socket)
}

/// Options of every TCP connection between members.
pub(crate) fn prepare(socket: &Socket) -> io::Result<()> {
    socket.set_tcp_nodelay(true)?;
    socket.set_tcp_keepalive(&TcpKeepalive::new().with_time(KEEPALIVE).with_interval(KEEPALIVE))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls() {
        let at = |secure, host: &str, port| Ok(Address { secure, place: Place::Tcp { host: host.into(), port } });
        let tcp = |host, port| at(false, host, port);
        let unix = |secure, path: &str| Ok(Address { secure, place: Place::Unix(path.into()) });
        assert_eq!(Address::parse("https://a.b:2380"), at(true, "a.b", 2380));
        assert_eq!(Address::parse("https://[::1]"), at(true, "::1", 443));
        assert_eq!(Address::parse("unixs:///tmp/x"), unix(true, "/tmp/x"));
        assert_eq!(Address::parse("http://a.b:2380"), tcp("a.b", 2380));
        assert_eq!(Address::parse("http://a.b:2380/"), tcp("a.b", 2380));
        assert_eq!(Address::parse("http://[::1]:2380"), tcp("::1", 2380));
        assert_eq!(Address::parse("http://[::1]"), tcp("::1", 80));
        assert_eq!(Address::parse("unix://localhost:20001"), unix(false, "localhost:20001"));
        assert_eq!(Address::parse("unix:///tmp/x"), unix(false, "/tmp/x"));
        for bad in ["", "a:1", "http://", "http://:1", "http://a:x", "http://a:65536", "ftp://a:1", "unix://"] {
            assert!(Address::parse(bad).is_err(), "{bad}");
        }
    }
}

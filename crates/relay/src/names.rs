//! The addresses of members.

use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::sync::Arc;
use std::thread;
use tokio::sync::{Mutex, oneshot};
use tokio::time::Instant;

use crate::endpoints::Target;

/// Addresses of one name that are tried.
pub(crate) const ADDRESSES_MAX: usize = 8;

/// Looks a name up. Blocks as long as name servers take.
type Resolve = fn(&str, u16) -> io::Result<Vec<SocketAddr>>;

/// What a lookup found, and when it began.
type Found = Option<(Instant, Vec<SocketAddr>)>;

/// The name of a member. There is one lookup of it at a time, so that a name whose servers do not answer holds one thread, and none that
/// other names need.
#[derive(Debug)]
pub(crate) struct Name {
    host: Arc<str>,
    port: u16,
    found: Arc<Mutex<Found>>,
    resolve: Resolve,
}

impl Name {
    /// The name of `target`.
    pub(crate) fn new(target: &Target) -> Name {
        let resolve: Resolve = |host, port| Ok((host, port).to_socket_addrs()?.take(ADDRESSES_MAX).collect());
        Name { host: target.host.as_str().into(), port: target.port, found: Arc::default(), resolve }
    }

    /// Its addresses, by a lookup that begins now or was waited for.
    pub(crate) async fn addresses(&self) -> io::Result<Vec<SocketAddr>> {
        if let Ok(ip) = self.host.parse::<IpAddr>() {
            return Ok(vec![SocketAddr::new(ip, self.port)]);
        }
        let asked = Instant::now();
        let mut found = self.found.clone().lock_owned().await;
        if let Some((_, addresses)) = found.as_ref().filter(|(began, _)| *began >= asked) {
            return Ok(addresses.clone());
        }
        let (tell, told) = oneshot::channel();
        let (host, port, resolve) = (self.host.clone(), self.port, self.resolve);
        thread::Builder::new().name("lookup".into()).spawn(move || {
            let began = Instant::now();
            let answer = resolve(&host, port);
            *found = answer.as_ref().ok().map(|addresses| (began, addresses.clone()));
            // Whoever asked may have given up.
            let _ = tell.send(answer);
        })?;
        told.await.unwrap_or_else(|_| Err(io::ErrorKind::NotFound.into()))
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A name with these addresses.
    pub(crate) fn name(resolve: Resolve) -> Name {
        Name { host: "a.name".into(), port: 1, found: Arc::default(), resolve }
    }
}

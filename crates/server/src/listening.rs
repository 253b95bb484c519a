//! The sockets at which this member listens, and the protocols of each.

use crate::config::{Config, Listen, Place};
use crate::system::socket_file::{self, SocketFile};
use crate::tls::{ClientGate, Tls};
use peer::Security;
use rpc::{Acceptor, Gatekeeper, Serves};
use socket2::{Domain, Socket, Type};
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use telemetry::logging;

/// The sockets of a member, bound.
pub(crate) struct Listening {
    /// For clients.
    pub(crate) clients: Vec<rpc::Listener>,
    /// For metrics and health.
    pub(crate) metrics: Vec<rpc::Listener>,
    /// For peers.
    pub(crate) peers: Vec<peer::Listener>,
    /// The files of Unix sockets of clients.
    files: Vec<SocketFile>,
}

/// One socket, and everything that URLs say about it.
struct Spot<'a> {
    url: &'a str,
    place: &'a Place,
    plaintext: bool,
    secure: bool,
    grpc: bool,
    http: bool,
}

/// Brings URLs that name the same socket together.
fn spots<'a>(lists: &[(&'a [Listen], bool, bool)]) -> Vec<Spot<'a>> {
    let mut spots: Vec<Spot<'a>> = Vec::new();
    for (list, grpc, http) in lists {
        for listen in *list {
            // Port 0 is another one each time.
            let is_any = matches!(&listen.place, Place::Tcp(address) if address.port() == 0);
            let place = match spots.iter().position(|spot| spot.place == &listen.place && !is_any) {
                Some(place) => place,
                None => {
                    let (plaintext, secure, grpc, http) = (false, false, false, false);
                    spots.push(Spot { url: &listen.url, place: &listen.place, plaintext, secure, grpc, http });
                    spots.len() - 1
                }
            };
            let spot = &mut spots[place];
            spot.secure |= listen.secure;
            spot.plaintext |= !listen.secure;
            spot.grpc |= grpc;
            spot.http |= http;
        }
    }
    spots
}

impl Spot<'_> {
    fn bind(&self, reuse_port: bool, files: &mut Vec<SocketFile>) -> Result<Acceptor, String> {
        let bound = match self.place {
            Place::Tcp(address) => bind(*address, reuse_port).map(Acceptor::Tcp),
            Place::Unix(path) => socket_file::listen(path).map(|(listener, file)| {
                files.push(file);
                Acceptor::Unix(listener)
            }),
        };
        bound.map_err(|error| in_use(self.url, &error))
    }

    fn listener(
        &self,
        gate: Option<Arc<dyn Gatekeeper>>,
        reuse_port: bool,
        files: &mut Vec<SocketFile>,
    ) -> Result<rpc::Listener, String> {
        let serves = match (self.grpc, self.http) {
            (true, false) => Serves::Grpc,
            (false, true) => Serves::Http,
            _ => Serves::All,
        };
        let gatekeeper = gate.filter(|_| self.secure);
        Ok(rpc::Listener { acceptor: self.bind(reuse_port, files)?, gatekeeper, plaintext: self.plaintext, serves })
    }
}

/// Connections that may wait to be accepted: what the standard library asks for.
const BACKLOG: i32 = 4096;

/// Listens at a port that old connections may still hold, and other processes as well if so wanted.
fn bind(address: SocketAddr, reuse_port: bool) -> std::io::Result<TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, None)?;
    socket.set_cloexec(true)?;
    socket.set_reuse_address(true)?;
    socket.set_reuse_port(reuse_port)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    Ok(socket.into())
}

fn in_use(url: &str, error: &std::io::Error) -> String {
    format!("cannot listen on `{url}`: {error}")
}

impl Listening {
    /// Binds all sockets. No connection is answered yet.
    pub(crate) fn bind(config: &Config, tls: &Tls) -> Result<Listening, String> {
        let shared = config.listen_client_http.is_empty();
        let clients = spots(&[(&config.listen_client, true, shared), (&config.listen_client_http, false, true)]);
        let metrics = spots(&[(&config.listen_metrics, false, true)]);
        let needs_gate = clients.iter().chain(&metrics).any(|spot| spot.secure);
        let gate: Option<Arc<dyn Gatekeeper>> = match needs_gate {
            true => Some(Arc::new(ClientGate::new(tls.client.clone())?)),
            false => None,
        };
        let mut files = Vec::new();
        let mut listeners = |spots: &[Spot<'_>]| -> Result<Vec<rpc::Listener>, String> {
            spots.iter().map(|spot| spot.listener(gate.clone(), config.socket_reuse_port, &mut files)).collect()
        };
        let mut peers = Vec::new();
        for spot in spots(&[(&config.listen_peer, true, true)]) {
            let bound = match spot.place {
                Place::Tcp(address) => peer::Listener::bind(*address, config.socket_reuse_port),
                Place::Unix(path) => socket_file::listen(path)
                    .and_then(|(socket, file)| peer::Listener::unix(socket, move || file.remove())),
            };
            let security = match (spot.secure, spot.plaintext) {
                (true, true) => Security::Both,
                (true, false) => Security::Tls,
                _ => Security::Plaintext,
            };
            peers.push(bound.map_err(|error| in_use(spot.url, &error))?.with(security));
        }
        let (clients, metrics) = (listeners(&clients)?, listeners(&metrics)?);
        Ok(Listening { clients, metrics, peers, files })
    }

    /// Takes the files of Unix sockets, to be removed at the end.
    pub(crate) fn take_files(&mut self) -> Vec<SocketFile> {
        std::mem::take(&mut self.files)
    }
}

/// Says where clients are served, and how, as etcd does.
pub(crate) fn announce(config: &Config) {
    let shared = config.listen_client_http.is_empty();
    for (list, traffic) in
        [(&config.listen_client, if shared { "grpc+http" } else { "grpc" }), (&config.listen_client_http, "http")]
    {
        for listen in list {
            let address = listen.place.to_string();
            let fields = [("traffic", traffic.into()), ("address", (&address).into())];
            match listen.secure {
                true => logging::info("serving client traffic securely", &fields),
                false => logging::info("serving client traffic insecurely; this is strongly discouraged!", &fields),
            }
        }
    }
}

/// Says where metrics and health are told.
pub(crate) fn announce_metrics(config: &Config) {
    for listen in &config.listen_metrics {
        logging::info("serving metrics", &[("address", (&listen.url).into())]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listen(url: &str, port: u16, secure: bool) -> Listen {
        Listen { url: url.into(), secure, place: Place::Tcp(([127, 0, 0, 1], port).into()) }
    }

    #[test]
    fn urls_of_one_socket_come_together() {
        let grpc = [listen("http://a", 1, false), listen("https://a", 1, true), listen("https://b", 2, true)];
        let http =
            [listen("http://c", 3, false), listen("https://b", 2, true), listen("x", 0, false), listen("y", 0, false)];
        let spots = spots(&[(&grpc, true, false), (&http, false, true)]);
        let seen: Vec<_> = spots.iter().map(|spot| (spot.plaintext, spot.secure, spot.grpc, spot.http)).collect();
        assert_eq!(
            seen,
            [
                (true, true, true, false),
                (false, true, true, true),
                (true, false, false, true),
                (true, false, false, true),
                (true, false, false, true)
            ]
        );
    }
}

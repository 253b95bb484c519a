//! The sockets that peers connect to.

use super::address::prepare;
use super::connection::{self, HANDSHAKE_TIMEOUT};
use super::door::Door;
use super::gate::Security;
use super::shared::Shared;
use crate::system::socket_file::{self, SocketFile};
use socket2::{Domain, SockAddr, Socket, Type};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;
use telemetry::logging::{self, Pace, Value};

/// Connections that may wait to be accepted.
const BACKLOG: i32 = 1024;

/// A socket on which peers are listened for.
pub(crate) struct Listener {
    door: Door,
    /// The file of a Unix socket.
    file: Option<SocketFile>,
    security: Security,
}

impl Listener {
    /// Takes an address. Until [`Listener::open`] whoever connects is sent away at once.
    pub(crate) fn bind(address: SocketAddr, reuse_port: bool) -> io::Result<Listener> {
        let socket = Socket::new(Domain::for_address(address), Type::STREAM, None)?;
        socket.set_cloexec(true)?;
        // As any listener: connections of an earlier run that linger must not hold the port.
        socket.set_reuse_address(true)?;
        socket.set_reuse_port(reuse_port)?;
        socket.bind(&address.into())?;
        Listener::over(socket)
    }

    /// Listens on a Unix socket.
    pub(crate) fn unix(path: &Path) -> io::Result<Listener> {
        let (listener, file) = socket_file::listen(path)?;
        let listener = Listener::over(OwnedFd::from(listener))?;
        Ok(Listener { file: Some(file), ..listener })
    }

    /// Listens on a socket that has an address.
    pub(super) fn over(socket: impl Into<Socket>) -> io::Result<Listener> {
        let socket = socket.into();
        socket.set_nonblocking(false)?;
        socket.listen(BACKLOG)?;
        Ok(Listener { door: Door::close(socket)?, file: None, security: Security::Plaintext })
    }

    /// The same socket with TLS, or without.
    pub(crate) fn with(mut self, security: Security) -> Listener {
        self.security = security;
        self
    }

    /// Where it listens; `None` for a Unix socket.
    #[cfg(feature = "test-support")]
    pub(crate) fn address(&self) -> Option<SocketAddr> {
        self.door.address()
    }

    /// Serves everybody who connects from now on.
    pub(super) fn open(&self, shared: &Arc<Shared>) {
        let (shared, security) = (shared.clone(), self.security);
        self.door.open(Box::new(move |socket, address| welcome(&shared, socket, security, address)));
    }

    /// Closes the socket. To be called after [`Shared::stop`].
    pub(super) fn stop(self) {
        drop(self.door);
        if let Some(file) = self.file {
            file.remove();
        }
    }
}

fn welcome(shared: &Arc<Shared>, socket: Socket, security: Security, address: &SockAddr) {
    let host = address.as_socket().map(|address| address.ip());
    let address = show(address);
    if let Err(error) = admit(shared, socket, security, host, &address) {
        rejected(&address, &error);
    }
}

fn admit(
    shared: &Arc<Shared>,
    socket: Socket,
    security: Security,
    host: Option<IpAddr>,
    address: &str,
) -> io::Result<()> {
    let place = shared.places.take(&socket, host)?;
    let place = place.ok_or_else(|| io::Error::other("too many connections are open already"))?;
    if socket.local_addr()?.as_socket().is_some() {
        prepare(&socket)?;
    }
    let (shared, address) = (shared.clone(), address.to_string());
    let serve = move || match shared.gate.take(socket, security, HANDSHAKE_TIMEOUT) {
        Ok(stream) => connection::serve(&shared, stream, &address, place),
        Err(error) => rejected(&address, &error),
    };
    std::thread::Builder::new().name("peer-serve".into()).spawn(serve).map(drop)
}

fn show(address: &SockAddr) -> String {
    address.as_socket().map_or_else(|| "unix".to_string(), |address| address.to_string())
}

/// Says why somebody was turned away.
pub(super) fn rejected(address: &str, error: &dyn std::fmt::Display) {
    static PACE: Pace = Pace::new();
    if let Some(left_out) = PACE.line() {
        logging::warn(
            "rejected connection on peer endpoint",
            &[("remote-addr", address.into()), ("error", Value::Shown(error)), ("lines-left-out", left_out.into())],
        );
    }
}

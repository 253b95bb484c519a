//! The sockets that peers connect to.

use crate::acceptor::Acceptor;
use crate::address::prepare;
use crate::connection::{self, HANDSHAKE_TIMEOUT};
use crate::connector::Security;
use crate::rejection::rejected;
use crate::shared::Shared;
use socket2::{Domain, SockAddr, Socket, Type};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixListener;
use std::sync::Arc;

/// Limit of connections that wait to be accepted.
const BACKLOG: i32 = 1024;

/// A socket that accepts peers.
pub struct Listener {
    acceptor: Acceptor,
    /// Called once the socket is closed.
    closed: Option<Box<dyn FnOnce() + Send>>,
    security: Security,
}

impl Listener {
    /// Listens on an address. Until it is opened, connections are closed at once.
    pub fn bind(address: SocketAddr, reuse_port: bool) -> io::Result<Listener> {
        let socket = Socket::new(Domain::for_address(address), Type::STREAM, None)?;
        socket.set_cloexec(true)?;
        // As for any listener, lingering connections of an earlier run must not block the port.
        socket.set_reuse_address(true)?;
        socket.set_reuse_port(reuse_port)?;
        socket.bind(&address.into())?;
        Listener::over(socket)
    }

    /// Listens on a Unix socket. `closed` is called once it is closed, to remove its file.
    pub fn unix(socket: UnixListener, closed: impl FnOnce() + Send + 'static) -> io::Result<Listener> {
        let listener = Listener::over(OwnedFd::from(socket))?;
        Ok(Listener { closed: Some(Box::new(closed)), ..listener })
    }

    /// Listens on a socket that has an address.
    pub(crate) fn over(socket: impl Into<Socket>) -> io::Result<Listener> {
        let socket = socket.into();
        socket.set_nonblocking(false)?;
        socket.listen(BACKLOG)?;
        Ok(Listener { acceptor: Acceptor::start(socket)?, closed: None, security: Security::Plaintext })
    }

    /// This socket with the given kind of security.
    pub fn with(mut self, security: Security) -> Listener {
        self.security = security;
        self
    }

    /// The socket's address; `None` for a Unix socket.
    #[cfg(feature = "test-support")]
    pub fn address(&self) -> Option<SocketAddr> {
        self.acceptor.address()
    }

    /// Serves connections from now on.
    pub(crate) fn open(&self, shared: &Arc<Shared>) {
        let (shared, security) = (shared.clone(), self.security);
        self.acceptor.open(Box::new(move |socket, address| welcome(&shared, socket, security, address)));
    }

    /// Closes the socket. To be called after [`Shared::stop`].
    pub(crate) fn stop(self) {
        drop(self.acceptor);
        if let Some(closed) = self.closed {
            closed();
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
    let serve = move || match shared.connector.take(socket, security, HANDSHAKE_TIMEOUT) {
        Ok(stream) => connection::serve(&shared, stream, &address, place),
        Err(error) => rejected(&address, &error),
    };
    std::thread::Builder::new().name("peer-serve".into()).spawn(serve).map(drop)
}

fn show(address: &SockAddr) -> String {
    address.as_socket().map_or_else(|| "unix".to_string(), |address| address.to_string())
}

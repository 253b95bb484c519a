//! Accepting the connections of peers.

use super::address::prepare;
use super::connection::{self, HANDSHAKE_TIMEOUT};
use super::gate::Security;
use super::shared::Shared;
use crate::logging::{self, Value};
use crate::node::lock;
use socket2::{Domain, SockAddr, Socket, Type};
use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, Shutdown, SocketAddr, TcpListener};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

/// Connections that are served at once, streams not counted. Each has a thread and a bounded buffer.
const CONNECTIONS_MAX: usize = 256;
/// Those from one host. A peer needs less than ten.
const HOST_CONNECTIONS_MAX: usize = 128;
/// Connections that may wait to be accepted.
const BACKLOG: i32 = 1024;
/// Pause after an accept that failed for want of descriptors or memory.
const SHORTAGE_PAUSE: Duration = Duration::from_millis(50);

/// A socket on which peers are listened for.
pub(crate) struct Listener {
    socket: Socket,
    /// The file of a Unix socket.
    path: Option<PathBuf>,
    security: Security,
}

impl From<TcpListener> for Listener {
    fn from(listener: TcpListener) -> Listener {
        Listener { socket: listener.into(), path: None, security: Security::Plaintext }
    }
}

impl Listener {
    /// Takes an address without answering there yet: until the member knows who it is, peers are refused at once instead of
    /// waiting for it.
    pub(crate) fn bind(address: SocketAddr, reuse_port: bool) -> io::Result<Listener> {
        let socket = Socket::new(Domain::for_address(address), Type::STREAM, None)?;
        socket.set_cloexec(true)?;
        // As any listener: connections of an earlier run that linger must not hold the port.
        socket.set_reuse_address(true)?;
        socket.set_reuse_port(reuse_port)?;
        socket.bind(&address.into())?;
        Ok(Listener { socket, path: None, security: Security::Plaintext })
    }

    /// Listens on a Unix socket. A file that is left over from an earlier run is replaced, as etcd does.
    pub(crate) fn unix(path: PathBuf) -> io::Result<Listener> {
        match std::fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let socket = Socket::from(OwnedFd::from(UnixListener::bind(&path)?));
        Ok(Listener { socket, path: Some(path), security: Security::Plaintext })
    }

    /// The same socket with TLS, or without.
    pub(crate) fn with(mut self, security: Security) -> Listener {
        self.security = security;
        self
    }

    /// Serves everybody who connects.
    pub(super) fn start(self, shared: &Arc<Shared>) -> io::Result<Acceptor> {
        self.socket.set_nonblocking(false)?;
        self.socket.listen(BACKLOG)?;
        let listening = self.socket.try_clone()?;
        let (shared, security) = (shared.clone(), self.security);
        let accept = move || accept(&shared, &listening, security);
        let thread = std::thread::Builder::new().name("peer-accept".into()).spawn(accept)?;
        Ok(Acceptor { listener: self, thread })
    }
}

/// A thread that waits in `accept`.
pub(super) struct Acceptor {
    listener: Listener,
    thread: JoinHandle<()>,
}

impl Acceptor {
    /// Ends the thread and closes the socket. To be called after [`Shared::stop`].
    pub(super) fn stop(self) {
        // Makes the accept that is waiting return.
        if self.listener.socket.shutdown(Shutdown::Both).is_ok() {
            // It does nothing but accept: a panic there has nothing to tell.
            let _ = self.thread.join();
        }
        if let Some(path) = self.listener.path {
            // Whoever listens there next replaces it anyway.
            let _ = std::fs::remove_file(path);
        }
    }
}

fn accept(shared: &Arc<Shared>, listener: &Socket, security: Security) {
    let mut is_full = false;
    while !shared.is_stopping() {
        let (socket, address) = match listener.accept() {
            Ok(accepted) => accepted,
            // The peer has gone before it was accepted, or a signal came.
            Err(error) if matches!(error.kind(), io::ErrorKind::ConnectionAborted | io::ErrorKind::Interrupted) => {
                continue;
            }
            Err(_) => {
                shared.pause(SHORTAGE_PAUSE);
                continue;
            }
        };
        let host = address.as_socket().map(|address| address.ip());
        let address = show(&address);
        let Some(guard) = Counted::new(shared, host) else {
            if !is_full {
                rejected(&address, &"too many connections are open already");
            }
            is_full = true;
            continue;
        };
        is_full = false;
        if let Err(error) = serve(shared, socket, security, &address, guard) {
            rejected(&address, &error);
        }
    }
}

fn serve(shared: &Arc<Shared>, socket: Socket, security: Security, address: &str, guard: Counted) -> io::Result<()> {
    if socket.local_addr()?.as_socket().is_some() {
        prepare(&socket)?;
    }
    let (shared, address) = (shared.clone(), address.to_string());
    let serve = move || {
        match shared.gate.take(socket, security, HANDSHAKE_TIMEOUT) {
            Ok(stream) => connection::serve(&shared, stream, &address),
            Err(error) => rejected(&address, &error),
        }
        drop(guard);
    };
    std::thread::Builder::new().name("peer-serve".into()).spawn(serve).map(drop)
}

/// The connections that are open, by the host they come from.
#[derive(Default)]
pub(super) struct Connections(Mutex<HashMap<Option<IpAddr>, usize>>);

impl Connections {
    /// All of them.
    #[cfg(test)]
    pub(super) fn total(&self) -> usize {
        lock(&self.0).values().sum()
    }
}

/// Counts an open connection.
struct Counted {
    shared: Arc<Shared>,
    host: Option<IpAddr>,
}

impl Counted {
    /// `None` if there are too many, or too many from this host: one that goes astray must not keep the peers out.
    fn new(shared: &Arc<Shared>, host: Option<IpAddr>) -> Option<Counted> {
        let mut open = lock(&shared.connections.0);
        if open.values().sum::<usize>() >= CONNECTIONS_MAX {
            return None;
        }
        let of_host = open.entry(host).or_default();
        if *of_host >= HOST_CONNECTIONS_MAX {
            return None;
        }
        *of_host += 1;
        Some(Counted { shared: shared.clone(), host })
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        let mut open = lock(&self.shared.connections.0);
        if let Some(of_host) = open.get_mut(&self.host) {
            *of_host -= 1;
            if *of_host == 0 {
                open.remove(&self.host);
            }
        }
    }
}

fn show(address: &SockAddr) -> String {
    address.as_socket().map_or_else(|| "unix".to_string(), |address| address.to_string())
}

/// Says why somebody was turned away.
pub(super) fn rejected(address: &str, error: &dyn std::fmt::Display) {
    logging::warn(
        "rejected connection on peer endpoint",
        &[("remote-addr", address.into()), ("error", Value::Shown(error))],
    );
}

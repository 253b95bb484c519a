//! Accepts connections.

use socket2::{Domain, Protocol, Socket, Type};
use std::convert::Infallible;
use std::io;
use std::net::{SocketAddr, TcpListener, ToSocketAddrs};
use std::thread;
use std::time::Duration;

use crate::StartError;
use crate::limits::turned_away;
use crate::worker::Worker;

/// Connections that may wait in the system to be accepted.
const BACKLOG: i32 = 4096;
/// Pause after an accept that failed for lack of descriptors or memory.
const SHORTAGE_PAUSE: Duration = Duration::from_millis(50);

/// A socket that listens at the first address of `host:port` that can be listened at.
pub(crate) fn bind(address: &str) -> io::Result<TcpListener> {
    let mut last = io::Error::from(io::ErrorKind::NotFound);
    let mut found: Vec<SocketAddr> = address.to_socket_addrs()?.collect();
    // IPv4 first, as etcd: clients that are given `127.0.0.1` must reach a gateway at `localhost`.
    found.sort_by_key(SocketAddr::is_ipv6);
    for address in found {
        match listen(address) {
            Ok(listener) => return Ok(listener),
            Err(error) => last = error,
        }
    }
    Err(last)
}

fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    Ok(socket.into())
}

/// What accepts connections, and who gets them.
pub(crate) struct Accepting {
    pub(crate) listener: TcpListener,
    pub(crate) workers: Vec<Worker>,
    pub(crate) connections_max: usize,
}

impl Accepting {
    /// Accepts connections as long as the process runs.
    pub(crate) fn run(self) -> Result<Infallible, StartError> {
        loop {
            match self.listener.accept() {
                Ok((socket, _)) => {
                    let open: usize = self.workers.iter().map(Worker::open).sum();
                    if open < self.connections_max {
                        if let Some(worker) = self.workers.iter().min_by_key(|worker| worker.open()) {
                            worker.take(socket);
                        }
                        continue;
                    }
                    // Closed at once, it tells the client to go elsewhere; left unaccepted, it would only keep it waiting.
                    turned_away(&format_args!("{open} are open, and no more may be"));
                }
                // The client has gone before it was accepted, or a signal came.
                Err(error) if matches!(error.kind(), io::ErrorKind::ConnectionAborted | io::ErrorKind::Interrupted) => {
                }
                Err(error) => {
                    turned_away(&error);
                    thread::sleep(SHORTAGE_PAUSE);
                }
            }
        }
    }
}

//! Accepts connections and spreads them over the request threads.

use std::fmt;
use std::io;
use std::net::TcpListener;
use std::os::unix::net::UnixListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use super::arrival::Arrival;
use super::handshake::Handshakes;
use super::mailbox::{Mail, Mailbox};
use super::secure::Gatekeeper;
use super::socket::Acceptor;
use crate::stats::Shard;
use crate::{Options, Peer, Serves, Service, Stats};

/// Pause after an accept that failed for lack of descriptors or memory.
const SHORTAGE_PAUSE: Duration = Duration::from_millis(50);

/// Connections that a request thread may have waiting for their first turn. What comes beyond waits in the system's queue: a thread
/// with thousands of new connections would delay those that it serves, and hold memory for each.
const ARRIVALS_MAX: u64 = 16;

/// Pause while all request threads have that many.
const ARRIVALS_PAUSE: Duration = Duration::from_micros(200);

/// Where connections come from, and what they may be.
pub struct Listener {
    /// The socket, bound already.
    pub acceptor: Acceptor,
    /// With it, connections begin with a TLS handshake. Without, they are plaintext.
    pub gatekeeper: Option<Arc<dyn Gatekeeper>>,
    /// Plaintext is served too, recognized by the first byte. Without a gatekeeper, only plaintext is.
    pub plaintext: bool,
    /// What is served.
    pub serves: Serves,
}

impl Listener {
    fn plain(acceptor: Acceptor) -> Listener {
        Listener { acceptor, gatekeeper: None, plaintext: true, serves: Serves::All }
    }
}

impl From<TcpListener> for Listener {
    fn from(listener: TcpListener) -> Listener {
        Listener::plain(Acceptor::Tcp(listener))
    }
}

impl From<UnixListener> for Listener {
    fn from(listener: UnixListener) -> Listener {
        Listener::plain(Acceptor::Unix(listener))
    }
}

/// A request thread as seen from outside.
#[derive(Clone)]
pub(crate) struct Seat {
    pub(crate) mailbox: Arc<Mailbox>,
    pub(crate) stats: Arc<Shard>,
}

impl Seat {
    fn is_crowded(&self) -> bool {
        self.stats.arrivals.load(Ordering::Relaxed) >= ARRIVALS_MAX
    }
}

/// Gives an arrival to the request thread that has the fewest connections, of those that keep up.
pub(crate) fn assign(seats: &[Seat], arrival: Arrival) {
    let load = |seat: &&Seat| (seat.is_crowded(), seat.stats.open.load(Ordering::Relaxed));
    if let Some(seat) = seats.iter().min_by_key(load) {
        seat.stats.open.fetch_add(1, Ordering::Relaxed);
        seat.stats.arrivals.fetch_add(1, Ordering::Relaxed);
        seat.mailbox.post(Mail::Connection(arrival));
    }
}

/// A thread that waits in `accept`.
pub(crate) struct Accepting {
    acceptor: Acceptor,
    stopping: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

/// What such a thread needs.
struct Door {
    listener: Listener,
    handshakes: Option<Arc<Handshakes>>,
    stopping: Arc<AtomicBool>,
    hall: Hall,
}

/// What all of them have in common.
#[derive(Clone)]
pub(crate) struct Hall {
    pub(crate) seats: Vec<Seat>,
    pub(crate) options: Arc<Options>,
    pub(crate) stats: Arc<Stats>,
    pub(crate) service: Arc<dyn Service>,
}

impl Accepting {
    pub(crate) fn start(listener: Listener, handshakes: Option<Arc<Handshakes>>, hall: Hall) -> io::Result<Accepting> {
        assert!(listener.gatekeeper.is_some() || listener.plaintext, "a listener where nothing is spoken");
        listener.acceptor.set_blocking()?;
        let acceptor = listener.acceptor.try_clone()?;
        let stopping = Arc::new(AtomicBool::new(false));
        let door = Door { listener, handshakes, stopping: stopping.clone(), hall };
        let thread = thread::Builder::new().name("accept".to_string()).spawn(move || door.accept())?;
        Ok(Accepting { acceptor, stopping, thread })
    }

    /// Ends the thread and closes the socket.
    pub(crate) fn stop(self) {
        self.stopping.store(true, Ordering::SeqCst);
        if self.acceptor.shut().is_ok() {
            // It does nothing but accept: the result of the thread has no meaning.
            let _ = self.thread.join();
        }
    }
}

impl Hall {
    fn turn_away(&self, why: &dyn fmt::Display) {
        self.stats.turn_away();
        self.service.turned_away(why);
    }
}

impl Door {
    /// Whether another connection may be open. If not, it is counted.
    fn has_room(&self) -> bool {
        let shaking = self.handshakes.as_ref().map_or(0, |handshakes| handshakes.count() as u64);
        let open = self.hall.stats.connections_open().saturating_add(shaking);
        if open < self.hall.options.connections_max {
            return true;
        }
        self.hall.turn_away(&format_args!("{open} are open, and no more may be"));
        false
    }

    fn accept(&self) {
        let hall = &self.hall;
        while !self.stopping.load(Ordering::SeqCst) {
            if hall.seats.iter().all(Seat::is_crowded) {
                thread::sleep(ARRIVALS_PAUSE);
                continue;
            }
            match self.listener.acceptor.accept() {
                // Closed at once, it tells the client to go elsewhere; left unaccepted, it would only keep it waiting.
                Ok(_) if !self.has_room() => {}
                Ok((socket, address)) => {
                    if socket.prepare(hall.options.write_timeout).is_err() {
                        continue;
                    }
                    let arrival = Arrival::new(socket, Peer::unknown(address), self.listener.serves);
                    match (&self.listener.gatekeeper, &self.handshakes) {
                        (Some(gatekeeper), Some(handshakes)) => {
                            handshakes.begin(arrival, gatekeeper.clone(), self.listener.plaintext);
                        }
                        _ => assign(&hall.seats, arrival),
                    }
                }
                // The client has gone before it was accepted, or a signal came.
                Err(error) if matches!(error.kind(), io::ErrorKind::ConnectionAborted | io::ErrorKind::Interrupted) => {
                }
                // Woken to end.
                Err(_) if self.stopping.load(Ordering::SeqCst) => {}
                Err(error) => {
                    hall.turn_away(&error);
                    thread::sleep(SHORTAGE_PAUSE);
                }
            }
        }
    }
}

/// Whether any of `listeners` needs handshakes.
pub(crate) fn any_secure(listeners: &[Listener]) -> bool {
    listeners.iter().any(|listener| listener.gatekeeper.is_some())
}

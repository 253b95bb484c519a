//! Accepts connections and spreads them over the request threads.

use std::io;
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use socket2::SockRef;

use crate::Peer;
use crate::mailbox::{Mail, Mailbox};
use crate::stats::Shard;

/// Pause after an accept that failed for want of descriptors or memory.
const SHORTAGE_PAUSE: Duration = Duration::from_millis(50);

/// A request thread as seen from outside.
#[derive(Clone)]
pub(crate) struct Seat {
    pub(crate) mailbox: Arc<Mailbox>,
    pub(crate) stats: Arc<Shard>,
}

/// A thread that waits in `accept`.
pub(crate) struct Listener {
    socket: TcpListener,
    stopping: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

impl Listener {
    pub(crate) fn start(listener: TcpListener, seats: Vec<Seat>, write_timeout: Duration) -> io::Result<Listener> {
        listener.set_nonblocking(false)?;
        let socket = listener.try_clone()?;
        let stopping = Arc::new(AtomicBool::new(false));
        let stop = stopping.clone();
        let thread = thread::Builder::new()
            .name("accept".to_string())
            .spawn(move || accept(&listener, &seats, &stop, write_timeout))?;
        Ok(Listener { socket, stopping, thread })
    }

    /// Ends the thread and closes the socket.
    pub(crate) fn stop(self) {
        self.stopping.store(true, Ordering::SeqCst);
        // Makes the accept that is waiting return.
        if SockRef::from(&self.socket).shutdown(Shutdown::Both).is_ok() {
            // It does nothing but accept: a panic there has nothing to tell.
            let _ = self.thread.join();
        }
    }
}

fn accept(listener: &TcpListener, seats: &[Seat], stopping: &AtomicBool, write_timeout: Duration) {
    while !stopping.load(Ordering::SeqCst) {
        match listener.accept() {
            Ok((stream, peer)) => {
                if prepare(&stream, write_timeout).is_err() {
                    continue;
                }
                let Some(seat) = seats.iter().min_by_key(|seat| seat.stats.open.load(Ordering::Relaxed)) else {
                    return;
                };
                seat.stats.open.fetch_add(1, Ordering::Relaxed);
                seat.mailbox.post(Mail::Connection(stream, Peer::unknown(peer.into())));
            }
            // The client has gone before it was accepted, or a signal came.
            Err(error) if matches!(error.kind(), io::ErrorKind::ConnectionAborted | io::ErrorKind::Interrupted) => {}
            Err(_) => thread::sleep(SHORTAGE_PAUSE),
        }
    }
}

fn prepare(stream: &TcpStream, write_timeout: Duration) -> io::Result<()> {
    stream.set_nodelay(true)?;
    SockRef::from(stream).set_tcp_user_timeout(Some(write_timeout))
}

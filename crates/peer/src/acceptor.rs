//! The thread that accepts connections, from the moment at which an address is taken.
//!
//! Until a member knows its own identity, every connection is accepted and closed at once. The system must not refuse it: a proxy
//! between two members may accept a connection before it finds that no process listens, and keep the caller waiting for seconds. Nor
//! may it be kept: members that start together ask each other for the cluster, and each would wait for all others.

use socket2::{SockAddr, Socket};
use std::io;
use std::net::Shutdown;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use std::time::Duration;

/// Pause after an accept that failed for lack of descriptors or memory.
const SHORTAGE_PAUSE: Duration = Duration::from_millis(50);

/// Called with each connection and its remote address. Must not wait.
pub(crate) type Welcome = Box<dyn Fn(Socket, &SockAddr) + Send + Sync>;

/// A listening socket. It is closed when this is dropped.
pub(crate) struct Acceptor {
    state: Arc<State>,
    /// Ends when this is dropped.
    thread: Option<JoinHandle<()>>,
}

struct State {
    socket: Socket,
    welcome: OnceLock<Welcome>,
    is_ended: AtomicBool,
}

impl Acceptor {
    /// Starts to accept. Until [`Acceptor::open`], every connection is closed.
    pub(crate) fn start(socket: Socket) -> io::Result<Acceptor> {
        let state = Arc::new(State { socket, welcome: OnceLock::new(), is_ended: AtomicBool::new(false) });
        let accepting = state.clone();
        let thread = std::thread::Builder::new().name("peer-accept".into()).spawn(move || accepting.accept())?;
        Ok(Acceptor { state, thread: Some(thread) })
    }

    #[cfg(feature = "test-support")]
    pub(crate) fn address(&self) -> Option<std::net::SocketAddr> {
        self.state.socket.local_addr().ok()?.as_socket()
    }

    /// Passes connections to `welcome` from now on. To be called once.
    pub(crate) fn open(&self, welcome: Welcome) {
        assert!(self.state.welcome.set(welcome).is_ok(), "an acceptor is opened once");
    }
}

impl State {
    fn accept(&self) {
        while !self.is_ended.load(Ordering::SeqCst) {
            match self.socket.accept() {
                Ok((socket, address)) => {
                    if let Some(welcome) = self.welcome.get() {
                        welcome(socket, &address);
                    }
                }
                // The peer has gone before its connection was accepted, or a signal came.
                Err(error) if matches!(error.kind(), io::ErrorKind::ConnectionAborted | io::ErrorKind::Interrupted) => {
                }
                Err(_) if self.is_ended.load(Ordering::SeqCst) => return,
                Err(_) => std::thread::sleep(SHORTAGE_PAUSE),
            }
        }
    }
}

impl Drop for Acceptor {
    fn drop(&mut self) {
        self.state.is_ended.store(true, Ordering::SeqCst);
        // Makes the waiting accept return.
        let is_shut = self.state.socket.shutdown(Shutdown::Both).is_ok();
        if let Some(thread) = self.thread.take().filter(|_| is_shut) {
            // The thread only accepts, so its result does not matter.
            let _ = thread.join();
        }
    }
}

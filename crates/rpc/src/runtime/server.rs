//! Starts and stops the threads.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use tokio::runtime::Runtime;
use tokio::task::unconstrained;

use super::deadline::Deadlines;
use super::gathering::Gathering;
use super::handshake::Handshakes;
use super::held::HeldBytes;
use super::listener::{Accepting, Hall, Seat, any_secure};
use super::mailbox::{Closing, Mail, Mailbox};
use super::shared::Shared;
use super::thread::RequestThread;
use crate::grpc::routes::Routes;
use crate::later::later;
use crate::{Listener, Options, Service, Stats};

/// A running server. Dropped without [`Server::shutdown`] it stops at once. A panic in a service aborts the process.
pub struct Server {
    listeners: Vec<Accepting>,
    handshakes: Option<Arc<Handshakes>>,
    seats: Vec<Seat>,
    threads: Vec<JoinHandle<()>>,
    stats: Arc<Stats>,
    held: Held,
}

/// What clients have the transport of a server hold.
#[derive(Clone, Debug)]
pub struct Held {
    gathering: Arc<Gathering>,
    queued: HeldBytes,
}

impl Held {
    /// Bytes of requests that are not whole, of the headers of open streams, and of what is queued for clients.
    pub fn bytes(&self) -> u64 {
        self.gathering.bytes().saturating_add(self.queued.bytes()) as u64
    }
}

impl Server {
    /// Serves `service` on `listeners`, which are bound already.
    ///
    /// # Panics
    /// If the service's table names a method twice, or `options.threads` is 0.
    pub fn start<L: Into<Listener>>(
        listeners: Vec<L>,
        service: Arc<dyn Service>,
        options: Options,
    ) -> io::Result<Server> {
        let listeners: Vec<Listener> = listeners.into_iter().map(Into::into).collect();
        assert!(options.threads > 0, "a server needs a request thread");
        let routes = Arc::new(Routes::new(service.methods()));
        let options = Arc::new(options);
        let stats = Arc::new(Stats::new(&options, service.methods().len()));
        let gathering = Arc::new(Gathering::new(options.gathered_bytes_max));
        let held_bytes = HeldBytes::new(options.held_bytes_max);
        // From here on dropping the server stops the threads that run.
        let held = Held { gathering: gathering.clone(), queued: held_bytes.clone() };
        let mut server =
            Server { listeners: Vec::new(), handshakes: None, seats: Vec::new(), threads: Vec::new(), stats, held };
        for (index, stats) in server.stats.clone().shards().iter().enumerate() {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_io().enable_time().build()?;
            let seat = Seat { mailbox: Arc::new(Mailbox::new()), stats: stats.clone() };
            let shared = Shared {
                service: service.clone(),
                routes: routes.clone(),
                options: options.clone(),
                stats: seat.stats.clone(),
                mailbox: seat.mailbox.clone(),
                deadlines: Deadlines::default(),
                gathering: gathering.clone(),
                held_bytes: held_bytes.clone(),
                input: Vec::new(),
                signals: Vec::new(),
                now: Instant::now(),
            };
            let name = format!("rpc-{index}");
            server.threads.push(thread::Builder::new().name(name).spawn(move || run(&runtime, shared))?);
            server.seats.push(seat);
        }
        if any_secure(&listeners) {
            let counts = server.stats.handshakes().clone();
            let handshakes = Handshakes::start(server.seats.clone(), options.handshake_timeout, counts)?;
            server.handshakes = Some(Arc::new(handshakes));
        }
        let hall = Hall { seats: server.seats.clone(), options, stats: server.stats.clone(), service };
        for listener in listeners {
            let accepting = Accepting::start(listener, server.handshakes.clone(), hall.clone())?;
            server.listeners.push(accepting);
        }
        Ok(server)
    }

    /// The counters. They outlive the server.
    pub fn stats(&self) -> Arc<Stats> {
        self.stats.clone()
    }

    /// What clients have its transport hold, at each moment.
    pub fn held(&self) -> Held {
        self.held.clone()
    }

    /// Accepts nothing more, tells the clients to go elsewhere, waits up to `grace` for everything that runs, then up to `patience`
    /// in all for answers that the service still owes and for those that go on being taken, and closes what is left. Streams in
    /// both directions are not waited for any longer than `grace`: most have no end.
    pub fn shutdown(mut self, grace: Duration, patience: Duration) {
        self.stop(grace, patience);
    }

    fn stop(&mut self, grace: Duration, patience: Duration) {
        self.listeners.drain(..).for_each(Accepting::stop);
        // This is the last reference.
        if let Some(handshakes) = self.handshakes.take().and_then(Arc::into_inner) {
            handshakes.stop();
        }
        let now = Instant::now();
        let closing = Closing { idle_at: later(now, grace), end_at: later(now, patience.max(grace)) };
        for seat in &self.seats {
            seat.mailbox.post(Mail::Shutdown(closing));
        }
        for thread in self.threads.drain(..) {
            // A panic there aborts the process.
            let _ = thread.join();
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop(Duration::ZERO, Duration::ZERO);
    }
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server").field("threads", &self.threads.len()).finish_non_exhaustive()
    }
}

/// The body of a request thread. Its work is a spawned task because those are woken without a system call from their own thread,
/// and unconstrained because it bounds itself, by turns.
fn run(runtime: &Runtime, shared: Shared) {
    shared.stats.clone().enter();
    shared.held_bytes.enter();
    let worked = runtime.block_on(async { tokio::spawn(unconstrained(RequestThread::new(shared))).await });
    if worked.is_err() {
        // A panic, which has been reported. Clients of this thread would wait for ever, and what panicked is not to be trusted.
        std::process::abort();
    }
}

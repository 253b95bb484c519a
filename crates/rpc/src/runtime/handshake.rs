//! TLS handshakes, on threads of their own: a signature takes as long as hundreds of requests.

use std::collections::BTreeSet;
use std::future::poll_fn;
use std::io;
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use contain::{Contained, outside};
use rustls::ServerConnection;
use tokio::io::AsyncReadExt;
use tokio::sync::Notify;
use tokio::task::AbortHandle;

use super::arrival::Arrival;
use super::crowd::{Crowd, Origin};
use super::listener::{Seat, assign};
use super::secure::{Gatekeeper, Refusal};
use super::tls_stream::TlsStream;
use crate::HandshakeCounts;

/// Handshakes under way at once, of all threads, those included that wait for a thread. Beyond, the origin that has most of them loses
/// its oldest: a client that stalls, or comes too often, harms itself alone.
const HANDSHAKES_MAX: usize = 1024;
/// Handshakes that a thread begins before it continues those under way.
const BEGUN_AT_ONCE_MAX: usize = 32;
/// Request threads for each thread that shakes hands.
const REQUEST_THREADS_PER_THREAD: usize = 4;
/// The first byte of a TLS connection: a record of the handshake.
const RECORD_OF_HANDSHAKE: u8 = 22;

/// A connection that begins its handshake.
struct Candidate {
    arrival: Arrival,
    gatekeeper: Arc<dyn Gatekeeper>,
    plaintext: bool,
}

/// One of those under way.
struct Handshake {
    /// While it waits for a thread.
    candidate: Option<Box<Candidate>>,
    /// Once it has begun.
    task: Option<AbortHandle>,
}

/// The handshakes under way.
#[derive(Default)]
struct Table {
    crowd: Crowd<Handshake>,
    /// Those that wait for a thread.
    waiting: BTreeSet<u64>,
    is_stopped: bool,
}

/// The threads.
pub(crate) struct Handshakes {
    threads: Vec<JoinHandle<()>>,
    common: Arc<Common>,
}

/// What they have in common.
struct Common {
    seats: Vec<Seat>,
    timeout: Duration,
    counts: Arc<HandshakeCounts>,
    table: Mutex<Table>,
    /// Wakes a thread for what has begun to wait, and all of them at the end.
    wake: Notify,
    /// Sockets that handshakes hold: those under way, and those that were given up a moment ago.
    held: AtomicUsize,
}

impl Handshakes {
    pub(crate) fn start(seats: Vec<Seat>, timeout: Duration, counts: Arc<HandshakeCounts>) -> io::Result<Handshakes> {
        let number = seats.len().div_ceil(REQUEST_THREADS_PER_THREAD);
        let (table, wake, held) = Default::default();
        let common = Arc::new(Common { seats, timeout, counts, table, wake, held });
        let mut threads = Vec::new();
        for index in 0..number {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_io().enable_time().build()?;
            let common = common.clone();
            let name = format!("handshake-{index}");
            threads.push(thread::Builder::new().name(name).spawn(move || runtime.block_on(receive(common)))?);
        }
        Ok(Handshakes { threads, common })
    }

    /// How many are under way or wait for a thread.
    pub(crate) fn count(&self) -> usize {
        self.common.held.load(Ordering::Relaxed)
    }

    /// Begins the handshake of `arrival`, which goes to a request thread when it is done.
    pub(crate) fn begin(&self, arrival: Arrival, gatekeeper: Arc<dyn Gatekeeper>, plaintext: bool) {
        let origin = Origin::of(arrival.peer.address.ip());
        let mut given_up = None;
        let mut table = self.common.table();
        if table.crowd.len() >= HANDSHAKES_MAX {
            self.common.counts.given_up.fetch_add(1, Ordering::Relaxed);
            given_up = table.crowd.evict();
        }
        self.common.held.fetch_add(1, Ordering::Relaxed);
        let candidate = Candidate { arrival, gatekeeper, plaintext };
        let number = table.crowd.add(origin, Handshake { candidate: Some(Box::new(candidate)), task: None });
        table.waiting.insert(number);
        drop(table);
        self.common.wake.notify_one();
        let Some(Handshake { candidate, task }) = given_up else { return };
        if candidate.is_some() {
            self.common.held.fetch_sub(1, Ordering::Relaxed);
        }
        if let Some(task) = task {
            task.abort();
        }
    }

    /// Ends the threads and gives up what is under way.
    pub(crate) fn stop(self) {
        self.common.table().is_stopped = true;
        self.common.wake.notify_waiters();
        for thread in self.threads {
            // A panic there has been reported.
            let _ = thread.join();
        }
    }
}

impl Common {
    /// Nothing that holds the lock can panic half way.
    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins with one that waits, in the runtime of the calling thread. False if none does.
    fn begin_next(self: &Arc<Common>) -> bool {
        let mut table = self.table();
        while let Some(number) = table.waiting.pop_first() {
            // One that was given up meanwhile is not there any more.
            let Some(handshake) = table.crowd.get_mut(number) else { continue };
            let Some(candidate) = handshake.candidate.take() else { continue };
            let guard = Guard { number, common: self.clone() };
            // The runtime has this one thread: the task does not end before its handle is in the table.
            handshake.task = Some(tokio::spawn(serve(*candidate, guard)).abort_handle());
            return true;
        }
        false
    }
}

async fn receive(common: Arc<Common>) {
    loop {
        // Taken before the look at the table: an announcement after that look ends the wait.
        let woken = common.wake.notified();
        let mut begun = 0..BEGUN_AT_ONCE_MAX;
        while begun.next().is_some() && common.begin_next() {}
        if common.table().is_stopped {
            return;
        }
        if begun.is_empty() {
            // There may be more. Those under way have their turn first.
            tokio::task::yield_now().await;
        } else {
            woken.await;
        }
    }
}

async fn serve(candidate: Candidate, guard: Guard) {
    let Candidate { arrival, gatekeeper, plaintext } = candidate;
    let common = &guard.common;
    let address = arrival.peer.address;
    let mut server_name = None;
    let outcome = {
        let shaking = Contained::new(shake(arrival, &*gatekeeper, plaintext, &mut server_name));
        let mut shaking = pin!(shaking);
        match tokio::time::timeout(common.timeout, shaking.as_mut()).await {
            Ok(shaken) => shaken.unwrap_or_else(|panicked| Err(Refusal::Io(io::Error::other(panicked)))),
            Err(_) => {
                // While the connection is open: a client that sees it closed finds it counted.
                common.counts.timed_out.fetch_add(1, Ordering::Relaxed);
                Err(Refusal::TimedOut)
            }
        }
    };
    match outcome {
        Ok(arrival) => {
            if arrival.session.is_some() {
                common.counts.done.fetch_add(1, Ordering::Relaxed);
            }
            assign(&common.seats, arrival);
        }
        Err(refusal) => {
            if !matches!(refusal, Refusal::TimedOut) {
                common.counts.failed.fetch_add(1, Ordering::Relaxed);
            }
            gatekeeper.rejected(&address, server_name.as_deref(), &refusal);
        }
    }
}

/// Shakes hands, unless plaintext is spoken, and may be.
async fn shake(
    mut arrival: Arrival,
    gatekeeper: &dyn Gatekeeper,
    plaintext: bool,
    server_name: &mut Option<String>,
) -> Result<Arrival, Refusal> {
    let mut live = arrival.socket.attach()?;
    let mut session = Box::new(ServerConnection::new(outside(|| gatekeeper.config())).map_err(Refusal::Tls)?);
    if plaintext {
        let first = live.read_u8().await?;
        if first != RECORD_OF_HANDSHAKE {
            arrival.ahead = Some(first);
            arrival.socket = live.detach()?;
            return Ok(arrival);
        }
        session.read_tls(&mut &[first][..])?;
    }
    let mut stream = TlsStream::new(live, session);
    let shaken = poll_fn(|cx| stream.poll_handshake(cx)).await;
    *server_name = stream.session().server_name().map(str::to_string);
    shaken?;
    arrival.peer.common_name = gatekeeper.admit(stream.session(), &arrival.peer.address).map_err(Refusal::Admission)?;
    arrival.peer.is_secure = true;
    let (live, session) = stream.into_parts();
    arrival.socket = live.detach()?;
    arrival.session = Some(session);
    Ok(arrival)
}

/// Keeps one handshake in the table while it is under way.
struct Guard {
    number: u64,
    common: Arc<Common>,
}

impl Drop for Guard {
    fn drop(&mut self) {
        self.common.table().crowd.remove(self.number);
        self.common.held.fetch_sub(1, Ordering::Relaxed);
    }
}

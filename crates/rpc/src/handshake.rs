//! TLS handshakes, on threads of their own: a signature takes as long as hundreds of requests.

use std::collections::BTreeMap;
use std::future::poll_fn;
use std::io;
use std::pin::pin;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use rustls::ServerConnection;
use tokio::io::AsyncReadExt;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::AbortHandle;

use crate::arrival::Arrival;
use crate::listener::{Seat, assign};
use crate::secure::{Gatekeeper, Refusal};
use crate::tls_stream::TlsStream;

/// Handshakes under way at once, of all threads. Beyond, the one that has taken longest is given up: whoever stalls pays for it, not
/// whoever comes.
const HANDSHAKES_MAX: usize = 1024;
/// Request threads for each thread that shakes hands.
const REQUEST_THREADS_PER_THREAD: usize = 4;
/// The first byte of a TLS connection: a record of the handshake.
const RECORD_OF_HANDSHAKE: u8 = 22;

/// How TLS handshakes ended.
#[derive(Debug, Default)]
pub struct HandshakeCounts {
    /// Those that were done.
    pub done: AtomicU64,
    /// Those that failed, or whose client was not let in.
    pub failed: AtomicU64,
    /// Those that took too long.
    pub timed_out: AtomicU64,
    /// Those that were given up because too many were under way.
    pub given_up: AtomicU64,
}

/// A connection that begins its handshake.
struct Candidate {
    serial: u64,
    arrival: Arrival,
    gatekeeper: Arc<dyn Gatekeeper>,
    plaintext: bool,
}

/// The threads.
pub(crate) struct Handshakes {
    inboxes: Vec<UnboundedSender<Candidate>>,
    threads: Vec<JoinHandle<()>>,
    common: Arc<Common>,
    serial: AtomicU64,
}

/// What they have in common.
struct Common {
    seats: Vec<Seat>,
    timeout: Duration,
    counts: Arc<HandshakeCounts>,
    /// Those that have begun, oldest first.
    under_way: Mutex<BTreeMap<u64, AbortHandle>>,
    /// Those and the ones that wait for a thread.
    count: AtomicUsize,
}

impl Handshakes {
    pub(crate) fn start(seats: Vec<Seat>, timeout: Duration, counts: Arc<HandshakeCounts>) -> io::Result<Handshakes> {
        let number = seats.len().div_ceil(REQUEST_THREADS_PER_THREAD);
        let (under_way, count) = (Mutex::new(BTreeMap::new()), AtomicUsize::new(0));
        let common = Arc::new(Common { seats, timeout, counts, under_way, count });
        let (mut inboxes, mut threads) = (Vec::new(), Vec::new());
        for index in 0..number {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_io().enable_time().build()?;
            let (sender, inbox) = unbounded_channel();
            let common = common.clone();
            let name = format!("handshake-{index}");
            threads.push(thread::Builder::new().name(name).spawn(move || runtime.block_on(receive(inbox, common)))?);
            inboxes.push(sender);
        }
        Ok(Handshakes { inboxes, threads, common, serial: AtomicU64::new(0) })
    }

    /// How many are under way or wait for a thread.
    pub(crate) fn count(&self) -> usize {
        self.common.count.load(Ordering::Relaxed)
    }

    /// Begins with `arrival`, which goes on to a request thread when it has been let in.
    pub(crate) fn begin(&self, arrival: Arrival, gatekeeper: Arc<dyn Gatekeeper>, plaintext: bool) {
        if self.common.count.load(Ordering::Relaxed) >= HANDSHAKES_MAX {
            self.common.counts.given_up.fetch_add(1, Ordering::Relaxed);
            let oldest = self.common.under_way().pop_first();
            match oldest {
                Some((_, oldest)) => oldest.abort(),
                // All of them wait for a thread: the newest has waited least.
                None => return,
            }
        }
        let serial = self.serial.fetch_add(1, Ordering::Relaxed);
        let inbox = &self.inboxes[serial as usize % self.inboxes.len()];
        self.common.count.fetch_add(1, Ordering::Relaxed);
        if inbox.send(Candidate { serial, arrival, gatekeeper, plaintext }).is_err() {
            self.common.count.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Ends the threads and gives up what is under way.
    pub(crate) fn stop(self) {
        drop(self.inboxes);
        for thread in self.threads {
            // A panic there has been reported.
            let _ = thread.join();
        }
    }
}

impl Common {
    /// Nothing that holds the lock can panic half way.
    fn under_way(&self) -> MutexGuard<'_, BTreeMap<u64, AbortHandle>> {
        self.under_way.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn receive(mut inbox: UnboundedReceiver<Candidate>, common: Arc<Common>) {
    while let Some(candidate) = inbox.recv().await {
        let serial = candidate.serial;
        let guard = Guard { serial, common: common.clone() };
        // The runtime has this one thread: the task cannot end before it is in the list.
        let task = tokio::spawn(serve(candidate, guard));
        common.under_way().insert(serial, task.abort_handle());
    }
}

async fn serve(candidate: Candidate, guard: Guard) {
    let Candidate { arrival, gatekeeper, plaintext, .. } = candidate;
    let common = &guard.common;
    let address = arrival.peer.address;
    let mut server_name = None;
    let outcome = {
        let mut shaking = pin!(shake(arrival, &*gatekeeper, plaintext, &mut server_name));
        tokio::time::timeout(common.timeout, shaking.as_mut()).await.unwrap_or_else(|_| {
            // While the connection is open: whoever sees it closed finds it counted.
            common.counts.timed_out.fetch_add(1, Ordering::Relaxed);
            Err(Refusal::TimedOut)
        })
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
    let mut session = Box::new(ServerConnection::new(gatekeeper.config()).map_err(Refusal::Tls)?);
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

/// Counts one handshake while it is under way.
struct Guard {
    serial: u64,
    common: Arc<Common>,
}

impl Drop for Guard {
    fn drop(&mut self) {
        self.common.under_way().remove(&self.serial);
        self.common.count.fetch_sub(1, Ordering::Relaxed);
    }
}

//! A thread that has connections: it dials the member for each, and moves what is said.

use socket2::{SockRef, TcpKeepalive};
use std::io;
use std::net::TcpStream as Plain;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::runtime::Builder;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::LocalSet;

use crate::dial::Dialer;
use crate::forward::{Room, join};
use crate::limits::Limits;

/// After this long without a byte, and then this often, the other side of a socket is asked whether it is still there.
const KEEPALIVE: Duration = Duration::from_secs(15);
/// So many questions without an answer end a connection.
const KEEPALIVE_RETRIES: u32 = 9;
/// What the kernel keeps for a socket beyond what is on its way. Without a bound it is some megabytes for each that does not read, and a
/// few hundred of those use up what the whole machine has for TCP.
const UNSENT_BYTES: u32 = 256 * 1024;

/// A worker as the listener sees it.
#[derive(Debug)]
pub(crate) struct Worker {
    arrivals: UnboundedSender<Arrival>,
    open: Arc<AtomicUsize>,
}

/// A client that was just accepted.
struct Arrival {
    socket: Plain,
    seat: Seat,
}

/// A client counts as open until this is dropped.
struct Seat(Arc<AtomicUsize>);

impl Drop for Seat {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Worker {
    /// Connections that the worker has.
    pub(crate) fn open(&self) -> usize {
        self.open.load(Ordering::Relaxed)
    }

    /// Gives it another one.
    pub(crate) fn take(&self, socket: Plain) {
        self.open.fetch_add(1, Ordering::Relaxed);
        // A worker never ends before the process.
        let _ = self.arrivals.send(Arrival { socket, seat: Seat(self.open.clone()) });
    }
}

/// How many workers there are to be: one for each processor.
pub(crate) fn count() -> usize {
    thread::available_parallelism().map_or(1, usize::from)
}

/// Starts `count` workers.
pub(crate) fn start(count: usize, dialer: &Arc<Dialer>, limits: &Limits) -> io::Result<Vec<Worker>> {
    let (pipes, held_bytes) = limits.share(count);
    let one = |number: usize| {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let (arrivals, queue) = unbounded_channel();
        let dialer = dialer.clone();
        let work = move || {
            let room = Room::new(pipes, held_bytes);
            LocalSet::new().block_on(&runtime, receive(queue, dialer, room));
        };
        thread::Builder::new().name(format!("relay-{number}")).spawn(work)?;
        Ok(Worker { arrivals, open: Arc::default() })
    };
    (0..count).map(one).collect()
}

async fn receive(mut queue: UnboundedReceiver<Arrival>, dialer: Arc<Dialer>, room: Rc<Room>) {
    while let Some(Arrival { socket, seat }) = queue.recv().await {
        let (dialer, room) = (dialer.clone(), room.clone());
        tokio::task::spawn_local(async move {
            // A connection that breaks off is closed on both sides; there is nobody else to tell.
            let _ = pass_on(socket, &dialer, &room).await;
            drop(seat);
        });
    }
}

/// Passes a client on until both sides have ended, or one has failed.
async fn pass_on(client: Plain, dialer: &Dialer, room: &Room) -> io::Result<()> {
    client.set_nonblocking(true)?;
    let client = prepared(TcpStream::from_std(client)?)?;
    let Some(member) = dialer.dial().await else { return Ok(()) };
    let member = prepared(member)?;
    join(&client, &member, room).await
}

/// Sets the options of every socket.
pub(crate) fn prepared(socket: TcpStream) -> io::Result<TcpStream> {
    let options = SockRef::from(&socket);
    options.set_tcp_nodelay(true)?;
    options.set_tcp_notsent_lowat(UNSENT_BYTES)?;
    let keepalive = TcpKeepalive::new().with_time(KEEPALIVE).with_interval(KEEPALIVE).with_retries(KEEPALIVE_RETRIES);
    options.set_tcp_keepalive(&keepalive)?;
    Ok(socket)
}

//! One HTTP/2 connection without socket, thread or clock of its own: for fuzzing, and for tests that check every byte.

use std::collections::VecDeque;
use std::fmt;
use std::io::{self, Read};
use std::net::{Ipv4Addr, SocketAddr};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::connection::{Http2, Turn};
use super::frame::PREFACE;
use super::stream::Event;
use crate::grpc::routes::Routes;
use crate::later::later;
use crate::runtime::byte_stream::ByteStream;
use crate::runtime::deadline::Deadlines;
use crate::runtime::gathering::Gathering;
use crate::runtime::held::HeldBytes;
use crate::runtime::mailbox::{Mail, Mailbox};
use crate::runtime::shared::{ConnectionWaker, Shared};
use crate::{Options, Peer, Serves, Service, Stats};

/// A connection whose preface has come.
pub struct Driver {
    shared: Shared,
    connection: Option<Box<Http2>>,
    wake: Arc<ConnectionWaker>,
    pipe: Pipe,
    stats: Stats,
}

/// What the connection takes for a socket.
#[derive(Clone, Default)]
struct Pipe(Arc<Mutex<Ends>>);

#[derive(Default)]
struct Ends {
    input: VecDeque<u8>,
    output: Vec<u8>,
    /// The connection writes no more.
    shut: bool,
}

impl Driver {
    /// A connection of `service`.
    ///
    /// # Panics
    /// If the service's table names a method twice.
    pub fn new(service: Arc<dyn Service>, options: Options) -> Driver {
        let options = Options { threads: 1, ..options };
        let stats = Stats::new(&options, service.methods().len());
        let [shard] = stats.shards() else { unreachable!("there is one thread") };
        let mailbox = Arc::new(Mailbox::new());
        let held_bytes = HeldBytes::new(options.held_bytes_max);
        let gathered_bytes_max = options.gathered_bytes_max;
        let shared = Shared {
            routes: Arc::new(Routes::new(service.methods())),
            service,
            options: Arc::new(options),
            stats: shard.clone(),
            mailbox: mailbox.clone(),
            deadlines: Deadlines::default(),
            gathering: Arc::new(Gathering::new(gathered_bytes_max)),
            held_bytes,
            input: Vec::new(),
            signals: Vec::new(),
            now: Instant::now(),
        };
        let pipe = Pipe::default();
        let peer = Peer::unknown(SocketAddr::from((Ipv4Addr::LOCALHOST, 1)).into());
        let connection = Http2::new(Box::new(pipe.clone()), PREFACE, 0, peer, Serves::All, &shared).map(Box::new);
        Driver { shared, connection, wake: Arc::new(ConnectionWaker::new(mailbox, 0, 0)), pipe, stats }
    }

    /// Has the connection read `input` and do all that there is to do. Returns what it wrote.
    pub fn feed(&mut self, input: &[u8]) -> Vec<u8> {
        self.pipe.ends().input.extend(input);
        let waker = Waker::from(self.wake.clone());
        let mut mail = Vec::new();
        while let Some(connection) = &mut self.connection {
            self.shared.now = Instant::now();
            for mail in mail.drain(..) {
                match mail {
                    Mail::Wake(signal) => connection.notify(signal, Event::Wake),
                    Mail::Answer(signal, answer) => connection.notify(signal, Event::Answer(answer)),
                    Mail::Resume(signal, resume) => connection.notify(signal, Event::Resume(resume)),
                    Mail::Work(work) => work(),
                    Mail::Connection(..) | Mail::Ready { .. } | Mail::Shutdown(_) => {}
                }
            }
            match connection.turn(&mut self.shared, &self.wake, &waker) {
                Turn::Idle => {
                    self.shared.mailbox.take(&mut mail);
                    if mail.is_empty() {
                        break;
                    }
                }
                Turn::Again => {}
                Turn::Closed => {
                    connection.abandon(&self.shared);
                    self.connection = None;
                }
            }
        }
        std::mem::take(&mut self.pipe.ends().output)
    }

    /// Makes the connection check its time limits, as if this much time had passed. Returns what it wrote.
    pub fn tick(&mut self, passed: Duration) -> Vec<u8> {
        self.shared.now = later(Instant::now(), passed);
        let waker = Waker::from(self.wake.clone());
        if let Some(connection) = &mut self.connection
            && !connection.tick(&self.shared, &waker)
        {
            connection.abandon(&self.shared);
            self.connection = None;
        }
        self.feed(&[])
    }

    /// Whether the connection is over, or has said that it will read nothing more.
    pub fn is_closed(&self) -> bool {
        self.connection.is_none() || self.pipe.ends().shut
    }

    /// Streams that are open.
    pub fn streams(&self) -> usize {
        self.connection.as_ref().map_or(0, |connection| connection.streams.len())
    }

    /// Streams for which the connection keeps room.
    pub fn stream_room(&self) -> usize {
        self.connection.as_ref().map_or(0, |connection| connection.streams.capacity())
    }

    /// The counters.
    pub fn stats(&self) -> &Stats {
        &self.stats
    }
}

impl fmt::Debug for Driver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Driver").field("streams", &self.streams()).finish_non_exhaustive()
    }
}

impl Pipe {
    /// Nothing here can panic half way.
    fn ends(&self) -> MutexGuard<'_, Ends> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ByteStream for Pipe {}

impl AsyncRead for Pipe {
    fn poll_read(self: Pin<&mut Self>, _: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let mut ends = self.ends();
        if ends.input.is_empty() {
            return Poll::Pending;
        }
        while buf.remaining() > 0 && !ends.input.is_empty() {
            let count = ends.input.read(buf.initialize_unfilled())?;
            buf.advance(count);
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Pipe {
    fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.ends().output.extend_from_slice(bytes);
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.ends().shut = true;
        Poll::Ready(Ok(()))
    }
}

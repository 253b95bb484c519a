//! Connections, and running many of them on one thread.

use std::cell::RefCell;
use std::future::Future;
use std::net::SocketAddr;
use std::pin::pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use rpc::client::{Calls, Encryption, Link, Options, ReadBuffer, RequestHead, authority};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::BenchError;
use crate::socket::Socket;

/// The receive window of a stream and of a connection.
const WINDOW_BYTES: u32 = 8 << 20;
/// Prefix of the address of a Unix socket.
const UNIX: &str = "unix:";

/// The buffer into which all connections of a thread read.
pub(crate) type SharedBuffer = Rc<RefCell<ReadBuffer>>;

/// The destination of a connection.
#[derive(Clone, Debug)]
pub struct Place {
    /// `host:port`, or `unix:` and the path of a socket.
    pub address: String,
    /// The options of TLS, if it is used.
    pub encryption: Option<Encryption>,
}

impl Place {
    /// The head of requests to this place.
    pub(crate) fn head(&self, path: &str) -> RequestHead {
        let head = RequestHead::new(path, authority(&self.address));
        if self.encryption.is_some() { head.https() } else { head }
    }
}

impl From<SocketAddr> for Place {
    fn from(address: SocketAddr) -> Place {
        Place { address: address.to_string(), encryption: None }
    }
}

/// Connects, and waits for the server's settings.
pub(crate) async fn connect(place: &Place, buffer: &SharedBuffer) -> Result<Link<Socket>, BenchError> {
    let socket = open(place).await?;
    let windows =
        Options { stream_window_bytes: WINDOW_BYTES, connection_window_bytes: 2 * WINDOW_BYTES, ..Options::default() };
    let mut link = Link::new(socket, windows);
    std::future::poll_fn(|cx| greet(&mut link, cx, buffer))
        .await
        .map_err(|error| BenchError::Server(format!("{}: {error}", place.address)))?;
    Ok(link)
}

/// Connects to a place: returns a socket on which nothing was sent yet.
pub async fn open(place: &Place) -> Result<Socket, BenchError> {
    let failed = |error| BenchError::Io(format!("cannot connect to {}", place.address), error);
    let Some(path) = place.address.strip_prefix(UNIX) else {
        let socket = TcpStream::connect(&place.address).await.map_err(failed)?;
        socket.set_nodelay(true).map_err(failed)?;
        return Ok(match &place.encryption {
            None => Socket::Tcp(socket),
            Some(tls) => Socket::TcpTls(Box::new(encrypt(socket, tls).await?)),
        });
    };
    let socket = UnixStream::connect(path).await.map_err(failed)?;
    Ok(match &place.encryption {
        None => Socket::Unix(socket),
        Some(tls) => Socket::UnixTls(Box::new(encrypt(socket, tls).await?)),
    })
}

async fn encrypt<S: AsyncRead + AsyncWrite + Unpin>(socket: S, tls: &Encryption) -> Result<TlsStream<S>, BenchError> {
    let config = (tls.config)().map_err(BenchError::Server)?;
    let connecting = TlsConnector::from(config).connect(tls.name.clone(), socket);
    connecting.await.map_err(|error| BenchError::Server((tls.describe)(&error)))
}

fn greet(link: &mut Link<Socket>, cx: &mut Context<'_>, buffer: &SharedBuffer) -> Poll<Result<(), String>> {
    if let Poll::Ready(Err(error)) = link.flush(cx) {
        return Poll::Ready(Err(error.to_string()));
    }
    match link.read(cx, &mut buffer.borrow_mut(), &mut Nothing) {
        Err(broken) => Poll::Ready(Err(broken.to_string())),
        Ok(()) if link.connection.is_greeted() => Poll::Ready(Ok(())),
        Ok(()) => Poll::Pending,
    }
}

struct Nothing;

impl Calls for Nothing {
    fn data(&mut self, _: usize, _: &[u8]) {}

    fn end(&mut self, _: usize, _: rpc::Status) {}
}

/// Runs `work` on this thread, with timers and sockets.
pub(crate) fn block_on<T>(work: impl Future<Output = Result<T, BenchError>>) -> Result<T, BenchError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| BenchError::Io("cannot start".into(), error))?;
    let local = tokio::task::LocalSet::new();
    let work = pin!(work);
    local.block_on(&runtime, work)
}

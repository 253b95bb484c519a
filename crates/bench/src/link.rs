//! Connections, and running many of them on one thread.

use std::cell::RefCell;
use std::future::Future;
use std::net::SocketAddr;
use std::pin::pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use rpc::client::{Calls, Link, Options, Room};
use tokio::net::TcpStream;

use crate::BenchError;

/// What a server may send ahead, on a stream and on a connection.
const WINDOW_BYTES: u32 = 8 << 20;

/// The room that all connections of a thread read into.
pub(crate) type SharedRoom = Rc<RefCell<Room>>;

/// Connects, and waits until the server has said what it takes.
pub(crate) async fn connect(address: SocketAddr, room: &SharedRoom) -> Result<Link<TcpStream>, BenchError> {
    let failed = |error| BenchError::Io(format!("cannot connect to {address}"), error);
    let socket = TcpStream::connect(address).await.map_err(failed)?;
    socket.set_nodelay(true).map_err(failed)?;
    let windows =
        Options { stream_window_bytes: WINDOW_BYTES, connection_window_bytes: 2 * WINDOW_BYTES, ..Options::default() };
    let mut link = Link::new(socket, windows);
    std::future::poll_fn(|cx| greet(&mut link, cx, room))
        .await
        .map_err(|error| BenchError::Server(format!("{address}: {error}")))?;
    Ok(link)
}

fn greet(link: &mut Link<TcpStream>, cx: &mut Context<'_>, room: &SharedRoom) -> Poll<Result<(), String>> {
    if let Poll::Ready(Err(error)) = link.flush(cx) {
        return Poll::Ready(Err(error.to_string()));
    }
    match link.read(cx, &mut room.borrow_mut(), &mut Nothing) {
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

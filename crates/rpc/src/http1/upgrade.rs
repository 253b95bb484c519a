//! Leaving HTTP/1.1 for another protocol on the same connection.

use std::fmt;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};

use hyper::rt::{Read, ReadBuf as Buffer, Write};
use hyper::upgrade::OnUpgrade;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::runtime::shared::Http1Guard;

/// Bytes moved by one read.
const READ_BYTES_MAX: usize = 4 * 1024;

/// Among the extensions of a request that would like to leave HTTP. Once the response with status 101 is sent, the connection
/// belongs to the code that has taken it.
#[derive(Clone)]
pub struct Upgrade(Arc<Mutex<Option<Offer>>>);

struct Offer {
    on: OnUpgrade,
    guard: Arc<Http1Guard>,
}

impl Upgrade {
    pub(crate) fn new(on: OnUpgrade, guard: Arc<Http1Guard>) -> Upgrade {
        Upgrade(Arc::new(Mutex::new(Some(Offer { on, guard }))))
    }

    /// Waits for the connection. An error if it was lost.
    pub async fn take(self) -> io::Result<Upgraded> {
        let taken = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Offer { on, guard } = taken.ok_or_else(|| io::Error::other("the connection is taken"))?;
        let stream = on.await.map_err(io::Error::other)?;
        Ok(Upgraded { stream, _guard: guard })
    }
}

impl fmt::Debug for Upgrade {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Upgrade")
    }
}

/// A connection that has left HTTP.
pub struct Upgraded {
    stream: hyper::upgrade::Upgraded,
    /// It counts as open while this lives.
    _guard: Arc<Http1Guard>,
}

impl AsyncRead for Upgraded {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, to: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let mut room = [0; READ_BYTES_MAX];
        let len = room.len().min(to.remaining());
        let mut buffer = Buffer::new(room.get_mut(..len).unwrap_or_default());
        ready!(Pin::new(&mut self.stream).poll_read(cx, buffer.unfilled()))?;
        to.put_slice(buffer.filled());
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Upgraded {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

impl fmt::Debug for Upgraded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Upgraded")
    }
}

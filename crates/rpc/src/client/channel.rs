//! Calls of a server from any task: connects when it is needed, and again when the connection is lost.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use api::Code;
use bytes::Bytes;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, timeout_at};
use tokio_rustls::TlsConnector;

use super::call::StreamingCall;
use super::task::{Command, Opening, Reply, start};
use super::{Link, Options, RequestHead, Room};
use crate::later::{CENTURY, later};
use crate::{Metadata, Status};

/// What the address of a socket with a path begins with.
const UNIX: &str = "unix:";

/// One server. Clones share its connection, which carries all their calls at once.
#[derive(Clone)]
pub struct Channel {
    shared: Arc<Shared>,
}

struct Shared {
    address: String,
    /// What requests say whom they are for.
    authority: String,
    options: Options,
    /// Where the present connection takes commands. Never held for long: whether there is one can be asked at any time.
    current: parking_lot::Mutex<Option<Connected>>,
    /// Held while a connection is being made, so that all waiting callers share one.
    connecting: tokio::sync::Mutex<()>,
    calls: AtomicU64,
}

/// A connection that has been made.
#[derive(Clone)]
pub(super) struct Connected {
    pub(super) commands: mpsc::UnboundedSender<Command>,
    /// New calls need another connection.
    pub(super) closing: Arc<std::sync::atomic::AtomicBool>,
}

/// Gives a call up when it is dropped.
pub(super) struct Guard {
    pub(super) commands: mpsc::UnboundedSender<Command>,
    pub(super) number: u64,
}

impl Drop for Guard {
    fn drop(&mut self) {
        // A task that has ended has no calls any more; a task that has ended this call does not know its number.
        let _ = self.commands.send(Command::Cancel(self.number));
    }
}

/// What a server at `address` is called: with a path the name of its file, as etcd's clients have it, if that can be a name.
pub fn authority(address: &str) -> &str {
    let Some(path) = address.strip_prefix(UNIX) else { return address };
    let name = path.rsplit('/').next().unwrap_or(path);
    let is_name = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~:[]".contains(&byte);
    if !name.is_empty() && name.bytes().all(is_name) { name } else { "localhost" }
}

impl Channel {
    /// A channel to `address` (`host:port`, or `unix:` and the path of a socket). Nothing is sent before the first call.
    pub fn new(address: &str, options: Options) -> Channel {
        let (current, connecting, calls) = Default::default();
        let (address, authority) = (address.into(), authority(address).into());
        Channel { shared: Arc::new(Shared { address, authority, options, current, connecting, calls }) }
    }

    /// Makes sure that there is a connection. What fails here has sent no call.
    pub async fn connect(&self) -> Result<(), Status> {
        self.connected().await.map(drop)
    }

    /// Whether there is a connection that takes calls.
    pub fn is_connected(&self) -> bool {
        self.shared.current.lock().as_ref().is_some_and(takes_calls)
    }

    /// One request, one answer. Without `timeout` it may take for ever, though connecting may not. Dropping the future gives the
    /// call up.
    pub async fn unary(
        &self,
        path: &str,
        metadata: &Metadata,
        message: Bytes,
        timeout: Option<Duration>,
    ) -> Result<Bytes, Status> {
        self.unary_within(path, metadata, message, timeout, None).await
    }

    /// The same, with an answer that is taken in only if `room` has room for it.
    pub async fn unary_within(
        &self,
        path: &str,
        metadata: &Metadata,
        message: Bytes,
        timeout: Option<Duration>,
        room: Option<Room>,
    ) -> Result<Bytes, Status> {
        // Pinned here, so that what waits for it does not hold its state once more: it is moved with every call.
        let call = pin!(async {
            let connected = self.connected().await?;
            let (reply, answer) = oneshot::channel();
            let reply = Reply::whole(reply, room);
            let _guard = self.open(&connected, path, metadata, Some(message), timeout, reply)?;
            answer
                .await
                .unwrap_or_else(|_| Err(Status::new(Code::Unavailable, "connection lost: nobody reads it any more")))
        });
        match deadline(timeout) {
            None => call.await,
            Some(deadline) => timeout_at(deadline, call).await.unwrap_or_else(|_| Err(Status::deadline_exceeded())),
        }
    }

    /// A call with any number of messages both ways. `timeout` is for all of it.
    pub async fn stream(
        &self,
        path: &str,
        metadata: &Metadata,
        timeout: Option<Duration>,
    ) -> Result<StreamingCall, Status> {
        let deadline = deadline(timeout);
        let connecting = self.connected();
        let connected = match deadline {
            None => connecting.await?,
            Some(deadline) => {
                timeout_at(deadline, connecting).await.unwrap_or_else(|_| Err(Status::deadline_exceeded()))?
            }
        };
        let (pieces, incoming) = mpsc::unbounded_channel();
        let guard = self.open(&connected, path, metadata, None, timeout, Reply::Pieces(pieces))?;
        Ok(StreamingCall::new(guard, incoming, self.shared.options.message_bytes_max, deadline))
    }

    fn open(
        &self,
        connected: &Connected,
        path: &str,
        metadata: &Metadata,
        message: Option<Bytes>,
        timeout: Option<Duration>,
        reply: Reply,
    ) -> Result<Guard, Status> {
        let number = self.shared.calls.fetch_add(1, Ordering::Relaxed);
        let head = RequestHead::new(path, &self.shared.authority).with_metadata(metadata.clone());
        let opening = Opening { number, head, timeout, message, reply, held: Vec::new() };
        let guard = Guard { commands: connected.commands.clone(), number };
        guard.commands.send(Command::Open(Box::new(opening))).map_err(|_| gone())?;
        Ok(guard)
    }

    /// The present connection, if that takes calls.
    fn present(&self) -> Option<Connected> {
        self.shared.current.lock().as_ref().filter(|connected| takes_calls(connected)).cloned()
    }

    /// The present connection, or a new one if that takes no more calls.
    async fn connected(&self) -> Result<Connected, Status> {
        match self.present() {
            Some(connected) => Ok(connected),
            // Boxed: calls that find a connection, nearly all of them, need no room for a handshake.
            None => Box::pin(self.another()).await,
        }
    }

    async fn another(&self) -> Result<Connected, Status> {
        let _connecting = self.shared.connecting.lock().await;
        // Another call may have made one meanwhile.
        if let Some(connected) = self.present() {
            return Ok(connected);
        }
        let address = &self.shared.address;
        let failed = |error: &dyn std::fmt::Display| Status::unsent(format!("cannot connect to `{address}`: {error}"));
        let options = &self.shared.options;
        let connecting = async {
            match address.strip_prefix(UNIX) {
                Some(path) => {
                    let socket = UnixStream::connect(path).await.map_err(|error| error.to_string())?;
                    begin(socket, options).await
                }
                None => {
                    let socket = TcpStream::connect(address).await.map_err(|error| error.to_string())?;
                    socket.set_nodelay(true).map_err(|error| error.to_string())?;
                    begin(socket, options).await
                }
            }
        };
        let connecting = tokio::time::timeout(options.connect_timeout, connecting).await;
        let connected =
            connecting.map_err(|_| failed(&format!("nothing came within {:?}", options.connect_timeout)))?;
        let connected = connected.map_err(|error: String| failed(&error))?;
        *self.shared.current.lock() = Some(connected.clone());
        Ok(connected)
    }
}

fn takes_calls(connected: &Connected) -> bool {
    !connected.closing.load(Ordering::Acquire) && !connected.commands.is_closed()
}

/// Begins HTTP/2 on a socket, over TLS if that is asked for.
async fn begin<S>(socket: S, options: &Options) -> Result<Connected, String>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let told = |status: Status| status.message.to_string();
    let Some(tls) = &options.tls else {
        return start(Link::new(socket, options.clone()), options).await.map_err(told);
    };
    let connecting = TlsConnector::from((tls.config)()?).connect(tls.name.clone(), socket);
    let stream = connecting.await.map_err(|error| (tls.describe)(&error))?;
    start(Link::new(stream, options.clone()), options).await.map_err(told)
}

fn deadline(timeout: Option<Duration>) -> Option<Instant> {
    timeout.filter(|timeout| *timeout < CENTURY).map(|timeout| later(Instant::now().into_std(), timeout).into())
}

/// What a call ends with whose connection has gone before it was begun.
pub(super) fn gone() -> Status {
    Status::unsent("connection lost: it was closed before the call began")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_have_names() {
        for (address, name) in [
            ("127.0.0.1:2379", "127.0.0.1:2379"),
            ("unix:localhost:20000", "localhost:20000"),
            ("unix:/run/cairn/a.sock", "a.sock"),
            ("unix:/run/an odd name", "localhost"),
            ("unix:/run/", "localhost"),
        ] {
            assert_eq!(authority(address), name);
        }
    }
}

//! The bytes below a protocol.

use tokio::io::{AsyncRead, AsyncWrite};

/// What a connection runs over: a socket, or TLS over a socket.
pub(crate) trait ByteStream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> ByteStream for T {}

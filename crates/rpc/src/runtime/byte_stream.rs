//! The bytes below a protocol.

use tokio::io::{AsyncRead, AsyncWrite};

/// What a connection runs over: a socket, or TLS over a socket.
pub(crate) trait ByteStream: AsyncRead + AsyncWrite + Send + Unpin {
    /// Bytes that were taken to be written and are not: what the socket has taken counts for the system.
    fn unsent_bytes(&self) -> usize {
        0
    }
}

//! The bytes below a protocol.

use tokio::io::{AsyncRead, AsyncWrite};

/// What a connection runs over: a socket, or a socket behind TLS.
pub(crate) trait ByteStream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> ByteStream for T {}

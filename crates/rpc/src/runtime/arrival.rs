//! An accepted connection on its way to the thread that will serve it.

use std::io;

use rustls::ServerConnection;

use super::byte_stream::ByteStream;
use super::socket::Socket;
use super::tls_stream::TlsStream;
use crate::{Peer, Serves};

/// A connection that was accepted and, if that was asked for, secured.
pub(crate) struct Arrival {
    pub(crate) socket: Socket,
    /// The session over it, its handshake done.
    pub(crate) session: Option<Box<ServerConnection>>,
    /// What was read of it already.
    pub(crate) ahead: Option<u8>,
    pub(crate) peer: Peer,
    pub(crate) serves: Serves,
}

impl Arrival {
    pub(crate) fn new(socket: Socket, peer: Peer, serves: Serves) -> Arrival {
        Arrival { socket, session: None, ahead: None, peer, serves }
    }

    /// The bytes of the connection, in the runtime of the calling thread.
    pub(crate) fn into_stream(self) -> io::Result<Box<dyn ByteStream>> {
        let live = self.socket.attach()?;
        Ok(match self.session {
            None => Box::new(live),
            Some(session) => Box::new(TlsStream::new(live, session)),
        })
    }
}

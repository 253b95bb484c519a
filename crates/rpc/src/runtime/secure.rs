//! Admission of TLS connections: what a server decides about each.

use std::io;
use std::sync::Arc;

use rustls::{ServerConfig, ServerConnection};

use crate::Address;

/// Guards the connections of a listener.
pub trait Gatekeeper: Send + Sync + 'static {
    /// The configuration for a handshake that begins now.
    fn config(&self) -> Arc<ServerConfig>;

    /// Looks at a session whose handshake is done; gives the common name of the client's certificate, if it was verified. The
    /// error says why the client is not let in.
    fn admit(&self, session: &ServerConnection, address: &Address) -> Result<Option<Arc<str>>, String>;

    /// A connection was refused.
    fn rejected(&self, address: &Address, server_name: Option<&str>, refusal: &Refusal);
}

/// Why a connection was refused before anything was served on it.
#[derive(Debug)]
pub enum Refusal {
    /// What the client sent is not as TLS or the configuration wants it, or the client did not like what it was sent.
    Tls(rustls::Error),
    /// The socket failed, or was closed.
    Io(io::Error),
    /// It took too long.
    TimedOut,
    /// [`Gatekeeper::admit`] said no.
    Admission(String),
}

impl From<io::Error> for Refusal {
    fn from(error: io::Error) -> Refusal {
        match error.downcast::<rustls::Error>() {
            Ok(error) => Refusal::Tls(error),
            Err(error) => Refusal::Io(error),
        }
    }
}

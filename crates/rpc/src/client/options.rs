//! Options of a client's connection.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use api::limits;
use bytes::Bytes;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;

use crate::Status;

/// What a connection is encrypted with: a configuration that offers `h2`, or why there is none.
pub type ReadConfig = dyn Fn() -> Result<Arc<ClientConfig>, String> + Send + Sync;

/// Asked before an answer of so many bytes is taken in: says what is done with it then, or that there is no room for it.
pub type Room = Arc<dyn Fn(usize) -> Result<Option<Hold>, Status> + Send + Sync>;
/// Has an answer hold what was claimed for it.
pub type Hold = Box<dyn FnOnce(Bytes) -> Bytes + Send>;

/// How a connection is encrypted, and whom it leads to.
#[derive(Clone)]
pub struct Encryption {
    /// Asked for with every connection that is made: files may have changed since the last one.
    pub config: Arc<ReadConfig>,
    /// What the server must prove to be.
    pub name: ServerName<'static>,
    /// Puts into words why a handshake failed.
    pub describe: fn(&io::Error) -> String,
}

impl std::fmt::Debug for Encryption {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Encryption").field("name", &self.name).finish_non_exhaustive()
    }
}

/// Settings of a client's connection: what the server may send.
#[derive(Clone, Debug)]
pub struct Options {
    /// The largest message of an answer, in bytes.
    pub message_bytes_max: usize,
    /// Header list of one answer, in bytes.
    pub header_list_bytes_max: u32,
    /// What the server may send on one stream before it is taken, in bytes.
    pub stream_window_bytes: u32,
    /// What it may send on all streams together, in bytes.
    pub connection_window_bytes: u32,
    /// How long connecting may take.
    pub connect_timeout: Duration,
    /// After this long without anything from the server it is pinged. Servers send clients away that ping too often.
    pub keepalive_interval: Duration,
    /// How long the answer to that ping may take.
    pub keepalive_timeout: Duration,
    /// Whether it is pinged while there is no call, too. Servers may take that for an attack.
    pub pings_idle: bool,
    /// Connects over TLS.
    pub tls: Option<Encryption>,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            message_bytes_max: limits::SEND_BYTES_MAX,
            header_list_bytes_max: limits::HEADER_LIST_BYTES_MAX,
            stream_window_bytes: 1 << 20,
            connection_window_bytes: 4 << 20,
            connect_timeout: Duration::from_secs(5),
            keepalive_interval: Duration::from_secs(2 * 3600),
            keepalive_timeout: Duration::from_secs(20),
            pings_idle: true,
            tls: None,
        }
    }
}

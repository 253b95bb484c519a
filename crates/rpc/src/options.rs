//! Options of a server.

use std::time::Duration;

use api::limits;

use crate::RateLimits;

/// Settings of a server. The defaults are etcd's where etcd has one.
#[derive(Clone, Debug)]
pub struct Options {
    /// Request threads.
    pub threads: usize,
    /// The largest request message, in bytes, after decompression.
    pub message_bytes_max: usize,
    /// The largest body of an HTTP request that is handed over whole.
    pub body_bytes_max: usize,
    /// Connections that may be open; more are closed as soon as they are accepted.
    pub connections_max: u64,
    /// Replies and messages that may wait in all connections together, in bytes. Beyond it none that holds more than a little gets more.
    pub held_bytes_max: usize,
    /// Incomplete requests of all connections together, in bytes, and as much again for the headers of open streams. Half of it is for one
    /// host, a quarter for one connection.
    pub gathered_bytes_max: usize,
    /// Streams one connection may have open.
    pub concurrent_streams_max: u32,
    /// Header list of one request, in bytes.
    pub header_list_bytes_max: u32,
    /// What one connection may send in a second of what gets it nothing.
    pub rates: RateLimits,
    /// How long a new connection may take to show which protocol it speaks, its settings included.
    pub handshake_timeout: Duration,
    /// How long the body of an HTTP request may take that is handed over whole.
    pub http_body_timeout: Duration,
    /// How long the rest of a header block that has begun may take.
    pub header_timeout: Duration,
    /// How long a message that has begun may take for its next kilobyte, or to its end.
    pub body_timeout: Duration,
    /// How long a peer may accept no byte while there is something to send.
    pub write_timeout: Duration,
    /// After this long without anything from the peer it is pinged.
    pub keepalive_interval: Duration,
    /// How long the answer to that ping may take.
    pub keepalive_timeout: Duration,
    /// Clients that ping more often than this are disconnected with `too_many_pings`.
    pub ping_interval_min: Duration,
    /// Whether the time that each method takes is counted.
    pub times: bool,
    /// Whether clients may ping at that rate while no stream is open.
    pub ping_without_stream: bool,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            threads: std::thread::available_parallelism().map_or(1, usize::from),
            message_bytes_max: limits::REQUEST_BYTES_MAX + limits::GRPC_OVERHEAD_BYTES,
            body_bytes_max: 2 * (limits::REQUEST_BYTES_MAX + limits::GRPC_OVERHEAD_BYTES),
            connections_max: u64::MAX,
            held_bytes_max: 256 << 20,
            gathered_bytes_max: 256 << 20,
            concurrent_streams_max: limits::CONCURRENT_STREAMS_MAX,
            header_list_bytes_max: limits::HEADER_LIST_BYTES_MAX,
            rates: RateLimits::default(),
            handshake_timeout: Duration::from_secs(20),
            http_body_timeout: Duration::from_secs(60),
            header_timeout: Duration::from_secs(20),
            body_timeout: Duration::from_secs(20),
            write_timeout: Duration::from_secs(20),
            keepalive_interval: Duration::from_secs(2 * 3600),
            keepalive_timeout: Duration::from_secs(20),
            ping_interval_min: Duration::from_secs(5),
            times: false,
            ping_without_stream: false,
        }
    }
}

//! HTTP/1.1: health checks, metrics, JSON, and connections that leave it for another protocol.

mod connection;
mod upgrade;

pub(crate) use connection::{Serving, Stream, serve};
pub use upgrade::{Upgrade, Upgraded};

//! Errors of a connection between members.

use crate::chunks::Malformed;
use std::io;

/// Why an exchange ended.
#[derive(Debug, thiserror::Error)]
pub enum Fault {
    /// The other side went away.
    #[error("the connection was closed by the other side")]
    Closed,
    /// The other side is silent.
    #[error("nothing came in time")]
    TimedOut,
    /// The error of the operating system.
    #[error(transparent)]
    Io(io::Error),
    /// The other side does not speak valid HTTP/1.1.
    #[error("not valid HTTP/1.1: {0}")]
    NotHttp(String),
    /// A limit was exceeded.
    #[error("{what} of more than {bytes_max} bytes")]
    TooLong {
        /// The part that is too long.
        what: &'static str,
        /// The limit.
        bytes_max: usize,
    },
    /// The bodies being received fill the memory for them, or non-members make as many calls as they may.
    #[error("too many requests at once")]
    Busy,
}

impl Fault {
    pub(crate) fn not_http(error: impl std::fmt::Display) -> Fault {
        Fault::NotHttp(error.to_string())
    }
}

impl From<contain::Panicked> for Fault {
    fn from(panicked: contain::Panicked) -> Fault {
        Fault::Io(io::Error::other(panicked))
    }
}

impl From<io::Error> for Fault {
    fn from(error: io::Error) -> Fault {
        match error.kind() {
            // The error of a socket whose time-out is over.
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => Fault::TimedOut,
            io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe => Fault::Closed,
            _ => Fault::Io(error),
        }
    }
}

impl From<Malformed> for Fault {
    fn from(error: Malformed) -> Fault {
        Fault::not_http(error)
    }
}

//! Errors of a connection between members.

use crate::chunks::Malformed;
use std::io;

/// Why an exchange ended.
#[derive(Debug, thiserror::Error)]
pub enum Fault {
    /// The other side went away.
    #[error("the connection was closed by the other side")]
    Closed,
    /// It is there but says nothing.
    #[error("nothing came in time")]
    TimedOut,
    /// What the operating system says.
    #[error(transparent)]
    Io(io::Error),
    /// It does not speak our language.
    #[error("not valid HTTP/1.1: {0}")]
    NotHttp(String),
    /// A bound was passed.
    #[error("{what} of more than {bytes_max} bytes")]
    TooLong {
        /// What is too long.
        what: &'static str,
        /// The bound.
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
            // What a socket with a time-out says when it is over.
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

//! The status of a call: a code and a message.

use std::borrow::Cow;
use std::fmt::Write;

use api::{Code, limits};
use http::HeaderValue;

/// The outcome of a call as the client sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Status {
    /// The gRPC code.
    pub code: Code,
    /// The sentence that clients show and match on.
    pub message: Cow<'static, str>,
    /// The call has certainly not left this client. Only clients say so, of calls that they have not begun; no server can.
    is_unsent: bool,
    /// The server has panicked over the call, and closes the connection after it.
    ends_connection: bool,
}

impl Status {
    /// Success.
    pub const OK: Status =
        Status { code: Code::Ok, message: Cow::Borrowed(""), is_unsent: false, ends_connection: false };

    /// A status from its two parts.
    pub fn new(code: Code, message: impl Into<Cow<'static, str>>) -> Status {
        Status { code, message: message.into(), is_unsent: false, ends_connection: false }
    }

    /// The end of a call that was not begun: it has no stream to be sent on.
    pub(crate) fn unsent(message: impl Into<Cow<'static, str>>) -> Status {
        Status { is_unsent: true, ..Status::new(Code::Unavailable, message) }
    }

    /// Whether a call that ended like this has certainly not been sent.
    pub fn is_unsent(&self) -> bool {
        self.is_unsent
    }

    /// Whether the connection of a call that ends like this is closed once that is said. Only panics do it.
    pub fn ends_connection(&self) -> bool {
        self.ends_connection
    }

    /// What a call ends with whose answer is a message larger than gRPC sends.
    pub fn too_large_to_send(len: usize) -> Status {
        let max = limits::SEND_BYTES_MAX;
        let text = format!("grpc: trying to send message larger than max ({len} vs. {max})");
        Status::new(Code::ResourceExhausted, text)
    }

    /// What a call past its deadline ends with.
    pub(crate) fn deadline_exceeded() -> Status {
        Status::new(Code::DeadlineExceeded, "context deadline exceeded")
    }

    /// The message as the value of `grpc-message`: printable ASCII but `%` stays, everything else becomes `%XX`.
    pub(crate) fn encoded_message(&self) -> HeaderValue {
        let plain = |byte: u8| (b' '..=b'~').contains(&byte) && byte != b'%';
        let mut text = String::with_capacity(self.message.len());
        for byte in self.message.bytes() {
            if plain(byte) {
                text.push(char::from(byte));
            } else {
                // Writing to a string cannot fail.
                let _ = write!(text, "%{byte:02X}");
            }
        }
        HeaderValue::from_str(&text).unwrap_or_else(|_| HeaderValue::from_static(""))
    }
}

impl From<api::Error> for Status {
    fn from(error: api::Error) -> Status {
        Status::new(error.code(), error.message())
    }
}

impl From<contain::Panicked> for Status {
    fn from(panicked: contain::Panicked) -> Status {
        Status { ends_connection: true, ..Status::new(Code::Internal, panicked.to_string()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_percent_encoded() {
        let encoded = |text: &'static str| Status::new(Code::Unknown, text).encoded_message();
        assert_eq!(encoded("etcdserver: no leader"), "etcdserver: no leader");
        assert_eq!(encoded("100% of\nschön"), "100%25 of%0Asch%C3%B6n");
        assert_eq!(encoded("~ \u{7f}"), "~ %7F");
    }
}

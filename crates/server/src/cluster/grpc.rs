//! Unary calls to another cluster, for discovery.

use api::{Code, Message};
use rpc::Metadata;
use rpc::client::Options;
use std::time::Duration;

/// An answer larger than this is none: a few members' URLs are expected.
const ANSWER_BYTES_MAX: usize = 4 << 20;

/// Why a call failed.
#[derive(Debug, thiserror::Error)]
pub enum CallError {
    /// Nothing came in time.
    #[error("no answer within {0:?}")]
    Timeout(Duration),
    /// The other side refused, or cannot be reached.
    #[error("{} ({})", .text, .code)]
    Status {
        /// gRPC's number.
        code: u8,
        /// Its reason.
        text: String,
    },
    /// What came is no gRPC answer.
    #[error("unreadable answer: {0}")]
    Unreadable(String),
}

/// A connection to one endpoint.
pub(super) struct Channel {
    channel: rpc::client::Channel,
    metadata: Metadata,
}

impl Channel {
    /// For an http URL. It connects when it is used.
    pub(super) fn new(url: &str, patience: Duration) -> Channel {
        let options = Options { connect_timeout: patience, message_bytes_max: ANSWER_BYTES_MAX, ..Options::default() };
        let channel = rpc::client::Channel::new(super::addresses::authority(url), options);
        Channel { channel, metadata: Metadata::default() }
    }

    /// Sends this token with every call from now on.
    pub(super) fn set_token(&mut self, token: &str) {
        self.metadata = [("token", token)].into_iter().collect();
    }

    /// One request, one answer.
    pub(super) async fn unary<A: Message + Default>(
        &mut self,
        method: &str,
        request: &impl Message,
        patience: Duration,
    ) -> Result<A, CallError> {
        let message = request.encode_to_vec().into();
        let answer = self.channel.unary(method, &self.metadata, message, Some(patience)).await;
        let answer = answer.map_err(|status| match status.code {
            Code::DeadlineExceeded => CallError::Timeout(patience),
            code => CallError::Status { code: code as u8, text: status.message.into_owned() },
        })?;
        A::decode(answer).map_err(|error| CallError::Unreadable(error.to_string()))
    }
}

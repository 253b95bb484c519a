//! Unary calls to another cluster, for discovery.

use super::addresses::authority;
use crate::config::Tls;
use crate::tls;
use api::unread;
use api::{Code, Message};
use rpc::Metadata;
use rpc::client::{Encryption, Options};
use rustls::pki_types::ServerName;
use std::sync::Arc;
use std::time::Duration;

/// A larger answer is an error: the URLs of a few members are expected.
const ANSWER_BYTES_MAX: usize = 4 << 20;

/// Why a call failed.
#[derive(Debug, thiserror::Error)]
pub enum CallError {
    /// No answer came in time.
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
    /// The answer is not gRPC.
    #[error("unreadable answer: {0}")]
    Unreadable(String),
}

/// An endpoint of another cluster.
pub(super) struct Endpoint {
    authority: String,
    tls: Option<Encryption>,
}

impl Endpoint {
    /// The endpoints of these URLs. `https` URLs use TLS with the files that `options` name.
    pub(super) fn all(urls: &[String], options: &Tls) -> Result<Vec<Endpoint>, String> {
        let is_secure = |url: &String| url.starts_with("https://");
        let config = if urls.iter().any(is_secure) { Some(tls::discovery(options)?) } else { None };
        let endpoint = |url: &String| {
            let authority = authority(url);
            let tls = match config.clone().filter(|_| is_secure(url)) {
                Some(config) => {
                    let host = authority.rsplit_once(':').map_or(authority, |(host, _)| host);
                    let host = host.trim_matches(['[', ']']).to_owned();
                    let name = ServerName::try_from(host).map_err(|error| format!("`{url}`: {error}"))?;
                    Some(Encryption {
                        config: Arc::new(move || Ok(config.clone())),
                        name,
                        describe: trust::describe_io,
                    })
                }
                None => None,
            };
            Ok(Endpoint { authority: authority.into(), tls })
        };
        urls.iter().map(endpoint).collect()
    }
}

/// A connection to one endpoint.
pub(super) struct Channel {
    channel: rpc::client::Channel,
    metadata: Metadata,
}

impl Channel {
    /// A channel that connects at its first call.
    pub(super) fn new(endpoint: &Endpoint, patience: Duration) -> Channel {
        let options = Options {
            connect_timeout: patience,
            message_bytes_max: ANSWER_BYTES_MAX,
            tls: endpoint.tls.clone(),
            ..Options::default()
        };
        let channel = rpc::client::Channel::new(&endpoint.authority, options);
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
        unread::decode::<A>(answer).map_err(|error| CallError::Unreadable(error.to_string()))
    }
}

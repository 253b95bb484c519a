//! Options of a client.

use std::time::Duration;

use crate::{Endpoint, EndpointError, Security};

/// Settings of a client. The defaults are those of etcd's.
#[derive(Clone)]
pub struct Options {
    /// The members to talk to.
    pub endpoints: Vec<Endpoint>,
    /// Name and password to get a token for.
    pub user: Option<(String, String)>,
    /// A token that was made elsewhere (a JWT); it is never refreshed.
    pub token: Option<String>,
    /// How members are talked to over TLS.
    pub security: Security,
    /// How long connecting to one member may take.
    pub connect_timeout: Duration,
    /// How long a call may take with all its attempts. None: for ever.
    pub call_timeout: Option<Duration>,
    /// After this long without anything from a member it is pinged.
    pub keepalive_interval: Duration,
    /// How long the answer to that ping may take.
    pub keepalive_timeout: Duration,
    /// Members that run in this zone, by their `--zone`, are asked before others. None: all alike.
    pub zone: Option<String>,
    /// Whether it is pinged while nothing is asked, too. Members may take that for an attack.
    pub pings_idle: bool,
    /// Whether members that know of no leader are to refuse at once.
    pub needs_leader: bool,
    /// Bytes of a request.
    pub request_bytes_max: usize,
    /// Bytes of an answer.
    pub answer_bytes_max: usize,
    /// What a member may send on a stream before anything of it was taken. None: as usual, a mebibyte.
    pub stream_window_bytes: Option<u32>,
}

/// Why no client can be made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OptionsError {
    /// There is no endpoint.
    #[error(transparent)]
    Endpoint(#[from] EndpointError),
    /// What TLS needs cannot be used.
    #[error("{0}")]
    Security(String),
}

impl Default for Options {
    fn default() -> Options {
        Options {
            endpoints: Vec::new(),
            user: None,
            token: None,
            security: Security::default(),
            connect_timeout: Duration::from_secs(2),
            call_timeout: Some(Duration::from_secs(5)),
            keepalive_interval: Duration::from_secs(2 * 3600),
            keepalive_timeout: Duration::from_secs(6),
            zone: None,
            pings_idle: true,
            needs_leader: false,
            request_bytes_max: 2 << 20,
            answer_bytes_max: i32::MAX as usize,
            stream_window_bytes: None,
        }
    }
}

impl std::fmt::Debug for Options {
    /// Without the password and the token.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Options")
            .field("endpoints", &self.endpoints)
            .field("user", &self.user.as_ref().map(|(name, _)| name))
            .field("security", &self.security)
            .field("connect_timeout", &self.connect_timeout)
            .field("call_timeout", &self.call_timeout)
            .field("zone", &self.zone)
            .field("needs_leader", &self.needs_leader)
            .finish_non_exhaustive()
    }
}

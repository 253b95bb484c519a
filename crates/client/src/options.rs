//! What can be set about a client.

use std::time::Duration;

use crate::Endpoint;

/// Settings of a client. The defaults are those of etcd's.
#[derive(Clone)]
pub struct Options {
    /// The members to talk to.
    pub endpoints: Vec<Endpoint>,
    /// Name and password to get a token for.
    pub user: Option<(String, String)>,
    /// A token that was made elsewhere (a JWT); it is never refreshed.
    pub token: Option<String>,
    /// How long connecting to one member may take.
    pub connect_timeout: Duration,
    /// How long a call may take with all its attempts. None: for ever.
    pub call_timeout: Option<Duration>,
    /// After this long without anything from a member it is pinged.
    pub keepalive_interval: Duration,
    /// How long the answer to that ping may take.
    pub keepalive_timeout: Duration,
    /// Whether members that know of no leader are to refuse at once.
    pub needs_leader: bool,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            endpoints: Vec::new(),
            user: None,
            token: None,
            connect_timeout: Duration::from_secs(2),
            call_timeout: Some(Duration::from_secs(5)),
            keepalive_interval: Duration::from_secs(2 * 3600),
            keepalive_timeout: Duration::from_secs(6),
            needs_leader: false,
        }
    }
}

impl std::fmt::Debug for Options {
    /// Without the password and the token.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Options")
            .field("endpoints", &self.endpoints)
            .field("user", &self.user.as_ref().map(|(name, _)| name))
            .field("connect_timeout", &self.connect_timeout)
            .field("call_timeout", &self.call_timeout)
            .field("needs_leader", &self.needs_leader)
            .finish_non_exhaustive()
    }
}

//! A lease that is kept alive while its holder lives.

use std::time::Duration;

use api::etcdserverpb::{LeaseGrantRequest, LeaseRevokeRequest};

use crate::client::Client;
use crate::{Error, KeepAlive};

/// A lease and what keeps it alive. Locks and leaderships hang on one: they end with it.
pub struct Session {
    client: Client,
    keep_alive: KeepAlive,
}

impl Client {
    /// A session whose lease ends `ttl` (whole seconds, rounded up) after this client was last heard of.
    ///
    /// # Errors
    /// If no lease can be granted.
    pub async fn session(&self, ttl: Duration) -> Result<Session, Error> {
        let ttl = i64::try_from(ttl.as_secs() + u64::from(ttl.subsec_nanos() > 0)).unwrap_or(i64::MAX);
        let lease = self.lease_grant(LeaseGrantRequest { ttl: ttl.max(1), id: 0 }).await?;
        Ok(self.session_of(lease.id))
    }

    /// A session on a lease that exists.
    pub fn session_of(&self, lease: i64) -> Session {
        Session { client: self.clone(), keep_alive: self.keep_alive(lease) }
    }
}

impl Session {
    /// The lease it hangs on.
    pub fn lease(&self) -> i64 {
        self.keep_alive.id()
    }

    pub(crate) fn client(&self) -> &Client {
        &self.client
    }

    /// Waits until the lease has ended: its keys are lost.
    pub async fn lost(&mut self) {
        self.keep_alive.gone().await;
    }

    /// Ends the session at once, and all that hangs on it.
    ///
    /// # Errors
    /// What the members answered; the lease then ends by itself.
    pub async fn close(self) -> Result<(), Error> {
        let lease = self.lease();
        let Session { client, keep_alive } = self;
        drop(keep_alive);
        match client.lease_revoke(LeaseRevokeRequest { id: lease }).await {
            Ok(_) => Ok(()),
            Err(error) if error.is(api::Error::LeaseNotFound) => Ok(()),
            Err(error) => Err(error),
        }
    }
}

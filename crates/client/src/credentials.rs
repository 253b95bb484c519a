//! The token of a client's calls: fetched once, shared by all calls, and fetched again when a member no longer knows it.

use rpc::{Metadata, Status};
use tokio::sync::Mutex;

/// A user's name and password, and the token got for them.
pub(crate) struct Credentials {
    user: Option<(String, String)>,
    /// Held while a token is fetched, so that all waiting calls share one.
    current: Mutex<Current>,
    needs_leader: bool,
}

struct Current {
    metadata: Metadata,
    /// How many tokens there were before.
    generation: u64,
    has_token: bool,
}

/// Metadata for a call, and which token it has.
#[derive(Clone)]
pub(crate) struct Ticket {
    pub(crate) metadata: Metadata,
    generation: u64,
}

/// A user and a password, to be exchanged for a token.
pub(crate) struct Secret {
    pub(crate) name: String,
    pub(crate) password: String,
}

fn metadata(token: Option<&str>, needs_leader: bool) -> Metadata {
    let mut fields = vec![("client-api-version", api::version::ETCD)];
    if needs_leader {
        fields.push(("hasleader", "true"));
    }
    fields.extend(token.map(|token| ("token", token)));
    fields.into_iter().collect()
}

impl Credentials {
    pub(crate) fn new(user: Option<(String, String)>, token: Option<&str>, needs_leader: bool) -> Credentials {
        let current = Current { metadata: metadata(token, needs_leader), generation: 0, has_token: token.is_some() };
        Credentials { user, current: Mutex::new(current), needs_leader }
    }

    /// Metadata without a token, for the call that gets one.
    pub(crate) fn anonymous(&self) -> Metadata {
        metadata(None, self.needs_leader)
    }

    /// Whether another token can be got.
    pub(crate) fn can_refresh(&self) -> bool {
        self.user.is_some()
    }

    /// The token for a call. `authenticate` exchanges name and password for a token; it is called if there is none yet, or if `refused`
    /// is the ticket of a call that was refused and no newer token was fetched since.
    pub(crate) async fn ticket<F: Future<Output = Result<String, Status>>>(
        &self,
        refused: Option<&Ticket>,
        authenticate: impl FnOnce(Secret) -> F,
    ) -> Result<Ticket, Status> {
        let mut current = self.current.lock().await;
        let is_refused = refused.is_some_and(|ticket| ticket.generation == current.generation);
        if let Some((name, password)) = &self.user
            && (is_refused || !current.has_token)
        {
            match authenticate(Secret { name: name.clone(), password: password.clone() }).await {
                Ok(token) => {
                    current.metadata = metadata(Some(&token), self.needs_leader);
                    current.has_token = true;
                }
                // The cluster asks for no tokens.
                Err(status) if status.message == api::Error::AuthNotEnabled.message() => {
                    current.metadata = metadata(None, self.needs_leader);
                    current.has_token = true;
                }
                Err(status) => return Err(status),
            }
            current.generation += 1;
        }
        Ok(Ticket { metadata: current.metadata.clone(), generation: current.generation })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    #[tokio::test]
    async fn one_token_is_got_for_all_and_anew_only_when_it_was_refused() {
        let credentials = Credentials::new(Some(("root".into(), "secret".into())), None, false);
        let got = Cell::new(0);
        let authenticate = |secret: Secret| {
            assert_eq!((&secret.name[..], &secret.password[..]), ("root", "secret"));
            got.set(got.get() + 1);
            let token = format!("token.{}", got.get());
            async move { Ok(token) }
        };
        let first = credentials.ticket(None, authenticate).await.expect("a token");
        assert_eq!(first.metadata.get("token"), Some(&b"token.1"[..]));
        for _ in 0..3 {
            credentials.ticket(None, authenticate).await.expect("the same token");
        }
        assert_eq!(got.get(), 1);
        let second = credentials.ticket(Some(&first), authenticate).await.expect("another token");
        assert_eq!(second.metadata.get("token"), Some(&b"token.2"[..]));
        // Another call was refused with the old one: it takes the newer token.
        credentials.ticket(Some(&first), authenticate).await.expect("the second token");
        assert_eq!(got.get(), 2);
    }

    #[tokio::test]
    async fn clusters_without_authentication_are_not_asked_again() {
        let credentials = Credentials::new(Some(("root".into(), "secret".into())), None, true);
        let refuse = |_: Secret| async { Err(Status::from(api::Error::AuthNotEnabled)) };
        let ticket = credentials.ticket(None, refuse).await.expect("no token");
        assert_eq!((ticket.metadata.get("token"), ticket.metadata.get("hasleader")), (None, Some(&b"true"[..])));
        let never = |_: Secret| async { panic!("asked again") };
        credentials.ticket(None, never).await.expect("no token");
    }
}

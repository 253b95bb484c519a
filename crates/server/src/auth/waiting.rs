//! Logins that wait for the same: for bcrypt, or for a token.

use super::credentials::{Credentials, Tag};
use super::hashing::PASSWORD_BYTES_MAX;
use api::Error;
use api::limits::AUTH_NAME_BYTES_MAX;
use contain::lock;
use rpc::{Address, Status};
use std::collections::HashMap;
use std::sync::{Arc, Mutex};

/// Logins with one name and password that wait together.
const JOINED_MAX: usize = 4_096;

/// A token, or the error.
pub(crate) type Token = Result<String, Status>;
pub(super) type Then = Box<dyn FnOnce(Token) + Send>;

/// Logins that share a result: that of bcrypt, or a token.
#[derive(Default)]
pub(super) struct Waiting<K>(Mutex<HashMap<K, Vec<Login>>>);

impl<K: Eq + std::hash::Hash> Waiting<K> {
    /// Adds a login. Returns true for the first one of a key, which must start the work. A login that finds too many
    /// others fails.
    pub(super) fn join(&self, key: K, mut login: Login) -> bool {
        let mut waiting = lock(&self.0);
        let logins = waiting.entry(key).or_default();
        if logins.len() >= JOINED_MAX {
            drop(waiting);
            login.fail(Error::TooManyRequests);
            return false;
        }
        if let Some(first) = logins.first() {
            // The logins have the same name and password, so one copy is kept.
            login.credential = first.credential.clone();
        }
        logins.push(login);
        logins.len() == 1
    }

    pub(super) fn leave(&self, key: &K) -> Vec<Login> {
        lock(&self.0).remove(key).unwrap_or_default()
    }
}

/// The name and password of a login, cut to the lengths that are used.
pub(super) struct Credential {
    pub(super) name: String,
    pub(super) password: Vec<u8>,
    pub(super) tag: Tag,
}

impl Credential {
    pub(super) fn new(credentials: &Credentials, name: String, password: &str) -> Credential {
        // No user has so long a name, nor the empty one.
        let name = if name.len() > AUTH_NAME_BYTES_MAX { String::new() } else { name };
        let password = password.as_bytes();
        let password = password.get(..PASSWORD_BYTES_MAX).unwrap_or(password).to_vec();
        let tag = credentials.tag(&name, &password);
        Credential { name, password, tag }
    }
}

/// One attempt to log in.
pub(super) struct Login {
    pub(super) credential: Arc<Credential>,
    pub(super) client: Address,
    pub(super) tries: usize,
    pub(super) then: Then,
}

impl Login {
    pub(super) fn fail(self, error: impl Into<Status>) {
        (self.then)(Err(error.into()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn those_who_wait_together_are_bounded_and_share_what_they_gave() {
        let (waiting, failed) = (Waiting::default(), Arc::new(Mutex::new(Vec::new())));
        let join = || {
            let failed = failed.clone();
            let credential = Arc::new(Credential { name: "ann".into(), password: b"pw".into(), tag: [0; 32] });
            let then = Box::new(move |token: Token| lock(&failed).push(token.map_err(|status| status.message)));
            waiting.join("ann", Login { credential, client: Address::Unix, tries: 1, then })
        };
        assert!(join(), "the first sees to it");
        assert!(!(1..JOINED_MAX).any(|_| join()));
        assert_eq!(*lock(&failed), []);
        assert!(!join());
        assert_eq!(*lock(&failed), [Err(Error::TooManyRequests.message().into())]);
        let logins = waiting.leave(&"ann");
        assert_eq!(logins.len(), JOINED_MAX);
        let credential = &logins.first().expect("it came first").credential;
        assert!(logins.iter().all(|login| Arc::ptr_eq(&login.credential, credential)));
        assert!(waiting.leave(&"ann").is_empty());
    }
}

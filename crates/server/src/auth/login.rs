//! From a name and a password to a token.
//!
//! The read index comes first, so a password that was changed before is not taken any more. Then the password is checked, by what
//! is known of it or by bcrypt. The token is the user's newest if that has most of its time left, else a new one that goes through
//! the log with the auth revision under which the password was checked.

use super::hashing::HashError;
use super::{Auth, Provider};
use crate::node::{self, Node, Outcome, Weight, lock};
use api::etcdserverpb::InternalAuthenticateRequest;
use api::{Code, Error, Message};
use ring::rand::{SecureRandom, SystemRandom};
use rpc::Status;
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex};
use store::{Author, Password};

/// Times that users or permissions may change while one login is under way.
const TRIES_MAX: usize = 10;
const LETTERS: &[u8; 52] = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
const TOKEN_LETTERS: usize = 16;
/// The last multiple of their number that a byte holds: those from there on would make some letters likelier.
const FAIR: usize = 4 * LETTERS.len();

/// A token, or why there is none.
pub(crate) type Token = Result<String, Status>;
type Then = Box<dyn FnOnce(Token) + Send>;

/// Logins that wait for the same: for bcrypt, or for a token.
#[derive(Default)]
pub(super) struct Waiting<K>(Mutex<HashMap<K, Vec<Login>>>);

impl<K: Eq + std::hash::Hash> Waiting<K> {
    /// Adds one; true for the first, who has to see to it.
    fn join(&self, key: K, login: Login) -> bool {
        let mut waiting = lock(&self.0);
        let logins = waiting.entry(key).or_default();
        logins.push(login);
        logins.len() == 1
    }

    fn leave(&self, key: &K) -> Vec<Login> {
        lock(&self.0).remove(key).unwrap_or_default()
    }
}

/// One attempt to log in.
pub(super) struct Login {
    name: String,
    password: String,
    address: Option<IpAddr>,
    tries: usize,
    then: Then,
}

/// Checks a password and hands out a token; `then` is called once, on any thread.
pub(crate) fn log_in(
    node: &Arc<Node>,
    name: String,
    password: String,
    address: Option<IpAddr>,
    then: impl FnOnce(Token) + Send + 'static,
) {
    Login { name, password, address, tries: 0, then: Box::new(then) }.begin(node);
}

impl Login {
    fn fail(self, error: impl Into<Status>) {
        (self.then)(Err(error.into()));
    }

    fn begin(mut self, node: &Arc<Node>) {
        self.tries = self.tries.saturating_add(1);
        if self.tries > TRIES_MAX {
            return self.fail(Error::AuthOldRevision);
        }
        let own = node.clone();
        let weight = Weight::NONE;
        node.linearize(weight, move |allowed| match allowed {
            Ok(()) => self.check(&own),
            Err(error) => self.fail(error),
        });
    }

    fn check(self, node: &Arc<Node>) {
        let (auth, users) = (&node.auth, node.store.auth());
        if !users.is_enabled() {
            return self.fail(Error::AuthNotEnabled);
        }
        let (stored, revision) = users.password(&self.name);
        if stored == Password::None {
            let text = "auth: authentication failed, password was given for no password user";
            return self.fail(Status::new(Code::Unknown, text));
        }
        let tag = auth.credentials.tag(&self.name, &self.password, revision);
        if auth.credentials.is_known(&self.name, &tag, revision) {
            return self.issue(node, revision);
        }
        let (name, password, address) = (self.name.clone(), self.password.clone(), self.address);
        if !auth.checking.join(tag, self) {
            return;
        }
        if !auth.failures.take(&name, address, node.now_ms()) {
            return settle(auth.checking.leave(&tag), Error::TooManyFailures);
        }
        let own = node.clone();
        auth.hashing.verify(password, stored, move |found| {
            hand_over(&own.clone(), move || own.auth.checked(&own, tag, revision, &name, address, found));
        });
    }

    /// Answers with a token for a password that was right under `revision`.
    fn issue(self, node: &Arc<Node>, revision: u64) {
        let (auth, now_ms) = (&node.auth, node.now_ms());
        match &auth.provider {
            Provider::Nobody => self.fail(Error::AuthFailed),
            Provider::Simple => {
                let newest =
                    auth.tokens.newest(&self.name, now_ms).filter(|(_, age_ms)| *age_ms < auth.tokens.ttl_ms() / 2);
                // What was dropped meanwhile must not be handed out: every drop changes the revision first.
                if node.store.auth().revision() != revision {
                    return self.begin(node);
                }
                if let Some((token, _)) = newest {
                    return (self.then)(Ok(token));
                }
                let name = self.name.clone();
                let key = (name.clone(), revision);
                if auth.issuing.join(key.clone(), self) {
                    propose(node, name, revision, key);
                }
            }
            Provider::Jwt(jwt) => {
                if node.store.auth().revision() != revision {
                    return self.begin(node);
                }
                if let Some(token) = jwt.newest(&self.name, revision, now_ms) {
                    return (self.then)(Ok(token));
                }
                let name = self.name.clone();
                let key = (name.clone(), revision);
                if !auth.issuing.join(key.clone(), self) {
                    return;
                }
                // Signing takes long with some keys.
                let (own, jwt, left) = (node.clone(), jwt.clone(), key.clone());
                let signed = auth.hashing.run(move || {
                    let token = jwt.issue(&name, revision, own.now_ms());
                    for login in own.auth.issuing.leave(&left) {
                        (login.then)(token.clone().map_err(|error| Status::new(Code::Unknown, error.to_string())));
                    }
                });
                if !signed {
                    settle(auth.issuing.leave(&key), Error::TooManyRequests);
                }
            }
        }
    }
}

/// Goes on with what bcrypt has found on a thread that others can wait for: one that runs only while nobody else wants the
/// processor must not hold a lock that they want.
pub(crate) fn hand_over(node: &Node, then: impl FnOnce() + Send + 'static) {
    let slot = Arc::new(Mutex::new(Some(then)));
    let taken = slot.clone();
    let queued = node.slow.try_run(move || {
        let then = lock(&taken).take();
        if let Some(then) = then {
            then();
        }
    });
    let left = if queued { None } else { lock(&slot).take() };
    if let Some(then) = left {
        then();
    }
}

fn settle(logins: Vec<Login>, error: Error) {
    logins.into_iter().for_each(|login| login.fail(error));
}

/// Has the log give a user a new token, for all who wait for it.
fn propose(node: &Arc<Node>, name: String, revision: u64, key: (String, u64)) {
    let Some(simple_token) = letters() else {
        return settle(node.auth.issuing.leave(&key), Error::TooManyRequests);
    };
    let request = InternalAuthenticateRequest { name, password: String::new(), simple_token };
    let author = Author { user: String::new(), revision };
    let own = node.clone();
    let done = move |outcome: Outcome| {
        let logins = own.auth.issuing.leave(&key);
        match outcome {
            Ok(store::Response::Auth(answer, _)) => {
                logins.into_iter().for_each(|login| (login.then)(Ok(answer.token.clone())));
            }
            Ok(_) => settle(logins, Error::AuthFailed),
            // Something has changed, the password perhaps.
            Err(Error::AuthOldRevision) => logins.into_iter().for_each(|login| login.begin(&own)),
            Err(error) => settle(logins, error),
        }
    };
    node.propose(author, node::AUTHENTICATE, &request.encode_to_vec(), Box::new(done));
}

/// Random letters.
fn letters() -> Option<String> {
    let mut text = String::with_capacity(TOKEN_LETTERS);
    let random = SystemRandom::new();
    while text.len() < TOKEN_LETTERS {
        let mut bytes = [0; 2 * TOKEN_LETTERS];
        random.fill(&mut bytes).ok()?;
        let fair = bytes.iter().map(|byte| usize::from(*byte)).filter(|number| *number < FAIR);
        let drawn = fair.filter_map(|number| LETTERS.get(number.checked_rem(LETTERS.len())?)).copied().map(char::from);
        text.extend(drawn.take(TOKEN_LETTERS.saturating_sub(text.len())));
    }
    Some(text)
}

impl Auth {
    /// What bcrypt says of a password, for all who wait for it.
    fn checked(
        &self,
        node: &Arc<Node>,
        tag: super::credentials::Tag,
        revision: u64,
        name: &str,
        address: Option<IpAddr>,
        found: Result<bool, HashError>,
    ) {
        let is_unchanged = node.store.auth().revision() == revision;
        if found == Ok(true) && is_unchanged {
            self.credentials.keep(name, tag, revision);
        }
        if found != Ok(false) {
            self.failures.give_back(name, address);
        }
        let logins = self.checking.leave(&tag);
        match found {
            Ok(true) => logins.into_iter().for_each(|login| login.issue(node, revision)),
            Ok(false) => settle(logins, Error::AuthFailed),
            Err(_) => settle(logins, Error::TooManyRequests),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_letters() {
        let token = letters().expect("random numbers");
        assert_eq!(token.len(), TOKEN_LETTERS);
        assert!(token.bytes().all(|byte| byte.is_ascii_alphabetic()));
        assert_ne!(letters(), letters());
    }
}

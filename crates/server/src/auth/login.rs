//! From a name and a password to a token.
//!
//! The read index comes first, so a password that was changed before is not taken any more. Then the password is checked, by what
//! is known of it or by bcrypt. The token is the user's newest if that has most of its time left, else a new one that goes through
//! the log with the auth revision under which the password was checked.

use super::hashing::HashError;
use super::waiting::{Credential, Login, Token};
use super::{Auth, Provider};
use crate::node::{Node, Outcome, Weight};
use api::etcdserverpb::InternalAuthenticateRequest;
use api::{Code, Error, Message, RaftRequest};
use ring::rand::{SecureRandom, SystemRandom};
use rpc::{Address, Origin, Status};
use std::sync::Arc;
use store::{Author, Password};
use telemetry::logging::{self, Pace, Value};

/// How often one login is tried, because users or permissions have changed meanwhile.
const TRIES_MAX: usize = 10;
/// etcd's words for a login that is refused before its password is looked at.
const INVALID: &str = "invalid authentication was requested";
const LETTERS: &[u8; 52] = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
const TOKEN_LETTERS: usize = 16;
/// The largest multiple of the number of letters in a byte. Bytes from there on are dropped: they would make some
/// letters more likely.
const FAIR: usize = 4 * LETTERS.len();

/// Checks a password and passes a token to `then`, which is called once, on any thread.
pub(crate) fn log_in(
    node: &Arc<Node>,
    name: String,
    password: &str,
    client: Address,
    then: impl FnOnce(Token) + Send + 'static,
) {
    // Computed here, because consensus waits for the code that runs after the read index.
    let credential = Arc::new(Credential::new(&node.auth.credentials, name, password));
    Login { credential, client, tries: 0, then: Box::new(then) }.begin(node);
}

impl Login {
    fn begin(mut self, node: &Arc<Node>) {
        self.tries = self.tries.saturating_add(1);
        if self.tries > TRIES_MAX {
            return self.fail(Error::AuthOldRevision);
        }
        let own = node.clone();
        let weight = Weight::of(self.credential.name.len(), self.client);
        node.linearize(weight, move |allowed| match allowed {
            Ok(()) => hand_over(&own.clone(), Some(self.client), move || self.check(&own)),
            Err(error) => self.fail(error),
        });
    }

    fn check(self, node: &Arc<Node>) {
        let (auth, users) = (&node.auth, node.store.auth());
        if !users.is_enabled() {
            return self.fail(Error::AuthNotEnabled);
        }
        let (stored, revision) = users.password(&self.credential.name);
        if stored == Password::None {
            refused_line(INVALID, &self.credential.name, self.client, "the user has no password, or does not exist");
            let text = "auth: authentication failed, password was given for no password user";
            return self.fail(Status::new(Code::Unknown, text));
        }
        let (credential, origin) = (self.credential.clone(), Origin::of(self.client.ip()));
        let client = self.client;
        if auth.credentials.is_known(&credential.name, &credential.tag, revision) {
            return self.issue(node, revision);
        }
        let key = (credential.tag, revision);
        if !auth.checking.join(key, self) {
            return;
        }
        if !auth.failures.take(&credential.name, origin, node.now_ms()) {
            refused_line(INVALID, &credential.name, client, Error::TooManyFailures.message());
            return settle(auth.checking.leave(&key), Error::TooManyFailures);
        }
        let own = node.clone();
        auth.hashing.verify(credential.password.clone(), stored, move |found| {
            hand_over(&own.clone(), Some(client), move || own.auth.checked(&own, &credential, revision, origin, found));
        });
    }

    /// Answers with a token for a password that was right under `revision`.
    fn issue(self, node: &Arc<Node>, revision: u64) {
        let (auth, now_ms) = (&node.auth, node.now_ms());
        match &auth.provider {
            Provider::Nobody => self.fail(Error::AuthFailed),
            Provider::Simple => {
                let newest = auth
                    .tokens
                    .newest(&self.credential.name, now_ms)
                    .filter(|(_, age_ms)| *age_ms < auth.tokens.ttl_ms() / 2);
                // A token that was dropped meanwhile must not be handed out. Every drop changes the revision first.
                if node.store.auth().revision() != revision {
                    return self.begin(node);
                }
                if let Some((token, _)) = newest {
                    return (self.then)(Ok(token));
                }
                let name = self.credential.name.clone();
                let key = (name.clone(), revision);
                if auth.issuing.join(key.clone(), self) {
                    propose(node, name, revision, key);
                }
            }
            Provider::Jwt(jwt) => {
                if node.store.auth().revision() != revision {
                    return self.begin(node);
                }
                if let Some(token) = jwt.newest(&self.credential.name, revision, now_ms) {
                    return (self.then)(Ok(token));
                }
                let name = self.credential.name.clone();
                let (key, client) = ((name.clone(), revision), self.client);
                if !auth.issuing.join(key.clone(), self) {
                    return;
                }
                // Signing takes long with some keys, so bcrypt's threads do it.
                let (own, jwt, left) = (node.clone(), jwt.clone(), key.clone());
                let signed = auth.hashing.run(move || {
                    let token = jwt.issue(&name, revision, own.now_ms());
                    let (node, left) = (own.clone(), left.clone());
                    hand_over(&own, Some(client), move || {
                        for login in node.auth.issuing.leave(&left) {
                            (login.then)(token.clone().map_err(|error| Status::new(Code::Unknown, error.to_string())));
                        }
                    });
                });
                if !signed {
                    settle(auth.issuing.leave(&key), Error::TooManyRequests);
                }
            }
        }
    }
}

/// Runs `then`, the short work of a call of `client` after bcrypt or a read index, on a thread for such work. The
/// threads of bcrypt run only when no other thread wants the processor, so they must not hold a lock that others want;
/// and consensus must not wait for lookups. Logins and renewals of leases come this way, so it must not wait behind the
/// long jobs of the slow threads. If there is no place, `then` runs at once.
pub(crate) fn hand_over(node: &Node, client: Option<Address>, then: impl FnOnce() + Send + 'static) {
    if let Err(then) = node.short.try_give(client, then, |then| then()) {
        then();
    }
}

fn settle(logins: Vec<Login>, error: Error) {
    logins.into_iter().for_each(|login| login.fail(error));
}

/// A line about a login that was refused. Clients cause it, so there are only so many.
fn refused_line(text: &str, user: &str, client: Address, error: &str) {
    static PACE: Pace = Pace::new();
    if let Some(left_out) = PACE.line() {
        logging::info(
            text,
            &[
                ("user-name", logging::shortened(user).into()),
                ("remote-addr", Value::Shown(&client)),
                ("error", error.into()),
                ("lines-left-out", left_out.into()),
            ],
        );
    }
}

/// Proposes a new token for a user, for all logins that wait for it.
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
            // Users have changed, perhaps this password: the logins start again.
            Err(Error::AuthOldRevision) => logins.into_iter().for_each(|login| login.begin(&own)),
            Err(error) => settle(logins, error),
        }
    };
    node.propose(author, RaftRequest::Authenticate, &request.encode_to_vec(), Box::new(done));
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
    /// Passes the result of bcrypt to all logins that wait for it.
    fn checked(
        &self,
        node: &Arc<Node>,
        credential: &Credential,
        revision: u64,
        origin: Origin,
        found: Result<bool, HashError>,
    ) {
        let Credential { name, tag, .. } = credential;
        let is_unchanged = node.store.auth().revision() == revision;
        if found == Ok(true) && is_unchanged {
            self.credentials.keep(name, *tag, revision);
        }
        if found != Ok(false) {
            self.failures.give_back(name, origin);
        }
        let logins = self.checking.leave(&(*tag, revision));
        if found == Ok(false) {
            for login in &logins {
                // etcd's words.
                refused_line("invalid password", name, login.client, Error::AuthFailed.message());
            }
        }
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

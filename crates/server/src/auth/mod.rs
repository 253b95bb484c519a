//! Who asks, and whether they may.
//!
//! [`identity`] is what a call says of who makes it, [`principal`] who that turned out to be, [`admission`] the way from one to the
//! other and through `store`'s one function that decides, by the [`rules`] of the method table. What comes out is [`permitted`], which
//! is what handlers take; [`guard`] calls them. [`login`] is the way from a password to a token: through [`failures`],
//! [`credentials`] and [`hashing`] to [`Tokens`], which the log gives out and threads remember as [`recent`], or [`jwt`], which are
//! signed.

#![deny(clippy::indexing_slicing, clippy::string_slice, clippy::arithmetic_side_effects, clippy::expect_used)]
#![cfg_attr(
    test,
    allow(clippy::indexing_slicing, clippy::string_slice, clippy::arithmetic_side_effects, clippy::expect_used)
)]

mod admission;
mod caller;
mod credentials;
mod failures;
mod guard;
mod hashing;
mod identity;
mod jwt;
mod late;
mod login;
mod permitted;
mod principal;
mod recent;
pub(crate) mod rules;
mod waiting;

pub(crate) use admission::{Asking, awaits_token};
pub(crate) use caller::Caller;
pub(crate) use guard::{CatchUp, Handler, Opens, Request};
pub(crate) use hashing::HashError;
pub(crate) use jwt::OptionsError;
#[cfg(feature = "test-support")]
pub use jwt::{JsonWebTokens, TokenHolder};
pub(crate) use login::{hand_over, log_in};
pub(crate) use permitted::Permitted;
pub(crate) use rules::Rule;

use crate::config::Config;
use api::Error;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use credentials::{Credentials, Tag};
use failures::Failures;
use hashing::Hashing;
use identity::Identity;
use jwt::Jwt;
use principal::Principal;
use recent::Recent;
use replica::{Found, Tokens};
use std::cmp::Ordering;
use std::hash::RandomState;
use std::sync::Arc;
use std::time::Duration;
use store::{AuthEvent, Store};
use telemetry::metrics::Page;
use waiting::Waiting;

/// Lifetime of simple tokens if the flag gives none.
const TOKEN_TTL_DEFAULT: Duration = Duration::from_secs(300);

/// What a member needs besides the replicated users to find the principal of a call.
pub(crate) struct Auth {
    provider: Provider,
    /// `--client-cert-auth`: the common name of a client's certificate names a user.
    knows_certificates: bool,
    tokens: Tokens<RandomState>,
    recent: Recent,
    credentials: Credentials,
    failures: Failures,
    hashing: Hashing,
    /// Logins that wait for bcrypt, by credential and auth revision.
    checking: Waiting<(Tag, u64)>,
    /// Logins that wait for a token, by user and auth revision.
    issuing: Waiting<(String, u64)>,
}

/// The kind of token that a login returns.
enum Provider {
    Simple,
    Jwt(Arc<Jwt>),
    /// No tokens: the flag is empty. Only certificates name users.
    Nobody,
}

/// Why a call has no principal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unknown {
    /// The token is from an entry that this member has not applied.
    NotYet,
    /// The credentials are invalid.
    Refused(Error),
}

impl Auth {
    /// Reads the keys and starts the threads.
    pub(crate) fn start(config: &Config) -> Result<Auth, OptionsError> {
        let knows_certificates = config.tls_client.client_cert_auth;
        let config = &config.auth;
        let ttl = match config.token_ttl_seconds {
            0 => TOKEN_TTL_DEFAULT,
            seconds => Duration::from_secs(seconds),
        };
        let (kind, options) = jwt::split(&config.token)?;
        let provider = match kind {
            "simple" => Provider::Simple,
            "jwt" => Provider::Jwt(Arc::new(Jwt::open(&options)?)),
            "" => Provider::Nobody,
            _ => return Err(OptionsError::Kind(config.token.clone())),
        };
        Ok(Auth {
            provider,
            knows_certificates,
            tokens: Tokens::new(ttl, RandomState::new()),
            recent: Recent::new(ttl.as_millis() as u64),
            credentials: Credentials::new().ok_or(OptionsError::Random)?,
            failures: Failures::default(),
            hashing: Hashing::start(config.bcrypt_cost)?,
            checking: Waiting::default(),
            issuing: Waiting::default(),
        })
    }

    /// Hashes a password into its stored form; `then` is called once, on any thread.
    pub(crate) fn hash(&self, password: String, then: impl FnOnce(Result<String, HashError>) + Send + 'static) {
        self.hashing.hash(password, move |hashed| then(hashed.map(|hash| STANDARD.encode(hash))));
    }

    /// Updates the tokens after an entry. Called in the order of the log, before the entry counts as applied.
    pub(crate) fn note(&self, event: &AuthEvent, now_ms: u64) {
        self.tokens.applied(event, now_ms);
    }

    /// Drops all tokens after a snapshot was installed: a snapshot does not contain tokens.
    pub(crate) fn replaced(&self) {
        self.tokens.clear();
    }

    /// Appends the metrics about the keys of tokens to a page.
    pub(crate) fn render(&self, page: &mut Page) {
        let counts = if let Provider::Jwt(jwt) = &self.provider { jwt.reloads() } else { [0, 0] };
        let name = "cairn_auth_key_reloads_total";
        page.family(name, "counter", "Reading the keys of JSON web tokens anew after a change.");
        for (outcome, count) in ["ok", "failed"].into_iter().zip(counts) {
            page.labelled(name, &[("outcome", outcome)], count);
        }
    }

    /// Finds the principal of a call with the entries that this member has applied so far.
    fn principal(&self, store: &Store, identity: &Identity, applied: u64, now_ms: u64) -> Result<Principal, Unknown> {
        let users = store.auth();
        if !users.is_enabled() {
            return Ok(Principal::open());
        }
        let named = |user: &str| users.permissions(user).map_or_else(Principal::unknown_user, Principal::user);
        match (identity.token(), identity.common_name()) {
            (Some(token), _) => match &self.provider {
                Provider::Nobody => Err(Unknown::Refused(Error::InvalidAuthToken)),
                Provider::Simple => {
                    let taken = self.tokens.taken();
                    if let Some(principal) = self.recent.find(token, taken, users.revision(), now_ms) {
                        return Ok(principal);
                    }
                    match self.tokens.find(token, applied, now_ms) {
                        Found::User(user) => {
                            let principal = named(&user);
                            self.recent.note(token, taken, now_ms, &principal);
                            Ok(principal)
                        }
                        Found::Later => Err(Unknown::NotYet),
                        Found::Nowhere => Err(Unknown::Refused(Error::InvalidAuthToken)),
                    }
                }
                Provider::Jwt(jwt) => {
                    let holder = jwt.find(token).map_err(Unknown::Refused)?;
                    match holder.revision.cmp(&users.revision()) {
                        Ordering::Less => Err(Unknown::Refused(Error::AuthOldRevision)),
                        Ordering::Equal => Ok(named(&holder.user)),
                        Ordering::Greater => Err(Unknown::NotYet),
                    }
                }
            },
            (None, None) => Ok(Principal::nobody()),
            (None, Some("")) if self.knows_certificates => Ok(Principal::unnamed()),
            (None, Some(name)) if self.knows_certificates => Ok(named(name)),
            (None, Some(_)) => Ok(Principal::nobody()),
        }
    }
}

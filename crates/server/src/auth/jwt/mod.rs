//! JSON web tokens: signed by a key that every member has, and so known to all of them without the log.
//!
//! [`options`] is what `--auth-token=jwt,...` says, [`keys`] the algorithms, [`claims`] what a token says. A token that was found
//! right is kept with what it says, so that verifying it again costs no signature.

mod claims;
mod der;
mod keys;
mod options;

pub(crate) use options::OptionsError;

use crate::node::lock;
use api::Error;
use claims::Claims;
use keys::Keys;
use options::Options;
use ring::hmac;
use ring::rand::SystemRandom;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::{SystemTime, UNIX_EPOCH};

/// Verified tokens that are kept, and users whose token is.
const KEPT_MAX: usize = 10_000;
/// Longer ones are not looked at: the claims are a name and two numbers.
const TOKEN_BYTES_MAX: usize = 64 * 1024;

/// Who a token is for.
#[derive(Clone, Debug)]
pub(super) struct Holder {
    pub(super) user: Arc<str>,
    /// The auth revision under which it was signed.
    pub(super) revision: u64,
    /// Seconds since 1970.
    expires: u64,
}

/// Why no token is signed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum SignError {
    #[error("auth: token signing attempted with verify-only key")]
    VerifyOnly,
    #[error("auth: the token cannot be signed")]
    Failed,
}

struct Issued {
    token: String,
    revision: u64,
    at_ms: u64,
}

/// Signs and verifies.
pub(crate) struct Jwt {
    keys: Keys,
    ttl_seconds: u64,
    /// Of the kept tokens: their bytes are as good as passwords.
    tags: hmac::Key,
    verified: RwLock<HashMap<[u8; 32], Holder>>,
    issued: Mutex<HashMap<String, Issued>>,
}

impl Jwt {
    /// Reads the keys that the options name.
    pub(super) fn open(options: &str) -> Result<Jwt, OptionsError> {
        let Options { keys, ttl } = Options::parse(options)?;
        let tags = hmac::Key::generate(hmac::HMAC_SHA256, &SystemRandom::new()).map_err(|_| OptionsError::Random)?;
        Ok(Jwt { keys, ttl_seconds: ttl.as_secs().max(1), tags, verified: RwLock::default(), issued: Mutex::default() })
    }

    /// Whom the token is for, if its signature is right and its time not over.
    pub(super) fn find(&self, token: &[u8]) -> Result<Holder, Error> {
        if token.len() > TOKEN_BYTES_MAX {
            return Err(Error::InvalidAuthToken);
        }
        let now = now_seconds();
        let mut tag = [0; 32];
        tag.copy_from_slice(hmac::sign(&self.tags, token).as_ref());
        let kept = self.verified.read().unwrap_or_else(PoisonError::into_inner).get(&tag).cloned();
        if let Some(holder) = kept {
            return if holder.expires > now { Ok(holder) } else { Err(Error::InvalidAuthToken) };
        }
        let claims =
            self.keys.verify(token).and_then(|claims| Claims::parse(&claims, now)).ok_or(Error::InvalidAuthToken)?;
        let holder = Holder { user: claims.username.into(), revision: claims.revision, expires: claims.expires };
        let mut verified = self.verified.write().unwrap_or_else(PoisonError::into_inner);
        if verified.len() >= KEPT_MAX {
            verified.retain(|_, holder| holder.expires > now);
            if verified.len() >= KEPT_MAX {
                verified.clear();
            }
        }
        verified.insert(tag, holder.clone());
        Ok(holder)
    }

    /// The token last signed for the user under this revision, while most of its time is left.
    pub(super) fn newest(&self, user: &str, revision: u64, now_ms: u64) -> Option<String> {
        let issued = lock(&self.issued);
        let newest = issued.get(user).filter(|issued| issued.revision == revision)?;
        (now_ms < newest.at_ms + self.ttl_seconds * 500).then(|| newest.token.clone())
    }

    /// Signs a token.
    pub(super) fn issue(&self, user: &str, revision: u64, now_ms: u64) -> Result<String, SignError> {
        let claims = Claims { username: user.into(), revision, expires: now_seconds() + self.ttl_seconds };
        let token = self.keys.sign(&claims.encode())?;
        let mut issued = lock(&self.issued);
        if issued.len() >= KEPT_MAX && !issued.contains_key(user) {
            issued.clear();
        }
        issued.insert(user.to_string(), Issued { token: token.clone(), revision, at_ms: now_ms });
        Ok(token)
    }
}

fn now_seconds() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

//! JSON web tokens without a member, for tests that attack them.

use super::claims::Claims;
use super::{Jwt, OptionsError, split};
use std::sync::PoisonError;

/// Signs and verifies JSON web tokens as a member does.
pub struct JsonWebTokens(Jwt);

/// What a token says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenHolder {
    /// The user who holds it.
    pub user: String,
    /// The auth revision under which it was signed.
    pub revision: u64,
}

impl JsonWebTokens {
    /// Reads the keys that are named as in `--auth-token`.
    ///
    /// # Errors
    /// If a member would not start with it.
    pub fn open(flag: &str) -> Result<JsonWebTokens, Box<dyn std::error::Error>> {
        let (kind, options) = split(flag)?;
        if kind != "jwt" {
            return Err(OptionsError::Kind(flag.into()).into());
        }
        Ok(JsonWebTokens(Jwt::open(&options)?))
    }

    /// A token with these claims, whatever they are; `None` without a private key.
    pub fn sign(&self, claims: &[u8]) -> Option<String> {
        self.0.signed.read().unwrap_or_else(PoisonError::into_inner).keys.sign(claims).ok()
    }

    /// The claims of a token, whatever they are; `None` if its signature is wrong.
    pub fn verify(&self, token: &[u8]) -> Option<Vec<u8>> {
        self.0.signed.read().unwrap_or_else(PoisonError::into_inner).keys.verify(token)
    }

    /// The holder of a token as a call with it finds it, now.
    pub fn find(&self, token: &[u8]) -> Option<TokenHolder> {
        let found = self.0.find(token).ok()?;
        Some(TokenHolder { user: found.user.to_string(), revision: found.revision })
    }

    /// What these claims say at a time in seconds since 1970; `None` if they are not valid then.
    pub fn read(claims: &[u8], now_seconds: u64) -> Option<TokenHolder> {
        let Claims { username, revision, .. } = Claims::parse(claims, now_seconds)?;
        Some(TokenHolder { user: username, revision })
    }
}

//! Credentials that bcrypt has found right lately.
//!
//! A client that logs in again with the same password costs a keyed hash instead of bcrypt. What is kept tells nobody a password:
//! the key is random, and this process's alone.

use contain::lock;
use ring::hmac;
use ring::rand::SystemRandom;
use std::collections::HashMap;
use std::sync::Mutex;

/// Users whose credential is kept.
const KEPT_MAX: usize = 10_000;

/// A keyed hash of user and password.
pub(super) type Tag = [u8; 32];

/// Credentials that bcrypt has found right.
pub(super) struct Credentials {
    key: hmac::Key,
    /// The last right credential of each user, and the auth revision under which it was checked.
    known: Mutex<HashMap<String, (Tag, u64)>>,
}

impl Credentials {
    /// `None` if there are no random numbers.
    pub(super) fn new() -> Option<Credentials> {
        let key = hmac::Key::generate(hmac::HMAC_SHA256, &SystemRandom::new()).ok()?;
        Some(Credentials { key, known: Mutex::default() })
    }

    /// The tag by which a credential is recognized.
    pub(super) fn tag(&self, user: &str, password: &[u8]) -> Tag {
        let mut tag = [0; 32];
        tag.copy_from_slice(self.sign(user, password).as_ref());
        tag
    }

    fn sign(&self, user: &str, password: &[u8]) -> hmac::Tag {
        let mut context = hmac::Context::with_key(&self.key);
        // The length separates user and password, so no other pair has the same bytes.
        context.update(&(user.len() as u64).to_le_bytes());
        context.update(user.as_bytes());
        context.update(password);
        context.sign()
    }

    /// Whether bcrypt has found this credential right under this auth revision.
    pub(super) fn is_known(&self, user: &str, tag: &Tag, revision: u64) -> bool {
        let found = lock(&self.known).get(user).copied();
        found.is_some_and(|(known, checked)| checked == revision && is_equal(&known, tag))
    }

    /// Keeps a credential that bcrypt has found right.
    pub(super) fn keep(&self, user: &str, tag: Tag, revision: u64) {
        let mut known = lock(&self.known);
        if known.len() >= KEPT_MAX && !known.contains_key(user) {
            known.retain(|_, (_, checked)| *checked == revision);
            if known.len() >= KEPT_MAX {
                known.clear();
            }
        }
        known.insert(user.to_string(), (tag, revision));
    }
}

/// Compares in a time that does not depend on where the first difference is.
fn is_equal(one: &Tag, other: &Tag) -> bool {
    let difference = one.iter().zip(other).fold(0, |difference, (one, other)| difference | (one ^ other));
    std::hint::black_box(difference) == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_very_same_is_known() {
        let credentials = Credentials::new().expect("random numbers");
        let right = credentials.tag("ann", b"pw");
        credentials.keep("ann", right, 5);
        assert!(credentials.is_known("ann", &right, 5));
        assert!(!credentials.is_known("ann", &right, 6));
        assert!(!credentials.is_known("bob", &right, 5));
        for (user, password) in [("ann", "pW"), ("annp", "w"), ("an", "npw")] {
            assert!(!credentials.is_known("ann", &credentials.tag(user, password.as_bytes()), 5));
        }
    }

    #[test]
    fn they_are_bounded() {
        let credentials = Credentials::new().expect("random numbers");
        for number in 0..3 * KEPT_MAX {
            credentials.keep(&number.to_string(), [0; 32], 1);
        }
        assert!(lock(&credentials.known).len() <= KEPT_MAX);
    }
}

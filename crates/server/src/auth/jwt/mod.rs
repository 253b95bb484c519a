//! JSON web tokens: signed by a key that every member has, and so known to all of them without the log.
//!
//! [`options`] is what `--auth-token=jwt,...` says, [`keys`] the algorithms, [`claims`] what a token says. A token that was found
//! right is kept with what it says, so that verifying it again costs no signature. Files with keys are looked at every second, and read
//! anew when they have changed and look the same twice, so that half of a key is not taken for one: then only what the new keys have
//! signed is good.

mod claims;
mod der;
mod keys;
mod options;
#[cfg(feature = "test-support")]
mod probe;

pub(crate) use options::{OptionsError, split};
#[cfg(feature = "test-support")]
pub use probe::{JsonWebTokens, TokenHolder};

use crate::system::file_stamp::{Stamp, stamps};
use api::Error;
use claims::Claims;
use contain::contain;
use contain::lock;
use keys::Keys;
use options::Options;
use ring::hmac;
use ring::rand::SystemRandom;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock, TryLockError};
use std::time::{SystemTime, UNIX_EPOCH};
use telemetry::logging::{self, Value};

/// Limit of the table of verified tokens, and of the table of users with their newest token.
const KEPT_MAX: usize = 10_000;
/// Longer tokens are refused unread: the claims are only a name and two numbers.
const TOKEN_BYTES_MAX: usize = 64 * 1024;

/// The user of a verified token.
#[derive(Clone, Debug)]
pub(super) struct Holder {
    pub(super) user: Arc<str>,
    /// The auth revision under which the token was signed.
    pub(super) revision: u64,
    /// When the token expires, in seconds since 1970.
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

/// Signs and verifies tokens.
pub(crate) struct Jwt {
    options: Options,
    ttl_seconds: u64,
    /// Makes the tags under which tokens are kept. The tokens themselves are not kept, because they are as good as
    /// passwords.
    tags: hmac::Key,
    signed: RwLock<Arc<Signed>>,
    files: Mutex<Files>,
    /// When the files were last checked, in seconds since 1970.
    looked_seconds: AtomicU64,
    reloads: [AtomicU64; 2],
}

/// Stamps of the files with keys.
struct Files {
    /// The stamps at the last reading, successful or not.
    read: Vec<Option<Stamp>>,
    /// The stamps at the last check.
    seen: Vec<Option<Stamp>>,
}

/// Wrong tokens of the current second. A client with a wrong token tries again, and checking a signature takes long.
#[derive(Default)]
struct Wrong {
    at_seconds: u64,
    tags: HashSet<[u8; 32]>,
}

impl Wrong {
    fn contains(&self, tag: &[u8; 32], now: u64) -> bool {
        self.at_seconds == now && self.tags.contains(tag)
    }

    fn note(&mut self, tag: [u8; 32], now: u64) {
        if self.at_seconds != now || self.tags.len() >= KEPT_MAX {
            self.tags.clear();
            self.at_seconds = now;
        }
        self.tags.insert(tag);
    }
}

/// Keys, and the tokens checked or signed with them.
struct Signed {
    keys: Keys,
    wrong: Mutex<Wrong>,
    verified: RwLock<HashMap<[u8; 32], Holder>>,
    issued: Mutex<HashMap<String, Issued>>,
}

impl Signed {
    fn by(keys: Keys) -> Arc<Signed> {
        Arc::new(Signed { keys, wrong: Mutex::default(), verified: RwLock::default(), issued: Mutex::default() })
    }
}

impl Jwt {
    /// Reads the keys that the options name.
    pub(super) fn open(options: &BTreeMap<&str, &str>) -> Result<Jwt, OptionsError> {
        let options = Options::read(options)?;
        // The stamps are taken before reading: a file that changes meanwhile is read again.
        let read = stamps(&options.files());
        let files = Mutex::new(Files { seen: read.clone(), read });
        let signed = RwLock::new(Signed::by(options.keys()?));
        let tags = hmac::Key::generate(hmac::HMAC_SHA256, &SystemRandom::new()).map_err(|_| OptionsError::Random)?;
        let looked_seconds = AtomicU64::new(now_seconds());
        let ttl_seconds = options.ttl.as_secs().max(1);
        Ok(Jwt { options, ttl_seconds, tags, signed, files, looked_seconds, reloads: Default::default() })
    }

    /// The keys of the files, at most about a second old. If a changed file cannot be used, the old keys stay.
    fn current(&self, now_seconds: u64) -> Arc<Signed> {
        if self.looked_seconds.swap(now_seconds, Ordering::Relaxed) != now_seconds {
            self.look();
        }
        self.signed.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn look(&self) {
        // If the file system hangs, only one thread waits for it.
        let mut files = match self.files.try_lock() {
            Ok(files) => files,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return,
        };
        let now = stamps(&self.options.files());
        let is_settled = files.seen == now;
        files.seen.clone_from(&now);
        if files.read == now || !is_settled {
            return;
        }
        files.read = now;
        match contain(|| self.options.keys()).unwrap_or_else(|panicked| Err(panicked.into())) {
            Ok(keys) => {
                *self.signed.write().unwrap_or_else(PoisonError::into_inner) = Signed::by(keys);
                self.reloads[0].fetch_add(1, Ordering::Relaxed);
                logging::info("read the keys of tokens anew", &[]);
            }
            Err(why) => {
                self.reloads[1].fetch_add(1, Ordering::Relaxed);
                logging::warn(
                    "cannot use a key that has changed: what was read before is used on",
                    &[("error", Value::Shown(&why))],
                );
            }
        }
    }

    /// How often changed keys were read: successfully, and without success.
    pub(super) fn reloads(&self) -> [u64; 2] {
        self.reloads.each_ref().map(|count| count.load(Ordering::Relaxed))
    }

    /// The user of a token whose signature is right and which has not expired.
    pub(super) fn find(&self, token: &[u8]) -> Result<Holder, Error> {
        if token.len() > TOKEN_BYTES_MAX {
            return Err(Error::InvalidAuthToken);
        }
        let now = now_seconds();
        let signed = self.current(now);
        let mut tag = [0; 32];
        tag.copy_from_slice(hmac::sign(&self.tags, token).as_ref());
        let kept = signed.verified.read().unwrap_or_else(PoisonError::into_inner).get(&tag).cloned();
        if let Some(holder) = kept {
            return if holder.expires > now { Ok(holder) } else { Err(Error::InvalidAuthToken) };
        }
        if lock(&signed.wrong).contains(&tag, now) {
            return Err(Error::InvalidAuthToken);
        }
        let verify = || signed.keys.verify(token).and_then(|claims| Claims::parse(&claims, now));
        let Some(claims) = contain(verify).ok().flatten() else {
            lock(&signed.wrong).note(tag, now);
            return Err(Error::InvalidAuthToken);
        };
        let holder = Holder { user: claims.username.into(), revision: claims.revision, expires: claims.expires };
        let mut verified = signed.verified.write().unwrap_or_else(PoisonError::into_inner);
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
        let signed = self.current(now_seconds());
        let issued = lock(&signed.issued);
        let newest = issued.get(user).filter(|issued| issued.revision == revision)?;
        (now_ms < newest.at_ms.saturating_add(self.ttl_seconds.saturating_mul(500))).then(|| newest.token.clone())
    }

    /// Signs a token.
    pub(super) fn issue(&self, user: &str, revision: u64, now_ms: u64) -> Result<String, SignError> {
        let now = now_seconds();
        let signed = self.current(now);
        let claims = Claims { username: user.into(), revision, expires: now.saturating_add(self.ttl_seconds) };
        let token = signed.keys.sign(&claims.encode())?;
        let mut issued = lock(&signed.issued);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrong_token_is_looked_at_once_a_second() {
        let path = std::env::temp_dir().join(format!("cairn-jwt-wrong-{}", std::process::id()));
        std::fs::write(&path, "secret").expect("written");
        let file = path.display().to_string();
        let jwt = Jwt::open(&BTreeMap::from([("sign-method", "HS256"), ("priv-key", file.as_str())])).expect("opened");
        std::fs::remove_file(&path).expect("removed");
        assert!(jwt.find(b"no token").is_err());
        let signed = jwt.signed.read().expect("no panic").clone();
        let is_noted = |now| {
            let mut tag = [0; 32];
            tag.copy_from_slice(hmac::sign(&jwt.tags, b"no token").as_ref());
            lock(&signed.wrong).contains(&tag, now)
        };
        let noted = lock(&signed.wrong).at_seconds;
        assert!(is_noted(noted) && !is_noted(noted + 1), "a token of a time to come may be right later");
        for number in 0..3 * KEPT_MAX {
            let mut tag = [0; 32];
            tag[..8].copy_from_slice(&number.to_le_bytes());
            lock(&signed.wrong).note(tag, noted);
        }
        assert!(lock(&signed.wrong).tags.len() <= KEPT_MAX);
    }

    /// The keys change, break, and change again. Tokens are valid as long as their key.
    #[test]
    fn keys_are_read_anew() {
        let path = std::env::temp_dir().join(format!("cairn-jwt-key-{}", std::process::id()));
        std::fs::write(&path, "first").expect("written");
        let file = path.display().to_string();
        let options = BTreeMap::from([("sign-method", "HS256"), ("priv-key", file.as_str())]);
        let jwt = Jwt::open(&options).expect("opened");
        let first = jwt.issue("ann", 1, 0).expect("signed");
        let is_good = |token: &str| jwt.find(token.as_bytes()).is_ok();
        assert!(is_good(&first) && jwt.newest("ann", 1, 0).as_ref() == Some(&first));
        jwt.look();
        assert_eq!(jwt.reloads(), [0, 0]);

        std::fs::write(&path, "the second").expect("written");
        jwt.look();
        assert!(is_good(&first), "it may be half written");
        jwt.look();
        assert!(!is_good(&first) && jwt.newest("ann", 1, 0).is_none());
        let second = jwt.issue("ann", 1, 0).expect("signed");
        assert!(is_good(&second));

        std::fs::remove_file(&path).expect("removed");
        for _ in 0..3 {
            jwt.look();
        }
        assert!(is_good(&second), "what worked goes on");
        assert_eq!(jwt.reloads(), [1, 1]);

        let unsigned = Keys::read(keys::Algorithm::parse("HS256").expect("known"), None, Some("/dev/null".into()));
        assert!(matches!(unsigned.err(), Some(OptionsError::Key { .. })), "anybody can sign with nothing");
        std::fs::write(&path, "").expect("written");
        jwt.look();
        jwt.look();
        assert!(is_good(&second), "what worked goes on");
        assert_eq!(jwt.reloads(), [1, 2]);

        std::fs::write(&path, "first").expect("written");
        jwt.look();
        jwt.look();
        assert!(is_good(&first) && !is_good(&second));
        assert_eq!(jwt.reloads(), [2, 2]);
        std::fs::remove_file(&path).expect("removed");
    }
}

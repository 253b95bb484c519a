//! Simple tokens: random letters that a member knows once it has applied the entry that gave them out.

use std::collections::{BTreeMap, HashMap};
use std::hash::BuildHasher;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::Duration;
use store::AuthEvent;

/// Limit of tokens per user; then the oldest are dropped. Logins with the same password share tokens.
const USER_TOKENS_MAX: usize = 1_000;
/// Limit of tokens of all users together.
const TOKENS_MAX: usize = 1_000_000;
const SHARDS: usize = 16;
/// No token that was handed out is longer.
const TOKEN_BYTES_MAX: usize = 64;

/// The result of looking up a token.
#[derive(Debug, PartialEq, Eq)]
pub enum Found {
    /// The token of this user.
    User(Arc<str>),
    /// The token names an entry that is not applied yet.
    Later,
    /// The token is unknown or has expired.
    Nowhere,
}

struct Token {
    user: Arc<str>,
    /// When the token expires; each use postpones it.
    expires_ms: AtomicU64,
}

type Shard = RwLock<HashMap<Box<[u8]>, Token>>;

/// A token and when it was handed out.
type Given = (Box<[u8]>, u64);

/// The tokens of each user. Changed when entries are applied, and when tokens expire.
#[derive(Default)]
struct Owners {
    /// The tokens of each user, oldest first.
    by_user: BTreeMap<Arc<str>, Vec<Given>>,
    count: usize,
    swept_ms: u64,
}

/// All valid tokens.
pub struct Tokens<S> {
    shards: [Shard; SHARDS],
    /// Chooses the shard of a token. Strangers must not be able to foresee it.
    hashing: S,
    owners: Mutex<Owners>,
    ttl_ms: u64,
    /// How often tokens were dropped before they expired.
    taken: AtomicU64,
}

impl<S: BuildHasher> Tokens<S> {
    /// No tokens yet; each lives for `ttl` after its last use.
    pub fn new(ttl: Duration, hashing: S) -> Tokens<S> {
        Tokens {
            shards: Default::default(),
            hashing,
            owners: Mutex::default(),
            ttl_ms: ttl.as_millis() as u64,
            taken: AtomicU64::new(0),
        }
    }

    /// How long a token lives after its last use.
    pub fn ttl_ms(&self) -> u64 {
        self.ttl_ms
    }

    #[expect(clippy::indexing_slicing, reason = "there are so many shards")]
    fn shard(&self, token: &[u8]) -> &Shard {
        &self.shards[self.hashing.hash_one(token) as usize % SHARDS]
    }

    /// Finds the user of a token and renews its lifetime.
    pub fn find(&self, token: &[u8], applied: u64, now_ms: u64) -> Found {
        if token.len() > TOKEN_BYTES_MAX {
            return Found::Nowhere;
        }
        let shard = self.shard(token).read().unwrap_or_else(PoisonError::into_inner);
        match shard.get(token) {
            Some(found) if found.expires_ms.load(Ordering::Relaxed) > now_ms => {
                found.expires_ms.store(now_ms.saturating_add(self.ttl_ms), Ordering::Relaxed);
                Found::User(found.user.clone())
            }
            Some(_) => Found::Nowhere,
            None if index(token).is_some_and(|index| index > applied) => Found::Later,
            None => Found::Nowhere,
        }
    }

    /// How often tokens were dropped. A lookup is still valid if this number has not changed since before the lookup.
    pub fn taken(&self) -> u64 {
        self.taken.load(Ordering::Acquire)
    }

    /// The newest token of the user, and its age in milliseconds.
    pub fn newest(&self, user: &str, now_ms: u64) -> Option<(String, u64)> {
        let owners = self.owners();
        let (token, given_ms) = owners.by_user.get(user)?.last()?;
        Some((String::from_utf8_lossy(token).into_owned(), now_ms.saturating_sub(*given_ms)))
    }

    /// Notes what an entry did. To be called in the order of the log, before the entry counts as applied.
    pub fn applied(&self, event: &AuthEvent, now_ms: u64) {
        match event {
            AuthEvent::None => {}
            AuthEvent::Token { user, token } => self.add(user, token, now_ms),
            AuthEvent::UserTokensDropped(user) => self.drop_user(user),
            AuthEvent::AllTokensDropped => self.clear(),
        }
    }

    /// Adds a token that was handed out.
    fn add(&self, user: &str, token: &str, now_ms: u64) {
        let mut owners = self.owners();
        self.sweep(&mut owners, now_ms);
        let user = match owners.by_user.get_key_value(user) {
            Some((known, _)) => known.clone(),
            None => Arc::from(user),
        };
        let token: Box<[u8]> = token.as_bytes().into();
        let mut dropped = 0_usize;
        let given = owners.by_user.entry(user.clone()).or_default();
        if given.len() >= USER_TOKENS_MAX {
            let most = given.len().saturating_sub(USER_TOKENS_MAX - 1);
            for (oldest, _) in given.drain(..most) {
                self.forget(&oldest);
                dropped = dropped.saturating_add(1);
            }
        }
        given.push((token.clone(), now_ms));
        owners.count = owners.count.saturating_add(1).saturating_sub(dropped);
        let known = Token { user, expires_ms: AtomicU64::new(now_ms.saturating_add(self.ttl_ms)) };
        self.shard(&token).write().unwrap_or_else(PoisonError::into_inner).insert(token, known);
    }

    fn owners(&self) -> MutexGuard<'_, Owners> {
        self.owners.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn forget(&self, token: &[u8]) {
        self.shard(token).write().unwrap_or_else(PoisonError::into_inner).remove(token);
        self.taken.fetch_add(1, Ordering::Release);
    }

    /// Drops expired tokens from time to time, and all tokens if there are too many.
    fn sweep(&self, owners: &mut Owners, now_ms: u64) {
        if owners.count >= TOKENS_MAX {
            self.clear_in(owners);
        }
        if now_ms < owners.swept_ms.saturating_add(self.ttl_ms.min(60_000)) {
            return;
        }
        owners.swept_ms = now_ms;
        for shard in &self.shards {
            let mut shard = shard.write().unwrap_or_else(PoisonError::into_inner);
            shard.retain(|_, token| token.expires_ms.load(Ordering::Relaxed) > now_ms);
        }
        let known = |token: &[u8]| self.shard(token).read().unwrap_or_else(PoisonError::into_inner).contains_key(token);
        owners.by_user.retain(|_, given| {
            given.retain(|(token, _)| known(token));
            !given.is_empty()
        });
        owners.count = owners.by_user.values().map(Vec::len).sum();
    }

    /// Forgets the tokens of a user.
    fn drop_user(&self, user: &str) {
        let mut owners = self.owners();
        let given = owners.by_user.remove(user).unwrap_or_default();
        owners.count = owners.count.saturating_sub(given.len());
        given.iter().for_each(|(token, _)| self.forget(token));
    }

    /// Forgets all tokens. Due after a snapshot was installed, too: a snapshot does not contain tokens.
    pub fn clear(&self) {
        self.clear_in(&mut self.owners());
    }

    fn clear_in(&self, owners: &mut Owners) {
        owners.by_user.clear();
        owners.count = 0;
        for shard in &self.shards {
            shard.write().unwrap_or_else(PoisonError::into_inner).clear();
        }
        self.taken.fetch_add(1, Ordering::Release);
    }
}

/// The index of the entry that handed a token out: the token ends with that of the entry before it.
fn index(token: &[u8]) -> Option<u64> {
    let token = std::str::from_utf8(token).ok()?;
    let (_, index) = token.split_once('.')?;
    index.parse().ok().map(|index: u64| index.saturating_add(1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::hash::{BuildHasherDefault, DefaultHasher};

    type Fixed = BuildHasherDefault<DefaultHasher>;

    fn user(found: Found) -> Option<String> {
        if let Found::User(user) = found { Some(user.to_string()) } else { None }
    }

    #[test]
    fn tokens_live_as_long_as_they_are_used() {
        let tokens = Tokens::new(Duration::from_secs(10), Fixed::default());
        tokens.add("ann", "abc.7", 0);
        assert_eq!(user(tokens.find(b"abc.7", 7, 9_000)).as_deref(), Some("ann"));
        assert_eq!(user(tokens.find(b"abc.7", 7, 18_000)).as_deref(), Some("ann"));
        assert_eq!(tokens.find(b"abc.7", 7, 28_000), Found::Nowhere);
        tokens.add("ann", "abd.8", 28_001);
        assert_eq!(tokens.owners().count, 1);
        assert_eq!(tokens.newest("ann", 30_001), Some(("abd.8".into(), 2_000)));
    }

    #[test]
    fn tokens_of_later_entries_are_waited_for() {
        let tokens = Tokens::new(Duration::from_secs(10), Fixed::default());
        assert_eq!(tokens.find(b"abc.7", 7, 0), Found::Later);
        assert_eq!(tokens.find(b"abc.7", 8, 0), Found::Nowhere);
        assert_eq!(tokens.find(b"abc.18446744073709551615", 7, 0), Found::Later);
        for nonsense in [&b""[..], b".", b"abc", b"abc.-1", b"abc.x", b"\xff.9", b"abc.99999999999999999999999"] {
            assert_eq!(tokens.find(nonsense, 7, 0), Found::Nowhere);
        }
        assert_eq!(tokens.find(&[b'9'; 100], 7, 0), Found::Nowhere);
    }

    #[test]
    fn tokens_are_dropped_and_bounded() {
        let tokens = Tokens::new(Duration::from_secs(10), Fixed::default());
        for number in 0..2 * USER_TOKENS_MAX {
            tokens.add("ann", &format!("abc.{number}"), 0);
        }
        tokens.add("bob", "xyz.1", 0);
        assert_eq!(tokens.owners().count, USER_TOKENS_MAX + 1);
        assert_eq!(tokens.find(b"abc.0", 9_999, 0), Found::Nowhere);
        assert_eq!(user(tokens.find(b"abc.1999", 9_999, 0)).as_deref(), Some("ann"));
        tokens.drop_user("ann");
        assert_eq!(tokens.find(b"abc.1999", 9_999, 0), Found::Nowhere);
        assert_eq!(user(tokens.find(b"xyz.1", 9_999, 0)).as_deref(), Some("bob"));
        tokens.clear();
        assert_eq!(tokens.find(b"xyz.1", 9_999, 0), Found::Nowhere);
        assert_eq!(tokens.owners().count, 0);
    }
}

//! What scripts know of the member they attack, so that their messages have an effect.

use crate::choices::Choices;

/// Users, roles and passwords there may be. Hostile clients know the password of `weak`, and no other.
pub(crate) const NAMES: [&str; 9] = ["root", "good", "weak", "r-good", "r-weak", WEAK_PASSWORD, "", "mallory", "guest"];
pub(crate) const WEAK_PASSWORD: &str = "weak-password";
/// Keys that only the good client may touch, where users count, and the lease of one of them.
pub(crate) const GOOD_KEY: &str = "good/key";
pub(crate) const GOOD_LEASED: &str = "good/leased";
pub(crate) const GOOD_LEASE: i64 = 7001;

const KEYS: [&[u8]; 12] =
    [b"", b"\0", b"a", b"b", b"a/1", b"weak/", b"weak/k", b"weak0", b"good/", b"good/key", b"good/leased", b"\xff\xff"];
const URLS: [&str; 8] = [
    "http://127.0.0.1:1",
    "http://127.0.0.1:65535",
    "https://localhost:1",
    "unix://nowhere/at.all",
    "http://",
    "",
    "http://127.0.0.1:1/path",
    "http://[::1]:9",
];

/// The numbers and names of one member at the beginning of a script.
#[derive(Clone, Debug, Default)]
pub(crate) struct World {
    pub(crate) member: u64,
    pub(crate) cluster: u64,
    /// A learner that exists only in the words of the scripts.
    pub(crate) learner: u64,
    pub(crate) term: u64,
    pub(crate) committed: u64,
    pub(crate) revision: i64,
    /// What a login was answered with.
    pub(crate) token: Vec<u8>,
}

impl World {
    /// A whole number for a field called `name`.
    pub(crate) fn number(&self, name: &str, choices: &mut Choices<'_>) -> u64 {
        let known =
            [self.member, self.learner, GOOD_LEASE as u64, self.revision as u64, self.term, self.committed, 7002, 0];
        let lower = name.to_ascii_lowercase();
        match choices.byte() % 4 {
            0 => choices.number(),
            1 if lower.contains("revision") || lower == "commit" || lower == "index" => {
                choices.pick(&known).wrapping_add(u64::from(choices.byte() % 5)).wrapping_sub(2)
            }
            1 | 2 => choices.pick(&known),
            _ => u64::from(choices.byte() % 8),
        }
    }

    /// Text or bytes for a field called `name`.
    pub(crate) fn bytes(&self, name: &str, choices: &mut Choices<'_>) -> Vec<u8> {
        let lower = name.to_ascii_lowercase();
        if lower.contains("url") {
            return choices.pick(&URLS).into();
        }
        match choices.byte() % 8 {
            0 => {
                let count = choices.byte() % 32;
                choices.take(count.into()).to_vec()
            }
            1 => vec![choices.byte(); usize::from(choices.byte()) << (choices.byte() % 9)],
            _ if lower == "user" || lower == "role" || lower == "name" || lower == "password" => {
                choices.pick(&NAMES).into()
            }
            2 => [choices.pick(&KEYS), &[choices.byte()]].concat(),
            3 if lower == "token" => self.token.clone(),
            _ => choices.pick(&KEYS).to_vec(),
        }
    }
}

//! The size of a test.

/// How many of something a test is to try: a number in the environment, or else `usual`.
#[allow(clippy::disallowed_methods, reason = "how long a test is comes from the environment")]
pub(crate) fn wanted(name: &str, usual: u64) -> u64 {
    let given = std::env::var(name).ok().map(|number| number.parse());
    given.map_or(usual, |number| number.unwrap_or_else(|error| panic!("{name} is no number: {error}")))
}

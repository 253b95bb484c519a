//! `--auth-token=jwt,pub-key=..,priv-key=..,sign-method=..,ttl=..`.

use super::keys::{Algorithm, Keys};
use crate::config::duration;
use std::path::PathBuf;
use std::time::Duration;

const TTL_DEFAULT: Duration = Duration::from_secs(300);

/// Why the options are of no use. They are all about `--auth-token`.
#[derive(Debug, thiserror::Error)]
pub(crate) enum OptionsError {
    #[error("--auth-token: {0:?} is neither `simple` nor `jwt` with its options")]
    Kind(String),
    #[error("--auth-token: {0:?} is not of the form `name=value`, or is given twice")]
    Form(String),
    #[error("--auth-token: sign-method is missing")]
    NoMethod,
    #[error("--auth-token: sign-method {0:?} is none of RS, PS, ES and HS with 256, 384 or 512, nor EdDSA")]
    Method(String),
    #[error("--auth-token: ttl {0:?} must be a duration like 5m")]
    Ttl(String),
    #[error("--auth-token: a key is missing: pub-key or priv-key")]
    NoKey,
    #[error("--auth-token: cannot read {file}: {source}")]
    Read { file: PathBuf, source: std::io::Error },
    #[error("--auth-token: {file} has no key that sign-method {method} can use")]
    Key { file: PathBuf, method: &'static str },
    #[error("--auth-token: pub-key and priv-key do not belong together")]
    Mismatch,
    #[error("no random numbers")]
    Random,
    #[error("cannot start the threads that check passwords: {0}")]
    Threads(#[from] std::io::Error),
}

/// The options of JSON web tokens.
pub(super) struct Options {
    pub(super) keys: Keys,
    pub(super) ttl: Duration,
}

impl Options {
    /// Reads what comes after `jwt,`.
    pub(super) fn parse(text: &str) -> Result<Options, OptionsError> {
        let (mut public, mut private, mut method, mut ttl) = (None, None, None, None);
        for option in text.split(',').filter(|option| !option.is_empty()) {
            let malformed = || OptionsError::Form(option.into());
            let (name, value) = option.split_once('=').ok_or_else(malformed)?;
            let place = match name {
                "pub-key" => &mut public,
                "priv-key" => &mut private,
                "sign-method" => &mut method,
                "ttl" => &mut ttl,
                _ => return Err(malformed()),
            };
            if place.replace(value).is_some() {
                return Err(malformed());
            }
        }
        let method = method.ok_or(OptionsError::NoMethod)?;
        let algorithm = Algorithm::parse(method).ok_or_else(|| OptionsError::Method(method.into()))?;
        let ttl = match ttl {
            None => TTL_DEFAULT,
            Some(text) => {
                duration::parse(text).filter(|ttl| !ttl.is_zero()).ok_or_else(|| OptionsError::Ttl(text.into()))?
            }
        };
        let file = |path: Option<&str>| path.map(PathBuf::from);
        Ok(Options { keys: Keys::read(algorithm, file(public), file(private))?, ttl })
    }
}

//! `--auth-token=jwt,pub-key=..,priv-key=..,sign-method=..,ttl=..`.

use super::keys::{Algorithm, Keys};
use crate::config::duration;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

const TTL_DEFAULT: Duration = Duration::from_secs(300);

/// Why the options of `--auth-token` cannot be used.
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
    #[error("--auth-token: {0}")]
    Panicked(#[from] contain::Panicked),
    #[error("no random numbers")]
    Random,
    #[error("cannot start the threads that check passwords: {0}")]
    Threads(#[from] std::io::Error),
}

/// Splits the flag into the kind of token and its options, in etcd's syntax.
pub(crate) fn split(text: &str) -> Result<(&str, BTreeMap<&str, &str>), OptionsError> {
    let (kind, rest) = text.split_once(',').map_or((text, None), |(kind, rest)| (kind, Some(rest)));
    let mut options = BTreeMap::new();
    for option in rest.into_iter().flat_map(|rest| rest.split(',')) {
        let malformed = || OptionsError::Form(option.into());
        let (name, value) = option.split_once('=').filter(|(_, value)| !value.contains('=')).ok_or_else(malformed)?;
        if options.insert(name, value).is_some() {
            return Err(malformed());
        }
    }
    Ok((kind, options))
}

/// The options of JSON web tokens. Unknown options are ignored, as in etcd.
pub(super) struct Options {
    pub(super) algorithm: Algorithm,
    pub(super) public: Option<PathBuf>,
    pub(super) private: Option<PathBuf>,
    pub(super) ttl: Duration,
}

impl Options {
    pub(super) fn read(options: &BTreeMap<&str, &str>) -> Result<Options, OptionsError> {
        let method = options.get("sign-method").ok_or(OptionsError::NoMethod)?;
        let algorithm = Algorithm::parse(method).ok_or_else(|| OptionsError::Method((*method).into()))?;
        let ttl = match options.get("ttl") {
            None => TTL_DEFAULT,
            Some(text) => {
                duration::parse(text).filter(|ttl| !ttl.is_zero()).ok_or_else(|| OptionsError::Ttl((*text).into()))?
            }
        };
        let file = |name: &str| options.get(name).map(PathBuf::from);
        Ok(Options { algorithm, public: file("pub-key"), private: file("priv-key"), ttl })
    }

    /// Reads the keys from the files.
    pub(super) fn keys(&self) -> Result<Keys, OptionsError> {
        Keys::read(self.algorithm, self.public.clone(), self.private.clone())
    }

    /// The files that the options name.
    pub(super) fn files(&self) -> Vec<&Path> {
        self.public.iter().chain(&self.private).map(PathBuf::as_path).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Texts with which etcd starts or does not start.
    #[test]
    fn options_are_those_of_etcd() {
        for text in ["simple", "", "simple,a=b", "simple,=", ",a=b", "Simple"] {
            assert!(split(text).is_ok(), "{text}");
        }
        for text in ["simple,", "simple,a", "simple,a=b,a=c", "simple,a=b=c", ",a", "jwt,a=b,"] {
            assert!(split(text).is_err(), "{text}");
        }
        assert_eq!(split("jwt,b=1,a=").expect("options"), ("jwt", BTreeMap::from([("a", ""), ("b", "1")])));
    }
}

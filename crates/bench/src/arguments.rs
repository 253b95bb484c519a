//! Flags of a command line, taken one by one.

use std::collections::BTreeMap;
use std::str::FromStr;
use std::time::Duration;

use crate::BenchError;

/// `--name value` and `--name=value` pairs that were not taken yet.
pub(crate) struct Arguments(BTreeMap<String, String>);

impl Arguments {
    pub(crate) fn parse(args: impl Iterator<Item = String>) -> Result<Arguments, BenchError> {
        let mut args = args;
        let mut flags = BTreeMap::new();
        while let Some(arg) = args.next() {
            let Some(flag) = arg.strip_prefix("--") else {
                return Err(BenchError::Usage(format!("`{arg}` is no flag")));
            };
            let (name, value) = match flag.split_once('=') {
                Some((name, value)) => (name.to_owned(), value.to_owned()),
                None => {
                    let Some(value) = args.next() else {
                        return Err(BenchError::Usage(format!("`--{flag}` has no value")));
                    };
                    (flag.to_owned(), value)
                }
            };
            if flags.insert(name.clone(), value).is_some() {
                return Err(BenchError::Usage(format!("`--{name}` is there twice")));
            }
        }
        Ok(Arguments(flags))
    }

    /// The value of `--name`, if it is there.
    pub(crate) fn take<T: FromStr>(&mut self, name: &str) -> Result<Option<T>, BenchError> {
        let Some(text) = self.0.remove(name) else { return Ok(None) };
        match text.parse() {
            Ok(value) => Ok(Some(value)),
            Err(_) => Err(BenchError::Usage(format!("`{text}` is no value of `--{name}`"))),
        }
    }

    /// The value of `--name`, or `otherwise`.
    pub(crate) fn or<T: FromStr>(&mut self, name: &str, otherwise: T) -> Result<T, BenchError> {
        Ok(self.take(name)?.unwrap_or(otherwise))
    }

    /// A number that counts something: at least one.
    pub(crate) fn count(&mut self, name: &str, otherwise: usize) -> Result<usize, BenchError> {
        match self.or(name, otherwise)? {
            0 => Err(BenchError::Usage(format!("`--{name}` must be at least 1"))),
            count => Ok(count),
        }
    }

    /// A time in seconds.
    pub(crate) fn seconds(&mut self, name: &str) -> Result<Option<Duration>, BenchError> {
        let Some(seconds) = self.take::<f64>(name)? else { return Ok(None) };
        let time = Duration::try_from_secs_f64(seconds);
        time.map(Some).map_err(|error| BenchError::Usage(format!("`{seconds}` is no value of `--{name}`: {error}")))
    }

    /// Fails if a flag was not taken.
    pub(crate) fn end(self) -> Result<(), BenchError> {
        match self.0.keys().next() {
            Some(name) => Err(BenchError::Usage(format!("`--{name}` is not known here"))),
            None => Ok(()),
        }
    }
}

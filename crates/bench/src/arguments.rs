//! Flags of a command line, taken one by one.

use std::collections::BTreeMap;
use std::str::FromStr;
use std::time::Duration;

use crate::BenchError;
use crate::limits::{CALLS_MAX, TIME_MAX, connections_max};

/// `--name value` and `--name=value` pairs that were not taken yet.
pub struct Arguments(BTreeMap<String, String>);

impl Arguments {
    /// Reads the words of a command line, which are all flags.
    pub fn parse(args: impl Iterator<Item = String>) -> Result<Arguments, BenchError> {
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
    pub fn take<T: FromStr>(&mut self, name: &str) -> Result<Option<T>, BenchError> {
        let Some(text) = self.0.remove(name) else { return Ok(None) };
        match text.parse() {
            Ok(value) => Ok(Some(value)),
            Err(_) => Err(BenchError::Usage(format!("`{text}` is no value of `--{name}`"))),
        }
    }

    /// The value of `--name`, or `otherwise`.
    pub fn or<T: FromStr>(&mut self, name: &str, otherwise: T) -> Result<T, BenchError> {
        Ok(self.take(name)?.unwrap_or(otherwise))
    }

    /// A count: a number that is at least one.
    pub fn count(&mut self, name: &str, otherwise: usize) -> Result<usize, BenchError> {
        match self.or(name, otherwise)? {
            0 => Err(BenchError::Usage(format!("`--{name}` must be at least 1"))),
            count => Ok(count),
        }
    }

    /// A time in seconds.
    pub fn seconds(&mut self, name: &str) -> Result<Option<Duration>, BenchError> {
        let Some(seconds) = self.take::<f64>(name)? else { return Ok(None) };
        match Duration::try_from_secs_f64(seconds) {
            Ok(time) if time <= TIME_MAX => Ok(Some(time)),
            Ok(_) => Err(BenchError::Usage(format!("`--{name}` must be no more than {}", TIME_MAX.as_secs()))),
            Err(error) => Err(BenchError::Usage(format!("`{seconds}` is no value of `--{name}`: {error}"))),
        }
    }

    /// Connections, and the calls in flight on each of them.
    pub fn connections(&mut self, connections: usize, streams: usize) -> Result<(usize, usize), BenchError> {
        let (connections, streams) = (self.count("connections", connections)?, self.count("streams", streams)?);
        check_connections(connections)?;
        if connections.saturating_mul(streams) as u64 > CALLS_MAX {
            return Err(BenchError::Usage(format!(
                "`--connections` times `--streams` must be no more than {CALLS_MAX}"
            )));
        }
        Ok((connections, streams))
    }

    /// Fails if a flag was not taken.
    pub fn end(self) -> Result<(), BenchError> {
        match self.0.keys().next() {
            Some(name) => Err(BenchError::Usage(format!("`--{name}` is not known here"))),
            None => Ok(()),
        }
    }
}

/// Refuses more connections than the limit of open files allows.
pub fn check_connections(connections: usize) -> Result<(), BenchError> {
    let (most, files) = connections_max();
    if connections as u64 <= most {
        return Ok(());
    }
    let text = format!("{connections} connections are too many: {files} open files allow {most}; raise `ulimit -n`");
    Err(BenchError::Usage(text))
}

//! Limits and time limits of clients.

use super::ConfigError;
use super::values::{Values, unusable};
use crate::overload::{Class, QueueLimits};
use rpc::RateLimits;
use std::time::Duration;

/// Shorter time-outs than this would end connections that are merely slow.
const TIMEOUT_MIN: Duration = Duration::from_millis(100);
/// Smaller header lists than this do not hold what gRPC clients send.
const HEADER_BYTES_MIN: i64 = 4096;

/// With less than this a client might find no room for one large request.
const HELD_BYTES_MIN: i64 = 64 << 20;
/// The least default of `--max-watches`.
const WATCHES_MIN: u64 = 10_000;

/// Bounds of the transport beside those that etcd has flags for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transport {
    /// Connections that clients may have open; `None` for as many as there are file descriptors for.
    pub connections_max: Option<u64>,
    /// Bytes of answers and of unfinished requests that all clients together may have the member hold.
    pub held_bytes_max: u64,
    /// Watches that the member may have, long keys counted more than once.
    pub watches_max: u64,
    /// Those of one connection.
    pub connection_watches_max: u64,
    /// Hundredths of the request threads' time that one client may take; 0 for as much as it likes.
    pub client_share: u64,
    /// Bytes of one request's headers.
    pub header_bytes_max: u32,
    /// Time for a connection's first bytes, TLS and settings included.
    pub handshake_timeout: Duration,
    /// Time for the rest of headers that have begun.
    pub header_timeout: Duration,
    /// Time for the next kilobyte of a request that has begun.
    pub body_timeout: Duration,
    /// Time for the next byte of an answer to be taken.
    pub write_timeout: Duration,
    /// What one connection may send in a second of what gets it nothing.
    pub rates: RateLimits,
}

pub(super) fn read(values: &Values) -> Result<Transport, ConfigError> {
    let watches_max = match values.number("max-watches", 1, i64::MAX)? as u64 {
        watches if values.is_given("max-watches") => watches,
        watches => watches_default(watches, host::memory_limit_bytes()),
    };
    let timeout = |flag: &str| values.period(flag).map(|period| period.max(TIMEOUT_MIN));
    Ok(Transport {
        connections_max: match values.number("max-client-connections", 0, i64::MAX)? {
            0 => None,
            connections => Some(connections as u64),
        },
        held_bytes_max: match values.number("max-held-bytes", HELD_BYTES_MIN, i64::MAX)? as u64 {
            bytes if values.is_given("max-held-bytes") => bytes,
            bytes => held_bytes_default(bytes, host::memory_limit_bytes()),
        },
        watches_max,
        connection_watches_max: match values.number("max-watches-per-connection", 1, i64::MAX)? as u64 {
            watches if values.is_given("max-watches-per-connection") || values.is_given("max-watches") => watches,
            // Nobody shall have all where there are few.
            watches => watches.min(watches_max / 4),
        },
        client_share: values.number("client-share", 0, 100)? as u64,
        header_bytes_max: values.number("max-header-bytes", HEADER_BYTES_MIN, 16 << 20)? as u32,
        handshake_timeout: timeout("client-handshake-timeout")?,
        header_timeout: timeout("client-header-timeout")?,
        body_timeout: timeout("client-body-timeout")?,
        write_timeout: timeout("client-write-timeout")?,
        rates: rates(values)?,
    })
}

/// The default is no more than a quarter of the memory that there is, which is to hold the store, too.
fn held_bytes_default(bytes: u64, memory_limit_bytes: Option<u64>) -> u64 {
    let quarter = memory_limit_bytes.map_or(u64::MAX, |limit| limit / 4);
    bytes.min(quarter.max(HELD_BYTES_MIN as u64))
}

/// The default is no more than one for 16 KiB of the memory that there is: it takes up to 2.
fn watches_default(watches: u64, memory_limit_bytes: Option<u64>) -> u64 {
    watches.min(memory_limit_bytes.map_or(u64::MAX, |limit| (limit >> 14).max(WATCHES_MIN)))
}

fn rates(values: &Values) -> Result<RateLimits, ConfigError> {
    let mut rates = RateLimits::default();
    let names = "idle_frames, resets, forced_resets, tiny_data, window_updates";
    numbers(values, "client-rate-limits", names, |name, number| {
        rates.named(name).map(|limit| *limit = number).is_some()
    })?;
    Ok(rates)
}

/// How many requests of each class may wait.
pub(super) fn queues(values: &Values) -> Result<QueueLimits, ConfigError> {
    let mut queues = QueueLimits::default();
    let names = Class::ALL.iter().map(|class| class.name()).collect::<Vec<_>>().join(", ");
    numbers(values, "queue-limits", &names, |name, number| queues.set(name, number as usize))?;
    Ok(queues)
}

/// Reads a list of name=number; `set` is false for a name that it does not know.
fn numbers(
    values: &Values,
    flag: &str,
    names: &str,
    mut set: impl FnMut(&str, u32) -> bool,
) -> Result<(), ConfigError> {
    for word in values.words(flag) {
        let number = word.split_once('=').and_then(|(name, number)| Some((name, number.trim().parse().ok()?)));
        match number {
            Some((name, number)) if number > 0 => {
                if !set(name.trim(), number) {
                    return Err(unusable(flag, &word, format_args!("must be one of {names}")));
                }
            }
            _ => return Err(unusable(flag, &word, "must be name=number, at least 1")),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::tests::config;
    use super::*;

    #[test]
    fn where_there_is_little_memory_clients_hold_less() {
        assert_eq!(held_bytes_default(512 << 20, None), 512 << 20);
        assert_eq!(held_bytes_default(512 << 20, Some(64 << 30)), 512 << 20);
        assert_eq!(held_bytes_default(512 << 20, Some(1 << 30)), 256 << 20);
        assert_eq!(held_bytes_default(512 << 20, Some(1 << 20)), HELD_BYTES_MIN as u64);
        let given = config(&["--max-held-bytes=70000000"]).expect("valid").transport;
        assert_eq!(given.held_bytes_max, 70_000_000);
    }

    #[test]
    fn bounds_are_read_and_checked() {
        let transport = config(&[]).expect("defaults are valid").transport;
        let defaults = rpc::Options::default();
        assert_eq!((transport.connections_max, transport.rates), (None, defaults.rates));
        assert_eq!(transport.header_bytes_max, defaults.header_list_bytes_max);
        assert_eq!(transport.held_bytes_max, api::limits::BUDGET_BYTES_DEFAULT);
        assert_eq!(
            [transport.handshake_timeout, transport.header_timeout, transport.body_timeout, transport.write_timeout],
            [defaults.handshake_timeout, defaults.header_timeout, defaults.body_timeout, defaults.write_timeout]
        );
        assert_eq!(transport.watches_max, watches_default(api::limits::WATCHES_MAX, host::memory_limit_bytes()));
        let by_memory = [None, Some(1 << 40), Some(8 << 30), Some(1)].map(|limit| watches_default(1_000_000, limit));
        assert_eq!(by_memory, [1_000_000, 1_000_000, 524_288, WATCHES_MIN]);
        assert_eq!(transport.connection_watches_max, transport.watches_max / 4);
        let given = config(&["--client-rate-limits=resets=7, tiny_data=9", "--client-body-timeout=1ms"]);
        let given = given.expect("valid").transport;
        assert_eq!((given.rates.resets, given.rates.tiny_data, given.rates.idle_frames), (7, 9, 20_000));
        assert_eq!(given.body_timeout, TIMEOUT_MIN);
        for bad in ["resets", "resets=0", "resets=-1", "pings=3", "resets=x"] {
            let flag = format!("--client-rate-limits={bad}");
            let Err(ConfigError::Value(text)) = config(&[flag.as_str()]) else { panic!("{bad} is taken") };
            assert!(text.contains("client-rate-limits") && text.contains(bad), "{text}");
        }
        let queues = config(&["--queue-limits=writes=4,slow=9"]).expect("valid").queues;
        assert_eq!([Class::Write, Class::Slow, Class::Read].map(|class| queues.of(class)), [4, 9, 65_536]);
        for bad in [
            "--queue-limits=pings=1",
            "--queue-limits=reads=0",
            "--max-header-bytes=100",
            "--max-held-bytes=1000000",
            "--max-client-connections=-1",
            "--max-watches=0",
            "--max-watches-per-connection=0",
            "--client-write-timeout=-1s",
        ] {
            assert!(config(&[bad]).is_err(), "{bad}");
        }
    }
}

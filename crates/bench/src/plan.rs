//! What is to be sent: the command line, read and checked.

use std::net::{SocketAddr, ToSocketAddrs};
use std::time::Duration;

use crate::BenchError;
use crate::arguments::Arguments;
use crate::request::{KEY_PREFIX_BYTES_MAX, KEYS_MAX};

/// The usage text of the program.
pub(crate) const USAGE: &str = "\
usage: cairn-bench <load> --endpoints host:port[,host:port...] [flags]

loads
  range             reads one key:        --key, --serializable true, --keys N (--key and nine digits), --value-bytes, ORDER
  put               writes:               --key, --keys N, --value-bytes, --first N, ORDER
  list              reads many keys:      --key (prefix; empty: all), --limit, --expect N (keys of each answer), --serializable true
  watch             watches one key:      --watchers N, --streams S (altogether), --puts M, --put-streams P, --value-bytes
  authenticate      logs a user in:       --user, --password; the tokens are told, at most 1,000 different ones
  lease-keep-alive  renews leases:        --streams S (on each connection, one lease each), --ttl seconds
  base              measures the machine: loopback to another process and back, and a write with fdatasync; it has these flags alone:
                                          --dir PATH, --seconds S of each, --request-bytes N, --reply-bytes N, --writers N at once

ORDER of the keys: at random, or
  --sequential true    one after the other, each once before one comes again
  --scattered true     each once, too, but all over the keys, so that no server profits from neighbours

all loads
  --endpoints LIST     connections go round them
  --connections N      (1)
  --streams N          calls in flight on each connection (1)
  --threads N          threads of the generator (1)
  --requests N         ends after so many requests, or
  --seconds S          after so long
  --rate R             open loop: R requests a second altogether, whatever the answers do; latency counts from the intended start
  --timeout S          a run that does not end is given up after this long (600)
  --token T            sent with each request (not for streams)
  --pids LIST          processes whose CPU time is told, by request

The value of a key is what `put` has written: --value-bytes letters that depend on the key's number.
";

/// A kind of load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Load {
    Range,
    Put,
    List,
    Authenticate,
    Watch,
    KeepAlive,
}

impl Load {
    const ALL: [Load; 6] = [Load::Range, Load::Put, Load::List, Load::Authenticate, Load::Watch, Load::KeepAlive];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Load::Range => "range",
            Load::Put => "put",
            Load::List => "list",
            Load::Authenticate => "authenticate",
            Load::Watch => "watch",
            Load::KeepAlive => "lease-keep-alive",
        }
    }
}

/// In which order keys have their turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    Random,
    /// One after the other.
    Sequential,
    /// Each once before one comes again, but no neighbours.
    Scattered,
}

impl Order {
    fn take(flags: &mut Arguments) -> Result<Order, BenchError> {
        match (flags.or("sequential", false)?, flags.or("scattered", false)?) {
            (false, false) => Ok(Order::Random),
            (true, false) => Ok(Order::Sequential),
            (false, true) => Ok(Order::Scattered),
            _ => Err(BenchError::Usage("only one of `--sequential` and `--scattered` can be there".into())),
        }
    }
}

/// A whole run.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) load: Load,
    pub(crate) endpoints: Vec<SocketAddr>,
    pub(crate) connections: usize,
    pub(crate) streams: usize,
    pub(crate) threads: usize,
    pub(crate) requests: Option<u64>,
    pub(crate) seconds: Option<Duration>,
    pub(crate) rate: Option<f64>,
    pub(crate) timeout: Duration,
    pub(crate) pids: Vec<u32>,
    pub(crate) key: String,
    pub(crate) keys: u64,
    pub(crate) first: u64,
    pub(crate) order: Order,
    pub(crate) serializable: bool,
    pub(crate) value_bytes: usize,
    pub(crate) limit: u64,
    pub(crate) expect: Option<u64>,
    pub(crate) watchers: usize,
    pub(crate) puts: u64,
    pub(crate) put_streams: usize,
    pub(crate) ttl_seconds: u64,
    pub(crate) user: String,
    pub(crate) password: String,
    pub(crate) token: Option<String>,
}

impl Plan {
    pub(crate) fn parse(args: impl Iterator<Item = String>) -> Result<Plan, BenchError> {
        let mut args = args;
        let name = args.next().unwrap_or_default();
        let Some(load) = Load::ALL.into_iter().find(|load| load.name() == name) else {
            return Err(BenchError::Usage(format!("`{name}` is no load")));
        };
        let mut flags = Arguments::parse(args)?;
        let endpoints = endpoints(&flags.or("endpoints", "127.0.0.1:2379".to_owned())?)?;
        let (connections, streams) = flags.connections(1, 1)?;
        let mut plan = Plan {
            connections,
            streams,
            threads: flags.count("threads", 1)?,
            requests: flags.take("requests")?,
            seconds: flags.seconds("seconds")?,
            rate: flags.take("rate")?,
            timeout: flags.seconds("timeout")?.unwrap_or(Duration::from_secs(600)),
            pids: pids(&flags.or("pids", String::new())?)?,
            ..Plan::new(load, endpoints)
        };
        plan.take_own(&mut flags)?;
        flags.end()?;
        plan.check()?;
        Ok(plan)
    }

    /// A load with one client and default settings. The caller must set what ends it.
    pub(crate) fn new(load: Load, endpoints: Vec<SocketAddr>) -> Plan {
        Plan {
            load,
            endpoints,
            connections: 1,
            streams: 1,
            threads: 1,
            requests: None,
            seconds: None,
            rate: None,
            timeout: Duration::from_secs(600),
            pids: Vec::new(),
            key: "benchkey".into(),
            keys: 1,
            first: 0,
            order: Order::Random,
            serializable: false,
            value_bytes: 256,
            limit: 0,
            expect: None,
            watchers: 1,
            puts: 1,
            put_streams: 1,
            ttl_seconds: 60,
            user: String::new(),
            password: String::new(),
            token: None,
        }
    }

    /// Reads the flags that only this load has.
    fn take_own(&mut self, flags: &mut Arguments) -> Result<(), BenchError> {
        if !matches!(self.load, Load::KeepAlive | Load::Watch) {
            self.token = flags.take("token")?;
        }
        if !matches!(self.load, Load::KeepAlive | Load::Authenticate) {
            self.key = flags.or("key", self.key.clone())?;
            self.value_bytes = flags.or("value-bytes", self.value_bytes)?;
        }
        match self.load {
            Load::Range => {
                self.keys = flags.count("keys", 1)? as u64;
                self.order = Order::take(flags)?;
                self.serializable = flags.or("serializable", false)?;
            }
            Load::Put => {
                self.keys = flags.count("keys", 1)? as u64;
                self.first = flags.or("first", 0)?;
                self.order = Order::take(flags)?;
            }
            Load::List => {
                self.limit = flags.or("limit", 0)?;
                self.expect = flags.take("expect")?;
                self.serializable = flags.or("serializable", false)?;
            }
            Load::Authenticate => {
                self.user = flags.or("user", self.user.clone())?;
                self.password = flags.or("password", self.password.clone())?;
            }
            Load::Watch => {
                self.watchers = flags.count("watchers", 1)?;
                self.puts = flags.count("puts", 1)? as u64;
                self.put_streams = flags.count("put-streams", 1)?;
            }
            Load::KeepAlive => self.ttl_seconds = flags.or("ttl", self.ttl_seconds)?,
        }
        Ok(())
    }

    fn check(&self) -> Result<(), BenchError> {
        let fail = |text: &str| Err(BenchError::Usage(text.to_owned()));
        if self.key.len() > KEY_PREFIX_BYTES_MAX {
            return fail("`--key` is too long");
        }
        if self.keys > KEYS_MAX {
            return Err(BenchError::Usage(format!("`--keys` must be no more than {KEYS_MAX}")));
        }
        if self.threads > 1 && matches!(self.load, Load::Watch | Load::KeepAlive) {
            return fail("loads of streams have one thread");
        }
        if self.load == Load::Watch {
            return match (self.requests, self.seconds, self.rate) {
                (None, None, None) if self.watchers >= self.streams => Ok(()),
                (None, None, None) => fail("there must be a watcher for each of `--streams`"),
                _ => fail("a watch load ends with `--puts`"),
            };
        }
        if self.rate.is_some_and(|rate| !rate.is_finite() || rate <= 0.0) {
            return fail("`--rate` must be more than 0");
        }
        if self.load == Load::KeepAlive && self.rate.is_some() {
            return fail("`--rate` is not for streams");
        }
        match (self.requests, self.seconds) {
            (None, None) => fail("one of `--requests` and `--seconds` must be there"),
            (Some(_), Some(_)) => fail("only one of `--requests` and `--seconds` can be there"),
            _ => Ok(()),
        }
    }
}

fn endpoints(list: &str) -> Result<Vec<SocketAddr>, BenchError> {
    list.split(',')
        .map(|endpoint| {
            let endpoint = endpoint.trim().trim_start_matches("http://");
            let mut found = endpoint.to_socket_addrs().map_err(|error| BenchError::Io(endpoint.to_owned(), error))?;
            found.next().ok_or_else(|| BenchError::Usage(format!("`{endpoint}` has no address")))
        })
        .collect()
}

fn pids(list: &str) -> Result<Vec<u32>, BenchError> {
    let parts = list.split(',').filter(|part| !part.is_empty());
    parts.map(|part| part.parse().map_err(|_| BenchError::Usage(format!("`{part}` is no process")))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Plan, String> {
        Plan::parse(line.split_whitespace().map(str::to_owned)).map_err(|error| error.to_string())
    }

    #[test]
    fn plans_are_read() {
        let plan = parse("put --endpoints 127.0.0.1:1,127.0.0.1:2 --keys=10 --requests 5 --pids 1,2").expect("a plan");
        assert_eq!((plan.load, plan.endpoints.len(), plan.keys), (Load::Put, 2, 10));
        assert_eq!((plan.requests, plan.pids), (Some(5), vec![1, 2]));
        assert!(parse("watch --watchers 10 --streams 2 --puts 5").is_ok());
    }

    #[test]
    fn mistakes_are_named() {
        for (line, wanted) in [
            ("", "`` is no load"),
            ("range", "one of `--requests` and `--seconds` must be there"),
            ("range --seconds 1 --requests 1", "only one of `--requests` and `--seconds` can be there"),
            ("range --seconds 1 --watchers 2", "`--watchers` is not known here"),
            ("range --seconds", "`--seconds` has no value"),
            ("range --seconds 1 --seconds 1", "`--seconds` is there twice"),
            ("range --seconds 1 --streams 0", "`--streams` must be at least 1"),
            ("range --seconds 1e19", "`--seconds` must be no more than 31536000"),
            (
                "range --seconds 1 --streams 18446744073709551615",
                "`--connections` times `--streams` must be no more than 1048576",
            ),
            ("range --seconds 1 --keys 1000000001", "`--keys` must be no more than 1000000000"),
            (
                "put --seconds 1 --sequential true --scattered true",
                "only one of `--sequential` and `--scattered` can be there",
            ),
            ("range --seconds 1 --rate 0", "`--rate` must be more than 0"),
            ("watch --watchers 1 --streams 2", "there must be a watcher for each of `--streams`"),
            ("put 7", "`7` is no flag"),
        ] {
            assert_eq!(parse(line).err().as_deref(), Some(wanted), "{line}");
        }
    }
}

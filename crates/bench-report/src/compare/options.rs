//! The command line of a comparison.

use std::path::PathBuf;
use std::time::Duration;

use bench::BenchError;

use crate::measure::{Access, CONNECTION_FLAGS, Kind, PEER_FLAGS, SWITCHES, safe_words};
use crate::runfile::Parameters;
use crate::words;

/// Keys of each list.
const LIST_KEYS: u64 = 100;

/// The loads, with their descriptions.
pub(super) const LOADS: [(&str, &str, Kind); 5] = [
    ("range", "linearizable reads of one key", Kind::Range { serializable: false }),
    ("range-serializable", "serializable reads of one key", Kind::Range { serializable: true }),
    ("list", "linearizable reads of 100 keys by prefix", Kind::List { keys: LIST_KEYS }),
    ("put", "puts", Kind::Put),
    ("txn", "transactions: a comparison and a put", Kind::Txn),
];

/// What is compared, and how.
#[derive(Debug)]
pub(super) struct Options {
    pub(super) sides: [Access; 2],
    pub(super) names: [String; 2],
    pub(super) label: String,
    pub(super) out: Option<PathBuf>,
    pub(super) only: Vec<(&'static str, Kind)>,
    pub(super) pairs: u64,
    pub(super) time: Duration,
    pub(super) connections: usize,
    pub(super) streams: usize,
    pub(super) threads: usize,
    pub(super) keys: u64,
    pub(super) value_bytes: usize,
    pub(super) rate: Option<f64>,
    pub(super) command: Vec<String>,
}

/// The usage text of the command.
pub(super) fn usage() -> String {
    let loads: String = LOADS.iter().map(|(name, text, _)| format!("  {name:20}{text}\n")).collect();
    format!(
        "\
usage: cairn bench compare --endpoints LIST --peer-endpoints LIST [--out FILE.json] [flags]

Measures two clusters, A and B, from this machine in turn, in changing order, and prints the ratios A : B with their spread.

loads
{loads}
  --endpoints LIST        A (127.0.0.1:2379)
  --peer-endpoints LIST   B
  --names A,B             what they are called (etcd or cairn, by their metrics)
  --only LIST             these loads (all)
  --pairs N               how often each load is measured on both (5)
  --seconds S             how long each time (2)
  --connections N         (100)
  --streams N             calls in flight on each connection (10)
  --rate R                open loop: R requests a second, whatever the answers do
  --keys N                (10000, at least 1000)
  --value-bytes N         (256, at least 9)
  --threads N             threads of the generator (1)
  --out FILE              keeps every sample, for `cairn bench report`
  --label TEXT            what the comparison is called
{CONNECTION_FLAGS}{PEER_FLAGS}
Both get keys that begin with `cairn-bench/`, which are deleted at the end. exit code: 0 every request was answered as it should be, 1 not
all, 2 nothing was begun, 3 stopped on the way, 130 Ctrl-C. An --out that is there is refused
"
    )
}

impl Options {
    pub(super) fn parse(args: &[String]) -> Result<Options, BenchError> {
        let fail = |text: String| Err(BenchError::Usage(text));
        let (others, mut flags) = words::sort(args.iter().cloned(), &SWITCHES)?;
        if let Some(word) = others.first() {
            return fail(format!("`{word}` is no flag"));
        }
        let a = Access::take(&mut flags, "endpoints", Some("127.0.0.1:2379"))?;
        let Some(peers) = flags.take::<String>("peer-endpoints")? else {
            return fail("`--peer-endpoints` is missing".into());
        };
        let b = Access::of_peer(&mut flags, &a, &peers)?;
        let names: String = flags.or("names", ",".to_owned())?;
        let Some((first, second)) = names.split_once(',') else {
            return fail(format!("`--names {names}` is not two names with a comma between them"));
        };
        let (connections, streams) = flags.connections(100, 10)?;
        let options = Options {
            sides: [a, b],
            names: [first.trim().to_owned(), second.trim().to_owned()],
            label: flags.or("label", String::new())?,
            out: flags.take("out")?,
            only: only(flags.take("only")?)?,
            pairs: flags.count("pairs", 5)? as u64,
            time: flags.seconds("seconds")?.unwrap_or(Duration::from_secs(2)),
            connections,
            streams,
            threads: flags.count("threads", 1)?,
            keys: flags.or("keys", 10_000)?,
            value_bytes: flags.or("value-bytes", 256)?,
            rate: flags.take("rate")?,
            command: safe_words(&[&["cairn", "bench", "compare"].map(str::to_owned)[..], args].concat()),
        };
        flags.end()?;
        if options.time.is_zero() || options.rate.is_some_and(|rate| !rate.is_finite() || rate <= 0.0) {
            return fail("`--seconds` and `--rate` must be more than 0".into());
        }
        if !(10 * LIST_KEYS..=10_000_000).contains(&options.keys) || !(9..=1 << 20).contains(&options.value_bytes) {
            return fail("`--keys` must be from 1000 to 10000000, `--value-bytes` from 9 to 1048576".into());
        }
        if options.out.as_ref().is_some_and(|out| !crate::runfile::is_replaceable(out)) {
            return fail("`--out` is no file: it is replaced after each sample".into());
        }
        if options.out.as_ref().is_some_and(|out| out.exists()) {
            return fail("`--out` is there already: choose another file, or remove it".into());
        }
        Ok(options)
    }

    /// How each load is measured.
    pub(super) fn plan(&self) -> Parameters {
        let plan = Parameters::default()
            .with("pairs", self.pairs)
            .with("seconds", self.time.as_secs_f64())
            .with("connections", self.connections as u64)
            .with("streams", self.streams as u64)
            .with("generator_threads", self.threads as u64)
            .with("keys", self.keys)
            .with("value_bytes", self.value_bytes as u64);
        match self.rate {
            None => plan,
            Some(rate) => plan.with("offered_per_second", rate),
        }
    }
}

fn only(list: Option<String>) -> Result<Vec<(&'static str, Kind)>, BenchError> {
    let Some(list) = list else { return Ok(LOADS.iter().map(|(name, _, kind)| (*name, *kind)).collect()) };
    let one = |wanted: &str| {
        let found = LOADS.iter().find(|(name, ..)| *name == wanted.trim());
        found.map(|(name, _, kind)| (*name, *kind)).ok_or_else(|| {
            let names: Vec<&str> = LOADS.iter().map(|(name, ..)| *name).collect();
            BenchError::Usage(format!("`{wanted}` is no load: there are {}", names.join(", ")))
        })
    };
    list.split(',').map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn command_lines_are_read_and_mistakes_named() {
        let parse = |line: &str| {
            let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
            Options::parse(&words).map_err(|error| error.to_string())
        };
        let options = parse("--peer-endpoints b:1 --only put,range --names x,y --rate 5").expect("options");
        assert_eq!((options.only.len(), options.names, options.pairs), (2, ["x".into(), "y".into()], 5));
        let options = parse("--peer-endpoints b:1 --cert c --key k --user a:x --peer-cacert f --peer-user b:y:z");
        let [a, b] = options.expect("options").sides;
        assert_eq!((a.user, b.user), (Some(("a".into(), "x".into())), Some(("b".into(), "y:z".into()))));
        assert_eq!((a.security.authorities, b.security.authorities), (None, Some("f".into())));
        assert_eq!((b.security.cert, b.security.key), (Some("c".into()), Some("k".into())));
        let options =
            parse("--peer-endpoints b:1 --user a:x --peer-user= --peer-cert=d --peer-key=l").expect("options");
        assert_eq!((&options.sides[1].user, &options.sides[1].security.key), (&None, &Some("l".into())));
        for (line, wanted) in [
            ("", "`--peer-endpoints` is missing"),
            ("--peer-endpoints b:1 --peer-user x", "`--peer-user x` has no password: NAME:PASSWORD"),
            ("--peer-endpoints b:1 --peer-cert x", "`--peer-cert` and `--peer-key` need each other"),
            ("--peer-endpoints b:1 --seconds 1e19", "`--seconds` must be no more than 31536000"),
            (
                "--peer-endpoints b:1 --streams 18446744073709551615",
                "`--connections` times `--streams` must be no more than 1048576",
            ),
            ("--peer-endpoints b:1 --only x", "`x` is no load: there are range, range-serializable, list, put, txn"),
            ("--peer-endpoints b:1 --names x", "`--names x` is not two names with a comma between them"),
            ("--peer-endpoints b:1 --rate 0", "`--seconds` and `--rate` must be more than 0"),
            (
                "--peer-endpoints b:1 --keys 1",
                "`--keys` must be from 1000 to 10000000, `--value-bytes` from 9 to 1048576",
            ),
            ("--peer-endpoints b:1 --out Cargo.toml", "`--out` is there already: choose another file, or remove it"),
        ] {
            assert_eq!(parse(line).err().as_deref(), Some(wanted), "{line}");
        }
    }
}

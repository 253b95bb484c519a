//! The command line of a sweep.

use std::path::PathBuf;
use std::time::Duration;

use bench::BenchError;

use super::tables::TABLES;
use crate::measure::{Access, CONNECTION_FLAGS, SWITCHES, safe_words};
use crate::runfile::Parameters;
use crate::words;

/// Keys that the table `get` reads.
const GET_KEYS: u64 = 1_000_000;
const GET_KEYS_QUICK: u64 = 100_000;
/// Least number of keys for the table `get`: there must be enough for several of its longest answers.
pub(super) const GET_KEYS_MIN: u64 = 10_000;
/// How long a row may take, in seconds.
const ROW_SECONDS: f64 = 30.0;
const ROW_SECONDS_QUICK: f64 = 1.5;

/// What the sweep measures, and how.
#[derive(Clone, Debug)]
pub(super) struct Options {
    pub(super) access: Access,
    pub(super) out: PathBuf,
    pub(super) label: String,
    pub(super) name: String,
    /// Names of tables, in the order of [`TABLES`].
    pub(super) only: Vec<&'static str>,
    pub(super) is_quick: bool,
    /// Time of a row; `None`: until all queries of the row are done.
    pub(super) row_time: Option<Duration>,
    pub(super) get_keys: u64,
    pub(super) threads: usize,
    /// Drop history even if others have keys in the store.
    pub(super) compacts: bool,
    pub(super) data_dir: Option<PathBuf>,
    pub(super) command: Vec<String>,
}

/// The usage text of the command.
pub(super) fn usage() -> String {
    let tables: String = TABLES.iter().map(|(name, text)| format!("  {name:8}{text}\n")).collect();
    format!(
        "\
usage: cairn bench sweep --out FILE.json [--endpoints LIST] [--only put,get,...] [--quick] [flags]

Measures the tables of published studies, prints each row beside what was published of etcd, and keeps the rows in a file, for
`cairn bench report`. After Ctrl-C, or when a server has failed, the same command goes on after the last finished row.

tables
{tables}
  --out FILE              where the rows go; if it is there, the run in it is gone on with
  --endpoints LIST        members of one cluster (127.0.0.1:2379)
  --only LIST             these tables (all; auth only with --user)
  --quick                 two minutes: fewer rows, {ROW_SECONDS_QUICK} s each, {GET_KEYS_QUICK} keys to read
  --row-seconds S         a row ends after so long, if its queries are not done before; 0: when they are ({ROW_SECONDS})
  --get-keys N            keys of the table get ({GET_KEYS}, at least {GET_KEYS_MIN})
  --threads N             threads of the generator (one for four processors)
  --label TEXT            what the run is called
  --name TEXT             what the server is called (etcd or cairn, by its metrics)
  --data-dir DIR          the servers' directory, if they are on this machine: its disk is told
  --compact               drop history and defragment between rows even if there are keys that are not of the sweep
{CONNECTION_FLAGS}
It writes keys that begin with `cairn-bench/`, and deletes them. The store should have no others: then it also compacts and defragments
between rows. exit code: 0 all rows are there, 1 requests failed in some, 2 nothing was begun, 3 stopped on the way,
130 Ctrl-C
"
    )
}

impl Options {
    pub(super) fn parse(args: &[String]) -> Result<Options, BenchError> {
        let switches = [&SWITCHES[..], &["quick", "compact"]].concat();
        let (others, mut flags) = words::sort(args.iter().cloned(), &switches)?;
        if let Some(word) = others.first() {
            return Err(BenchError::Usage(format!("`{word}` is no flag")));
        }
        let access = Access::take(&mut flags, "endpoints", Some("127.0.0.1:2379"))?;
        let is_quick = flags.or("quick", false)?;
        let Some(out) = flags.take("out")? else {
            return Err(BenchError::Usage("`--out` is missing: the file that the rows go to".into()));
        };
        let seconds = flags.seconds("row-seconds")?;
        let default = Duration::from_secs_f64(if is_quick { ROW_SECONDS_QUICK } else { ROW_SECONDS });
        let only = only(flags.take("only")?, access.user.is_some())?;
        let processors = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let options = Options {
            only,
            is_quick,
            row_time: Some(seconds.unwrap_or(default)).filter(|time| !time.is_zero()),
            get_keys: flags.or("get-keys", if is_quick { GET_KEYS_QUICK } else { GET_KEYS })?,
            threads: flags.count("threads", (processors / 4).clamp(1, 8))?,
            compacts: flags.or("compact", false)?,
            data_dir: flags.take("data-dir")?,
            label: flags.or("label", String::new())?,
            name: flags.or("name", String::new())?,
            command: safe_words(&[&["cairn", "bench", "sweep"].map(str::to_owned)[..], args].concat()),
            access,
            out,
        };
        flags.end()?;
        if !crate::runfile::is_replaceable(&options.out) {
            return Err(BenchError::Usage("`--out` is no file: it is read, and replaced after each row".into()));
        }
        if !(GET_KEYS_MIN..=999_999_999).contains(&options.get_keys) {
            return Err(BenchError::Usage(format!("`--get-keys` must be from {GET_KEYS_MIN} to 999999999")));
        }
        if options.only.contains(&"auth") && options.access.user.is_none() {
            return Err(BenchError::Usage("the table auth needs `--user`".into()));
        }
        Ok(options)
    }

    /// The parameters that determine the rows and how each is measured.
    pub(super) fn plan(&self) -> Parameters {
        let seconds = self.row_time.map_or(0.0, |time| time.as_secs_f64());
        Parameters::default()
            .with("tables", self.only.join(", "))
            .with("quick", if self.is_quick { "yes" } else { "no" })
            .with("seconds_of_a_row", seconds)
            .with("keys_to_read", self.get_keys)
            .with("generator_threads", self.threads as u64)
            .with("users", if self.access.user.is_some() { "yes" } else { "no" })
            .with("endpoints", self.access.endpoints.len() as u64)
    }
}

/// The tables that are wanted, in their order.
fn only(list: Option<String>, has_user: bool) -> Result<Vec<&'static str>, BenchError> {
    let Some(list) = list else {
        return Ok(TABLES.iter().map(|(name, _)| *name).filter(|name| has_user || *name != "auth").collect());
    };
    let wanted: Vec<&str> = list.split(',').map(str::trim).collect();
    if let Some(unknown) = wanted.iter().find(|wanted| !TABLES.iter().any(|(name, _)| name == *wanted)) {
        let names: Vec<&str> = TABLES.iter().map(|(name, _)| *name).collect();
        return Err(BenchError::Usage(format!("`{unknown}` is no table: there are {}", names.join(", "))));
    }
    Ok(TABLES.iter().map(|(name, _)| *name).filter(|name| wanted.contains(name)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Options, String> {
        let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        Options::parse(&words).map_err(|error| error.to_string())
    }

    #[test]
    fn command_lines_are_read_and_mistakes_named() {
        let options = parse("--quick --out a.json --only get,put --endpoints a:1,b:2 --user r:x").expect("options");
        assert_eq!((options.only, options.get_keys, options.is_quick), (vec!["put", "get"], GET_KEYS_QUICK, true));
        assert!(options.command.join(" ").ends_with("--user r:***"));
        assert_eq!(parse("--out a --row-seconds 0").expect("options").row_time, None);
        assert!(!parse("--out a").expect("options").only.contains(&"auth"));
        for (line, wanted) in [
            ("", "`--out` is missing: the file that the rows go to"),
            ("--out /dev/null", "`--out` is no file: it is read, and replaced after each row"),
            ("--out a --only x", "`x` is no table: there are put, get, write, read, mixed, large, auth"),
            ("--out a --only auth", "the table auth needs `--user`"),
            ("--out a --get-keys 10", "`--get-keys` must be from 10000 to 999999999"),
            ("--out a b", "`b` is no flag"),
            ("--out a --fast", "`--fast` has no value"),
            ("--out a --fast 1", "`--fast` is not known here"),
        ] {
            assert_eq!(parse(line).err().as_deref(), Some(wanted), "{line}");
        }
    }
}

//! The command line, with the rules of Go's `flag` package: `-x` is `--x`, `--x=v` or `--x v`, booleans only `--x` or
//! `--x=v`, repeats allowed and the last one wins; an environment variable `ETCD_X` stands in for a flag that is not given.

use super::ConfigError;
use super::legacy::{self, Meaning};
use super::table::{self, Flag, Kind};
use super::values::{Origin, Values};

/// Why a command line is refused. The caller prints it with the usage text and exits with 2.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum FlagError {
    /// No such flag.
    #[error("flag provided but not defined: -{0}")]
    Unknown(String),
    /// Not a flag at all.
    #[error("bad flag syntax: {0}")]
    Syntax(String),
    /// The last word is a flag that needs a value.
    #[error("flag needs an argument: -{0}")]
    Missing(String),
    /// A value that cannot be read.
    #[error("invalid value {value:?} for flag -{flag}: {why}")]
    Value {
        /// The flag.
        flag: String,
        /// What was given.
        value: String,
        /// What is wrong with it.
        why: String,
    },
    /// A boolean that is neither true nor false.
    #[error("invalid boolean value {value:?} for -{flag}: parse error")]
    Boolean {
        /// The flag.
        flag: String,
        /// What was given.
        value: String,
    },
}

/// The meaning of a name on the command line.
enum Named {
    Flag(&'static Flag),
    Old(Meaning),
}

fn named(name: &str) -> Option<Named> {
    table::find(name).map(Named::Flag).or_else(|| legacy::find(name).map(Named::Old))
}

/// Reads the command line.
pub(super) fn parse(args: impl IntoIterator<Item = String>) -> Result<Values, ConfigError> {
    let mut values = Values::default();
    let mut args = args.into_iter();
    while let Some(arg) = args.next() {
        let stripped = arg.strip_prefix("--").or_else(|| arg.strip_prefix('-')).filter(|_| arg != "-");
        let Some(body) = stripped else {
            values.extra = Some(arg);
            break;
        };
        if body.is_empty() {
            // `--` ends the flags.
            values.extra = args.next();
            break;
        }
        if body.starts_with(['-', '=']) {
            return Err(FlagError::Syntax(arg).into());
        }
        let (name, inline) = match body.split_once('=') {
            Some((name, value)) => (name, Some(value.to_string())),
            None => (body, None),
        };
        let name = if name == "h" { "help" } else { name };
        let Some(named) = named(name) else { return Err(FlagError::Unknown(name.to_string()).into()) };
        let is_switch = match &named {
            Named::Flag(flag) => flag.is_switch(),
            Named::Old(meaning) => meaning.is_switch(),
        };
        let value = match (is_switch, inline) {
            (_, Some(value)) => value,
            (true, None) => "true".to_string(),
            (false, None) => args.next().ok_or_else(|| FlagError::Missing(name.to_string()))?,
        };
        match named {
            Named::Flag(flag) => values.set(flag, value, &Origin::Flag(name.into()))?,
            Named::Old(meaning) => values.set_old(name, meaning, value, Origin::Flag(name.into()))?,
        }
        if name == "help" {
            break;
        }
    }
    Ok(values)
}

/// Fills in from the environment what the command line does not say.
pub(super) fn add_environment(
    values: &mut Values,
    env: impl IntoIterator<Item = (String, String)>,
) -> Result<(), ConfigError> {
    for (variable, value) in env {
        let Some(suffix) = variable.strip_prefix("ETCD_") else { continue };
        let name = suffix.to_ascii_lowercase().replace('_', "-");
        if value.is_empty() || matches!(suffix, "UNSUPPORTED_ARCH" | "VERIFY" | "CONFIG_FILE") {
            continue;
        }
        let origin = Origin::Variable(variable.clone());
        let shown = super::shown::value(&variable, &value);
        match named(&name) {
            _ if name == "version" => {
                values.warnings.push(format!("cannot set special environment variable {variable}={shown}"));
            }
            Some(Named::Flag(flag)) if flag.name == "help" || flag.kind == Kind::Ignored => {
                values.warnings.push(format!("unrecognized environment variable: {variable}={shown}"));
            }
            None => values.warnings.push(format!("unrecognized environment variable: {variable}={shown}")),
            // Two answers to one question: etcd 3.7 refuses to choose, and so do we.
            Some(Named::Flag(flag)) if values.is_given(flag.name) => {
                return Err(ConfigError::Value(format!(
                    "conflicting environment variable {variable} is shadowed by corresponding command-line flag --{name} (either \
                     unset environment variable or disable flag))"
                )));
            }
            Some(Named::Flag(flag)) => {
                values.set(flag, value, &origin)?;
                values.variables.push((variable, shown));
            }
            Some(Named::Old(meaning)) => {
                values.set_old(&name, meaning, value, origin)?;
                values.variables.push((variable, shown));
            }
        }
    }
    Ok(())
}

/// The page of `cairn serve`.
pub fn page() -> ::flags::Page {
    let flags = table::GROUPS.iter().flat_map(|(_, flags)| flags.iter()).map(|flag| ::flags::Entry {
        name: flag.name.into(),
        short: None,
        takes_value: !flag.is_switch(),
        default: flag.default.into(),
        help: flag.help.into(),
    });
    ::flags::Page {
        name: "serve".into(),
        arguments: "[flags]".into(),
        help: "Starts a member".into(),
        notes: "Each flag may be given as a variable ETCD_<NAME>, and as a key of --config-file.".into(),
        flags: flags.collect(),
        commands: Vec::new(),
    }
}

/// The usage text.
pub fn usage() -> String {
    let mut text = String::from(
        "Usage:\n\n  cairn serve [flags]      start a member (also: cairn [flags], or under the name etcd)\n  \
         cairn cluster            start a cluster on this machine, for trying out (cairn cluster --help)\n  \
         cairn bench              measure a cluster, as etcd's benchmark (also under that name)\n  \
         cairn ctl                ask and change a cluster, as etcdctl (also under that name)\n  \
         cairn util               work on snapshots and data of stopped members, as etcdutl (also under that name)\n  \
         cairn check              test the disk, the network to other members, and a cluster under load\n  \
         cairn doctor             look at the machine, say what it is good for and which flags to set\n  \
         cairn takeover           move a running cluster from etcd to Cairn, or back\n  \
         cairn top                show what a cluster does, as it does it\n  \
         cairn version            show the version\n\nFlags (each also as ETCD_<NAME>, and as a key of --config-file):\n",
    );
    for (title, flags) in table::GROUPS {
        text.push_str(&format!("\n{title}:\n"));
        for flag in *flags {
            let value = match (flag.is_switch(), flag.default) {
                (true, "false") => String::new(),
                (true, default) => format!(" (default {default})"),
                (false, default) => format!(" '{default}'"),
            };
            text.push_str(&format!("  --{}{value}\n        {}\n", flag.name, flag.help));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse_args(args: &[&str]) -> Result<Values, ConfigError> {
        parse(args.iter().map(|arg| arg.to_string()))
    }

    fn refused(args: &[&str]) -> Option<FlagError> {
        match parse_args(args) {
            Err(ConfigError::Flag(error)) => Some(error),
            _ => None,
        }
    }

    fn with_env(args: &[&str], env: &[(&str, &str)]) -> Result<Values, ConfigError> {
        let mut values = parse_args(args)?;
        add_environment(&mut values, env.iter().map(|(name, value)| (name.to_string(), value.to_string())))?;
        Ok(values)
    }

    #[test]
    fn go_rules() {
        let values = parse_args(&["-name", "a", "--name=b", "--unsafe-no-fsync", "--pre-vote=f"]).expect("valid");
        assert_eq!(values.get("name"), "b", "the last one wins");
        assert!(values.is_on("unsafe-no-fsync") && !values.is_on("pre-vote"));
        assert_eq!(values.get("snapshot-count"), "10000");
        assert_eq!(refused(&["--nme=a"]), Some(FlagError::Unknown("nme".into())));
        assert_eq!(refused(&["--name"]), Some(FlagError::Missing("name".into())));
        assert_eq!(refused(&["---name"]), Some(FlagError::Syntax("---name".into())));
        assert_eq!(parse_args(&["data"]).expect("read").extra.as_deref(), Some("data"));
        assert_eq!(parse_args(&["--", "data"]).expect("read").extra.as_deref(), Some("data"));
        assert!(matches!(refused(&["--pre-vote=maybe"]), Some(FlagError::Boolean { .. })));
        assert!(matches!(refused(&["--heartbeat-interval=soon"]), Some(FlagError::Value { .. })));
    }

    #[test]
    fn environment_stands_in() {
        let env = [("ETCD_DATA_DIR", "d"), ("ETCD_NONE", "x"), ("PATH", "y"), ("ETCD_WAL_DIR", "")];
        let values = with_env(&["--name=flag"], &env).expect("valid");
        assert_eq!((values.get("name"), values.get("data-dir")), ("flag", "d"));
        assert_eq!(values.warnings.len(), 1);
        assert!(matches!(with_env(&["--data-dir=e"], &env), Err(ConfigError::Value(_))));
        let refused = with_env(&[], &[("ETCD_PRE_VOTE", "maybe")]).expect_err("no boolean").to_string();
        assert_eq!(refused, "invalid value \"maybe\" for ETCD_PRE_VOTE: parse error");
    }

    #[test]
    fn old_spellings() {
        let values = parse_args(&[
            "--experimental-warning-apply-duration=200ms",
            "--experimental-initial-corrupt-check",
            "--enable-v2",
            "-v",
        ]);
        let values = values.expect("valid");
        assert_eq!(values.get("warning-apply-duration"), "200ms");
        assert_eq!(values.gates, [("InitialCorruptCheck", true)]);
        assert_eq!(values.warnings.len(), 4, "{:?}", values.warnings);
        let passed_over =
            ["--proxy", "off", "--proxy-failure-wait=5000", "--discovery=", "--debug", "--enable-v2=true", "--name=a"];
        let values = parse_args(&passed_over).expect("valid");
        assert_eq!((values.get("name"), values.warnings.len()), ("a", 5), "{:?}", values.warnings);
        for promised in ["--proxy=on", "--proxy=readonly", "--discovery=https://x/y", "--experimental-enable-v2v3=/v2"]
        {
            let refused = parse_args(&[promised]).err().map(|error| error.to_string()).unwrap_or_default();
            assert!(refused.contains("cannot be done"), "{promised}: {refused}");
        }
        assert!(with_env(&[], &[("ETCD_PROXY", "on")]).is_err() && with_env(&[], &[("ETCD_PROXY", "off")]).is_ok());
        assert!(matches!(refused(&["--enable-v2=perhaps"]), Some(FlagError::Boolean { .. })));
        assert!(matches!(refused(&["--experimental-max-learners=x"]), Some(FlagError::Value { .. })));
        let both = parse_args(&["--max-learners=2", "--experimental-max-learners=2"]).expect_err("both");
        assert!(both.to_string().contains("--experimental-max-learners"), "{both}");
        assert!(with_env(&[], &[("ETCD_EXPERIMENTAL_MAX_LEARNERS", "3")]).expect("valid").is_given("max-learners"));
    }
}

//! The values that were given, by flag, and reading them by type.

use super::flags::FlagError;
use super::kind::boolean;
use super::legacy::{Meaning, Shape};
use super::table::{self, Flag, Kind};
use super::{ConfigError, duration, number};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

/// Where a value was given.
#[derive(Clone, Debug)]
pub(super) enum Origin {
    /// On the command line, under this name.
    Flag(String),
    /// In a variable of this name.
    Variable(String),
    /// In a configuration file, under this key.
    Key(String),
}

impl Origin {
    fn refuse(&self, flag: &Flag, value: String, why: String) -> ConfigError {
        match self {
            Origin::Flag(name) if flag.kind == Kind::Switch => FlagError::Boolean { flag: name.clone(), value }.into(),
            Origin::Flag(name) => FlagError::Value { flag: name.clone(), value, why }.into(),
            Origin::Variable(name) | Origin::Key(name) => {
                ConfigError::Value(format!("invalid value {value:?} for {name}: {why}"))
            }
        }
    }

    fn shown(&self) -> String {
        match self {
            Origin::Flag(name) => format!("--{name}"),
            Origin::Variable(name) | Origin::Key(name) => name.clone(),
        }
    }
}

/// The values that were given, by flag name.
#[derive(Debug, Default)]
pub(super) struct Values {
    given: BTreeMap<&'static str, String>,
    /// Flags that were given under an older name, and where.
    old: BTreeMap<&'static str, String>,
    /// Feature gates that were given as flags of their own.
    pub(super) gates: Vec<(&'static str, bool)>,
    /// What is worth a warning once logging is up.
    pub(super) warnings: Vec<String>,
    /// What is worth telling then.
    pub(super) notes: Vec<String>,
    /// Variables that were used, with their values as they may be shown.
    pub(super) variables: Vec<(String, String)>,
    /// A word on the command line that is no flag.
    pub(super) extra: Option<String>,
    /// Everything comes from a configuration file.
    pub(super) from_file: bool,
}

impl Values {
    /// No values yet, and none but those of a file to come.
    pub(super) fn of_file() -> Values {
        Values { from_file: true, ..Values::default() }
    }

    /// Takes a value if it is one of the flag's kind.
    pub(super) fn set(&mut self, flag: &'static Flag, value: String, origin: &Origin) -> Result<(), ConfigError> {
        if let Some(old) = self.old.get(flag.name) {
            return Err(twice(&origin.shown(), old));
        }
        if flag.kind == Kind::Ignored {
            self.warnings.push(format!("flag --{} is no longer supported - ignoring", flag.name));
            return Ok(());
        }
        if let Err(why) = flag.kind.check(&value) {
            return Err(origin.refuse(flag, value, why));
        }
        self.given.insert(flag.name, value);
        Ok(())
    }

    /// The same for an older spelling.
    pub(super) fn set_old(
        &mut self,
        name: &str,
        meaning: Meaning,
        value: String,
        origin: Origin,
    ) -> Result<(), ConfigError> {
        let switched = || match (boolean(&value), &origin) {
            (Some(on), _) => Ok(on),
            (None, Origin::Flag(flag)) => {
                Err(ConfigError::from(FlagError::Boolean { flag: flag.clone(), value: value.clone() }))
            }
            (None, origin) => {
                Err(ConfigError::Value(format!("invalid value {value:?} for {}: parse error", origin.shown())))
            }
        };
        match meaning {
            Meaning::Flag(new) => {
                let shown = origin.shown();
                let Some(flag) = table::find(new) else {
                    return Err(ConfigError::Value(format!("{shown} has no successor")));
                };
                if self.given.contains_key(new) && !self.old.contains_key(new) {
                    return Err(twice(&format!("--{new}"), &shown));
                }
                self.old.remove(new);
                self.set(flag, value, &origin)?;
                self.old.insert(flag.name, shown);
                self.warnings.push(format!("flag --{name} is called --{new} today"));
            }
            Meaning::Gate(gate) => {
                let on = switched()?;
                self.gates.retain(|given| given.0 != gate);
                self.gates.push((gate, on));
                self.warnings.push(format!("flag --{name} is called --feature-gates={gate}={on} today"));
            }
            Meaning::Nothing(shape, why) => {
                // A file of etcd may say `yes`, and nothing depends on it.
                if shape == Shape::Switch && !matches!(origin, Origin::Key(_)) {
                    switched()?;
                }
                self.warnings.push(format!("flag --{name} has no effect: {why}"));
            }
            Meaning::Only(harmless, why) => {
                if !harmless.contains(&value.as_str()) {
                    return Err(ConfigError::Value(format!("{}={value:?} cannot be done: {why}", origin.shown())));
                }
                self.warnings.push(format!("flag --{name} has no effect: {why}"));
            }
        }
        Ok(())
    }

    pub(super) fn get(&self, name: &str) -> &str {
        match self.given.get(name) {
            Some(value) => value,
            None => table::find(name).map_or("", |flag| flag.default),
        }
    }

    pub(super) fn is_given(&self, name: &str) -> bool {
        self.given.contains_key(name)
    }

    /// A switch.
    pub(super) fn is_on(&self, name: &str) -> bool {
        boolean(self.get(name)) == Some(true)
    }

    /// A number that must be in a range smaller than its type's.
    pub(super) fn number(&self, name: &str, low: i64, high: i64) -> Result<i64, ConfigError> {
        let text = self.get(name);
        match number::parse(text, i128::from(i64::MIN), i128::from(u64::MAX)) {
            Ok(number) => match i64::try_from(number) {
                Ok(number) if (low..=high).contains(&number) => Ok(number),
                _ => Err(unusable(name, text, format_args!("must be in {low}..={high}"))),
            },
            Err(why) => Err(unusable(name, text, why)),
        }
    }

    /// A time that must not be negative.
    pub(super) fn period(&self, name: &str) -> Result<Duration, ConfigError> {
        let text = self.get(name);
        duration::parse(text).ok_or_else(|| unusable(name, text, "must be a duration like 100ms that is not negative"))
    }

    /// A time of which zero means the default.
    pub(super) fn period_or(&self, name: &str, default: Duration) -> Result<Duration, ConfigError> {
        self.period(name).map(|period| if period.is_zero() { default } else { period })
    }

    /// Comma-separated words, without empty ones.
    pub(super) fn words(&self, name: &str) -> Vec<String> {
        let words = self.get(name).split(',').map(str::trim);
        words.filter(|word| !word.is_empty()).map(Into::into).collect()
    }

    /// The name of a file or directory; `None` when it is empty.
    pub(super) fn path(&self, name: &str) -> Option<PathBuf> {
        Some(self.get(name)).filter(|path| !path.is_empty()).map(PathBuf::from)
    }

    /// A text; `None` when it is empty.
    pub(super) fn text(&self, name: &str) -> Option<String> {
        Some(self.get(name)).filter(|text| !text.is_empty()).map(Into::into)
    }
}

/// A value that can be read but not used: exit 1.
pub(super) fn unusable(flag: &str, value: &str, why: impl std::fmt::Display) -> ConfigError {
    ConfigError::Value(format!("cannot use {value:?} for --{flag}: {why}"))
}

fn twice(one: &str, other: &str) -> ConfigError {
    ConfigError::Value(format!("{one} and {other} are one flag under two names: give one of them"))
}

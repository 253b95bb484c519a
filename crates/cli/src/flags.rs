//! Command lines as Go's `pflag` reads them: `--name value`, `--name=value`, `-n value`, `-nvalue`; switches take a value only behind
//! `=`; flags and arguments may be mixed; `--` ends the flags; repeats are allowed and the last one wins.

use crate::failure::{Failure, Outcome};
use std::collections::BTreeMap;
use std::time::Duration;

/// What a flag takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Switch,
    Text,
    /// Texts separated by commas; given again, they are added.
    List,
    Int,
    Duration,
}

/// A flag.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Flag {
    pub(crate) name: &'static str,
    pub(crate) short: Option<char>,
    pub(crate) kind: Kind,
    pub(crate) default: &'static str,
    pub(crate) help: &'static str,
}

/// A flag that is on or off.
pub(crate) const fn switch(name: &'static str, help: &'static str) -> Flag {
    Flag { name, short: None, kind: Kind::Switch, default: "false", help }
}

/// A flag with a text.
pub(crate) const fn text(name: &'static str, default: &'static str, help: &'static str) -> Flag {
    Flag { name, short: None, kind: Kind::Text, default, help }
}

/// A flag with a whole number.
pub(crate) const fn int(name: &'static str, default: &'static str, help: &'static str) -> Flag {
    Flag { name, short: None, kind: Kind::Int, default, help }
}

/// A flag with a time, as Go writes it.
pub(crate) const fn duration(name: &'static str, default: &'static str, help: &'static str) -> Flag {
    Flag { name, short: None, kind: Kind::Duration, default, help }
}

impl Flag {
    /// The same flag, with a short name as well.
    pub(crate) const fn or(mut self, short: char) -> Flag {
        self.short = Some(short);
        self
    }

    fn check(&self, value: &str) -> Result<(), String> {
        match self.kind {
            Kind::Text | Kind::List => Ok(()),
            Kind::Switch => boolean(value).map(drop).ok_or_else(|| syntax("ParseBool", value)),
            Kind::Int => integer(value).map(drop),
            Kind::Duration => parse_duration(value).map(drop),
        }
        .map_err(|why| {
            let short = self.short.map_or(String::new(), |short| format!("-{short}, "));
            format!("invalid argument {value:?} for \"{short}--{}\" flag: {why}", self.name)
        })
    }
}

fn syntax(function: &str, value: &str) -> String {
    format!("strconv.{function}: parsing {value:?}: invalid syntax")
}

fn boolean(value: &str) -> Option<bool> {
    match value {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Some(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Some(false),
        _ => None,
    }
}

/// A number of Go's `ParseInt(value, 0, 64)`.
pub(crate) fn integer(value: &str) -> Result<i64, String> {
    let (sign, digits) = match value.strip_prefix('-') {
        Some(digits) => (-1, digits),
        None => (1, value.strip_prefix('+').unwrap_or(value)),
    };
    let (digits, radix) = match digits.get(..2) {
        Some("0x" | "0X") => (&digits[2..], 16),
        Some("0b" | "0B") => (&digits[2..], 2),
        Some("0o" | "0O") => (&digits[2..], 8),
        _ => (digits, 10),
    };
    if digits.is_empty() || !digits.chars().all(|digit| digit.is_digit(radix)) {
        return Err(syntax("ParseInt", value));
    }
    let magnitude = i128::from_str_radix(digits, radix).unwrap_or(i128::MAX);
    i64::try_from(magnitude.saturating_mul(sign))
        .map_err(|_| format!("strconv.ParseInt: parsing {value:?}: value out of range"))
}

/// A number in base 16, as IDs are written.
pub(crate) fn hex<T: TryFrom<i128>>(value: &str, function: &str) -> Result<T, String> {
    let digits = value.strip_prefix('-').unwrap_or(value);
    if digits.is_empty() || !digits.chars().all(|digit| digit.is_ascii_hexdigit()) {
        return Err(syntax(function, value));
    }
    let magnitude = i128::from_str_radix(value, 16).unwrap_or(i128::MAX);
    T::try_from(magnitude).map_err(|_| format!("strconv.{function}: parsing {value:?}: value out of range"))
}

/// A time as Go writes it: `1.5s`, `300ms`, `2h45m`.
pub(crate) fn parse_duration(value: &str) -> Result<Duration, String> {
    let bad = || format!("time: invalid duration {value:?}");
    let mut rest = value.strip_prefix('+').unwrap_or(value);
    if rest == "0" {
        return Ok(Duration::ZERO);
    }
    let mut total = Duration::ZERO;
    if rest.is_empty() {
        return Err(bad());
    }
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
        let number: f64 = rest[..digits].parse().map_err(|_| bad())?;
        rest = &rest[digits..];
        let unit = rest.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(rest.len());
        let seconds = match &rest[..unit] {
            "ns" => 1e-9,
            "us" | "µs" | "μs" => 1e-6,
            "ms" => 1e-3,
            "s" => 1.0,
            "m" => 60.0,
            "h" => 3600.0,
            "" => return Err(format!("time: missing unit in duration {value:?}")),
            other => return Err(format!("time: unknown unit {other:?} in duration {value:?}")),
        };
        rest = &rest[unit..];
        total = Duration::try_from_secs_f64(number * seconds)
            .ok()
            .and_then(|part| total.checked_add(part))
            .ok_or_else(bad)?;
    }
    Ok(total)
}

/// A command line, taken apart.
#[derive(Debug, Default)]
pub(crate) struct Parsed {
    values: BTreeMap<&'static str, String>,
    defaults: BTreeMap<&'static str, &'static str>,
    /// What is no flag.
    pub(crate) args: Vec<String>,
    /// How many of them stand before `--`, if that is there.
    pub(crate) dash: Option<usize>,
}

/// Reads `words` with these flags.
pub(crate) fn parse(words: &[String], flags: &[Flag]) -> Outcome<Parsed> {
    let mut parsed =
        Parsed { defaults: flags.iter().map(|flag| (flag.name, flag.default)).collect(), ..Parsed::default() };
    let mut words = words.iter();
    while let Some(word) = words.next() {
        if word == "--" {
            parsed.dash = Some(parsed.args.len());
            parsed.args.extend(words.cloned());
            break;
        }
        if let Some(long) = word.strip_prefix("--") {
            let (name, inline) = match long.split_once('=') {
                Some((name, value)) => (name, Some(value.to_string())),
                None => (long, None),
            };
            let Some(flag) = flags.iter().find(|flag| flag.name == name) else {
                return Err(Failure::usage(format!("unknown flag: --{name}")));
            };
            let value = match (inline, flag.kind) {
                (Some(value), _) => value,
                (None, Kind::Switch) => "true".into(),
                (None, _) => {
                    let missing = || Failure::usage(format!("flag needs an argument: --{name}"));
                    words.next().cloned().ok_or_else(missing)?
                }
            };
            parsed.set(flag, value)?;
        } else if word.len() > 1 && word.starts_with('-') {
            parsed.short(&word[1..], flags, &mut words)?;
        } else {
            parsed.args.push(word.clone());
        }
    }
    Ok(parsed)
}

impl Parsed {
    fn set(&mut self, flag: &Flag, value: String) -> Outcome {
        flag.check(&value).map_err(Failure::usage)?;
        match self.values.get_mut(flag.name) {
            Some(list) if flag.kind == Kind::List => {
                list.push(',');
                list.push_str(&value);
            }
            _ => {
                self.values.insert(flag.name, value);
            }
        }
        Ok(())
    }

    /// Short flags, of which several may stand in one word.
    fn short<'a>(&mut self, letters: &str, flags: &[Flag], words: &mut impl Iterator<Item = &'a String>) -> Outcome {
        let mut rest = letters;
        while let Some(letter) = rest.chars().next() {
            let unknown = || Failure::usage(format!("unknown shorthand flag: {letter:?} in -{rest}"));
            let flag = flags.iter().find(|flag| flag.short == Some(letter)).ok_or_else(unknown)?;
            let behind = &rest[letter.len_utf8()..];
            if flag.kind == Kind::Switch && !behind.starts_with('=') {
                self.set(flag, "true".into())?;
                rest = behind;
                continue;
            }
            let value = match behind.strip_prefix('=').unwrap_or(behind) {
                "" => {
                    let missing = || Failure::usage(format!("flag needs an argument: {letter:?} in -{rest}"));
                    words.next().cloned().ok_or_else(missing)?
                }
                value => value.to_string(),
            };
            return self.set(flag, value);
        }
        Ok(())
    }

    /// Takes `value` for a flag that was not given.
    pub(crate) fn suggest(&mut self, flag: &Flag, value: String) -> Outcome {
        if self.is_given(flag.name) { Ok(()) } else { self.set(flag, value) }
    }

    pub(crate) fn is_given(&self, name: &str) -> bool {
        self.values.contains_key(name)
    }

    pub(crate) fn text(&self, name: &str) -> &str {
        match self.values.get(name) {
            Some(value) => value,
            None => self.defaults.get(name).copied().unwrap_or_default(),
        }
    }

    pub(crate) fn switch(&self, name: &str) -> bool {
        boolean(self.text(name)).unwrap_or_default()
    }

    /// Values were checked when they were read.
    pub(crate) fn int(&self, name: &str) -> i64 {
        integer(self.text(name)).unwrap_or_default()
    }

    pub(crate) fn duration(&self, name: &str) -> Duration {
        parse_duration(self.text(name)).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FLAGS: &[Flag] = &[
        switch("prefix", ""),
        int("limit", "0", ""),
        text("write-out", "simple", "").or('w'),
        duration("wait", "2s", ""),
    ];

    fn words(line: &str) -> Vec<String> {
        line.split_whitespace().map(String::from).collect()
    }

    #[test]
    fn flags_and_arguments_may_be_mixed() {
        let parsed =
            parse(&words("a --limit 5 b -wjson --prefix c --limit=0x10 -- --d"), FLAGS).expect("a command line");
        assert_eq!(parsed.args, ["a", "b", "c", "--d"]);
        assert_eq!((parsed.int("limit"), parsed.text("write-out"), parsed.switch("prefix")), (16, "json", true));
        assert_eq!((parsed.dash, parsed.duration("wait")), (Some(3), Duration::from_secs(2)));
    }

    #[test]
    fn what_cannot_be_read_is_said_in_gos_words() {
        let refused = |line: &str| parse(&words(line), FLAGS).expect_err("refused").text;
        assert_eq!(refused("--nonsense"), "unknown flag: --nonsense");
        assert_eq!(refused("-z"), "unknown shorthand flag: 'z' in -z");
        assert_eq!(refused("--limit"), "flag needs an argument: --limit");
        let number = r#"invalid argument "x" for "--limit" flag: strconv.ParseInt: parsing "x": invalid syntax"#;
        assert_eq!(refused("--limit=x"), number);
        assert!(refused("--limit=99999999999999999999").ends_with("value out of range"));
        assert!(refused("--prefix=maybe").contains("strconv.ParseBool"));
        assert!(refused("--wait=5").contains("time: missing unit in duration \"5\""));
    }

    #[test]
    fn durations_are_gos() {
        for (text, ms) in [("1.5s", 1_500), ("300ms", 300), ("2h45m", 9_900_000), ("0", 0), ("1m0.5s", 60_500)] {
            assert_eq!(parse_duration(text), Ok(Duration::from_millis(ms)), "{text}");
        }
        for text in ["", "s", "1", "1x", "1.2.3s", "-1s"] {
            assert!(parse_duration(text).is_err(), "{text}");
        }
    }
}

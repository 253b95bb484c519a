//! Command lines as Go's `pflag` reads them: `--name value`, `--name=value`, `-n value`, `-nvalue`; switches take a value only after
//! `=`; flags and arguments may be mixed; `--` ends the flags; repeats are allowed and the last one wins.

mod duration;
mod page;
mod program;
mod prompt;
mod say;

pub use duration::{duration_text, parse_duration, parse_nanoseconds};
pub use page::{Entry, Page, complete, man};
pub use program::{Asked, Command, Program};
pub use prompt::password;
pub use say::say_bytes;

use std::collections::BTreeMap;
use std::time::Duration;

/// What a flag takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// On or off: takes a value only after `=`.
    Switch,
    /// Any text.
    Text,
    /// Texts separated by commas; given again, they are added.
    List,
    /// A whole number.
    Int,
    /// A whole number that is not negative.
    Uint,
    /// A number.
    Float,
    /// A time, as Go writes it.
    Duration,
}

impl Kind {
    /// What a usage shows behind a flag's name.
    fn placeholder(self) -> &'static str {
        match self {
            Kind::Switch => "",
            Kind::Text => " text",
            Kind::List => " texts",
            Kind::Int | Kind::Uint | Kind::Float => " number",
            Kind::Duration => " duration",
        }
    }
}

/// A command line that cannot be read: why, in Go's words.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Error(pub String);

/// A flag.
#[derive(Clone, Copy, Debug)]
pub struct Flag {
    /// Behind two dashes.
    pub name: &'static str,
    /// Behind one.
    pub short: Option<char>,
    /// What it takes.
    pub kind: Kind,
    /// Its value when it is not given.
    pub default: &'static str,
    /// What it is for.
    pub help: &'static str,
}

/// A flag that is on or off.
pub const fn switch(name: &'static str, help: &'static str) -> Flag {
    Flag { name, short: None, kind: Kind::Switch, default: "false", help }
}

/// A flag with a text.
pub const fn text(name: &'static str, default: &'static str, help: &'static str) -> Flag {
    Flag { name, short: None, kind: Kind::Text, default, help }
}

/// A flag with texts separated by commas; given again, they are added.
pub const fn list(name: &'static str, default: &'static str, help: &'static str) -> Flag {
    Flag { name, short: None, kind: Kind::List, default, help }
}

/// A flag with a whole number.
pub const fn int(name: &'static str, default: &'static str, help: &'static str) -> Flag {
    Flag { name, short: None, kind: Kind::Int, default, help }
}

/// A flag with a whole number that is not negative.
pub const fn uint(name: &'static str, default: &'static str, help: &'static str) -> Flag {
    Flag { name, short: None, kind: Kind::Uint, default, help }
}

/// A flag with a number.
pub const fn float(name: &'static str, default: &'static str, help: &'static str) -> Flag {
    Flag { name, short: None, kind: Kind::Float, default, help }
}

/// A flag with a time, as Go writes it.
pub const fn duration(name: &'static str, default: &'static str, help: &'static str) -> Flag {
    Flag { name, short: None, kind: Kind::Duration, default, help }
}

impl Flag {
    /// The same flag, with a short name as well.
    #[must_use]
    pub const fn or(mut self, short: char) -> Flag {
        self.short = Some(short);
        self
    }

    fn check(&self, value: &str) -> Result<(), String> {
        match self.kind {
            Kind::Text | Kind::List => Ok(()),
            Kind::Switch => boolean(value).map(drop).ok_or_else(|| syntax("ParseBool", value)),
            Kind::Int => integer(value).map(drop),
            Kind::Uint => unsigned(value).map(drop),
            Kind::Float => value.parse::<f64>().map(drop).map_err(|_| syntax("ParseFloat", value)),
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

/// A number as Go reads it in a flag: base 16, 8 or 2 after `0x`, `0o` (or just `0`) and `0b`, with `_` between digits and after that.
fn any_base(value: &str, function: &str) -> Result<i128, String> {
    let (_, digits) = signed(value);
    let prefix = digits.get(..2).filter(|_| digits.len() > 2).unwrap_or_default().to_ascii_lowercase();
    let (rest, radix) = match prefix.as_str() {
        "0x" => (&digits[2..], 16),
        "0o" => (&digits[2..], 8),
        "0b" => (&digits[2..], 2),
        _ if digits.len() > 1 && digits.starts_with('0') => (&digits[1..], 8),
        _ => (digits, 10),
    };
    // What stands before the digits counts as one of them.
    let rest = if rest.len() < digits.len() { rest.strip_prefix('_').unwrap_or(rest) } else { rest };
    if rest.split('_').any(str::is_empty) {
        return Err(syntax(function, value));
    }
    number(value, &rest.replace('_', ""), radix, function)
}

/// The sign and what follows it.
fn signed(value: &str) -> (i128, &str) {
    match value.strip_prefix('-') {
        Some(digits) => (-1, digits),
        None => (1, value.strip_prefix('+').unwrap_or(value)),
    }
}

/// The number of these digits, with the sign of `value`, of which they are a part.
fn number(value: &str, digits: &str, radix: u32, function: &str) -> Result<i128, String> {
    let is_signed = signed(value).1.len() < value.len();
    if digits.is_empty() || !digits.chars().all(|digit| digit.is_digit(radix)) || (is_signed && function == PARSE_UINT)
    {
        return Err(syntax(function, value));
    }
    Ok(i128::from_str_radix(digits, radix).unwrap_or(i128::MAX).saturating_mul(signed(value).0))
}

fn fit<T: TryFrom<i128>>(number: i128, value: &str, function: &str) -> Result<T, String> {
    T::try_from(number).map_err(|_| format!("strconv.{function}: parsing {value:?}: value out of range"))
}

/// The name of Go's function for numbers with a sign.
pub const PARSE_INT: &str = "ParseInt";
/// The name of the one for those without.
pub const PARSE_UINT: &str = "ParseUint";

/// A number of Go's `ParseInt(value, 0, 64)`.
pub fn integer(value: &str) -> Result<i64, String> {
    fit(any_base(value, PARSE_INT)?, value, PARSE_INT)
}

/// A number of Go's `ParseUint(value, 0, 64)`.
pub fn unsigned(value: &str) -> Result<u64, String> {
    fit(any_base(value, PARSE_UINT)?, value, PARSE_UINT)
}

/// A number in base 10, as arguments are written.
pub fn decimal(value: &str) -> Result<i64, String> {
    fit(number(value, signed(value).1, 10, PARSE_INT)?, value, PARSE_INT)
}

/// A number in base 16, as IDs are written.
pub fn hex<T: TryFrom<i128>>(value: &str, function: &str) -> Result<T, String> {
    fit(number(value, signed(value).1, 16, function)?, value, function)
}

/// A command line, taken apart.
#[derive(Debug, Default)]
pub struct Parsed {
    values: BTreeMap<&'static str, String>,
    defaults: BTreeMap<&'static str, &'static str>,
    /// What is no flag.
    pub args: Vec<String>,
    /// How many of them stand before `--`, if that is there.
    pub dash: Option<usize>,
}

/// Reads `words` with these flags.
pub fn parse(words: &[String], flags: &[Flag]) -> Result<Parsed, Error> {
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
                return Err(Error(format!("unknown flag: --{name}")));
            };
            let value = match (inline, flag.kind) {
                (Some(value), _) => value,
                (None, Kind::Switch) => "true".into(),
                (None, _) => {
                    let missing = || Error(format!("flag needs an argument: --{name}"));
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

/// Whether the flag `word`, one of `flags`, has its value in the next word. Flags that are not known have.
pub fn takes_next<'a>(word: &str, flags: impl IntoIterator<Item = &'a Flag>) -> bool {
    if word.contains('=') {
        return false;
    }
    let mut flags = flags.into_iter();
    let flag = match word.strip_prefix("--") {
        Some(name) => flags.find(|flag| flag.name == name),
        None if word.chars().count() == 2 => flags.find(|flag| flag.short == word.chars().nth(1)),
        None => return false,
    };
    flag.is_none_or(|flag| flag.kind != Kind::Switch)
}

impl Parsed {
    fn set(&mut self, flag: &Flag, value: String) -> Result<(), Error> {
        flag.check(&value).map_err(Error)?;
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
    fn short<'a>(
        &mut self,
        letters: &str,
        flags: &[Flag],
        words: &mut impl Iterator<Item = &'a String>,
    ) -> Result<(), Error> {
        let mut rest = letters;
        while let Some(letter) = rest.chars().next() {
            let unknown = || Error(format!("unknown shorthand flag: {letter:?} in -{rest}"));
            let flag = flags.iter().find(|flag| flag.short == Some(letter)).ok_or_else(unknown)?;
            let behind = &rest[letter.len_utf8()..];
            if flag.kind == Kind::Switch && !behind.starts_with('=') {
                self.set(flag, "true".into())?;
                rest = behind;
                continue;
            }
            let value = match behind.strip_prefix('=').unwrap_or(behind) {
                "" => {
                    let missing = || Error(format!("flag needs an argument: {letter:?} in -{rest}"));
                    words.next().cloned().ok_or_else(missing)?
                }
                value => value.to_string(),
            };
            return self.set(flag, value);
        }
        Ok(())
    }

    /// Takes `value` for a flag that was not given.
    pub fn suggest(&mut self, flag: &Flag, value: String) -> Result<(), Error> {
        if self.is_given(flag.name) { Ok(()) } else { self.set(flag, value) }
    }

    /// Whether the flag was given.
    pub fn is_given(&self, name: &str) -> bool {
        self.values.contains_key(name)
    }

    /// The value of a flag, as it was written.
    pub fn text(&self, name: &str) -> &str {
        match self.values.get(name) {
            Some(value) => value,
            None => self.defaults.get(name).copied().unwrap_or_default(),
        }
    }

    /// The values of a list.
    pub fn texts(&self, name: &str) -> Vec<&str> {
        self.text(name).split(',').filter(|text| !text.is_empty()).collect()
    }

    /// The value of a switch.
    pub fn switch(&self, name: &str) -> bool {
        boolean(self.text(name)).unwrap_or_default()
    }

    // Values were checked when they were read.

    /// The value of a whole number.
    pub fn int(&self, name: &str) -> i64 {
        integer(self.text(name)).unwrap_or_default()
    }

    /// The value of a number that is not negative.
    pub fn uint(&self, name: &str) -> u64 {
        unsigned(self.text(name)).unwrap_or_default()
    }

    /// The value of a number.
    pub fn float(&self, name: &str) -> f64 {
        self.text(name).parse().unwrap_or_default()
    }

    /// The value of a time.
    pub fn duration(&self, name: &str) -> Duration {
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
        uint("clients", "1", ""),
        float("ratio", "1", ""),
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
        let refused = |line: &str| parse(&words(line), FLAGS).expect_err("refused").0;
        assert_eq!(refused("--nonsense"), "unknown flag: --nonsense");
        assert_eq!(refused("-z"), "unknown shorthand flag: 'z' in -z");
        assert_eq!(refused("--limit"), "flag needs an argument: --limit");
        let number = r#"invalid argument "x" for "--limit" flag: strconv.ParseInt: parsing "x": invalid syntax"#;
        assert_eq!(refused("--limit=x"), number);
        assert!(refused("--limit=99999999999999999999").ends_with("value out of range"));
        let number = r#"invalid argument "-1" for "--clients" flag: strconv.ParseUint: parsing "-1": invalid syntax"#;
        assert_eq!(refused("--clients=-1"), number);
        assert!(refused("--clients=18446744073709551616").ends_with("value out of range"));
        assert!(refused("--ratio=x").contains("strconv.ParseFloat"));
        assert!(refused("--prefix=maybe").contains("strconv.ParseBool"));
        assert!(refused("--wait=5").contains("time: missing unit in duration \"5\""));
    }

    #[test]
    fn numbers_are_gos() {
        for (text, number) in [
            ("0", 0),
            ("010", 8),
            ("0_7", 7),
            ("1_0", 10),
            ("+5", 5),
            ("-0x1", -1),
            ("0x_f", 15),
            ("0XfF", 255),
            ("0b_1", 1),
            ("0o17", 15),
            ("-9223372036854775808", i64::MIN),
        ] {
            assert_eq!(integer(text), Ok(number), "{text}");
        }
        for text in ["", "-", "08", "0x", "0b", "1__0", "_1", "1_", "0x_", "0_", "0x-1", "--1", "ä1"] {
            assert_eq!(integer(text), Err(syntax(PARSE_INT, text)), "{text}");
        }
        assert_eq!((decimal("010"), decimal("+5"), decimal("-5")), (Ok(10), Ok(5), Ok(-5)));
        for text in ["", "0x10", "1_0", "0b1", "x"] {
            assert_eq!(decimal(text), Err(syntax(PARSE_INT, text)), "{text}");
        }
        assert_eq!((hex("+1f", PARSE_INT), hex("-1", PARSE_INT)), (Ok(31_i64), Ok(-1)));
        for text in ["+1", "-1", "0x1", "1_0"] {
            assert_eq!(hex::<u64>(text, PARSE_UINT), Err(syntax(PARSE_UINT, text)), "{text}");
        }
        assert_eq!((unsigned("0x10"), unsigned("18446744073709551615")), (Ok(16), Ok(u64::MAX)));
        assert_eq!(unsigned("-1"), Err(syntax(PARSE_UINT, "-1")));
    }
}

//! Checking a text against a flag's kind.

use super::table::Kind;
use super::{duration, gates, number, url};

impl Kind {
    /// Refuses, in Go's words where it has some, what is no value of this kind.
    pub(super) fn check(self, text: &str) -> Result<(), String> {
        match self {
            Kind::Text | Kind::Words | Kind::Ignored => Ok(()),
            Kind::Switch => boolean(text).map(drop).ok_or_else(|| number::SYNTAX.into()),
            Kind::Number(low, high) => number::parse(text, low, high).map(drop).map_err(Into::into),
            Kind::Period => duration::nanoseconds(text).map(drop).ok_or_else(|| number::SYNTAX.into()),
            Kind::Choice(choices) if choices.contains(&text) => Ok(()),
            Kind::Choice(_) => Err(format!("invalid value {text:?}")),
            Kind::Urls => url::check_list(text),
            Kind::Gates => gates::check(text),
        }
    }
}

/// The booleans of Go.
pub(super) fn boolean(text: &str) -> Option<bool> {
    match text {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Some(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Some(false),
        _ => None,
    }
}

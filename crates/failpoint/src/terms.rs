//! What a point is told to do: `2*return("a")->25%sleep("1s")->panic`.
//!
//! Each time the point is passed, the first term whose counts and chances allow it acts. The grammar is gofail's; chances may be whole
//! numbers as well, and a text that no term fits is refused as a whole.

use crate::Value;
use std::time::Duration;

/// Longest text that is read.
const TEXT_BYTES_MAX: usize = 4096;
/// Terms of one text.
const TERMS_MAX: usize = 64;
/// Counts and chances of one term.
const GATES_MAX: usize = 8;

/// What a term does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    /// Nothing; later terms are not looked at.
    Off,
    /// The code at the point gets the value.
    Return(Value),
    /// The thread sleeps.
    Sleep(Duration),
    /// The process ends.
    Panic(Value),
    /// The process stops until it gets SIGCONT, so that a debugger can look at it.
    Break,
    /// A line on standard output.
    Print,
}

/// When a term acts.
#[derive(Clone, Debug, PartialEq)]
enum Gate {
    /// This many times more.
    Count(u64),
    /// With this probability.
    Chance(f64),
}

#[derive(Clone, Debug, PartialEq)]
struct Term {
    gates: Vec<Gate>,
    action: Action,
}

/// The terms of a point, and how often they acted.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Terms {
    text: String,
    chain: Vec<Term>,
    acted: u64,
}

impl Terms {
    /// Reads the terms of `text`.
    pub(crate) fn read(text: &str) -> Option<Terms> {
        if text.len() > TEXT_BYTES_MAX {
            return None;
        }
        let mut chain = Vec::new();
        let mut rest = text;
        loop {
            let (term, behind) = Term::read(rest)?;
            chain.push(term);
            if behind.is_empty() {
                return Some(Terms { text: text.into(), chain, acted: 0 });
            }
            rest = behind.strip_prefix("->")?;
            if chain.len() >= TERMS_MAX {
                return None;
            }
        }
    }

    /// As they were written.
    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    /// How often a term acted.
    pub(crate) fn acted(&self) -> u64 {
        self.acted
    }

    /// What is to be done now. `chance` gives numbers from 0 to 1.
    pub(crate) fn next(&mut self, mut chance: impl FnMut() -> f64) -> Option<Action> {
        let term = self.chain.iter_mut().find_map(|term| {
            let allowed = term.gates.iter_mut().all(|gate| match gate {
                Gate::Count(left) => {
                    let allowed = *left > 0;
                    *left = left.saturating_sub(1);
                    allowed
                }
                Gate::Chance(probability) => chance() < *probability,
            });
            allowed.then_some(term)
        })?;
        self.acted += 1;
        Some(term.action.clone())
    }
}

impl Term {
    /// The term at the beginning of `text`, and what follows it.
    fn read(text: &str) -> Option<(Term, &str)> {
        let mut rest = text;
        let mut gates = Vec::new();
        while rest.starts_with(|char: char| char.is_ascii_digit()) {
            let end = rest.find(|char: char| !char.is_ascii_digit() && char != '.')?;
            let (number, behind) = rest.split_at(end);
            let gate = match behind.chars().next()? {
                '*' => Gate::Count(number.parse().ok()?),
                '%' => Gate::Chance(number.parse::<f64>().ok()? / 100.0),
                _ => return None,
            };
            if gates.len() >= GATES_MAX {
                return None;
            }
            gates.push(gate);
            rest = behind.get(1..)?;
        }
        let words = ["off", "return", "sleep", "panic", "break", "print"];
        let word = words.into_iter().find(|word| rest.starts_with(word))?;
        rest = rest.get(word.len()..)?;
        let (value, length) = Value::read(rest)?;
        rest = rest.get(length..)?;
        let action = match (word, value) {
            ("off", _) => Action::Off,
            ("return", value) => Action::Return(value),
            ("sleep", Value::Number(ms)) => Action::Sleep(Duration::from_millis(u64::try_from(ms).ok()?)),
            ("sleep", Value::Text(text)) => Action::Sleep(flags::parse_duration(&text).ok()?),
            ("panic", value) => Action::Panic(value),
            ("break", _) => Action::Break,
            ("print", _) => Action::Print,
            _ => return None,
        };
        Some((Term { gates, action }, rest))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn actions(text: &str, times: usize) -> Vec<Option<Action>> {
        let mut terms = Terms::read(text).expect(text);
        (0..times).map(|_| terms.next(|| 0.5)).collect()
    }

    #[test]
    fn the_first_term_that_is_allowed_acts() {
        let text = |text: &str| Some(Action::Return(Value::Text(text.into())));
        assert_eq!(
            actions(r#"2*return("a")->1*return("b")"#, 4),
            [text("a"), text("a"), text("b"), None],
            "counts are used up"
        );
        assert_eq!(actions("50.1%panic", 1), [Some(Action::Panic(Value::Nothing))]);
        assert_eq!(actions("49%panic->print", 1), [Some(Action::Print)]);
        assert_eq!(actions("1*off->return(7)", 2), [Some(Action::Off), Some(Action::Return(Value::Number(7)))]);
        assert_eq!(actions("60%2*break", 3), [Some(Action::Break), Some(Action::Break), None]);
    }

    #[test]
    fn sleeps_are_milliseconds_or_durations() {
        assert_eq!(actions("sleep(100)", 1), [Some(Action::Sleep(Duration::from_millis(100)))]);
        assert_eq!(actions(r#"sleep("1m0.5s")"#, 1), [Some(Action::Sleep(Duration::from_millis(60_500)))]);
    }

    #[test]
    fn what_does_not_fit_is_refused_whole() {
        for wrong in [
            "",
            "x",
            "panic->",
            "panic-",
            "->panic",
            "panic panic",
            "2panic",
            "2*",
            "%panic",
            "1.2.3%panic",
            "1.5*panic",
            "sleep",
            "sleep()",
            "sleep(-1)",
            "sleep(10s)",
            r#"sleep("10")"#,
            "return(x)",
            "panic(1",
            "99999999999999999999*off",
        ] {
            assert_eq!(Terms::read(wrong), None, "{wrong}");
        }
        assert!(Terms::read(&vec!["off"; TERMS_MAX].join("->")).is_some());
        assert!(Terms::read(&vec!["off"; TERMS_MAX + 1].join("->")).is_none());
        assert!(Terms::read(&format!("{}off", "1*".repeat(GATES_MAX))).is_some());
        assert!(Terms::read(&format!("{}off", "1*".repeat(GATES_MAX + 1))).is_none());
        assert!(Terms::read(&format!("return(\"{}\")", "a".repeat(TEXT_BYTES_MAX))).is_none());
    }
}

//! How a sub-command ends that does not succeed.

use crate::BenchError;

/// Why nothing was measured, and what the process ends with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Failure {
    pub(crate) code: i32,
    /// Told on the standard error output, if there is anything to tell.
    pub(crate) text: String,
    /// The usage of the sub-command is told too.
    pub(crate) shows_usage: bool,
}

/// What sub-commands return.
pub(crate) type Outcome<T = ()> = Result<T, Failure>;

/// What etcd's tool ends with when the command line cannot be read.
const UNREADABLE: i32 = 255;

impl Failure {
    /// What is asked for cannot be done.
    pub(crate) fn new(text: impl Into<String>) -> Failure {
        Failure { code: 1, text: text.into(), shows_usage: false }
    }

    /// Arguments that make no sense: the usage says it.
    pub(crate) fn usage() -> Failure {
        Failure { code: 1, text: String::new(), shows_usage: true }
    }

    /// A command line that cannot be read.
    pub(crate) fn unreadable(text: impl Into<String>) -> Failure {
        Failure { code: UNREADABLE, text: text.into(), shows_usage: true }
    }
}

impl From<BenchError> for Failure {
    fn from(error: BenchError) -> Failure {
        Failure::new(error.to_string())
    }
}

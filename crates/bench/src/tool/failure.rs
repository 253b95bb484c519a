//! How a sub-command ends that does not succeed.

use crate::BenchError;

/// Why nothing was measured, and the exit code of the process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Failure {
    pub(crate) code: i32,
    /// Printed on the standard error output, unless it is empty.
    pub(crate) text: String,
    /// Whether the usage of the sub-command is printed too.
    pub(crate) shows_usage: bool,
}

/// What sub-commands return.
pub(crate) type Outcome<T = ()> = Result<T, Failure>;

/// Exit code of etcd's tool for a command line that cannot be read.
const UNREADABLE: i32 = 255;

impl Failure {
    /// A request that cannot be carried out.
    pub(crate) fn new(text: impl Into<String>) -> Failure {
        Failure { code: 1, text: text.into(), shows_usage: false }
    }

    /// Invalid arguments: the usage is the explanation.
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

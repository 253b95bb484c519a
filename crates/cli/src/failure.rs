//! Failures of commands.

/// Exit codes, etcd's.
pub(crate) mod code {
    /// Anything that has no code of its own.
    pub(crate) const ERROR: i32 = 1;
    /// The cluster cannot be reached, or ended a stream.
    pub(crate) const BAD_CONNECTION: i32 = 2;
    /// Input that cannot be understood.
    pub(crate) const INVALID_INPUT: i32 = 3;
    /// What is asked for is not there.
    pub(crate) const BAD_FEATURE: i32 = 4;
    /// Stopped by a signal.
    pub(crate) const INTERRUPTED: i32 = 5;
    /// A file, or the terminal, failed.
    pub(crate) const IO: i32 = 6;
    /// Members that should have the same have not.
    pub(crate) const DIFFERENCE: i32 = 7;
    /// Something that was waited for did not come in time.
    pub(crate) const LATE: i32 = 8;
    /// Wrong arguments.
    pub(crate) const BAD_ARGS: i32 = 128;
}

/// Why a command failed, and what the process ends with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Failure {
    pub(crate) code: i32,
    /// Printed after `Error: `; empty: everything is said.
    pub(crate) text: String,
    /// Print the usage of the command after it.
    pub(crate) shows_usage: bool,
}

/// What commands return.
pub(crate) type Outcome<T = ()> = Result<T, Failure>;

impl Failure {
    pub(crate) fn new(code: i32, text: impl Into<String>) -> Failure {
        Failure { code, text: text.into(), shows_usage: false }
    }

    /// Wrong arguments.
    pub(crate) fn args(text: impl Into<String>) -> Failure {
        Failure::new(code::BAD_ARGS, text)
    }

    /// A command line that cannot be read.
    pub(crate) fn usage(text: impl Into<String>) -> Failure {
        Failure { code: code::ERROR, text: text.into(), shows_usage: true }
    }
}

impl From<flags::Error> for Failure {
    fn from(error: flags::Error) -> Failure {
        Failure::usage(error.0)
    }
}

impl From<client::Error> for Failure {
    fn from(error: client::Error) -> Failure {
        let text = match &error {
            // What was tried last is said on a line of its own.
            client::Error::Status(status) if status.code == api::Code::DeadlineExceeded => {
                "context deadline exceeded".into()
            }
            client::Error::Compacted { .. } => api::Error::Compacted.message().into(),
            client::Error::LeaseGone(_) => api::Error::LeaseNotFound.message().into(),
            client::Error::Status(status) => told(status),
            other => other.to_string(),
        };
        Failure::new(code::ERROR, text)
    }
}

/// An error as etcd's tools print it: those of etcd's own catalogue by their text, others with their code.
fn told(status: &rpc::Status) -> String {
    if status.message.starts_with("etcdserver: ") {
        return status.message.to_string();
    }
    format!("rpc error: code = {} desc = {}", status.code.name(), status.message)
}

impl From<rpc::Status> for Failure {
    fn from(status: rpc::Status) -> Failure {
        client::Error::from(status).into()
    }
}

impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Failure {
        Failure::new(code::IO, error.to_string())
    }
}

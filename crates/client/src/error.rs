//! Why a call failed.

use api::Code;
use rpc::Status;

/// What a call of the client ends with.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The cluster, or the way to it, refused. The text of a member is etcd's.
    #[error("{}", .0.message)]
    Status(Status),
    /// An answer that is no answer to this call.
    #[error("the answer to `{method}` cannot be read: {why}")]
    Unreadable {
        /// Path of the method.
        method: String,
        /// What is wrong with it.
        why: String,
    },
    /// A watch cannot continue: the history before this revision is compacted.
    #[error("the history before revision {revision} has been compacted")]
    Compacted {
        /// The oldest revision that can still be watched.
        revision: i64,
    },
    /// The member ended the watch for this reason.
    #[error("the watch was cancelled: {0}")]
    WatchCancelled(String),
    /// The lease has expired, or was revoked.
    #[error("lease {0:016x} has expired or was revoked")]
    LeaseGone(i64),
    /// Another candidate is leader by now.
    #[error("no longer the leader of `{0}`")]
    NotLeader(String),
    /// This election has no leader.
    #[error("`{0}` has no leader")]
    NoLeader(String),
}

impl Error {
    /// The gRPC code, for errors that came with one.
    pub fn code(&self) -> Option<Code> {
        match self {
            Error::Status(status) => Some(status.code),
            _ => None,
        }
    }

    /// Whether this is that error of the API's catalogue: decided by the text, as all clients do.
    pub fn is(&self, error: api::Error) -> bool {
        matches!(self, Error::Status(status) if status.message == error.message())
    }
}

impl From<Status> for Error {
    fn from(status: Status) -> Error {
        Error::Status(status)
    }
}

//! Where entries come from: the members of a cluster.

use crate::piece::At;
use api::raftpb::Entry;
use std::future::Future;
use std::path::PathBuf;

/// What a member answers when it is asked for the entries behind one.
#[derive(Clone, Debug, PartialEq)]
pub struct Answer {
    /// The cluster of the member.
    pub cluster_id: u64,
    /// What it has behind the entry.
    pub found: Found,
    /// Index of the last entry that it has applied.
    pub applied: u64,
    /// Its clock when it had applied that, in milliseconds since 1970.
    pub time_ms: u64,
    /// Whatever any member had applied by then, this one has applied; 0 if it cannot tell, for it knows no leader.
    pub complete_ms: u64,
}

/// What a member has behind an entry.
#[derive(Clone, Debug, PartialEq)]
pub enum Found {
    /// The entries that follow this one, if there are any yet.
    Next(At, Vec<Entry>),
    /// It is not there yet itself.
    Behind,
    /// It does not have them any more.
    Trimmed,
    /// It has another entry there, of this term.
    Differs(u64),
}

/// Why a member could not be asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceError {
    /// What it says.
    pub text: String,
    /// Asking again is of no use, wherever: the user may not, or the members do not know the method.
    pub is_final: bool,
}

/// The members that can be asked. A clone asks the same.
pub trait Source: Clone + Send + Sync + 'static {
    /// How many there are.
    fn members(&self) -> usize;

    /// What to call one of them.
    fn name(&self, member: usize) -> String;

    /// Asks one for the entries behind `after`, or where it is now. It keeps those behind `kept` for a while.
    fn entries(
        &self,
        member: usize,
        after: Option<At>,
        kept: u64,
    ) -> impl Future<Output = Result<Answer, SourceError>> + Send;

    /// Copies the database of one into a new file, which ends with its checksum.
    fn snapshot(&self, member: usize, file: PathBuf) -> impl Future<Output = Result<(), SourceError>> + Send;
}

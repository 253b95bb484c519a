//! The memory that a read may take, and whether its client still waits.

use api::Error;

/// Bounds of one read, looked at between its slices.
#[derive(Clone, Copy)]
pub struct Allowance<'a> {
    /// Whether the answer is still wanted.
    pub wanted: &'a dyn Fn() -> bool,
    /// Memory for the places of pairs, and for pairs that are no stored bytes.
    pub bytes_max: usize,
}

impl Allowance<'static> {
    /// For a read without a bound, which is never given up.
    pub const UNBOUNDED: Allowance<'static> = Allowance { wanted: &|| true, bytes_max: usize::MAX };
}

/// Why a read has no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unread {
    /// The request is refused.
    Refused(Error),
    /// The client no longer waits for the answer.
    Unwanted,
    /// It takes more memory than it was allowed.
    TooMuch,
}

impl From<Error> for Unread {
    fn from(error: Error) -> Unread {
        Unread::Refused(error)
    }
}

impl Unread {
    /// The refusal, of a read that was [`Allowance::UNBOUNDED`].
    pub(crate) fn of_unbounded(self) -> Error {
        match self {
            Unread::Refused(error) => error,
            Unread::Unwanted | Unread::TooMuch => Error::TooManyRequests,
        }
    }
}

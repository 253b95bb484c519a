//! Why an archive cannot be written or read.

use object_store::Error as StoreError;

/// What goes wrong with an archive.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The store does not take the key that it was given.
    #[error("{place} does not let this key in ({what}): {why}")]
    Denied {
        /// The archive.
        place: String,
        /// What was attempted.
        what: String,
        /// What the store says.
        why: String,
    },
    /// There is no room.
    #[error("{place} has no room left ({what}): {why}")]
    Full {
        /// The archive.
        place: String,
        /// What was attempted.
        what: String,
        /// What the store says.
        why: String,
    },
    /// The store failed, or cannot be reached.
    #[error("{place} failed ({what}): {why}")]
    Store {
        /// The archive.
        place: String,
        /// What was attempted.
        what: String,
        /// What the store says.
        why: String,
    },
    /// Bytes of an object that make no sense.
    #[error("`{name}` in {place} is damaged: {what}")]
    Damaged {
        /// The archive.
        place: String,
        /// The object.
        name: String,
        /// What is wrong.
        what: String,
    },
    /// Anything that is wrong with what was asked for.
    #[error("{0}")]
    Refused(String),
    /// A member failed.
    #[error("{0}")]
    Member(String),
    /// A file on this machine.
    #[error(transparent)]
    Import(#[from] etcd_import::Error),
    /// The same.
    #[error("{what} `{path}`: {why}")]
    File {
        /// The operation.
        what: &'static str,
        /// The file.
        path: String,
        /// Why.
        why: std::io::Error,
    },
}

impl Error {
    /// Whether it may go well later: nothing that was read or asked for is wrong.
    pub fn is_passing(&self) -> bool {
        matches!(self, Error::Full { .. } | Error::Store { .. } | Error::Member(_))
    }

    pub(crate) fn file<'a>(
        what: &'static str,
        path: &'a std::path::Path,
    ) -> impl FnOnce(std::io::Error) -> Error + use<'a> {
        move |why| Error::File { what, path: path.display().to_string(), why }
    }

    /// What the store of `place` says about `what`.
    pub(crate) fn of_store(place: &str, what: &str, error: &StoreError) -> Error {
        let (place, what, why) = (place.to_string(), what.to_string(), told(error));
        // Some stores say so as if the key were wrong.
        let is_full =
            ["no space left", "os error 28", "os error 122", "StorageFull", "QuotaExceeded", "InsufficientStorage"];
        match error {
            _ if is_full.iter().any(|text| why.contains(text)) => Error::Full { place, what, why },
            StoreError::PermissionDenied { .. } | StoreError::Unauthenticated { .. } => {
                Error::Denied { place, what, why }
            }
            // What this program's own machine forbids.
            _ if why.contains("os error 13") || why.contains("os error 1)") => Error::Denied { place, what, why },
            _ => Error::Store { place, what, why },
        }
    }
}

/// An error with its causes, each said once, on one line of a length that can be read.
fn told(error: &StoreError) -> String {
    const CHARS_MAX: usize = 600;
    let mut text = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(next) = cause {
        let more = next.to_string();
        if !text.contains(&more) {
            text = format!("{text}: {more}");
        }
        cause = next.source();
    }
    let line: String = text.split_whitespace().collect::<Vec<_>>().join(" ");
    line.chars().take(CHARS_MAX).collect()
}

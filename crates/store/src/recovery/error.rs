//! Why a store cannot be opened.

use crate::log::{Damage, Error};
use std::io;
use std::path::{Path, PathBuf};

/// A store that cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// A file does not hold what was written to it. The member must not serve; its peers have the data.
    #[error("`{}` is damaged at offset {offset}: {what}", file.display())]
    Corrupt {
        /// The file.
        file: PathBuf,
        /// Where in the file the damaged part begins.
        offset: u64,
        /// What is wrong with it.
        what: String,
    },
    /// The disk refused.
    #[error("cannot {action} `{}`: {source}", path.display())]
    Io {
        /// What was tried, as a verb.
        action: &'static str,
        /// On which file.
        path: PathBuf,
        /// What the disk said.
        source: io::Error,
    },
    /// The new store's first checkpoint could not be written.
    #[error(transparent)]
    Log(#[from] Error),
}

impl OpenError {
    /// For `map_err`: names the action and the file.
    pub(crate) fn io(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> OpenError {
        move |source| OpenError::Io { action, path: path.to_path_buf(), source }
    }

    /// For `map_err`: names the file.
    pub(crate) fn damage(file: &Path) -> impl FnOnce(Damage) -> OpenError {
        move |damage| OpenError::Corrupt { file: file.to_path_buf(), offset: damage.offset, what: damage.what.into() }
    }
}

//! The report of a torn batch.

use std::fmt;
use std::path::PathBuf;

/// A batch that the power cut tore, as [`crate::Wal::open`] found and removed it. It was never acknowledged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cut {
    /// The segment.
    pub file: PathBuf,
    /// Where the batch began; the log continues from here.
    pub offset: u64,
    /// Bytes from there to the last one that was not zero.
    pub bytes: u64,
}

impl fmt::Display for Cut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Cut { file, offset, bytes } = self;
        write!(
            f,
            "cut {bytes} bytes off `{}` at offset {offset}: the last batch was not written completely",
            file.display()
        )
    }
}

//! Files that are there whole or not at all.

use std::fs::File;
use std::io::Write;
use std::path::Path;

use super::Run;

/// Why a file could not be written.
#[derive(Debug, thiserror::Error)]
#[error("cannot write `{0}`: {1}")]
pub(crate) struct WriteError(String, std::io::Error);

/// Puts `run` in the place of what `path` was.
pub(crate) fn write(path: &Path, run: &Run) -> Result<(), WriteError> {
    let failed = |error: serde_json::Error| WriteError(path.display().to_string(), error.into());
    let mut text = serde_json::to_vec_pretty(run).map_err(failed)?;
    text.push(b'\n');
    replace(path, &text)
}

/// Puts `content` in the place of what `path` was. If it fails, or the power does, the old content is still there.
pub(crate) fn replace(path: &Path, content: &[u8]) -> Result<(), WriteError> {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".tmp");
    let temporary = path.with_file_name(name);
    let put = || {
        let mut file = File::create(&temporary)?;
        file.write_all(content)?;
        file.sync_all()?;
        std::fs::rename(&temporary, path)?;
        let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty());
        File::open(directory.unwrap_or(Path::new(".")))?.sync_all()
    };
    put().map_err(|error| {
        // What is left of it is of no use; the error that counts is the first.
        let _ = std::fs::remove_file(&temporary);
        WriteError(path.display().to_string(), error)
    })
}

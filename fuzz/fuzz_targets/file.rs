//! A file in memory, for what reads files.
#![allow(dead_code, reason = "targets read files, or folders")]

use std::path::{Path, PathBuf};

/// A file in a folder of its own, which goes with it.
pub struct File {
    dir: PathBuf,
    path: PathBuf,
}

impl File {
    pub fn new(name: &str, bytes: &[u8]) -> File {
        let dir = PathBuf::from(format!("/dev/shm/cairn-fuzz-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap_or_else(|error| panic!("{}: {error}", dir.display()));
        let path = dir.join(name);
        std::fs::write(&path, bytes).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        File { dir, path }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    pub fn dir(&self) -> &Path {
        &self.dir
    }
}

impl Drop for File {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
        // Others may still be in it.
        let _ = std::fs::remove_dir(&self.dir);
    }
}

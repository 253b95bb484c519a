//! Files of Unix sockets: created, replacing leftovers of an earlier run, and removed at the end.

use std::fs::Metadata;
use std::io::{self, ErrorKind};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

/// The file of a socket that this member listens at.
#[derive(Debug)]
pub(crate) struct SocketFile {
    path: PathBuf,
    /// Device and inode: another process may have put its own in the place of it.
    identity: Option<(u64, u64)>,
}

/// Listens at a path. A socket that is there already is replaced, as etcd does; any other file is not, for a mistyped URL must not
/// cost one.
pub(crate) fn listen(path: &Path) -> io::Result<(UnixListener, SocketFile)> {
    match std::fs::symlink_metadata(path) {
        Ok(found) if !found.file_type().is_socket() => {
            let text = format!("`{}` is there already and is not a socket", path.display());
            return Err(io::Error::new(ErrorKind::AlreadyExists, text));
        }
        Ok(_) => match std::fs::remove_file(path) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
            _ => {}
        },
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
        Err(_) => {}
    }
    let listener = UnixListener::bind(path)?;
    let identity = std::fs::symlink_metadata(path).ok().map(|made| identity(&made));
    Ok((listener, SocketFile { path: path.into(), identity }))
}

fn identity(file: &Metadata) -> (u64, u64) {
    (file.dev(), file.ino())
}

impl SocketFile {
    /// Removes it, unless something else has taken its place.
    pub(crate) fn remove(self) {
        let found = std::fs::symlink_metadata(&self.path).ok();
        if found.is_some_and(|found| found.file_type().is_socket() && self.identity == Some(identity(&found))) {
            // The next listener there replaces it anyway.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn directory(name: &str) -> PathBuf {
        let path = std::env::temp_dir().join(format!("cairn-socket-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).expect("made");
        path
    }

    #[test]
    fn a_socket_that_was_left_is_replaced() {
        let directory = directory("left");
        let path = directory.join("socket");
        drop(UnixListener::bind(&path).expect("bound"));
        assert!(path.exists(), "it is left");
        let (_first, older) = listen(&path).expect("bound");
        let (_second, newer) = listen(&path).expect("bound");
        older.remove();
        assert!(path.exists(), "it is the newer one's");
        newer.remove();
        assert!(!path.exists());
        std::fs::remove_dir_all(directory).expect("removed");
    }

    #[test]
    fn no_other_file_is() {
        let directory = directory("other");
        let (file, folder, link) = (directory.join("file"), directory.join("folder"), directory.join("link"));
        std::fs::write(&file, "precious").expect("written");
        std::fs::create_dir(&folder).expect("made");
        std::os::unix::fs::symlink(&file, &link).expect("linked");
        for path in [&file, &folder, &link] {
            let error = listen(path).expect_err("it is there");
            assert!(error.to_string().contains(&format!("`{}`", path.display())), "{error}");
            assert!(path.symlink_metadata().is_ok(), "it was removed");
        }
        let path = directory.join("socket");
        let (_listener, socket) = listen(&path).expect("bound");
        std::fs::remove_file(&path).expect("removed");
        std::fs::write(&path, "precious").expect("written");
        socket.remove();
        assert_eq!(std::fs::read(&path).expect("read"), b"precious");
        std::fs::remove_dir_all(directory).expect("removed");
    }
}

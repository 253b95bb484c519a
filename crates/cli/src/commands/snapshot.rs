//! `snapshot save`: a whole file or none.

use crate::command::{Command, Context, command, group};
use crate::failure::{Failure, Outcome, code};
use crate::globals;
use crate::print::{self, go};
use crate::progress::Bar;
use crate::raw;
use crate::signals::Signals;
use api::Message;
use api::etcdserverpb::SnapshotResponse;
use sha2::{Digest, Sha256};
use std::ffi::OsString;
use std::fs::{File, Metadata};
use std::io::{ErrorKind, Write};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

pub(crate) const COMMAND: Command = group(
    "snapshot",
    "Copies of a member's database",
    &[command("save", "<file>", "Copies the database of a member to a file", save)],
);

/// The checksum after the database.
const CHECKSUM_BYTES: usize = 32;

fn save(context: &Context) -> Outcome {
    let [file] = context.args() else {
        return Err(Failure::args("snapshot save expects one argument <filename>"));
    };
    context.printer()?;
    let endpoints = globals::endpoints(&context.parsed)?;
    if endpoints.len() != 1 {
        let named: Vec<&str> = endpoints.iter().map(client::Endpoint::as_str).collect();
        let text = format!("snapshot must be requested to one selected node, not multiple [{}]", named.join(" "));
        return Err(Failure::new(code::INTERRUPTED, text));
    }
    let client = context.patient_client(endpoints)?;
    fetch(context, &client, file).map_err(|failure| Failure { code: code::INTERRUPTED, ..failure })
}

fn fetch(context: &Context, client: &client::Client, file: &str) -> Outcome {
    let target = PathBuf::from(OsString::from_vec(raw::bytes(file).to_vec()));
    // A file that is not whole is removed before a signal ends the command.
    let mut signals = {
        let _guard = context.enter();
        Signals::new()?
    };
    let mut part = Part::create(&target)?;
    let mut bar = Bar::new();
    // It takes as long as it takes, unless that was said.
    let patience = context.parsed.is_given("command-timeout").then(|| context.patience());
    let copied = within(patience, async {
        let mut snapshot = client.snapshot().await?;
        let (mut version, mut size) = (String::new(), 0_u64);
        let mut tail = Tail::default();
        while let Some(piece) = snapshot.next().await? {
            let piece = SnapshotResponse::decode(piece)
                .map_err(|error| Failure::new(code::ERROR, format!("the snapshot cannot be read: {error}")))?;
            if !piece.version.is_empty() {
                version = piece.version;
            }
            size += piece.blob.len() as u64;
            tail.push(&piece.blob);
            part.write(&piece.blob)?;
            let total = size.saturating_add(piece.remaining_bytes);
            bar.draw(size, total, &go::bytes(total));
        }
        tail.check(size).map(|()| (version, size))
    });
    let (version, size) = context.wait(async {
        tokio::select! {
            outcome = copied => outcome,
            () = signals.any() => Err(Failure::new(code::INTERRUPTED, "snapshot interrupted")),
        }
    })?;
    part.finish()?;
    bar.end(&format!("{} saved", go::bytes(size)));
    print::out(&[b"Snapshot saved at ", &raw::bytes(file)[..], b"\n"].concat())?;
    if !version.is_empty() {
        print::out(format!("Server version {version}\n").as_bytes())?;
    }
    Ok(())
}

/// Gives `work` so long.
async fn within<T>(patience: Option<Duration>, work: impl Future<Output = Outcome<T>>) -> Outcome<T> {
    match patience {
        None => work.await,
        Some(patience) => tokio::time::timeout(patience, work)
            .await
            .unwrap_or_else(|_| Err(Failure::new(code::ERROR, "context deadline exceeded"))),
    }
}

/// The file while it is not whole: removed again unless it is finished.
pub(crate) struct Part {
    file: File,
    path: PathBuf,
    target: PathBuf,
    is_finished: bool,
}

impl Part {
    pub(crate) fn create(target: &Path) -> Outcome<Part> {
        let mut path = target.as_os_str().to_owned();
        path.push(".part");
        let path = PathBuf::from(path);
        let named = |error: std::io::Error| {
            Failure::new(
                code::INTERRUPTED,
                format!("could not open {} (open {}: {})", path.display(), path.display(), print::go::io(&error)),
            )
        };
        // Only the owner may read it: it may hold secrets. What an earlier attempt left, or somebody else put there, may be open to others,
        // or lead to another file.
        match std::fs::remove_file(&path) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(named(error)),
            _ => {}
        }
        let file = File::options().write(true).create_new(true).mode(0o600).open(&path).map_err(named)?;
        Ok(Part { file, path, target: target.into(), is_finished: false })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Whether its name still leads to it: another command may save to the same file.
    fn has_its_name(&self) -> bool {
        let same = |one: &Metadata, other: &Metadata| (one.dev(), one.ino()) == (other.dev(), other.ino());
        let named = std::fs::symlink_metadata(&self.path);
        named.is_ok_and(|named| self.file.metadata().is_ok_and(|own| same(&named, &own)))
    }

    pub(crate) fn write(&mut self, bytes: &[u8]) -> Outcome {
        self.file.write_all(bytes).map_err(|error| {
            let why = format!("could not write snapshot: write {}: {}", self.path.display(), go::io(&error));
            Failure::new(code::INTERRUPTED, why)
        })
    }

    pub(crate) fn finish(&mut self) -> Outcome {
        let (path, target) = (self.path.display(), self.target.display());
        let failed = |what: String, why: String| Failure::new(code::INTERRUPTED, format!("could not {what}: {why})"));
        self.file.sync_all().map_err(|error| failed(format!("fsync snapshot (fsync {path}"), go::io(&error)))?;
        if !self.has_its_name() {
            return Err(failed(format!("rename {path} to {target} (rename {path} {target}"), "it was replaced".into()));
        }
        std::fs::rename(&self.path, &self.target).map_err(|error| {
            // Go looks for directories before it renames.
            let why = if self.target.is_dir() { "file exists".into() } else { go::io(&error) };
            failed(format!("rename {path} to {target} (rename {path} {target}"), why)
        })?;
        self.is_finished = true;
        // The name is as durable as the bytes.
        let parent = self.target.parent().filter(|parent| !parent.as_os_str().is_empty());
        File::open(parent.unwrap_or(Path::new(".")))?.sync_all()?;
        Ok(())
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        if !self.is_finished && self.has_its_name() {
            // The file is useless; if it cannot be removed, its name says that it is not whole.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// The checksum of all but the last bytes, and these.
#[derive(Default)]
struct Tail {
    hash: Sha256,
    last: Vec<u8>,
}

impl Tail {
    fn push(&mut self, bytes: &[u8]) {
        self.last.extend_from_slice(bytes);
        let whole = self.last.len().saturating_sub(CHECKSUM_BYTES);
        self.hash.update(&self.last[..whole]);
        self.last.drain(..whole);
    }

    fn check(self, size: u64) -> Outcome {
        let found = self.hash.finalize();
        if size % 512 == CHECKSUM_BYTES as u64 && found[..] == self.last[..] {
            return Ok(());
        }
        Err(Failure::new(code::ERROR, format!("sha256 checksum not found [bytes: {size}]")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    /// A directory of this test.
    fn dir(name: &str) -> PathBuf {
        let dir = std::env::temp_dir().join(format!("cairn-part-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&dir);
        std::fs::create_dir_all(&dir).expect("room");
        dir
    }

    #[test]
    fn a_file_that_was_put_there_is_not_taken_over() {
        let dir = dir("taken");
        let (target, other) = (dir.join("file"), dir.join("other"));
        std::fs::write(&other, "other").expect("room");
        std::os::unix::fs::symlink(&other, dir.join("file.part")).expect("room");
        for content in ["first", "second"] {
            let mut part = Part::create(&target).expect("room");
            part.write(content.as_bytes()).expect("room");
            part.finish().expect("a whole file");
            assert_eq!(std::fs::read_to_string(&target).ok().as_deref(), Some(content));
            let found = std::fs::symlink_metadata(&target).expect("it is there");
            assert!(found.is_file() && found.permissions().mode() & 0o777 == 0o600, "{found:?}");
            std::fs::write(dir.join("file.part"), "left").expect("room");
            let open = std::fs::Permissions::from_mode(0o666);
            std::fs::set_permissions(dir.join("file.part"), open).expect("ours");
        }
        assert_eq!(std::fs::read_to_string(&other).ok().as_deref(), Some("other"));
        std::fs::remove_dir_all(&dir).expect("ours");
    }

    #[test]
    fn what_another_writes_gets_no_whole_name() {
        let dir = dir("two");
        let target = dir.join("file");
        let (mut one, mut other) = (Part::create(&target).expect("room"), Part::create(&target).expect("room"));
        one.write(b"whole").expect("room");
        assert!(one.finish().is_err_and(|failure| failure.text.ends_with("it was replaced)")));
        drop(one);
        assert!(!target.exists());
        other.write(b"whole").expect("room");
        other.finish().expect("its file is still there");
        assert_eq!(std::fs::read(&target).ok().as_deref(), Some(&b"whole"[..]));
        std::fs::remove_dir_all(&dir).expect("ours");
    }
}

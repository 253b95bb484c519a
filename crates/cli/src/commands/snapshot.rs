//! `snapshot save`: a whole file or none.

use crate::command::{Command, Context, command, group};
use crate::failure::{Failure, Outcome, code};
use crate::flags::text;
use crate::globals;
use crate::print::{self, go};
use crate::progress::Bar;
use crate::raw;
use crate::signals::Signals;
use api::Message;
use api::etcdserverpb::{SnapshotResponse, SnapshotSince};
use disk::{OsDisk, WriteBack};
use etcd_import::Predecessor;
use sha2::{Digest, Sha256};
use std::ffi::OsString;
use std::fs::{File, Metadata};
use std::io::{ErrorKind, Write};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use store::increment::Since;

pub(crate) const COMMAND: Command = group(
    "snapshot",
    "Copies of a member's database",
    &[command("save", "<file>", "Copies the database of a member to a file", save)
        .with(&[text("since", "", "a snapshot or an increment saved before: save only what came after it, as an increment")])
        .explained(
            "With --since the file is an increment. `cairn util snapshot restore BASE INCREMENT...` makes a data directory of the whole snapshot and the\n\
             increments that follow it, in their order; `cairn util snapshot merge` makes a whole snapshot of them. The member must be one of Cairn's\n\
             that knows increments; of any other one nothing is saved.\n",
        )],
);

/// What is said of a member of etcd, or of an earlier version.
const NO_INCREMENTS: &str = "the member does not know increments of snapshots, it is etcd's or of an earlier version of Cairn: nothing was \
                             saved; without --since all is saved";

/// What is said of a member that does not do what it was asked for.
const NOT_WHOLE: &str = "the member sends an increment in place of the whole snapshot that it was asked for";

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
    // Before the member is asked for anything.
    let since = match context.parsed.text("since") {
        "" => None,
        since => Some(predecessor(since).map_err(|failure| Failure { code: code::INTERRUPTED, ..failure })?),
    };
    let client = context.patient_client(endpoints)?;
    fetch(context, &client, file, since).map_err(|failure| Failure { code: code::INTERRUPTED, ..failure })
}

fn fetch(context: &Context, client: &client::Client, file: &str, since: Option<Predecessor>) -> Outcome {
    let target = PathBuf::from(OsString::from_vec(raw::bytes(file).to_vec()));
    // A file that is not whole is removed before a signal ends the command.
    let mut signals = {
        let _guard = context.enter();
        Signals::new()?
    };
    let mut part = match &since {
        None => Part::create(&target)?,
        Some(since) => Part::create_new(&target, &[since.path()])?,
    };
    let mut bar = Bar::new();
    // It takes as long as it takes, unless that was said.
    let patience = context.parsed.is_given("command-timeout").then(|| context.patience());
    let copied = within(patience, async {
        let mut snapshot = client.snapshot_since(since.as_ref().map(wanted)).await?;
        let (mut version, mut size) = (String::new(), 0_u64);
        let mut tail = Tail::default();
        while let Some(piece) = snapshot.next().await? {
            let piece = SnapshotResponse::decode(piece)
                .map_err(|error| Failure::new(code::ERROR, format!("the snapshot cannot be read: {error}")))?;
            match (&since, piece.increment) {
                // A whole snapshot is on its way, of a size that was not asked for.
                (Some(_), false) => return Err(Failure::new(code::ERROR, NO_INCREMENTS)),
                (None, true) => return Err(Failure::new(code::ERROR, NOT_WHOLE)),
                _ => {}
            }
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
    if let Some(since) = since {
        let path = part.path().to_owned();
        signals.unless(context, "snapshot interrupted", move || Ok(since.check(&path)?))?;
    }
    part.finish()?;
    bar.end(&format!("{} saved", go::bytes(size)));
    print::out(&[b"Snapshot saved at ", &raw::bytes(file)[..], b"\n"].concat())?;
    if !version.is_empty() {
        print::out(format!("Server version {version}\n").as_bytes())?;
    }
    Ok(())
}

/// The file that an increment is to follow.
fn predecessor(since: &str) -> Outcome<Predecessor> {
    Predecessor::open(&raw::path(since))
        .map_err(|error| Failure::new(code::ERROR, format!("cannot save what came after {since}: {error}")))
}

/// What a member is asked for.
fn wanted(since: &Predecessor) -> SnapshotSince {
    let Since { revision, compact_revision, start } = since.since();
    SnapshotSince { revision, compact_revision, start }
}

/// Copies a member's database into a new file, which only the owner may read.
pub(crate) async fn copy(client: &client::Client, target: &Path) -> Outcome {
    let mut part = Part::create(target)?;
    let mut snapshot = client.snapshot().await?;
    let (mut size, mut tail) = (0_u64, Tail::default());
    while let Some(piece) = snapshot.next().await? {
        let piece = SnapshotResponse::decode(piece)
            .map_err(|error| Failure::new(code::ERROR, format!("the snapshot cannot be read: {error}")))?;
        if piece.increment {
            return Err(Failure::new(code::ERROR, NOT_WHOLE));
        }
        size = size.saturating_add(piece.blob.len() as u64);
        tail.push(&piece.blob);
        part.write(&piece.blob)?;
    }
    tail.check(size)?;
    part.finish()
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
    /// The same file. It is sent to the disk while it is written: the syncs of a member on the same disk would wait for gigabytes.
    sent: Arc<dyn disk::File>,
    write_back: WriteBack,
    len: u64,
    path: PathBuf,
    target: PathBuf,
    /// The target must not take the place of a file.
    is_new: bool,
    is_finished: bool,
}

impl Part {
    /// The same for a file that must be new, made of those of `inputs`: what it replaced could be a part of the chain that it belongs to, and
    /// with it all that follows would be lost.
    pub(crate) fn create_new(target: &Path, inputs: &[&Path]) -> Outcome<Part> {
        refuse_existing(target)?;
        let path = part_path(target);
        if let Some(input) = inputs.iter().find(|input| leads_to_one(&path, input)) {
            let text =
                format!("could not save to {}: {} would be removed, name another", target.display(), input.display());
            return Err(Failure::new(code::INTERRUPTED, text));
        }
        let mut part = Part::create(target)?;
        part.is_new = true;
        Ok(part)
    }

    pub(crate) fn create(target: &Path) -> Outcome<Part> {
        let path = part_path(target);
        let named = |error: std::io::Error| {
            Failure::new(
                code::INTERRUPTED,
                format!("could not open {} (open {}: {})", path.display(), path.display(), print::go::io(&error)),
            )
        };
        // At the end this file takes the target's place: that of a device, as `/dev/null`, would be gone for all.
        if std::fs::metadata(target).is_ok_and(|there| !there.is_file()) {
            return Err(Failure::new(
                code::INTERRUPTED,
                format!("could not save to {}: it is no regular file", target.display()),
            ));
        }
        // Only the owner may read it: it may hold secrets. What an earlier attempt left, or somebody else put there, may be open to others,
        // or lead to another file.
        match std::fs::remove_file(&path) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(named(error)),
            _ => {}
        }
        let file = File::options().write(true).create_new(true).mode(0o600).open(&path).map_err(named)?;
        let sent = OsDisk::default().opened(file.try_clone().map_err(named)?, &path);
        Ok(Part {
            file,
            sent,
            write_back: WriteBack::default(),
            len: 0,
            path,
            target: target.into(),
            is_new: false,
            is_finished: false,
        })
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
        let written = self.file.write_all(bytes).and_then(|()| {
            self.len += bytes.len() as u64;
            self.write_back.advance(&*self.sent, self.len)
        });
        written.map_err(|error| {
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
        if self.is_new {
            refuse_existing(&self.target)?;
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

/// The name of a file while it is not whole.
fn part_path(target: &Path) -> PathBuf {
    let mut path = target.as_os_str().to_owned();
    path.push(".part");
    path.into()
}

/// Whether two names lead to the same file.
fn leads_to_one(one: &Path, other: &Path) -> bool {
    let place = |path: &Path| std::fs::metadata(path).map(|there| (there.dev(), there.ino()));
    matches!((place(one), place(other)), (Ok(one), Ok(other)) if one == other)
}

fn refuse_existing(target: &Path) -> Outcome {
    match std::fs::symlink_metadata(target) {
        Err(_) => Ok(()),
        Ok(_) => Err(Failure::new(
            code::INTERRUPTED,
            format!(
                "could not save to {}: there is a file of this name, and it may belong to the chain; name another",
                target.display()
            ),
        )),
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
    fn nothing_but_a_file_is_replaced() {
        let dir = dir("device");
        let link = dir.join("null");
        std::os::unix::fs::symlink("/dev/null", &link).expect("room");
        for target in [&dir, &link] {
            assert!(Part::create(target).is_err(), "{}", target.display());
        }
        assert!(std::fs::read_dir(&dir).is_ok_and(|entries| entries.count() == 1));
        std::fs::remove_dir_all(&dir).expect("ours");
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

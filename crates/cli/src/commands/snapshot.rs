//! `snapshot save`: a whole file or none.

use crate::command::{Command, Context, command, group};
use crate::failure::{Failure, Outcome, code};
use crate::globals;
use crate::print::{self, go};
use crate::progress::Bar;
use crate::raw;
use api::Message;
use api::etcdserverpb::SnapshotResponse;
use sha2::{Digest, Sha256};
use std::ffi::OsString;
use std::fs::File;
use std::io::Write;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::OpenOptionsExt;
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
    let mut part = Part::create(&target)?;
    let mut bar = Bar::new();
    // It takes as long as it takes, unless that was said.
    let patience = context.parsed.is_given("command-timeout").then(|| context.patience());
    let (version, size) = context.wait(within(patience, async {
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
    }))?;
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
        // Only the owner may read it: it may hold secrets.
        let file = File::options().write(true).create(true).truncate(true).mode(0o600).open(&path).map_err(named)?;
        Ok(Part { file, path, target: target.into(), is_finished: false })
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
        if !self.is_finished {
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

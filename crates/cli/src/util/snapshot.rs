//! `snapshot`.

use crate::command::{Command, Context, command, group};
use crate::commands::snapshot::Part;
use crate::failure::{Failure, Outcome, code};
use crate::flags::{int, switch, text, uint};
use crate::print::fields::Lines;
use crate::print::json::Object;
use crate::print::{self, Format, go, table};
use crate::raw;
use crate::signals::Signals;
use etcd_import::{Database, Error, Replay, Restore, SnapshotFile};
use sha2::{Digest, Sha256};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

pub(crate) const COMMAND: Command = group(
    "snapshot",
    "Files that a member's database was saved to",
    &[
        command(
            "restore",
            "<file> [<increment> ...] --data-dir <dir>",
            "Makes the data of a new cluster's member of a snapshot, and of the increments that follow it",
            restore,
        )
        .with(&[
            text("data-dir", "", "where the data goes (default: the name and `.etcd`)"),
            text("wal-dir", "", "where the log goes, if not there too"),
            text("initial-cluster", "default=http://localhost:2380", "names and peer URLs of the members"),
            text("initial-cluster-token", "etcd-cluster", "tells clusters of the same members apart"),
            text("initial-advertise-peer-urls", "http://localhost:2380", "peer URLs of this member"),
            text("name", "default", "name of this member"),
            switch("skip-hash-check", "take a file without a checksum, copied from a data directory"),
            int("initial-memory-map-size", "0", "of no meaning here"),
            uint("bump-revision", "0", "move the revision on by so much"),
            switch("mark-compacted", "compact everything, so that clients begin anew"),
        ]),
        command(
            "save",
            "<file> --data-dir <dir>",
            "Saves the database of a stopped member of Cairn, as it would itself",
            save,
        )
        .with(&[
            text("data-dir", "", "directory of the member's data, which is only read"),
            text("wal-dir", "", "directory of its log, if that is elsewhere"),
        ]),
        command("status", "<file> [<increment> ...]", "Sums a database file up, with the increments that follow it", status),
        command(
            "merge",
            "<file> <increment> ... --to <new file>",
            "Makes one whole snapshot of a snapshot and the increments that follow it",
            merge,
        )
        .with(&[text("to", "", "the new snapshot, which etcd's tools restore, too")])
        .explained(
            "Increments are what `cairn ctl snapshot save --since` saves; name them in their order. It needs memory for the index of all keys, as a\n\
             member does, and beside the new file room for the database once more.\n",
        ),
    ],
);

fn status(context: &Context) -> Outcome {
    let (path, increments) = files(context, "status")?;
    super::exists(&path)?;
    let printer = context.printer()?;
    if !increments.is_empty() {
        // Damage that no version shows, too: the whole chain is looked through.
        SnapshotFile::check_saved(&path)?;
    }
    let status = super::open(context, &path)?.with_increments(&path, &increments)?.status()?;
    let etcd_import::Status { hash, revision, total_key, total_size, version } = status;
    let row =
        [format!("{hash:x}"), revision.to_string(), total_key.to_string(), go::bytes(total_size), version.clone()];
    match printer.format {
        Format::Simple => print::out((row.join(", ") + "\n").as_bytes()),
        Format::Table => {
            let headings = ["hash", "revision", "total keys", "total size", "version"];
            print::out(table::draw(&headings, &[row.to_vec()]).as_bytes())
        }
        Format::Json => {
            let object = Object::default().raw("hash", hash).raw("revision", revision).raw("totalKey", total_key);
            printer.json(&object.raw("totalSize", total_size).text("version", &version).end())
        }
        Format::Fields => {
            let mut lines = Lines::new();
            lines.line("Hash", hash).line("Revision", revision).line("Keys", total_key);
            lines.line("Size", total_size).line("Version", version);
            print::out(lines.end().as_bytes())
        }
        Format::Protobuf => Err(printer.unsupported()),
    }
}

/// The snapshot that is named first, and the increments after it. Without any it is as etcd's tool has it.
fn files(context: &Context, command: &str) -> Outcome<(PathBuf, Vec<PathBuf>)> {
    let one = || format!("snapshot {command} requires exactly one argument");
    let (file, increments) = context.args().split_first().ok_or_else(|| Failure::args(one()))?;
    for increment in increments {
        let why = match etcd_import::is_increment(&raw::path(increment)) {
            Ok(true) => continue,
            Ok(false) => format!("`{increment}` is no increment"),
            Err(error) => error.to_string(),
        };
        let text = format!("only increments of the snapshot can follow it: {why}");
        return Err(Failure::args(if command == "merge" { text } else { format!("{}\n{text}", one()) }));
    }
    Ok((raw::path(file), increments.iter().map(|increment| raw::path(increment)).collect()))
}

/// The same file that `snapshot save` gets of a member that runs: the database, then its SHA-256.
fn save(context: &Context) -> Outcome {
    let [file] = context.args() else {
        return Err(Failure::args("snapshot save expects one argument <filename>"));
    };
    let parsed = &context.parsed;
    let data_dir = super::data_dir(parsed)?;
    let wal_dir = Some(parsed.text("wal-dir")).filter(|dir| !dir.is_empty()).map(raw::path);
    let target = raw::path(file);
    // What is left behind holds values: a signal has to wait until it is removed.
    let mut signals = {
        let _guard = context.enter();
        Signals::new()?
    };
    let part = Part::create(&target)?;
    let saved = write_whole(context, &mut signals, (part, target), "snapshot interrupted", move |scratch, write| {
        etcd_import::save(&data_dir, wal_dir.as_deref(), scratch, write)
    })?;
    let etcd_import::Saved { member_id, cluster_id, revision, index, uncommitted, version, .. } = saved;
    let more = match uncommitted {
        0 => String::new(),
        1 => "; 1 entry after it is not known to be committed, and not in the file".into(),
        count => format!("; {count} entries after it are not known to be committed, and not in the file"),
    };
    let version = if version.is_empty() { version } else { format!("Server version {version}\n") };
    let text = format!(
        "Snapshot saved at {file}\n{version}\
         member {member_id:x} of cluster {cluster_id:x}: revision {revision}, entry {index} of the log{more}\n",
    );
    print::out(&raw::bytes(&text))
}

/// Writes a snapshot to `target`, all of it or nothing: what `work` writes, and its checksum. `work` has a directory for what it needs beside.
fn write_whole<T: Send + 'static>(
    context: &Context,
    signals: &mut Signals,
    (mut part, target): (Part, PathBuf),
    interrupted: &'static str,
    work: impl FnOnce(&Path, &mut dyn FnMut(&[u8]) -> Result<(), Error>) -> Result<T, Error> + Send + 'static,
) -> Outcome<T> {
    let mut scratch = target.into_os_string();
    scratch.push(format!(".scratch-{}", std::process::id()));
    let scratch = Scratch::create(scratch.into())?;
    let (part_path, scratch_path) = (part.path().to_owned(), scratch.0.clone());
    let written = signals.unless(context, interrupted, move || {
        let (mut hash, mut failed) = (Sha256::new(), None);
        let done = work(&scratch_path, &mut |piece| {
            hash.update(piece);
            part.write(piece).map_err(|failure| {
                failed = Some(failure.clone());
                Error::Refused(failure.text)
            })
        });
        let done = done.map_err(|error| failed.unwrap_or_else(|| error.into()))?;
        part.write(&hash.finalize())?;
        part.finish()?;
        Ok(done)
    });
    if written.is_err() {
        // The thread that writes it may not have ended: the file must not get its whole name any more.
        let _ = std::fs::remove_file(part_path);
    }
    drop(scratch);
    written
}

/// One whole snapshot of one with its increments.
fn merge(context: &Context) -> Outcome {
    if context.args().len() < 2 {
        return Err(Failure::args("snapshot merge expects a snapshot and at least one increment"));
    }
    let (path, increments) = files(context, "merge")?;
    let target = match context.parsed.text("to") {
        "" => return Err(Failure::usage("required flag(s) \"to\" not set")),
        file => raw::path(file),
    };
    let mut signals = {
        let _guard = context.enter();
        Signals::new()?
    };
    let inputs: Vec<&Path> = std::iter::once(&path).chain(&increments).map(PathBuf::as_path).collect();
    let part = Part::create_new(&target, &inputs)?;
    let work = move |scratch: &Path, write: &mut dyn FnMut(&[u8]) -> Result<(), Error>| {
        SnapshotFile::check_saved(&path)?;
        let database = Database::open(&path)?.with_increments(&path, &increments)?;
        let state = Replay::begin(&database, scratch)?;
        drop(database);
        let at = (state.revision(), state.at().0);
        state.save(write).map(|()| at)
    };
    let (revision, index) = write_whole(context, &mut signals, (part, target), "merge interrupted", work)?;
    let text =
        format!("Snapshot saved at {}\nrevision {revision}, entry {index} of the log\n", context.parsed.text("to"));
    print::out(&raw::bytes(&text))
}

/// How many directories of one name may have been left behind.
const SCRATCH_NAMES_MAX: u32 = 100;

/// A directory that goes again.
pub(crate) struct Scratch(PathBuf);

impl Scratch {
    pub(crate) fn create(path: PathBuf) -> Outcome<Scratch> {
        // What a process with this id left behind when it was killed stays where it is: in containers all have the same.
        for number in 0..SCRATCH_NAMES_MAX {
            let mut tried = path.clone().into_os_string();
            if number > 0 {
                tried.push(format!("-{number}"));
            }
            let tried = PathBuf::from(tried);
            // The values in it are not for everybody.
            match std::fs::DirBuilder::new().mode(0o700).create(&tried) {
                Ok(()) => return Ok(Scratch(tried)),
                Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
                Err(error) => {
                    let text = format!("cannot make `{}`: {}", tried.display(), go::io(&error));
                    return Err(Failure::new(code::IO, text));
                }
            }
        }
        let text = format!(
            "`{}` and others of this name were left behind by commands that were killed: remove them",
            path.display()
        );
        Err(Failure::new(code::IO, text))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // A thread that still makes files in it does not find it any more.
        let mut gone = self.0.clone().into_os_string();
        gone.push(".gone");
        let gone = PathBuf::from(gone);
        let last = if std::fs::rename(&self.0, &gone).is_ok() { &gone } else { &self.0 };
        let _ = std::fs::remove_dir_all(last);
    }
}

fn restore(context: &Context) -> Outcome {
    let (path, increments) = files(context, "restore")?;
    let skips_check = context.parsed.switch("skip-hash-check");
    let wanted = Restore { skips_check, increments, ..restoring(context, path)? };
    etcd_import::restore(&wanted)?;
    let source = match context.args() {
        [file] => format!("snapshot {file}"),
        files => format!("snapshot and increments {}", files.join(" ")),
    };
    tell_restored(&wanted, &source);
    Ok(())
}

/// What the flags of a restore say of the data directory that is made of a snapshot.
pub(crate) fn restoring(context: &Context, snapshot: PathBuf) -> Outcome<Restore> {
    let parsed = &context.parsed;
    // No revision is that large.
    let revision_bump = i64::try_from(parsed.uint("bump-revision")).unwrap_or(i64::MAX);
    let marks_compacted = parsed.switch("mark-compacted");
    if (revision_bump > 0) != marks_compacted {
        return Err(Failure::args("--mark-compacted required if --revision-bump > 0"));
    }
    let name = raw::string(parsed.text("name"))?;
    let data_dir = match parsed.text("data-dir") {
        "" => raw::path(&format!("{}.etcd", parsed.text("name"))),
        dir => raw::path(dir),
    };
    Ok(Restore {
        snapshot,
        increments: Vec::new(),
        wal_dir: Some(parsed.text("wal-dir")).filter(|dir| !dir.is_empty()).map(raw::path),
        cluster: cluster(&raw::string(parsed.text("initial-cluster"))?)?,
        token: raw::string(parsed.text("initial-cluster-token"))?,
        peer_urls: raw::string(parsed.text("initial-advertise-peer-urls"))?
            .split(',')
            .map(url)
            .collect::<Outcome<_>>()?,
        skips_check: false,
        revision_bump,
        marks_compacted,
        name,
        data_dir,
    })
}

/// Says that a data directory was made of `source`.
pub(crate) fn tell_restored(wanted: &Restore, source: &str) {
    // What scripts wait for, in the words of etcd's log.
    for (name, urls) in &wanted.cluster {
        flags::say!("added member {name} ({})", urls.join(","));
    }
    let dir = raw::word(wanted.data_dir.as_os_str());
    flags::say_bytes(&raw::bytes(&format!("restored {source} to {dir}\n")));
}

/// Names and URLs of `name=URL,name=URL`.
fn cluster(text: &str) -> Outcome<Vec<(String, Vec<String>)>> {
    let mut members: Vec<(String, Vec<String>)> = Vec::new();
    for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
        let wrong =
            || Failure::new(code::ERROR, format!("malformed entry {part:?} of --initial-cluster: not name=URL"));
        let (name, url) = part.split_once('=').ok_or_else(wrong)?;
        if name.is_empty() {
            return Err(wrong());
        }
        let found = self::url(url)?;
        match members.iter_mut().find(|(known, _)| known == name) {
            Some((_, urls)) => urls.push(found),
            None => members.push((name.into(), vec![found])),
        }
    }
    Ok(members)
}

/// A URL of a member.
fn url(text: &str) -> Outcome<String> {
    let url = text.trim();
    match api::url::split(url) {
        Ok(_) => Ok(url.into()),
        Err(why) => Err(Failure::new(code::ERROR, why)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clusters_are_read() {
        let urls = |urls: &[&str]| urls.iter().map(|url| (*url).to_string()).collect::<Vec<_>>();
        let found = cluster("a=http://a:1,b=http://b:1,a=http://a:2");
        let wanted = vec![("a".into(), urls(&["http://a:1", "http://a:2"])), ("b".into(), urls(&["http://b:1"]))];
        assert_eq!(found, Ok(wanted));
        for wrong in ["a", "=http://a:1", "a=b", "a=ftp://a:1", "a=http://a", "a=http://a:1/x"] {
            assert!(cluster(wrong).is_err(), "{wrong}");
        }
    }
}

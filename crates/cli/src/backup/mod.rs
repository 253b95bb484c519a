//! `cairn backup` and `cairn restore`: archives of a cluster in an object store.

mod members;
mod restore;
mod write;

use crate::command::{Command, Context, command};
use crate::failure::{Failure, Outcome, code};
use crate::flags::{Flag, duration, int, switch, text, uint};
use crate::print::json::Object;
use crate::print::{self, Format};
use crate::raw;
use crate::signals::Signals;
use backup::{Archive, Error, S3, Vault};

const TO: Flag = text("to", "", "where the archive is: s3://BUCKET/PREFIX or file:///DIRECTORY");
const FROM: Flag = text("from", "", "where the archive is: s3://BUCKET/PREFIX or file:///DIRECTORY");
const S3_ENDPOINT: Flag = text("s3-endpoint", "", "URL of the S3 server, if it is not Amazon's (AWS_ENDPOINT_URL)");
const S3_REGION: Flag = text("s3-region", "", "region of the bucket (AWS_REGION)");
const S3_CACERT: Flag = text("s3-cacert", "", "certificates to trust beside the system's for the S3 server");

/// `backup`.
pub(crate) const COMMANDS: &[Command] = &[
    command(
        "backup",
        "--to URL | status --from URL | prune --from URL --keep TIME",
        "Archives what a cluster applies, continuously",
        run,
    )
    .with(&[
        TO,
        FROM,
        duration("every", "5s", "ship what was applied this often"),
        duration("base-every", "24h", "take a snapshot of the whole database this often; 0: only where one is needed"),
        duration("keep", "0s", "remove what is not needed to restore anything younger; 0: remove nothing"),
        switch("once", "end once everything is in the archive that was applied when it began"),
        switch("dry-run", "prune: only say what would be removed"),
        text("scratch-dir", "", "where snapshots are on their way to the archive (default: the system's)"),
        S3_ENDPOINT,
        S3_REGION,
        S3_CACERT,
    ])
    .explained(
        "It asks a member for the entries it has applied and ships them in pieces, with a snapshot of the database as their base. Each object\n\
         is read back after it was written. Started again, it goes on where the archive ends. With --once a failure ends it; otherwise it\n\
         tries again until the store or the members are back. `status` tells what can be restored, `prune` removes what is older than\n\
         --keep. Keys for S3 are taken from AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY. With users on it takes root's name, as a snapshot does.\n",
    ),
];

/// `restore`.
pub(crate) const RESTORE: &[Command] = &[command(
    "restore",
    "--from URL [--to-revision N | --to-time TIME | --to-index N] --data-dir DIR",
    "Makes the data of a new cluster's member of an archive",
    restore::run,
)
.with(&[
    FROM,
    int("to-revision", "0", "the first state of this revision"),
    text("to-time", "", "the newest state by then: 2026-11-24T12:00:00Z"),
    uint("to-index", "0", "the state after this entry of the log"),
    text("to-snapshot", "", "write a snapshot to this file, in place of a data directory"),
    text("data-dir", "", "where the data goes (default: the name and `.etcd`)"),
    text("wal-dir", "", "where the log goes, if not there too"),
    text("initial-cluster", "default=http://localhost:2380", "names and peer URLs of the members"),
    text("initial-cluster-token", "etcd-cluster", "tells clusters of the same members apart"),
    text("initial-advertise-peer-urls", "http://localhost:2380", "peer URLs of this member"),
    text("name", "default", "name of this member"),
    uint("bump-revision", "0", "move the revision on by so much"),
    switch("mark-compacted", "compact everything, so that clients begin anew"),
    switch("help", "help for the command").or('h'),
    S3_ENDPOINT,
    S3_REGION,
    S3_CACERT,
])
.explained(
    "Without --to-revision, --to-time and --to-index the newest state is made. The other flags are those of `util snapshot restore`. It needs\n\
     room for the database three times, beside the data directory or the snapshot.\n",
)];

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        let code = match &error {
            Error::Denied { .. } | Error::Full { .. } | Error::Store { .. } => code::BAD_CONNECTION,
            Error::File { .. } => code::IO,
            _ => code::ERROR,
        };
        Failure::new(code, error.to_string())
    }
}

fn run(context: &Context) -> Outcome {
    let words: Vec<&str> = context.args().iter().map(String::as_str).collect();
    match words[..] {
        [] => write::run(context),
        ["status"] => status(context),
        ["prune"] => prune(context),
        _ => Err(Failure::args("backup takes --to, or `status` or `prune` and --from")),
    }
}

/// The archive that a flag names.
fn vault(context: &Context, flag: &str, creates: bool) -> Outcome<Vault> {
    let parsed = &context.parsed;
    let url = raw::string(parsed.text(flag))?;
    if url.is_empty() {
        return Err(Failure::args(format!("--{flag} is missing: s3://BUCKET/PREFIX or file:///DIRECTORY")));
    }
    let given = |name: &str| Some(parsed.text(name).to_string()).filter(|text| !text.is_empty());
    let authorities = match given("s3-cacert") {
        None => None,
        Some(path) => {
            let path = raw::path(&path);
            let read = std::fs::read(&path);
            Some(read.map_err(|error| Failure::new(code::IO, format!("cannot read `{}`: {error}", path.display())))?)
        }
    };
    let s3 = S3 { endpoint: given("s3-endpoint"), region: given("s3-region"), authorities };
    Ok(Vault::open(&url, &s3, creates)?)
}

/// What `work` brings, unless a signal comes.
fn unless<T>(context: &Context, work: impl Future<Output = Outcome<T>>) -> Outcome<T> {
    let mut signals = {
        let _guard = context.enter();
        Signals::new()?
    };
    context.wait(async {
        tokio::select! {
            outcome = work => outcome,
            () = signals.any() => Err(Failure::new(code::INTERRUPTED, "interrupted")),
        }
    })
}

/// What can be restored of an archive.
fn status(context: &Context) -> Outcome {
    let vault = vault(context, "from", false)?;
    let printer = context.printer()?;
    let archive = unless(context, async { Ok(Archive::read(&vault).await?) })?;
    let Some(cluster_id) = archive.cluster_id else {
        return Err(Failure::new(code::BAD_FEATURE, format!("there is no archive at {}", vault.place())));
    };
    let first = archive.bases.first();
    let gaps = archive.gaps();
    let end = archive.end();
    let bytes: u64 =
        archive.pieces.iter().map(|(_, bytes)| *bytes).chain(archive.bases.iter().map(|base| base.bytes)).sum();
    let until = archive.mark.as_ref().map(|mark| backup::shown(mark.time_ms));
    match printer.format {
        Format::Json => {
            let bases: Vec<String> = archive
                .bases
                .iter()
                .map(|base| {
                    let object = Object::default().raw("index", base.index).raw("revision", base.revision);
                    object.text("time", &backup::shown(base.time_ms)).raw("bytes", base.bytes).end()
                })
                .collect();
            let missing: Vec<String> = gaps
                .iter()
                .map(|gap| Object::default().raw("after", gap.after).raw("until", gap.until).end())
                .collect();
            let object = Object::default()
                .text("clusterId", &format!("{cluster_id:x}"))
                .raw("firstIndex", first.map_or(0, |base| base.index))
                .raw("firstRevision", first.map_or(0, |base| base.revision))
                .raw("lastIndex", end.map_or(0, |end| end.index))
                .text("completeUntil", until.as_deref().unwrap_or_default())
                .raw("pieces", archive.pieces.len())
                .raw("bytes", bytes)
                .raw("bases", format!("[{}]", bases.join(",")))
                .raw("gaps", format!("[{}]", missing.join(",")));
            printer.json(&object.end())
        }
        Format::Simple => {
            let mut text = format!("archive of cluster {cluster_id:x} at {}\n", vault.place());
            match (first, end) {
                (Some(first), Some(end)) => {
                    let (revision, time) = (first.revision, backup::shown(first.time_ms));
                    text +=
                        &format!("from entry {}, revision {revision}, {time}\nup to entry {}", first.index, end.index);
                    text += &until.map_or_else(|| "\n".into(), |until| format!(", complete until {until}\n"));
                }
                _ => text += "no base yet: nothing can be restored\n",
            }
            text += &format!("{} bases, {} pieces, {bytes} bytes\n", archive.bases.len(), archive.pieces.len());
            for what in &archive.unreadable {
                text += &format!("not readable: {what}\n");
            }
            for gap in gaps {
                text += &format!("gap: what is between entries {} and {} cannot be restored\n", gap.after, gap.until);
            }
            print::out(text.as_bytes())
        }
        _ => Err(printer.unsupported()),
    }
}

fn prune(context: &Context) -> Outcome {
    let vault = vault(context, "from", false)?;
    let (keep, is_tried) = (context.parsed.duration("keep"), context.parsed.switch("dry-run"));
    if keep.is_zero() {
        return Err(Failure::args("--keep is missing: for how long back everything can still be restored"));
    }
    let pruned = unless(context, async {
        let archive = Archive::read(&vault).await?;
        Ok(backup::prune(&vault, &archive, archive.keep_from_ms(keep), is_tried).await?)
    })?;
    let what = if is_tried { "would be removed" } else { "removed" };
    let mut text = format!("{} bases and {} pieces, {} bytes, {what}\n", pruned.bases, pruned.pieces, pruned.bytes);
    if let Some(oldest) = pruned.oldest {
        let (index, revision, time) = (oldest.index, oldest.revision, backup::shown(oldest.time_ms));
        text += &format!("the archive begins with entry {index}, revision {revision}, {time}\n");
    }
    print::out(text.as_bytes())
}

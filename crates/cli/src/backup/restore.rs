//! `cairn restore`.

use super::vault;
use crate::command::Context;
use crate::failure::{Failure, Outcome};
use crate::print;
use crate::raw;
use crate::signals::Signals;
use crate::util::snapshot::{Scratch, restoring, tell_restored};
use backup::{Made, Wanted};
use std::path::{Path, PathBuf};

pub(super) fn run(context: &Context) -> Outcome {
    if !context.args().is_empty() {
        return Err(Failure::args("restore takes no arguments: name the archive with --from"));
    }
    let vault = vault(context, "from", false)?;
    let wanted = wanted(context)?;
    let file = Some(context.parsed.text("to-snapshot")).filter(|file| !file.is_empty()).map(raw::path);
    let mut target = match &file {
        Some(file) if file.exists() => {
            return Err(Failure::args(format!("`{}` is there already", file.display())));
        }
        Some(file) => file.clone(),
        None => restoring(context, PathBuf::new())?.data_dir,
    }
    .into_os_string();
    target.push(format!(".scratch-{}", std::process::id()));
    // What is left behind holds values: a signal has to wait until it is removed.
    let mut signals = {
        let _guard = context.enter();
        Signals::new()?
    };
    let scratch = Scratch::create(target.into())?;
    let (made, whole) = context.wait(async {
        let whole = scratch.path().join("whole.db");
        tokio::select! {
            made = backup::make(&vault, wanted, scratch.path(), &whole) => Ok((made?, whole.clone())),
            () = signals.any() => Err(Failure::new(crate::failure::code::INTERRUPTED, "restore interrupted")),
        }
    })?;
    let Made { at, revision, base, cluster_id, ends_in_gap } = made;
    match &file {
        Some(file) => keep(&whole, file)?,
        None => {
            let restore = restoring(context, whole)?;
            etcd_import::restore(&restore)?;
            tell_restored(&restore, vault.place());
        }
    }
    drop(scratch);
    if ends_in_gap {
        flags::say!(
            "later entries are in the archive, behind a gap, and nothing can be made of them yet: `cairn backup status` shows it"
        );
    }
    let text = format!(
        "restored entry {} of cluster {cluster_id:x}: revision {revision}, from the base at entry {base}\n",
        at.index
    );
    print::out(text.as_bytes())
}

fn wanted(context: &Context) -> Outcome<Wanted> {
    let parsed = &context.parsed;
    let given: Vec<&str> =
        ["to-revision", "to-time", "to-index"].into_iter().filter(|name| parsed.is_given(name)).collect();
    match given[..] {
        [] => Ok(Wanted::Newest),
        ["to-revision"] if parsed.int("to-revision") > 0 => Ok(Wanted::Revision(parsed.int("to-revision"))),
        ["to-index"] if parsed.uint("to-index") > 0 => Ok(Wanted::Index(parsed.uint("to-index"))),
        ["to-time"] => {
            let text = parsed.text("to-time");
            let wrong = || Failure::args(format!("--to-time={text} is no time: write 2026-11-24T12:00:00Z"));
            Ok(Wanted::Time(backup::parse(text).ok_or_else(wrong)?))
        }
        [name] => Err(Failure::args(format!("--{name} is a number from 1 on"))),
        _ => Err(Failure::args("only one of --to-revision, --to-time and --to-index can be given")),
    }
}

/// Gives the file its name, durably.
fn keep(whole: &Path, file: &Path) -> Outcome {
    let synced = std::fs::File::open(whole).and_then(|whole| whole.sync_all());
    synced.and_then(|()| std::fs::rename(whole, file))?;
    let parent = file.parent().filter(|parent| !parent.as_os_str().is_empty());
    std::fs::File::open(parent.unwrap_or(Path::new(".")))?.sync_all()?;
    Ok(())
}

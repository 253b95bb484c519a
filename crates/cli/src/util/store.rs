//! `store verify`: checks every record of a member's data.

use crate::command::{Command, Context, command, group};
use crate::failure::{Failure, Outcome, code};
use crate::flags::text;
use crate::print::json::Object;
use crate::print::{self, Format, go};
use crate::raw;
use disk::{Disk, Mode, OsDisk};
use etcd_import::log::Record;
use std::path::Path;
use store::Inspection;

pub(crate) const COMMAND: Command = group(
    "store",
    "The store of a stopped member",
    &[command("verify", "--data-dir <dir>", "Checks every checksum of store and log, and says what there is", verify)
        .with(&[
            text("data-dir", "", "directory of a member's data"),
            text("wal-dir", "", "directory of its log, if that is elsewhere"),
        ])],
);

fn verify(context: &Context) -> Outcome {
    let printer = context.printer()?;
    let dir = super::data_dir(&context.parsed)?.join("member");
    super::exists(&dir.join("store"))?;
    let disk = OsDisk { unsafe_no_sync: false };
    // Held until the end: a member that runs changes what is looked at.
    let _lock = lock(&disk, &dir)?;
    let found = store::inspect(&disk, &dir.join("store"));
    let found = found.map_err(|error| Failure::new(code::ERROR, error.to_string()))?;
    let wal_dir = match context.parsed.text("wal-dir") {
        "" => dir.join("wal"),
        named => raw::path(named),
    };
    let log = check_log(&wal_dir)?;
    log.check(&wal_dir, found.applied_index, found.installed).map_err(|why| Failure::new(code::ERROR, why))?;
    match printer.format {
        Format::Simple => print::out((told(&found) + &log.told()).as_bytes())?,
        Format::Json => {
            let object = Object::default().raw("revision", found.revision);
            let object = object.raw("compactRevision", found.compact_revision).raw("appliedIndex", found.applied_index);
            let object = object.raw("appliedTerm", found.applied_term).raw("segments", found.segments);
            let object = object.raw("records", found.records).raw("bytes", found.bytes);
            let object = object.raw("liveBytes", found.live_bytes).raw("leases", found.leases);
            let object = object.raw("damagedCheckpoints", found.damaged.len());
            let object =
                object.raw("logFirstIndex", log.first).raw("logLastIndex", log.last).raw("logLastTerm", log.last_term);
            printer.json(&object.raw("logRecords", log.records).end())?;
        }
        _ => return Err(printer.unsupported()),
    }
    match found.damaged.first() {
        None => Ok(()),
        Some(damage) => Err(Failure::new(code::ERROR, format!("one of two checkpoints is damaged: {damage}"))),
    }
}

/// What a log has; its entries may have been replaced by others of the same index.
#[derive(Default)]
struct Log {
    records: u64,
    first: u64,
    last: u64,
    /// Term of the last entry: of two logs the one with the higher term has more, and of one term the longer one.
    last_term: u64,
    /// The last state of another member that it goes on behind.
    snapshot: u64,
    /// The last entry that the member knows to be committed.
    commit: u64,
}

/// Reads all of a log, which checks it.
fn check_log(dir: &Path) -> Outcome<Log> {
    let mut log = Log::default();
    etcd_import::log::read(dir, &mut |record| {
        log.records += 1;
        match record {
            Record::Entry(entry) => {
                log.first = if log.first == 0 { entry.index() } else { log.first.min(entry.index()) };
                (log.last, log.last_term) = (entry.index(), entry.term());
            }
            Record::Snapshot(snapshot) => log.snapshot = log.snapshot.max(snapshot.index()),
            Record::State(state) => log.commit = state.commit(),
            Record::Metadata(_) => {}
        }
    })?;
    Ok(log)
}

impl Log {
    /// Refuses a log of which the end is missing, as far as the member knows of it: by what its store has applied, and by what was committed.
    fn check(&self, dir: &Path, applied: u64, installed: bool) -> Result<(), String> {
        let end = self.last.max(self.snapshot);
        if end < applied && !installed {
            return Err(format!(
                "the log in `{}` ends before entry {applied}, which the store has: it is not the log that this member has written last, or its                  end is missing",
                dir.display()
            ));
        }
        let (end, commit) = (end.max(applied), self.commit);
        if commit > end {
            return Err(format!(
                "the log in `{}` ends at entry {end}, but the member knows that entry {commit} was committed: parts of the log are missing",
                dir.display()
            ));
        }
        Ok(())
    }

    fn told(&self) -> String {
        match self.last {
            0 => format!("log: {} records, no entries\n", self.records),
            last => {
                format!(
                    "log: {} records, entries {} to {last}, the last of term {}\n",
                    self.records, self.first, self.last_term
                )
            }
        }
    }
}

fn lock(disk: &OsDisk, dir: &Path) -> Outcome<std::sync::Arc<dyn disk::File>> {
    let path = dir.join("lock");
    let file = disk.open(&path, Mode::Write)?;
    match file.lock() {
        Ok(()) => Ok(file),
        Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
            Err(Failure::new(code::ERROR, format!("`{}` is locked: stop the member first", path.display())))
        }
        Err(error) => Err(error.into()),
    }
}

fn told(found: &Inspection) -> String {
    let share = (found.live_bytes * 100).checked_div(found.bytes).unwrap_or(100);
    let oldest = match found.compact_revision {
        -1 => "the first".to_string(),
        revision => revision.to_string(),
    };
    format!(
        "every checksum is right\nrevision {}, readable from {oldest} on; entry {} of term {}\n\
         {} records in {} segments: {}, of which {share} % can still be read\n{} leases\n",
        found.revision,
        found.applied_index,
        found.applied_term,
        found.records,
        found.segments,
        go::bytes(found.bytes),
        found.leases
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_without_its_end_is_refused() {
        let log = Log { last: 7, commit: 7, snapshot: 5, ..Log::default() };
        let check = |log: &Log, applied, installed| log.check(Path::new("wal"), applied, installed);
        for applied in [0, 5, 7] {
            assert_eq!(check(&log, applied, false), Ok(()));
        }
        assert!(check(&log, 8, false).is_err_and(|why| why.contains("`wal` ends before entry 8")));
        // The power was cut before the log was told.
        assert_eq!(check(&log, 8, true), Ok(()));
        let behind_a_state = Log { snapshot: 9, last: 0, commit: 9, ..Log::default() };
        assert_eq!(check(&behind_a_state, 9, false), Ok(()));
        let cut = Log { commit: 8, ..log };
        assert!(check(&cut, 7, false).is_err_and(|why| why.contains("entry 8 was committed")));
        assert_eq!(check(&cut, 8, true), Ok(()), "it is in the store");
    }
}

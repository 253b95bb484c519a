//! `migrate`: takes over the data of a stopped etcd.

use crate::command::{Command, Context, command};
use crate::failure::{Failure, Outcome, code};
use crate::flags::{switch, text};
use crate::print;
use crate::raw;

pub(crate) const COMMAND: Command =
    command("migrate", "--from <dir> --data-dir <dir>", "Takes over the data of a stopped etcd 3.5 to 3.7", run).with(
        &[
            text("from", "", "data directory of the etcd member, which is only read"),
            text("from-wal-dir", "", "directory of its log, if that is elsewhere"),
            text("data-dir", "", "where the data of this member goes"),
            text("wal-dir", "", "where the log goes, if not there too"),
            text("target-version", "", "of no meaning here: the data suits every version"),
            switch("force", "of no meaning here"),
        ],
    );

fn run(context: &Context) -> Outcome {
    let parsed = &context.parsed;
    let optional = |name: &str| Some(parsed.text(name)).filter(|dir| !dir.is_empty()).map(raw::path);
    let data_dir = super::data_dir(parsed)?;
    let Some(from) = optional("from") else {
        return Err(Failure::usage("required flag(s) \"from\" not set"));
    };
    // A member of Cairn has a file where etcd has a directory.
    if from.join("member").join("snap").is_file() {
        let shown = raw::word(from.as_os_str());
        let text = format!(
            "`{shown}` holds the data of a member of Cairn already: start it with --data-dir {shown}; `cairn util export` makes a directory \
             of etcd's of it"
        );
        return Err(Failure::new(code::ERROR, text));
    }
    super::exists(&from.join("member").join("snap").join("db"))?;
    let (from_wal, wal_dir) = (optional("from-wal-dir"), optional("wal-dir"));
    let patience = parsed.duration("timeout");
    let done = etcd_import::migrate(&from, from_wal.as_deref(), &data_dir, wal_dir.as_ref(), patience)?;
    let text = format!(
        "member {:x} of cluster {:x}: database of revision {} (entry {} of the log), {} entries behind it\n\
         start it with --data-dir {} and the other flags that etcd had\n",
        done.member_id,
        done.cluster_id,
        done.revision,
        done.index,
        done.entries,
        raw::word(data_dir.as_os_str())
    );
    print::out(&raw::bytes(&text))
}

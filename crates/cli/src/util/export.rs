//! `export`: gives a stopped member's data back to etcd.

use crate::command::{Command, Context, command};
use crate::failure::{Failure, Outcome};
use crate::flags::text;
use crate::print;
use crate::raw;

pub(crate) const COMMAND: Command = command(
    "export",
    "--data-dir <dir> --to <dir>",
    "Writes the data of a stopped member as a directory of etcd's",
    run,
)
.with(&[
    text("data-dir", "", "data directory of the member"),
    text("wal-dir", "", "directory of its log, if that is elsewhere"),
    text("to", "", "where etcd's directory goes; must be empty or not there"),
]);

fn run(context: &Context) -> Outcome {
    let parsed = &context.parsed;
    let optional = |name: &str| Some(parsed.text(name)).filter(|dir| !dir.is_empty()).map(raw::path);
    let data_dir = super::data_dir(parsed)?;
    let Some(to) = optional("to") else {
        return Err(Failure::usage("required flag(s) \"to\" not set"));
    };
    let done = etcd_import::export(&data_dir, optional("wal-dir").as_deref(), &to)?;
    let text = format!(
        "member {:x} of cluster {:x}: database of revision {} (entry {} of the log, {} bytes), {} entries behind it\n\
         start etcd with --data-dir {} and the other flags that this member had\n",
        done.member_id,
        done.cluster_id,
        done.revision,
        done.index,
        done.bytes,
        done.entries,
        raw::word(to.as_os_str())
    );
    print::out(&raw::bytes(&text))
}

//! `compaction`.

use crate::command::{Command, Context, command};
use crate::failure::{Failure, Outcome};
use crate::flags::{decimal, switch};
use crate::print;
use api::etcdserverpb::CompactionRequest;

pub(crate) const COMMAND: Command = command("compaction", "<revision>", "Drops the history before a revision", run)
    .with(&[switch("physical", "wait until its space is free as well")]);

fn run(context: &Context) -> Outcome {
    let [revision] = context.args() else { return Err(Failure::args("compaction command needs 1 argument")) };
    let revision = decimal(revision).map_err(|why| Failure::new(crate::failure::code::ERROR, why))?;
    let client = context.client()?;
    context.call(client.compact(CompactionRequest { revision, physical: context.parsed.switch("physical") }))?;
    print::out(format!("compacted revision {revision}\n").as_bytes())
}

//! `hashkv`.

use crate::command::{Command, Context, command};
use crate::failure::{Failure, Outcome};
use crate::flags::int;
use crate::print::fields::Lines;
use crate::print::json::Object;
use crate::print::{self, Format, table};
use crate::raw;

pub(crate) const COMMAND: Command = command("hashkv", "<file>", "Hashes the history in a database file", run)
    .with(&[int("rev", "0", "up to this revision (0: all)")]);

fn run(context: &Context) -> Outcome {
    let [file] = context.args() else {
        return Err(Failure::usage(format!("accepts 1 arg(s), received {}", context.args().len())));
    };
    let printer = context.printer()?;
    let path = raw::path(file);
    super::exists(&path)?;
    let found = super::open(context, &path)?.hash_kv(context.parsed.int("rev"))?;
    let (hash, revision, compact) = (found.hash, found.revision, found.compact_revision);
    let row = [i64::from(hash), revision, compact].map(|number| number.to_string()).to_vec();
    match printer.format {
        Format::Simple => print::out((row.join(", ") + "\n").as_bytes()),
        Format::Table => print::out(table::draw(&["hash", "hash revision", "compact revision"], &[row]).as_bytes()),
        Format::Json => {
            let object = Object::default().raw("hash", hash).raw("hashRevision", revision);
            printer.json(&object.raw("compactRevision", compact).end())
        }
        Format::Fields => {
            let mut lines = Lines::new();
            lines.line("Hash", hash).line("Hash revision", revision).line("Compact revision", compact);
            print::out(lines.end().as_bytes())
        }
        Format::Protobuf => Err(printer.unsupported()),
    }
}

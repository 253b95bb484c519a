//! `del`.

use super::keys;
use crate::command::{Command, Context, command};
use crate::failure::Outcome;
use crate::flags::{Flag, Parsed, switch};
use crate::print::fields::Lines;
use api::etcdserverpb::DeleteRangeRequest;

pub(crate) const COMMAND: Command =
    command("del", "<key> [range_end]", "Deletes a key, or a range of keys", run).with(FLAGS);

pub(crate) const FLAGS: &[Flag] = &[
    switch("prefix", "all keys that begin with the given one"),
    switch("from-key", "all keys from the given one on"),
    switch("prev-kv", "print the pairs as they were before"),
    switch("range", "delete a range although its end is given as an argument"),
];

fn run(context: &Context) -> Outcome {
    let printer = context.printer()?;
    let request = request(&context.parsed, context.args())?;
    let client = context.client()?;
    let answer = context.call(client.delete_range(request))?;
    let simple = || printer.simple_delete(&answer);
    let fields = || {
        let mut lines = Lines::with_hex_ids(printer.hex);
        lines.delete(&answer);
        lines.end()
    };
    printer.answer("etcdserverpb.DeleteRangeResponse", &answer, Some(&simple), Some(&fields))
}

/// What the flags and arguments ask for.
pub(crate) fn request(parsed: &Parsed, args: &[String]) -> Outcome<DeleteRangeRequest> {
    let (key, range_end) = keys::range(parsed, args, "del")?;
    Ok(DeleteRangeRequest { key, range_end, prev_kv: parsed.switch("prev-kv") })
}

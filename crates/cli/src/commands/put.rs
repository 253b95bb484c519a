//! `put`.

use crate::command::{Command, Context, command};
use crate::failure::{Failure, Outcome};
use crate::flags::{Flag, PARSE_INT, Parsed, hex, switch, text};
use crate::print::fields::Lines;
use crate::raw;
use api::etcdserverpb::PutRequest;
use bytes::Bytes;
use std::io::Read;

pub(crate) const COMMAND: Command =
    command("put", "<key> <value> (or the value from the standard input)", "Writes a key", run).with(FLAGS);

pub(crate) const FLAGS: &[Flag] = &[
    text("lease", "0", "lease (in hexadecimal) that the key hangs on"),
    switch("prev-kv", "print the pair as it was before"),
    switch("ignore-value", "keep the value"),
    switch("ignore-lease", "keep the lease"),
];

fn run(context: &Context) -> Outcome {
    let request = request(&context.parsed, context.args(), true)?;
    let printer = context.printer()?;
    let client = context.client()?;
    let answer = context.call(client.put(request))?;
    let simple = || printer.simple_put(&answer);
    let fields = || {
        let mut lines = Lines::with_hex_ids(printer.hex);
        lines.put(&answer);
        lines.end()
    };
    printer.answer("etcdserverpb.PutResponse", &answer, Some(&simple), Some(&fields))
}

/// What the flags and arguments ask for. The value may come from the standard input.
pub(crate) fn request(parsed: &Parsed, args: &[String], reads_input: bool) -> Outcome<PutRequest> {
    let lease = hex(parsed.text("lease"), PARSE_INT);
    let lease = lease.map_err(|why| Failure::args(format!("bad lease ID ({why}), expecting ID in Hex")))?;
    let (ignore_value, ignore_lease) = (parsed.switch("ignore-value"), parsed.switch("ignore-lease"));
    let missing = || Failure::args("put command needs 1 argument and input from stdin or 2 arguments");
    let key = args.first().ok_or_else(missing)?;
    if ignore_value && args.len() > 1 {
        return Err(Failure::args("put command needs only 1 argument when 'ignore-value' is set"));
    }
    let value = match args.get(1) {
        Some(value) => raw::bytes(value),
        None if ignore_value => Bytes::new(),
        None if reads_input => {
            let mut value = Vec::new();
            std::io::stdin().lock().read_to_end(&mut value)?;
            if value.is_empty() {
                return Err(missing());
            }
            value.into()
        }
        None => return Err(missing()),
    };
    let (key, prev_kv) = (raw::bytes(key), parsed.switch("prev-kv"));
    Ok(PutRequest { key, value, lease, prev_kv, ignore_value, ignore_lease })
}

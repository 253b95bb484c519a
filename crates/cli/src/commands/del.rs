//! `del`.

use super::keys;
use crate::command::{Command, Context, command};
use crate::failure::Outcome;
use crate::flags::{Flag, Parsed, switch};
use crate::print::fields::Lines;
use crate::print::go;
use api::etcdserverpb::DeleteRangeRequest;
use std::time::Duration;

pub(crate) const COMMAND: Command =
    command("del", "<key> [range_end]", "Deletes a key, or a range of keys", run).with(FLAGS);

pub(crate) const FLAGS: &[Flag] = &[
    switch("prefix", "all keys that begin with the given one"),
    switch("from-key", "all keys from the given one on"),
    switch("prev-kv", "print the pairs as they were before"),
    switch("range", "delete the range up to the second argument without waiting for second thoughts"),
];

fn run(context: &Context) -> Outcome {
    let request = request(&context.parsed, context.args())?;
    let printer = context.printer()?;
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

/// How long the user may take to interrupt a deletion of a range that was not meant.
const SECOND_THOUGHTS: Duration = Duration::from_secs(2);

/// What the flags and arguments ask for. A second argument may be meant as another key: that it ends a range is said, with time to stop.
pub(crate) fn request(parsed: &Parsed, args: &[String]) -> Outcome<DeleteRangeRequest> {
    if args.len() > 2 {
        return Err(keys::missing("del"));
    }
    let (key, range_end) = keys::range(parsed, args, "del")?;
    if args.len() > 1 && !parsed.switch("range") {
        let (first, end) = (go::quote(&key), go::quote(&range_end));
        flags::say!(
            "Warning: Keys between {first} and {end} will be deleted. Please interrupt the command within next {} seconds to \
             cancel. You can provide `--range` flag to avoid the delay.",
            SECOND_THOUGHTS.as_secs()
        );
        std::thread::sleep(SECOND_THOUGHTS);
    }
    Ok(DeleteRangeRequest { key, range_end, prev_kv: parsed.switch("prev-kv") })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flags;

    #[test]
    fn what_may_be_a_slip_deletes_nothing() {
        let asked = |words: &[&str]| {
            let words: Vec<String> = words.iter().map(ToString::to_string).collect();
            let parsed = flags::parse(&words, FLAGS).expect("a command line");
            request(&parsed, &parsed.args).map_err(|failure| failure.code)
        };
        assert_eq!(asked(&["a", "b", "c"]), Err(128));
        assert_eq!(asked(&[]), Err(128));
        assert_eq!(asked(&["a", "b", "--range"]).map(|request| request.range_end), Ok("b".into()));
    }
}

//! `get`.

use super::keys;
use crate::command::{Command, Context, command};
use crate::failure::{Failure, Outcome, code};
use crate::flags::{Flag, int, switch, text};
use crate::print::{self, Format, Printer, go};
use crate::terminal;
use api::etcdserverpb::range_request::{SortOrder, SortTarget};
use api::etcdserverpb::{RangeRequest, RangeResponse};

pub(crate) const COMMAND: Command =
    command("get", "<key> [range_end]", "Reads a key, or a range of keys", run).with(FLAGS);

pub(crate) const FLAGS: &[Flag] = &[
    text("consistency", "l", "l: linearizable, s: serializable"),
    text("order", "", "ASCEND or DESCEND"),
    text("sort-by", "", "CREATE, KEY, MODIFY, VALUE or VERSION"),
    int("limit", "0", "results at most"),
    switch("prefix", "all keys that begin with the given one"),
    switch("from-key", "all keys from the given one on"),
    int("rev", "0", "as of this revision"),
    switch("keys-only", "keys without values"),
    switch("count-only", "only how many there are"),
    switch("print-value-only", "values without keys"),
    switch("stream", "as a stream, for very many keys"),
    int("min-create-rev", "0", "created at this revision or later"),
    int("max-create-rev", "0", "created at this revision or before"),
    int("min-mod-rev", "0", "changed at this revision or later"),
    int("max-mod-rev", "0", "changed at this revision or before"),
];

fn run(context: &Context) -> Outcome {
    let request = request(&context.parsed, context.args())?;
    let printer = Printer { values_only: context.parsed.switch("print-value-only"), ..context.printer()? };
    let is_count = request.count_only;
    let client = context.client()?;
    let answer = match context.parsed.switch("stream") {
        true => context.call(client.range_stream(request))?,
        false => context.call(client.range(request))?,
    };
    if is_count && printer.format != Format::Fields {
        return Err(Failure::args("--count-only is only for `--write-out=fields`"));
    }
    if printer.values_only && printer.format != Format::Simple {
        return Err(Failure::args("print-value-only is only for `--write-out=simple`"));
    }
    if printer.format == Format::Simple && !printer.values_only && !printer.hex && terminal::is_seen() {
        return print::out(aligned(&answer).as_bytes());
    }
    printer.range(&answer)
}

/// What the flags and arguments ask for.
pub(crate) fn request(parsed: &crate::flags::Parsed, args: &[String]) -> Outcome<RangeRequest> {
    let unknown = |text: String| Failure::new(code::BAD_FEATURE, text);
    let (key, range_end) = keys::range(parsed, args, "get")?;
    if parsed.switch("keys-only") && parsed.switch("count-only") {
        return Err(Failure::args("`--keys-only` and `--count-only` cannot be set at the same time, choose one"));
    }
    let serializable = match parsed.text("consistency") {
        "l" => false,
        "s" => true,
        other => return Err(unknown(format!("unknown consistency flag {other:?}"))),
    };
    let (order, by) = (parsed.text("order"), parsed.text("sort-by"));
    let sort_order = match order.to_ascii_uppercase().as_str() {
        "" => SortOrder::None,
        "ASCEND" => SortOrder::Ascend,
        "DESCEND" => SortOrder::Descend,
        _ => return Err(unknown(format!("bad sort order {order}"))),
    };
    let sort_target = match by.to_ascii_uppercase().as_str() {
        "" | "KEY" => SortTarget::Key,
        "CREATE" => SortTarget::Create,
        "MODIFY" => SortTarget::Mod,
        "VALUE" => SortTarget::Value,
        "VERSION" => SortTarget::Version,
        _ => return Err(unknown(format!("bad sort target {by}"))),
    };
    // Keys come in their order anyway; where one is asked for, a server that streams refuses.
    let sort_order = match (sort_target, sort_order) {
        (SortTarget::Key, SortOrder::Ascend) => SortOrder::None,
        _ => sort_order,
    };
    Ok(RangeRequest {
        key,
        range_end,
        limit: parsed.int("limit"),
        revision: parsed.int("rev"),
        sort_order: sort_order as i32,
        sort_target: sort_target as i32,
        serializable,
        keys_only: parsed.switch("keys-only"),
        count_only: parsed.switch("count-only"),
        min_mod_revision: parsed.int("min-mod-rev"),
        max_mod_revision: parsed.int("max-mod-rev"),
        min_create_revision: parsed.int("min-create-rev"),
        max_create_revision: parsed.int("max-create-rev"),
    })
}

/// For eyes: keys in colour, values in a column beside them.
fn aligned(answer: &RangeResponse) -> String {
    /// Keys longer than this do not push the column away.
    const KEY_CHARS_MAX: usize = 48;
    let shown = |bytes: &[u8]| match std::str::from_utf8(bytes) {
        Ok(text) if !text.chars().any(char::is_control) => text.to_string(),
        _ => go::quote(bytes),
    };
    let pairs: Vec<(String, String)> = answer.kvs.iter().map(|kv| (shown(&kv.key), shown(&kv.value))).collect();
    let width = pairs.iter().map(|(key, _)| key.chars().count()).max().unwrap_or_default().min(KEY_CHARS_MAX);
    let line = |(key, value): &(String, String)| {
        let space = " ".repeat(width.saturating_sub(key.chars().count()));
        format!("\x1b[36m{key}\x1b[0m{space}  {value}\n")
    };
    pairs.iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flags;

    #[test]
    fn what_is_asked_for_is_no_more_than_what_was_said() {
        let order = |words: &[&str]| {
            let words: Vec<String> = words.iter().map(ToString::to_string).collect();
            let request = request(&flags::parse(&words, FLAGS).expect("a command line"), &["k".into()]);
            request.map(|request| (request.sort_target(), request.sort_order())).expect("a request")
        };
        assert_eq!(order(&[]), (SortTarget::Key, SortOrder::None));
        assert_eq!(order(&["--sort-by=CREATE"]), (SortTarget::Create, SortOrder::None));
        assert_eq!(order(&["--sort-by=key", "--order=ascend"]), (SortTarget::Key, SortOrder::None));
        assert_eq!(order(&["--order=DESCEND"]), (SortTarget::Key, SortOrder::Descend));
        assert_eq!(order(&["--sort-by=VALUE", "--order=ASCEND"]), (SortTarget::Value, SortOrder::Ascend));
    }
}

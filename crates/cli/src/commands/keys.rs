//! The keys that `get`, `del` and `watch` are about: what their flags have in common.

use crate::failure::{Failure, Outcome};
use crate::flags::Parsed;
use crate::raw;
use bytes::Bytes;

/// Key and end of the range, from the arguments and `--prefix` and `--from-key`.
pub(crate) fn range(parsed: &Parsed, args: &[String], command: &str) -> Outcome<(Bytes, Bytes)> {
    let (prefix, from_key) = (parsed.switch("prefix"), parsed.switch("from-key"));
    if prefix && from_key {
        let text = "`--prefix` and `--from-key` cannot be set at the same time, choose one";
        return Err(Failure::args(text));
    }
    let Some(key) = args.first() else {
        return Err(missing(command));
    };
    let key = raw::bytes(key);
    if args.len() > 1 && (prefix || from_key) {
        let text = "too many arguments, only accept one argument when `--prefix` or `--from-key` is set";
        return Err(Failure::args(text));
    }
    let zero = Bytes::from_static(b"\0");
    // All keys: the empty one is written as the smallest there is.
    let whole = |key: &Bytes| if key.is_empty() { zero.clone() } else { key.clone() };
    Ok(match args.get(1) {
        Some(end) => (key, raw::bytes(end)),
        None if prefix => (whole(&key), client::prefix_end(&key)),
        None if from_key => (whole(&key), zero),
        None => (key, Bytes::new()),
    })
}

/// No key, or too many.
pub(super) fn missing(command: &str) -> Failure {
    Failure::args(format!("{command} command needs one argument as key and an optional argument as range_end"))
}

//! `txn`: reads the conditions, the operations if they hold, and the operations if they do not, each up to an empty line.

use super::{del, get, put, words};
use crate::command::{Command, Context, command};
use crate::failure::{Failure, Outcome, code};
use crate::flags::{self, Flag, PARSE_INT, switch};
use crate::print::fields::Lines;
use crate::{print, raw};
use api::etcdserverpb::compare::{CompareResult, CompareTarget, TargetUnion};
use api::etcdserverpb::request_op::Request;
use api::etcdserverpb::{Compare, RequestOp, TxnRequest};
use std::io::BufRead;

pub(crate) const COMMAND: Command = command("txn", "", "Compares, and does one of two lists of operations", run)
    .with(&[Flag { short: Some('i'), ..switch("interactive", "say what is to be typed") }]);

fn run(context: &Context) -> Outcome {
    if !context.args().is_empty() {
        return Err(Failure::args("txn command does not accept argument"));
    }
    let says = context.parsed.switch("interactive");
    let mut input = std::io::stdin().lock();
    let mut line = |title: Option<&str>| -> Outcome<Option<String>> {
        if let Some(title) = title.filter(|_| says) {
            print::out(format!("{title}\n").as_bytes())?;
        }
        // Every list ends with an empty line, the last one too.
        let mut line = Vec::new();
        if input.read_until(b'\n', &mut line)? == 0 || line.pop() != Some(b'\n') {
            return Err(invalid("EOF".into()));
        }
        Ok(Some(raw::text(&line).trim().to_string()).filter(|line| !line.is_empty()))
    };
    let compare = block(&mut line, "compares:", compare)?;
    let success = block(&mut line, "success requests (get, put, del):", operation)?;
    let failure = block(&mut line, "failure requests (get, put, del):", operation)?;
    let printer = context.printer()?;
    let client = context.client()?;
    let answer = context.call(client.txn(TxnRequest { compare, success, failure }))?;
    let simple = || printer.simple_txn(&answer);
    let fields = || {
        let mut lines = Lines::with_hex_ids(printer.hex);
        lines.txn(&answer);
        lines.end()
    };
    printer.answer("etcdserverpb.TxnResponse", &answer, Some(&simple), Some(&fields))
}

/// What the lines up to an empty one say; each is understood before the next is read.
fn block<T>(
    line: &mut impl FnMut(Option<&str>) -> Outcome<Option<String>>,
    title: &str,
    read: impl Fn(&str) -> Outcome<T>,
) -> Outcome<Vec<T>> {
    let mut found = Vec::new();
    let mut title = Some(title);
    while let Some(text) = line(title.take())? {
        found.push(read(&text)?);
    }
    Ok(found)
}

fn invalid(text: String) -> Failure {
    Failure::new(code::INVALID_INPUT, text)
}

/// A condition, `mod("key") > "0"`.
fn compare(line: &str) -> Outcome<Compare> {
    let malformed = || invalid(format!("malformed comparison: {line}"));
    let (target, rest) = line.split_once('(').ok_or_else(malformed)?;
    let (mut key, mut sign, mut value) = (String::new(), "", String::new());
    let mut read = || -> Option<()> {
        let (text, rest) = words::unquote(rest.trim_start())?;
        key = text;
        let rest = rest.strip_prefix(')')?.trim_start();
        let end = rest.find(char::is_whitespace)?;
        sign = &rest[..end];
        let (text, _) = words::unquote(rest[end..].trim_start())?;
        value = text;
        Some(())
    };
    if read().is_none() {
        return Err(invalid(format!("malformed comparison: {line}; got {target}({key:?}) {sign} {value:?}")));
    }
    let number = || flags::decimal(&value).map_err(|_| invalid(format!("invalid txn compare request: {line}")));
    let (target, target_union) = match target {
        "ver" | "version" => (CompareTarget::Version, TargetUnion::Version(number()?)),
        "c" | "create" => (CompareTarget::Create, TargetUnion::CreateRevision(number()?)),
        "m" | "mod" => (CompareTarget::Mod, TargetUnion::ModRevision(number()?)),
        "val" | "value" => (CompareTarget::Value, TargetUnion::Value(raw::bytes(&value))),
        "lease" => {
            let lease = flags::hex(&value, PARSE_INT);
            let lease = lease.map_err(|_| invalid(format!("invalid txn compare request: {line}")))?;
            (CompareTarget::Lease, TargetUnion::Lease(lease))
        }
        other => return Err(invalid(format!("malformed comparison: {line} (unknown target {other})"))),
    };
    let result = match sign {
        "=" => CompareResult::Equal,
        "!=" => CompareResult::NotEqual,
        ">" => CompareResult::Greater,
        "<" => CompareResult::Less,
        _ => return Err(invalid(format!("invalid txn compare request: {line}"))),
    };
    let (result, target, target_union) = (result as i32, target as i32, Some(target_union));
    Ok(Compare { result, target, key: raw::bytes(&key), target_union, ..Default::default() })
}

/// An operation, as its command is written.
fn operation(line: &str) -> Outcome<RequestOp> {
    let malformed = || invalid(format!("invalid txn compare request: {line}"));
    let words = words::split(line).ok_or_else(|| invalid("invalid syntax".into()))?;
    if words.len() < 2 {
        return Err(malformed());
    }
    let unknown = || invalid(format!("invalid txn request: {line}"));
    let read = |known: &[Flag]| flags::parse(&words[1..], known).map_err(|_| unknown());
    let request = match words[0].as_str() {
        "get" => {
            let parsed = read(get::FLAGS)?;
            Request::RequestRange(get::request(&parsed, &parsed.args)?)
        }
        "put" => {
            let parsed = read(put::FLAGS)?;
            Request::RequestPut(put::request(&parsed, &parsed.args, false)?)
        }
        "del" => {
            let parsed = read(del::FLAGS)?;
            Request::RequestDeleteRange(del::request(&parsed, &parsed.args)?)
        }
        _ => return Err(unknown()),
    };
    Ok(RequestOp { request: Some(request) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conditions_are_read() {
        let found = compare(r#"mod("a b") > "0""#).expect("a condition");
        assert_eq!((&found.key[..], found.target_union), (&b"a b"[..], Some(TargetUnion::ModRevision(0))));
        for line in [r#"val( "a") = "2""#, r#"val(`a`)  =  "2" x"#] {
            assert_eq!(compare(line).map(|found| found.key), Ok("a".into()), "{line}");
        }
        let refused = |line: &str| compare(line).expect_err("refused").text;
        assert_eq!(refused("foo"), "malformed comparison: foo");
        assert_eq!(refused("mod(a) >> 0"), r#"malformed comparison: mod(a) >> 0; got mod("")  """#);
        assert_eq!(refused(r#"size("a") = "1""#), r#"malformed comparison: size("a") = "1" (unknown target size)"#);
    }

    #[test]
    fn operations_are_read() {
        let Some(Request::RequestPut(put)) = operation(r#"put k "a value" --lease=1f"#).expect("a put").request else {
            panic!()
        };
        assert_eq!((&put.value[..], put.lease), (&b"a value"[..], 31));
        assert_eq!(operation(r#"put k "\q""#).expect_err("refused").text, "invalid syntax");
        assert_eq!(operation("del k y z").expect_err("refused").code, 128);
        assert_eq!(operation("foo").expect_err("refused").text, "invalid txn compare request: foo");
        assert_eq!(operation("foo a").expect_err("refused").text, "invalid txn request: foo a");
        assert_eq!(operation("get a --x").expect_err("refused").text, "invalid txn request: get a --x");
    }
}

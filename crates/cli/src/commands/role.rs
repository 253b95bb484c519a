//! `role`.

use crate::command::{Command, Context, command, group};
use crate::failure::{Failure, Outcome};
use crate::flags::{Flag, Parsed, switch};
use crate::print::Printer;
use crate::print::fields::Lines;
use crate::raw;
use api::authpb::Permission;
use api::authpb::permission::Type;
use api::etcdserverpb::*;
use bytes::Bytes;

const RANGE: &[Flag] =
    &[switch("prefix", "all keys that begin with the given one"), switch("from-key", "all keys from the given one on")];

pub(crate) const COMMAND: Command = group(
    "role",
    "Roles, and what they permit",
    &[
        command("add", "<name>", "Adds a role", add),
        command("delete", "<name>", "Deletes a role", delete),
        command("get", "<name>", "Shows what a role permits", get),
        command("list", "", "Lists the roles", list),
        command("grant-permission", "<role> read|write|readwrite <key> [endkey]", "Permits keys to a role", grant)
            .with(RANGE),
        command("revoke-permission", "<role> <key> [endkey]", "Takes a permission from a role", revoke).with(RANGE),
    ],
);

fn name(context: &Context, command: &str) -> Outcome<String> {
    let [name] = context.args() else {
        return Err(Failure::args(format!("role {command} command requires role name as its argument")));
    };
    raw::string(name)
}

fn add(context: &Context) -> Outcome {
    let name = name(context, "add")?;
    let printer = context.printer()?;
    let client = context.client()?;
    let answer = context.call(client.role_add(AuthRoleAddRequest { name: name.clone() }))?;
    let text = format!("Role {name} created");
    printer.done("etcdserverpb.AuthRoleAddResponse", &answer, answer.header.as_ref(), &text)
}

fn delete(context: &Context) -> Outcome {
    let name = name(context, "delete")?;
    let printer = context.printer()?;
    let client = context.client()?;
    let answer = context.call(client.role_delete(AuthRoleDeleteRequest { role: name.clone() }))?;
    let text = format!("Role {name} deleted");
    printer.done("etcdserverpb.AuthRoleDeleteResponse", &answer, answer.header.as_ref(), &text)
}

fn get(context: &Context) -> Outcome {
    let name = name(context, "get")?;
    let printer = context.printer()?;
    let client = context.client()?;
    let answer = context.call(client.role_get(AuthRoleGetRequest { role: name.clone() }))?;
    show(printer, &name, &answer)
}

/// Prints what a role permits.
pub(super) fn show(printer: Printer, name: &str, answer: &AuthRoleGetResponse) -> Outcome {
    let simple = || simple(name, answer);
    let fields = || {
        let mut lines = Lines::with_hex_ids(printer.hex);
        lines.header(answer.header.as_ref());
        for permission in &answer.perm {
            // The second space is etcd's.
            lines.line("PermType", format_args!(" {}", permission.perm_type().as_str_name()));
            lines.quoted("Key", &permission.key).quoted("RangeEnd", &permission.range_end);
        }
        lines.end()
    };
    printer.answer("etcdserverpb.AuthRoleGetResponse", answer, Some(&simple), Some(&fields))
}

fn simple(name: &str, answer: &AuthRoleGetResponse) -> Vec<u8> {
    let mut out = format!("Role {name}\n").into_bytes();
    let is_unbounded = name == "root" && answer.perm.is_empty();
    for (heading, kind) in [("KV Read:", Type::Read), ("KV Write:", Type::Write)] {
        out.extend_from_slice(heading.as_bytes());
        out.push(b'\n');
        if is_unbounded {
            out.extend_from_slice(b"\t[, <open ended>\n");
        }
        for one in answer.perm.iter().filter(|one| one.perm_type() == kind || one.perm_type() == Type::Readwrite) {
            out.push(b'\t');
            range(&mut out, &one.key, &one.range_end);
            if !one.key.is_empty() && !one.range_end.is_empty() && client::prefix_end(&one.key) == one.range_end {
                out.extend_from_slice(b" (prefix ");
                out.extend_from_slice(&one.key);
                out.push(b')');
            }
            out.push(b'\n');
        }
    }
    out
}

/// A key, or a range of keys.
fn range(out: &mut Vec<u8>, key: &[u8], end: &[u8]) {
    let parts: &[&[u8]] = match end {
        b"" => &[key],
        b"\0" => &[b"[", key, b", <open ended>"],
        end => &[b"[", key, b", ", end, b")"],
    };
    out.extend_from_slice(&parts.concat());
}

fn list(context: &Context) -> Outcome {
    if !context.args().is_empty() {
        return Err(Failure::args("role list command requires no arguments"));
    }
    let printer = context.printer()?;
    let client = context.client()?;
    let answer = context.call(client.role_list(AuthRoleListRequest {}))?;
    let simple = || answer.roles.iter().map(|role| format!("{role}\n")).collect::<String>().into_bytes();
    let fields = || {
        let mut lines = Lines::with_hex_ids(printer.hex);
        let roles: Vec<String> = answer.roles.iter().map(|role| crate::print::go::quote(role.as_bytes())).collect();
        // Without roles there is no space after the colon.
        let lines = lines.header(answer.header.as_ref());
        let line: String = roles.iter().map(|role| format!(" {role}")).collect();
        lines.text(&format!("\"Roles\" :{line}\n"));
        std::mem::replace(lines, Lines::new()).end()
    };
    printer.answer("etcdserverpb.AuthRoleListResponse", &answer, Some(&simple), Some(&fields))
}

fn grant(context: &Context) -> Outcome {
    let [role, kind, keys @ ..] = context.args() else { return Err(few_to_grant()) };
    if keys.is_empty() {
        return Err(few_to_grant());
    }
    let perm_type = Type::from_str_name(&kind.to_ascii_uppercase())
        .ok_or_else(|| Failure::args(format!("invalid permission type: {kind}")))?;
    let (key, range_end) = permitted(&context.parsed, keys)?;
    let printer = context.printer()?;
    let client = context.client()?;
    let role = raw::string(role)?;
    let perm = Some(Permission { perm_type: perm_type as i32, key, range_end });
    let request = AuthRoleGrantPermissionRequest { name: role.clone(), perm };
    let answer = context.call(client.role_grant_permission(request))?;
    let text = format!("Role {role} updated");
    printer.done("etcdserverpb.AuthRoleGrantPermissionResponse", &answer, answer.header.as_ref(), &text)
}

fn few_to_grant() -> Failure {
    Failure::args("role grant command requires role name, permission type, and key [endkey] as its argument")
}

fn revoke(context: &Context) -> Outcome {
    let few = || Failure::args("role revoke-permission command requires role name and key [endkey] as its argument");
    let (role, keys) = context.args().split_first().ok_or_else(few)?;
    let named = keys.first().ok_or_else(few)?;
    let (key, range_end) = permitted(&context.parsed, keys)?;
    let printer = context.printer()?;
    let client = context.client()?;
    let role = raw::string(role)?;
    let request = AuthRoleRevokePermissionRequest { role: role.clone(), key, range_end: range_end.clone() };
    let answer = context.call(client.role_revoke_permission(request))?;
    let simple = || {
        let what: &[u8] = if range_end.is_empty() { b"key " } else { b"range " };
        let mut out = [b"Permission of ", what].concat();
        range(&mut out, &raw::bytes(named), &range_end);
        out.extend_from_slice(format!(" is revoked from role {role}\n").as_bytes());
        out
    };
    let fields = || Lines::of_header(printer.hex, answer.header.as_ref());
    printer.answer("etcdserverpb.AuthRoleRevokePermissionResponse", &answer, Some(&simple), Some(&fields))
}

/// Key and end of the range that a permission is for.
fn permitted(parsed: &Parsed, keys: &[String]) -> Outcome<(Bytes, Bytes)> {
    let (prefix, from_key) = (parsed.switch("prefix"), parsed.switch("from-key"));
    let zero = Bytes::from_static(b"\0");
    let both = || Failure::args("--from-key and --prefix flags are mutually exclusive");
    let key = raw::bytes(&keys[0]);
    if key.is_empty() {
        if prefix && from_key {
            return Err(both());
        }
        return Ok((zero.clone(), if prefix || from_key { zero } else { Bytes::new() }));
    }
    let end = match keys.get(1) {
        None if prefix && from_key => return Err(both()),
        None if prefix => client::prefix_end(&key),
        None if from_key => zero,
        None => Bytes::new(),
        Some(_) if prefix => return Err(Failure::args("unexpected endkey argument with --prefix flag")),
        Some(_) if from_key => return Err(Failure::args("unexpected endkey argument with --from-key flag")),
        Some(end) => raw::bytes(end),
    };
    Ok((key, end))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flags;

    #[test]
    fn ranges_are_those_of_the_flags() {
        let asked = |line: &str| {
            let words: Vec<String> = line.split_whitespace().map(|word| word.replace('_', "")).collect();
            let parsed = flags::parse(&words, RANGE).expect("a command line");
            permitted(&parsed, &parsed.args).map_err(|failure| failure.text)
        };
        let is = |key: &'static [u8], end: &'static [u8]| Ok((Bytes::from_static(key), Bytes::from_static(end)));
        assert_eq!(asked("a"), is(b"a", b""));
        assert_eq!(asked("a c"), is(b"a", b"c"));
        assert_eq!(asked("a --prefix"), is(b"a", b"b"));
        assert_eq!(asked("a --from-key"), is(b"a", b"\0"));
        assert_eq!(asked("_"), is(b"\0", b""));
        assert_eq!(asked("_ --prefix"), is(b"\0", b"\0"));
        for refused in ["a b --prefix", "a b --from-key", "a --prefix --from-key", "_ --prefix --from-key"] {
            assert!(asked(refused).is_err(), "{refused}");
        }
    }

    #[test]
    fn permissions_are_shown_as_etcds_tool_shows_them() {
        let permission = |kind: Type, key: &'static str, end: &'static str| Permission {
            perm_type: kind as i32,
            key: key.into(),
            range_end: end.into(),
        };
        let perm = vec![
            permission(Type::Read, "a", ""),
            permission(Type::Write, "b", "d"),
            permission(Type::Readwrite, "p", "q"),
            permission(Type::Read, "z", "\0"),
        ];
        let text = String::from_utf8(simple("r", &AuthRoleGetResponse { perm, ..Default::default() }));
        let wanted = "Role r\nKV Read:\n\ta\n\t[p, q) (prefix p)\n\t[z, <open ended>\nKV Write:\n\t[b, d)\n\t[p, q) (prefix p)\n";
        assert_eq!(text.as_deref(), Ok(wanted));
        let root = String::from_utf8(simple("root", &AuthRoleGetResponse::default()));
        assert_eq!(root.as_deref(), Ok("Role root\nKV Read:\n\t[, <open ended>\nKV Write:\n\t[, <open ended>\n"));
    }
}

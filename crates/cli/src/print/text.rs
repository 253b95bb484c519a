//! Messages in protobuf's text form, on one line, as etcd's tools print requests of the log: fields in their order, with the header
//! first, under their names in the `.proto` file, zero values left out, enumerations by name. Passwords are not shown.

use super::go::{put, quote};
use super::json::{Fields, Value, Varints};
use api::Message as Encode;
use api::schema::{Field, Kind, Message};

/// Fields that nobody else is to read, and what is shown in their place.
const SECRETS: [&str; 3] = ["password", "hashedPassword", "simple_token"];
const REMOVED: &str = "\"<value removed>\"";

/// A message of the type `name`.
pub(crate) fn message(name: &str, value: &impl Encode) -> String {
    let mut out = String::new();
    match Message::find(name) {
        Some(schema) => write(&mut out, schema, &value.encode_to_vec()),
        None => unreachable!("`{name}` is a message of the API"),
    }
    out
}

fn write(out: &mut String, schema: &'static Message, bytes: &[u8]) {
    let mut is_first = true;
    let mut all: Vec<(&'static Field, Value<'_>)> =
        Fields(bytes).filter_map(|(number, found)| Some((schema.by_number(number)?, found))).collect();
    // It is declared first, whatever its number.
    all.sort_by_key(|(field, _)| field.name != "header");
    for (field, found) in all {
        let values = match (&field.kind, found) {
            // Numbers of a list may come in one piece.
            (Kind::String | Kind::Bytes | Kind::Message(_), found) => vec![found],
            (_, Value::Bytes(packed)) => Varints(packed).map(Value::Number).collect(),
            (_, found) => vec![found],
        };
        for one in &values {
            if !std::mem::take(&mut is_first) {
                out.push(' ');
            }
            put(out, format_args!("{}:", field.name));
            value(out, field, one);
        }
    }
}

fn value(out: &mut String, field: &Field, value: &Value<'_>) {
    match (&field.kind, value) {
        (Kind::Message(schema), Value::Bytes(bytes)) => {
            out.push('{');
            write(out, schema, bytes);
            out.push('}');
        }
        (_, Value::Bytes(_)) if SECRETS.contains(&field.name) => out.push_str(REMOVED),
        (_, Value::Bytes(bytes)) => out.push_str(&quote(bytes)),
        (Kind::Enum(names), Value::Number(number)) => match names.name(*number as i32) {
            Some(name) => out.push_str(name),
            None => put(out, format_args!("{}", *number as i32)),
        },
        (Kind::Bool, Value::Number(number)) => out.push_str(if *number == 0 { "false" } else { "true" }),
        (Kind::Uint64 | Kind::Uint32, Value::Number(number)) => put(out, format_args!("{number}")),
        (_, Value::Number(number)) => put(out, format_args!("{}", *number as i64)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use api::etcdserverpb::*;

    fn shown(request: &InternalRaftRequest) -> String {
        message("etcdserverpb.InternalRaftRequest", request)
    }

    #[test]
    fn requests_look_as_protobuf_writes_them() {
        let header = Some(RequestHeader { id: 7, username: "root".into(), auth_revision: 2 });
        let put =
            Some(PutRequest { key: "a\n".into(), value: b"\xff".to_vec().into(), lease: -1, ..Default::default() });
        let request = InternalRaftRequest { header: header.clone(), put, ..Default::default() };
        assert_eq!(
            shown(&request),
            r#"header:{ID:7 username:"root" auth_revision:2} put:{key:"a\n" value:"\xff" lease:-1}"#
        );
        let compare = Compare { result: 1, target: 3, key: "k".into(), ..Default::default() };
        let delete =
            request_op::Request::RequestDeleteRange(DeleteRangeRequest { key: "k".into(), ..Default::default() });
        let txn = TxnRequest {
            compare: vec![compare],
            success: vec![RequestOp { request: Some(delete) }, RequestOp { request: None }],
            failure: Vec::new(),
        };
        let request = InternalRaftRequest { txn: Some(txn), ..Default::default() };
        assert_eq!(
            shown(&request),
            r#"txn:{compare:{result:GREATER target:VALUE key:"k"} success:{request_delete_range:{key:"k"}} success:{}}"#
        );
    }

    #[test]
    fn passwords_are_not_shown() {
        let add = AuthUserAddRequest {
            name: "u".into(),
            password: "secret".into(),
            hashed_password: "hash".into(),
            ..Default::default()
        };
        let text = shown(&InternalRaftRequest { auth_user_add: Some(add), ..Default::default() });
        assert!(text.contains(r#"name:"u""#) && !text.contains("secret") && !text.contains("\"hash\""), "{text}");
    }
}

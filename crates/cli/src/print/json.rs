//! Messages as Go's `encoding/json` writes the structures that etcd's tools make of them: fields in the order of the `.proto` file under
//! their names there, zero values left out, numbers as numbers, enumerations by number, bytes in base64. A `oneof` is an object under its
//! own name.

use super::go::{base64, put};
use api::Message as Encode;
use api::schema::{Field, Kind, Message};
use api::varint;
use std::fmt::Write;

/// How a message is shown.
#[derive(Clone, Copy, Default)]
pub(crate) struct Style {
    /// IDs as texts in hexadecimal.
    pub(crate) hex_ids: bool,
}

/// A message of the type `name`.
pub(crate) fn message(name: &str, value: &impl Encode, style: Style) -> String {
    let mut out = String::new();
    match Message::find(name) {
        Some(schema) => write(&mut out, schema, &value.encode_to_vec(), style),
        None => unreachable!("`{name}` is a message of the API"),
    }
    out
}

/// A text with Go's escapes.
pub(crate) fn text(out: &mut String, text: &str) {
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{8}' => out.push_str("\\b"),
            '\u{c}' => out.push_str("\\f"),
            '<' | '>' | '&' | '\u{2028}' | '\u{2029}' => put(out, format_args!("\\u{:04x}", u32::from(c))),
            c if c < ' ' => put(out, format_args!("\\u{:04x}", u32::from(c))),
            c => out.push(c),
        }
    }
    out.push('"');
}

/// One value as it came over the wire.
pub(super) enum Value<'a> {
    Number(u64),
    Bytes(&'a [u8]),
}

fn write(out: &mut String, schema: &'static Message, bytes: &[u8], style: Style) {
    let mut found: Vec<(&'static Field, Vec<Value<'_>>)> = Vec::new();
    for (number, value) in Fields(bytes) {
        let Some(field) = schema.by_number(number) else { continue };
        let place = match found.iter().position(|(known, _)| known.number == number) {
            Some(place) => place,
            None => {
                found.push((field, Vec::new()));
                found.len() - 1
            }
        };
        let values = &mut found[place].1;
        match (&field.kind, value) {
            // Numbers of a list may come in one piece.
            (Kind::String | Kind::Bytes | Kind::Message(_), value) => values.push(value),
            (_, Value::Bytes(packed)) => values.extend(Varints(packed).map(Value::Number)),
            (_, value) => values.push(value),
        }
    }
    found.sort_by_key(|(field, _)| field.number);
    out.push('{');
    let mut is_first = true;
    for (field, values) in &found {
        let is_zero = matches!(values[..], [Value::Number(0)] | [Value::Bytes([])]) && !is_message(field);
        if values.is_empty() || (is_zero && !field.repeated && field.oneof.is_none()) {
            continue;
        }
        if !std::mem::take(&mut is_first) {
            out.push(',');
        }
        let group = field.oneof.map(|path| path.rsplit('.').next().unwrap_or(path));
        if let Some(group) = group {
            put(out, format_args!("\"{}\":{{", go_name(group)));
        }
        put(out, format_args!("\"{}\":", field.name));
        if field.repeated {
            out.push('[');
        }
        for (place, one) in values.iter().enumerate() {
            if place > 0 && field.repeated {
                out.push(',');
            }
            // Of several where one is meant, the last counts.
            if field.repeated || place + 1 == values.len() {
                value(out, field, one, style);
            }
        }
        if field.repeated {
            out.push(']');
        }
        if group.is_some() {
            out.push('}');
        }
    }
    out.push('}');
}

fn is_message(field: &Field) -> bool {
    matches!(field.kind, Kind::Message(_))
}

/// A name of a `.proto` file as Go spells it: `target_union` is `TargetUnion`.
fn go_name(name: &str) -> String {
    let parts = name.split('_').filter(|part| !part.is_empty());
    parts.map(|part| part[..1].to_ascii_uppercase() + &part[1..]).collect()
}

fn value(out: &mut String, field: &Field, value: &Value<'_>, style: Style) {
    let is_id = style.hex_ids && matches!(field.name, "cluster_id" | "member_id" | "ID" | "leader" | "memberID");
    match (&field.kind, value) {
        (Kind::Message(schema), Value::Bytes(bytes)) => write(out, schema, bytes, style),
        (Kind::String, Value::Bytes(bytes)) => text(out, &String::from_utf8_lossy(bytes)),
        (_, Value::Bytes(bytes)) => put(out, format_args!("\"{}\"", base64(bytes))),
        (_, Value::Number(number)) if is_id => put(out, format_args!("\"{number:x}\"")),
        (Kind::Bool, Value::Number(number)) => out.push_str(if *number == 0 { "false" } else { "true" }),
        (Kind::Uint64 | Kind::Uint32, Value::Number(number)) => put(out, format_args!("{number}")),
        (_, Value::Number(number)) => put(out, format_args!("{}", *number as i64)),
    }
}

/// The fields of a message. What we have encoded ourselves is well formed.
pub(super) struct Fields<'a>(pub(super) &'a [u8]);

impl<'a> Iterator for Fields<'a> {
    type Item = (u32, Value<'a>);

    fn next(&mut self) -> Option<(u32, Value<'a>)> {
        let tag = varint::take(&mut self.0)?;
        let number = (tag >> 3) as u32;
        match tag & 7 {
            0 => Some((number, Value::Number(varint::take(&mut self.0)?))),
            2 => {
                let len = varint::take(&mut self.0)? as usize;
                let (value, rest) = self.0.split_at_checked(len)?;
                self.0 = rest;
                Some((number, Value::Bytes(value)))
            }
            other => unreachable!("the API has no field of wire type {other}"),
        }
    }
}

pub(super) struct Varints<'a>(pub(super) &'a [u8]);

impl Iterator for Varints<'_> {
    type Item = u64;

    fn next(&mut self) -> Option<u64> {
        varint::take(&mut self.0)
    }
}

/// Builds an object field by field, for what is no message.
#[derive(Default)]
pub(crate) struct Object(String);

impl Object {
    /// Continues after the fields of another object, which has no end yet.
    pub(crate) fn begin(text: &str) -> Object {
        Object(if text == "{" { String::new() } else { text.into() })
    }

    /// A field whose value is written already.
    pub(crate) fn raw(mut self, name: &str, value: impl std::fmt::Display) -> Object {
        self.0.push(if self.0.is_empty() { '{' } else { ',' });
        text(&mut self.0, name);
        let _ = write!(self.0, ":{value}");
        self
    }

    pub(crate) fn text(self, name: &str, value: &str) -> Object {
        let mut quoted = String::new();
        text(&mut quoted, value);
        self.raw(name, quoted)
    }

    pub(crate) fn end(mut self) -> String {
        if self.0.is_empty() {
            self.0.push('{');
        }
        self.0 + "}"
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use api::etcdserverpb::*;
    use api::mvccpb::KeyValue;

    #[test]
    fn messages_look_as_gos_structures() {
        let header = Some(ResponseHeader { cluster_id: u64::MAX, member_id: 2, revision: 3, raft_term: 0 });
        let kv = KeyValue { key: "a".into(), lease: -1, ..Default::default() };
        let answer = RangeResponse { header, kvs: vec![kv.clone(), kv], more: true, count: 0 };
        assert_eq!(
            message("etcdserverpb.RangeResponse", &answer, Style::default()),
            r#"{"header":{"cluster_id":18446744073709551615,"member_id":2,"revision":3},"kvs":[{"key":"YQ==","lease":-1},{"key":"YQ==","lease":-1}],"more":true}"#
        );
        let put = response_op::Response::ResponsePut(PutResponse::default());
        let txn = TxnResponse { responses: vec![ResponseOp { response: Some(put) }], ..Default::default() };
        let text = message("etcdserverpb.TxnResponse", &txn, Style::default());
        assert_eq!(text, r#"{"responses":[{"Response":{"response_put":{}}}]}"#);
        let member = Member { id: 255, name: "<n>".into(), ..Default::default() };
        let text = message("etcdserverpb.Member", &member, Style { hex_ids: true });
        assert_eq!(text, r#"{"ID":"ff","name":"\u003cn\u003e"}"#);
    }
}

//! The same messages as JSON, and mutations of them.

use crate::choices::Choices;
use crate::world::World;
use api::schema::{Field, Kind, Message};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;

const DEPTH_MAX: usize = 6;
/// Brackets that are opened one within the other, at most.
const BRACKETS_MAX: usize = 1 << 14;

/// What breaks texts.
const PIECES: [&str; 28] = [
    "{",
    "}",
    "[",
    "]",
    "\"",
    ",",
    ":",
    "\\",
    "\\u",
    "\\ud800",
    "\\udfff\\ud800",
    "\\u0000",
    "null",
    "true",
    "1e999",
    "-0",
    "-",
    "0x1",
    "1.5",
    "99999999999999999999",
    "\"\":",
    "{}",
    "[]",
    "\u{feff}",
    "\u{0}",
    "\r\n",
    "/**/",
    "\"a\":{\"a\":",
];

/// A valid object.
pub(crate) fn build(message: &Message, world: &World, choices: &mut Choices<'_>) -> Vec<u8> {
    let mut text = Vec::new();
    put_object(message, world, choices, DEPTH_MAX, &mut text);
    text
}

fn put_object(message: &Message, world: &World, choices: &mut Choices<'_>, depth: usize, to: &mut Vec<u8>) {
    to.push(b'{');
    let mut is_first = true;
    let count = if message.fields.is_empty() { 0 } else { choices.below(6) };
    for _ in 0..count {
        let field = &message.fields[choices.below(message.fields.len())];
        if !std::mem::take(&mut is_first) {
            to.push(b',');
        }
        to.extend_from_slice(
            format!("\"{}\":", if choices.chance(128) { field.name } else { field.json_name }).as_bytes(),
        );
        if field.repeated {
            to.push(b'[');
            for number in 0..choices.below(4) {
                if number > 0 {
                    to.push(b',');
                }
                put_value(field, world, choices, depth, to);
            }
            to.push(b']');
        } else {
            put_value(field, world, choices, depth, to);
        }
    }
    to.push(b'}');
}

fn put_value(field: &Field, world: &World, choices: &mut Choices<'_>, depth: usize, to: &mut Vec<u8>) {
    let text = match field.kind {
        Kind::Bool => choices.pick(&["true", "false", "null"]).to_string(),
        Kind::Int32 | Kind::Int64 | Kind::Uint32 | Kind::Uint64 => {
            let number = world.number(field.name, choices) as i64;
            if choices.chance(128) { format!("\"{number}\"") } else { number.to_string() }
        }
        Kind::Enum(table) => {
            let (name, number) =
                table.values.get(choices.below(table.values.len() + 1)).copied().unwrap_or(("NONE", 99));
            if choices.chance(128) { format!("\"{name}\"") } else { number.to_string() }
        }
        Kind::Bytes => format!("\"{}\"", STANDARD.encode(world.bytes(field.name, choices))),
        Kind::String => {
            let text = world.bytes(field.name, choices);
            let plain: String = text
                .iter()
                .filter(|byte| byte.is_ascii_graphic() && !b"\"\\".contains(byte))
                .map(|byte| char::from(*byte))
                .collect();
            format!("\"{plain}\"")
        }
        Kind::Message(_) if depth == 0 => "{}".into(),
        Kind::Message(inner) => return put_object(inner, world, choices, depth - 1, to),
    };
    to.extend_from_slice(text.as_bytes());
}

/// A text that is as it was most of the time, and bent otherwise.
pub(crate) fn bend(mut text: Vec<u8>, choices: &mut Choices<'_>) -> Vec<u8> {
    if !choices.chance(112) {
        return text;
    }
    for _ in 0..=choices.below(3) {
        let at = choices.below(text.len() + 1);
        match choices.byte() % 7 {
            0 => text.truncate(at),
            1 => text = choices.pick(&PIECES).as_bytes().to_vec(),
            2 => drop(text.splice(at..at, choices.pick(&PIECES).bytes())),
            3 => {
                if let Some(byte) = text.get_mut(at) {
                    *byte = choices.byte();
                }
            }
            4 => {
                let end = (at + choices.below(16)).min(text.len());
                text.drain(at..end);
            }
            5 => {
                let opening = choices.pick(&["[", "{\"a\":", "{\"success\":[{\"requestTxn\":", "[{\"key\":"]);
                let many = opening.repeat((BRACKETS_MAX >> (choices.byte() % 14)).max(1));
                text.splice(at..at, many.into_bytes());
            }
            _ => {
                let end = (at + choices.below(64)).min(text.len());
                let again = text[at..end].repeat(1 << (choices.byte() % 9));
                text.splice(at..at, again);
            }
        }
    }
    text
}

//! Messages of the API by their schema: valid ones, and mutations of them.

use crate::choices::Choices;
use crate::world::World;
use api::schema::{Field, Kind, Message};
use api::varint;

/// Messages within messages that are made at most.
const DEPTH_MAX: usize = 6;
/// Messages put around one, at most.
const NEST_MAX: usize = 4096;
/// Bytes of one message, so that a script cannot make the fuzzer itself large.
const MESSAGE_BYTES_MAX: usize = 3 << 20;

/// A valid message.
pub(crate) fn build(message: &Message, world: &World, choices: &mut Choices<'_>) -> Vec<u8> {
    let mut bytes = Vec::new();
    put_fields(message, world, choices, DEPTH_MAX, &mut bytes);
    bytes
}

fn put_fields(message: &Message, world: &World, choices: &mut Choices<'_>, depth: usize, to: &mut Vec<u8>) {
    if message.fields.is_empty() {
        return;
    }
    // The first fields of most messages are what they cannot do without.
    for field in message.fields.iter().take(2) {
        if !choices.chance(32) {
            put_field(field, world, choices, depth, to);
        }
    }
    for _ in 0..choices.below(6) {
        put_field(&message.fields[choices.below(message.fields.len())], world, choices, depth, to);
    }
}

fn put_field(field: &Field, world: &World, choices: &mut Choices<'_>, depth: usize, to: &mut Vec<u8>) {
    let times = if field.repeated { choices.below(4) } else { 1 };
    for _ in 0..times {
        match field.kind {
            Kind::Bool => varint::put_number(to, field.number, u64::from(choices.byte() & 1)),
            Kind::Int32 | Kind::Int64 | Kind::Uint32 | Kind::Uint64 => {
                varint::put_number(to, field.number, world.number(field.name, choices));
            }
            Kind::Enum(table) => {
                let known =
                    table.values.get(choices.below(table.values.len() + 1)).map(|(_, value)| *value as i64 as u64);
                let value = known.unwrap_or_else(|| choices.number());
                varint::put_number(to, field.number, value);
            }
            Kind::String | Kind::Bytes => varint::put_bytes(to, field.number, &world.bytes(field.name, choices)),
            Kind::Message(_) if depth == 0 || to.len() > MESSAGE_BYTES_MAX => {}
            Kind::Message(inner) => {
                let mut bytes = Vec::new();
                put_fields(inner, world, choices, depth - 1, &mut bytes);
                varint::put_bytes(to, field.number, &bytes);
            }
        }
    }
}

/// Any fields at all, for methods whose messages nobody knows.
pub(crate) fn unknown(world: &World, choices: &mut Choices<'_>) -> Vec<u8> {
    let mut bytes = Vec::new();
    for _ in 0..choices.below(4) {
        let number = u32::from(choices.byte() % 32);
        match choices.byte() % 2 {
            0 => varint::put_number(&mut bytes, number, world.number("", choices)),
            _ => varint::put_bytes(&mut bytes, number, &world.bytes("", choices)),
        }
    }
    bytes
}

/// A transaction in the success branch of a transaction, and so on.
pub(crate) fn nested_transaction(times: usize, innermost: &[u8]) -> Vec<u8> {
    let (mut bytes, mut again) = (innermost.to_vec(), Vec::new());
    for _ in 0..times.min(NEST_MAX) {
        for number in [4, 2] {
            again.clear();
            varint::put_bytes(&mut again, number, &bytes);
            std::mem::swap(&mut bytes, &mut again);
        }
    }
    bytes
}

/// A message that is as it was most of the time, and bent otherwise.
pub(crate) fn bend(mut bytes: Vec<u8>, choices: &mut Choices<'_>) -> Vec<u8> {
    if !choices.chance(80) {
        return bytes;
    }
    for _ in 0..=choices.below(3) {
        bend_once(&mut bytes, choices);
    }
    bytes.truncate(MESSAGE_BYTES_MAX);
    bytes
}

fn bend_once(bytes: &mut Vec<u8>, choices: &mut Choices<'_>) {
    let at = choices.below(bytes.len() + 1);
    match choices.byte() % 10 {
        0 => bytes.truncate(at),
        1 => {
            if let Some(byte) = bytes.get_mut(at) {
                *byte ^= 1 << (choices.byte() % 8);
            }
        }
        2 => {
            if let Some(byte) = bytes.get_mut(at) {
                *byte = choices.byte();
            }
        }
        // A length or number that is longer than it needs to be, or than it may be.
        3 => drop(bytes.splice(at..at, vec![0x80 | choices.byte(); choices.below(12)])),
        4 => {
            let mut huge = Vec::new();
            varint::put(&mut huge, choices.number());
            bytes.splice(at..at, huge);
        }
        // Groups, and types that do not exist.
        5 => bytes.insert(at, choices.byte() << 3 | choices.pick(&[0, 1, 3, 4, 5, 6, 7])),
        6 => {
            let end = (at + choices.below(64)).min(bytes.len());
            let again = bytes[at..end].repeat(1 << (choices.byte() % 8));
            bytes.splice(at..at, again);
        }
        7 => {
            let count = choices.below(8);
            let inserted = choices.take(count).to_vec();
            bytes.splice(at..at, inserted);
        }
        // One field around all of it, again and again.
        8 if bytes.len() < 64 << 10 => {
            let number = choices.pick(&[1, 2, 3, 4, 7]);
            for _ in 0..1_usize << (choices.byte() % 11) {
                let mut around = Vec::with_capacity(bytes.len() + 8);
                varint::put_bytes(&mut around, number, bytes);
                *bytes = around;
            }
        }
        _ => {
            let end = (at + choices.below(16)).min(bytes.len());
            bytes.drain(at..end);
        }
    }
}

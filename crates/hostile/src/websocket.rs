//! Frames of RFC 6455.

use crate::choices::Choices;

/// A frame of a client: masked, unless the choices say otherwise.
pub(crate) fn frame(payload: &[u8], choices: &mut Choices<'_>) -> Vec<u8> {
    let first = match choices.byte() % 8 {
        0 => choices.byte(),
        1 => 0x82,
        2 => 0x01,
        3 => 0x80,
        _ => 0x81,
    };
    let mask = if choices.chance(8) { 0 } else { 0x80 };
    let length = if choices.chance(8) { choices.number() } else { payload.len() as u64 };
    let mut out = vec![first];
    match length {
        0..126 => out.push(mask | length as u8),
        126..65_536 => {
            out.push(mask | 126);
            out.extend((length as u16).to_be_bytes());
        }
        _ => {
            out.push(mask | 127);
            out.extend(length.to_be_bytes());
        }
    }
    let key = [choices.byte(), 7, 0, 0x55];
    if mask != 0 {
        out.extend(key);
    }
    out.extend(payload.iter().zip(key.iter().cycle()).map(|(byte, key)| if mask != 0 { byte ^ key } else { *byte }));
    out
}

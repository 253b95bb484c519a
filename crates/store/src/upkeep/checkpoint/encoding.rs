//! Bytes and names of checkpoint files.

use super::Checkpoint;
use crate::log::Damage;
use api::Message;

/// First bytes of every checkpoint.
const MAGIC: [u8; 8] = *b"CAIRNCKP";
/// Version of the format of checkpoint files, the only one there has been.
const FORMAT: u32 = 1;
/// Version of a checkpoint between members whose leases are a table of their own: to a member that does not know of the table it must not
/// look like one without leases.
const FORMAT_WITH_LEASE_TABLE: u32 = 2;
/// Length of the header: magic, format, CRC-32C of the body, length of the body, 4 zero bytes, CRC-32C of all before.
const HEADER_BYTES: usize = 32;
/// The suffix of a checkpoint file that is being written.
pub(crate) const TEMPORARY_SUFFIX: &str = ".tmp";

/// What a checkpoint's file is named after. Later ones are greater.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct CheckpointName {
    /// Index of the last entry it covers.
    pub(crate) applied_index: u64,
    /// Counts the checkpoints after the same entry, from 0: the keys are the same, but the segments are not.
    pub(crate) repeat: u32,
}

impl CheckpointName {
    /// The first checkpoint after an entry.
    pub(crate) fn first(applied_index: u64) -> CheckpointName {
        CheckpointName { applied_index, repeat: 0 }
    }

    /// The name of a checkpoint after the entry `applied_index` that follows this one.
    pub(crate) fn next(self, applied_index: u64) -> CheckpointName {
        if applied_index != self.applied_index {
            return CheckpointName::first(applied_index);
        }
        let Some(repeat) = self.repeat.checked_add(1) else { panic!("too many checkpoints after one entry") };
        CheckpointName { applied_index, repeat }
    }

    /// Reads a file's name; `None` when it is not a checkpoint's. Numbers beyond half of the range are refused: no store gets there.
    pub(crate) fn parse(name: &str) -> Option<CheckpointName> {
        let stem = name.strip_suffix(".ckpt")?;
        let (index, repeat) = stem.split_once('-').unwrap_or((stem, "0"));
        let applied_index = u64::from_str_radix(index, 16).ok()?;
        let parsed = CheckpointName { applied_index, repeat: u32::from_str_radix(repeat, 16).ok()? };
        (parsed.repeat < u32::MAX / 2 && parsed.to_string() == name).then_some(parsed)
    }
}

impl std::fmt::Display for CheckpointName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.repeat {
            0 => write!(f, "{:016x}.ckpt", self.applied_index),
            repeat => write!(f, "{:016x}-{repeat:08x}.ckpt", self.applied_index),
        }
    }
}

/// The bytes of a checkpoint file.
pub(crate) fn encode_checkpoint(checkpoint: &Checkpoint) -> Vec<u8> {
    let length = checkpoint.encoded_len();
    let mut bytes = Vec::with_capacity(HEADER_BYTES + length);
    bytes.resize(HEADER_BYTES, 0);
    checkpoint.encode_raw(&mut bytes);
    assert!(bytes.len() == HEADER_BYTES + length, "an encoding of another length than announced");
    let body_crc = crc32c::crc32c(&bytes[HEADER_BYTES..]);
    bytes[..8].copy_from_slice(&MAGIC);
    let format = if checkpoint.lease_table.is_some() { FORMAT_WITH_LEASE_TABLE } else { FORMAT };
    bytes[8..12].copy_from_slice(&format.to_le_bytes());
    bytes[12..16].copy_from_slice(&body_crc.to_le_bytes());
    bytes[16..24].copy_from_slice(&(length as u64).to_le_bytes());
    let header_crc = crc32c::crc32c(&bytes[..28]);
    bytes[28..32].copy_from_slice(&header_crc.to_le_bytes());
    bytes
}

/// Reads a checkpoint file. Anything but what was written, to the byte, is damage.
pub fn decode_checkpoint(bytes: &[u8]) -> Result<Checkpoint, Damage> {
    let checkpoint = decode_sent(bytes)?;
    if checkpoint.lease_table.is_some() { Err(UNKNOWN_FORMAT) } else { Ok(checkpoint) }
}

const UNKNOWN_FORMAT: Damage = Damage { offset: 8, what: "a checkpoint format that this version does not know" };

/// Reads a checkpoint that another member sent: a file's bytes, or one that refers to a separate table of leases.
pub(crate) fn decode_sent(bytes: &[u8]) -> Result<Checkpoint, Damage> {
    let Some((header, body)) = bytes.split_first_chunk::<HEADER_BYTES>() else {
        return Err(Damage { offset: 0, what: "shorter than a checkpoint's header" });
    };
    let [m0, m1, m2, m3, m4, m5, m6, m7, f0, f1, f2, f3, b0, b1, b2, b3, rest @ ..] = *header;
    let [l0, l1, l2, l3, l4, l5, l6, l7, _, _, _, _, h0, h1, h2, h3] = rest;
    if [m0, m1, m2, m3, m4, m5, m6, m7] != MAGIC {
        return Err(Damage { offset: 0, what: "not a checkpoint" });
    }
    let format = u32::from_le_bytes([f0, f1, f2, f3]);
    if format != FORMAT && format != FORMAT_WITH_LEASE_TABLE {
        return Err(UNKNOWN_FORMAT);
    }
    if crc32c::crc32c(&header[..28]) != u32::from_le_bytes([h0, h1, h2, h3]) {
        return Err(Damage { offset: 12, what: "the checksum of the checkpoint's header is wrong" });
    }
    if u64::from_le_bytes([l0, l1, l2, l3, l4, l5, l6, l7]) != body.len() as u64 {
        return Err(Damage { offset: bytes.len() as u64, what: "a checkpoint of another length than its header says" });
    }
    let body_at = |what| Damage { offset: HEADER_BYTES as u64, what };
    if crc32c::crc32c(body) != u32::from_le_bytes([b0, b1, b2, b3]) {
        return Err(body_at("the checksum of the checkpoint is wrong"));
    }
    let Ok(checkpoint) = Checkpoint::decode(body) else {
        return Err(body_at("the content of the checkpoint does not parse"));
    };
    if checkpoint.lease_table.is_some() != (format == FORMAT_WITH_LEASE_TABLE) {
        return Err(body_at("a checkpoint with a table of leases that its format does not have, or without one"));
    }
    match checkpoint.contradiction() {
        Some(what) => Err(body_at(what)),
        None => Ok(checkpoint),
    }
}

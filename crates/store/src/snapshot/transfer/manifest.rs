//! Checks of a received checkpoint.

use super::IntakeError;
use crate::log::{Damage, SegmentEntry};
use crate::upkeep::checkpoint::{Checkpoint, decode_sent};
use api::limits::{
    SNAPSHOT_ALARMS_MAX, SNAPSHOT_CHECKPOINT_BYTES_MAX, SNAPSHOT_LEASES_MAX, SNAPSHOT_LISTED_LEASES_MAX,
    SNAPSHOT_MEMBERS_MAX, SNAPSHOT_SEGMENTS_MAX,
};
use api::varint;

/// Length of a checkpoint's header.
const HEADER_BYTES: usize = 32;

/// Messages of which a hostile checkpoint may hold no more than this: each takes far more memory than bytes.
const COUNTED: [(u64, &str, usize); 4] = [
    (6, "segments", SNAPSHOT_SEGMENTS_MAX),
    (7, "leases in its checkpoint", SNAPSHOT_LISTED_LEASES_MAX),
    (8, "alarms", SNAPSHOT_ALARMS_MAX),
    (9, "members", SNAPSHOT_MEMBERS_MAX),
];

/// Reads a checkpoint that another member sent, and checks all that can be checked without its segments.
pub(super) fn read(bytes: &[u8]) -> Result<Checkpoint, IntakeError> {
    at_most("bytes of checkpoint", SNAPSHOT_CHECKPOINT_BYTES_MAX, bytes.len() as u64)?;
    let body = bytes.get(HEADER_BYTES..).unwrap_or_default();
    for (field, what, limit) in COUNTED {
        at_most(what, limit, count(body, field)?)?;
    }
    let content = decode_sent(bytes).map_err(IntakeError::Checkpoint)?;
    at_most("leases", SNAPSHOT_LEASES_MAX, content.lease_table.map_or(0, |table| table.leases))?;
    check_applied(&content)?;
    content.segments.iter().try_for_each(check_entry)?;
    Ok(content)
}

/// Refuses the snapshot of a store to which nothing was applied.
pub(super) fn check_applied(content: &Checkpoint) -> Result<(), IntakeError> {
    match content.applied_index {
        0 => Err(IntakeError::Contradiction("it is a snapshot that no member can be in".into())),
        _ => Ok(()),
    }
}

fn at_most(what: &'static str, limit: usize, found: u64) -> Result<(), IntakeError> {
    let limit = limit as u64;
    if found > limit { Err(IntakeError::TooLarge { what, limit, found }) } else { Ok(()) }
}

fn check_entry(entry: &SegmentEntry) -> Result<(), IntakeError> {
    if entry.body_crc.is_none() {
        return Err(IntakeError::Contradiction(format!("segment {:x} comes without a checksum", entry.id)));
    }
    Ok(())
}

/// How often a field is in the message. Stops where the message does not parse: decoding it says so.
fn count(message: &[u8], wanted: u64) -> Result<u64, IntakeError> {
    let (mut found, mut rest) = (0, message);
    while let Some(key) = varint::take(&mut rest) {
        found += u64::from(key >> 3 == wanted);
        let content_bytes = match key & 7 {
            0 => varint::take(&mut rest).map(|_| 0),
            1 => Some(8),
            2 => varint::take(&mut rest),
            5 => Some(4),
            // Decoding would skip a group, and take the fields after it.
            _ => {
                let what = "a field of a kind that no member writes";
                return Err(IntakeError::Checkpoint(Damage { offset: HEADER_BYTES as u64, what }));
            }
        };
        let Some(behind) = content_bytes.and_then(|bytes| rest.get(usize::try_from(bytes).ok()?..)) else { break };
        rest = behind;
    }
    Ok(found)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::upkeep::checkpoint::encode_checkpoint;
    use api::Message;
    use api::etcdserverpb::Member;

    #[test]
    fn fields_are_counted_as_decoding_would() {
        let content = Checkpoint {
            applied_index: 300,
            segments: vec![SegmentEntry { id: 7, body_crc: Some(9), ..Default::default() }; 3],
            members: vec![Member { name: "a".repeat(200), ..Default::default() }; 4],
            removed: vec![1, 2, 3],
            ..Checkpoint::initial()
        };
        let bytes = encode_checkpoint(&content);
        let body = &bytes[HEADER_BYTES..];
        assert_eq!([6, 9, 8, 10].map(|field| count(body, field).unwrap()), [3, 4, 0, 1]);
        assert_eq!(count(&body[..body.len() - 1], 9).unwrap(), 4, "the last one is counted though it is cut off");
    }

    #[test]
    fn nothing_is_hidden_behind_a_group() {
        let members = Checkpoint { members: vec![Member::default(); 3], ..Checkpoint::initial() }.encode_to_vec();
        let body = [&[0xa3, 0x06, 0xa4, 0x06][..], &members].concat();
        assert_eq!(Checkpoint::decode(&body[..]).unwrap().members.len(), 3, "decoding takes it");
        let refused = count(&body, 9).unwrap_err().to_string();
        assert!(refused.contains("that no member writes"), "{refused}");
    }

    #[test]
    fn what_is_too_much_is_refused_before_it_is_decoded() {
        let content = Checkpoint { members: vec![Member::default(); 10_001], ..Checkpoint::initial() };
        let error = read(&encode_checkpoint(&content)).unwrap_err();
        assert_eq!(error.to_string(), "the received snapshot has 10001 members, more than 10000");
    }
}

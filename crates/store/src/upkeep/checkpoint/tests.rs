use super::encoding::encode_checkpoint;
use super::*;
use crate::log::SegmentEntry;
use api::etcdserverpb::{AlarmMember, Member};
use api::leasepb::Lease;

fn sample() -> Checkpoint {
    let segment = |id, first_main, last_main| SegmentEntry {
        id,
        length: 4096,
        records: 9,
        first_main,
        last_main,
        ..SegmentEntry::default()
    };
    Checkpoint {
        applied_index: 77,
        applied_term: 3,
        revision: 40,
        compact_revision: 20,
        conf_state: api::raftpb::ConfState { voters: vec![1, 2, 3], ..Default::default() },
        segments: vec![segment(1, 2, 11), segment(9, 12, 30), segment(4, 31, 40)],
        leases: vec![Lease { id: 5, ttl: 60, remaining_ttl: 31 }],
        alarms: vec![AlarmMember { member_id: 1, alarm: 1 }],
        members: vec![Member {
            id: 1,
            name: "one".into(),
            peer_ur_ls: vec!["http://a:1".into()],
            ..Default::default()
        }],
        removed: vec![8, 9],
        cluster_version: "3.7.0".into(),
        downgrade: None,
        auth: crate::state::auth::AuthState { enabled: true, ..Default::default() }.save(),
        installed: false,
        compacted: Some(12),
        lease_table: None,
    }
}

#[test]
fn a_checkpoint_reads_back() {
    for checkpoint in [sample(), Checkpoint::initial()] {
        assert_eq!(decode_checkpoint(&encode_checkpoint(&checkpoint)), Ok(checkpoint));
    }
}

#[test]
fn a_table_of_leases_is_for_other_members_only() {
    let sent = Checkpoint { leases: vec![], lease_table: Some(LeaseTable { leases: 3, crc: 7 }), ..sample() };
    let mut bytes = encode_checkpoint(&sent);
    assert_eq!(decode_sent(&bytes), Ok(sent.clone()));
    assert_eq!(decode_checkpoint(&bytes).unwrap_err().what, "a checkpoint format that this version does not know");
    // An earlier version refuses it by its format.
    assert_eq!(bytes[8], 2);
    bytes[8] = 1;
    let crc = crc32c::crc32c(&bytes[..28]);
    bytes[28..32].copy_from_slice(&crc.to_le_bytes());
    assert!(decode_sent(&bytes).is_err() && decode_checkpoint(&bytes).is_err());
    let twice = Checkpoint { lease_table: sent.lease_table, ..sample() };
    assert_eq!(decode_sent(&encode_checkpoint(&twice)).unwrap_err().what, "leases of a checkpoint in two places");
}

#[test]
fn every_flipped_bit_and_every_cut_is_found() {
    let bytes = encode_checkpoint(&sample());
    for at in 0..bytes.len() {
        for bit in 0..8 {
            let mut damaged = bytes.clone();
            damaged[at] ^= 1 << bit;
            let damage = decode_checkpoint(&damaged).unwrap_err();
            assert!(damage.offset <= at as u64, "{at}: {damage:?}");
        }
        decode_checkpoint(&bytes[..at]).unwrap_err();
    }
    let longer = [&bytes[..], &[0]].concat();
    assert_eq!(decode_checkpoint(&longer).unwrap_err().offset, longer.len() as u64);
}

#[test]
fn contradictions_are_found() {
    let mut behind = sample();
    behind.revision = 39;
    let mut unsorted = sample();
    unsorted.segments.swap(0, 1);
    let mut twice = sample();
    twice.segments[2].id = 1;
    let mut compacted = sample();
    compacted.compact_revision = 41;
    let mut users = sample();
    users.auth = b"opaque".as_slice().into();
    let mut finished = sample();
    finished.compacted = Some(21);
    for wrong in [behind, unsorted, twice, compacted, users, finished] {
        assert_eq!(decode_checkpoint(&encode_checkpoint(&wrong)).unwrap_err().offset, 32);
    }
}

#[test]
fn only_our_own_names_are_checkpoints() {
    let first = CheckpointName::first(0xabc);
    let again = first.next(0xabc);
    assert_eq!((first.to_string().as_str(), again.repeat), ("0000000000000abc.ckpt", 1));
    assert!(first < again && again < again.next(0xabc) && again.next(0xabc) < again.next(0xabd));
    for name in [first, again] {
        assert_eq!(CheckpointName::parse(&name.to_string()), Some(name));
    }
    for name in [
        "abc.ckpt",
        "0000000000000ABC.ckpt",
        "0000000000000abc.ckpt.tmp",
        "0000000000000abc.seg",
        "0000000000000abc-00000000.ckpt",
        "0000000000000abc-1.ckpt",
        "0000000000000abc-.ckpt",
    ] {
        assert_eq!(CheckpointName::parse(name), None, "{name}");
    }
}

#[test]
fn a_state_that_cannot_be_is_no_checkpoint() {
    let segment =
        |change: fn(&mut SegmentEntry)| move |checkpoint: &mut Checkpoint| change(&mut checkpoint.segments[1]);
    type Change = Box<dyn Fn(&mut Checkpoint)>;
    let changes: Vec<(&str, Change)> = vec![
        ("a length that has no place", Box::new(segment(|entry| entry.length = 1 << 33))),
        ("a length without a header", Box::new(segment(|entry| entry.length = 16))),
        ("more records than fit", Box::new(segment(|entry| entry.records = 1 << 60))),
        ("an entry of the future", Box::new(|checkpoint| checkpoint.applied_index = u64::MAX)),
        ("a term of the future", Box::new(|checkpoint| checkpoint.applied_term = u64::MAX)),
        ("a revision of the future", Box::new(|checkpoint| checkpoint.revision = i64::MAX)),
    ];
    for (what, change) in changes {
        let mut checkpoint = sample();
        change(&mut checkpoint);
        assert!(decode_checkpoint(&encode_checkpoint(&checkpoint)).is_err(), "{what}");
    }
}

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
        auth: crate::auth::AuthState { enabled: true, ..Default::default() }.save(),
        installed: false,
        compacted: Some(12),
    }
}

#[test]
fn a_checkpoint_reads_back() {
    for checkpoint in [sample(), Checkpoint::initial()] {
        assert_eq!(decode_checkpoint(&encode_checkpoint(&checkpoint)), Ok(checkpoint));
    }
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

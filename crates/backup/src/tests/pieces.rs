//! Pieces: what was written is read, and nothing else is.

use crate::piece::{At, Draft, Piece, PieceName};
use api::raftpb::Entry;
use proptest::prelude::*;

fn entry(index: u64, term: u64, len: usize) -> Entry {
    Entry { index: Some(index), term: Some(term), data: Some(vec![index as u8; len].into()), r#type: Some(0) }
}

fn draft(batches: &[(u64, Vec<usize>)]) -> Draft {
    let mut draft = Draft::new(7, At { index: 40, term: 2 });
    for (time_ms, lens) in batches {
        let first = draft.last().index + 1;
        let entries: Vec<Entry> =
            lens.iter().zip(first..).map(|(len, index)| entry(index, 2 + index / 50, *len)).collect();
        draft.push(*time_ms, &entries).expect("they follow");
    }
    draft
}

fn batches() -> impl Strategy<Value = Vec<(u64, Vec<usize>)>> {
    prop::collection::vec((0..1_000_u64, prop::collection::vec(0..200_usize, 1..6)), 0..6)
}

proptest! {
    #[test]
    fn what_was_written_is_read(batches in batches()) {
        let draft = draft(&batches);
        let piece = Piece::decode(&draft.encode()).expect("a piece");
        prop_assert_eq!((piece.before, piece.last), (draft.before(), draft.last()));
        let found: Vec<_> = piece.batches().collect::<Result<_, _>>().expect("batches");
        let lens = |entries: &[Entry]| entries.iter().map(|entry| entry.data().len()).collect::<Vec<_>>();
        let found: Vec<_> = found.iter().map(|batch| (batch.time_ms, lens(&batch.entries))).collect();
        prop_assert_eq!(found, batches);
    }

    #[test]
    fn a_torn_or_changed_piece_is_refused(batches in batches(), place in any::<prop::sample::Index>(), bit in 0..8_u32) {
        let bytes = draft(&batches).encode();
        let place = place.index(bytes.len());
        prop_assert!(Piece::decode(&bytes.slice(..place)).is_err());
        let mut changed = bytes.to_vec();
        changed[place] ^= 1 << bit;
        prop_assert!(Piece::decode(&changed.into()).is_err());
    }

    #[test]
    fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        // With a checksum that fits, so that what is behind it is read.
        use sha2::{Digest, Sha256};
        let mut whole = b"cairnlog\x01\0\0\0".to_vec();
        whole.extend_from_slice(&bytes);
        let hash = Sha256::digest(&whole);
        whole.extend_from_slice(&hash);
        if let Ok(piece) = Piece::decode(&whole.into()) {
            piece.batches().count();
        }
    }
}

#[test]
fn a_batch_of_many_entries_is_read_in_parts() {
    let piece = Piece::decode(&draft(&[(5, vec![1; 10_000]), (6, vec![2; 3])]).encode()).expect("a piece");
    let parts: Vec<_> = piece.batches().collect::<Result<_, _>>().expect("batches");
    let longest = parts.iter().map(|part| part.entries.len()).max();
    assert!(longest <= Some(1_024), "{longest:?} entries at once");
    let count =
        |time_ms| parts.iter().filter(|part| part.time_ms == time_ms).map(|part| part.entries.len()).sum::<usize>();
    assert_eq!([count(5), count(6)], [10_000, 3]);
    let indexes = parts.iter().flat_map(|part| &part.entries).map(Entry::index);
    assert!(indexes.eq(41..10_044), "in order, without a gap");
}

#[test]
fn entries_that_do_not_follow_are_refused() {
    let mut draft = draft(&[(1, vec![3])]);
    for wrong in [entry(41, 2, 1), entry(43, 2, 1), entry(42, 1, 1)] {
        assert!(draft.push(2, &[wrong]).is_err());
    }
    let before = draft.encode();
    assert!(draft.push(2, &[entry(42, 2, 1), entry(44, 2, 1)]).is_err());
    assert_eq!(draft.encode(), before);
}

#[test]
fn names_sort_as_indexes_do() {
    let name = PieceName { first: 5, last: At { index: 123, term: 9 } };
    assert_eq!(name.to_string(), "log/00000000000000000005-00000000000000000123-9");
    assert_eq!(PieceName::parse(&name.to_string()), Some(name));
    for wrong in ["log/5-123-9", "log/00000000000000000005-00000000000000000004-9", "log/x", "mark.json", "log/"] {
        assert_eq!(PieceName::parse(wrong), None, "{wrong}");
    }
}

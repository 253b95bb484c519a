//! Which pieces lead from a base to an entry.

use crate::piece::PieceName;

/// Pieces that follow one another.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Chain {
    /// The pieces, in order. They may overlap.
    pub(crate) pieces: Vec<PieceName>,
    /// Index of the last entry that they lead to.
    pub(crate) end: u64,
}

/// Entries that are in no piece, although later ones are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gap {
    /// Index of the last entry before it.
    pub after: u64,
    /// Index of the first entry behind it.
    pub until: u64,
}

impl Chain {
    /// The fewest pieces that lead on from the entry `from`, as far as they go, but not beyond what is needed to reach `to`.
    pub(crate) fn find(pieces: &[PieceName], from: u64, to: u64) -> Chain {
        let mut sorted = pieces.to_vec();
        sorted.sort_unstable();
        let mut chain = Chain { pieces: Vec::new(), end: from };
        let mut candidates = sorted.into_iter().peekable();
        let mut best: Option<PieceName> = None;
        while chain.end < to {
            while let Some(piece) = candidates.next_if(|piece| piece.first <= chain.end.saturating_add(1)) {
                best = longer(best, piece);
            }
            let Some(piece) = best.filter(|piece| piece.last.index > chain.end) else { break };
            chain.end = piece.last.index;
            chain.pieces.push(piece);
        }
        chain
    }

    /// What is missing between the entry `from` and the last entry of all.
    pub(crate) fn gaps(pieces: &[PieceName], from: u64) -> Vec<Gap> {
        let mut gaps = Vec::new();
        let mut end = Chain::find(pieces, from, u64::MAX).end;
        while let Some(next) =
            pieces.iter().map(|piece| piece.first).filter(|first| *first > end.saturating_add(1)).min()
        {
            gaps.push(Gap { after: end, until: next });
            end = Chain::find(pieces, next.saturating_sub(1), u64::MAX).end;
        }
        gaps
    }
}

/// The one that ends later; of two that end alike, the one of the later term, which has what was committed.
fn longer(one: Option<PieceName>, other: PieceName) -> Option<PieceName> {
    match one {
        Some(known) if known.last >= other.last => Some(known),
        _ => Some(other),
    }
}

#[cfg(test)]
mod unit {
    use super::*;
    use crate::piece::At;

    fn piece(first: u64, last: u64) -> PieceName {
        PieceName { first, last: At { index: last, term: 1 } }
    }

    #[test]
    fn the_fewest_pieces_are_taken() {
        let all = [piece(1, 5), piece(6, 9), piece(1, 9), piece(10, 12), piece(8, 14), piece(20, 22)];
        let found = Chain::find(&all, 0, u64::MAX);
        assert_eq!(found, Chain { pieces: vec![piece(1, 9), piece(8, 14)], end: 14 });
        assert_eq!(Chain::find(&all, 9, 12).pieces, [piece(8, 14)]);
        assert_eq!(Chain::find(&all, 16, u64::MAX), Chain { pieces: vec![], end: 16 });
        assert_eq!(Chain::find(&all, 3, 3).pieces, []);
        assert_eq!(Chain::gaps(&all, 0), [Gap { after: 14, until: 20 }]);
        assert_eq!(Chain::gaps(&all, 14), [Gap { after: 14, until: 20 }]);
        assert_eq!(Chain::gaps(&all, 19), []);
    }
}

//! Leases by id, in pieces that captures share.
//!
//! Clients choose the ids, so pieces are divided by how many leases they have and not by a function of the id: whatever is chosen, a change
//! that finds its piece shared with a capture copies no more than [`PIECE_LEASES_MAX`].

use super::leases::Lease;
use std::collections::BTreeMap;
use std::sync::Arc;

/// A piece with more leases than this is divided.
const PIECE_LEASES_MAX: usize = 1024;

/// Consecutive leases.
pub(super) type Piece = Arc<BTreeMap<i64, Lease>>;

/// Leases by id.
#[derive(Default)]
pub(super) struct Pieces {
    /// By an id that is not above those in it, and above those in the piece before. The first one has the lowest id that there can be.
    pieces: BTreeMap<i64, Piece>,
    count: usize,
}

impl Pieces {
    pub(super) fn count(&self) -> usize {
        self.count
    }

    pub(super) fn get(&self, id: i64) -> Option<&Lease> {
        self.pieces.range(..=id).next_back()?.1.get(&id)
    }

    /// The lease, to be changed.
    pub(super) fn get_mut(&mut self, id: i64) -> Option<&mut Lease> {
        let (_, piece) = self.pieces.range_mut(..=id).next_back()?;
        if piece.contains_key(&id) { Arc::make_mut(piece).get_mut(&id) } else { None }
    }

    /// Adds a lease, or puts it into the place of the one with its id. Whether it is new.
    pub(super) fn insert(&mut self, lease: Lease) -> bool {
        if self.pieces.is_empty() {
            self.pieces.insert(i64::MIN, Piece::default());
        }
        let Some((_, piece)) = self.pieces.range_mut(..=lease.id).next_back() else {
            unreachable!("the first piece begins with the lowest id");
        };
        let leases = Arc::make_mut(piece);
        let is_new = leases.insert(lease.id, lease).is_none();
        self.count += usize::from(is_new);
        if leases.len() > PIECE_LEASES_MAX
            && let Some(&middle) = leases.keys().nth(PIECE_LEASES_MAX / 2)
        {
            let rest = leases.split_off(&middle);
            self.pieces.insert(middle, Arc::new(rest));
        }
        is_new
    }

    /// Whether it was there.
    pub(super) fn remove(&mut self, id: i64) -> bool {
        let Some((&first, piece)) = self.pieces.range_mut(..=id).next_back() else { return false };
        if !piece.contains_key(&id) {
            return false;
        }
        self.count -= 1;
        if piece.len() == 1 && first != i64::MIN {
            self.pieces.remove(&first);
        } else {
            Arc::make_mut(piece).remove(&id);
        }
        true
    }

    /// Up to `max` leases, the first of them from the id `from` on, in order.
    pub(super) fn some_from(&self, from: i64, max: usize) -> Vec<Lease> {
        let first = self.pieces.range(..=from).next_back().map_or(from, |(first, _)| *first);
        let pieces = self.pieces.range(first..).map(|(_, piece)| piece);
        pieces.flat_map(|piece| piece.range(from..).map(|(_, lease)| *lease)).take(max).collect()
    }

    /// All of them, as they are now.
    pub(super) fn capture(&self) -> Vec<Piece> {
        self.pieces.values().cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lease(id: i64) -> Lease {
        Lease { id, ttl: 9, remaining_ttl: 0 }
    }

    #[test]
    fn pieces_are_one_map() {
        let mut pieces = Pieces::default();
        let mut model = BTreeMap::new();
        let ids = (0..20_000i64).map(|step| (step * 7_919) % 10_007 - 5_000);
        for (step, id) in ids.chain([i64::MIN, i64::MAX, i64::MIN]).enumerate() {
            if step % 3 == 2 {
                assert_eq!(pieces.remove(id), model.remove(&id).is_some());
            }
            assert_eq!(pieces.insert(lease(id)), model.insert(id, lease(id)).is_none());
            assert_eq!(pieces.get(id), model.get(&id));
            if step % 5 == 0 {
                assert_eq!(pieces.remove(id + i64::from(id < 0)), model.remove(&(id + i64::from(id < 0))).is_some());
            }
        }
        let all =
            |pieces: &Pieces| pieces.capture().iter().flat_map(|piece| piece.values().copied()).collect::<Vec<_>>();
        assert_eq!(all(&pieces), model.values().copied().collect::<Vec<_>>());
        assert!(pieces.capture().iter().all(|piece| piece.len() <= PIECE_LEASES_MAX));
        for id in model.keys() {
            pieces.get_mut(*id).expect("a lease").remaining_ttl = 1;
        }
        assert!(all(&pieces).iter().all(|lease| lease.remaining_ttl == 1));
        for from in [i64::MIN, i64::MIN + 1, -5_001, -5_000, -1, 0, 4_999, i64::MAX] {
            for max in [0, 1, 700, 100_000] {
                let some: Vec<i64> = pieces.some_from(from, max).iter().map(|lease| lease.id).collect();
                assert_eq!(some, model.range(from..).take(max).map(|(id, _)| *id).collect::<Vec<_>>());
            }
        }
        assert_eq!((pieces.count(), pieces.get_mut(12_345)), (model.len(), None));
        model.keys().for_each(|id| assert!(pieces.remove(*id)));
        assert_eq!((pieces.count(), pieces.capture().len()), (0, 1));
        assert_eq!((pieces.some_from(0, 9), Pieces::default().some_from(0, 9)), (vec![], vec![]));
    }
}

//! Whose work is next: who has had the least of the thread's time.

use std::collections::{BTreeSet, HashMap, VecDeque};

/// Work of one kind that waits, by whom it is for.
#[derive(Debug)]
pub(crate) struct Turns<W> {
    parties: HashMap<u64, Party<W>>,
    /// Those with work, by the time that they have had.
    order: BTreeSet<(u64, u64)>,
    /// What the party had that was served last. Who comes anew begins here: what it did not use before is not saved up.
    floor: u64,
}

#[derive(Debug)]
struct Party<W> {
    waiting: VecDeque<W>,
    had: u64,
}

impl<W> Default for Turns<W> {
    fn default() -> Turns<W> {
        Turns { parties: HashMap::new(), order: BTreeSet::new(), floor: 0 }
    }
}

impl<W> Turns<W> {
    /// Work for a party, behind what it has already.
    pub(crate) fn add(&mut self, number: u64, work: W) {
        let floor = self.floor;
        let party = self.parties.entry(number).or_insert_with(|| Party { waiting: VecDeque::new(), had: floor });
        if party.waiting.is_empty() {
            party.had = party.had.max(floor);
            self.order.insert((party.had, number));
        }
        party.waiting.push_back(work);
    }

    /// The next piece of work, and whose it is.
    pub(crate) fn next(&mut self) -> Option<(u64, W)> {
        let (had, number) = self.order.pop_first()?;
        self.floor = self.floor.max(had);
        let party = self.parties.get_mut(&number)?;
        let work = party.waiting.pop_front()?;
        if !party.waiting.is_empty() {
            self.order.insert((had, number));
        }
        Some((number, work))
    }

    /// What the last piece of work of a party took. Anything takes something.
    pub(crate) fn took(&mut self, number: u64, nanos: u64) {
        let Some(party) = self.parties.get_mut(&number) else { return };
        let waits = self.order.remove(&(party.had, number));
        party.had = party.had.saturating_add(nanos.max(1));
        if waits {
            self.order.insert((party.had, number));
        }
    }

    /// There will be no more work for a party. What waits is dropped.
    pub(crate) fn forget(&mut self, number: u64) {
        if let Some(party) = self.parties.remove(&number) {
            self.order.remove(&(party.had, number));
        }
    }

    /// Whether there is any work.
    pub(crate) fn is_empty(&self) -> bool {
        self.order.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_of_one_is_done_in_order_and_time_is_shared() {
        let mut turns = Turns::default();
        (0..1000).for_each(|number| turns.add(1, number));
        (0..10).for_each(|number| turns.add(2, number));
        let (mut of_one, mut of_two) = (Vec::new(), Vec::new());
        while of_two.len() < 10 {
            let (party, work) = turns.next().expect("work");
            let (list, nanos) = if party == 1 { (&mut of_one, 100) } else { (&mut of_two, 50) };
            list.push(work);
            turns.took(party, nanos);
        }
        // Two pieces for each of the one that takes longer.
        assert!((4..=6).contains(&of_one.len()), "{of_one:?}");
        assert!(of_one.iter().copied().eq(0..of_one.len()) && of_two.iter().copied().eq(0..10));
    }

    #[test]
    fn nobody_saves_time_up() {
        let mut turns = Turns::default();
        turns.add(1, ());
        turns.next();
        turns.took(1, 1);
        for _ in 0..100 {
            turns.add(2, ());
            turns.next();
            turns.took(2, 1000);
        }
        (0..50).for_each(|_| [1, 2].into_iter().for_each(|party| turns.add(party, ())));
        let mut served = 0;
        for _ in 0..20 {
            let (party, ()) = turns.next().expect("work");
            served += u32::from(party == 1);
            turns.took(party, 1000);
        }
        assert!((9..=11).contains(&served), "{served}");
        turns.forget(1);
        turns.forget(2);
        assert!(turns.is_empty() && turns.next().is_none());
    }
}

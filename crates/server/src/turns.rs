//! A queue in which clients take turns: one with much work delays only itself.

use rpc::{Address, Origin};
use std::collections::{HashMap, VecDeque};

/// Whose work it is: that of clients at an address, or the member's own.
pub(crate) type Whose = Option<Origin>;

/// Whose the work of `client` is; that of no client is the member's own.
pub(crate) fn whose(client: Option<Address>) -> Whose {
    client.map(|client| Origin::of(client.ip()))
}

/// How many of `most` places clients at one address may have. The others always find room.
pub(crate) fn share_of(most: usize) -> usize {
    most.div_ceil(2)
}

/// Work that waits, in a queue for each address. The addresses take turns.
pub(crate) struct Turns<J> {
    /// No queue is empty.
    queues: HashMap<Whose, VecDeque<J>>,
    /// The order in which addresses are served: each that has work, once.
    order: VecDeque<Whose>,
    waiting: usize,
}

impl<J> Default for Turns<J> {
    fn default() -> Turns<J> {
        Turns { queues: HashMap::new(), order: VecDeque::new(), waiting: 0 }
    }
}

impl<J> Turns<J> {
    /// Adds work, however much waits.
    pub(crate) fn add(&mut self, whose: Whose, job: J) {
        let queue = self.queues.entry(whose).or_default();
        if queue.is_empty() {
            self.order.push_back(whose);
        }
        queue.push_back(job);
        self.waiting = self.waiting.saturating_add(1);
    }

    /// Adds work, unless `most` wait already. Clients at one address get their share of these places at most. Returns
    /// the work if there is no place.
    pub(crate) fn try_add(&mut self, whose: Whose, job: J, most: usize) -> Result<(), J> {
        let has = self.queues.get(&whose).map_or(0, VecDeque::len);
        if self.waiting >= most || (whose.is_some() && has >= share_of(most)) {
            return Err(job);
        }
        self.add(whose, job);
        Ok(())
    }

    /// The next work.
    pub(crate) fn next(&mut self) -> Option<J> {
        let whose = self.order.pop_front()?;
        let queue = self.queues.get_mut(&whose)?;
        let job = queue.pop_front();
        if queue.is_empty() {
            self.queues.remove(&whose);
        } else {
            self.order.push_back(whose);
        }
        self.waiting = self.waiting.saturating_sub(1);
        job
    }

    /// How much waits.
    pub(crate) fn len(&self) -> usize {
        self.waiting
    }
}

/// Places of which clients at one address may have their share.
pub(crate) struct Places {
    most: usize,
    taken: usize,
    /// The places of each address that has some.
    of: HashMap<Whose, usize>,
}

impl Places {
    /// `most` places.
    pub(crate) fn new(most: usize) -> Places {
        Places { most, taken: 0, of: HashMap::new() }
    }

    /// Takes a place; false if there is none for this address.
    pub(crate) fn take(&mut self, whose: Whose) -> bool {
        let has = self.of.get(&whose).copied().unwrap_or(0);
        if self.taken >= self.most || (whose.is_some() && has >= share_of(self.most)) {
            return false;
        }
        self.of.insert(whose, has.saturating_add(1));
        self.taken = self.taken.saturating_add(1);
        true
    }

    /// Gives a place back.
    pub(crate) fn leave(&mut self, whose: Whose) {
        if let Some(has) = self.of.get_mut(&whose) {
            *has = has.saturating_sub(1);
            self.taken = self.taken.saturating_sub(1);
            if *has == 0 {
                self.of.remove(&whose);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::SocketAddr;

    fn host(last: u8) -> Whose {
        whose(Some(Address::Tcp(SocketAddr::from(([10, 0, 0, last], 1)))))
    }

    #[test]
    fn one_address_has_half_of_the_places_and_every_other_turn() {
        let mut turns = Turns::default();
        let taken = (0..100).filter(|_| turns.try_add(host(1), "greedy", 16).is_ok()).count();
        assert_eq!(taken, 8);
        for (whose, job) in [(host(2), "other"), (host(3), "third")] {
            assert_eq!(turns.try_add(whose, job, 16), Ok(()));
        }
        // The member's own work may have all places that are left.
        let own = (0..100).filter(|_| turns.try_add(None, "own", 16).is_ok()).count();
        assert_eq!((own, turns.len()), (6, 16));
        let order: Vec<_> = std::iter::from_fn(|| turns.next()).collect();
        assert_eq!(order[..6], ["greedy", "other", "third", "own", "greedy", "own"]);
        assert_eq!((order.len(), turns.len()), (16, 0));
    }

    #[test]
    fn one_address_has_half_of_the_places_until_it_leaves_them() {
        let mut places = Places::new(4);
        let taken = [host(1), host(1), host(1), host(2), host(3), host(4)].map(|whose| places.take(whose));
        assert_eq!(taken, [true, true, false, true, true, false]);
        places.leave(host(1));
        assert!(places.take(host(4)) && !places.take(host(1)));
        (1..=4).for_each(|last| places.leave(host(last)));
        assert_eq!((places.taken, places.of.len()), (0, 0));
    }
}

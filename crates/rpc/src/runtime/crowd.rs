//! Entries that compete for the same places, and which of them is evicted when there are too many.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::{IpAddr, Ipv6Addr};

/// The bits of an IPv6 address that are the network's: a single host may have all the addresses below it.
const NETWORK: Ipv6Addr = Ipv6Addr::new(u16::MAX, u16::MAX, u16::MAX, u16::MAX, 0, 0, 0, 0);

/// Where connections come from, as far as one from the same place must not take the place of another: an IPv4 address, an IPv6
/// network, or a socket of this machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Origin(Option<IpAddr>);

impl Origin {
    /// The origin of connections from this address; none for a Unix socket.
    pub fn of(address: Option<IpAddr>) -> Origin {
        Origin(address.map(|address| Origin::cut(address, NETWORK)))
    }
}

/// Entries that an origin may have before it can lose some on its own. One with no more entries is counted together with its
/// neighbours: an owner of many networks could be in many places with a few entries each.
const MANY: usize = 16;

/// The bits of an IPv6 address that are the site's, which has many networks.
const SITE: Ipv6Addr = Ipv6Addr::new(u16::MAX, u16::MAX, u16::MAX, 0, 0, 0, 0, 0);

impl Origin {
    /// The address, with only the bits of `mask` if it is of version 6.
    fn cut(address: IpAddr, mask: Ipv6Addr) -> IpAddr {
        match address.to_canonical() {
            IpAddr::V6(address) => IpAddr::V6(address & mask),
            address => address,
        }
    }

    /// All that is of the same site, as an origin of its own.
    #[must_use]
    pub fn site(self) -> Origin {
        Origin(self.0.map(|address| Origin::cut(address, SITE)))
    }
}

/// The number of entries by origin.
#[derive(Debug, Default)]
struct Ranking {
    /// The entries of each. None is empty.
    entries: HashMap<Origin, BTreeSet<u64>>,
    /// By the number of entries, and by the oldest of them.
    order: BTreeSet<(usize, Reverse<u64>, Origin)>,
}

impl Ranking {
    /// Changes the entries of one.
    fn change(&mut self, origin: Origin, change: impl FnOnce(&mut BTreeSet<u64>)) {
        let numbers = self.entries.entry(origin).or_default();
        if let Some(first) = numbers.first() {
            self.order.remove(&(numbers.len(), Reverse(*first), origin));
        }
        change(numbers);
        match numbers.first() {
            Some(first) => {
                self.order.insert((numbers.len(), Reverse(*first), origin));
            }
            None => {
                self.entries.remove(&origin);
            }
        }
    }

    /// The number of entries of the origin with most, and its oldest. Of origins with equally many, the one with the oldest entry.
    fn most(&self) -> Option<(usize, u64)> {
        self.order.last().map(|(count, Reverse(oldest), _)| (*count, *oldest))
    }
}

/// Entries in the order in which they came, each with its origin. The crowd does not bound itself: a caller that adds to it looks at
/// [`Crowd::len`] first and makes room with [`Crowd::evict`].
#[derive(Debug)]
pub struct Crowd<T> {
    entries: BTreeMap<u64, (Origin, T)>,
    origins: Ranking,
    sites: Ranking,
    next: u64,
}

impl<T> Default for Crowd<T> {
    fn default() -> Crowd<T> {
        Crowd { entries: BTreeMap::new(), origins: Ranking::default(), sites: Ranking::default(), next: 0 }
    }
}

impl<T> Crowd<T> {
    /// How many there are.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// There are none.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Adds one, and gives the number under which it is found.
    pub fn add(&mut self, origin: Origin, entry: T) -> u64 {
        let number = self.next;
        self.next = self.next.wrapping_add(1);
        self.entries.insert(number, (origin, entry));
        for (ranking, of) in [(&mut self.origins, origin), (&mut self.sites, origin.site())] {
            ranking.change(of, |numbers| {
                numbers.insert(number);
            });
        }
        number
    }

    /// One of them, if it is still there.
    pub fn get_mut(&mut self, number: u64) -> Option<&mut T> {
        self.entries.get_mut(&number).map(|(_, entry)| entry)
    }

    /// Takes one out, if it is still there.
    pub fn remove(&mut self, number: u64) -> Option<T> {
        let (origin, entry) = self.entries.remove(&number)?;
        for (ranking, of) in [(&mut self.origins, origin), (&mut self.sites, origin.site())] {
            ranking.change(of, |numbers| {
                numbers.remove(&number);
            });
        }
        Some(entry)
    }

    /// Evicts the oldest entry of the origin with most. Of origins with equally many, the one with the oldest entry.
    /// So an origin loses only to those that have fewer. Where none has many, the same among sites: IPv6 addresses that are alike in
    /// their first 48 bits, and any other origin by itself.
    pub fn evict(&mut self) -> Option<T> {
        let (count, oldest) = self.origins.most()?;
        let number = if count > MANY { oldest } else { self.sites.most()?.1 };
        self.remove(number)
    }

    /// The same among those that may go, origin by origin.
    pub fn evict_if(&mut self, may_go: impl Fn(&T) -> bool) -> Option<T> {
        let goes = |number: &&u64| self.entries.get(number).is_some_and(|(_, entry)| may_go(entry));
        let oldest = self.origins.entries.values().filter_map(|numbers| {
            let mut going = numbers.iter().filter(goes);
            let oldest = *going.next()?;
            Some((going.count(), Reverse(oldest)))
        });
        let (_, Reverse(number)) = oldest.max()?;
        self.remove(number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn origin(last: u8) -> Origin {
        Origin::of(Some(IpAddr::from([10, 0, 0, last])))
    }

    #[test]
    fn who_has_most_loses_its_oldest() {
        let mut crowd = Crowd::default();
        let first = crowd.add(origin(1), "the first of few");
        for name in ["a", "b", "c"] {
            crowd.add(origin(2), name);
        }
        crowd.add(origin(3), "the second of few");
        assert_eq!(crowd.evict(), Some("a"));
        let few = |name: &&str| *name != "b";
        assert_eq!(crowd.evict_if(few), Some("the first of few"), "as many of each may go: the oldest does");
        assert_eq!((crowd.remove(first), crowd.len()), (None, 3));
        assert_eq!([crowd.evict(), crowd.evict()], [Some("b"), Some("c")]);
        assert_eq!(crowd.evict_if(|_| false), None);
        assert_eq!(crowd.evict(), Some("the second of few"));
        assert!(crowd.is_empty() && crowd.origins.entries.is_empty() && crowd.evict().is_none());
    }

    #[test]
    fn a_network_of_networks_takes_places_from_itself() {
        let network = |bits: u16| Origin::of(format!("2001:db8:1:{bits:x}::1").parse().ok());
        let mut crowd = Crowd::default();
        // The honest one is the oldest, and alone where it is.
        let honest = crowd.add(origin(1), 0);
        for bits in 1..=1_000 {
            crowd.add(network(bits), bits);
        }
        for bits in 1..=1_000 {
            assert_eq!(crowd.evict(), Some(bits));
            crowd.add(network(bits), bits);
        }
        assert!(crowd.get_mut(honest).is_some());
        // One with many entries loses some first, however many neighbours have one each.
        for _ in 0..=MANY {
            crowd.add(origin(2), 2_000);
        }
        assert_eq!([crowd.evict(), crowd.evict()], [Some(2_000), Some(1)]);
    }

    #[test]
    fn a_network_is_one_origin() {
        let of = |text: &str| Origin::of(text.parse().ok());
        assert_eq!(of("2001:db8:1:2::1"), of("2001:db8:1:2:ffff::9"));
        assert_ne!(of("2001:db8:1:2::1"), of("2001:db8:1:3::1"));
        assert_eq!(of("::ffff:10.0.0.1"), of("10.0.0.1"));
        assert_ne!(of("10.0.0.1"), of("10.0.0.2"));
        assert_ne!(of("10.0.0.1"), Origin::of(None));
    }
}

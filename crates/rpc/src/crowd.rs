//! Those who wait for the same places, and who of them goes when there are too many.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::{IpAddr, Ipv6Addr};

/// Bits of an IPv6 address that are the network's: a single host may have all the addresses below it.
const NETWORK_BITS: u32 = 64;

/// Where connections come from, as far as one from the same place must not take the place of another: an IPv4 address, an IPv6
/// network, or a socket of this machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Origin(Option<IpAddr>);

impl Origin {
    /// The origin of connections from this address; none for a Unix socket.
    pub fn of(address: Option<IpAddr>) -> Origin {
        Origin(address.map(|address| match address.to_canonical() {
            IpAddr::V6(address) => {
                IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() & u128::MAX << (u128::BITS - NETWORK_BITS)))
            }
            address => address,
        }))
    }
}

/// Entries in the order in which they came, each with its origin. The crowd does not bound itself: whoever adds to it looks at
/// [`Crowd::len`] first and makes room with [`Crowd::evict`].
#[derive(Debug)]
pub struct Crowd<T> {
    entries: BTreeMap<u64, (Origin, T)>,
    /// The entries of each origin. None is empty.
    origins: HashMap<Origin, BTreeSet<u64>>,
    next: u64,
}

impl<T> Default for Crowd<T> {
    fn default() -> Crowd<T> {
        Crowd { entries: BTreeMap::new(), origins: HashMap::new(), next: 0 }
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
        self.origins.entry(origin).or_default().insert(number);
        number
    }

    /// One of them, if it is still there.
    pub fn get_mut(&mut self, number: u64) -> Option<&mut T> {
        self.entries.get_mut(&number).map(|(_, entry)| entry)
    }

    /// Takes one out, if it is still there.
    pub fn remove(&mut self, number: u64) -> Option<T> {
        let (origin, entry) = self.entries.remove(&number)?;
        if let Some(numbers) = self.origins.get_mut(&origin) {
            numbers.remove(&number);
            if numbers.is_empty() {
                self.origins.remove(&origin);
            }
        }
        Some(entry)
    }

    /// Takes out the one that goes first: of the origin that has most, its oldest. Between origins with as many it is the older entry.
    /// So an origin loses only to those that have fewer.
    pub fn evict(&mut self) -> Option<T> {
        let oldest = self.origins.values().filter_map(|numbers| Some((numbers.len(), Reverse(*numbers.first()?))));
        let (_, Reverse(number)) = oldest.max()?;
        self.remove(number)
    }

    /// The same among those that may go.
    pub fn evict_if(&mut self, may_go: impl Fn(&T) -> bool) -> Option<T> {
        let goes = |number: &&u64| self.entries.get(number).is_some_and(|(_, entry)| may_go(entry));
        let oldest = self.origins.values().filter_map(|numbers| {
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
        assert!(crowd.is_empty() && crowd.origins.is_empty() && crowd.evict().is_none());
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
